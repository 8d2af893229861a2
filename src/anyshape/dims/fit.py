"""Explaining numbers seen at several sizes: as an exact expression of the dims, or as a real number over them.

One order decides what is simplest, and the first that has the values in every row is the answer:

1. a constant, a name, an atom;
2. a line over one of them: ``2*d - 1``, ``d//2`` where that always divides;
3. a product of two to four, with a factor and a constant: ``b*h*w``, ``h*w//4``, ``d**2 + 1``;
4. a sum of several, with factors and a constant: ``past + seq - 1``;
5. a function of one: a square root or a logarithm to base 2, a quotient rounded down or up with a factor and
   an offset, a rest, a minimum or maximum with a constant, ``d*(d + 1)//2``, a slope such as ``2*d//3``;
6. one by another: ``h//g``, ``n % b``, ``min(a, b + 1)``, ``h*w//g``;
7. functions of one name each, multiplied or added up, found by moving one name alone: ``b*ceil(h/7)*(w + 1)``.

Names come before atoms, then smaller divisors and offsets; rounding down or up come before other offsets.

What the rows don't determine is refused, never guessed. A number that is read off the rows costs one (1 and -1
a half; 0 and the integers among the atoms nothing), and a form needs one distinct size more than its numbers
cost. A divisor must be the only one that fits at its price, an offset other than rounding down or up the only
one at all. Sizes that are all odd leave ``h//2`` and ``(h - 1)//2`` alike: then rounding down, or up, is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyshape.dims.expr import Expr
from anyshape.dims.separate import explain
from anyshape.dims.table import tabulate

__all__ = ["Sizes", "fit"]

Sizes = Mapping[str, int]


def fit(rows: Sequence[Sizes], values: Sequence[int], atoms: Sequence[Expr] = ()) -> Expr | None:
    """The simplest expression of the names in `rows` with these values, or None.

    >>> rows = [{"b": 3, "h": 29}, {"b": 5, "h": 29}, {"b": 3, "h": 37}, {"b": 7, "h": 43}, {"b": 11, "h": 54}]
    >>> fit(rows, [24, 40, 30, 77, 154])
    Expr(((h - 1)//4)*b + b)
    >>> fit(rows, [1, 2, 3, 4, 5]) is None
    True
    """
    if not rows:
        return None
    table = tabulate(rows, atoms)
    column = tuple(int(values[at]) for at in table.order)
    found = explain(table, column)
    if found is None:
        return None
    return found if _agrees(found, rows, values) else None


def _agrees(found: Expr, rows: Sequence[Sizes], values: Sequence[int]) -> bool:
    """Whether each row, also one that repeats another, has its value."""
    try:
        return all(found.evaluate(row) == value for row, value in zip(rows, values, strict=True))
    except (ValueError, ZeroDivisionError):
        return False
