"""Functions of two numbers that torch.onnx has no words for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anyshape.lower.operators.building import Value, op

__all__ = ["TRANSLATIONS"]


def fmax(self: Value, other: Value) -> Value:
    """The larger one; where one is not a number, the other."""
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, op.Max(self, other)))


def fmin(self: Value, other: Value) -> Value:
    """The smaller one; where one is not a number, the other."""
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, op.Min(self, other)))


def hypot(self: Value, other: Value) -> Value:
    """The third side of a right triangle."""
    return op.Sqrt(op.Add(op.Mul(self, self), op.Mul(other, other)))


def copysign(self: Value, other: Value) -> Value:
    """The size of the one with the sign of the other; a zero counts as positive."""
    size, zero = op.Abs(self), op.CastLike(0.0, other)
    return op.Where(op.Less(other, zero), op.Neg(size), size)


def remainder(self: Value, other: Value) -> Value:
    """What is left of a division that rounds down, by a number or a computed size."""
    divisor = op.CastLike(other, self)
    if self.dtype.is_integer():
        return op.Mod(self, divisor)
    return op.Sub(self, op.Mul(op.Floor(op.Div(self, divisor)), divisor))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.fmax.default: fmax,
    torch.ops.aten.fmin.default: fmin,
    torch.ops.aten.hypot.default: hypot,
    torch.ops.aten.copysign.Tensor: copysign,
    torch.ops.aten.remainder.Scalar: remainder,
}
