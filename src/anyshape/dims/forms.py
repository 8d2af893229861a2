"""Functions of one column: what a size can be of another size, with the numbers read off the rows.

Each form takes a column and the values to explain, and gives the expression or None. A number that is read off
the rows has a price in halves: 0 and a number already `known` are free, 1 and -1 cost a half, any other a whole.
A form needs one distinct cell more than its price: the spare one is what checks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

from anyshape.dims.expr import Expr, ceildiv, isqrt, log2, maximum, minimum

__all__ = ["Cells", "Column", "affine", "clamped", "distinct", "enough", "of_one", "price", "straight"]

Cells = tuple[int, ...]
Known = AbstractSet[int]

# Divisors beyond this are not searched for, only tried where the number is known.
_LARGEST_DIVISOR = 128
# Slopes such as 2/3 and 3/4: finer ones are too many to be told apart by a handful of rows.
_LARGEST_SLOPE_DIVISOR = 8


@dataclass(frozen=True, slots=True)
class Column:
    """An expression and its value in each row."""

    expr: Expr
    cells: Cells


def price(number: int, known: Known, free: int = 0) -> int:
    """What a number costs in halves; `free` is the one that changes nothing, 0 to add and 1 to multiply."""
    if number == free or number in known:
        return 0
    return 1 if number in (0, 1, -1) else 2


def enough(cost: int, seen: int) -> bool:
    """Whether so many distinct cells determine numbers of this price, with one to spare."""
    return cost + 2 <= 2 * seen


def distinct(cells: Iterable[int]) -> int:
    """How many different cells there are."""
    return len(set(cells))


def of_one(column: Column, values: Cells, known: Known) -> Expr | None:
    """The first of the forms of one column that has these values."""
    points = dict(zip(column.cells, values, strict=True))
    if any(points[cell] != value for cell, value in zip(column.cells, values, strict=True)):
        return None
    smaller = Column(column.expr, tuple(sorted(points)))
    shown = tuple(points[cell] for cell in smaller.cells)
    for form in _FORMS:
        found = form(smaller, shown, known)
        if found is not None:
            return found
    return None


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


def affine(column: Column, values: Cells, known: Known) -> Expr | None:
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
    return up * column.expr // down + offset


def _special(column: Column, values: Cells, known: Known) -> Expr | None:
    """A line over a square root or a logarithm."""
    for shift in (0, -1, 1):
        shifted = [cell + shift for cell in column.cells]
        for function, compute, least in _SPECIALS:
            if shifted[0] < least:
                continue
            cells = [compute(cell) for cell in shifted]
            slope = straight(cells, values)
            if slope is None or slope.denominator > 1:
                continue
            times, plus = slope.numerator, values[0] - slope.numerator * cells[0]
            cost = price(shift, known) + price(times, known, 1) + price(plus, known)
            # Steps are few: with a number to be read off, two of them could be anything.
            if enough(cost, distinct(cells)) and (cost == 0 or distinct(cells) > 2):
                return times * function(column.expr + shift) + plus
    return None


def _root(column: Column, values: Cells, known: Known) -> Expr | None:
    """``isqrt(a*d + c)`` where that is a perfect square in every row."""
    if min(values) < 0:
        return None
    square = affine(column, tuple(value * value for value in values), known)
    return None if square is None else isqrt(square)


def _quadratic(column: Column, values: Cells, known: Known) -> Expr | None:
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
    if any(terms[0] * d * d + terms[1] * d + terms[2] != 2 * v for d, v in zip(column.cells, values, strict=True)):
        return None
    whole = [term // 2 if not any(other % 2 for other in terms) else term for term in terms]
    cost = price(whole[0], known, 1) + price(whole[1], known) + price(whole[2], known)
    if not enough(cost, len(values)):
        return None
    return (terms[0] * column.expr**2 + terms[1] * column.expr + terms[2]) // 2


@dataclass(frozen=True, slots=True, order=True)
class _Rounding:
    """``times*((d + shift)//divisor) + plus``; the order is from simple to involved."""

    cost: int
    divisor: int
    away: int
    shift: int
    times: int
    plus: int

    def of(self, size: Expr) -> Expr:
        if self.shift == self.divisor - 1:
            return self.times * ceildiv(size, self.divisor) + self.plus
        return self.times * ((size + self.shift) // self.divisor) + self.plus


def _rounded(column: Column, values: Cells, known: Known) -> Expr | None:
    """``a*((d + c)//q) + e``: rounded down, rounded up, or with an offset that the rows pin to one number."""
    sign = 1 if values[-1] >= values[0] else -1
    rising = tuple(sign * value for value in values)
    found: list[_Rounding] = []
    for times in _multipliers(rising, known):
        found = sorted(_roundings(column.cells, rising, times, known))
        if found:
            break
    if not found:
        return None
    best = found[0]
    cost = best.cost + (0 if sign == 1 else 1)
    # The same price for another divisor: the rows don't tell which.
    rival = any(other.cost == best.cost and other.divisor != best.divisor for other in found[1:])
    if rival or not enough(cost, len(values)) or best.away < 0:
        return None
    return sign * best.of(column.expr)


def _multipliers(values: Cells, known: Known) -> list[int]:
    shared = math.gcd(*(value - values[0] for value in values))
    divisors = [number for number in range(2, min(shared, 65)) if shared % number == 0]
    return [1, *([shared] if shared > 1 else []), *reversed(divisors)]


def _roundings(cells: Cells, values: Cells, times: int, known: Known) -> Iterator[_Rounding]:
    rest = values[0] % times
    steps = [(value - rest) // times for value in values]
    run, rise = cells[-1] - cells[0], steps[-1] - steps[0]
    low = max(2, run // (rise + 1))
    high = min(_LARGEST_DIVISOR, run // (rise - 1) + 1) if rise > 1 else _LARGEST_DIVISOR
    options = [*range(low, high + 1), *sorted(number for number in known if number > max(high, 1))]
    pinned: list[_Rounding] = []
    for divisor in options:
        gaps = [divisor * step - cell for cell, step in zip(cells, steps, strict=True)]
        least, most = max(gaps), min(gaps) + divisor - 1
        if least > most:
            continue
        basic = price(divisor, known) + (0 if times == divisor else price(times, known, 1))
        plain = False
        for shift in (0, divisor - 1):
            turns = -(-(least - shift) // divisor)
            if shift + divisor * turns <= most:
                plus = rest + times * turns
                plain = True
                yield _Rounding(basic + price(plus, known), divisor, 0, shift, times, plus)
        if not plain:
            turns = least // divisor
            shift, plus = least - divisor * turns, rest + times * turns
            cost = basic + 2 + min(price(least, known), price(plus, known))
            pinned.append(_Rounding(cost, divisor, 0 if least == most else -1, shift, times, plus))
    # An offset of its own fits nearly any divisor: only where one is left does it say something.
    if len(pinned) == 1:
        yield pinned[0]


def _sloped(column: Column, values: Cells, known: Known) -> Expr | None:
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
            elif all(-(-up * cell // down) == value for cell, value in zip(column.cells, values, strict=True)):
                found.append((up, down, True))
    if len(found) != 1:
        return None
    [(up, down, upwards)] = found
    return ceildiv(up * column.expr, down) if upwards else up * column.expr // down


def _remainder(column: Column, values: Cells, known: Known) -> Expr | None:
    """``d % q``, ``(-d) % q`` and ``(c - d) % q``, and one more than these."""
    for plus in (0, 1):
        lowered = [value - plus for value in values]
        if min(lowered) < 0:
            return None
        for sign in (1, -1):
            gaps = [sign * cell - value for cell, value in zip(column.cells, lowered, strict=True)]
            shared = math.gcd(*(gap - gaps[0] for gap in gaps))
            found = []
            for divisor in _divisors(shared, max(lowered) + 1, known):
                shift = -gaps[0] % divisor
                cost = price(divisor, known) + price(shift, known) + 2 * plus
                # A rest is a small number: it takes one more of them to trust it.
                if enough(cost + 2, len(values)):
                    found.append((cost, divisor, shift))
            found.sort()
            if found and (len(found) == 1 or found[0][0] < found[1][0]):
                _, divisor, shift = found[0]
                return (sign * column.expr + shift) % divisor + plus
    return None


def _divisors(number: int, least: int, known: Known) -> list[int]:
    if number == 0:
        return []
    small = [divisor for divisor in range(max(2, least), _LARGEST_DIVISOR + 1) if number % divisor == 0]
    large = [other for other in known if other > _LARGEST_DIVISOR and other >= least and number % other == 0]
    return small + sorted(large)


def clamped(column: Column, values: Cells, known: Known) -> Expr | None:
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
                return build(slope * column.expr + offset, limit)
    return None


def _slopes(cells: Sequence[int], values: Sequence[int]) -> Sequence[int]:
    if len(cells) == 1:
        return (1,)
    slope = straight(cells, values)
    return () if slope is None or slope.denominator > 1 else (slope.numerator,)


def _floor_log(number: int) -> int:
    return number.bit_length() - 1


_SPECIALS: tuple[tuple[Callable[[Expr], Expr], Callable[[int], int], int], ...] = (
    (isqrt, math.isqrt, 0),
    (log2, _floor_log, 1),
)
_FORMS = (affine, _root, _special, _rounded, _remainder, clamped, _quadratic, _sloped)
