"""Explaining numbers seen at several sizes: as an exact expression of the dims, or as a real number over them.

One order decides what is simplest, and the first that has the values in every row is the answer:

1. a constant, a name, an atom;
2. a line over one of them: ``2*d - 1``, ``d//2`` where that always divides;
3. a product of two to four, with a factor and a constant: ``b*h*w``, ``h*w//4``, ``d**2 + 1``;
4. a sum of several, with factors and a constant: ``past + seq - 1``;
5. a function of one or two, the one that costs least: a floor square root or logarithm to base 2, a rest, a
   minimum or maximum, ``d*(d + 1)//2``, a quotient rounded down or up with a factor and an offset, a slope such
   as ``2*d//3``; ``h//g``, ``n % b``, ``min(a, b + 1)``, ``h*w//g``;
6. functions of one name each, multiplied or added up, found by moving one name alone: ``b*ceil(h/7)*(w + 1)``;
7. the smallest or largest value, where the rows without it have an expression of the above: ``max(1, n//3)``.

Within each: names come before atoms. A number that is read off the rows costs one, 1 and -1 a half, 0 and the
integers among the atoms nothing; the cheaper comes first.

What the rows don't determine is refused, never guessed: a form needs one distinct size more than its numbers
cost; where two forms of one price fit, such as ``h//14`` and ``h//15``, neither is taken; an offset other than
rounding down or up must be the only one that fits. One thing can't be seen: where no size is a multiple of q,
``d//q`` and ``(d - 1)//q`` have the same values. Rounding down, or up, is then taken without an offset. Sizes
that are all prime are such sizes: among the rows there should be even ones, and some with more divisors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyshape.dims.expr import Expr, maximum, minimum
from anyshape.dims.real import Real, fit_real
from anyshape.dims.separate import explain
from anyshape.dims.table import tabulate

__all__ = ["Real", "Sizes", "fit", "fit_real"]

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
    return _plain(rows, values, atoms) or _clamped(rows, values, atoms)


def _plain(rows: Sequence[Sizes], values: Sequence[int], atoms: Sequence[Expr]) -> Expr | None:
    table = tabulate(rows, atoms)
    column = tuple(int(values[at]) for at in table.order)
    found = explain(table, column)
    return found if found is not None and _agrees(found, rows, values) else None


def _clamped(rows: Sequence[Sizes], values: Sequence[int], atoms: Sequence[Expr]) -> Expr | None:
    """A value below or above which no row goes, and the expression that the other rows follow."""
    for bound, clamp in ((min(values), maximum), (max(values), minimum)):
        rest = [at for at, value in enumerate(values) if value != bound]
        if len(values) - len(rest) < 2 or len({values[at] for at in rest}) < 2:
            continue  # one row may lie off by accident
        inside = _plain([rows[at] for at in rest], [values[at] for at in rest], atoms)
        if inside is not None and _agrees(clamp(inside, bound), rows, values):
            return clamp(inside, bound)
    return None


def _agrees(found: Expr, rows: Sequence[Sizes], values: Sequence[int]) -> bool:
    """Whether each row, also one that repeats another, has its value."""
    try:
        return all(found.evaluate(row) == value for row, value in zip(rows, values, strict=True))
    except (ValueError, ZeroDivisionError):
        return False
