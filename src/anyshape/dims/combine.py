"""Functions of several columns: products, sums, and one size by another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from anyshape.dims.expr import Expr, ceildiv, maximum, minimum
from anyshape.dims.forms import Cells, Column, Found, affine, distinct, enough, of_one, price, simplest
from anyshape.dims.table import Table

__all__ = ["explain_together"]

# With more columns than this the larger groups of them are left out.
_FEW_COLUMNS = 8
# Three columns take more to believe than two.
_SHARED_COST = 2
_ANY_COST = 99


def explain_together(table: Table, values: Cells, plain: bool = False) -> Found | None:
    """The first expression of all but the separated ones that has these values in the table's rows."""
    if distinct(values) == 1:
        return (price(values[0], table.known), Expr.of(values[0])) if len(values) > 1 or table.fixed else None
    for column in table.columns:
        if column.cells == values:
            return 0, column.expr
    needed = sum(1 << at for at in table.movers(values))
    for search in (_lines, _products, _sums):
        found = search(table, values, needed)
        if found is not None:
            return found
    single = _single(table, values, needed, plain)
    if plain or (single is not None and single[0] == 0):
        return single
    pair = _pairs(table, values, needed, _ANY_COST if single is None else single[0])
    return single if pair is None else pair


def _lines(table: Table, values: Cells, needed: int) -> Found | None:
    for column, touched in zip(table.columns, table.touches, strict=True):
        if needed & ~touched == 0 and (found := affine(column, values, table.known)) is not None:
            return found
    return None


def _single(table: Table, values: Cells, needed: int, plain: bool) -> Found | None:
    """The function of one name that costs least, or of one atom where that costs less."""
    able = [
        column for column, touched in zip(table.columns, table.touches, strict=True) if needed & ~touched == 0
    ]
    best: Found | None = None
    for derived in (False, True):
        columns = [column for column in able if (column.expr.name is None) == derived]
        forms = (of_one(column, values, table.known, plain) for column in columns)
        found = simplest(form for form in forms if form is not None)
        if found is not None and (best is None or found[0] < best[0] or best[1] is None):
            best = found
    return best


def _products(table: Table, values: Cells, needed: int) -> Found | None:
    """A factor times two to four columns, plus a constant."""
    columns = table.columns
    few = len(columns) <= _FEW_COLUMNS
    groups = itertools.combinations_with_replacement if few else itertools.combinations
    rows = min(3, len(values))
    heads = [(*column.cells[:rows], *(1 for _ in range(3 - rows))) for column in columns]
    rises = (values[1] - values[0], values[2] - values[0]) if rows == 3 else (0, 0)
    for count in (2, 3, 4) if few else (2, 3):
        for chosen in groups(range(len(columns)), count):
            # Three rows on one line: that rules out nearly all of them before the whole product is made.
            start = middle = end = 1
            touched = 0
            for at in chosen:
                first, second, third = heads[at]
                start, middle, end = start * first, middle * second, end * third
                touched |= table.touches[at]
            if needed & ~touched or rises[0] * (end - start) != rises[1] * (middle - start):
                continue
            found = affine(_product([columns[at] for at in chosen]), values, table.known)
            if found is not None:
                return found
    return None


def _product(columns: Sequence[Column]) -> Column:
    cells = tuple(math.prod(row) for row in zip(*(column.cells for column in columns), strict=True))
    return Column(math.prod((column.expr for column in columns), start=Expr.of(1)), cells)


def _sums(table: Table, values: Cells, needed: int) -> Found | None:
    """Columns with whole factors, plus a constant."""
    names = [column for at, column in enumerate(table.names) if not table.slices[at] or needed >> at & 1]
    found = _linear(names, values, table)
    if found is None:
        found = _pair_sums(table, values, needed)
    return _plain_sums(table, values) if found is None else found


def _linear(columns: Sequence[Column], values: Cells, table: Table) -> Found | None:
    if not columns:
        return None
    factors = _solved([[*row, 1] for row in zip(*(column.cells for column in columns), strict=True)], values)
    if factors is None:
        return None
    *slopes, offset = factors
    cost = sum(price(slope, table.known) if slope != 1 else 0 for slope in slopes) + price(
        offset, table.known
    )
    used = [column for column, slope in zip(columns, slopes, strict=True) if slope]
    if not enough(cost, len(set(zip(*(column.cells for column in used), strict=True)))):
        return None
    total = sum((slope * column.expr for column, slope in zip(columns, slopes, strict=True)), Expr.of(offset))
    return cost, total


def _solved(rows: list[list[int]], values: Sequence[int]) -> list[int] | None:
    """The whole factors with which every row adds up to its value, if there is just one choice of them."""
    pivots: list[tuple[int, list[int], int]] = []
    width = len(rows[0])
    for row, value in zip(rows, values, strict=True):
        for at, pivot, goal in pivots:
            if row[at]:
                scale, factor = pivot[at], row[at]
                row = [scale * cell - factor * other for cell, other in zip(row, pivot, strict=True)]
                value = scale * value - factor * goal
        lead = next((at for at in range(width) if row[at]), None)
        if lead is not None:
            pivots.append((lead, row, value))
        elif value:
            return None
    if len(pivots) < width:
        return None
    solution: dict[int, int] = {}
    for lead, row, value in reversed(pivots):
        rest = value - sum(row[at] * number for at, number in solution.items())
        if rest % row[lead]:
            return None
        solution[lead] = rest // row[lead]
    return [solution[at] for at in range(width)]


def _pair_sums(table: Table, values: Cells, needed: int) -> Found | None:
    """``a*x + b*y + c`` where one of the columns, at least, is an atom."""
    if len(table.columns) == len(table.names) or len(values) < 4:
        return None
    steps = [tuple(cell - column.cells[0] for cell in column.cells[1:4]) for column in table.columns]
    rises = [value - values[0] for value in values[1:4]]
    for right in range(len(table.names), len(table.columns)):
        y = steps[right]
        for left in range(right):
            if needed & ~(table.touches[left] | table.touches[right]):
                continue
            x = steps[left]
            whole = x[0] * y[1] - x[1] * y[0]
            first = rises[0] * y[1] - rises[1] * y[0]
            second = x[0] * rises[1] - x[1] * rises[0]
            # The first three rows give the factors, the fourth rules out nearly all that are chance.
            if (
                not whole
                or first % whole
                or second % whole
                or first * x[2] + second * y[2] != whole * rises[2]
            ):
                continue
            found = _linear([table.columns[left], table.columns[right]], values, table)
            if found is not None:
                return found
    return None


def _plain_sums(table: Table, values: Cells) -> Found | None:
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


def _pairs(table: Table, values: Cells, needed: int, below: int) -> Found | None:
    """One column divided by another, its rest, and the smaller or larger of two, if they cost less."""
    pairs = list(_covering(table, needed))
    shared = math.gcd(*values)
    goals = [(1, 0), *([(shared, 0)] if shared > 1 else []), (1, 1), (1, -1)]
    for times, plus in goals:
        cost = price(times, table.known, 1) + price(plus, table.known)
        # A line over two steps goes through any two numbers.
        if cost >= below or (cost and distinct(values) < 3):
            continue
        goal = tuple((value - plus) // times for value in values)
        for left, right in pairs:
            found = _of_two(left, right, goal)
            if found is not None:
                return cost, times * found + plus
    for left, right in pairs:
        extreme = _extreme(left, right, values, table)
        if extreme is not None and extreme[0] < below:
            return extreme
    return _shared_out(table, values, needed) if below > _SHARED_COST else None


def _covering(table: Table, needed: int) -> Iterator[tuple[Column, Column]]:
    """The ordered pairs of columns that depend on all names that matter."""
    pairs = itertools.permutations(zip(table.columns, table.touches, strict=True), 2)
    return ((left, right) for (left, one), (right, other) in pairs if needed & ~(one | other) == 0)


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


def _extreme(left: Column, right: Column, values: Cells, table: Table) -> Found | None:
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
        if all(
            pick(a, b + offset) == value for a, b, value in zip(left.cells, right.cells, values, strict=True)
        ):
            return price(offset, table.known), build(left.expr, right.expr + offset)
    return None


def _shared_out(table: Table, values: Cells, needed: int) -> Found | None:
    """The product of two columns divided by a third."""
    every = list(zip(table.columns, table.touches, strict=True))
    for (left, one), (right, other) in itertools.combinations(every, 2):
        whole = left.cells[0] * right.cells[0]
        for divisor, third in every:
            if needed & ~(one | other | third) or divisor in (left, right) or 0 in divisor.cells:
                continue
            if whole // divisor.cells[0] == values[0]:
                found = _of_two(_product((left, right)), divisor, values)
                if found is not None:
                    return _SHARED_COST, found
    return None


_DIVISIONS: tuple[tuple[Callable[[int, int], int], Callable[[Expr, Expr], Expr]], ...] = (
    (lambda left, right: left // right, lambda left, right: left // right),
    (lambda left, right: -(-left // right), ceildiv),
    (lambda left, right: left % right, lambda left, right: left % right),
    (min, minimum),
    (max, maximum),
)
