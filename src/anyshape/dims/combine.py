"""Functions of several columns: products, sums, one size by another, and functions of one size put together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from anyshape.dims.expr import Expr, ceildiv, isqrt, maximum, minimum
from anyshape.dims.forms import Cells, Column, affine, distinct, enough, of_one, price, straight
from anyshape.dims.table import Table

__all__ = ["explain"]

# With more columns than this the larger groups of them are left out.
_FEW_COLUMNS = 8
_LARGEST_DIVISOR = 128
# As the factor of a product: 2*h - 1 and h + 3 are likely, 31*h - 977 is chance.
_LARGEST_FACTOR = 16
_LARGEST_OFFSET = 64


def explain(table: Table, values: Cells, depth: int = 0) -> Expr | None:
    """The first expression, in the order of the search, that has these values in the table's rows."""
    if distinct(values) == 1:
        return Expr.of(values[0]) if len(values) > 1 or table.fixed else None
    for column in table.columns:
        if column.cells == values:
            return column.expr
    for column in table.columns:
        found = affine(column, values, table.known)
        if found is not None:
            return found
    for search in (_products, _sums, _single, _pairs):
        found = search(table, values)
        if found is not None:
            return found
    return _separated(table, values, depth)


def _single(table: Table, values: Cells) -> Expr | None:
    for column in table.columns:
        found = of_one(column, values, table.known)
        if found is not None:
            return found
    return None


def _products(table: Table, values: Cells) -> Expr | None:
    """A factor times two to four columns, plus a constant."""
    columns = table.columns
    few = len(columns) <= _FEW_COLUMNS
    groups = itertools.combinations_with_replacement if few else itertools.combinations
    rows = min(3, len(values))
    heads = [(*column.cells[:rows], *(1 for _ in range(3 - rows))) for column in columns]
    first, second, third = (*values[:rows], *(1 for _ in range(3 - rows)))
    rises = (second - first, third - first) if rows == 3 else (0, 0)
    for count in (2, 3, 4) if few else (2, 3):
        for chosen in groups(range(len(columns)), count):
            # Three rows on one line: that rules out nearly all of them before the whole product is made.
            start, middle, end = (math.prod(cells) for cells in zip(*(heads[at] for at in chosen), strict=True))
            if rises[0] * (end - start) != rises[1] * (middle - start):
                continue
            found = affine(_product([columns[at] for at in chosen]), values, table.known)
            if found is not None:
                return found
    return None


def _product(columns: Sequence[Column]) -> Column:
    cells = tuple(math.prod(row) for row in zip(*(column.cells for column in columns), strict=True))
    return Column(math.prod((column.expr for column in columns), start=Expr.of(1)), cells)


def _sums(table: Table, values: Cells) -> Expr | None:
    """Columns with whole factors, plus a constant."""
    names = [column for at, column in enumerate(table.names) if not table.slices[at] or table.moves(at, values)]
    return _linear(names, values, table) or _pair_sums(table, values) or _plain_sums(table, values)


def _linear(columns: Sequence[Column], values: Cells, table: Table) -> Expr | None:
    factors = _solved([[*row, 1] for row in zip(*(column.cells for column in columns), strict=True)], values)
    if factors is None:
        return None
    *slopes, offset = factors
    cost = sum(price(slope, table.known) if slope != 1 else 0 for slope in slopes) + price(offset, table.known)
    used = [column for column, slope in zip(columns, slopes, strict=True) if slope]
    if not enough(cost, len(set(zip(*(column.cells for column in used), strict=True)))):
        return None
    return sum((slope * column.expr for column, slope in zip(columns, slopes, strict=True)), Expr.of(offset))


def _solved(rows: list[list[int]], values: Sequence[int]) -> list[int] | None:
    """The whole factors with which every row adds up to its value, if there is just one choice of them."""
    pending = [(row, value) for row, value in zip(rows, values, strict=True)]
    pivots: list[tuple[int, list[int], int]] = []
    width = len(rows[0])
    for row, value in pending:
        for at, pivot, goal in pivots:
            if row[at]:
                scale, factor = pivot[at], row[at]
                row = [scale * cell - factor * other for cell, other in zip(row, pivot, strict=True)]
                value = scale * value - factor * goal
        lead = next((at for at in range(width) if row[at]), None)
        if lead is None:
            if value:
                return None
            continue
        pivots.append((lead, row, value))
    if len(pivots) < width:
        return None
    solution: dict[int, int] = {}
    for lead, row, value in reversed(pivots):
        rest = value - sum(row[at] * number for at, number in solution.items())
        if rest % row[lead]:
            return None
        solution[lead] = rest // row[lead]
    return [solution[at] for at in range(width)]


def _pair_sums(table: Table, values: Cells) -> Expr | None:
    """``a*x + b*y + c`` where one of the columns, at least, is an atom."""
    if len(table.columns) == len(table.names) or len(values) < 4:
        return None
    steps = [tuple(cell - column.cells[0] for cell in column.cells[1:4]) for column in table.columns]
    rises = [value - values[0] for value in values[1:4]]
    for right in range(len(table.names), len(table.columns)):
        y = steps[right]
        for left in range(right):
            x = steps[left]
            whole = x[0] * y[1] - x[1] * y[0]
            first = rises[0] * y[1] - rises[1] * y[0]
            second = x[0] * rises[1] - x[1] * rises[0]
            if not whole or first % whole or second % whole or first * x[2] + second * y[2] != whole * rises[2]:
                continue
            found = _linear([table.columns[left], table.columns[right]], values, table)
            if found is not None:
                return found
    return None


def _plain_sums(table: Table, values: Cells) -> Expr | None:
    """Three or four columns added up, plus a constant: what is joined end to end."""
    columns = table.columns
    rows = range(1, min(4, len(values)))
    steps = [[column.cells[row] - column.cells[0] for row in rows] for column in columns]
    rises = [values[row] - values[0] for row in rows]
    for count in (3, 4) if len(columns) <= _FEW_COLUMNS else (3,):
        for chosen in itertools.combinations(range(len(columns)), count):
            if any(sum(steps[at][row] for at in chosen) != rise for row, rise in enumerate(rises)):
                continue
            total = Column(
                sum((columns[at].expr for at in chosen), Expr.of(0)),
                tuple(map(sum, zip(*(columns[at].cells for at in chosen), strict=True))),
            )
            found = affine(total, values, table.known)
            if found is not None:
                return found
    return None


def _pairs(table: Table, values: Cells) -> Expr | None:
    """One column divided by another, its rest, and the smaller or larger of two."""
    shared = math.gcd(*values)
    goals = [(1, 0), *([(shared, 0)] if shared > 1 else []), (1, 1), (1, -1)]
    for times, plus in goals:
        cost = price(times, table.known, 1) + price(plus, table.known)
        if not enough(cost, distinct(values)):
            continue
        goal = tuple((value - plus) // times for value in values)
        for left, right in itertools.permutations(table.columns, 2):
            found = _of_two(left, right, goal)
            if found is not None:
                return times * found + plus
    for left, right in itertools.permutations(table.columns, 2):
        found = _extreme(left, right, values, table)
        if found is not None:
            return found
    return _shared_out(table, values)


def _of_two(left: Column, right: Column, values: Cells) -> Expr | None:
    if 0 in right.cells:
        return None
    first, second, goal = left.cells[0], right.cells[0], values[0]
    for compute, build in _DIVISIONS:
        if compute(first, second) == goal and all(
            compute(a, b) == value for a, b, value in zip(left.cells, right.cells, values, strict=True)
        ):
            return build(left.expr, right.expr)
    return None


def _extreme(left: Column, right: Column, values: Cells, table: Table) -> Expr | None:
    """``min(x, y + c)`` and ``max(x, y + c)`` where each side was seen to be the one."""
    other = [at for at, value in enumerate(values) if value != left.cells[at]]
    if not 0 < len(other) < len(values):
        return None
    offset = values[other[0]] - right.cells[other[0]]
    if any(values[at] - right.cells[at] != offset for at in other):
        return None
    if not enough(price(offset, table.known), distinct(right.cells[at] for at in other)):
        return None
    for pick, build in ((min, minimum), (max, maximum)):
        if all(pick(a, b + offset) == value for a, b, value in zip(left.cells, right.cells, values, strict=True)):
            return build(left.expr, right.expr + offset)
    return None


def _shared_out(table: Table, values: Cells) -> Expr | None:
    """The product of two columns divided by a third."""
    for left, right in itertools.combinations(table.columns, 2):
        whole = left.cells[0] * right.cells[0]
        for divisor in table.columns:
            if divisor is left or divisor is right or 0 in divisor.cells:
                continue
            if whole // divisor.cells[0] == values[0]:
                found = _of_two(_product((left, right)), divisor, values)
                if found is not None:
                    return found
    return None


@dataclass(frozen=True, slots=True)
class _Part:
    """A function of one name that may be a factor or a summand of the values."""

    cost: int
    build: Callable[[Expr], Expr]
    compute: Callable[[int], int]


def _separated(table: Table, values: Cells, depth: int) -> Expr | None:
    """Functions of one name each, multiplied or added up; each is found as its name alone moves."""
    movers = [at for at in range(len(table.names)) if table.moves(at, values)]
    if not movers or depth == len(table.names):
        return None
    for offset in _offsets(table, values, movers) if depth == 0 else (0,):
        found = _factored(table, tuple(value - offset for value in values), movers, depth)
        if found is not None:
            return found + offset
    for at in movers:
        found = _summed(table, values, at, depth)
        if found is not None:
            return found
    return None


def _offsets(table: Table, values: Cells, movers: Sequence[int]) -> list[int]:
    """The constants beside a product: where a name makes a line, what is left of that at zero."""
    offsets = [0]
    for at in movers:
        sizes, shown = table.slice(at, values)
        slope = straight(sizes, shown)
        if slope is not None and slope.denominator == 1:
            offsets.append(shown[0] - slope.numerator * sizes[0])
    return list(dict.fromkeys([*offsets, 1, -1]))


def _factored(table: Table, values: Cells, movers: Sequence[int], depth: int) -> Expr | None:
    if 0 in values:
        return None
    # Every name that moves the values has a factor: the one with the plainest is taken out first.
    options = {at: _factors(*table.slice(at, values), table) for at in movers}
    first = min(movers, key=lambda at: (min((part.cost for part in options[at]), default=99), len(options[at])))
    column = table.names[first]
    parts = sorted(options[first], key=lambda part: part.cost)
    found: tuple[int, Expr] | None = None
    for part in parts:
        if found is not None and part.cost > found[0]:
            break
        cells = [part.compute(cell) for cell in column.cells]
        if 0 in cells or any(value % cell for value, cell in zip(values, cells, strict=True)):
            continue
        if not enough(part.cost, distinct(column.cells)):
            continue
        rest = tuple(value // cell for value, cell in zip(values, cells, strict=True))
        other = explain(table, rest, depth + 1)
        if other is None:
            continue
        if found is not None:
            return None  # two factors of one price: the rows don't tell which
        found = part.cost, part.build(column.expr) * other
    return None if found is None else found[1]


def _factors(sizes: Sequence[int], values: Sequence[int], table: Table) -> list[_Part]:
    """The functions of one name that the values are in proportion to, as the name alone moves."""
    found: list[_Part] = []
    slope = straight(sizes, values)
    if slope is not None:
        times, plus = _primitive(slope, values[0] - slope * sizes[0])
        if abs(times) <= _LARGEST_FACTOR and abs(plus) <= _LARGEST_OFFSET:
            cost = price(times, table.known, 1) + price(plus, table.known)
            found.append(_Part(cost, *_line(times, plus)))
    for part in _steps(sizes, table):
        cells = [part.compute(size) for size in sizes]
        if all(cells[0] * value == cell * values[0] for cell, value in zip(cells, values, strict=True)):
            found.append(part)
    return found


def _primitive(slope: Fraction, offset: Fraction) -> tuple[int, int]:
    scale = math.lcm(slope.denominator, offset.denominator)
    times, plus = int(slope * scale), int(offset * scale)
    shared = math.gcd(times, plus)
    return times // shared, plus // shared


def _summed(table: Table, values: Cells, at: int, depth: int) -> Expr | None:
    """One name's own summand, and what explains the rest."""
    column = table.names[at]
    sizes, shown = table.slice(at, values)
    slope = straight(sizes, shown)
    parts = [part for part in _steps(sizes, table) if _same_rise([part.compute(size) for size in sizes], shown)]
    if slope is not None and slope.denominator == 1:
        parts = [_Part(price(slope.numerator, table.known, 1), *_line(slope.numerator, 0))]
    found: tuple[int, Expr] | None = None
    for part in sorted(parts, key=lambda part: part.cost):
        if found is not None and part.cost > found[0]:
            break
        if not enough(part.cost, distinct(column.cells)):
            continue
        rest = tuple(value - part.compute(cell) for value, cell in zip(values, column.cells, strict=True))
        other = explain(table, rest, max(depth + 1, len(table.names) - 1))
        if other is None:
            continue
        if found is not None:
            return None
        found = part.cost, part.build(column.expr) + other
    return None if found is None else found[1]


def _same_rise(cells: Sequence[int], values: Sequence[int]) -> bool:
    return all(cell - cells[0] == value - values[0] for cell, value in zip(cells, values, strict=True))


def _line(times: int, plus: int) -> tuple[Callable[[Expr], Expr], Callable[[int], int]]:
    return lambda size: times * size + plus, lambda size: times * size + plus


def _steps(sizes: Sequence[int], table: Table) -> Iterator[_Part]:
    """The functions of one name that go in steps: rounded quotients, and the floor square root."""
    divisors = [*range(2, min(_LARGEST_DIVISOR, max(sizes)) + 1)]
    divisors += sorted(number for number in table.known if number > _LARGEST_DIVISOR)
    for divisor in divisors:
        cost = price(divisor, table.known)
        for plus in (0, 1, -1):
            more = price(plus, table.known)
            yield _Part(cost + more, *_quotient(divisor, plus, up=False))
            yield _Part(cost + more, *_quotient(divisor, plus, up=True))
    if min(sizes) >= 0:
        yield _Part(0, isqrt, lambda size: math.isqrt(max(size, 0)))


def _quotient(divisor: int, plus: int, up: bool) -> tuple[Callable[[Expr], Expr], Callable[[int], int]]:
    if up:
        return lambda size: ceildiv(size, divisor) + plus, lambda size: -(-size // divisor) + plus
    return lambda size: size // divisor + plus, lambda size: size // divisor + plus


_DIVISIONS: tuple[tuple[Callable[[int, int], int], Callable[[Expr, Expr], Expr]], ...] = (
    (lambda left, right: left // right, lambda left, right: left // right),
    (lambda left, right: -(-left // right), ceildiv),
    (lambda left, right: left % right, lambda left, right: left % right),
    (min, minimum),
    (max, maximum),
)
