"""What is true of an expression at every size: its bounds, and comparisons that never guess.

A comparison answers True or False only if it holds or fails at *all* sizes in the ranges; otherwise None.
Bounds come from interval arithmetic and may be wider than the truth, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from anyshape.dims.expr import Call, Expr, Monomial
from anyshape.errors import UsageError

__all__ = ["Range", "Relation", "bounds", "equal", "less", "less_equal", "not_equal"]

# Infinities are floats and everything finite is an exact integer.
Interval: TypeAlias = tuple[float, float]
_EVERYTHING: Interval = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Range:
    """The sizes a dim may have, from `minimum` to `maximum`; without a maximum, any larger size.

    >>> Range(1, 512).contains(512), Range(1).text(), Range(1).intersect(Range(0, 8))
    (True, '>=1', Range(minimum=1, maximum=8))
    """

    minimum: int = 0
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 0:
            raise UsageError(f"a size can't be negative: the minimum is {self.minimum}")
        if self.maximum is not None and self.maximum < self.minimum:
            raise UsageError(f"the range {self.minimum}..{self.maximum} is empty")

    def contains(self, size: int) -> bool:
        """Whether the size is in the range."""
        return self.minimum <= size and (self.maximum is None or size <= self.maximum)

    def intersect(self, other: Range) -> Range | None:
        """The sizes in both ranges, or None if there are none."""
        minimum = max(self.minimum, other.minimum)
        limits = [limit for limit in (self.maximum, other.maximum) if limit is not None]
        maximum = min(limits, default=None)
        return None if maximum is not None and maximum < minimum else Range(minimum, maximum)

    def text(self) -> str:
        """The range as `parse_range` reads it: ``1..512``, ``>=1`` or ``5``."""
        if self.maximum is None:
            return f">={self.minimum}"
        return str(self.minimum) if self.minimum == self.maximum else f"{self.minimum}..{self.maximum}"


@dataclass(frozen=True, slots=True)
class Relation:
    """A comparison between two expressions that must hold: ``k <= n``.

    >>> relation = Relation(Expr.of("k"), "<=", Expr.of("n") + 1)
    >>> print(relation, relation.holds({"k": 4, "n": 2}), relation.decide({"k": Range(0, 1)}))
    k <= n + 1 False True
    """

    left: Expr
    op: str
    right: Expr

    def __post_init__(self) -> None:
        if self.op not in _DECIDE:
            raise UsageError(f"{self.op!r} is not a comparison: expected one of {', '.join(_DECIDE)}")

    @property
    def names(self) -> frozenset[str]:
        """Every dim on either side."""
        return self.left.names | self.right.names

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the relation is true at these sizes."""
        left, right = self.left.evaluate(sizes), self.right.evaluate(sizes)
        if self.op == "<=":
            return left <= right
        if self.op == "<":
            return left < right
        return (left == right) == (self.op == "==")

    def negated(self) -> Relation:
        """The relation that holds where this one does not."""
        if self.op == "<=" and self.right.constant is None:
            return Relation(self.right, "<=", self.left - 1)
        if self.op == "<=":
            return Relation(self.right + 1, "<=", self.left)
        if self.op == "<":
            return Relation(self.right, "<=", self.left)
        return Relation(self.left, "!=" if self.op == "==" else "==", self.right)

    def decide(self, ranges: Mapping[str, Range]) -> bool | None:
        """Whether the relation is true at all sizes (True), at none (False), or it can't be told (None)."""
        return _DECIDE[self.op](self.left, self.right, ranges)

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


def bounds(expr: Expr, ranges: Mapping[str, Range]) -> tuple[int | None, int | None]:
    """The smallest and largest value the expression may have, or None where it has no known limit.

    A name without a range may be any size from 0.

    >>> n = Expr.of("n")
    >>> bounds(2 * n + 1, {"n": Range(1, 8)}), bounds(n - n // 2, {"n": Range(1)})
    ((3, 17), (1, None))
    """
    low, high = _interval(expr, ranges)
    return (None if isinstance(low, float) else low), (None if isinstance(high, float) else high)


def less_equal(left: Expr | int, right: Expr | int, ranges: Mapping[str, Range]) -> bool | None:
    """Whether ``left <= right`` at all sizes (True), at none (False), or it can't be told (None).

    >>> s = Expr.of("s")
    >>> less_equal(s, s + 1, {}), less_equal(s, 4, {"s": Range(5)}), less_equal(s, 4, {})
    (True, False, None)
    """
    low, high = _interval(Expr.of(left) - Expr.of(right), ranges)
    return True if high <= 0 else False if low > 0 else None


def less(left: Expr | int, right: Expr | int, ranges: Mapping[str, Range]) -> bool | None:
    """Whether ``left < right`` at all sizes (True), at none (False), or it can't be told (None).

    >>> less(Expr.of("s") % 8, 8, {})
    True
    """
    low, high = _interval(Expr.of(left) - Expr.of(right), ranges)
    return True if high < 0 else False if low >= 0 else None


def equal(left: Expr | int, right: Expr | int, ranges: Mapping[str, Range]) -> bool | None:
    """Whether ``left == right`` at all sizes (True), at none (False), or it can't be told (None).

    >>> a, b = Expr.of("a"), Expr.of("b")
    >>> equal(a + b, b + a, {}), equal(2 * a, 2 * b + 1, {}), equal(a, b, {})
    (True, False, None)
    """
    difference = Expr.of(left) - Expr.of(right)
    low, high = _interval(difference, ranges)
    if low == high == 0:
        return True
    if low > 0 or high < 0:
        return False
    scale = math.gcd(*(coefficient for monomial, coefficient in difference.terms if monomial))
    offset = sum(coefficient for monomial, coefficient in difference.terms if not monomial)
    return False if scale and offset % scale else None


def not_equal(left: Expr | int, right: Expr | int, ranges: Mapping[str, Range]) -> bool | None:
    """Whether ``left != right`` at all sizes (True), at none (False), or it can't be told (None).

    >>> not_equal(Expr.of("n"), 0, {"n": Range(1)})
    True
    """
    same = equal(left, right, ranges)
    return None if same is None else not same


_DECIDE = {"<=": less_equal, "<": less, "==": equal, "!=": not_equal}


def _interval(expr: Expr, ranges: Mapping[str, Range]) -> Interval:
    """The tightest interval of several equivalent ways to write the expression."""
    found = _sum_interval(expr, ranges)
    if len(expr.terms) < 2:
        return found
    relaxed, scale = _without_divisions(expr)
    low, high = _sum_interval(relaxed, ranges) if scale > 1 else found
    if any(sum(power for _, power in monomial) > 1 for monomial, _ in relaxed.terms):
        low, high = _meet((low, high), _shifted_interval(relaxed, ranges))
    return _meet(found, (_ceil_divide(low, scale), _floor_divide(high, scale)))


def _shifted_interval(expr: Expr, ranges: Mapping[str, Range]) -> Interval:
    """The interval with each name counted from its minimum, where products cancel: b*s - b is at least 0."""
    minima = {name: ranges[name].minimum for name in expr.names if name in ranges}
    shifts: dict[str, Expr | int] = {name: Expr.of(name) + low for name, low in minima.items() if low}
    if not shifts:
        return _EVERYTHING
    moved = {name: _shifted_range(ranges[name]) for name in minima}
    return _sum_interval(expr.substitute(shifts), moved)


def _shifted_range(source: Range) -> Range:
    return Range(0, None if source.maximum is None else source.maximum - source.minimum)


def _without_divisions(expr: Expr) -> tuple[Expr, int]:
    """A multiple of the expression in which k*(a//k) is written a - a % k, so that its terms can cancel."""
    scale = 1
    while True:
        linear = {monomial: call for monomial, _ in expr.terms if (call := _constant_division(monomial))}
        if not linear:
            return expr, scale
        factor = math.lcm(*(divisor for _, divisor in linear.values()))
        total = Expr.of(0)
        for monomial, coefficient in expr.terms:
            if monomial in linear:
                dividend, divisor = linear[monomial]
                total = total + coefficient * (factor // divisor) * (dividend - dividend % divisor)
            else:
                total = total + Expr(((monomial, coefficient * factor),))
        expr, scale = total, scale * factor


def _constant_division(monomial: Monomial) -> tuple[Expr, int] | None:
    if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Call):
        call = monomial[0][0]
        if call.function == "//" and (divisor := call.arguments[1].constant) is not None:
            return call.arguments[0], divisor
    return None


def _sum_interval(expr: Expr, ranges: Mapping[str, Range]) -> Interval:
    low: float = 0
    high: float = 0
    for monomial, coefficient in expr.terms:
        product: Interval = (coefficient, coefficient)
        for atom, power in monomial:
            base = _name_interval(atom, ranges) if isinstance(atom, str) else _call_interval(atom, ranges)
            product = _multiply(product, _raise(base, power))
        low, high = _add(low, product[0]), _add(high, product[1])
    return low, high


def _name_interval(name: str, ranges: Mapping[str, Range]) -> Interval:
    limits = ranges.get(name)
    if limits is None:
        return 0, math.inf
    return limits.minimum, math.inf if limits.maximum is None else limits.maximum


def _call_interval(call: Call, ranges: Mapping[str, Range]) -> Interval:
    if call.formula is not None:
        return _EVERYTHING
    intervals = [_interval(argument, ranges) for argument in call.arguments]
    first = intervals[0]
    if call.function == "//":
        return _divide(first, intervals[1])
    if call.function == "%":
        return _remainder(first, intervals[1])
    if call.function == "max":
        return max(low for low, _ in intervals), max(high for _, high in intervals)
    if call.function == "min":
        return min(low for low, _ in intervals), min(high for _, high in intervals)
    if call.function == "isqrt":
        return (_root(max(first[0], 0)), _root(first[1])) if first[1] >= 0 else _EVERYTHING
    return (_logarithm(max(first[0], 1)), _logarithm(first[1])) if first[1] >= 1 else _EVERYTHING


def _root(value: float) -> float:
    return value if isinstance(value, float) else math.isqrt(value)


def _logarithm(value: float) -> float:
    return value if isinstance(value, float) else value.bit_length() - 1


def _divide(dividend: Interval, divisor: Interval) -> Interval:
    """The hull over positive and negative divisors; at zero there is no value."""
    pieces: list[Interval] = []
    if divisor[1] >= 1:
        pieces.append(_divide_positive(dividend, (max(divisor[0], 1), divisor[1])))
    if divisor[0] <= -1:
        negated = (-dividend[1], -dividend[0])
        pieces.append(_divide_positive(negated, (max(-divisor[1], 1), -divisor[0])))
    if not pieces:
        return _EVERYTHING
    return min(low for low, _ in pieces), max(high for _, high in pieces)


def _divide_positive(dividend: Interval, divisor: Interval) -> Interval:
    corners = [_floor_divide(top, bottom) for top in dividend for bottom in divisor]
    return min(corners), max(corners)


def _remainder(dividend: Interval, divisor: Interval) -> Interval:
    low: float = min(_add(divisor[0], 1), 0)
    high: float = max(_add(divisor[1], -1), 0)
    if divisor[0] >= 0 and dividend[0] >= 0:
        if dividend[1] < divisor[0]:
            return dividend
        high = min(high, dividend[1])
    return low, high


def _add(left: float, right: float) -> float:
    # An integer too large for a float can't be added to an infinity.
    if isinstance(left, float):
        return left
    return right if isinstance(right, float) else left + right


def _times(left: float, right: float) -> float:
    if left == 0 or right == 0:
        return 0
    if isinstance(left, float) or isinstance(right, float):
        return math.inf if (left > 0) == (right > 0) else -math.inf
    return left * right


def _multiply(left: Interval, right: Interval) -> Interval:
    corners = [_times(first, second) for first in left for second in right]
    return min(corners), max(corners)


def _raise(base: Interval, power: int) -> Interval:
    if power == 1:
        return base
    low, high = base
    ends = [_power(low, power), _power(high, power)]
    if power % 2 == 0 and low < 0 < high:
        return 0, max(ends)
    return min(ends), max(ends)


def _power(value: float, power: int) -> float:
    if isinstance(value, float):
        return value if power % 2 else math.inf
    return value**power


def _floor_divide(value: float, divisor: float) -> float:
    if isinstance(value, float):
        return value
    if isinstance(divisor, float):
        return 0 if value >= 0 else -1
    return value // divisor


def _ceil_divide(value: float, divisor: int) -> float:
    return -_floor_divide(-value, divisor)


def _meet(left: Interval, right: Interval) -> Interval:
    return max(left[0], right[0]), min(left[1], right[1])
