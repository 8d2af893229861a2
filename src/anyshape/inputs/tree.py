"""Nested inputs and outputs as a flat list of leaves with names by path, and back again.

Tuples, lists, dicts, named tuples, dataclasses and ``None`` are understood without registration; other
classes are understood when they are registered with PyTorch's own pytrees (a transformers cache, say).
"""

from __future__ import annotations

import dataclasses
import importlib
import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.torch_bridge import pytrees

__all__ = ["Structure", "flatten", "structure_from_json"]

PLAIN = (bool, int, float, str, bytes, complex, torch.dtype, torch.device, type(None))


@dataclass(frozen=True, slots=True)
class Structure:
    """How leaves make up a value: one node of a tree.

    ``kind`` is tensor, constant, list, tuple, dict, namedtuple, dataclass or registered.
    """

    kind: str
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    value: Any = None
    type: Any = None

    def rebuild(self, tensors: Iterable[Any]) -> Any:
        """The value with ``tensors`` in the place of its tensor leaves, in order."""
        return self._build(iter(tensors))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind == "tensor":
            return next(leaves)
        if self.kind == "constant":
            return self.value
        parts = [child._build(leaves) for child in self.children]
        return _BUILDERS[self.kind](self, parts)

    def constants(self) -> list[Any]:
        """The values of the constant leaves, in order."""
        if self.kind == "constant":
            return [self.value]
        return [value for child in self.children for value in child.constants()]

    def to_json(self) -> Any:
        """A JSON value that `structure_from_json` reads back; classes are kept by their import path."""
        if self.kind == "tensor":
            return "tensor"
        if self.kind == "constant":
            plain = isinstance(self.value, (bool, int, float, str, type(None)))
            return {"constant": self.value if plain else str(self.value)}
        node: dict[str, Any] = {"kind": self.kind, "children": [child.to_json() for child in self.children]}
        if self.kind != "registered" and self.keys:
            node["keys"] = [
                key if isinstance(key, (bool, int, float, str)) else str(key) for key in self.keys
            ]
        if self.type is not None and self.type not in (list, tuple, dict):
            node["type"] = f"{self.type.__module__}:{self.type.__qualname__}"
        return node


def _build_dict(node: Structure, parts: list[Any]) -> Any:
    made = dict(zip(node.keys, parts, strict=True))
    if node.type is None or node.type is dict:
        return made
    try:
        return node.type(made)
    except TypeError:
        return made


def _build_dataclass(node: Structure, parts: list[Any]) -> Any:
    values = dict(zip(node.keys, parts, strict=True))
    if node.type is None:
        return types.SimpleNamespace(**values)
    initial = {f.name for f in dataclasses.fields(node.type) if f.init}
    made = node.type(**{k: v for k, v in values.items() if k in initial})
    for name in values.keys() - initial:
        object.__setattr__(made, name, values[name])
    return made


def _build_namedtuple(node: Structure, parts: list[Any]) -> Any:
    kind = node.type or namedtuple("Output", node.keys)
    return kind(*parts)


def _build_registered(node: Structure, parts: list[Any]) -> Any:
    if node.value is None:  # read back from a file: the class's own way to rebuild is not stored there
        return tuple(parts)
    return node.value(parts)


_BUILDERS: Mapping[str, Callable[[Structure, list[Any]], Any]] = {
    "list": lambda node, parts: parts,
    "tuple": lambda node, parts: tuple(parts),
    "dict": _build_dict,
    "namedtuple": _build_namedtuple,
    "dataclass": _build_dataclass,
    "registered": _build_registered,
}


def flatten(value: Any, path: str = "") -> tuple[list[tuple[str, torch.Tensor]], Structure]:
    """The tensors of ``value`` in order, each with its path, and the structure that holds them.

    >>> leaves, structure = flatten({"ids": torch.zeros(2), "boxes": [torch.ones(1), 3]})
    >>> [path for path, _ in leaves]
    ['ids', 'boxes.0']
    >>> structure.rebuild(["a", "b"])
    {'ids': 'a', 'boxes': ['b', 3]}
    """
    leaves: list[tuple[str, torch.Tensor]] = []
    return leaves, _flatten(value, path, leaves)


def _flatten(value: Any, path: str, leaves: list[tuple[str, torch.Tensor]]) -> Structure:
    if isinstance(value, torch.Tensor):
        leaves.append((path, value))
        return Structure("tensor")
    if isinstance(value, PLAIN):
        return Structure("constant", value=value)
    opened = _open(value)
    if opened is None:
        return Structure("constant", value=value)
    kind, keys, children, rebuild = opened
    nodes = tuple(
        _flatten(child, f"{path}.{key}" if path else str(key), leaves)
        for key, child in zip(keys, children, strict=True)
    )
    return Structure(kind, tuple(keys), nodes, rebuild, type(value))


def _open(value: Any) -> tuple[str, list[Any], list[Any], Any] | None:
    """kind, keys, children and a way to rebuild of a container; None if it is no container."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "namedtuple", list(value._fields), list(value), None
    if isinstance(value, tuple):
        return "tuple", list(range(len(value))), list(value), None
    if isinstance(value, list):
        return "list", list(range(len(value))), value, None
    if type(value) in (dict, OrderedDict):
        return "dict", list(value), list(value.values()), None
    registered = pytrees.open_registered(value)
    if registered is not None:
        keys, children, rebuild = registered
        return "registered", keys, children, rebuild
    if isinstance(value, Mapping):
        return "dict", list(value), list(value.values()), None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return "dataclass", names, [getattr(value, name) for name in names], None
    return None


def structure_from_json(node: Any) -> Structure:
    """The structure that `Structure.to_json` wrote; a class that can't be imported becomes a plain one."""
    if node == "tensor":
        return Structure("tensor")
    if "constant" in node:
        return Structure("constant", value=node["constant"])
    children = tuple(structure_from_json(child) for child in node["children"])
    kind = node["kind"]
    return Structure(kind, tuple(node.get("keys", ())), children, type=_imported(node.get("type")))


def _imported(name: str | None) -> Any:
    if name is None:
        return None
    module, _, qualified = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found
