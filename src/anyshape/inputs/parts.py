"""What a module holds, part by part: each part knows what it was, whether that changed, and how to put it back."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any, Protocol

import numpy as np
import torch

from anyshape.torch_bridge import tensors

__all__ = [
    "ATOMS",
    "CONTAINERS",
    "REMEMBERING",
    "Answers",
    "Attribute",
    "Entries",
    "Fields",
    "Inside",
    "Named",
    "Numbers",
    "Part",
    "Shared",
    "slots_of",
]

ATOMS = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size))
CONTAINERS = (dict, list, set, collections.deque)
REMEMBERING = type(functools.lru_cache(len))

Named = Callable[[Any], "Attribute"]  # the attribute that an entry belongs to, by the entry's key


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a module, or of an object among the inputs."""

    name: str
    kind: type  # of its owner
    owner: str = ""  # the owner's path; nothing for the model itself

    def __str__(self) -> str:
        return f"`{self.name}` of {self.kind.__name__}" + (f" ({self.owner})" if self.owner else "")


class Part(Protocol):
    """One thing that can change."""

    def moved(self) -> bool:
        """Whether it is not, or may not be, as it was: a quick look."""

    def changes(self) -> Iterator[Attribute]:
        """The attributes that have another value now."""

    def put_back(self, only: Attribute | None = None) -> None:
        """Makes it as it was, or as much of it as belongs to one attribute."""


class _Keyed:
    """Entries by key, known by the identity of each: what the fields and containers of any object are."""

    __slots__ = ("keys", "named", "owner", "values")

    def __init__(self, owner: Any, named: Named) -> None:
        self.owner, self.named = owner, named
        now = self.now()
        self.keys, self.values = tuple(now), tuple(now.values())

    def now(self) -> dict[Any, Any]:
        raise NotImplementedError

    def write(self, entries: dict[Any, Any]) -> None:
        raise NotImplementedError

    def moved(self) -> bool:
        return self._differs(self.now())

    def _differs(self, now: Mapping[Any, Any]) -> bool:
        return tuple(now) != self.keys or not all(map(is_, now.values(), self.values))

    def changes(self) -> Iterator[Attribute]:
        now, before = self.now(), dict(zip(self.keys, self.values, strict=True))
        for key in {**before, **now}:
            if key not in now or key not in before or not _alike(before[key], now[key]):
                yield self.named(key)

    def put_back(self, only: Attribute | None = None) -> None:
        before = dict(zip(self.keys, self.values, strict=True))
        if only is not None:
            now = self.now()
            kept = {key: value for key, value in now.items() if self.named(key) != only}
            before = kept | {key: value for key, value in before.items() if self.named(key) == only}
        self.write(before)


class Fields(_Keyed):
    """The attributes of an object: those in its ``__dict__``, and its slots."""

    __slots__ = ("slots",)

    def __init__(self, owner: Any, named: Named) -> None:
        self.slots = slots_of(type(owner))
        super().__init__(owner, named)

    def now(self) -> dict[Any, Any]:
        space: dict[Any, Any] = getattr(self.owner, "__dict__", {})
        if not self.slots:
            return space
        return {
            **space,
            **{name: getattr(self.owner, name) for name in self.slots if hasattr(self.owner, name)},
        }

    def write(self, entries: dict[Any, Any]) -> None:
        # Not by setattr: a module's, and that of many a class, has opinions.
        space = getattr(self.owner, "__dict__", {})
        plain = {name: value for name, value in entries.items() if name not in self.slots}
        space.clear()
        space.update(plain)
        for name in self.slots:
            if name in entries:
                object.__setattr__(self.owner, name, entries[name])
            elif hasattr(self.owner, name):
                object.__delattr__(self.owner, name)


class Shared(_Keyed):
    """What a class holds besides its functions: all its objects share it."""

    __slots__ = ("all_keys", "all_values")

    def __init__(self, owner: type, named: Named) -> None:
        super().__init__(owner, named)
        self.all_keys, self.all_values = tuple(vars(owner)), tuple(vars(owner).values())

    def moved(self) -> bool:
        space = vars(self.owner)
        if tuple(space) == self.all_keys and all(map(is_, space.values(), self.all_values)):
            return False
        return super().moved()

    def now(self) -> dict[Any, Any]:
        return {
            name: value
            for name, value in vars(self.owner).items()
            if name[:2] != "__" and not isinstance(value, CODE)
        }

    def write(self, entries: dict[Any, Any]) -> None:
        for name in self.now():
            if name not in entries:
                delattr(self.owner, name)
        for name, value in entries.items():
            if vars(self.owner).get(name) is not value:
                setattr(self.owner, name, value)


CODE = (types.FunctionType, property, classmethod, staticmethod, functools.cached_property, REMEMBERING)


class Entries(_Keyed):
    """What a dict, list, set or deque holds. It is put back by the built-in's methods: a subclass may have others."""

    __slots__ = ()

    def moved(self) -> bool:
        held = self.owner
        if type(held) is dict:
            return self._differs(held)
        if isinstance(held, dict):
            return super().moved()
        if isinstance(held, set):
            return not (len(held) == len(self.values) and all(map(set(held).__contains__, self.values)))
        return len(held) != len(self.values) or not all(map(is_, held, self.values))

    def now(self) -> dict[Any, Any]:
        held = self.owner
        if isinstance(held, dict):
            return held if type(held) is dict else dict(dict.items(held))
        if isinstance(held, set):
            return {id(item): item for item in set.__iter__(held)}
        return dict(enumerate(held))

    def write(self, entries: dict[Any, Any]) -> None:
        held, items = self.owner, list(entries.items())
        kinds: tuple[Any, ...] = (collections.OrderedDict, *CONTAINERS)
        kind = next(kind for kind in kinds if isinstance(held, kind))
        kind.clear(held)
        for key, value in items:
            if isinstance(held, dict):
                kind.__setitem__(held, key, value)
            else:
                (kind.add if isinstance(held, set) else kind.append)(held, value)


class Numbers:
    """The numbers of a tensor. Without a copy it can be said that they changed, but not put right."""

    __slots__ = ("attribute", "copy", "mark", "same", "tensor", "thorough")

    def __init__(self, tensor: torch.Tensor, attribute: Attribute, copied: bool) -> None:
        self.tensor, self.attribute = tensor, attribute
        self.same = tensor.detach()  # shares its numbers, also when `tensor.data` is set to others
        self.copy = _copied(tensor) if copied else None
        self.mark = tensors.mark(tensor)
        self.thorough = True  # a write may leave the mark as it is

    @property
    def lost(self) -> bool:
        """Whether it was written to and there is no copy."""
        return self.copy is None and not self.tensor.is_meta and tensors.mark(self.tensor) != self.mark

    def moved(self) -> bool:
        if tensors.mark(self.tensor) != self.mark:
            return True
        return self.thorough and self.copy is not None and not _equal(self.tensor, self.copy)

    def changes(self) -> Iterator[Attribute]:
        if self.copy is None or not _equal(self.tensor, self.copy):
            yield self.attribute

    def put_back(self, only: Attribute | None = None) -> None:
        if only is not None and only != self.attribute:
            return
        if _layout(self.tensor) != _layout(self.same):
            self.tensor.data = self.same
        if self.copy is not None:
            if not _equal(self.tensor, self.copy):
                with torch.inference_mode() if self.tensor.is_inference() else contextlib.nullcontext():
                    self.tensor.copy_(self.copy)
            self.mark = tensors.mark(self.tensor)

    def forget(self, *, drop: bool) -> None:
        """From here on a quick look has to do; with ``drop``, without a copy."""
        self.thorough = False
        if drop:
            self.copy = None


class Inside:
    """What an object keeps where Python does not see it: the numbers of an array, the state of a generator."""

    __slots__ = ("attribute", "before", "owner", "read", "write")

    def __init__(
        self, owner: Any, attribute: Attribute, read: Callable[[Any], Any], write: Callable[[Any, Any], Any]
    ) -> None:
        self.owner, self.attribute, self.read, self.write = owner, attribute, read, write
        self.before = read(owner)

    def moved(self) -> bool:
        return not _alike(self.before, self.read(self.owner))

    def changes(self) -> Iterator[Attribute]:
        yield self.attribute

    def put_back(self, only: Attribute | None = None) -> None:
        if only in (None, self.attribute):
            self.write(self.owner, self.before)


class Answers:
    """A function that remembers its answers (lru_cache): it forgets them, as it can't be told to forget one."""

    __slots__ = ("attribute", "function", "misses")

    def __init__(self, function: Any, attribute: Attribute) -> None:
        self.function, self.attribute = function, attribute
        self.misses = function.cache_info().misses

    def moved(self) -> bool:
        return bool(self.function.cache_info().misses != self.misses)

    def changes(self) -> Iterator[Attribute]:
        yield self.attribute

    def put_back(self, only: Attribute | None = None) -> None:
        if only in (None, self.attribute):
            self.function.cache_clear()
            self.misses = 0


def slots_of(kind: type) -> tuple[str, ...]:
    """The names of the slots of a class and those above it, but for the private and Python's own."""
    found = [vars(above).get("__slots__", ()) for above in kind.__mro__]
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return tuple(name for name in names if not name.startswith("__"))


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensors.mark(tensor)[1], tensor.shape, tensor.stride(), tensor.dtype


def _copied(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.is_meta:
        return None
    try:
        return tensor.detach().clone()
    except Exception:  # a tensor class of a library may refuse anything; its mark has to do
        return None


def _equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors hold the same numbers; NaN is like NaN."""
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    try:
        if torch.equal(one, two):
            return True
        return one.is_floating_point() and torch.allclose(one, two, 0.0, 0.0, equal_nan=True)
    except Exception:  # a tensor class of a library may refuse to be compared
        return True


def _alike(one: Any, two: Any) -> bool:
    """Whether one value in the place of another makes no difference."""
    if one is two:
        return True
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.is_meta == two.is_meta and (one.is_meta or _equal(one, two))
    if type(one) is not type(two):
        return False
    if type(one) in ATOMS:
        return bool(one == two)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, np.ndarray):
        return one.shape == two.shape and bool(one.tobytes() == two.tobytes())
    return False
