"""What capture hands on: an exported program, its outputs' shapes over the dims, and the guards it relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy

from anyshape.capture.evaluate import compiled
from anyshape.capture.symbols import Untranslatable, to_relations
from anyshape.capture.tape import Split, Tape
from anyshape.capture.tape.steps import leaves
from anyshape.capture.tape.walk import bodies, steps_of
from anyshape.contract.contract import Contract, Rung
from anyshape.dims import Expr, Relation
from anyshape.dims.expr import divisions
from anyshape.errors import CaptureFault, SourceLine

__all__ = ["Guard", "Limit", "Program", "Unseen"]


class Unseen(CaptureFault):
    """What a model does is known to hang on something that no rung can follow: another would only be wrong."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes under which the captured graph is the module's own: from where, and whether it is proved."""

    condition: Any  # sympy, over the trace's symbols
    meaning: Mapping[Any, Expr]
    where: SourceLine | None
    proved: bool
    test: Callable[[Mapping[str, int]], Any]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the guard holds at ``sizes``; one that has no value there counts as holding."""
        try:
            return bool(self.test(sizes))
        except (ArithmeticError, ValueError, TypeError):
            return True

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
    def period(self) -> int:
        """It may come and go within so many sizes; 0 where it turns once at most."""
        if isinstance(self.condition, (sympy.LessThan, sympy.StrictLessThan)) and not self.condition.atoms(
            sympy.Function
        ):
            return 0
        return min(4096, max((abs(int(item)) for item in self.condition.atoms(sympy.Integer)), default=0))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(
            name for symbol in self.condition.free_symbols for name in self.meaning[symbol].names
        )


def guard(condition: Any, meaning: Mapping[Any, Expr], where: SourceLine | None, contract: Contract) -> Guard:
    """A guard, marked proved if it follows from the contract's ranges and relations."""
    try:
        relations = to_relations(condition, meaning)
        given, ranges = contract.relations, contract.ranges
        proved = all(relation in given or relation.decide(ranges) is True for relation in relations)
    except Untranslatable:
        proved = False
    return Guard(condition, meaning, where, proved, compiled(condition, meaning))


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition on sizes beyond which a program was not captured: what lies there, and the line."""

    relation: Relation
    why: str
    where: SourceLine | None


@dataclass(frozen=True, slots=True)
class Program:
    """A graph over symbolic sizes, and the conditions under which it is the module's own."""

    body: Tape | Split
    rung: Rung
    outputs: tuple[tuple[Expr | None, ...], ...]
    guards: tuple[Guard, ...] = field(default=())
    within: tuple[Limit, ...] = field(default=())

    @property
    def proved(self) -> bool:
        """Whether every condition that the graph relies on follows from the contract. A fit is never a proof."""
        return self.rung == "symbolic" and not self.open_guards

    @property
    def splits(self) -> tuple[Split, ...]:
        """Where the graph takes one of two ways by its sizes, each condition once."""
        splits = (body for body in bodies(self.body) if isinstance(body, Split))
        found = {str(body.condition): body for body in splits if isinstance(body.condition, Relation)}
        return tuple(found.values())

    @property
    def boundaries(self) -> tuple[tuple[Relation, tuple[Relation, ...]], ...]:
        """Each condition on sizes that the graph asks, and what holds where it is asked."""
        return tuple(dict.fromkeys(_asked(self.body, ())))

    @property
    def divisions(self) -> tuple[tuple[Expr, int], ...]:
        """What its sizes are divided by, each once: a fit that is wrong there is so where nothing is left over."""
        found: dict[tuple[Expr, int], None] = {}
        for step in steps_of(self.body):
            shapes = [value.shape for value in step.outputs if value is not None]
            for leaf in leaves((step.args, dict(step.kwargs), shapes)):
                if isinstance(leaf, Expr):
                    found.update(dict.fromkeys(divisions(leaf)))
        return tuple(found)

    @property
    def questions(self) -> tuple[Split, ...]:
        """Where it takes one of two ways by the values of its inputs."""
        splits = (body for body in bodies(self.body) if isinstance(body, Split))
        return tuple(body for body in splits if isinstance(body.condition, Tape))

    @property
    def open_guards(self) -> tuple[Guard, ...]:
        """The guards that do not follow from the contract: sizes on both sides of them must be tried."""
        return tuple(item for item in self.guards if not item.proved)


def _asked(
    body: Tape | Split, given: tuple[Relation, ...]
) -> Iterator[tuple[Relation, tuple[Relation, ...]]]:
    if isinstance(body, Split):
        condition = body.condition
        if not isinstance(condition, Relation):
            yield from (*_asked(body.then, given), *_asked(body.otherwise, given))
            return
        yield condition, given
        yield from _asked(body.then, (*given, condition))
        yield from _asked(body.otherwise, (*given, condition.negated()))
        return
    for inner in bodies(body):
        if inner is not body and isinstance(inner, Split) and isinstance(inner.condition, Relation):
            yield inner.condition, given
