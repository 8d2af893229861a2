"""Fewer axes. torch.onnx takes out axes of any size, which runtimes refuse, and counts -1 for axes laid together, which
nobody can tell where another is 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.lower.operators.building import Value, op, rank_of

__all__ = ["COMPLEX", "TRANSLATIONS"]


def squeeze(self: Value, dim: int | Sequence[int]) -> Value:
    """The value without those of the axes whose size is 1."""
    return _squeezed(self, rank_of(self), [dim] if isinstance(dim, int) else list(dim))


def squeeze_complex(self: Value, dim: int | Sequence[int]) -> Value:
    """As `squeeze`; the pair behind the axes is none of them."""
    return _squeezed(self, rank_of(self) - 1, [dim] if isinstance(dim, int) else list(dim))


def squeeze_all_complex(self: Value) -> Value:
    """Without any axis of size 1."""
    rank = rank_of(self) - 1
    return _squeezed(self, rank, [*range(rank)])


def _squeezed(value: Value, rank: int, dims: Sequence[int]) -> Value:
    axes = sorted({axis % rank for axis in dims}) if rank else []
    ones = [axis for axis in axes if value.shape[axis] == 1]
    open_ones = [axis for axis in axes if not isinstance(value.shape[axis], int)]
    if not open_ones:
        return op.Squeeze(value, ones) if ones else op.Identity(value)
    # Whether such an axis goes is known when the model runs.
    shape = op.Shape(value)
    asked = op.Constant(value_ints=[int(axis in axes) for axis in range(rank_of(value))])
    kept = op.Not(op.And(op.Equal(asked, 1), op.Equal(shape, 1)))
    return op.Reshape(value, op.Compress(shape, kept), allowzero=1)


def flatten(self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """The value with some of its axes laid together."""
    rank = rank_of(self)
    if rank == 0:
        return op.Reshape(self, op.Constant(value_ints=[1]))
    start, end = start_dim % rank, end_dim % rank + 1
    if end - start == 1:
        return op.Identity(self)
    if end - start == rank:
        return op.Reshape(self, op.Constant(value_ints=[-1]))
    if (start, end) in ((1, rank), (0, rank - 1)):
        return op.Flatten(self, axis=start or end)
    together = list(self.shape[start:end])
    count = (
        op.Constant(value_ints=[math.prod(together)])
        if all(isinstance(size, int) for size in together)
        else op.ReduceProd(op.Shape(self, start=start, end=end), keepdims=1)
    )
    before = [op.Shape(self, start=0, end=start)] if start else []
    behind = [op.Shape(self, start=end)] if end < rank else []
    return op.Reshape(self, op.Concat(*before, count, *behind, axis=0), allowzero=1)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.squeeze.dim: squeeze,
    torch.ops.aten.squeeze.dims: squeeze,
    torch.ops.aten.flatten.using_ints: flatten,
}
COMPLEX: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.squeeze.dim: squeeze_complex,
    torch.ops.aten.squeeze.dims: squeeze_complex,
    torch.ops.aten.squeeze.default: squeeze_all_complex,
}
