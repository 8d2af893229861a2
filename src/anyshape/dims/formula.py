"""Formulas: what Python computed from sizes, kept as it was computed, floats included.

An `Expr` is exact integer arithmetic in one canonical form. A `Formula` is whatever a program wrote, ``int(n*0.9)`` or
``n % 300 == 0``, and computes what Python computes, rounding for rounding. Where it is integer arithmetic it can be
turned into an expression; what is not becomes an expression's atom, as it stands.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import itemgetter
from typing import TypeAlias, Union

from anyshape.dims.bounds import Relation
from anyshape.dims.expr import Expr, ceildiv, computed, isqrt, maximum, minimum
from anyshape.dims.names import may_be_negative

__all__ = [
    "COMPARISONS",
    "Formula",
    "Part",
    "as_expr",
    "as_relation",
    "is_whole",
    "names_of",
    "replaced",
]

Number: TypeAlias = int | float
Part: TypeAlias = Union["Formula", Expr, int, float]

COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
COMPUTE: dict[str, Callable[..., Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "neg": operator.neg,
    "abs": abs,
    "int": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "float": float,
    "min": min,
    "max": max,
    "bit_length": lambda value: value.bit_length(),
    "sqrt": math.sqrt,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "isqrt": math.isqrt,
    "gcd": math.gcd,
    **COMPARISONS,
}
ROUNDED = ("int", "floor", "ceil", "round")
INEXACT = ("log", "log2", "log10", "exp", "**")  # a runtime may round the last digit of these otherwise
WHOLE = (*ROUNDED, "bit_length", "isqrt", "gcd", "<<", ">>", "&", "|", "^", *COMPARISONS)
INFIX = frozenset(("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", *COMPARISONS))
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
LARGEST_DENOMINATOR = 1 << 12


class _Once:
    """The function that computes a formula: made once, and called thousands of times."""

    __slots__ = ("_function",)

    _function: Callable[[Mapping[str, int]], Number]


@dataclass(frozen=True, slots=True)
class Formula(_Once):
    """One operation on sizes, numbers and other formulas.

    >>> n = Expr.of("n")
    >>> half = Formula("int", (Formula("*", (n, 0.3)),))
    >>> print(half, half.evaluate({"n": 10}))
    int(n*0.3) 3
    """

    op: str
    args: tuple[Part, ...]
    text: str = field(init=False, compare=False, repr=False)
    names: frozenset[str] = field(init=False, compare=False, repr=False)  # the sizes that it is computed from

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _text(self.op, self.args))
        object.__setattr__(self, "names", frozenset().union(*map(names_of, self.args)))

    def evaluate(self, sizes: Mapping[str, int]) -> Number:
        """The value that Python computes; an `ArithmeticError` or `ValueError` where there is none."""
        try:
            function = self._function
        except AttributeError:
            function = _function_of(self)
            object.__setattr__(self, "_function", function)
        return function(sizes)

    def substitute(self, replacements: Mapping[str, Expr | int]) -> Formula:
        """The same with names replaced."""
        return Formula(self.op, tuple(replaced(part, replacements) for part in self.args))

    def negated(self) -> Formula:
        """The opposite of a comparison."""
        return Formula(NEGATED[self.op], self.args)

    def whole(self) -> Expr:
        """The integer that it computes, as an expression."""
        made = as_expr(self)
        return computed(self.text, self, self.names) if made is None else made

    def __str__(self) -> str:
        return self.text


def _function_of(part: Part) -> Callable[[Mapping[str, int]], Number]:
    """A part of a formula as one function of the sizes."""
    if isinstance(part, Expr):
        return part.evaluate if part.name is None else itemgetter(part.name)
    if not isinstance(part, Formula):
        return lambda sizes: part
    compute = COMPUTE[part.op]
    functions = [_function_of(arg) for arg in part.args]
    if len(functions) != 2:
        return lambda sizes: compute(*[function(sizes) for function in functions])
    one, two = functions
    last = part.args[1]
    if not isinstance(last, (Formula, Expr)):
        return lambda sizes: compute(one(sizes), last)
    return lambda sizes: compute(one(sizes), two(sizes))


def replaced(part: Part, replacements: Mapping[str, Expr | int]) -> Part:
    """A part of a formula with names replaced."""
    return part.substitute(replacements) if isinstance(part, (Formula, Expr)) else part


def names_of(part: Part) -> frozenset[str]:
    """The sizes that a part of a formula is computed from."""
    return part.names if isinstance(part, (Formula, Expr)) else frozenset()


def is_whole(part: Part) -> bool:
    """Whether a part is an integer at all sizes."""
    if not isinstance(part, Formula):
        return not isinstance(part, float)
    if part.op in WHOLE:
        return True
    return (
        part.op not in ("/", "float", "sqrt", *INEXACT[:-1])
        and all(map(is_whole, part.args))
        and (part.op != "**" or _is_natural(part.args[1]))
    )


def _is_natural(part: Part) -> bool:
    """Whether a part is an integer that is never negative: a power by it is one, too."""
    if isinstance(part, Formula):
        return part.op == "bit_length" or (part.op == "ceil" and _is_log2(part.args[0]))
    return isinstance(part, int) and part >= 0


def _is_log2(part: Part) -> bool:
    return isinstance(part, Formula) and part.op == "log2" and is_whole(part.args[0])


def _text(op: str, args: tuple[Part, ...]) -> str:
    shown = [_operand(part) if op in INFIX else str(part) for part in args]
    if op in INFIX:
        tight = op in ("*", "/", "//", "**")
        return shown[0] + (op if tight else f" {op} ") + shown[1]
    return f"-{_operand(args[0])}" if op == "neg" else f"{op}({', '.join(shown)})"


def _operand(part: Part) -> str:
    compound = isinstance(part, Formula) and (part.op in INFIX or part.op == "neg")
    compound = compound or (isinstance(part, Expr) and part.name is None and part.constant is None)
    return f"({part})" if compound else str(part)


def as_expr(part: Part) -> Expr | None:
    """The same as an exact expression; None where it is no integer, or a runtime could compute another one.

    >>> n = Expr.of("n")
    >>> print(as_expr(Formula("int", (Formula("/", (n, 2)),))), as_expr(Formula("ceil", (Formula("*", (n, 0.25)),))))
    n//2 (n - 1)//4 + 1
    """
    if isinstance(part, Formula):
        if not is_whole(part):
            return None
        if not part.names:
            return Expr.of(int(part.evaluate({})))
        return _integer(part) or (computed(part.text, part, part.names) if _is_exact(part) else None)
    return None if isinstance(part, float) else Expr.of(part)


def is_writable(part: Part) -> bool:
    """Whether a graph has words for it: none for a common divisor, nor for rounding to some digits."""
    if not isinstance(part, Formula):
        return True
    if part.op == "gcd" or (part.op == "round" and len(part.args) > 1):
        return False
    return all(map(is_writable, part.args))


def _is_exact(part: Part, inside: bool = False) -> bool:
    """Whether any runtime rounds it as Python does, where the rounding decides about an integer."""
    if not isinstance(part, Formula):
        return True
    if part.op in INEXACT and not is_whole(part):
        return False
    return is_writable(part) and all(map(_is_exact, part.args))


def _integer(part: Formula) -> Expr | None:
    """Plain integer arithmetic."""
    op, args = part.op, part.args
    if op in ROUNDED and len(args) == 1:
        return _rounded(op, args[0])
    wholes = [as_expr(arg) for arg in args]
    if any(whole is None for whole in wholes):
        return None
    made = [whole for whole in wholes if whole is not None]
    if op in ("//", "%") and made[1].constant == 0:
        return None
    if op in ("+", "-", "*", "//", "%"):
        return _ARITHMETIC[op](made[0], made[1])
    if op == "**" and made[1].constant is not None and 0 <= made[1].constant <= 8:
        return made[0] ** made[1].constant
    if op == "**" and made[0].constant == 2 and made[1].constant is None:
        power = Formula("<<", (1, made[1]))
        return computed(power.text, power, power.names)
    if op == "neg":
        return -made[0]
    if op in ("min", "max"):
        return (minimum if op == "min" else maximum)(*made)
    return isqrt(made[0]) if op == "isqrt" else None


_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _rounded(op: str, part: Part) -> Expr | None:
    """An integer, or a quotient that floats hold exactly, rounded."""
    whole = as_expr(part)
    if whole is not None:
        return whole
    if op == "round" or not isinstance(part, Formula):
        return None
    root = _under_root(part)
    if root is not None and op in ("int", "floor"):  # no root of a size rounds up to the next integer
        return isqrt(root)
    if part.op in ("log2",) and op in ("int", "floor", "ceil"):
        inner = as_expr(part.args[0])
        if inner is None:
            return None
        bits = Formula("bit_length", (inner - 1 if op == "ceil" else inner,))
        made = computed(bits.text, bits, bits.names)
        return made if op == "ceil" else made - 1
    fraction = _fraction(part)
    if fraction is None:
        return None
    top, bottom = fraction
    # int() rounds towards zero: sizes are not negative, and a difference of them is taken as it stands.
    if op == "int" and not _never_negative(top):
        return None
    return ceildiv(top, bottom) if op == "ceil" else top // bottom


def _under_root(part: Formula) -> Expr | None:
    """``n`` of ``sqrt(n)`` and ``n**0.5``."""
    if part.op == "sqrt" or (part.op == "**" and part.args[1] == 0.5):
        return as_expr(part.args[0])
    return None


def _never_negative(value: Expr) -> bool:
    return not any(map(may_be_negative, value.names)) and all(
        coefficient > 0 for _, coefficient in value.terms
    )


def _fraction(part: Formula) -> tuple[Expr, int] | None:
    """``n/3`` and ``n*0.25`` as a dividend and a divisor; a factor like 0.9 is no such number."""
    if part.op == "/":
        top, bottom = as_expr(part.args[0]), part.args[1]
        if top is None or not isinstance(bottom, (int, float)) or bottom <= 0:
            return None
        ratio = Fraction(bottom)
        return (
            (top * ratio.denominator, ratio.numerator) if ratio.denominator <= LARGEST_DENOMINATOR else None
        )
    if part.op == "*":
        for factor, other in (part.args, part.args[::-1]):
            whole = as_expr(other)
            if isinstance(factor, float) and factor >= 0 and math.isfinite(factor) and whole is not None:
                ratio = Fraction(factor)
                if ratio.denominator <= LARGEST_DENOMINATOR:
                    return whole * ratio.numerator, ratio.denominator
    return None


def as_relation(condition: Formula) -> Relation | None:
    """A comparison as a relation of exact expressions; None where a runtime could decide otherwise.

    >>> print(as_relation(Formula(">", (Expr.of("n"), 600))), as_relation(Formula("<", (Expr.of("n"), 9))))
    601 <= n n <= 8
    """
    left, right = as_expr(condition.args[0]), as_expr(condition.args[1])
    if left is None or right is None:
        whole = as_expr(Formula("*", (condition, 1))) if _is_exact(condition) else None
        return None if whole is None else Relation(whole, "==", Expr.of(1))
    op = condition.op
    if op in (">", ">="):
        left, right, op = right, left, "<" if op == ">" else "<="
    if op == "<":
        left, op = left + 1, "<="
    if op == "<=" and left.constant is None:  # n + 1 <= 9 is n <= 8
        offset = left.offset
        left, right = left - offset, right - offset
    return Relation(left, op, right)
