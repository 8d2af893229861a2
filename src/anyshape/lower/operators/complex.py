"""Operators on complex numbers that torch.onnx lacks; it writes them as pairs, on one more axis at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from anyshape.lower.operators import order, spectra, squeezing
from anyshape.lower.operators.building import Value, one_number, op, rank_of
from anyshape.torch_bridge import torchlib

__all__ = ["MAKES_COMPLEX", "TRANSLATIONS"]


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


def roll(self: Value, shifts: Sequence[Value], dims: Sequence[int] = ()) -> Value:
    """As for real tensors, by axis."""
    if not dims:
        flat = order.roll(op.Reshape(self, [-1, 2]), shifts, [0])
        return op.Reshape(flat, op.Shape(self), allowzero=1)
    return order.roll(self, shifts, [_axis(dim) for dim in dims])


def pad(self: Value, pad: Sequence[Value], value: float = 0) -> Value:
    """With zeros, from the last axis on; a negative number cuts."""
    if value:
        raise NotImplementedError("padding complex numbers with a number other than zero")
    pairs = list(zip(pad[0::2], pad[1::2], strict=True))[::-1]
    last = rank_of(self) - 1
    sizes = [one_number(size) for side in zip(*pairs, strict=True) for size in side]
    return op.Pad(self, op.Concat(*sizes, axis=0), None, [*range(last - len(pairs), last)])


def matmul(self: Value, mat2: Value) -> Value:
    """Of matrices or of batches of them: all are one operator in ONNX."""
    stock = torchlib.onnx_function(torch.ops.aten.matmul.default, True)
    assert stock is not None
    return stock(self, mat2)


def power(self: Value, exponent: float) -> Value:
    """Squares; other powers are not known."""
    if exponent == 2:
        real, imaginary = _parts(self)
        squares = op.Sub(op.Mul(real, real), op.Mul(imaginary, imaginary))
        return op.Concat(squares, op.Mul(op.Add(real, real), imaginary), axis=-1)
    raise NotImplementedError(f"complex numbers to the power of {exponent}")


def where(condition: Value, self: Value, other: Value) -> Value:
    return op.Where(op.Unsqueeze(condition, [-1]), self, other)


def copy(self: Value, src: Value, non_blocking: bool = False) -> Value:
    """Spread to the shape of what is written to."""
    return op.Expand(src, op.Shape(self))


def zeros_like(self: Value, **_: Any) -> Value:
    return op.Expand(op.CastLike(0.0, self), op.Shape(self))


def zeros(size: Sequence[Value], dtype: int = -1, **named: Any) -> Value:
    """Real ones as torch.onnx has them, complex ones as pairs."""
    if dtype not in PARTS:
        stock = torchlib.onnx_function(torch.ops.aten.zeros.default, False)
        assert stock is not None
        return stock(size, dtype, **named)
    shape = op.Concat(*map(one_number, size), one_number(2), axis=0)
    return op.ConstantOfShape(shape, value=ir.tensor([0.0], dtype=PARTS[ir.DataType(dtype)]))


PARTS = {ir.DataType.COMPLEX64: ir.DataType.FLOAT, ir.DataType.COMPLEX128: ir.DataType.DOUBLE}


def _as_pairs(target: Any, place: int | None = None) -> Callable[..., Any]:
    """torch.onnx's translation for real tensors, which does as well for pairs; ``place`` is where the axis is given."""

    def translate(*args: Any, **named: Any) -> Any:
        stock = torchlib.onnx_function(target, False)
        assert stock is not None
        given = [_axis(item) if k == place else item for k, item in enumerate(args)]
        return stock(*given, **named)

    return translate


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
    torch.ops.aten.roll.default: roll,
    torch.ops.aten.constant_pad_nd.default: pad,
    torch.ops.aten.mm.default: matmul,
    torch.ops.aten.bmm.default: matmul,
    torch.ops.aten.pow.Tensor_Scalar: power,
    torch.ops.aten.where.self: where,
    torch.ops.aten.copy.default: copy,
    torch.ops.aten.zeros_like.default: zeros_like,
    torch.ops.aten.index.Tensor: _as_pairs(torch.ops.aten.index.Tensor),
    torch.ops.aten.index_select.default: _as_pairs(torch.ops.aten.index_select.default, 1),
    torch.ops.aten.cumsum.default: _as_pairs(torch.ops.aten.cumsum.default, 1),
    torch.ops.aten.slice_scatter.default: _as_pairs(torch.ops.aten.slice_scatter.default, 2),
    torch.ops.aten.select_scatter.default: _as_pairs(torch.ops.aten.select_scatter.default, 2),
    torch.ops.aten.split_with_sizes.default: _as_pairs(torch.ops.aten.split_with_sizes.default, 2),
    torch.ops.aten.unbind.int: _as_pairs(torch.ops.aten.unbind.int, 1),
    **spectra.COMPLEX,
    **squeezing.COMPLEX,
}
MAKES_COMPLEX: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.aten.zeros.default: zeros}
"""Operators that are given no complex tensor and may return one."""
