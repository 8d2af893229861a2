"""Our translations of operators that torch's own fix to the traced sizes, or fail on when sizes vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from onnxscript.onnx_opset import opset18

__all__ = ["TRANSLATIONS"]

# torch.onnx infers signatures from annotations, and knows no onnxscript values among them.
Value: TypeAlias = Any
op: Any = opset18


def roll(self: Value, shifts: Sequence[Value], dims: Sequence[int] = ()) -> Value:
    """torch.roll by any shift, one that depends on the sizes included."""
    if not dims:
        flat = _rolled(op.Reshape(self, [-1]), shifts[0], 0)
        return op.Reshape(flat, op.Shape(self), allowzero=1)
    for shift, axis in zip(shifts, dims, strict=True):
        self = _rolled(self, shift, axis)
    return self


def _rolled(value: Value, shift: Value, axis: int) -> Value:
    size = _size(value, axis)
    # Where the axis is empty any cut will do; 1 keeps the remainder defined.
    cut = op.Mod(op.Sub([0], op.Reshape(shift, [1])), op.Clip(size, 1))
    head = op.Slice(value, [0], cut, [axis])
    tail = op.Slice(value, cut, size, [axis])
    return op.Concat(tail, head, axis=axis)


def _size(value: Value, axis: int) -> Value:
    """The size of an axis, as a tensor of one number."""
    return op.Shape(value, start=axis) if axis == -1 else op.Shape(value, start=axis, end=axis + 1)


def adaptive_average_pool(self: Value, output_size: Sequence[Value]) -> Value:
    """Adaptive average pooling over the last axes: each is multiplied by the matrix that averages its windows."""
    for number, size in enumerate(reversed(list(output_size))):
        self = _averaged(self, size, -1 - number)
    return self


def _averaged(value: Value, wanted: Value, axis: int) -> Value:
    if isinstance(wanted, int) and wanted == 1:
        return op.ReduceMean(value, [axis], keepdims=1)
    given = op.Squeeze(_size(value, axis), [0])
    count = op.Squeeze(op.Reshape(wanted, [1]), [0])
    windows = op.Unsqueeze(op.Range(0, count, 1), [1])
    places = op.Unsqueeze(op.Range(0, given, 1), [0])
    start = op.Div(op.Mul(windows, given), count)
    end = op.Div(op.Sub(op.Add(op.Mul(op.Add(windows, 1), given), count), 1), count)
    inside = op.And(op.GreaterOrEqual(places, start), op.Less(places, end))
    averages = op.Div(op.CastLike(inside, value), op.CastLike(op.Sub(end, start), value))
    if axis == -1:
        return op.MatMul(value, op.Transpose(averages, perm=[1, 0]))
    if axis == -2:
        return op.MatMul(averages, value)
    # Only a third axis from the end is left: fold what follows it into one axis, and unfold it again.
    after = op.Shape(value, start=axis + 1)
    flat = op.Reshape(value, op.Concat(op.Shape(value, end=axis + 1), op.Constant(value_ints=[-1]), axis=0))
    pooled = op.MatMul(averages, flat)
    return op.Reshape(pooled, op.Concat(op.Shape(pooled, end=-1), after, axis=0))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.roll.default: roll,
    torch.ops.aten.adaptive_avg_pool1d.default: adaptive_average_pool,
    torch.ops.aten.adaptive_avg_pool2d.default: adaptive_average_pool,
    torch.ops.aten.adaptive_avg_pool3d.default: adaptive_average_pool,
}
"""What lower adds to torch.onnx's own translations."""
