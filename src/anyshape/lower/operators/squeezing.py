"""Taking out axes of size 1: torch.onnx takes out axes of any size, which runtimes refuse."""

from __future__ import annotations

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


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.squeeze.dim: squeeze,
    torch.ops.aten.squeeze.dims: squeeze,
}
COMPLEX: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.squeeze.dim: squeeze_complex,
    torch.ops.aten.squeeze.dims: squeeze_complex,
    torch.ops.aten.squeeze.default: squeeze_all_complex,
}
