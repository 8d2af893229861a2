"""Operators on complex numbers that torch.onnx lacks; it writes them as pairs, on one more axis at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.lower.operators.building import Value, one_number, op

__all__ = ["TRANSLATIONS"]


def unsqueeze(self: Value, dim: int) -> Value:
    return op.Unsqueeze(self, [_axis(dim)])


def select(self: Value, dim: int, index: Value) -> Value:
    return op.Gather(self, index, axis=_axis(dim))


def expand(self: Value, size: Sequence[Value], implicit: bool = False) -> Value:
    """A size of -1 is as it is, for which Expand's word is 1."""
    sizes = [one_number(1 if isinstance(length, int) and length < 0 else length) for length in size]
    return op.Expand(self, op.Concat(*sizes, one_number(2), axis=0))


def exp(self: Value) -> Value:
    """The length is that of the real part, the angle is the imaginary part."""
    real, imaginary = _parts(self)
    return op.Mul(op.Exp(real), op.Concat(op.Cos(imaginary), op.Sin(imaginary), axis=-1))


def multiply(self: Value, other: complex) -> Value:
    """By a number that is the same everywhere."""
    number = complex(other)
    if not number.imag:
        return op.Mul(self, op.CastLike(number.real, self))
    real, imaginary = _parts(self)
    turned = op.Concat(op.Neg(imaginary), real, axis=-1)
    return op.Add(
        op.Mul(self, op.CastLike(number.real, self)), op.Mul(turned, op.CastLike(number.imag, self))
    )


def _axis(dim: int) -> int:
    """An axis counted from the end is one further from it, with the pair behind it."""
    return dim - 1 if dim < 0 else dim


def _parts(value: Value) -> tuple[Value, Value]:
    return op.Slice(value, [0], [1], [-1]), op.Slice(value, [1], [2], [-1])


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.unsqueeze.default: unsqueeze,
    torch.ops.aten.select.int: select,
    torch.ops.aten.expand.default: expand,
    torch.ops.aten.exp.default: exp,
    torch.ops.aten.mul.Scalar: multiply,
}
