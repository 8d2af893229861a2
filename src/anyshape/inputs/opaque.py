"""Opaque objects: what is no container that is known, and holds tensors all the same, must not pass for a constant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.inputs.structure import Structure

__all__ = ["HOW_TO_REGISTER", "constants_of", "tensor_inside"]

DEEPEST = 6
MOST_PARTS = 10_000
HOW_TO_REGISTER = (
    "Pass its tensors in a tuple, list or dict, or register the class:\n"
    "  from torch.utils import _pytree\n"
    "  _pytree.register_pytree_node({0}, lambda x: ([x.a, x.b], None), lambda parts, _: {0}(*parts))"
)


def constants_of(structure: Structure, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf that is no tensor, with its path."""
    if structure.kind == "constant":
        yield path, structure.value
    for key, child in zip(structure.keys, structure.children, strict=True):
        yield from constants_of(child, f"{path}.{key}" if path else str(key))


def tensor_inside(value: Any) -> str | None:
    """Where the first tensor inside an object is, as Python would write it after the object; None if there is none.

    >>> from types import SimpleNamespace
    >>> tensor_inside(SimpleNamespace(layers=[SimpleNamespace(keys=torch.zeros(2))]))
    '.layers[0].keys'
    """
    seen: set[int] = set()
    pending: list[tuple[str, Any, int]] = [("", value, 0)]
    while pending and len(seen) < MOST_PARTS:
        place, part, depth = pending.pop(0)
        if isinstance(part, torch.Tensor):
            return place
        if id(part) in seen or depth >= DEEPEST or isinstance(part, (type, str, bytes)):
            continue
        seen.add(id(part))
        pending += [(place + name, inner, depth + 1) for name, inner in _parts(part)]
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds: the entries of a container, the attributes of anything else."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, Sequence):
        yield from ((f"[{number}]", item) for number, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from (("{...}", item) for item in value)
    yield from ((f".{name}", item) for name, item in _attributes(value))


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    held = [(name, getattr(value, name)) for name in slots if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).items(), *held]


def _slots(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
