"""Functions of one column: what a size can be of another size, with the numbers read off the rows.

Each form takes a column and the values to explain, and gives its price and the expression, or None. A number
that is read off the rows has a price in halves: 0 and a number already `known` are free, 1 and -1 cost a half,
any other a whole. A form needs one distinct cell more than its price: the spare one is what checks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction

from anyshape.dims.expr import Expr, ceildiv, isqrt, log2, maximum, minimum

__all__ = [
    "Cells",
    "Column",
    "Found",
    "affine",
    "distinct",
    "enough",
    "of_one",
    "price",
    "simplest",
    "straight",
]

Cells = tuple[int, ...]
Known = AbstractSet[int]
# The price and the expression; None for it where forms of one price have the values, and the rows don't tell which.
Found = tuple[int, Expr | None]

# Divisors beyond this are not searched for, only tried where the number is known.
LARGEST_DIVISOR = 128
# Slopes such as 2/3 and 3/4: finer ones are too many to be told apart by a handful of rows.
_LARGEST_SLOPE_DIVISOR = 8


@dataclass(frozen=True, slots=True)
class Column:
    """An expression and its value in each row."""

    expr: Expr
    cells: Cells


def price(number: int, known: Known, free: int = 0) -> int:
    """What a number costs in halves; `free` is the one that changes nothing, 0 to add and 1 to multiply."""
    if number == free:
        return 0
    if number in (0, 1, -1):
        return 1
    return 0 if number in known else 2


def enough(cost: int, seen: int) -> bool:
    """Whether so many distinct cells determine numbers of this price, with one to spare."""
    return cost + 2 <= 2 * seen


def simplest(found: Iterable[Found]) -> Found | None:
    """The one that costs least; of several that do, none is told from the others."""
    best: Found | None = None
    for cost, expr in found:
        if best is None or cost < best[0]:
            best = cost, expr
        elif cost == best[0] and expr != best[1]:
            best = cost, None
    return best


def distinct(cells: Iterable[int]) -> int:
    """How many different cells there are."""
    return len(set(cells))


def of_one(column: Column, values: Cells, known: Known, plain: bool = False) -> Found | None:
    """The form of one column with these values that costs least, and of these the first.

    Only the `plain` forms are tried where little speaks for the values themselves, as they are only a part.
    """
    points = dict(zip(column.cells, values, strict=True))
    if any(points[cell] != value for cell, value in zip(column.cells, values, strict=True)):
        return None
    smaller = Column(column.expr, tuple(sorted(points)))
    shown = tuple(points[cell] for cell in smaller.cells)
    best: Found | None = None
    for form in _PLAIN_FORMS if plain else _FORMS:
        found = form(smaller, shown, known)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
            if found[0] == 0:
                break
    return best


def straight(cells: Sequence[int], values: Sequence[int]) -> Fraction | None:
    """The slope, if the points are on one line that is not level."""
    first, start = cells[0], values[0]
    for cell, value in zip(cells, values, strict=True):
        if cell != first:
            run, rise = cell - first, value - start
            break
    else:
        return None
    for cell, value in zip(cells, values, strict=True):
        if (value - start) * run != rise * (cell - first):
            return None
    return Fraction(rise, run) if rise else None


def affine(column: Column, values: Cells, known: Known) -> Found | None:
    """``a*d + c``, and ``p*d//q + c`` where the division leaves no rest in any row."""
    slope = straight(column.cells, values)
    if slope is None:
        return None
    up, down = slope.numerator, slope.denominator
    if down > 1 and any(up * cell % down for cell in column.cells):
        return None
    offset = values[0] - up * column.cells[0] // down
    cost = price(up, known, 1) + price(down, known, 1) + price(offset, known)
    if not enough(cost, distinct(column.cells)):
        return None
    return cost, up * column.expr // down + offset


def _special(column: Column, values: Cells, known: Known) -> Found | None:
    """The floor of a square root or of a logarithm, or one more or less."""
    return simplest(_specials(column, values))


def _bare_special(column: Column, values: Cells, known: Known) -> Found | None:
    """A floor square root or logarithm without a number in it."""
    found = _special(column, values, known)
    return found if found is not None and found[0] == 0 else None


def _specials(column: Column, values: Cells) -> Iterator[Found]:
    for shift in (0, -1, 1):
        if column.cells[0] + shift < 1:
            continue
        for function, compute in _SPECIALS:
            cells = [compute(cell + shift) for cell in column.cells]
            plus = values[0] - cells[0]
            if abs(plus) > 1 or any(cell + plus != value for cell, value in zip(cells, values, strict=True)):
                continue
            # Steps are few: with a number to be read off, two of them could be anything.
            cost = abs(shift) + abs(plus)
            if cost == 0 or distinct(cells) > 2:
                yield cost, function(column.expr + shift) + plus


def _root(column: Column, values: Cells, known: Known) -> Found | None:
    """``isqrt(a*d + c)`` where that is a perfect square in every row."""
    if min(values) < 0:
        return None
    square = affine(column, tuple(value * value for value in values), known)
    return None if square is None or square[1] is None else (square[0], isqrt(square[1]))


def _quadratic(column: Column, values: Cells, known: Known) -> Found | None:
    """``d**2 + c`` and ``d*(d + 1)//2``: a parabola with coefficients that are whole, or half."""
    if len(values) < 4:
        return None
    (x, y, z), (at_x, at_y, at_z) = column.cells[:3], values[:3]
    first = Fraction(at_y - at_x, y - x)
    second = (Fraction(at_z - at_y, z - y) - first) / (z - x)
    linear = first - second * (x + y)
    level = at_x - second * x * x - linear * x
    if not second or max(term.denominator for term in (second, linear, level)) > 2:
        return None
    terms = (int(2 * second), int(2 * linear), int(2 * level))
    if any(
        terms[0] * d * d + terms[1] * d + terms[2] != 2 * v for d, v in zip(column.cells, values, strict=True)
    ):
        return None
    whole = [term // 2 if not any(other % 2 for other in terms) else term for term in terms]
    cost = price(whole[0], known, 1) + price(whole[1], known) + price(whole[2], known)
    if not enough(cost, len(values)):
        return None
    return cost, (terms[0] * column.expr**2 + terms[1] * column.expr + terms[2]) // 2


@dataclass(frozen=True, slots=True, order=True)
class _Rounding:
    """``times*((d + shift)//divisor) + plus``; the order is from simple to involved.

    It is `loose` where other shifts or divisors have the values as well.
    """

    cost: int
    divisor: int
    shift: int
    times: int
    plus: int
    loose: bool = False

    def of(self, size: Expr) -> Expr:
        if self.shift == self.divisor - 1:
            return self.times * ceildiv(size, self.divisor) + self.plus
        return self.times * ((size + self.shift) // self.divisor) + self.plus


def _rounded(column: Column, values: Cells, known: Known) -> Found | None:
    """``a*((d + c)//q) + e``: rounded down, rounded up, or with an offset that the rows pin to one number."""
    sign = 1 if values[-1] >= values[0] else -1
    rising = tuple(sign * value for value in values)
    found: list[_Rounding] = []
    for times in _multipliers(rising):
        found.extend(_roundings(column.cells, rising, times, known))
    if not found:
        return None
    best = min(found)
    cost = best.cost + (0 if sign == 1 else 1)
    if not enough(cost, len(values)):
        return None
    # The same price for another divisor: the rows don't tell which.
    rival = best.loose or any(other.cost == best.cost and other.divisor != best.divisor for other in found)
    return cost, None if rival else sign * best.of(column.expr)


def _multipliers(values: Cells) -> list[int]:
    shared = math.gcd(*(value - values[0] for value in values))
    small = [number for number in range(1, min(shared, 64) + 1) if shared % number == 0]
    return small if shared <= 64 else [*small, shared]


def _roundings(cells: Cells, values: Cells, times: int, known: Known) -> Iterator[_Rounding]:
    rest = values[0] % times
    steps = [(value - rest) // times for value in values]
    # A line over two steps goes through any two numbers.
    few = len(set(steps)) < 3
    if times > 1 and few and min(map(steps.count, steps)) < 2:
        return
    others: list[_Rounding] = []
    for divisor in _possible(cells[-1] - cells[0], steps[-1] - steps[0], known):
        gaps = [divisor * step - cell for cell, step in zip(cells, steps, strict=True)]
        least, most = max(gaps), min(gaps) + divisor - 1
        scale = 0 if times == divisor else price(times, known, 1)
        if least > most or (few and scale):
            continue
        basic = price(divisor, known) + scale
        plain = False
        for shift in (0, divisor - 1):
            turns = -(-(least - shift) // divisor)
            plus = rest + times * turns
            if shift + divisor * turns <= most and not (few and plus and times > 1):
                plain = True
                yield _Rounding(basic + price(plus, known), divisor, shift, times, plus)
        if not plain:
            cost = basic + (price(least, known) + price(rest, known) if least == most else 3)
            others.append(_Rounding(cost, divisor, least, times, rest, least < most))
    # An offset of its own fits nearly any divisor: only where one is left does it say something.
    loose = len(others) > 1
    yield from (replace(other, loose=loose or other.loose, cost=other.cost + loose) for other in others)


def _possible(run: int, rise: int, known: Known) -> list[int]:
    """The divisors with which a quotient may rise so much over such a run."""
    low = max(2, run // (abs(rise) + 1))
    high = min(LARGEST_DIVISOR, run // (rise - 1) + 1) if rise > 1 else LARGEST_DIVISOR
    return [*range(low, high + 1), *sorted(number for number in known if number > max(high, 1))]


def _sloped(column: Column, values: Cells, known: Known) -> Found | None:
    """``p*d//q`` rounded down or up, for slopes such as 2/3 and 5/4."""
    if len(values) < 4 or column.cells[0] < 0:
        return None
    found: list[tuple[int, int, bool]] = []
    for down in range(2, _LARGEST_SLOPE_DIVISOR + 1):
        for up in range(2, 4 * down):
            if math.gcd(up, down) > 1:
                continue
            if all(up * cell // down == value for cell, value in zip(column.cells, values, strict=True)):
                found.append((up, down, False))
            elif all(
                -(-up * cell // down) == value for cell, value in zip(column.cells, values, strict=True)
            ):
                found.append((up, down, True))
    if len(found) != 1:
        return None
    [(up, down, upwards)] = found
    return 4, ceildiv(up * column.expr, down) if upwards else up * column.expr // down


def _remainder(column: Column, values: Cells, known: Known) -> Found | None:
    """``d % q``, ``(-d) % q`` and ``(c - d) % q``, and one more than these."""
    return simplest(_remainders(column, values, known))


def _remainders(column: Column, values: Cells, known: Known) -> Iterator[Found]:
    for plus in (0, 1) if min(values) > 0 else (0,):
        if min(values) < plus:
            return
        for sign in (1, -1):
            gaps = [sign * cell - value + plus for cell, value in zip(column.cells, values, strict=True)]
            shared = math.gcd(*(gap - gaps[0] for gap in gaps))
            turns = distinct(gaps)
            for divisor in _divisors(shared, max(values) - plus + 1, known):
                shift = -gaps[0] % divisor
                cost = price(divisor, known) + price(shift, known) + 2 * plus
                # Between two turns any number is a divisor, unless every rest was seen; and a rest is small, it
                # takes one more to trust it.
                sure = divisor in known or divisor == max(values) - plus + 1
                if turns > 2 - sure and enough(cost + 2, len(values)):
                    yield cost, (sign * column.expr + shift) % divisor + plus


def _divisors(number: int, least: int, known: Known) -> list[int]:
    if number == 0:
        return []
    small = [divisor for divisor in range(max(2, least), LARGEST_DIVISOR + 1) if number % divisor == 0]
    large = [other for other in known if other > LARGEST_DIVISOR and other >= least and number % other == 0]
    return small + sorted(large)


def _clamped(column: Column, values: Cells, known: Known) -> Found | None:
    """``min(a*d + c, k)`` and ``max(a*d + c, k)``, where both sides of the bend were seen."""
    for limit, pick, build in ((max(values), min, minimum), (min(values), max, maximum)):
        free = [at for at, value in enumerate(values) if value != limit]
        held = len(values) - len(free)
        if not free or not enough(price(limit, known), held):
            continue
        cells, shown = [column.cells[at] for at in free], [values[at] for at in free]
        for slope in _slopes(cells, shown):
            offset = shown[0] - slope * cells[0]
            cost = price(slope, known, 1) + price(offset, known)
            line = [slope * cell + offset for cell in column.cells]
            fits = all(pick(at, limit) == value for at, value in zip(line, values, strict=True))
            if fits and enough(cost, len(free)):
                return cost + price(limit, known), build(slope * column.expr + offset, limit)
    return None


def _slopes(cells: Sequence[int], values: Sequence[int]) -> Sequence[int]:
    if len(cells) == 1:
        return (1,)
    slope = straight(cells, values)
    return () if slope is None or slope.denominator > 1 else (slope.numerator,)


def _floor_log(number: int) -> int:
    return number.bit_length() - 1


_SPECIALS: tuple[tuple[Callable[[Expr], Expr], Callable[[int], int]], ...] = (
    (isqrt, math.isqrt),
    (log2, _floor_log),
)
_FORMS = (affine, _root, _special, _remainder, _clamped, _quadratic, _rounded, _sloped)
_PLAIN_FORMS = (affine, _root, _bare_special, _clamped, _quadratic, _rounded)
