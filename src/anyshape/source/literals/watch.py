"""A model that runs with its literals watched: their values, the tensors around them, other numbers in their place."""

from __future__ import annotations

import builtins
import sys
import threading
import types
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from anyshape.errors import SourceLine
from anyshape.source.lines import innermost_caller
from anyshape.source.literals.functions import Swap, executed
from anyshape.source.literals.marks import HOOK, Literal
from anyshape.torch_bridge import process

__all__ = ["Literals", "Local", "instrumented"]

_ROWS = (tuple, list, torch.Size)
_VARIADIC = 0x04, 0x08  # the flags of code that takes *args and **kwargs
_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Local(NamedTuple):
    """A tensor that is in scope at a literal: how to write it, its shape, and whether a parameter holds it."""

    text: str
    shape: tuple[int, ...]
    parameter: bool


class Literals:
    """What the literals of a model that is instrumented held, and what they are to hold instead."""

    def __init__(self, literals: Mapping[int, Literal]) -> None:
        self._literals = dict(literals)
        self._numbers = {literal: number for number, literal in literals.items()}
        self._thread = threading.get_ident()
        self._seen: dict[int, dict[Any, Any]] = {}
        self._overrides: dict[int, Any] = {}
        self._looked_at: frozenset[int] = frozenset()
        self._locals: dict[int, list[list[Local]]] = {}
        self._callers: dict[int, SourceLine | None] = {}

    @property
    def seen(self) -> dict[Literal, list[Any]]:
        """The distinct values of each literal that held an int, or several in a row, since the last reset."""
        return {self._literals[number]: list(values.values()) for number, values in self._seen.items()}

    @property
    def order(self) -> list[Literal]:
        """The literals of ``seen`` as they were first executed."""
        return [self._literals[number] for number in self._seen]

    def reset(self) -> None:
        """Forgets values and locals, not overrides."""
        self._seen.clear()
        self._locals.clear()

    @contextmanager
    def overriding(self, values: Mapping[Literal, Any]) -> Iterator[None]:
        """Within this, each of the literals is worth what is given, or what is given makes of its own value.

        What is no int, nor a row of ints, when the literal is reached stays as it is.
        """
        before = self._overrides
        self._overrides = {**before, **{self._numbers[literal]: value for literal, value in values.items()}}
        try:
            yield
        finally:
            self._overrides = before

    @contextmanager
    def looking_at(self, literals: Iterable[Literal]) -> Iterator[None]:
        """Within this, each time that one of the literals holds an int the tensors in scope are noted."""
        before = self._looked_at
        self._looked_at = before | {self._numbers[literal] for literal in literals}
        try:
            yield
        finally:
            self._looked_at = before

    def locals_at(self, literal: Literal) -> list[list[Local]]:
        """For each execution of a literal that was looked at: parameters first, as in the signature, then others."""
        return self._locals.get(self._numbers[literal], [])

    def caller_of(self, literal: Literal) -> SourceLine | None:
        """The user's own line that led to a literal in a library, if it was looked at."""
        return self._callers.get(self._numbers[literal])

    def _reach(self, number: int, value: Any, default: Any = None) -> Any:
        """The hook: what the marked expression is worth."""
        kind, key = type(value), value
        if threading.get_ident() != self._thread:
            return value  # the model at work elsewhere: it runs as it is written
        if kind is not int:
            if kind not in _ROWS or not value or any(type(item) is not int for item in value):
                return value
            key = tuple(value)
        if default is not None and key != default:
            return value  # an argument was given: the default has no part in it
        seen = self._seen.get(number)
        if seen is None:
            seen = self._seen[number] = {}
        if key not in seen:
            seen[key] = list(value) if kind is list else value  # a list may change later
        if number in self._looked_at:
            self._locals.setdefault(number, []).append(_tensors(sys._getframe(1)))
            line = innermost_caller()
            self._callers[number] = line.caller if line is not None else None
        if number not in self._overrides:
            return value
        override = self._overrides[number]
        return override(value) if callable(override) else override


@contextmanager
def instrumented(run: Callable[[], Any]) -> Iterator[Literals]:
    """Runs once to see which functions ``run`` calls, then watches the literals in them until the end of the ``with``.

    What that first run held is not in ``seen``: run again. The functions of the model, of the user's helpers and
    of libraries are watched; those of PyTorch and Python, and those whose source can't be read or has changed
    since it was imported, are left alone. One at a time: it changes the functions themselves, for all who call them.
    """
    with process.alone():
        if hasattr(builtins, HOOK):
            raise RuntimeError("a model is instrumented already; leave that `with` block before the next one")
        swap = Swap(executed(run))
        literals = Literals(swap.literals)
        setattr(builtins, HOOK, literals._reach)
        try:
            swap.apply()
            yield literals
        finally:
            swap.undo()
            delattr(builtins, HOOK)


def _tensors(frame: types.FrameType) -> list[Local]:
    """The tensors that the names in a frame hold, themselves or one level down."""
    names = dict(frame.f_locals)
    while (outer := _around(frame)) is not None:
        frame, names = outer, {**outer.f_locals, **names}
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in _VARIADIC)
    parameters = [name for name in code.co_varnames[:count] if name in names]
    ordered = [*parameters, *(name for name in names if name not in parameters and name.isidentifier())]
    return [
        Local(name + key, tuple(tensor.shape), name in parameters)
        for name in ordered
        for key, tensor in _held(names[name])
    ]


def _around(frame: types.FrameType) -> types.FrameType | None:
    """The function around a comprehension, which before Python 3.12 has a frame of its own."""
    outer = frame.f_back
    if frame.f_code.co_name not in _COMPREHENSIONS or outer is None:
        return None
    return outer if any(item is frame.f_code for item in outer.f_code.co_consts) else None


def _held(value: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, (dict, UserDict)):
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return [("", value)] if isinstance(value, torch.Tensor) else []
    return [(f"[{_key(key)}]", item) for key, item in items if isinstance(item, torch.Tensor)]


def _key(key: Any) -> str:
    text = repr(key)
    return f'"{key}"' if text == f"'{key}'" and '"' not in text else text
