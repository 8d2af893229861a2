"""Between the trace's symbols (sympy) and the contract's dims (`Expr`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyshape.dims import Expr, Relation, ceildiv, maximum, minimum

__all__ = ["Untranslatable", "to_expr", "to_relations"]


class Untranslatable(Exception):
    """A sympy expression that the contract's dims have no words for."""


def to_expr(value: Any, meaning: Mapping[Any, Expr]) -> Expr:
    """A sympy size as an expression of the dims, by what each symbol means; `Untranslatable` if it has none."""
    if isinstance(value, int):
        return Expr.of(value)
    if value.is_Integer:
        return Expr.of(int(value))
    if value.is_Symbol:
        if value not in meaning:
            raise Untranslatable(str(value))
        return meaning[value]
    if type(value).__name__ in ROUNDED:
        return _rounded(value, meaning)
    arguments = [to_expr(argument, meaning) for argument in value.args]
    return _apply(type(value).__name__, value, arguments)


ROUNDED = ("FloorToInt", "CeilToInt", "TruncToInt", "RoundToInt")


def _rounded(value: Any, meaning: Mapping[Any, Expr]) -> Expr:
    """A quotient of two sizes, rounded. Sizes are never negative, so that cutting is rounding down."""
    over, under = _ratio(value.args[0], meaning)
    name = type(value).__name__
    if name == "CeilToInt":
        return ceildiv(over, under)
    if name != "RoundToInt":
        return over // under
    doubled = 2 * over + under
    nearest = doubled // (2 * under)
    tie = 1 - minimum(1, doubled % (2 * under))
    return nearest - tie * (nearest % 2)  # Python rounds a tie to the even one


def _ratio(value: Any, meaning: Mapping[Any, Expr]) -> tuple[Expr, Expr]:
    """A quotient of two sizes, or a size times a number that floats hold exactly: ``0.5*n``."""
    if type(value).__name__ in ("IntTrueDiv", "FloatTrueDiv"):
        over, under = (to_expr(_whole(side), meaning) for side in value.args)
        return over, under
    if type(value).__name__ == "Mul" and len(value.args) == 2 and value.args[0].is_Float:
        rate, parts = float(value.args[0]).as_integer_ratio()
        if parts <= FINEST:
            return rate * to_expr(_whole(value.args[1]), meaning), Expr.of(parts)
    raise Untranslatable(str(value))


FINEST = 1024


def _whole(side: Any) -> Any:
    return side.args[0] if type(side).__name__ == "ToFloat" else side


def _apply(name: str, value: Any, arguments: list[Expr]) -> Expr:
    if name == "Add":
        return sum(arguments, Expr.of(0))
    if name == "Mul":
        product = Expr.of(1)
        for argument in arguments:
            product = product * argument
        return product
    if name == "Pow":
        power = arguments[1].constant
        if power is not None and 0 <= power <= 8:
            return arguments[0] ** power
    if name in ("FloorDiv", "CleanDiv"):
        return arguments[0] // arguments[1]
    if name in ("Mod", "PythonMod"):
        return arguments[0] % arguments[1]
    if name == "Max":
        return maximum(*arguments)
    if name == "Min":
        return minimum(*arguments)
    raise Untranslatable(str(value))


def to_relations(condition: Any, meaning: Mapping[Any, Expr]) -> list[Relation]:
    """A condition on sizes as relations that must all hold; `Untranslatable` where it is something else."""
    name = type(condition).__name__
    if name == "And":
        return [relation for part in condition.args for relation in to_relations(part, meaning)]
    words = {
        "Equality": ("==", False),
        "Unequality": ("!=", False),
        "LessThan": ("<=", False),
        "StrictLessThan": ("<", False),
        "GreaterThan": ("<=", True),
        "StrictGreaterThan": ("<", True),
    }
    if name not in words:
        raise Untranslatable(str(condition))
    left, right = (to_expr(side, meaning) for side in condition.args)
    op, swapped = words[name]
    return [Relation(right, op, left) if swapped else Relation(left, op, right)]
