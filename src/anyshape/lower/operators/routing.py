"""Operators whose result has as many rows as the values say: places of true entries, tokens sent to experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from onnxscript.onnx_opset import opset18

__all__ = ["OF_LIBRARIES", "TRANSLATIONS"]

Value: TypeAlias = Any
op: Any = opset18


def places(condition: Value) -> list[Value]:
    """torch.where with a condition only: the places of its true entries, axis by axis."""
    found = op.NonZero(condition)
    return [op.Squeeze(op.Slice(found, [axis], [axis + 1], [0]), [0]) for axis in range(len(condition.shape))]


def grouped_matmul(
    self: Value, mat2: Value, offs: Value = None, bias: Value = None, out_dtype: int = -1
) -> Value:
    """Rows in groups, each group times a matrix of its own; ``offs`` are the ends of the groups."""
    if offs is None or len(self.shape) != 2 or len(mat2.shape) != 3 or bias is not None:
        raise NotImplementedError("a grouped matrix product other than rows in groups")
    ends = op.Cast(offs, to=7)
    parts, start = [], op.Constant(value_ints=[0])
    for group in range(int(mat2.shape[0])):
        end = op.Slice(ends, [group], [group + 1], [0])
        rows = op.Slice(self, start, end, [0])
        matrix = op.Squeeze(op.Slice(mat2, [group], [group + 1], [0]), [0])
        parts.append(op.MatMul(rows, matrix))
        start = end
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.where.default: places,
    torch.ops.aten.nonzero_numpy.default: places,
    torch.ops.aten._grouped_mm.default: grouped_matmul,
}
"""Translations of operators that route by value."""

OF_LIBRARIES: dict[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": grouped_matmul,  # a loop over experts that is hidden in an operator
}
"""Translations of operators that a library defines once it is imported."""
