"""Functions of one name each, multiplied or added up: each is found as its name alone moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from anyshape.dims.combine import explain_together
from anyshape.dims.expr import Expr, ceildiv, isqrt
from anyshape.dims.forms import Cells, distinct, enough, price, straight
from anyshape.dims.table import Table

__all__ = ["explain"]

_LARGEST_DIVISOR = 128
# As the factor of a product: 2*h - 1 and h + 3 are likely, 31*h - 977 is chance.
_LARGEST_FACTOR = 16
_LARGEST_OFFSET = 64
# How often something may be added to or taken from a product before its factors are looked for.
_MOST_SUMMANDS = 2


def explain(table: Table, values: Cells) -> Expr | None:
    """The first expression, in the order of the search, that has these values in the table's rows."""
    found = explain_together(table, values)
    return _separated(table, values, _MOST_SUMMANDS) if found is None else found


def _separated(table: Table, values: Cells, summands: int) -> Expr | None:
    movers = table.movers(values)
    if not movers:
        return None
    found = _factored(table, values, movers, summands)
    if found is not None or not summands:
        return found
    for offset in _offsets(table, values, movers):
        found = _factored(table, tuple(value - offset for value in values), movers, summands - 1)
        if found is not None:
            return found + offset
    for at in movers:
        found = _summed(table, values, at, summands - 1)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True)
class _Part:
    """A function of one name that may be a factor or a summand of the values."""

    cost: int
    plus: int
    build: Callable[[Expr], Expr]
    compute: Callable[[int], int]


def _offsets(table: Table, values: Cells, movers: Sequence[int]) -> list[int]:
    """The constants beside a product: where a name makes a line, what is left of that at zero."""
    offsets = []
    for at in movers:
        sizes, shown = table.slice(at, values)
        slope = straight(sizes, shown)
        if slope is not None and slope.denominator == 1:
            offsets.append(shown[0] - slope.numerator * sizes[0])
    return [offset for offset in dict.fromkeys([*offsets, 1, -1]) if offset]


def _factored(table: Table, values: Cells, movers: Sequence[int], summands: int) -> Expr | None:
    if 0 in values:
        return None
    options: dict[int, list[_Part]] = {}
    for at in movers:
        parts = _factors(*table.slice(at, values), table.known)
        if parts:
            options[at] = parts
    if not options:
        return None
    # In a product every name has a factor: the one with the plainest is taken out first.
    first = min(options, key=lambda at: (min(part.cost for part in options[at]), len(options[at])))

    def without(part: _Part) -> Expr | None:
        cells = [part.compute(cell) for cell in table.names[first].cells]
        if 0 in cells or any(value % cell for value, cell in zip(values, cells, strict=True)):
            return None
        rest = tuple(value // cell for value, cell in zip(values, cells, strict=True))
        other = _rest(table.without(first), rest, summands)
        return None if other is None else part.build(table.names[first].expr) * other

    return _only(options[first], distinct(table.names[first].cells), without)


def _summed(table: Table, values: Cells, at: int, summands: int) -> Expr | None:
    """One name's own summand, and what explains the rest."""
    column = table.names[at]

    def without(part: _Part) -> Expr | None:
        rest = tuple(value - part.compute(cell) for value, cell in zip(values, column.cells, strict=True))
        other = _rest(table.without(at), rest, summands)
        return None if other is None else part.build(column.expr) + other

    return _only(_addends(*table.slice(at, values), table.known), distinct(column.cells), without)


def _rest(table: Table, values: Cells, summands: int) -> Expr | None:
    """What explains the rest; a part that leaves only a constant was refused as a function of one name."""
    if distinct(values) == 1:
        return None
    found = explain_together(table, values, plain=True)
    return _separated(table, values, summands) if found is None else found


def _only(parts: Sequence[_Part], seen: int, without: Callable[[_Part], Expr | None]) -> Expr | None:
    """The expression with the part that costs least; None if two of one price both lead to one."""
    found: Expr | None = None
    cost = -1
    for part in sorted(parts, key=lambda part: part.cost):
        if (found is not None and part.cost > cost) or not enough(part.cost, seen):
            break
        other = without(part)
        if other is None:
            continue
        if found is not None:
            return None
        found, cost = other, part.cost
    return found


def _factors(sizes: Sequence[int], values: Sequence[int], known: frozenset[int]) -> list[_Part]:
    """The functions of one name that the values are in proportion to, as the name alone moves."""
    found = list(_steps(tuple(sizes), known)[0].get(_ratio(values), ()))
    slope = straight(sizes, values)
    if slope is not None:
        times, plus = _primitive(slope, values[0] - slope * sizes[0])
        if abs(times) <= _LARGEST_FACTOR and abs(plus) <= _LARGEST_OFFSET:
            found.append(_line(times, plus, price(times, known, 1) + price(plus, known)))
    return found


def _addends(sizes: Sequence[int], values: Sequence[int], known: frozenset[int]) -> Sequence[_Part]:
    """The functions of one name that rise as the values do, as the name alone moves."""
    slope = straight(sizes, values)
    if slope is not None and slope.denominator == 1 and abs(slope) <= _LARGEST_OFFSET:
        return [_line(slope.numerator, 0, price(slope.numerator, known, 1))]
    return _steps(tuple(sizes), known)[1].get(_rise(values), ())


def _primitive(slope: Fraction, offset: Fraction) -> tuple[int, int]:
    scale = math.lcm(slope.denominator, offset.denominator)
    times, plus = int(slope * scale), int(offset * scale)
    shared = math.gcd(times, plus)
    return times // shared, plus // shared


def _line(times: int, plus: int, cost: int) -> _Part:
    return _Part(cost, plus, lambda size: times * size + plus, lambda size: times * size + plus)


def _ratio(cells: Sequence[int]) -> Cells:
    shared = math.gcd(*cells)
    return tuple(cell // shared for cell in cells)


def _rise(cells: Sequence[int]) -> Cells:
    return tuple(cell - cells[0] for cell in cells)


_Parts = Mapping[Cells, Sequence[_Part]]


@lru_cache(maxsize=256)
def _steps(sizes: Cells, known: frozenset[int]) -> tuple[_Parts, _Parts]:
    """The functions that go in steps, by their ratios over the sizes and by their rises."""
    ratios: dict[Cells, list[_Part]] = {}
    rises: dict[Cells, list[_Part]] = {}
    for part in _every_step(sizes, known):
        cells = [part.compute(size) for size in sizes]
        if distinct(cells) > 1:
            if part.plus == 0:
                rises.setdefault(_rise(cells), []).append(part)
            if 0 not in cells:
                ratios.setdefault(_ratio(cells), []).append(part)
    return ratios, rises


def _every_step(sizes: Cells, known: frozenset[int]) -> Iterator[_Part]:
    """Rounded quotients, and the floor square root."""
    divisors = [*range(2, min(_LARGEST_DIVISOR, max(sizes)) + 1)]
    divisors += sorted(number for number in known if number > _LARGEST_DIVISOR)
    for divisor in divisors:
        cost = price(divisor, known)
        for plus in (0, 1, -1):
            more = price(plus, known)
            yield _Part(cost + more, plus, *_quotient(divisor, plus, up=False))
            yield _Part(cost + more, plus, *_quotient(divisor, plus, up=True))
    if min(sizes) >= 0:
        yield _Part(0, 0, isqrt, lambda size: math.isqrt(max(size, 0)))


def _quotient(divisor: int, plus: int, up: bool) -> tuple[Callable[[Expr], Expr], Callable[[int], int]]:
    if up:
        return lambda size: ceildiv(size, divisor) + plus, lambda size: -(-size // divisor) + plus
    return lambda size: size // divisor + plus, lambda size: size // divisor + plus
