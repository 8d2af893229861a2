"""Sizes to try: those at which a wrong model shows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anyshape.contract import Contract
from anyshape.contract.agree import Agreed
from anyshape.dims import Expr, Relation, Space, choose, generic
from anyshape.dims.turns import Condition, crossings, period_of

__all__ = ["COUNT", "Boundary", "Division", "sizes_to_try"]

COUNT = 36  # size assignments to try by default
QUICK = 0.01  # nominal seconds
ROW_SECONDS = 1.0  # nominal: sizes that would take longer than about this to try are left out
SMALL = 500_000  # numbers in the inputs that any model is given
FAR = (263, 1031)  # beyond what 8 bits count, and 10: alone, where a run is quick
MOST_FAR = 70_000  # numbers in the inputs
BESIDE = (-1, 0, 1, 2)
LEAST_INTEGER, LARGEST_INTEGER = 9, 20_000
MOST_INTEGERS = 16
ALIKE = (17, 64, 129)  # two dims of one size: which of them is the smaller may decide
MOST_ALIKE = 6  # pairs of dims
MOST_LEFT_OVER = 36  # sizes by what divisions leave over
LARGEST_DIVISOR = 512
LARGER = ((2.0, 1.5), (3.5, 3.5), (3.1, 3.2))
LARGER_SECONDS = 3.0  # nominal, for one of them
MOST_SIDES = 12  # sizes around one condition
MOST_MEETINGS = 24  # of the sides of conditions on different dims

Sizes = Mapping[str, int]
Division = tuple[Expr, int]


@dataclass(frozen=True, slots=True)
class Boundary:
    """A relation as a condition that turns somewhere, and what is given where it is asked."""

    relation: Relation
    given: tuple[Relation, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return self.relation.names

    @property
    def period(self) -> int:
        return period_of(self.relation.left, self.relation.right)

    def holds(self, sizes: Sizes) -> bool:
        try:
            return self.relation.holds(sizes)
        except (ArithmeticError, ValueError):
            return False


def sizes_to_try(
    agreed: Agreed,
    conditions: Sequence[Condition],
    seconds: float,
    count: int = COUNT,
    divisions: Sequence[Division] = (),
    integers: Sequence[int] = (),
) -> tuple[list[dict[str, int]], int]:
    """Sizes that tell most, and how many of the first must be tried whatever they cost: both sides of each condition.

    Then what ``divisions`` leave over, every boundary, primes, pairs, larger than the example; and, where runs are
    quick, next to the ``integers`` of the model's source, with which it may compare a size unseen.
    """
    contract = agreed.contract
    growth, floor = (4, 64) if seconds < QUICK else (2, 36) if seconds < 0.03 else (1.5, 8)
    largest = {
        dim.name: max(int(dim.example * growth), agreed.generic[dim.name], floor)
        for dim in contract.dims
        if dim.range.maximum is None or dim.range.maximum > 1024 or seconds > 0.05
    }
    # At the example's own 0 or 1, many a fault elsewhere does not show.
    typical = agreed.generic if contract.allows(agreed.generic) else contract.example
    most = max(SMALL, int(contract.elements(typical) * min(64.0, ROW_SECONDS / max(seconds, 1e-6))))
    needed, sides = _sides(contract, typical, conditions, most)
    if seconds >= QUICK:  # others are tried at larger sizes anyway
        usual = max(1, contract.elements(typical))
        larger = (row for row in _larger(contract, typical, conditions) if row not in needed)
        needed += [row for row in larger if seconds * contract.elements(row) / usual <= LARGER_SECONDS]
    left_over = _left_over(contract, [typical, *needed], divisions)
    sides += [sizes for sizes in left_over if contract.elements(sizes) <= most]
    space = Space(
        contract.ranges,
        contract.relations,
        typical=typical,
        largest=largest,
        wanted=tuple(sides),
    )
    telling = len(choose(space, 1))  # these are tried even if they are more than were asked for
    wanted = [sizes for sizes in choose(space, 4 * count) if contract.elements(sizes) <= most]
    wanted = wanted[: max(count, telling)]
    if seconds < QUICK:
        far = itertools.chain(
            _far(contract, typical), _alike(contract, typical), _beside(contract, typical, integers)
        )
        wanted += [sizes for sizes in far if contract.elements(sizes) <= MOST_FAR]
    return [*needed, *(sizes for sizes in wanted if sizes not in needed)], len(needed)


def _sides(
    contract: Contract, typical: Sizes, conditions: Sequence[Condition], most: int
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """For each condition, sizes on both of its sides that must be tried; and all others next to where it turns.

    The others: with the other dims at their ends, and where the sides of two conditions meet.
    """
    needed: list[dict[str, int]] = []
    sides: list[dict[str, int]] = []
    turning: dict[str, dict[int, None]] = {}
    for condition in conditions:
        asked = _where_asked(contract, condition)
        base = typical if asked.allows(typical) else _elsewhere(asked, typical)
        found = [
            (name, row)
            for name, row in crossings(condition, base, asked.ranges, asked.allows)
            if contract.elements(row) <= most
        ]
        for side in (True, False):
            here = [row for _, row in found if condition.holds(row) is side]
            here.sort(key=lambda row: (min(row.values(), default=2) < 2, contract.elements(row)))
            if here and not any(condition.holds(row) is side and asked.allows(row) for row in needed):
                needed.append(here[0])
        sides += [row for _, row in found][:MOST_SIDES]
        for name, row in found:
            turning.setdefault(name, {}).setdefault(row[name])
    ends = _ends(contract, typical)
    meetings = itertools.chain(_with_ends(turning, ends), _meetings(turning, typical))
    allowed = (row for row in meetings if contract.allows(row) and contract.elements(row) <= most)
    sides += itertools.islice(allowed, MOST_MEETINGS)
    sides += itertools.islice(_with_nothing(contract, [*needed, *sides]), MOST_MEETINGS)
    return needed, sides


def _with_nothing(contract: Contract, rows: Sequence[Sizes]) -> Iterator[dict[str, int]]:
    """On each side of each condition, each dim alone at 0: what one way makes of nothing, another need not."""
    for row in rows:
        for dim in contract.dims:
            empty = {**row, dim.name: 0}
            if row[dim.name] and contract.allows(empty):
                yield empty


def _larger(contract: Contract, typical: Sizes, conditions: Sequence[Condition]) -> Iterator[dict[str, int]]:
    """The dims by which a model decides, well beyond the usual: what fits a few small sizes may fit no larger one."""
    names = {name for condition in conditions for name in condition.names} & set(typical)
    small = {name: max(1, contract.dim(name).range.minimum) for name in typical if name not in names}
    for factors in LARGER if names else ():
        sizes = zip(sorted(names), itertools.cycle(factors), strict=False)
        row = {**typical, **small, **{name: int(typical[name] * factor) + 2 for name, factor in sizes}}
        if contract.allows(row):
            yield row


def _where_asked(contract: Contract, condition: Condition) -> Contract:
    """The contract, as narrow as it is where the model asks a condition."""
    given = condition.given if isinstance(condition, Boundary) else ()
    return replace(contract, relations=(*contract.relations, *given))


def _elsewhere(asked: Contract, typical: Sizes) -> Sizes:
    made = generic(Space(asked.ranges, asked.relations, typical=typical), (), 1)
    return made[0] if made else typical


def _left_over(
    contract: Contract, bases: Sequence[Sizes], divisions: Sequence[Division]
) -> Iterator[dict[str, int]]:
    """Near each of some sizes, those at which a division leaves nothing over, and as much as can be."""
    known = {dim.name for dim in contract.dims}
    counted = itertools.count()
    for base, (dividend, divisor) in itertools.product(bases, divisions):
        if not dividend.names <= known or not 1 < divisor <= LARGEST_DIVISOR:
            continue
        for name in sorted(dividend.names):
            near = [{**base, name: base[name] + step} for step in range(2 * divisor)]
            for rest in (0, divisor - 1):
                row = next((row for row in near if _rest(dividend, divisor, row) == rest), None)
                if row is not None and contract.allows(row):
                    if next(counted) == MOST_LEFT_OVER:
                        return
                    yield row


def _rest(dividend: Expr, divisor: int, row: Sizes) -> int | None:
    try:
        return dividend.evaluate(row) % divisor
    except (ArithmeticError, ValueError):
        return None


def _far(contract: Contract, typical: Sizes) -> Iterator[dict[str, int]]:
    """Each dim alone far beyond the usual sizes: what was counted in few bits shows there."""
    low = {name: min(size, max(2, contract.dim(name).range.minimum)) for name, size in typical.items()}
    for name in typical:
        for size in FAR:
            row = {**low, name: size}
            if contract.allows(row):
                yield row


def _beside(contract: Contract, typical: Sizes, integers: Sequence[int]) -> Iterator[dict[str, int]]:
    """Each dim alone next to each of the numbers."""
    low = {name: min(size, max(2, contract.dim(name).range.minimum)) for name, size in typical.items()}
    telling = [number for number in integers if LEAST_INTEGER <= number <= LARGEST_INTEGER][:MOST_INTEGERS]
    sizes = sorted({number + step for number in telling for step in BESIDE})
    for name, size in itertools.product(typical, sizes):
        row = {**low, name: size}
        if contract.allows(row):
            yield row


def _alike(contract: Contract, typical: Sizes) -> Iterator[dict[str, int]]:
    """Two dims of one size, and of nearly one, the others small."""
    low = {name: min(size, max(2, contract.dim(name).range.minimum)) for name, size in typical.items()}
    for one, two in itertools.islice(itertools.combinations(list(typical)[::-1], 2), MOST_ALIKE):
        for size in ALIKE:
            for row in ({**low, one: size, two: size}, {**low, one: size, two: size - 1}):
                if contract.allows(row):
                    yield row


def _ends(contract: Contract, typical: Sizes) -> list[dict[str, int]]:
    """All dims at their smallest that is not 0; all somewhat larger than usual."""
    low = {dim.name: max(dim.range.minimum, 1) for dim in contract.dims}
    high = {
        name: size * 2 + 1 if contract.dim(name).range.contains(size * 2 + 1) else size
        for name, size in typical.items()
    }
    return [low, high]


def _with_ends(turning: Mapping[str, Mapping[int, None]], ends: Sequence[Sizes]) -> Iterator[dict[str, int]]:
    for name, sizes in turning.items():
        for size in list(sizes)[:4]:
            for end in ends:
                yield {**end, name: size}


def _meetings(turning: Mapping[str, Mapping[int, None]], typical: Sizes) -> Iterator[dict[str, int]]:
    """Sizes at which two conditions turn, on each of their sides together."""
    for one, two in itertools.combinations(turning, 2):
        for first, second in itertools.product(list(turning[one])[:4], list(turning[two])[:4]):
            yield {**typical, one: first, two: second}
