"""Rolling, repeating, cutting and counting, by amounts that depend on the sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from anyshape.lower.operators.building import DOUBLE, FLOAT, INT64, Value, one_number, op, scalar, size_of
from anyshape.torch_bridge import torchlib

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


def chunk(self: Value, chunks: int, dim: int = 0) -> list[Value]:
    """As many pieces as there may be; of a short axis PyTorch makes fewer, and nobody asks for the others."""
    size = self.shape[dim]
    if isinstance(size, int) and size % chunks == 0:
        if chunks == 1:
            return [op.Identity(self)]
        return list(op.Split(self, axis=dim, num_outputs=chunks))
    piece = op.Div(op.Add(size_of(self, dim), chunks - 1), chunks)
    ends = [op.Mul(piece, number) for number in range(chunks + 1)]
    return [op.Slice(self, start, end, [dim]) for start, end in itertools.pairwise(ends)]


def linspace(
    start: Value,
    end: Value,
    steps: Value,
    dtype: int = -1,
    layout: str = "",
    device: str = "",
    pin_memory: bool = False,
) -> Value:
    """Even steps from the one to the other; a single one is the start."""
    kind = ir.DataType(dtype) if dtype not in (-1, None) else FLOAT
    if not kind.is_floating_point():
        stock = torchlib.onnx_function(torch.ops.aten.linspace.default, False)
        assert stock is not None
        return stock(start, end, steps, dtype=dtype)
    count = scalar(steps)
    first, last = (_double(number) for number in (start, end))
    places = op.Cast(op.Range(0, count, 1), to=DOUBLE)
    intervals = op.Cast(op.Max(op.Sub(count, 1), op.Constant(value_int=1)), to=DOUBLE)
    return op.Cast(op.Add(first, op.Mul(op.Div(op.Sub(last, first), intervals), places)), to=kind)


def _double(number: Value) -> Value:
    if isinstance(number, (int, float)):
        return op.Constant(value=ir.tensor(np.asarray(number, np.float64)))
    return op.Cast(number, to=DOUBLE)


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
    torch.ops.aten.chunk.default: chunk,
    torch.ops.aten.linspace.default: linspace,
    torch.ops.aten.roll.default: roll,
    torch.ops.aten.repeat_interleave.self_int: repeat_interleave,
    round: rounded,
}
