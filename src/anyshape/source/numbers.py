"""Plain numbers in a model's Python that would swallow a watched one: ``0.3*n`` is a float's own business.

Python asks the left operand first, and a float multiplies any integer without a word to it. So, while a run is
watched, the float constants of the functions that run, their defaults, and the float attributes of the modules are
floats that speak for themselves; and ``int`` and ``float`` in them are types that keep what they are given watched.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from anyshape.source.literals.functions import Code, executed, functions_with
from anyshape.torch_bridge.process import patched

__all__ = ["Numbers", "integers_in"]

OWN = {"int": "_anyshape_int", "float": "_anyshape_float"}
GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


def integers_in(run: Callable[[], Any], module: torch.nn.Module) -> tuple[int, ...]:
    """The integers that stand in the functions which ``run()`` calls, or are attributes of its modules; in order."""
    found: set[int] = set()

    def add(constant: Any) -> None:
        if isinstance(constant, types.CodeType):
            list(map(add, constant.co_consts))
        elif isinstance(constant, (tuple, list, frozenset)):
            list(map(add, constant))
        elif type(constant) is int or (type(constant) is float and constant.is_integer()):
            found.add(int(constant))

    for code in executed(run):
        add(code)
    for part in module.modules():
        if not type(part).__module__.startswith("torch.nn."):
            list(map(add, vars(part).values()))
    return tuple(sorted(found))


class Numbers:
    """The float constants of the functions that a run of the model calls, ready to be replaced while it runs."""

    def __init__(
        self, run: Callable[[], Any], change: Callable[[float], float], kinds: Mapping[str, type]
    ) -> None:
        self._change, self._kinds = change, kinds
        codes = {id(code): code for code in executed(run)}
        self._functions = [
            (function, function.__code__, self._changed(function.__code__))
            for function in functions_with(codes)
        ]

    def _changed(self, code: Code) -> Code:
        elsewhere = {
            item.argval
            for item in dis.get_instructions(code)
            if isinstance(item.argval, str) and item.opname not in GLOBAL
        }
        names = tuple(name if name in elsewhere else OWN.get(name, name) for name in code.co_names)
        return code.replace(co_consts=tuple(map(self._constant, code.co_consts)), co_names=names)

    def _constant(self, constant: Any) -> Any:
        if isinstance(constant, types.CodeType):
            return self._changed(constant)
        if type(constant) is tuple:
            return tuple(map(self._constant, constant))
        return self._change(constant) if type(constant) is float else constant

    @contextlib.contextmanager
    def replaced(self, module: torch.nn.Module) -> Iterator[None]:
        """Within this context the numbers speak for themselves; afterwards all is as it was."""
        attributes = [
            (vars(part), name, value, self._change(value))
            for part in module.modules()
            for name, value in vars(part).items()
            if type(value) is float
        ]
        defaults = [(function, function.__defaults__) for function, _, _ in self._functions]
        with contextlib.ExitStack() as stack:
            for name, kind in self._kinds.items():
                stack.enter_context(patched(builtins, OWN[name], kind))
            try:
                for function, _, changed in self._functions:
                    function.__code__ = changed
                    function.__defaults__ = self._constant(function.__defaults__)
                for owner, name, _, speaking in attributes:
                    owner[name] = speaking
                yield
            finally:
                for function, own, _ in self._functions:
                    function.__code__ = own
                for function, own_defaults in defaults:
                    function.__defaults__ = own_defaults
                for owner, name, own_value, speaking in attributes:
                    if owner.get(name) is speaking:
                        owner[name] = own_value
