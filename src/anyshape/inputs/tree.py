"""Nested inputs and outputs as a flat list of tensors with names by path, and back again.

Tuples, lists, dicts, named tuples, dataclasses and ``None`` are understood without registration; other
classes are understood when they are registered with PyTorch's own pytrees, and so are the caches of transformers.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from anyshape.inputs.caches import open_cache
from anyshape.inputs.structure import Opened, Structure, open_plain, structure_from_json, take_apart
from anyshape.torch_bridge import pytrees

__all__ = ["Structure", "flatten", "open_any", "structure_from_json"]

PLAIN = (bool, int, float, str, bytes, complex, torch.dtype, torch.device, type(None))


def flatten(value: Any, path: str = "") -> tuple[list[tuple[str, torch.Tensor]], Structure]:
    """The tensors of ``value`` in order, each with its path, and the structure that holds them.

    >>> leaves, structure = flatten({"ids": torch.zeros(2), "boxes": [torch.ones(1), 3]})
    >>> [path for path, _ in leaves]
    ['ids', 'boxes.0']
    >>> structure.rebuild(["a", "b"])
    {'ids': 'a', 'boxes': ['b', 3]}
    """
    return take_apart(value, path, lambda part: isinstance(part, torch.Tensor), open_any)


def open_any(value: Any) -> Opened | None:
    """A container, opened, also one that is registered with PyTorch's pytrees; None if it is no container."""
    if isinstance(value, PLAIN):
        return None
    if isinstance(value, (tuple, list)) or type(value) in (dict, OrderedDict):
        return open_plain(value)
    cache = open_cache(value)
    if cache is not None:
        return cache
    registered = pytrees.open_registered(value)
    if registered is None:
        return open_plain(value)
    names, children, rebuild = registered
    plain = _same_parts(value, children)
    if plain is not None:
        return replace(plain, rebuild_with=rebuild, names=names)
    return Opened("registered", names, children, rebuild)


def _same_parts(value: Any, children: list[Any]) -> Opened | None:
    """A registered mapping or dataclass whose parts are simply its values: a file can say what it is."""
    if not isinstance(value, Mapping) and not dataclasses.is_dataclass(value):
        return None
    plain = open_plain(value)
    if plain is None or len(plain.children) != len(children):
        return None
    same = all(mine is theirs for mine, theirs in zip(plain.children, children, strict=True))
    return plain if same else None
