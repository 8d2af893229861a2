"""Explainer: numbers seen at several sizes become expressions of the dims, each distinct column of them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyshape.dims import Expr, fit, fit_real
from anyshape.errors import CaptureFault, SourceLine

__all__ = ["Explainer", "Unexplained"]

Sizes = Mapping[str, int]


class Unexplained(CaptureFault):
    """A number that moves, and no expression for it: its value at each row."""

    def __init__(self, column: tuple[Any, ...], what: str, where: SourceLine | None, hint: str) -> None:
        super().__init__(what, where=where, hint=hint)
        self.column = column


@dataclass(slots=True)
class Explainer:
    """Explains columns of numbers, one number for each row of sizes; each distinct column once."""

    rows: list[dict[str, int]]
    names: tuple[str, ...]
    memo: dict[tuple[int, ...], Expr | None] = field(default_factory=dict)
    data: int = 0
    depth: int = 0  # of the loops around
    formulas: Mapping[int, Expr] = field(
        default_factory=dict
    )  # of the step at hand, over its own input's sizes
    prefix: str = "_data"

    def size(self, column: Sequence[int], atoms: Sequence[Expr] = ()) -> int | Expr | None:
        """The number, or the expression of it; None if it is none of the sizes."""
        if all(item == column[0] for item in column):
            return column[0]
        key = tuple(column)
        if self.memo.get(key) is None:
            names = {*self.names, *(name for atom in atoms for name in atom.names)}
            rows = [{name: row[name] for name in row if name in names} for row in self.rows]
            self.memo[key] = fit(rows, column, atoms)
        return self.memo[key]

    def axis(self, column: Sequence[int], atoms: Sequence[Expr]) -> int | Expr:
        """The size of an axis of a result; one that depends on values gets a name of its own."""
        found = self.size(column, atoms)
        if found is None:
            found = Expr.of(f"{self.prefix}{self.data}")
            self.data += 1
            self.memo[tuple(column)] = found
            for row, value in zip(self.rows, column, strict=True):
                row[str(found)] = value
        return found

    def leaf(self, column: Sequence[Any], atoms: Sequence[Expr], where: SourceLine | None) -> Any:
        """An argument: as it is where it did not move, else its expression."""
        first = column[0]
        if all(type(item) is type(first) and (item == first or item != item) for item in column):
            return first
        made: Any = None
        if all(isinstance(item, int) for item in column):
            made = self.size(column, atoms)
        elif all(isinstance(item, float) for item in column):
            made = fit_real([{name: row[name] for name in self.names} for row in self.rows], column)
        if made is None:
            raise Unexplained(
                tuple(column),
                f"a number in the model changes with its inputs, as no expression of {', '.join(self.names)}: "
                f"{_examples(self.rows, column, self.names)}",
                where=where,
                hint="If it depends on the values of a tensor, keep it a tensor; else declare fewer dims as dynamic.",
            )
        return made


def _examples(rows: Sequence[Sizes], column: Sequence[Any], names: Sequence[str]) -> str:
    shown: dict[str, Any] = {}
    for row, value in zip(rows, column, strict=True):
        shown.setdefault(", ".join(f"{name} = {row[name]}" for name in names), value)
    return "; ".join(f"{value} at {sizes}" for sizes, value in list(shown.items())[:3])
