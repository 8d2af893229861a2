"""Compute: the terms of an expression as one function of the sizes, made once and called thousands of times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

__all__ = ["COMPUTE", "Function", "function_of", "isqrt_of", "log2_of"]

Function: TypeAlias = Callable[[Mapping[str, int]], int]


def function_of(terms: Sequence[tuple[Any, int]]) -> Function:
    """The sum of the terms at given sizes: each is a product of atoms with their powers, and a coefficient."""
    summands = [_product(monomial, coefficient) for monomial, coefficient in terms]
    if not summands:
        return lambda sizes: 0
    if len(summands) == 1:
        return summands[0]
    if len(summands) == 2:
        first, second = summands
        if not terms[1][0]:
            constant = terms[1][1]
            return lambda sizes: first(sizes) + constant
        return lambda sizes: first(sizes) + second(sizes)
    return lambda sizes: sum([summand(sizes) for summand in summands])


def _product(monomial: Sequence[tuple[Any, int]], coefficient: int) -> Function:
    factors = [_power(_atom(atom), power) for atom, power in monomial]
    if not factors:
        return lambda sizes: coefficient
    first, *others = factors
    if not others:
        return first if coefficient == 1 else lambda sizes: coefficient * first(sizes)

    def product(sizes: Mapping[str, int]) -> int:
        value = coefficient
        for factor in factors:
            value *= factor(sizes)
        return value

    return product


def _power(base: Function, power: int) -> Function:
    return base if power == 1 else lambda sizes: base(sizes) ** power


def _atom(atom: Any) -> Function:
    if isinstance(atom, str):
        return itemgetter(atom)
    if atom.formula is not None:
        return lambda sizes: int(atom.formula.evaluate(sizes))
    functions = [function_of(argument.terms) for argument in atom.arguments]
    if len(functions) != 2:
        compute = COMPUTE[atom.function]
        return lambda sizes: compute(*[function(sizes) for function in functions])
    one, two = functions
    if atom.function == "//":
        return lambda sizes: one(sizes) // two(sizes)
    if atom.function == "%":
        return lambda sizes: one(sizes) % two(sizes)
    pick = COMPUTE[atom.function]
    return lambda sizes: pick(one(sizes), two(sizes))


def isqrt_of(value: int) -> int:
    """The floor of the square root."""
    if value < 0:
        raise ValueError(f"isqrt({value}) is not defined: {value} is negative")
    return math.isqrt(value)


def log2_of(value: int) -> int:
    """The floor of the logarithm to base 2."""
    if value < 1:
        raise ValueError(f"log2({value}) is not defined: {value} is not positive")
    return value.bit_length() - 1


COMPUTE: dict[str, Callable[..., int]] = {"max": max, "min": min, "isqrt": isqrt_of, "log2": log2_of}
