"""probe: from one example, which sizes PyTorch accepts: what varies, what must agree, and how far it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anyshape.dims import Expr, Range, names
from anyshape.errors import SourceLine
from anyshape.inputs.case import Case, Refusal
from anyshape.inputs.values import Rule
from anyshape.probe.limits import Limit, limits
from anyshape.probe.oracle import Axis, Oracle, Point, axis_name
from anyshape.probe.relations import Direction, generic_point, is_generic, leave_limits, leave_ones, relations
from anyshape.probe.siblings import told_apart
from anyshape.probe.squares import with_squares

__all__ = ["Evidence", "FoundDim", "Objection", "probe"]

BUDGET = 20.0  # nominal seconds


@dataclass(frozen=True, slots=True)
class FoundDim:
    """A size that varies: its range as PyTorch has it, and where PyTorch's objections come from."""

    name: str  # provisional: agree gives the name that people see
    range: Range
    example: int
    generic: int
    tried: int
    below: SourceLine | None = None
    above: SourceLine | None = None
    above_error: str = ""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why PyTorch refuses to let an axis vary: its words, and the line."""

    text: str
    where: SourceLine | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What probe found: each input's shape over the found dims, and how to make legal values."""

    dims: tuple[FoundDim, ...]
    shapes: tuple[tuple[Expr, ...], ...]
    rules: tuple[Rule, ...]
    runs: int
    fake: bool
    objections: Mapping[tuple[int, int], Objection]  # by input and axis, for axes that are fixed
    complete: bool  # False: the budget was spent, so what is fixed here may be able to vary

    @property
    def summary(self) -> str:
        """``2 dims found (31 sizes tried)``"""
        count = len(self.dims)
        kind = " on fake tensors" if self.fake else ""
        return (
            f"{count or 'no'} dim{'s' * (count != 1)} found from one example ({self.runs} sizes tried{kind})"
        )

    def dim(self, name: str) -> FoundDim:
        return next(dim for dim in self.dims if dim.name == name)


def probe(
    case: Case, *, budget: float = BUDGET, progress: Callable[[str], None] = lambda text: None
) -> Evidence:
    """Which sizes PyTorch accepts, found by running it at many of them within a budget in nominal seconds."""
    oracle = Oracle(case, budget, progress)
    first, directions = with_squares(oracle, *_first_relations(oracle))
    base = first if is_generic(oracle, first, directions) else generic_point(oracle, first, directions)
    if base != first:
        again = relations(oracle, base)
        if _reaches(again, base, oracle.example) or not _reaches(directions, first, oracle.example):
            directions = again
        else:
            base = first
    directions = _without_broadcasts(oracle, base, directions)
    found = limits(oracle, base, directions)
    return _evidence(oracle, base, directions, found)


def _first_relations(oracle: Oracle) -> tuple[Point, list[Direction]]:
    """Directions from the example, or from near by where its own sizes hide some: ones, and the last of a table."""
    first = told_apart(oracle, leave_ones(oracle))
    directions = relations(oracle, first)
    lower = leave_limits(oracle, first, directions)
    if lower != first:
        again = relations(oracle, lower)
        if _reaches(again, lower, oracle.example):
            return lower, again
    return first, directions


def _reaches(directions: list[Direction], base: Point, example: Point) -> bool:
    """Whether the example lies where the directions lead from ``base``: a contract must hold its own example."""
    point: Point = base
    for direction in directions:
        moved = direction.moved(point, example[direction.root] - point[direction.root])
        if moved is not None:
            point = moved
    return all(point[axis] == size for axis, size in example.items() if size != 1)


def _without_broadcasts(oracle: Oracle, base: Point, directions: list[Direction]) -> list[Direction]:
    """Leave out directions of equal sizes that the example itself does not lie on: its 1 was meant to broadcast."""
    example = oracle.example
    kept = []
    for direction in directions:
        ones = [a for a in direction.rates if example[a] == 1]
        alike = [a for a in direction.rates if direction.rates[a] == 1]
        if ones and len({base[a] for a in alike}) == 1 < len({example[a] for a in alike}):
            rest = {a: rate for a, rate in direction.rates.items() if a not in ones}
            if direction.root in rest:
                kept.append(replace(direction, rates=rest))
            continue
        kept.append(direction)
    return kept


def _evidence(oracle: Oracle, base: Point, directions: list[Direction], found: list[Limit]) -> Evidence:
    sizes = _axis_expressions(oracle, base, directions)
    dims = []
    for number, (direction, limit) in enumerate(zip(directions, found, strict=True)):
        step = direction.step
        remainder = 0 if step == 1 else base[direction.root] % step
        largest = None if limit.largest is None else (limit.largest - remainder) // step
        dims.append(
            FoundDim(
                names.found(number),
                Range((limit.smallest - remainder) // step, largest),
                (oracle.example[direction.root] - remainder) // step,
                (base[direction.root] - remainder) // step,
                (limit.tried - remainder) // step,
                limit.below.where if limit.below else None,
                limit.above.where if limit.above else None,
                limit.above.text if limit.above else "",
            )
        )
    shapes: list[tuple[Expr, ...]] = [()] * len(oracle.case.inputs)
    for number, members in enumerate(oracle.bundles):
        for member in members:
            rank = len(oracle.case.inputs[member].shape)
            shapes[member] = tuple(sizes[(number, axis)] for axis in range(rank))
    by_name: Mapping[str, Expr | int] = {axis_name(axis): expression for axis, expression in sizes.items()}
    rules = tuple(
        rule if rule.limit is None else replace(rule, limit=rule.limit.substitute(by_name))
        for rule in oracle.rules
    )
    objections = _objections(oracle, base, directions)
    complete = not oracle.exhausted
    return Evidence(tuple(dims), tuple(shapes), rules, oracle.runs, oracle.fake, objections, complete)


def _objections(oracle: Oracle, base: Point, directions: list[Direction]) -> dict[tuple[int, int], Objection]:
    """PyTorch's words on the axes that are fixed, at one more than their size: trials that were made already."""
    moving = {axis for direction in directions for axis in direction.rates}
    made = {}
    for axis in base:
        why = None if axis in moving else oracle.trial({**base, axis: base[axis] + 1}).why
        if isinstance(why, Refusal):
            objection = Objection(why.text, why.where)
            made.update({(member, axis[1]): objection for member in oracle.bundles[axis[0]]})
    return made


def _axis_expressions(oracle: Oracle, base: Point, directions: list[Direction]) -> dict[Axis, Expr]:
    """Each axis as an expression of the found dims: what it is at the base, plus what each direction adds."""
    example, made = oracle.example, {}
    moving = {axis for direction in directions for axis in direction.rates}
    for axis in base:
        total = Expr.of(base[axis] if axis in moving else example[axis])
        for number, direction in enumerate(directions):
            rate = direction.rates.get(axis)
            if rate is not None:
                step = direction.step
                units = (base[direction.root] - base[direction.root] % step) // step
                total = total + (Expr.of(names.found(number)) - units) * int(rate * step)
        made[axis] = total**2 + oracle.squares[axis] if axis in oracle.squares else total
    return made
