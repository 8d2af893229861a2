"""Exact integer expressions of named dims: ``32*h``, ``past + seq``, ``(h - 1)//4 + 1``.

An `Expr` is a polynomial with integer coefficients. Its atoms are names and calls: a floor division, a
remainder, a maximum, a minimum, a floor square root or a floor logarithm of other expressions. It is kept in
one canonical form, so that two which simplify to the same form are equal, hash alike and print alike.

Names are sizes: they stand for integers that are never negative. An expression agrees with Python's own
integer arithmetic wherever that is defined; ``(b*s)//b`` is ``s``, also where ``b`` is zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, Union

from anyshape.dims.compute import Function, function_of, isqrt_of, log2_of
from anyshape.errors import UsageError

__all__ = [
    "Call",
    "Computation",
    "Expr",
    "ceildiv",
    "computed",
    "divisions",
    "isqrt",
    "log2",
    "maximum",
    "minimum",
]

Atom: TypeAlias = Union[str, "Call"]
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
Term: TypeAlias = tuple[Monomial, int]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LARGEST_POWER = 64
_UNIT: Monomial = ()


class Computation(Protocol):
    """What a program computed from sizes, in ways that are no arithmetic of integers (`dims.formula.Formula`)."""

    def evaluate(self, sizes: Mapping[str, int]) -> float: ...

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Computation: ...

    def whole(self) -> Expr: ...


@dataclass(frozen=True, slots=True)
class Call:
    """An application that is not a polynomial: ``n//3``, ``n % 8``, ``max(1, n)``.

    Its canonical text identifies it: that makes comparing and hashing nested calls cheap.
    """

    text: str
    function: str = field(compare=False)
    arguments: tuple[Expr, ...] = field(compare=False)
    formula: Computation | None = field(default=None, compare=False)

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Expr:
        """The call with names replaced, simplified again."""
        if self.formula is not None:
            return self.formula.substitute(replacements).whole()
        return _APPLY[self.function](*[argument.substitute(replacements) for argument in self.arguments])


class _Once:
    """What is found out about an expression once, and asked for again and again."""

    __slots__ = ("_function", "_names")

    _function: Function
    _names: frozenset[str]


@dataclass(frozen=True, slots=True, repr=False)
class Expr(_Once):
    """An exact integer expression of named dims, in canonical form.

    >>> h = Expr.of("h")
    >>> print(32 * h, (h - 1) // 4 + 1, (4 * h + 3) // 4, sep=", ")
    32*h, (h - 1)//4 + 1, h
    >>> (h + 1) * (h - 1) == h**2 - 1
    True
    """

    terms: tuple[Term, ...]

    @staticmethod
    def of(value: Expr | int | str) -> Expr:
        """An expression from an integer, a dim's name, or an expression.

        >>> Expr.of("batch") + Expr.of(1)
        Expr(batch + 1)
        """
        if isinstance(value, Expr):
            return value
        if isinstance(value, str):
            if not _NAME.match(value):
                raise UsageError(f"{value!r} is not a dim name", hint="Use parse_expr to read an expression.")
            return Expr(((((value, 1),), 1),))
        if isinstance(value, int):
            return Expr(((_UNIT, int(value)),)) if value else _ZERO
        raise UsageError(f"{value!r} is not a dim: expected an integer, a name or an expression")

    @property
    def names(self) -> frozenset[str]:
        """Every dim the expression depends on.

        >>> sorted((Expr.of("past") + Expr.of("seq") // 2).names)
        ['past', 'seq']
        """
        try:
            return self._names
        except AttributeError:
            atoms = [atom for monomial, _ in self.terms for atom, _ in monomial]
            found = {atom for atom in atoms if isinstance(atom, str)}
            found.update(*(part.names for atom in atoms if isinstance(atom, Call) for part in atom.arguments))
            object.__setattr__(self, "_names", frozenset(found))
            return self._names

    @property
    def is_arithmetic(self) -> bool:
        """Whether it is arithmetic of integers throughout, and no formula in floats: what a contract has words for."""
        calls = (atom for monomial, _ in self.terms for atom, _ in monomial if isinstance(atom, Call))
        return all(
            call.formula is None and all(item.is_arithmetic for item in call.arguments) for call in calls
        )

    @property
    def constant(self) -> int | None:
        """The integer, if it is one."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return None if monomial else coefficient

    @property
    def offset(self) -> int:
        """The number that is added to all else: of ``n + 1``, 1."""
        return dict(self.terms).get(_UNIT, 0)

    @property
    def name(self) -> str | None:
        """The dim's name, if the expression is a bare name."""
        atom = self.atom
        return atom if isinstance(atom, str) else None

    @property
    def atom(self) -> Atom | None:
        """The name or the call, if the expression is just that."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                return monomial[0][0]
        return None

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value at these sizes; a missing dim is a `KeyError` with its name.

        >>> (Expr.of("h") // 4 + 1).evaluate({"h": 9})
        3
        """
        try:
            function = self._function
        except AttributeError:
            function = function_of(self.terms)
            object.__setattr__(self, "_function", function)
        return function(sizes)

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Expr:
        """The expression with some names replaced, all at once.

        >>> (Expr.of("a") + Expr.of("b")).substitute({"a": Expr.of("b"), "b": 3})
        Expr(b + 3)
        """
        total = _ZERO
        for monomial, coefficient in self.terms:
            product = Expr.of(coefficient)
            for atom, power in monomial:
                if isinstance(atom, str):
                    value = Expr.of(replacements.get(atom, atom))
                else:
                    value = atom.substitute(replacements)
                product = product * value**power
            total = total + product
        return total

    def affine(self) -> tuple[dict[str, int], int] | None:
        """The coefficients by name and the offset, if the expression is affine in its names.

        >>> (2 * Expr.of("h") - 3).affine()
        ({'h': 2}, -3)
        >>> (Expr.of("h") // 2).affine() is None
        True
        """
        coefficients: dict[str, int] = {}
        offset = 0
        for monomial, coefficient in self.terms:
            if not monomial:
                offset = coefficient
                continue
            atom, power = monomial[0]
            if len(monomial) > 1 or power > 1 or not isinstance(atom, str):
                return None
            coefficients[atom] = coefficient
        return coefficients, offset

    def squared(self) -> tuple[Expr, int] | None:
        """The root and the offset, if the expression is the square of a multiple of one name, plus an offset.

        >>> g = Expr.of("g")
        >>> (g**2 + 1).squared(), ((2 * g + 1) ** 2).squared()
        ((Expr(g), 1), (Expr(2*g + 1), 0))
        >>> (g**2 + Expr.of("n")).squared() is None
        True
        """
        name = next(iter(self.names), "")
        powers = dict(self.terms)
        twice, once = powers.get(((name, 2),), 0), powers.get(((name, 1),), 0)
        rate = math.isqrt(max(twice, 0))
        if not rate or once % (2 * rate):
            return None
        root = Expr.of(name) * rate + once // (2 * rate)
        offset = (self - root * root).constant
        return None if offset is None else (root, offset)

    def __add__(self, other: Expr | int) -> Expr:
        if not isinstance(other, (Expr, int)):
            return NotImplemented
        merged = dict(self.terms)
        for monomial, coefficient in Expr.of(other).terms:
            merged[monomial] = merged.get(monomial, 0) + coefficient
        return _build(merged)

    def __neg__(self) -> Expr:
        return Expr(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Expr | int) -> Expr:
        return self + -other if isinstance(other, (Expr, int)) else NotImplemented

    def __mul__(self, other: Expr | int) -> Expr:
        if not isinstance(other, (Expr, int)):
            return NotImplemented
        product: dict[Monomial, int] = {}
        for right, factor in Expr.of(other).terms:
            for left, coefficient in self.terms:
                monomial = _merge(left, right)
                product[monomial] = product.get(monomial, 0) + coefficient * factor
        return _build(product)

    def __pow__(self, power: int) -> Expr:
        if not isinstance(power, int):
            return NotImplemented
        if not 0 <= power <= _LARGEST_POWER:
            raise UsageError(f"the power of a dim must be between 0 and {_LARGEST_POWER}, not {power}")
        if power == 1:
            return self
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            raised = tuple((atom, exponent * power) for atom, exponent in monomial) if power else _UNIT
            return Expr(((raised, coefficient**power),))
        result = _ONE
        for _ in range(power):
            result = result * self
        return result

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _floordiv(self, Expr.of(other)) if isinstance(other, (Expr, int)) else NotImplemented

    def __mod__(self, other: Expr | int) -> Expr:
        return _modulo(self, Expr.of(other)) if isinstance(other, (Expr, int)) else NotImplemented

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __rfloordiv__(self, other: int) -> Expr:
        return Expr.of(other) // self

    def __rmod__(self, other: int) -> Expr:
        return Expr.of(other) % self

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        ordered = list(self.terms)
        # A leading minus is harder to read: "8 - n % 8" rather than "-(n % 8) + 8".
        first_positive = next((at for at, (_, coefficient) in enumerate(ordered) if coefficient > 0), 0)
        ordered.insert(0, ordered.pop(first_positive))
        pieces = [_term_text(monomial, abs(coefficient)) for monomial, coefficient in ordered]
        text = pieces[0]
        if ordered[0][1] < 0:
            # Unary minus binds tighter than // and %, as in Python.
            text = f"-({text})" if _is_division(ordered[0][0]) and ordered[0][1] == -1 else f"-{text}"
        for piece, (_, coefficient) in zip(pieces[1:], ordered[1:], strict=True):
            text += f" {'+' if coefficient > 0 else '-'} {piece}"
        return text

    def __repr__(self) -> str:
        return f"Expr({self})"


_ZERO = Expr(())
_ONE = Expr(((_UNIT, 1),))


def divisions(value: Expr) -> Iterator[tuple[Expr, int]]:
    """All that is divided by a number in an expression, and the number.

    >>> list(map(str, next(divisions(Expr.of("n") // 5 + 1))))
    ['n', '5']
    """
    for monomial, _ in value.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                if atom.function in ("//", "%") and atom.formula is None:
                    dividend, divisor = atom.arguments
                    if divisor.constant is not None:
                        yield dividend, divisor.constant
                for argument in atom.arguments:
                    yield from divisions(argument)


def computed(text: str, formula: Computation, names: Iterable[str]) -> Expr:
    """An integer that a formula computes, as an atom of expressions."""
    call = Call(text, "formula", tuple(map(Expr.of, sorted(names))), formula)
    return Expr(((((call, 1),), 1),))


def ceildiv(dividend: Expr | int, divisor: Expr | int) -> Expr:
    """The quotient rounded up.

    >>> ceildiv(Expr.of("h"), 4), ceildiv(9, 4)
    (Expr((h - 1)//4 + 1), Expr(3))
    """
    return -(-Expr.of(dividend) // divisor)


def maximum(*values: Expr | int) -> Expr:
    """The largest of the values; constants are merged and nested maxima flattened.

    >>> n = Expr.of("n")
    >>> maximum(n // 3, 1, maximum(n, n + 1, 0))
    Expr(max(1, n + 1, n//3))
    """
    return _extreme("max", max, values)


def minimum(*values: Expr | int) -> Expr:
    """The smallest of the values; constants are merged and nested minima flattened.

    >>> minimum(Expr.of("n"), 8, 5)
    Expr(min(5, n))
    """
    return _extreme("min", min, values)


def isqrt(value: Expr | int) -> Expr:
    """The floor of the square root.

    >>> isqrt(Expr.of("n")), isqrt(4 * Expr.of("g") ** 2), isqrt(17)
    (Expr(isqrt(n)), Expr(2*g), Expr(4))
    """
    value = Expr.of(value)
    if value.constant is not None:
        return Expr.of(isqrt_of(value.constant))
    if len(value.terms) == 1:
        monomial, coefficient = value.terms[0]
        # The root of g**2 is g because sizes are never negative; a call might be.
        halves = all(isinstance(atom, str) and power % 2 == 0 for atom, power in monomial)
        if halves and coefficient > 0 and math.isqrt(coefficient) ** 2 == coefficient:
            root = tuple((atom, power // 2) for atom, power in monomial)
            return Expr(((root, math.isqrt(coefficient)),))
    return _call("isqrt", value)


def log2(value: Expr | int) -> Expr:
    """The floor of the logarithm to base 2.

    >>> log2(Expr.of("n")), log2(9)
    (Expr(log2(n)), Expr(3))
    """
    value = Expr.of(value)
    if value.constant is not None:
        return Expr.of(log2_of(value.constant))
    return _call("log2", value)


def _build(terms: Mapping[Monomial, int]) -> Expr:
    kept = [(monomial, coefficient) for monomial, coefficient in terms.items() if coefficient]
    if len(kept) > 1:
        kept.sort(key=_term_order)
    return Expr(tuple(kept))


def _term_order(term: Term) -> tuple[int, list[tuple[str, int]]]:
    monomial, _ = term
    return -sum(power for _, power in monomial), [(_atom_text(atom), -power) for atom, power in monomial]


def _atom_text(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.text


def _merge(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _atom_text(item[0])))


def _quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in divisor:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def _split(dividend: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """The exact quotient of the terms that a single-term divisor divides, and the other terms."""
    (factor, scale), *more = divisor.terms
    if more:
        return _ZERO, dividend
    exact: dict[Monomial, int] = {}
    rest: list[Term] = []
    for monomial, coefficient in dividend.terms:
        left = _quotient(monomial, factor)
        if left is None or coefficient % scale:
            rest.append((monomial, coefficient))
        else:
            exact[left] = coefficient // scale
    return _build(exact), Expr(tuple(rest))


def _separate(value: Expr) -> tuple[Expr, int]:
    """The expression without its constant, and the constant."""
    if value.terms and not value.terms[-1][0]:
        return Expr(value.terms[:-1]), value.terms[-1][1]
    return value, 0


def _content(*values: Expr) -> int:
    return math.gcd(*(coefficient for value in values for _, coefficient in value.terms))


def _shrink(value: Expr, factor: int) -> Expr:
    return Expr(tuple((monomial, coefficient // factor) for monomial, coefficient in value.terms))


def _orient(dividend: Expr, divisor: Expr) -> tuple[Expr, Expr, bool]:
    """The same division by a divisor that leads with a positive coefficient, and whether signs flipped."""
    if not divisor.terms:
        raise ZeroDivisionError(f"division of {dividend} by zero")
    flipped = divisor.terms[0][1] < 0
    return (-dividend, -divisor, True) if flipped else (dividend, divisor, False)


def _floordiv(dividend: Expr, divisor: Expr) -> Expr:
    dividend, divisor, _ = _orient(dividend, divisor)
    exact, rest = _split(dividend, divisor)
    if not rest.terms:
        return exact
    if divisor.constant is not None:
        return exact + _floordiv_by_constant(rest, divisor.constant)
    shared = _content(rest, divisor)
    return exact + _call("//", _shrink(rest, shared), _shrink(divisor, shared))


def _floordiv_by_constant(dividend: Expr, divisor: int) -> Expr:
    """The floor division in which no variable term of the dividend is a multiple of the divisor."""
    variable, offset = _separate(dividend)
    if not variable.terms:
        return Expr.of(offset // divisor)
    shared = math.gcd(_content(variable), divisor)
    variable, offset, divisor = _shrink(variable, shared), offset // shared, divisor // shared
    if all(coefficient < 0 for _, coefficient in variable.terms):
        # (-x)//k is -((x + k - 1)//k): one form for both ways to round up.
        return -_floordiv(-variable + (divisor - 1 - offset), Expr.of(divisor))
    inner = variable.atom
    if isinstance(inner, Call) and inner.function == "//":
        inner_divisor = inner.arguments[1].constant
        if inner_divisor is not None:
            return _floordiv(inner.arguments[0] + offset * inner_divisor, Expr.of(inner_divisor * divisor))
    # The constant is kept in -k < r <= 0: convolutions then print as they are written, (h - 1)//2 + 1.
    whole = -(-offset // divisor)
    return _call("//", variable + (offset - whole * divisor), Expr.of(divisor)) + whole


def _modulo(dividend: Expr, divisor: Expr) -> Expr:
    dividend, divisor, flipped = _orient(dividend, divisor)
    if flipped:
        return -_modulo(dividend, divisor)
    if divisor.constant is not None:
        return _modulo_by_constant(dividend, divisor.constant)
    _, rest = _split(dividend, divisor)
    if not rest.terms:
        return _ZERO
    shared = _content(rest, divisor)
    return shared * _call("%", _shrink(rest, shared), _shrink(divisor, shared))


def _modulo_by_constant(dividend: Expr, divisor: int) -> Expr:
    variable, offset = _separate(dividend)
    variable = _build({monomial: _residue(coefficient, divisor) for monomial, coefficient in variable.terms})
    if not variable.terms:
        return Expr.of(offset % divisor)
    shared = math.gcd(_content(variable), divisor)
    if shared > 1:
        inner = _modulo_by_constant(_shrink(variable, shared) + offset // shared, divisor // shared)
        return shared * inner + offset % shared
    return _call("%", variable + _residue(offset, divisor), Expr.of(divisor))


def _residue(value: int, divisor: int) -> int:
    """The residue nearest to zero: (n - 1) % 8 reads better than (n + 7) % 8."""
    residue = value % divisor
    return residue - divisor if 2 * residue > divisor else residue


def _extreme(function: str, pick: Callable[[int, int], int], values: Iterable[Expr | int]) -> Expr:
    offsets: dict[Expr, int] = {}
    pending = [Expr.of(value) for value in values]
    if not pending:
        raise UsageError(f"{function}() needs at least one value")
    while pending:
        value = pending.pop()
        atom = value.atom
        if isinstance(atom, Call) and atom.function == function:
            pending.extend(atom.arguments)
            continue
        # Of values that differ by a constant only one can be the extreme.
        variable, offset = _separate(value)
        offsets[variable] = pick(offset, offsets[variable]) if variable in offsets else offset
    kept = [variable + offset for variable, offset in offsets.items()]
    if len(kept) == 1:
        return kept[0]
    return _call(function, *sorted(kept, key=lambda value: (value.constant is None, str(value))))


def _call(function: str, *arguments: Expr) -> Expr:
    if function == "//":
        text = f"{_operand_text(arguments[0])}//{_operand_text(arguments[1])}"
    elif function == "%":
        text = f"{_operand_text(arguments[0])} % {_operand_text(arguments[1])}"
    else:
        text = f"{function}({', '.join(map(str, arguments))})"
    return Expr(((((Call(text, function, arguments), 1),), 1),))


def _is_division(monomial: Monomial) -> bool:
    """Whether the text of the monomial is a bare ``a//b`` or ``a % b``."""
    if len(monomial) != 1 or monomial[0][1] != 1:
        return False
    atom = monomial[0][0]
    return isinstance(atom, Call) and atom.function in ("//", "%")


def _operand_text(value: Expr) -> str:
    bare = not value.terms
    if len(value.terms) == 1:
        monomial, coefficient = value.terms[0]
        single = len(monomial) == 1 and coefficient == 1 and not _is_division(monomial)
        bare = single or (not monomial and coefficient > 0)
    return str(value) if bare else f"({value})"


def _term_text(monomial: Monomial, coefficient: int) -> str:
    if coefficient == 1 and _is_division(monomial):
        return _atom_text(monomial[0][0])
    factors = [] if coefficient == 1 and monomial else [str(coefficient)]
    for atom, power in monomial:
        text = f"({_atom_text(atom)})" if _is_division(((atom, 1),)) else _atom_text(atom)
        factors.append(text if power == 1 else f"{text}**{power}")
    return "*".join(factors)


_APPLY: dict[str, Callable[..., Expr]] = {
    "//": _floordiv,
    "%": _modulo,
    "max": maximum,
    "min": minimum,
    "isqrt": isqrt,
    "log2": log2,
}
