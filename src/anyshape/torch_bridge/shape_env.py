"""ShapeEnv, where a symbolic trace keeps what it assumes of sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from anyshape.errors import SourceLine
from anyshape.torch_bridge import process
from anyshape.torch_bridge.process import patched

__all__ = [
    "OutOfPatience",
    "TraceGuard",
    "expression_of",
    "guards_with_lines",
    "looked_at",
    "patience",
    "trace_guards",
]

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class TraceGuard:
    """A condition on sizes that a symbolic trace relied on, and the line of source that asked for it."""

    condition: Any  # a sympy expression over the trace's symbols
    where: SourceLine | None


def trace_guards(program: torch.export.ExportedProgram) -> list[TraceGuard]:
    """The guards of a trace: torch.export evaluates them at its example only and then drops them."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            environment = value.fake_mode.shape_env
            if environment is not None:
                guards = environment.guards
                lines = [getattr(guard.sloc.maybe_user_loc, "line", None) for guard in guards]
                return [
                    TraceGuard(sympy.sympify(g.expr), line) for g, line in zip(guards, lines, strict=True)
                ]
    return []


@contextlib.contextmanager
def guards_with_lines(line_of: Callable[[Sequence[tuple[str, int]]], SourceLine | None]) -> Iterator[None]:
    """Trace so that each guard knows the user's line: torch keeps the innermost frame only, often its own.

    ``line_of`` picks it out of the stack, outermost frame first.
    """
    original = ShapeEnv._get_sloc

    def with_user_line(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        location = original(self, *args, **kwargs)
        frame: types.FrameType | None = sys._getframe(1)
        stack = []
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        line = line_of(stack[::-1])
        return (
            location if line is None else dataclasses.replace(location, maybe_user_loc=_LinedLocation(line))
        )

    with patched(ShapeEnv, "_get_sloc", with_user_line):
        yield


class _LinedLocation(str):
    """A location as torch prints it, which still knows its line."""

    line: SourceLine

    def __new__(cls, line: SourceLine) -> _LinedLocation:
        made = super().__new__(cls, str(line))
        made.line = line
        return made


@contextlib.contextmanager
def looked_at(note: Callable[[Any, Any, bool], None], answer: Callable[[], Any]) -> Iterator[None]:
    """Trace so that no size is ever fixed: ``note`` is told each expression that is asked for as a plain value.

    It is also told the value, and whether Python itself asks, outside of PyTorch. What only the values of a tensor
    would tell is asked of ``answer``, which may have none. A trace of PyTorch's own fixes the size at the first of
    these places, and does not see the others.
    """
    evaluate, defer = ShapeEnv.evaluate_expr, ShapeEnv.guard_or_defer_runtime_assert

    def told(self: ShapeEnv, expression: Any, *args: Any, **kwargs: Any) -> Any:
        known = _at_hints(self, expression)
        if known is None:
            try:
                return evaluate(self, expression, *args, **kwargs)
            except GuardOnDataDependentSymNode:
                given = answer()
                if given is None:
                    raise
                return sympy.sympify(given)
        if expression.free_symbols and self._maybe_evaluate_static(expression) is None:
            fallback = kwargs.get("fallback_value")
            if fallback is not None:
                return sympy.sympify(fallback)
            note(expression, known, _asked_by_python())
        return known

    def assumed(self: ShapeEnv, expression: Any, *args: Any, **kwargs: Any) -> bool:
        known = _at_hints(self, expression)
        return defer(self, expression, *args, **kwargs) if known is None else bool(known)

    with (
        patched(ShapeEnv, "evaluate_expr", told),
        patched(ShapeEnv, "guard_or_defer_runtime_assert", assumed),
    ):
        yield


def _at_hints(environment: ShapeEnv, expression: Any) -> Any:
    """The value of an expression at the sizes of the trace; None if it depends on values."""
    expression = sympy.sympify(expression)
    if not expression.free_symbols <= environment.backed_var_to_val.keys():
        return None
    return expression.xreplace(environment.backed_var_to_val)


def _asked_by_python() -> bool:
    """Whether the model's own Python asks, by a method such as SymBool.__bool__, and not an operator."""
    frame: types.FrameType | None = sys._getframe(2)
    between = ("sym_node.py", "symbolic_shapes.py", process.__file__)
    while frame is not None and frame.f_code.co_filename.endswith(between):
        frame = frame.f_back
    asked = False
    while frame is not None and frame.f_code.co_filename == torch.__file__:
        asked = frame.f_code.co_name.startswith("__")
        frame = frame.f_back
    return asked and frame is not None and not frame.f_code.co_filename.startswith(TORCH_FOLDER)


class OutOfPatience(RuntimeError):
    """The algebra of a symbolic trace grows beyond what it is worth."""


LARGEST_QUESTION = (
    300  # terms in one question about sizes; that of a model which traces well has under a hundred
)
MOST_TERMS = 300_000  # in all questions of one trace


@contextlib.contextmanager
def patience(limited: bool) -> Iterator[None]:
    """Give up a symbolic trace whose questions about sizes grow too large: they may take hours over nested divisions.

    torch.export has no limit of its own; every question goes through this method. Terms are counted, not seconds, so
    that a trace which is given up on a slow machine is given up on a fast one.
    """
    original = ShapeEnv._maybe_evaluate_static
    asked = 0

    def counted(self: ShapeEnv, expression: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        terms = sum(1 for _ in sympy.preorder_traversal(expression))
        asked += terms
        if limited and (terms > LARGEST_QUESTION or asked > MOST_TERMS):
            raise OutOfPatience(f"gave up: a question about sizes has {terms} terms, {asked} together")
        return original(self, expression, *args, **kwargs)

    with patched(ShapeEnv, "_maybe_evaluate_static", counted):
        yield


def expression_of(size: Any) -> Any:
    """The sympy expression behind a symbolic number; a plain number as it is."""
    return (
        size.node.expr
        if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool))
        else sympy.sympify(size)
    )
