"""Between the trace's symbols (sympy) and the contract's dims (`Expr`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyshape.dims import Expr, Relation, maximum, minimum

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
    arguments = [to_expr(argument, meaning) for argument in value.args]
    return _apply(type(value).__name__, value, arguments)


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
