"""Looks: where a model's Python, or an operator, takes a size as a plain number or a plain truth.

PyTorch's own trace fixes a size at the first such place, and sees no other. Here none is fixed, so that all of them are
seen in one trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from anyshape.capture.evaluate import compiled
from anyshape.capture.program import guard
from anyshape.capture.symbolic import Flat, meanings, traced
from anyshape.capture.symbols import Untranslatable, to_expr, to_relations
from anyshape.capture.tape.steps import Read
from anyshape.contract.agree import Agreed
from anyshape.dims import Expr, fit, fit_real
from anyshape.errors import CaptureFault, SourceLine
from anyshape.inputs.case import Case
from anyshape.source.lines import innermost_caller
from anyshape.torch_bridge import shape_env

__all__ = ["Look", "Looks", "looks_at"]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One place where a size was taken as a plain value: the expression over the dims, and what it was there."""

    where: SourceLine
    condition: Any  # sympy, over the trace's symbols
    meaning: Mapping[Any, Expr]
    seen: bool | int | float
    by_python: bool  # not by an operator of PyTorch

    @property
    def is_branch(self) -> bool:
        """Whether it asks for a truth, not for a number."""
        return isinstance(self.seen, bool)

    @property
    def names(self) -> frozenset[str]:
        """The dims that it asks for."""
        return frozenset(
            name for symbol in self.condition.free_symbols for name in self.meaning[symbol].names
        )

    def at(self, sizes: Mapping[str, int]) -> Any:
        """What the look sees at other sizes; None where it has no value."""
        try:
            return compiled(self.condition, self.meaning)(sizes)
        except (ArithmeticError, ValueError, TypeError):
            return None

    def text(self, rows: Sequence[Mapping[str, int]]) -> str:
        """The expression in the contract's dims; what they have no exact words for is fitted at ``rows``."""
        try:
            if self.is_branch:
                return " and ".join(map(str, to_relations(self.condition, self.meaning)))
            return str(to_expr(self.condition, self.meaning))
        except Untranslatable:
            column = [self.at(row) for row in rows]
            fitted = None if self.is_branch or None in column else _fitted(rows, column)
            names = {symbol: sympy.Symbol(str(size)) for symbol, size in self.meaning.items()}
            return str(self.condition.xreplace(names) if fitted is None else fitted)


def _fitted(rows: Sequence[Mapping[str, int]], column: Sequence[Any]) -> Any:
    if all(item == int(item) for item in column):
        return fit(rows, [int(item) for item in column])
    return fit_real(rows, [float(item) for item in column])


@dataclass(frozen=True, slots=True)
class Looks:
    """All looks of one trace; ``ended`` says where and why it could not go on to the end.

    At the lines of ``values`` it could go on only since it was told what Python reads there.
    """

    found: tuple[Look, ...]
    ended: CaptureFault | None = None
    values: frozenset[SourceLine] = frozenset()


def looks_at(case: Case, agreed: Agreed, sizes: Mapping[str, int], reads: Sequence[Read] = ()) -> Looks:
    """The looks of a trace at ``sizes``; ``reads`` are what Python sees there of values, which the trace has not."""
    course = _Course([])
    raw: list[tuple[SourceLine, Any, Any, bool]] = []

    def note(expression: Any, value: Any, by_python: bool) -> None:
        where = innermost_caller()
        if where is not None:
            raw.append((where, expression, value, by_python))

    left, values = list(reads), set()

    def answer() -> Any:
        where = innermost_caller()
        place = next((k for k, read in enumerate(left) if read.where == where), None)
        seen = None if place is None else left.pop(place).seen
        if where is None or not isinstance(seen, (bool, int, float)):
            return None
        values.add(where)
        return seen

    ended = None
    try:
        with shape_env.patience(limited=True):
            traced(
                _Watched(case, course),
                replace(agreed, generic=dict(sizes)),
                shape_env.looked_at(note, answer),
            )
    except CaptureFault as fault:
        ended = None if course.finished else fault
    if not course.sizes:
        return Looks((), ended)  # it was not even called
    meaning, _ = meanings(agreed.contract, course.sizes)
    found = []
    for where, expression, value, by_python in raw:
        look = Look(where, expression, meaning, _plain(value), by_python)
        if expression.free_symbols <= meaning.keys() and _matters(look, agreed):
            found.append(look)
    return Looks(tuple(found), ended, frozenset(values))


@dataclass(slots=True)
class _Course:
    """Which symbols the inputs' sizes are, and whether the model ran to its end."""

    sizes: list[tuple[Any, ...]]
    finished: bool = False


class _Watched(Flat):
    """A case that tells how its trace goes. Not in attributes of its own: torch.export puts those back."""

    def __init__(self, case: Case, course: _Course) -> None:
        super().__init__(case)
        self.course = course

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.course.sizes = [tuple(map(shape_env.expression_of, tensor.shape)) for tensor in tensors]
        made = super().forward(*tensors)
        self.course.finished = True
        return made


def _plain(value: Any) -> bool | int | float:
    if value in (sympy.true, sympy.false):
        return bool(value)
    return int(value) if value.is_Integer else float(value)


def _matters(look: Look, agreed: Agreed) -> bool:
    """A number always does; a truth, where Python asks for it and the contract leaves both answers open."""
    if not look.is_branch:
        return True
    condition = look.condition if look.seen else sympy.Not(look.condition)
    return look.by_python and not guard(condition, look.meaning, look.where, agreed.contract).proved
