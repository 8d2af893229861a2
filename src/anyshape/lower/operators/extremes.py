"""The largest and the smallest entry: torch.onnx wants axes for them, PyTorch takes none for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.lower.operators.building import Value, op

__all__ = ["TRANSLATIONS"]


def amax(self: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    """The largest entry along some axes, or along all."""
    return op.ReduceMax(self, _axes(dim), keepdims=int(keepdim))


def amin(self: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    """The smallest entry along some axes, or along all."""
    return op.ReduceMin(self, _axes(dim), keepdims=int(keepdim))


def _axes(dim: Sequence[int]) -> Value:
    return op.Constant(value_ints=list(dim)) if dim else None


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.amax.default: amax,
    torch.ops.aten.amin.default: amin,
}
