"""Caches of transformers as inputs and results: taken apart layer by layer, keys before values, and put together anew.

Nobody has to register them. A model writes into the cache that it is given, so each run gets one of its own. This file
needs neither PyTorch nor transformers: who has a cache has imported both.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anyshape.errors import UsageError
from anyshape.inputs.structure import Opened

__all__ = ["built", "miscounted", "open_cache", "without_past"]

# How users of ONNX Runtime and Optimum know them: past_key_values.0.key, past_key_values.0.decoder.key
_WORDS = {"keys": "key", "values": "value"}
_SIDES = {"self_attention_cache": "decoder", "cross_attention_cache": "encoder"}


def open_cache(value: Any) -> Opened | None:
    """A cache, opened: the names of its tensors, the tensors, and how to make another around others; else None."""
    if not _is_cache(value):
        return None
    found = list(_tensors(value, ()))
    names = [_named(way) for way, _ in found]
    if len(set(names)) != len(names):
        names = [".".join(way) for way, _ in found]
    tensors = [tensor for _, tensor in found]
    return Opened("cache", names, tensors, _Filler(value, tensors))


def built(kind: type, names: Sequence[str], tensors: Sequence[Any]) -> Any:
    """A new cache of a class of transformers, filled with what a file gave; `UsageError` where the class can't be."""
    if not all(isinstance(name, str) for name in names):
        raise _not_built(kind)
    sides: dict[str, dict[int, dict[str, Any]]] = {}
    for name, tensor in zip(names, tensors, strict=True):
        parts = re.fullmatch(r"(\d+)(?:\.(decoder|encoder))?\.(key|value)", name)
        if parts is None:
            raise _not_built(kind)
        layer, side, word = int(parts[1]), parts[2] or "", parts[3]
        sides.setdefault(side, {}).setdefault(layer, {})[word] = tensor
    try:
        if set(sides) <= {""}:
            return _updated(kind(), sides.get("", {}))
        plain = next(base for base in kind.__mro__[1:] if base.__name__ == "Cache")
        subclasses: list[Any] = plain.__subclasses__()
        found = [each for each in subclasses if each.__name__ == "DynamicCache"]
        halves = [_updated(found[0](), sides.get(side, {})) for side in ("decoder", "encoder")]
        return kind(*halves)
    except (TypeError, AttributeError, StopIteration, IndexError) as error:
        raise _not_built(kind) from error


def _updated(cache: Any, layers: Mapping[int, Mapping[str, Any]]) -> Any:
    for number in sorted(layers):
        cache.update(layers[number]["key"], layers[number]["value"], number)
    return cache


def _not_built(kind: type) -> UsageError:
    return UsageError(
        f"{kind.__name__} can't be made from keys and values alone",
        hint="Leave it out of classes: its tensors come back in a dict, by name.",
    )


def _is_cache(value: Any) -> bool:
    """Whether a value is a cache of transformers, or one that a model of transformers defines for itself."""
    library = sys.modules.get("transformers.cache_utils")
    if library is None:
        return False
    kind = type(value)
    own = kind.__module__.startswith("transformers.models.") and kind.__name__.endswith("Cache")
    return (isinstance(value, library.Cache) or own) and not isinstance(value, (Mapping, tuple, list))


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def without_past(cache: Any) -> Any | None:
    """A cache like one that a model has filled, with room for nothing yet; None where it holds more than the past."""
    box = open_cache(cache)
    if box is None or box.rebuild_with is None or not box.children:
        return None
    if not all(re.fullmatch(r"\d+\.(key|value)", name) for name in box.keys):
        return None
    return box.rebuild_with([tensor[..., :0, :] for tensor in box.children])


# --- Walking: the same way whenever tensors are taken out and put in ---------------------------------------


def _entries(part: Any) -> list[tuple[str, Any]]:
    """What a part of a cache holds, keys and values before all else; what is its own business is left out."""
    if isinstance(part, Mapping):
        return [(str(key), item) for key, item in part.items()]
    if isinstance(part, (list, tuple)):
        return [(str(number), item) for number, item in enumerate(part)]
    if not _is_holder(part):
        return []
    held = [(name, item) for name, item in vars(part).items() if not _is_private(name, item)]
    return sorted(held, key=lambda pair: [*_WORDS, *_SIDES, pair[0]].index(pair[0]))


def _is_holder(part: Any) -> bool:
    """Whether a part is a cache or a layer of one."""
    return _is_cache(part) or any(
        base.__name__.startswith(("CacheLayer", "LinearAttentionCache")) for base in type(part).__mro__
    )


def _is_private(name: str, item: Any) -> bool:
    """A number in the form of a tensor under a private name, such as the length of a window, is a constant."""
    return name.startswith("_") and _is_tensor(item) and item.dim() == 0


def _tensors(part: Any, way: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, item in _entries(part):
        if _is_tensor(item):
            yield (*way, name), item
        else:
            yield from _tensors(item, (*way, name))


def _named(way: Sequence[str]) -> str:
    """``('layers', '0', 'keys')`` is ``0.key``; of an encoder and a decoder, ``0.decoder.key``."""
    side = [_SIDES[word] for word in way if word in _SIDES]
    words = [_WORDS.get(word, word) for word in way if word not in _SIDES and word != "layers"]
    return ".".join([*words[:1], *side, *words[1:]])


def _remade(part: Any, tensors: Iterator[Any]) -> Any:
    """A copy of a part of a cache around other tensors, which come in the order of `_tensors`."""
    made = {
        name: next(tensors) if _is_tensor(item) else _remade(item, tensors) for name, item in _entries(part)
    }
    if isinstance(part, tuple):
        return tuple(made.values()) if type(part) is tuple else part
    twin = copy.copy(part) if isinstance(part, (Mapping, list)) or _is_holder(part) else part
    if isinstance(twin, list):
        twin[:] = made.values()
    elif isinstance(twin, Mapping):
        twin.update(zip(part, made.values(), strict=True))  # type: ignore[attr-defined]
    elif twin is not part:
        vars(twin).update(made)
    return twin


# --- Numbers that count tokens -----------------------------------------------------------------------------


def miscounted(value: Any, opened: Callable[[Any], Opened | None]) -> str | None:
    """Where a cache in a value has seen other tokens than it holds, such as more than its window; None if nowhere.

    A layer of a sliding window keeps the last tokens only, and counts them all in a plain number, which no shape tells.
    """
    if not _is_cache(value):
        box = opened(value)
        if box is None:
            return None
        names = box.keys if box.names is None else box.names
        inside = ((name, miscounted(child, opened)) for name, child in zip(names, box.children, strict=True))
        return next((f".{name}{amiss}" for name, amiss in inside if amiss is not None), None)
    for number, layer in enumerate(_layers(value)):
        for name in _counts(layer):
            seen, held = getattr(layer, name), int(layer.keys.shape[-2])
            if seen != held:
                return f".layers[{number}].{name} is {seen}, but it holds {held} keys"
    return None


def _layers(part: Any) -> Iterator[Any]:
    """The layers that hold keys."""
    if _is_holder(part) and _is_tensor(vars(part).get("keys")):
        yield part
    for _, item in _entries(part):
        if not _is_tensor(item):
            yield from _layers(item)


def _counts(layer: Any) -> list[str]:
    """The plain numbers of a layer that count its tokens: those that it takes back to 0 when it forgets them."""
    twin = _remade(layer, (tensor.new_empty(0) for _, tensor in _tensors(layer, ())))
    numbers = [
        name for name, item in vars(layer).items() if isinstance(item, int) and not isinstance(item, bool)
    ]
    for name in numbers:
        setattr(twin, name, 1)
    twin.reset()
    return [name for name in numbers if vars(twin).get(name) == 0]


class _Filler:
    """Puts tensors into a copy of a cache, and sets what counts them."""

    def __init__(self, value: Any, tensors: Sequence[Any]) -> None:
        self.skeleton = _remade(value, iter(tensors))
        self.counts: list[list[str]] | None = None

    def __call__(self, parts: Sequence[Any]) -> Any:
        if self.counts is None:  # asked for once: of most results nobody makes another
            self.counts = [_counts(layer) for layer in _layers(self.skeleton)]
        made = _remade(self.skeleton, iter(parts))
        for layer, counts in zip(_layers(made), self.counts, strict=True):
            for name in counts:
                setattr(layer, name, layer.keys.shape[-2])
        return made
