"""Real numbers over dims, and finding the one behind numbers seen at several sizes: ``1/sqrt(n)``, ``2/(w - 1)``."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anyshape.dims.expr import Expr
from anyshape.dims.forms import Cells, Column
from anyshape.dims.separate import explain
from anyshape.dims.table import Table, tabulate

__all__ = ["Real", "fit_real"]

Kind = Literal["ratio", "root", "log"]

# A few roundings, of float64 and of float32.
_FINE, _COARSE = 2.0**-49, 2.0**-21
# A product with a denominator must be this near to an integer, however large it is.
_NEAR = 0.01
_ONE = Expr.of(1)


@dataclass(frozen=True, slots=True)
class Real:
    """A real number over dims: ``factor`` times a ratio, its square root, or its natural logarithm.

    >>> n = Expr.of("n")
    >>> scale = Real("root", Expr.of(1), n)
    >>> print(scale, scale.evaluate({"n": 16}))
    1/sqrt(n) 0.25
    >>> print(Real("ratio", n - 1, n), Real("log", n), Real("ratio", n, Expr.of(2)), Real("ratio", n, factor=0.3))
    (n - 1)/n log(n) n/2 0.3*n
    """

    kind: Kind
    numerator: Expr
    denominator: Expr = _ONE
    factor: float = 1.0

    def evaluate(self, sizes: Mapping[str, int]) -> float:
        """The value at these sizes."""
        ratio = self.numerator.evaluate(sizes) / self.denominator.evaluate(sizes)
        return self.factor * _COMPUTE[self.kind](ratio)

    def __str__(self) -> str:
        top, bottom = self.numerator, self.denominator
        if self.kind == "log":
            return self._scaled(f"log({top if bottom == _ONE else f'{_dividend(top)}/{_operand(bottom)}'})")
        if self.kind == "root":
            over, under = (
                f"sqrt({side})" if side.constant is None else _root(side) for side in (top, bottom)
            )
        else:
            over, under = _dividend(top), _operand(bottom)
        text = self._scaled("" if top == _ONE else over)
        return text if bottom == _ONE else f"{text}/{under}"

    def _scaled(self, text: str) -> str:
        factor = int(self.factor) if math.isfinite(self.factor) and self.factor.is_integer() else self.factor
        if not text or factor == 1:
            return text or str(factor)
        return f"-{text}" if factor == -1 else f"{factor}*{text}"


def _dividend(value: Expr) -> str:
    text = str(value)
    return f"({text})" if " " in text or "//" in text else text


def _operand(value: Expr) -> str:
    text = str(value)
    return text if value.constant is not None or value.name is not None else f"({text})"


def _root(value: Expr) -> str:
    root = math.isqrt(abs(value.constant or 0))
    return str(root) if root * root == value.constant else f"sqrt({value})"


def fit_real(
    rows: Sequence[Mapping[str, int]], values: Sequence[float], atoms: Sequence[Expr] = ()
) -> Real | None:
    """The simplest real function of the sizes with these values to within rounding, or None.

    First a constant; then a ratio of two expressions, its square root, its logarithm to base e, 2 or 10; then
    a column, or two of them multiplied or divided, with a factor that may be any number. The rounding allowed
    is that of float32 where each value is a float32, else that of float64.

    >>> rows = [{"n": 5}, {"n": 7}, {"n": 11}, {"n": 16}]
    >>> print(fit_real(rows, [1 - 1 / 5, 1 - 1 / 7, 1 - 1 / 11, 1 - 1 / 16]))
    (n - 1)/n
    >>> print(fit_real(rows, [5**-0.5, 7**-0.5, 11**-0.5, 0.25]))
    1/sqrt(n)
    """
    if not rows or any(math.isnan(value) for value in values):
        return None
    table = tabulate(rows, atoms)
    column = [float(values[at]) for at in table.order]
    if len(set(values)) == 1:
        return Real("ratio", _ONE, factor=column[0]) if len(column) > 1 or table.fixed else None
    if not all(map(math.isfinite, values)):
        return None
    rounding = _COARSE if all(map(_is_single, column)) else _FINE
    for found in _candidates(table, column, rounding):
        if _agrees(found, rows, values, rounding):
            return found
    return None


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def _agrees(found: Real, rows: Sequence[Mapping[str, int]], values: Sequence[float], rounding: float) -> bool:
    try:
        return all(
            _close(found.evaluate(row), value, rounding) for row, value in zip(rows, values, strict=True)
        )
    except (ValueError, ZeroDivisionError, OverflowError):
        return False


def _close(found: float, value: float, rounding: float) -> bool:
    return abs(found - value) <= rounding * abs(value)


def _candidates(table: Table, values: Sequence[float], rounding: float) -> Iterator[Real]:
    denominators = list(_denominators(table))
    yield from _ratios(table, values, rounding, denominators, "ratio", 1.0)
    sign = -1.0 if max(values) < 0 else 1.0
    if all(sign * value > 0 for value in values):
        squares = [value * value for value in values]
        yield from _ratios(table, squares, 4 * rounding, denominators, "root", sign)
    largest = max(map(abs, values))
    if largest < 40:
        for base in (math.e, 2.0, 10.0):
            powers = [base**value for value in values]
            # An error in the exponent grows with its size.
            yield from _ratios(
                table, powers, 4 * rounding * max(1.0, largest), denominators, "log", 1 / math.log(base)
            )
    yield from _scaled(table, values, rounding)


def _denominators(table: Table) -> Iterator[Column]:
    """What a ratio may be divided by, from simple to involved."""
    ones = (1,) * len(table.order)
    for number in (1, 2, 3, 4, 5, 6, 8, 10, 16):
        yield Column(Expr.of(number), tuple(number * one for one in ones))
    for column in table.columns:
        for shift in (0, -1, 1):
            yield Column(column.expr + shift, tuple(cell + shift for cell in column.cells))
    for left, right in itertools.combinations_with_replacement(table.columns, 2):
        cells = tuple(a * b for a, b in zip(left.cells, right.cells, strict=True))
        yield Column(left.expr * right.expr, cells)
    for number in (2, 3, 4):
        for column in table.columns:
            yield Column(number * column.expr, tuple(number * cell for cell in column.cells))


def _ratios(
    table: Table,
    values: Sequence[float],
    rounding: float,
    denominators: Sequence[Column],
    kind: Kind,
    factor: float,
) -> Iterator[Real]:
    """The ratios of two expressions: those with a numerator that is an integer in every row."""
    for column in denominators:
        cells = _integers(values, column.cells, rounding)
        if cells is None:
            continue
        numerator = explain(table, cells)
        if numerator is not None:
            yield _reduced(kind, numerator, column.expr, factor)


def _integers(values: Sequence[float], cells: Sequence[int], rounding: float) -> Cells | None:
    found = []
    for value, cell in zip(values, cells, strict=True):
        product = value * cell
        if cell == 0 or not math.isfinite(product):
            return None
        nearest = round(product)
        if abs(product - nearest) > min(rounding * abs(product), _NEAR) or (nearest == 0) != (value == 0):
            return None
        # So large that every float is an integer: that says nothing.
        if rounding * abs(product) > _NEAR:
            return None
        found.append(nearest)
    return tuple(found)


def _reduced(kind: Kind, numerator: Expr, denominator: Expr, factor: float) -> Real:
    """The same number, with a perfect square taken out of a root."""
    constant = numerator.constant
    if kind == "root" and constant is not None and constant > 1 and math.isqrt(constant) ** 2 == constant:
        return Real(kind, _ONE, denominator, factor * math.isqrt(constant))
    return Real(kind, numerator, denominator, factor)


def _scaled(table: Table, values: Sequence[float], rounding: float) -> Iterator[Real]:
    """One or two columns, with a factor that may be any number."""
    for top, bottom in _shapes(table):
        ratios = [_divided(a, b) for a, b in zip(top.cells, bottom.cells, strict=True)]
        for kind, compute in _COMPUTE.items():
            try:
                bases = [compute(ratio) for ratio in ratios]
            except (ValueError, OverflowError):
                continue
            if 0 in bases or not all(map(math.isfinite, bases)):
                continue
            factors = [value / base for value, base in zip(values, bases, strict=True)]
            # Two sizes make one ratio of factors: a third is what checks it.
            if len(set(bases)) > 2 and max(factors) - min(factors) <= 2 * rounding * abs(factors[0]):
                yield Real(kind, top.expr, bottom.expr, _tidy(factors, rounding))


def _divided(top: int, bottom: int) -> float:
    return top / bottom if bottom else math.inf


def _shapes(table: Table) -> Iterator[tuple[Column, Column]]:
    one = Column(_ONE, (1,) * len(table.order))
    for column in table.columns:
        yield column, one
        yield one, column
    for left, right in itertools.combinations(table.columns, 2):
        product = Column(
            left.expr * right.expr, tuple(a * b for a, b in zip(left.cells, right.cells, strict=True))
        )
        yield product, one
        yield one, product
        yield left, right
        yield right, left


def _tidy(factors: Sequence[float], rounding: float) -> float:
    """A short decimal number that is all of the factors to within rounding, or the one in their middle."""
    middle = sorted(factors)[len(factors) // 2]
    for digits in range(1, 7):
        short = float(f"{middle:.{digits}g}")
        if all(_close(short, factor, rounding) for factor in factors):
            return short
    return middle


def _same(ratio: float) -> float:
    return ratio


_COMPUTE: dict[Kind, Callable[[float], float]] = {"ratio": _same, "root": math.sqrt, "log": math.log}
