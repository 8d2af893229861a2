"""Fitter: numbers seen at several sizes become expressions of the dims, each distinct column of them once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anyshape.capture.tape.steps import Number
from anyshape.dims import Expr, Relation, fit, fit_real, minimum
from anyshape.dims.expr import Call
from anyshape.dims.formula import Formula
from anyshape.dims.names import DATA, is_reserved
from anyshape.errors import CaptureFault, SourceLine

__all__ = ["Decision", "Fitter", "NoExpression", "Undecided"]

Sizes = Mapping[str, int]


# The number of a way; or a condition, and what to decide where it holds and where it does not.
Decision = int | tuple[Relation, "Decision", "Decision"]
MOST_QUESTIONS = 3
MOST_CHOSEN = 3
BY_CHANCE = ("log2(", "min(", "max(")


class Undecided(CaptureFault):
    """Rows that went other ways, and no condition that tells them apart."""


class NoExpression(CaptureFault):
    """A number that moves, and no expression for it: its value at each row."""

    def __init__(self, column: tuple[Any, ...], what: str, where: SourceLine | None, hint: str) -> None:
        super().__init__(what, where=where, hint=hint)
        self.column = column
        self.rows: list[dict[str, int]] = []  # the sizes at which it has them
        self.step: Any = None  # the step that has it


@dataclass(slots=True)
class Fitter:
    """Explains columns of numbers, one number for each row of sizes; each distinct column once."""

    rows: list[dict[str, int]]
    names: tuple[str, ...]
    memo: dict[tuple[int, ...], Expr | None] = field(default_factory=dict)
    data: int = 0
    depth: int = 0  # of the loops around
    formulas: Mapping[int, Expr] = field(
        default_factory=dict
    )  # of the step at hand, over its own input's sizes
    prefix: str = DATA
    known: Mapping[tuple[int, ...], Expr | None] = field(default_factory=dict)  # columns that are not fitted
    boundaries: tuple[Relation, ...] = ()  # where the model is known to go other ways
    contexts: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)  # numbers that are sizes near by
    place: tuple[Any, ...] = ()  # of the step at hand, among those of its line
    near: dict[Any, Any] = field(default_factory=dict)  # those sizes, as far as they are explained
    computed: Mapping[Any, Expr | Formula] = field(
        default_factory=dict
    )  # what Python computed: a type, its values
    turns: tuple[
        Any, ...
    ] = ()  # decisions that are open: conditions on sizes, by which a number may be chosen
    # What Python computed from values, in dims and in the names of what was read; None where it has no such form.
    spoken: Callable[[Formula], Formula | None] = lambda formula: None
    lost: tuple[Expr, ...] = ()  # integers that Python computed, and went on with as plain numbers

    def size(self, column: Sequence[int], atoms: Sequence[Expr] = ()) -> int | Expr | None:
        """The number, or the expression of it; None if it is none of the sizes."""
        if all(item == column[0] for item in column):
            return column[0]
        key = tuple(column)
        if key in self.known:
            return self.known[key]
        if self.memo.get(key) is None:
            names = {*self.names, *(name for atom in atoms for name in atom.names)}
            rows = [{name: row[name] for name in row if name in names} for row in self.rows]
            self.memo[key] = self._as_computed(key, atoms) or fit(rows, column, atoms)
        return self.memo[key]

    def _as_computed(self, column: tuple[int, ...], atoms: Sequence[Expr]) -> Expr | None:
        """What Python computed with these values, which is no guess; nothing where a size has them as it is."""
        made = self.computed.get((int, *column))
        if not isinstance(made, Expr) or not made.is_arithmetic or not made.names <= set(self.names):
            return None
        sizes = (*map(Expr.of, self.names), *atoms)
        return None if any(self._column(size) == column for size in sizes) else made

    def _column(self, size: Expr) -> tuple[int, ...]:
        return tuple(size.evaluate(row) for row in self.rows)

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

    def among(self, places: Sequence[int], label: int, given: Sequence[Expr]) -> Fitter:
        """An fitter of some of the rows: what is known of all rows holds for these too.

        Sizes that are ``given`` there come first; of others, where several are alike in these rows, none is taken.
        """
        rows = [self.rows[k] for k in places]
        known: dict[tuple[int, ...], Expr | None] = {}
        for size in given:
            known.setdefault(tuple(size.evaluate(row) for row in rows), size)
        near = set(known)
        for column, found in (*self.known.items(), *self.memo.items()):
            key = tuple(column[k] for k in places) if found is not None else None
            if key is not None and key not in near:
                known[key] = found if known.get(key, found) == found else None
        return replace(self, rows=rows, memo={}, known=known, data=0, prefix=f"{self.prefix}_{label}_")

    def decided(self, labels: Sequence[int], where: SourceLine | None) -> Decision:
        """The conditions under which each row is what it is labelled."""
        found = _decided(self.rows, labels, self.boundaries, MOST_QUESTIONS)
        if found is None:
            raise Undecided(
                "the model goes other ways at other sizes, as no limit of a single dim tells: "
                f"{_examples(self.rows, labels, self.names)}",
                where=where,
                hint="Declare a smaller range for the dims that choose the way.",
            )
        return found

    def leaf(self, column: Sequence[Any], atoms: Sequence[Expr], where: SourceLine | None) -> Any:
        """An argument: as it is where it did not move, else its expression."""
        first = column[0]
        if isinstance(first, Formula) or any(isinstance(item, Number) for item in column):
            return self._of_values(column, where)
        if all(type(item) is type(first) and (item == first or item != item) for item in column):
            return first
        made: Any = self.computed.get((type(first), *column)) if _are_numbers(column) else None
        if made is not None:
            return made
        if self._is_chosen(column):
            made = None
        elif all(isinstance(item, int) for item in column):
            made = self.size(column, atoms)
            if self.lost:
                made = self._with_lost(column, made)
            made = made if made is not None else self._cut_off(column, atoms)
        elif all(isinstance(item, float) for item in column):
            made = fit_real([{name: row[name] for name in self.names} for row in self.rows], column)
        if made is None:
            raise self._without_expression(column, where)
        return made

    def _without_expression(self, column: Sequence[Any], where: SourceLine | None) -> NoExpression:
        fault = NoExpression(
            tuple(column),
            f"a number in the model changes with its inputs, as no expression of {_own(self.names)}: "
            f"{_examples(self.rows, column, self.names)}",
            where=where,
            hint="If it depends on the values of a tensor, keep it a tensor; else declare fewer dims as dynamic.",
        )
        fault.rows = self.rows
        return fault

    def _of_values(self, column: Sequence[Any], where: SourceLine | None) -> Any:
        """A number that hangs on values: the one formula that it may be in all runs."""
        if not isinstance(column[0], Formula) and any(not isinstance(item, Number) for item in column):
            plain = [float(item) for item in column]
            if all(repr(item) == repr(plain[0]) for item in plain):
                return plain[0]  # another number of this call was equal to it, in some runs
            raise self._without_expression(column, where)
        options = [(item,) if isinstance(item, Formula) else item.formulas for item in column]
        common = [one for one in options[0] if all(one in others for others in options)]
        made = {formula.text: formula for formula in map(self.spoken, common) if formula is not None}
        if not common and all(len(few) == 1 for few in options):
            over = [self.spoken(few[0]) for few in options]
            one = None if None in over else self._one_formula(over)
            made = {} if one is None else {one.text: one}
        if len(made) == 1:
            return next(iter(made.values()))
        raise NoExpression(
            tuple(float(item) if isinstance(item, float) else str(item) for item in column),
            "a number that depends on the values of a tensor is computed in a way that a graph can't follow",
            where=where,
            hint="Compute it with tensors: what is not read out of them stays in the graph.",
        )

    def _one_formula(self, parts: Sequence[Any]) -> Any:
        """The formula that all of these are, but for integers that follow sizes: the number of a loop's round."""
        first = parts[0]
        if all(part == first and type(part) is type(first) for part in parts):
            return first
        if all(type(part) is int for part in parts):
            return self.size(parts)
        if not isinstance(first, Formula) or any(
            not isinstance(part, Formula) or part.op != first.op or len(part.args) != len(first.args)
            for part in parts
        ):
            return None
        args = [self._one_formula(column) for column in zip(*(part.args for part in parts), strict=True)]
        return None if None in args else Formula(first.op, tuple(args))

    def _is_chosen(self, column: Sequence[Any]) -> bool:
        """Whether a decision tells one of a few numbers from the others: then no expression that fits is meant."""
        if len(set(column)) > MOST_CHOSEN or (int, *column) in self.computed:
            return False
        for turn in self.turns:
            sides = [turn.holds(row) for row in self.rows]
            if len(set(zip(sides, column, strict=True))) == len(set(column)) and len(set(sides)) == 2:
                return True
        return False

    def rounds(self, column: Sequence[int], atoms: Sequence[Expr], where: SourceLine | None) -> Any:
        """How often a loop runs. One that halves something until it is small enough is not fitted by chance."""
        found = self.leaf(column, atoms, where)
        if (int, *column) in self.computed or _is_shortest(found):
            return found
        if not any(word in str(found) for word in BY_CHANCE):
            return found
        raise NoExpression(
            tuple(column),
            f"how often a loop runs follows no simple rule of {_own(self.names)}: "
            f"{_examples(self.rows, column, self.names)}",
            where=where,
            hint="Compute the number of rounds from the sizes, and loop over range().",
        )

    def _cut_off(self, column: Sequence[int], atoms: Sequence[Expr]) -> Expr | None:
        """What Python computed, as far as a tensor goes: a slice up to ``k`` ends where the axis ends."""
        computed = [found for found in self.computed.values() if isinstance(found, Expr)]
        for found in computed:
            for size in atoms:
                made = minimum(found, size)
                if all(made.evaluate(row) == item for row, item in zip(self.rows, column, strict=True)):
                    return made
        return None

    def _with_lost(self, column: Sequence[int], found: int | Expr | None) -> int | Expr | None:
        """A number that hangs on one which Python made plain: ``int(0.9*n) + 1``, and not what fits by chance."""
        rows = [{name: row[name] for name in self.names} for row in self.rows]
        for atom in self.lost:
            rest = [item - atom.evaluate(row) for item, row in zip(column, rows, strict=True)]
            if all(item == rest[0] for item in rest):
                return atom + rest[0]
        return found if found is not None else fit(rows, column, self.lost)


def _is_shortest(found: Any) -> bool:
    """Whether it is the smallest of several sizes: where zip() ends."""
    atom = (found - found.offset).atom if isinstance(found, Expr) else None
    return isinstance(atom, Call) and atom.function == "min" and all(size.name for size in atom.arguments)


def _are_numbers(column: Sequence[Any]) -> bool:
    kind = type(column[0])
    return kind in (int, float) and all(type(item) is kind for item in column)


def _decided(
    rows: Sequence[Sizes], labels: Sequence[int], boundaries: Sequence[Relation], depth: int
) -> Decision | None:
    """The conditions, as few as possible, that tell the labels apart."""
    if len(set(labels)) == 1:
        return labels[0]
    if depth == 0:
        return None
    best: tuple[int, Decision] | None = None
    for relation in boundaries:
        sides = [relation.holds(row) for row in rows]
        if len(set(sides)) == 1:
            continue
        halves = []
        for side in (True, False):
            places = [k for k, held in enumerate(sides) if held is side]
            halves.append(
                _decided([rows[k] for k in places], [labels[k] for k in places], boundaries, depth - 1)
            )
        then, otherwise = halves
        if then is not None and otherwise is not None:
            made = (relation, then, otherwise)
            if best is None or _questions(made) < best[0]:
                best = _questions(made), made
    return best[1] if best else None


def _questions(decision: Decision) -> int:
    return 0 if isinstance(decision, int) else 1 + _questions(decision[1]) + _questions(decision[2])


def _own(names: Sequence[str]) -> str:
    return ", ".join(name for name in names if not is_reserved(name))


def _examples(rows: Sequence[Sizes], column: Sequence[Any], names: Sequence[str]) -> str:
    """The number at a few sizes, unlike ones first."""
    shown: dict[str, Any] = {}
    own = [name for name in names if not is_reserved(name)]
    for row, value in zip(rows, column, strict=True):
        shown.setdefault(", ".join(f"{name} = {row[name]}" for name in own), value)
    unlike = {repr(value): (sizes, value) for sizes, value in reversed(shown.items())}
    found = list(unlike.values())[::-1]
    return "; ".join(f"{value} at {sizes}" for sizes, value in (found or list(shown.items()))[:3])
