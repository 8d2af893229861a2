"""Functions of one name each, multiplied or added up: each is found as its name alone moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from anyshape.dims.combine import explain_together
from anyshape.dims.expr import Expr, ceildiv, isqrt
from anyshape.dims.forms import LARGEST_DIVISOR, Cells, Found, distinct, enough, price, simplest, straight
from anyshape.dims.table import Table

__all__ = ["explain"]

# As the factor of a product: 2*h - 1 and h + 3 are likely, 31*h - 977 is chance.
_LARGEST_FACTOR = 16
_LARGEST_OFFSET = 64
# How often something may be added to or taken from a product before its factors are looked for.
_MOST_SUMMANDS = 2
# How many rests are looked at before the search is given up.
_MOST_RESTS = 32


def explain(table: Table, values: Cells) -> Expr | None:
    """The first expression, in the order of the search, that has these values in the table's rows."""
    found = explain_together(table, values)
    if found is None:
        found = _separated(table, values, _MOST_SUMMANDS, _Effort(_MOST_RESTS))
    return None if found is None else found[1]


@dataclass(slots=True)
class _Effort:
    """How many rests may still be looked at."""

    left: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A function of one name that may be a factor or a summand of the values, and the numbers in it."""

    build: Callable[[Expr], Expr]
    compute: Callable[[int], int]
    times: int = 1
    divisor: int = 1
    plus: int = 0

    def cost(self, known: frozenset[int]) -> int:
        return price(self.times, known, 1) + price(self.divisor, known, 1) + price(self.plus, known)


def _separated(table: Table, values: Cells, summands: int, effort: _Effort) -> Found | None:
    movers = table.movers(values)
    if not movers:
        return None
    found = _factored(table, values, movers, summands, effort)
    if found is not None or not summands:
        return found
    for offset in _offsets(table, values, movers):
        found = _factored(table, tuple(value - offset for value in values), movers, summands - 1, effort)
        if found is not None:
            cost, expr = found
            return cost + price(offset, table.known), None if expr is None else expr + offset
    for at in movers:
        found = _summed(table, values, at, summands - 1, effort)
        if found is not None:
            return found
    return None


def _offsets(table: Table, values: Cells, movers: Sequence[int]) -> list[int]:
    """The constants beside a product: where a name makes a line, what is left of that at zero."""
    offsets = []
    for at in movers:
        sizes, shown = table.slice(at, values)
        slope = straight(sizes, shown)
        if slope is not None and slope.denominator == 1:
            offsets.append(shown[0] - slope.numerator * sizes[0])
    return [offset for offset in dict.fromkeys([*offsets, 1, -1]) if offset]


def _factored(
    table: Table, values: Cells, movers: Sequence[int], summands: int, effort: _Effort
) -> Found | None:
    """One name's factor times what explains the rest."""
    if 0 in values:
        return None
    options = {at: parts for at in movers if (parts := _factors(*table.slice(at, values)))}
    if not options:
        return None
    # In a product every name has a factor: the one with the plainest is taken out first.
    first = min(
        options, key=lambda at: (min(part.cost(table.known) for part in options[at]), len(options[at]))
    )
    column = table.names[first]

    def with_part(part: _Part) -> Found | None:
        cells = [part.compute(cell) for cell in column.cells]
        if 0 in cells or any(value % cell for value, cell in zip(values, cells, strict=True)):
            return None
        rest = tuple(value // cell for value, cell in zip(values, cells, strict=True))
        found = _rest(table.without(first, part.divisor), rest, summands, effort)
        return found and (found[0], None if found[1] is None else part.build(column.expr) * found[1])

    return _cheapest(options[first], distinct(column.cells), table.known, with_part)


def _summed(table: Table, values: Cells, at: int, summands: int, effort: _Effort) -> Found | None:
    """One name's own summand, and what explains the rest."""
    column = table.names[at]

    def with_part(part: _Part) -> Found | None:
        rest = tuple(value - part.compute(cell) for value, cell in zip(values, column.cells, strict=True))
        found = _rest(table.without(at, part.divisor), rest, summands, effort)
        return found and (found[0], None if found[1] is None else part.build(column.expr) + found[1])

    return _cheapest(_addends(*table.slice(at, values)), distinct(column.cells), table.known, with_part)


def _rest(table: Table, values: Cells, summands: int, effort: _Effort) -> Found | None:
    """What explains the rest; a part that leaves only a constant was refused as a function of one name."""
    if distinct(values) == 1 or effort.left == 0:
        return None
    effort.left -= 1
    found = explain_together(table, values, plain=True)
    return _separated(table, values, summands, effort) if found is None else found


def _cheapest(
    parts: Sequence[_Part], seen: int, known: frozenset[int], with_part: Callable[[_Part], Found | None]
) -> Found | None:
    """The expression that costs least, with the part's own price; none is told from another at one price."""
    best: Found | None = None
    for cost, part in sorted(((part.cost(known), part) for part in parts), key=lambda pair: pair[0]):
        if (best is not None and cost > best[0]) or not enough(cost, seen):
            break
        found = with_part(part)
        if found is not None:
            more = (cost + found[0], found[1])
            best = more if best is None else simplest((best, more))
    return best


def _factors(sizes: Sequence[int], values: Sequence[int]) -> list[_Part]:
    """The functions of one name that the values are in proportion to, as the name alone moves."""
    found = list(_steps(tuple(sizes))[0].get(_ratio(values), ()))
    slope = straight(sizes, values)
    if slope is not None:
        times, plus = _primitive(slope, values[0] - slope * sizes[0])
        if abs(times) <= _LARGEST_FACTOR and abs(plus) <= _LARGEST_OFFSET:
            found.append(_line(times, plus))
    return found


def _addends(sizes: Sequence[int], values: Sequence[int]) -> Sequence[_Part]:
    """The functions of one name that rise as the values do, as the name alone moves."""
    slope = straight(sizes, values)
    if slope is not None and slope.denominator == 1 and abs(slope) <= _LARGEST_OFFSET:
        return [_line(slope.numerator, 0)]
    return _steps(tuple(sizes))[1].get(_rise(values), ())


def _primitive(slope: Fraction, offset: Fraction) -> tuple[int, int]:
    scale = math.lcm(slope.denominator, offset.denominator)
    times, plus = int(slope * scale), int(offset * scale)
    shared = math.gcd(times, plus)
    return times // shared, plus // shared


def _line(times: int, plus: int) -> _Part:
    return _Part(lambda size: times * size + plus, lambda size: times * size + plus, times=times, plus=plus)


def _ratio(cells: Sequence[int]) -> Cells:
    shared = math.gcd(*cells)
    return tuple(cell // shared for cell in cells)


def _rise(cells: Sequence[int]) -> Cells:
    return tuple(cell - cells[0] for cell in cells)


_Parts = Mapping[Cells, Sequence[_Part]]


@lru_cache(maxsize=256)
def _steps(sizes: Cells) -> tuple[_Parts, _Parts]:
    """The functions that go in steps, by their ratios over the sizes and by their rises."""
    ratios: dict[Cells, list[_Part]] = {}
    rises: dict[Cells, list[_Part]] = {}
    for part in _quotients(sizes):
        cells = [part.compute(size) for size in sizes]
        if part.plus == 0:
            rises.setdefault(_rise(cells), []).append(part)
        if 0 not in cells:
            ratios.setdefault(_ratio(cells), []).append(part)
    if min(sizes) > 0:
        root = _Part(isqrt, lambda size: math.isqrt(max(size, 0)))
        ratios.setdefault(_ratio([math.isqrt(size) for size in sizes]), []).append(root)
    return ratios, rises


def _quotients(sizes: Cells) -> Iterator[_Part]:
    for divisor in range(2, min(LARGEST_DIVISOR, max(sizes)) + 1):
        for plus in (0, 1, -1):
            down, up = _rounding(divisor, plus)
            yield _Part(*down, divisor=divisor, plus=plus)
            yield _Part(*up, divisor=divisor, plus=plus)


_Pair = tuple[Callable[[Expr], Expr], Callable[[int], int]]


def _rounding(divisor: int, plus: int) -> tuple[_Pair, _Pair]:
    return (
        (lambda size: size // divisor + plus, lambda size: size // divisor + plus),
        (lambda size: ceildiv(size, divisor) + plus, lambda size: -(-size // divisor) + plus),
    )
