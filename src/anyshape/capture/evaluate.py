"""Guards as plain functions of the sizes: sympy's own substitution takes a millisecond, this takes a microsecond."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from anyshape.dims import Expr

__all__ = ["compiled"]

Number = Any  # int, float or bool, as Python computes it
Function = Callable[[Mapping[str, int]], Number]

APPLY: dict[str, Callable[..., Number]] = {
    "Add": lambda *values: sum(values),
    "Mul": lambda *values: math.prod(values),
    "Pow": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "RoundToInt": round,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": float,
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "LessThan": operator.le,
    "StrictLessThan": operator.lt,
    "GreaterThan": operator.ge,
    "StrictGreaterThan": operator.gt,
    "And": lambda *values: all(values),
    "Or": lambda *values: any(values),
    "Not": operator.not_,
}


def compiled(expression: Any, meaning: Mapping[Any, Expr]) -> Function:
    """A function from sizes to the expression's value, by what each symbol means."""
    if expression.is_Symbol:
        size = meaning[expression]
        return size.evaluate
    if expression in (sympy.true, sympy.false):
        truth = expression == sympy.true
        return lambda sizes: truth
    if expression.is_number and not expression.args:
        number = int(expression) if expression.is_Integer else float(expression)
        return lambda sizes: number
    apply = APPLY.get(type(expression).__name__)
    if apply is None:
        return _by_sympy(expression, meaning)
    parts = [compiled(argument, meaning) for argument in expression.args]
    return lambda sizes: apply(*[part(sizes) for part in parts])


def _by_sympy(expression: Any, meaning: Mapping[Any, Expr]) -> Function:
    """The slow way, for what has no plain counterpart."""
    symbols = list(expression.free_symbols)

    def evaluate(sizes: Mapping[str, int]) -> Number:
        value = expression.xreplace({s: sympy.Integer(meaning[s].evaluate(sizes)) for s in symbols})
        return value == sympy.true if value in (sympy.true, sympy.false) else float(value)

    return evaluate
