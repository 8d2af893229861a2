"""What capture hands on: an exported program, its outputs' shapes over the dims, and the guards it relies on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from anyshape.capture.symbols import Untranslatable, to_relations
from anyshape.dims import Expr, Range, Relation
from anyshape.errors import SourceLine

__all__ = ["Guard", "Program"]


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes under which the captured graph is the module's own: from where, and whether it is proved."""

    condition: Any  # sympy, over the trace's symbols
    meaning: Mapping[Any, Expr]
    where: SourceLine | None
    proved: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the guard holds at ``sizes``; one that can't be evaluated counts as holding."""
        values = {symbol: sympy.Integer(self.meaning[symbol].evaluate(sizes)) for symbol in self._symbols()}
        try:
            return self.condition.xreplace(values) != sympy.false
        except (TypeError, ValueError, ZeroDivisionError):
            return True

    def _symbols(self) -> list[Any]:
        return [symbol for symbol in self.condition.free_symbols if symbol in self.meaning]

    def relations(self) -> list[Relation] | None:
        """The guard as relations of the contract's dims; None where they have no words for it."""
        try:
            return to_relations(self.condition, self.meaning)
        except Untranslatable:
            return None

    def __str__(self) -> str:
        relations = self.relations()
        if relations is not None:
            return " and ".join(map(str, relations))
        return str(self.condition.xreplace({s: sympy.Symbol(str(e)) for s, e in self.meaning.items()}))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for symbol in self._symbols() for name in self.meaning[symbol].names)


def guard(condition: Any, meaning: Mapping[Any, Expr], where: SourceLine | None, ranges: Mapping[str, Range], given: tuple[Relation, ...]) -> Guard:
    """A guard, marked proved if it follows from the contract's ranges and relations."""
    try:
        relations = to_relations(condition, meaning)
        proved = all(relation in given or relation.decide(ranges) is True for relation in relations)
    except Untranslatable:
        proved = condition == sympy.true
    return Guard(condition, meaning, where, proved)


@dataclass(frozen=True, slots=True)
class Program:
    """A graph over symbolic sizes, and the conditions under which it is the module's own."""

    exported: torch.export.ExportedProgram
    rung: str
    meaning: Mapping[Any, Expr]
    outputs: tuple[tuple[Expr | None, ...], ...]
    guards: tuple[Guard, ...] = field(default=())

    @property
    def open_guards(self) -> tuple[Guard, ...]:
        """The guards that do not follow from the contract: sizes on both sides of them must be tried."""
        return tuple(item for item in self.guards if not item.proved)
