"""Where a condition on sizes turns: solved for, not scanned for, so that no turn is too far away."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from anyshape.dims.bounds import Range, Relation
from anyshape.dims.expr import Expr
from anyshape.dims.formula import Formula, Part

__all__ = ["Condition", "crossings", "legal_sizes", "period_of", "searched", "turning"]

Sizes = Mapping[str, int]

FARTHEST = 1 << 24
DENSE = 4096  # a condition that comes and goes is followed this far, size by size
PERIODIC = frozenset(
    ("//", "%", "&", "|", "^", "<<", ">>", "bit_length", "int", "floor", "ceil", "round", "gcd", "==", "!=")
)
NEAR = 48  # how far from a turn an allowed size is looked for
MOST_TURNS = 6  # along one dim: the first ones and the last
SEARCHED = 800  # sizes on either side of a turn
MOST_FOUND = 6
LEGAL = 500
BESIDE = (0, 1, 2, 5, 12, -1, -2, -5)


class Condition(Protocol):
    """A condition on sizes; two that are equal hold at the same sizes."""

    @property
    def names(self) -> frozenset[str]: ...

    @property
    def period(self) -> int:
        """It may come and go within so many sizes; 0 where it turns once at most."""
        ...

    def holds(self, sizes: Sizes) -> bool: ...


def turning(condition: Condition, sizes: Sizes, name: str, limits: Range) -> list[tuple[int, int]]:
    """Neighbouring sizes of one dim between which the condition turns, the others being as given.

    Of many, the first, those nearest to the dim's own size, and the last.
    """
    asked = tuple((other, size) for other, size in sizes.items() if other == name or other in condition.names)
    try:
        return list(_turned(condition, asked, name, limits))  # type: ignore[arg-type]
    except TypeError:  # a condition that can't be hashed
        return _turning(condition, asked, name, limits)


def _turning(
    condition: Condition, given: tuple[tuple[str, int], ...], name: str, limits: Range
) -> list[tuple[int, int]]:
    sizes = dict(given)
    end = FARTHEST if limits.maximum is None else min(limits.maximum, FARTHEST)

    def holds(size: int) -> bool:
        return condition.holds({**sizes, name: size})

    here, reach = sizes.get(name, limits.minimum), min(DENSE, condition.period + 1)
    around = range(max(limits.minimum, here - reach), min(end, here + reach) + 1)
    tried = sorted({*_places(limits.minimum, end, condition.period), *around})
    known = [(size, holds(size)) for size in tried]
    found = []
    for (low, before), (high, after) in itertools.pairwise(known):
        if before != after:
            found.append(_between(holds, low, high, before))
    if len(found) <= MOST_TURNS:
        return found
    nearest = sorted(found, key=lambda pair: abs(pair[0] - here))[:2]
    return sorted({*found[: MOST_TURNS - 3], *nearest, found[-1]})


_turned = lru_cache(maxsize=4096)(_turning)  # asked again and again, as a model is split into its ways


def _places(start: int, end: int, period: int) -> list[int]:
    """Sizes to look at: each of the first few periods, then ever wider."""
    dense = min(end, start + min(DENSE, max(8, 2 * period + 2)))
    places = list(range(start, dense + 1))
    size = dense
    while size < end:
        size = min(end, max(size + 1, size * 5 // 4))
        places.append(size)
    return places


def _between(holds: Callable[[int], bool], low: int, high: int, before: bool) -> tuple[int, int]:
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle) == before:
            low = middle
        else:
            high = middle
    return low, high


def crossings(
    condition: Condition,
    typical: Sizes,
    ranges: Mapping[str, Range],
    allows: Callable[[dict[str, int]], bool] = lambda sizes: True,
) -> Iterator[tuple[str, dict[str, int]]]:
    """Sizes on either side of each turn, with the dim that was moved: others typical, then at their smallest.

    Where those next to the turn are not allowed, the nearest on the same side. Where no dim alone turns the condition,
    two are moved together.
    """
    names = sorted(name for name in condition.names if name in ranges)
    small = {name: min(max(ranges[name].minimum, 2), typical[name]) for name in typical if name in ranges}
    alone = False
    for others in (dict(typical), {**typical, **small}):
        for name in names:
            for low, high in turning(condition, others, name, ranges[name]):
                for size, step in ((low, -1), (high, 1)):
                    row = _nearest(condition, {**others, name: size}, name, step, allows)
                    if row is not None:
                        alone = True
                        yield name, row
    if alone:
        return
    for first, second in itertools.permutations(names, 2):
        for size in _places(ranges[first].minimum, min(ranges[first].maximum or 2048, 2048), 0):
            others = {**typical, first: size}
            pairs = turning(condition, others, second, ranges[second])
            sides = [{**others, second: side} for side in pairs[0]] if pairs else []
            if sides and all(map(allows, sides)):
                for row in sides:
                    yield second, row
                break


def _nearest(
    condition: Condition, row: dict[str, int], name: str, step: int, allows: Callable[[dict[str, int]], bool]
) -> dict[str, int] | None:
    """The row, or the next one away from the turn that is allowed, as long as the condition stays what it is."""
    here = condition.holds(row)
    for _ in range(NEAR):
        if row[name] < 0 or condition.holds(row) != here:
            return None
        if allows(row):
            return row
        row = {**row, name: row[name] + step}
    return None


def searched(
    condition: Condition,
    base: Sizes,
    ranges: Mapping[str, Range],
    wanted: Callable[[dict[str, int]], bool],
) -> Iterator[tuple[str, dict[str, int]]]:
    """For each dim of a condition, sizes at which all that is ``wanted`` holds, next to the base or to a turn.

    Where it never does with one dim moved, another is moved beside it.
    """
    names = sorted(name for name in condition.names if name in ranges)
    alone = False
    starts: dict[str, list[int]] = {}
    for name in names:
        pairs = turning(condition, base, name, ranges[name])
        starts[name] = list(dict.fromkeys((*(size for pair in pairs for size in pair), base[name])))
        found = itertools.chain.from_iterable(
            _moved({**base, name: start}, name, ranges[name], wanted) for start in starts[name]
        )
        for row in itertools.islice(found, MOST_FOUND):
            alone = True
            yield name, row
    for name in names if not alone else ():
        beside = ({**base, name: start + step} for step in BESIDE for start in starts[name])
        rows = (row for row in beside if ranges[name].contains(row[name]))
        for row, other in itertools.product(rows, (other for other in base if other != name)):
            made = next(_moved(row, other, ranges[other], wanted, SEARCHED // 4), None)
            if made is not None:
                yield name, made
                break


def _moved(
    start: dict[str, int],
    name: str,
    limits: Range,
    wanted: Callable[[dict[str, int]], bool],
    most: int = SEARCHED,
) -> Iterator[dict[str, int]]:
    """The rows with one dim moved, a little more each time, at which what is wanted holds."""
    for away in range(most):
        for step in dict.fromkeys((away, -away)):
            row = {**start, name: start[name] + step}
            if limits.contains(row[name]) and wanted(row):
                yield row


def legal_sizes(relations: Sequence[Relation], sizes: Sizes, name: str, limits: Range) -> list[int]:
    """Sizes of one dim at which all relations hold, the others being as given: enough to see a law in them."""
    own = [relation for relation in relations if name in relation.names]
    period = max((period_of(relation.left, relation.right) for relation in own), default=0)
    end = FARTHEST if limits.maximum is None else min(limits.maximum, FARTHEST)
    places = _places(limits.minimum, end, max(2 * period, LEGAL))

    def holds(size: int) -> bool:
        try:
            return all(relation.holds({**sizes, name: size}) for relation in own)
        except (ArithmeticError, ValueError):
            return False

    return [size for size in places if holds(size)]


def period_of(*parts: Part) -> int:
    """Within how many sizes a formula may come and go: the largest number in it; 0 where it turns once at most."""
    if not any(map(_comes_and_goes, parts)):
        return 0
    return min(DENSE, max((number for part in parts for number in _constants(part)), default=0))


def _comes_and_goes(part: Part) -> bool:
    if isinstance(part, Formula):
        return part.op in PERIODIC or any(map(_comes_and_goes, part.args))
    return isinstance(part, Expr) and any(
        not isinstance(atom, str) for monomial, _ in part.terms for atom, _ in monomial
    )


def _constants(part: Part) -> list[int]:
    """The numbers in a formula."""
    if isinstance(part, Formula):
        return [number for arg in part.args for number in _constants(arg)]
    if not isinstance(part, Expr):
        return [abs(int(part))] if math.isfinite(part) else []
    found = [abs(coefficient) for _, coefficient in part.terms]
    for monomial, _ in part.terms:
        for atom, _ in monomial:
            if not isinstance(atom, str):
                inner = (atom.formula,) if isinstance(atom.formula, Formula) else atom.arguments
                found += [number for argument in inner for number in _constants(argument)]
    return found
