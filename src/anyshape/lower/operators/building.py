"""What translations are built with: ONNX operators, and sizes that are Python numbers or ONNX scalars."""

from __future__ import annotations

from typing import Any, TypeAlias

import onnx_ir as ir
from onnxscript.onnx_opset import opset18

__all__ = [
    "BOOL",
    "DOUBLE",
    "FLOAT",
    "INT32",
    "INT64",
    "UINT8",
    "Value",
    "along",
    "one_number",
    "op",
    "rank_of",
    "scalar",
    "size_of",
]

# torch.onnx infers signatures from annotations, and knows no onnxscript values among them.
Value: TypeAlias = Any
op: Any = opset18
FLOAT, DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE
INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64
BOOL, UINT8 = ir.DataType.BOOL, ir.DataType.UINT8


def size_of(value: Value, axis: int) -> Value:
    """The size of an axis, as a tensor of one number."""
    return op.Shape(value, start=axis) if axis == -1 else op.Shape(value, start=axis, end=axis + 1)


def one_number(size: Value) -> Value:
    """A size that may be a Python number or a scalar, as a tensor of one number."""
    return op.Constant(value_ints=[size]) if isinstance(size, int) else op.Reshape(size, [1])


def scalar(size: Value) -> Value:
    """A size that may be a Python number or a tensor of one number, as a scalar."""
    return op.Constant(value_int=size) if isinstance(size, int) else op.Squeeze(one_number(size), [0])


def rank_of(value: Value) -> int:
    """How many axes an operator's input has: the trace knows, but of inputs only."""
    assert value.shape is not None
    return len(value.shape)


def along(value: Value, rank: int, axis: int, matrix: Value) -> Value:
    """Each line along an axis, counted from the end, as the matrix maps it.

    All lines are rows of one plane: ONNX Runtime refuses to multiply a plane with an empty batch of others.
    """
    order = [*range(rank)]
    order[axis], order[-1] = order[-1], order[axis]
    lines = op.Transpose(value, perm=order)
    around = op.Shape(lines, end=-1)
    plane = op.Concat(op.ReduceProd(around, keepdims=1), size_of(lines, -1), axis=0)
    mapped = op.MatMul(op.Reshape(lines, plane, allowzero=1), op.Transpose(matrix, perm=[1, 0]))
    back = op.Reshape(mapped, op.Concat(around, size_of(mapped, -1), axis=0), allowzero=1)
    return op.Transpose(back, perm=order)
