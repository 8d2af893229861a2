"""Solving for dims: from the sizes of the inputs to the value of every name.

Bare names are read off, then affine equations with one unknown, then systems of affine equations, then
equations that can be proved to grow with their one unknown. What nothing determines is left out, never
guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from anyshape.dims.bounds import Range, less, less_equal, not_equal
from anyshape.dims.expr import Call, Expr

__all__ = ["Mismatch", "bind", "solvable"]

_LARGEST_SIZE = 2**62


class Mismatch(ValueError):
    """Actual sizes that no value of the dims explains, as a short sentence."""


@dataclass(frozen=True, slots=True)
class _Equation:
    label: str
    axis: int
    expr: Expr
    value: int

    def refused(self, sizes: Mapping[str, int]) -> Mismatch:
        """The complaint of an equation that no size of its unknown solves."""
        known = _listing({name: sizes[name] for name in sorted(self.expr.names) if name in sizes})
        reason = f", as {known}" if known else ""
        return Mismatch(f"{self.label} axis {self.axis} is {self.value}, not {self.expr}{reason}")


def bind(observed: Iterable[tuple[str, Sequence[Expr], Sequence[int]]]) -> dict[str, int]:
    """The size of every dim that the inputs determine, or a `Mismatch` that says what disagrees.

    >>> batch, seq = Expr.of("batch"), Expr.of("seq")
    >>> bind([("tokens", [batch, seq], [2, 9]), ("mask", [batch, 2 * seq], [2, 18])])
    {'batch': 2, 'seq': 9}
    >>> bind([("tokens", [seq], [9]), ("mask", [seq], [7])])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    Mismatch: seq is 9 in tokens but 7 in mask
    """
    sizes: dict[str, int] = {}
    derived = _read_names(observed, sizes)
    if not derived:
        return sizes
    pending = list(derived.values())
    while pending:
        count = len(sizes)
        pending = [equation for equation in pending if not _settle(equation, sizes)]
        if len(sizes) == count and not _solve_together(pending, sizes):
            break
    for equation in derived.values():
        _check(equation, sizes)
    return sizes


def solvable(shapes: Iterable[Sequence[Expr]]) -> frozenset[str]:
    """The names that `bind` can determine from inputs of these shapes.

    >>> a, b = Expr.of("a"), Expr.of("b")
    >>> sorted(solvable([[a + b, a - b]])), sorted(solvable([[a // 2, b**2]]))
    (['a', 'b'], ['b'])
    """
    pending = {expr for shape in shapes for expr in shape if expr.constant is None}
    known: set[str] = set()
    while True:
        found = {name for expr in pending for name in expr.names - known if _determines(expr, name, known)}
        if not found:
            # Distinct odd stand-ins: at 0 or 1, or at equal sizes, terms could vanish or merge by chance.
            stand_ins = {name: 1009 + 2 * index for index, name in enumerate(sorted(known))}
            rows = [row for expr in pending if (row := _row(expr, 0, stand_ins))]
            found = set(_eliminate([(coefficients, Fraction(0)) for coefficients, _ in rows]))
        if not found:
            return frozenset(known)
        known |= found


def _read_names(
    observed: Iterable[tuple[str, Sequence[Expr], Sequence[int]]], sizes: dict[str, int]
) -> dict[Expr, _Equation]:
    """Fill in the bare names; return the equations of the other dims."""
    first: dict[Expr, _Equation] = {}
    derived: dict[Expr, _Equation] = {}
    for label, dims, actual in observed:
        if len(dims) != len(actual):
            axes = f"{len(actual)} axis" if len(actual) == 1 else f"{len(actual)} axes"
            raise Mismatch(f"{label} has {axes}, not {len(dims)}: [{', '.join(map(str, dims))}]")
        for axis, (expr, value) in enumerate(zip(dims, actual, strict=True)):
            constant = expr.constant
            if constant is not None:
                if constant != value:
                    raise Mismatch(f"{label} axis {axis} is {value}, not {constant}")
                continue
            equation = _Equation(label, axis, expr, value)
            earlier = first.setdefault(expr, equation)
            if earlier.value != value:
                raise _disagree(earlier, equation)
            name = expr.name
            if name is None:
                derived[expr] = earlier
            elif value < 0:
                raise Mismatch(f"{name} is {value} in {label}: a size can't be negative")
            else:
                sizes[name] = value
    return derived


def _disagree(first: _Equation, second: _Equation) -> Mismatch:
    where, other = first.label, second.label
    if where == other:
        where, other = f"{where} axis {first.axis}", f"{other} axis {second.axis}"
    return Mismatch(f"{first.expr} is {first.value} in {where} but {second.value} in {other}")


def _settle(equation: _Equation, sizes: dict[str, int]) -> bool:
    """Solve an equation with at most one unknown; whether nothing more can be learnt from it."""
    unknown = [name for name in equation.expr.names if name not in sizes]
    if len(unknown) != 1:
        return not unknown
    [name] = unknown
    try:
        expr = equation.expr.substitute(sizes)
    except (ValueError, ZeroDivisionError):
        raise equation.refused(sizes) from None
    affine = expr.affine()
    if affine is None:
        solution = _search(equation, expr, name, sizes)
    else:
        coefficients, offset = affine
        # A zero factor hides the unknown: b*s says nothing about s where b is 0.
        if name not in coefficients:
            return True
        solution, rest = divmod(equation.value - offset, coefficients[name])
        if rest or solution < 0:
            raise equation.refused(sizes)
    if solution is not None:
        sizes[name] = solution
    return True


def _search(equation: _Equation, expr: Expr, name: str, sizes: Mapping[str, int]) -> int | None:
    """The one size at which a growing expression has the value; None if it can't be told."""
    if name not in expr.names:
        return None
    target, start = equation.value, _first_defined(expr, name)
    if start is None:
        return None
    direction = _direction(expr, name, start)
    if direction == 0:
        return None
    expr, target = direction * expr, direction * target
    low, high = start - 1, start
    while expr.evaluate({name: high}) < target:
        low, high = high, 2 * high + 1
        if high > _LARGEST_SIZE:
            raise equation.refused(sizes)
    while high - low > 1:
        middle = (low + high) // 2
        if expr.evaluate({name: middle}) < target:
            low = middle
        else:
            high = middle
    if expr.evaluate({name: high}) != target:
        raise equation.refused(sizes)
    return None if expr.evaluate({name: high + 1}) == target else high


def _direction(expr: Expr, name: str, start: int) -> int:
    """1 if the expression never falls as the name grows from `start`, -1 if never rises, 0 if unproved."""
    if _rises(expr):
        return 1
    ranges, following = {name: Range(start)}, expr.substitute({name: Expr.of(name) + 1})
    if less_equal(expr, following, ranges):
        return 1
    return -1 if less_equal(following, expr, ranges) else 0


def _rises(expr: Expr) -> bool:
    """Whether the form alone shows that the expression never falls as any of its names grows."""
    for monomial, coefficient in expr.terms:
        if monomial and coefficient < 0:
            return False
        for atom, power in monomial:
            if isinstance(atom, str):
                continue
            # A call may be negative, and then its products and powers need not rise with it.
            if len(monomial) > 1 or power > 1 or not _call_rises(atom):
                return False
    return True


def _call_rises(call: Call) -> bool:
    if call.function == "%" or (call.function == "//" and call.arguments[1].constant is None):
        return False
    return all(_rises(argument) for argument in call.arguments)


def _first_defined(expr: Expr, name: str) -> int | None:
    """The smaller of 0 and 1 from which on the expression always has a value: log2(n) has none at 0."""
    return next((start for start in (0, 1) if _defined(expr, {name: Range(start)})), None)


def _defined(expr: Expr, ranges: Mapping[str, Range]) -> bool:
    """Whether the expression is proved to have a value at all sizes; only then is a comparison a proof."""
    calls = [atom for monomial, _ in expr.terms for atom, _ in monomial if isinstance(atom, Call)]
    return all(_call_defined(call, ranges) for call in calls)


def _call_defined(call: Call, ranges: Mapping[str, Range]) -> bool:
    if not all(_defined(argument, ranges) for argument in call.arguments):
        return False
    if call.function in ("//", "%"):
        return not_equal(call.arguments[1], 0, ranges) is True
    if call.function in ("isqrt", "log2"):
        return less_equal(0 if call.function == "isqrt" else 1, call.arguments[0], ranges) is True
    return True


def _solve_together(pending: Sequence[_Equation], sizes: dict[str, int]) -> bool:
    """Solve the affine equations as a system; whether that determined any dim."""
    used: list[_Equation] = []
    rows: list[tuple[dict[str, Fraction], Fraction]] = []
    for equation in pending:
        row = _row(equation.expr, equation.value, sizes)
        if row is not None:
            used.append(equation)
            rows.append(row)
    try:
        solution = _eliminate(rows)
    except _Contradiction as error:
        blamed = used[error.row]
        implied = f"{blamed.expr} is {blamed.value} in {blamed.label}, but the other inputs make it"
        raise Mismatch(f"{implied} {blamed.value - error.residual}") from None
    for name, value in solution.items():
        if value.denominator != 1 or value < 0:
            system = " and ".join(f"{equation.expr} = {equation.value}" for equation in used)
            raise Mismatch(f"no sizes fit: {system} make {name} = {value}")
        sizes[name] = int(value)
    return bool(solution)


class _Contradiction(Exception):
    def __init__(self, row: int, residual: Fraction) -> None:
        self.row = row
        self.residual = residual


def _row(expr: Expr, value: int, sizes: Mapping[str, int]) -> tuple[dict[str, Fraction], Fraction] | None:
    """The equation ``expr = value`` as coefficients of the unknowns and a right side, if it is affine."""
    affine = expr.affine()
    if affine is None:
        try:
            affine = expr.substitute(sizes).affine()
        except (ValueError, ZeroDivisionError):
            return None
    if affine is None:
        return None
    coefficients, offset = affine
    offset += sum(coefficient * sizes[name] for name, coefficient in coefficients.items() if name in sizes)
    unknown = {name: Fraction(coefficient) for name, coefficient in coefficients.items() if name not in sizes}
    return unknown, Fraction(value - offset)


def _eliminate(rows: Iterable[tuple[dict[str, Fraction], Fraction]]) -> dict[str, Fraction]:
    """The names that the system determines, by exact Gaussian elimination."""
    pivots: dict[str, tuple[dict[str, Fraction], Fraction]] = {}
    for index, (row, value) in enumerate(rows):
        for name, pivot in pivots.items():
            row, value = _reduce((row, value), name, pivot)
        if not row:
            if value:
                raise _Contradiction(index, value)
            continue
        name, scale = next(iter(row.items()))
        pivot = ({other: factor / scale for other, factor in row.items()}, value / scale)
        pivots = {other: _reduce(earlier, name, pivot) for other, earlier in pivots.items()}
        pivots[name] = pivot
    return {name: value for name, (row, value) in pivots.items() if len(row) == 1}


def _reduce(
    row: tuple[dict[str, Fraction], Fraction], name: str, pivot: tuple[dict[str, Fraction], Fraction]
) -> tuple[dict[str, Fraction], Fraction]:
    coefficients, value = row
    scale = coefficients.get(name)
    if not scale:
        return row
    names = coefficients.keys() | pivot[0].keys()
    zero = Fraction(0)
    reduced = {
        other: coefficients.get(other, zero) - scale * pivot[0].get(other, zero) for other in sorted(names)
    }
    return {other: factor for other, factor in reduced.items() if factor}, value - scale * pivot[1]


def _check(equation: _Equation, sizes: Mapping[str, int]) -> None:
    names = sorted(equation.expr.names)
    if any(name not in sizes for name in names):
        return
    known = _listing({name: sizes[name] for name in names})
    claim = f"{equation.expr} is {equation.value} in {equation.label}, but {known}"
    verb = "makes" if len(names) == 1 else "make"
    try:
        value = equation.expr.evaluate(sizes)
    except (ValueError, ZeroDivisionError):
        raise Mismatch(f"{claim} {verb} it undefined") from None
    if value != equation.value:
        raise Mismatch(f"{claim} {verb} {value}")


def _listing(sizes: Mapping[str, int]) -> str:
    pieces = [f"{name} = {size}" for name, size in sizes.items()]
    return " and ".join([", ".join(pieces[:-1]), pieces[-1]]) if len(pieces) > 1 else "".join(pieces)


def _determines(expr: Expr, name: str, known: set[str]) -> bool:
    """Whether the expression, with everything else known, has each value at one size only."""
    if not expr.names <= known | {name}:
        return False
    ranges = dict.fromkeys(expr.names, Range(1))
    if not _defined(expr, ranges):
        return False
    if _rises(expr) and any(name == atom for monomial, _ in expr.terms for atom, _ in monomial):
        return True
    following = expr.substitute({name: Expr.of(name) + 1})
    return less(expr, following, ranges) is True or less(following, expr, ranges) is True
