"""Evidence: what probe found, as shapes over found dims, ranges and relations. It always holds its own example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anyshape.dims import Expr, Range, Relation, names
from anyshape.errors import HistoryFault, SourceLine
from anyshape.inputs.case import Refusal, Shapes
from anyshape.inputs.values import Rule
from anyshape.probe.bounds import Bound
from anyshape.probe.limits import Limit
from anyshape.probe.oracle import Axis, Oracle, Point, Trial, axis_name
from anyshape.probe.relations import Direction

__all__ = ["Evidence", "FoundDim", "Objection", "evidence_of", "with_example"]


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
    changes_itself: bool = (
        False  # below the range, where PyTorch runs, but the model is not the same afterwards
    )


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
    relations: tuple[Relation, ...]  # over the found dims: seq % 2 == 1, past + seq <= 1024
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


def evidence_of(
    oracle: Oracle,
    base: Point,
    directions: Sequence[Direction],
    found: Sequence[Limit],
    bounds: Sequence[Bound],
) -> Evidence:
    """The directions, their limits and bounds in terms of dims, with the example among the sizes that they allow."""
    sizes = _axis_expressions(oracle, base, directions)
    found = _within(found, [bound for bound in bounds if len(bound.rates) == 1], base, directions)
    dims = tuple(
        _dim(names.found(number), direction, limit, base, oracle.example)
        for number, (direction, limit) in enumerate(zip(directions, found, strict=True))
    )
    relations = [
        relation
        for number, direction in enumerate(directions)
        for relation in _remainder(number, direction, base)
    ]
    roots = [_root(number, direction, base) for number, direction in enumerate(directions)]
    relations += [bound.relation(roots) for bound in bounds if len(bound.rates) > 1]
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
    made = Evidence(
        dims,
        tuple(shapes),
        tuple(dict.fromkeys(relations)),
        rules,
        oracle.runs,
        oracle.fake,
        _objections(oracle, base, directions),
        not oracle.exhausted,
    )
    return with_example(made, oracle.case.shapes)


def _within(
    found: Sequence[Limit], bounds: Sequence[Bound], base: Point, directions: Sequence[Direction]
) -> list[Limit]:
    """The limits, with the bounds of single directions as their ends."""
    made = list(found)
    for bound in bounds:
        (number,) = bound.rates
        end = bound.end_of(number, base, directions)
        known = made[number].largest
        if known is None or end < known:
            made[number] = replace(made[number], largest=end, tried=end, above=bound.above)
    return made


def _unit(direction: Direction, base: Point) -> int:
    """What one of a dim stands for: the step of multiples (32*h); 1 for sizes that leave a remainder (seq % 2 == 1)."""
    plain = base[direction.root] % direction.step and all(
        r.denominator == 1 for r in direction.rates.values()
    )
    return 1 if plain else direction.step


def _remainder(number: int, direction: Direction, base: Point) -> list[Relation]:
    if _unit(direction, base) == direction.step:
        return []
    size = Expr.of(names.found(number))
    return [Relation(size % direction.step, "==", Expr.of(base[direction.root] % direction.step))]


def _root(number: int, direction: Direction, base: Point) -> Expr:
    """The size of a direction's root in terms of its dim."""
    unit = _unit(direction, base)
    return Expr.of(names.found(number)) * unit + base[direction.root] % unit


def _dim(name: str, direction: Direction, limit: Limit, base: Point, example: Point) -> FoundDim:
    unit = _unit(direction, base)

    def units(size: int) -> int:
        return (size - base[direction.root] % unit) // unit

    return FoundDim(
        name,
        Range(units(limit.smallest), None if limit.largest is None else units(limit.largest)),
        units(example[direction.root]),
        units(base[direction.root]),
        units(limit.tried),
        limit.below.where if limit.below else None,
        limit.above.where if limit.above else None,
        limit.above.text if limit.above else "",
        limit.below is not None and isinstance(limit.below.error, HistoryFault),
    )


def with_example(found: Evidence, shapes: Shapes) -> Evidence:
    """The evidence, with sizes fixed and ranges widened until it holds the example: a file must run its own example."""
    example = {dim.name: dim.example for dim in found.dims}
    wrong = {
        name
        for expressions, actual in zip(found.shapes, shapes, strict=True)
        for expression, size in zip(expressions, actual, strict=True)
        if expression.evaluate(example) != size
        for name in expression.names
    } | {name for name, size in example.items() if size < 0}
    if wrong:
        return with_example(_fixed(found, shapes, wrong), shapes)
    dims = tuple(replace(dim, range=_reaching(dim.range, dim.example)) for dim in found.dims)
    relations = tuple(relation for relation in found.relations if relation.holds(example))
    return replace(found, dims=dims, relations=relations)


def _fixed(found: Evidence, shapes: Shapes, fixed: set[str]) -> Evidence:
    """The evidence without some of its dims: the axes that have them are as in the example."""
    kept = tuple(
        tuple(Expr.of(size) if e.names & fixed else e for e, size in zip(expressions, actual, strict=True))
        for expressions, actual in zip(found.shapes, shapes, strict=True)
    )
    example = {dim.name: dim.example for dim in found.dims if dim.name in fixed}
    left = {name for expressions in kept for expression in expressions for name in expression.names}
    return replace(
        found,
        dims=tuple(dim for dim in found.dims if dim.name in left),
        shapes=kept,
        relations=tuple(relation for relation in found.relations if relation.names <= left),
        rules=tuple(
            r if r.limit is None else replace(r, limit=r.limit.substitute(example)) for r in found.rules
        ),
    )


def _reaching(range_: Range, size: int) -> Range:
    most = range_.maximum
    return Range(min(range_.minimum, size), None if most is None else max(most, size))


def _objections(
    oracle: Oracle, base: Point, directions: Sequence[Direction]
) -> dict[tuple[int, int], Objection]:
    """PyTorch's words on the axes that are fixed, at one more than their size: trials that were made already."""
    moving = {axis for direction in directions for axis in direction.rates}
    made = {}
    for axis in base:
        objection = None if axis in moving else _objection(oracle.trial({**base, axis: base[axis] + 1}))
        if objection is not None:
            made.update({(member, axis[1]): objection for member in oracle.bundles[axis[0]]})
    return made


def _objection(trial: Trial) -> Objection | None:
    if isinstance(trial.why, Refusal):
        return Objection(trial.why.text, trial.why.where)
    return Objection(trial.other, None) if trial.other else None


def _axis_expressions(oracle: Oracle, base: Point, directions: Sequence[Direction]) -> dict[Axis, Expr]:
    """Each axis as an expression of the found dims: what it is at the base, plus what each direction adds."""
    example, made = oracle.example, {}
    moving = {axis for direction in directions for axis in direction.rates}
    for axis in base:
        total = Expr.of(base[axis] if axis in moving else example[axis])
        for number, direction in enumerate(directions):
            rate = direction.rates.get(axis)
            if rate is not None:
                unit = _unit(direction, base)
                units = (base[direction.root] - base[direction.root] % unit) // unit
                total = total + (Expr.of(names.found(number)) - units) * int(rate * unit)
        made[axis] = total**2 + oracle.squares[axis] if axis in oracle.squares else total
    return made
