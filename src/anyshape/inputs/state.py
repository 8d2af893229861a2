"""State: all that a module holds, as it was before a run; what a run changes is found, and put back."""

from __future__ import annotations

import argparse
import collections
import contextlib
import enum
import random
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from anyshape.inputs.parts import (
    ATOMS,
    CONTAINERS,
    REMEMBERING,
    Answers,
    Attribute,
    Entries,
    Fields,
    Inside,
    Named,
    Numbers,
    Part,
    Shared,
    slots_of,
)
from anyshape.torch_bridge import tensors

__all__ = ["State"]

MOST_OBJECTS = 200_000  # that are looked at
MOST_COPIED = 200_000_000  # numbers of weights that are copied for the first run
MOST_KEPT = 20_000_000  # and for all


class State:
    """What is reachable from a module's attributes, as it was when this was made.

    Containers and objects are known by what they hold, tensors by a copy. Weights that are large are copied for the
    first run only: a model that writes to them does so then. A look whether anything changed costs a few microseconds
    for each submodule.
    """

    def __init__(
        self, module: torch.nn.Module, objects: Mapping[str, Any] | None = None, *, weights: bool = True
    ) -> None:
        count = sum(weight.numel() for weight in module.parameters())
        walk = _Walk(copy_weights=weights and count <= MOST_COPIED)
        with tensors.unseen(), torch.no_grad():
            walk.all_of(module, objects or {})
        self._parts, self._books = walk.parts, walk.books
        self._empty = walk.empty
        self._empty_owners = [part.owner for part in walk.empty]
        self._hooks: list[tuple[Any, Any]] = []
        self._weights, self._large = walk.weights, count > MOST_KEPT
        self._first, self._untouched = True, False
        self.lost: tuple[Attribute, ...] = ()  # weights that were written to, of which there is no copy

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Whatever is done to the module within this, it is as before afterwards."""
        self._hooks, self._untouched = self._noted(), False
        try:
            yield
        finally:
            if not self._untouched or self._noted() != self._hooks:
                self.restore()

    def changed(self) -> frozenset[Attribute]:
        """The attributes that hold something else now; an equal object in the place of another is no change."""
        with tensors.unseen(), torch.no_grad():
            moved = self._moved()
            self._untouched = not moved and not self._first
            return frozenset(attribute for part in moved for attribute in part.changes())

    def restore(self, only: Attribute | None = None) -> None:
        """Puts back everything that moved, or one attribute."""
        with tensors.unseen(), torch.no_grad():
            moved, self._untouched = self._moved(), False
            self.lost += tuple(p.attribute for p in moved if isinstance(p, Numbers) and p.lost)
            for part in moved:
                part.put_back(only)
            if only is None:
                self._restore_hooks()
                self._forget_copies(moved)

    def _moved(self) -> list[Part]:
        moved = [part for part in self._parts if part.moved()]
        if any(self._empty_owners):
            moved += [part for part in self._empty if part.owner]
        return moved

    def _noted(self) -> list[tuple[Any, Any]]:
        """What PyTorch notes of hooks just now: between runs others than the model add and remove them."""
        return [(book, book.copy()) for book in self._books if book]

    def _restore_hooks(self) -> None:
        now = self._noted()
        if now != self._hooks:
            for book, _ in now:
                book.clear()
            for book, noted in self._hooks:
                book.clear()
                book.update(noted)

    def _forget_copies(self, moved: list[Part]) -> None:
        """After the first run: weights that it did not write to are known by their marks."""
        if self._first:
            self._first = False
            for part in self._weights:
                if part not in moved:
                    part.forget(drop=self._large)


class _Walk:
    """Everything reachable from a module's attributes, as parts; each object once."""

    def __init__(self, *, copy_weights: bool) -> None:
        self.parts: list[Part] = []
        self.weights: list[Numbers] = []
        self.empty: list[Entries] = []  # plain containers with nothing in them: quicker to look at
        self.books: list[Any] = []  # what PyTorch notes of hooks
        self._copy_weights = copy_weights
        self._seen: dict[int, Any] = {}
        self._pending: list[tuple[Any, Attribute]] = []

    def all_of(self, module: torch.nn.Module, objects: Mapping[str, Any]) -> None:
        """The module, and objects among the inputs, by their paths."""
        self._module(module, "")
        for path, value in objects.items():
            if _is_plain(value) and self._is_new(value):
                self._fields(value, _names(type(value), path))
        while self._pending:
            self._visit(*self._pending.pop())
        for path, tensor in (*module.named_parameters(), *module.named_buffers()):
            owner, _, name = path.rpartition(".")  # of a scripted module, whose attributes are not Python's
            self._visit(tensor, Attribute(name, torch.nn.Module, owner))

    def _visit(self, value: Any, attribute: Attribute) -> None:
        if type(value) in ATOMS or not self._is_new(value):
            return
        inside = next((how for kind, how in INSIDE.items() if isinstance(value, kind)), None)
        if isinstance(value, torch.Tensor):
            self._tensor(value, attribute)
        elif isinstance(value, torch.nn.Module):
            self._seen.pop(id(value))
            self._module(value, f"{attribute.owner}.{attribute.name}".lstrip("."))
        elif inside is not None:
            self.parts.append(Inside(value, attribute, *inside))
        elif isinstance(value, (tuple, frozenset)):
            self._pending += [(item, attribute) for item in value]
        else:
            if isinstance(value, CONTAINERS):
                self._entries(value, lambda key: attribute)
            if _is_plain(value):
                self._fields(value, lambda name: attribute)

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._seen or len(self._seen) >= MOST_OBJECTS:
            return False
        self._seen[id(value)] = value
        return True

    def _module(self, module: torch.nn.Module, path: str) -> None:
        if not self._is_new(module):
            return
        named = _names(type(module), path)
        self.parts.append(Fields(module, named))
        for name, value in vars(module).items():
            if name in REGISTRIES and isinstance(value, dict):
                self._entries(value, named)
            elif name in BOOKS and type(value) in PLAIN_CONTAINERS:
                self.books.append(value)
            else:
                self._pending.append((value, named(name)))
        for kind in type(module).__mro__:
            if kind is not object and not _is_of(kind, ("torch",)) and self._is_new(kind):
                self._class(kind)

    def _class(self, kind: type) -> None:
        shared = Shared(kind, _names(kind, ""))
        self.parts.append(shared)
        self._pending += [
            (value, shared.named(name)) for name, value in zip(shared.keys, shared.values, strict=True)
        ]
        around = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
        for name, value in (*vars(kind).items(), *around.items()):
            if isinstance(value, REMEMBERING) and self._is_new(value):
                self.parts.append(Answers(value, shared.named(name)))

    def _tensor(self, tensor: torch.Tensor, attribute: Attribute) -> None:
        if torch.nn.parameter.is_lazy(tensor):
            return  # there are no numbers yet
        weight = isinstance(tensor, torch.nn.Parameter)
        part = Numbers(tensor, attribute, self._copy_weights or not weight)
        self.parts.append(part)
        if weight:
            self.weights.append(part)

    def _fields(self, value: Any, named: Named) -> None:
        self._keyed(Fields(value, named))

    def _entries(self, value: Any, named: Named) -> None:
        self._keyed(Entries(value, named))

    def _keyed(self, part: Fields | Entries) -> None:
        plain = isinstance(part, Entries) and type(part.owner) in PLAIN_CONTAINERS
        if isinstance(part, Entries) and plain and not part.keys:
            self.empty.append(part)
        else:
            self.parts.append(part)
        self._pending += [(item, part.named(key)) for key, item in zip(part.keys, part.values, strict=True)]


def _names(kind: type, path: str) -> Named:
    return lambda name: Attribute(str(name), kind, path)


def _registries() -> tuple[frozenset[str], frozenset[str]]:
    """Where a module keeps what is registered with it, and where PyTorch notes hooks and the like, by name."""
    bare = torch.nn.Module()
    bare.register_parameter("weight", None)
    bare.register_buffer("buffer", None)
    bare.add_module("part", None)
    filled = {name for name, value in vars(bare).items() if isinstance(value, dict) and value}
    return frozenset(filled), frozenset(vars(bare)) - filled


REGISTRIES, BOOKS = _registries()
PLAIN_CONTAINERS = (dict, list, set, collections.deque, collections.OrderedDict)


def _write_array(array: Any, numbers: Any) -> None:
    array[...] = numbers


INSIDE: dict[type, tuple[Any, Any]] = {
    np.ndarray: (np.copy, _write_array),
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
    random.Random: (random.Random.getstate, random.Random.setstate),
}
NEVER = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, enum.Enum)


def _is_plain(value: Any) -> bool:
    """Whether an object's attributes are its whole state: not those of PyTorch's, Python's own, numpy's."""
    if isinstance(value, NEVER):
        return False
    kind = type(value)
    if kind in NAMESPACES or isinstance(value, CONTAINERS):
        return hasattr(value, "__dict__")
    if not hasattr(value, "__dict__") and not slots_of(kind):
        return False
    return not _is_of(kind, FOREIGN)


NAMESPACES = (types.SimpleNamespace, argparse.Namespace, collections.UserDict, collections.UserList)
FOREIGN = ("torch", "numpy", *sys.stdlib_module_names)


def _is_of(kind: type, packages: tuple[str, ...]) -> bool:
    return kind.__module__.partition(".")[0] in packages
