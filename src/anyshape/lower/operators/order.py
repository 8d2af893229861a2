"""Rolling and repeating, by amounts that depend on the sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.lower.operators.building import INT64, Value, one_number, op, scalar, size_of

__all__ = ["TRANSLATIONS"]


def roll(self: Value, shifts: Sequence[Value], dims: Sequence[int] = ()) -> Value:
    """torch.roll by any shift, one that depends on the sizes included."""
    if not dims:
        flat = _rolled(op.Reshape(self, [-1]), shifts[0], 0)
        return op.Reshape(flat, op.Shape(self), allowzero=1)
    for shift, axis in zip(shifts, dims, strict=True):
        self = _rolled(self, shift, axis)
    return self


def _rolled(value: Value, shift: Value, axis: int) -> Value:
    size = size_of(value, axis)
    # Where the axis is empty any cut will do; 1 keeps the remainder defined.
    cut = op.Mod(op.Sub([0], one_number(shift)), op.Clip(size, 1))
    head = op.Slice(value, [0], cut, [axis])
    tail = op.Slice(value, cut, size, [axis])
    return op.Concat(tail, head, axis=axis)


def repeat_interleave(
    self: Value, repeats: Value, dim: int | None = None, output_size: int | None = None
) -> Value:
    """Each place taken as often as a size says."""
    if dim is None:
        self, dim = op.Reshape(self, [-1]), 0
    count = scalar(repeats)
    long = op.Range(0, op.Mul(scalar(size_of(self, dim)), count), 1)
    return op.Gather(self, op.Div(long, op.Max(count, 1)), axis=dim)


def rounded(number: Value, ndigits: None = None) -> Value:
    """Python's round() of a computed size: halves go to the even number, in ONNX as well."""
    return op.Cast(op.Round(number), to=INT64)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.roll.default: roll,
    torch.ops.aten.repeat_interleave.self_int: repeat_interleave,
    round: rounded,
}
