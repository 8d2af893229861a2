"""Functions of one or two numbers that torch.onnx has no words for, or not the right ones everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from anyshape.lower.operators.building import Value, op
from anyshape.torch_bridge import torchlib

__all__ = ["TRANSLATIONS"]

UNSIGNED = (ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64)


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
    """The size of the one with the sign of the other."""
    size = op.Abs(self)
    return op.Where(signbit(other), op.Neg(size), size)


def signbit(self: Value) -> Value:
    """Whether a number is negative; of the two zeros, one is."""
    zero = op.CastLike(0.0, self)
    if self.dtype.is_integer():
        return op.Less(self, zero)
    inverse = op.Div(op.CastLike(1.0, self), self)
    return op.Or(op.Less(self, zero), op.And(op.Equal(self, zero), op.Less(inverse, zero)))


def atan2(self: Value, other: Value) -> Value:
    """The angle of a point, from -pi to pi: along the negative axis the sign of its height tells which."""
    zero, pi = op.CastLike(0.0, self), op.CastLike(math.pi, self)
    slope = op.Atan(op.Div(self, other))
    flat = op.And(op.Equal(self, zero), op.Equal(other, zero))
    ahead = op.Where(flat, self, slope)
    behind = op.Add(op.Where(flat, zero, slope), op.Where(signbit(self), op.Neg(pi), pi))
    return op.Where(signbit(other), behind, ahead)


def log1p(self: Value) -> Value:
    """The logarithm of 1 and a number, which may be far too small to show beside 1."""
    one = op.CastLike(1.0, self)
    total = op.Add(one, self)
    plain = op.Log(total)
    # What was lost of the number when 1 was added to it is known, and the logarithm is nearly linear there.
    mended = op.Mul(plain, op.Div(self, op.Sub(total, one)))
    near = op.Where(op.Equal(total, one), self, mended)
    return op.Where(op.Less(op.Abs(self), op.CastLike(0.5, self)), near, plain)


def expm1(self: Value) -> Value:
    """The exponential of a number less 1, which may be all that there is of it."""
    one = op.CastLike(1.0, self)
    power = op.Exp(self)
    plain = op.Sub(power, one)
    near = op.Where(op.Equal(power, one), self, op.Mul(plain, op.Div(self, op.Log(power))))
    return op.Where(op.Less(op.Abs(self), op.CastLike(0.5, self)), near, plain)


def log_sigmoid(self: Value) -> Value:
    """The logarithm of the logistic function, also where that is too small to be written."""
    tail = log1p(op.Exp(op.Neg(op.Abs(self))))
    return op.Sub(op.Min(self, op.CastLike(0.0, self)), tail)


def right_shift(self: Value, other: Value) -> Value:
    """The bits moved to the right, as many of them as said."""
    if self.dtype not in UNSIGNED:
        stock = torchlib.onnx_function(torch.ops.aten.bitwise_right_shift.Tensor, False)
        assert stock is not None
        return stock(self, op.CastLike(other, self))
    return op.BitShift(self, op.CastLike(other, self), direction="RIGHT")


def remainder(self: Value, other: Value) -> Value:
    """What is left of a division that rounds down, by a number or a computed size."""
    divisor = op.CastLike(other, self)
    if self.dtype.is_integer():
        return op.Mod(self, divisor)
    rest = op.Mod(self, divisor, fmod=1)  # exact, where a quotient times the divisor is rounded twice
    return op.Where(_falls_short(rest, divisor), op.Add(rest, divisor), rest)


def _falls_short(rest: Value, divisor: Value) -> Value:
    """Whether a rest has another sign than what was divided by: rounded down, the quotient is one less."""
    zero = op.CastLike(0.0, rest)
    unlike = op.Xor(op.Less(rest, zero), op.Less(divisor, zero))
    return op.And(unlike, op.Not(op.Equal(rest, zero)))


def logaddexp(self: Value, other: Value) -> Value:
    """log(exp(x) + exp(y)) by the larger of both, which neither overflows nor is lost."""
    apart = op.Neg(op.Abs(op.Sub(self, other)))
    alike = op.Equal(self, other)  # infinite ones have no difference
    apart = op.Where(alike, op.CastLike(0.0, apart), apart)
    return op.Add(op.Max(self, other), log1p(op.Exp(apart)))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.fmax.default: fmax,
    torch.ops.aten.fmin.default: fmin,
    torch.ops.aten.hypot.default: hypot,
    torch.ops.aten.copysign.Tensor: copysign,
    torch.ops.aten.remainder.Scalar: remainder,
    torch.ops.aten.signbit.default: signbit,
    torch.ops.aten.atan2.default: atan2,
    torch.ops.aten.log1p.default: log1p,
    torch.ops.aten.logaddexp.default: logaddexp,
    torch.ops.aten.expm1.default: expm1,
    torch.ops.aten.special_expm1.default: expm1,
    torch.ops.aten.special_log1p.default: log1p,
    torch.ops.aten.log_sigmoid.default: log_sigmoid,
    torch.ops.aten.bitwise_right_shift.Tensor: right_shift,
    torch.ops.aten.bitwise_right_shift.Tensor_Scalar: right_shift,
    torch.ops.aten.__rshift__.Scalar: right_shift,
    torch.ops.aten.__rshift__.Tensor: right_shift,
}
