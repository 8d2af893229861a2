"""Distances between all pairs of points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from anyshape.lower.operators.building import Value, op, scalar, size_of

__all__ = ["TRANSLATIONS"]


def cdist(x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None) -> Value:
    """torch.cdist from the differences themselves: a matrix product would lose small distances to rounding."""
    apart = op.Abs(op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3])))
    if p == 0.0:
        return op.ReduceSum(op.CastLike(op.Greater(apart, op.CastLike(0.0, apart)), apart), [-1], keepdims=0)
    if p == 1.0:
        return op.ReduceSum(apart, [-1], keepdims=0)
    if p == 2.0:
        return op.ReduceL2(apart, [-1], keepdims=0)
    if math.isinf(p):
        return op.ReduceMax(apart, [-1], keepdims=0)
    total = op.ReduceSum(op.Pow(apart, op.CastLike(p, apart)), [-1], keepdims=0)
    return op.Pow(total, op.CastLike(1.0 / p, total))


def pdist(self: Value, p: float = 2.0) -> Value:
    """The distances of `cdist` above the diagonal, row by row."""
    places = op.Range(0, scalar(size_of(self, 0)), 1)
    above = op.Less(op.Unsqueeze(places, [1]), op.Unsqueeze(places, [0]))
    return op.Compress(op.Reshape(cdist(self, self, p), [-1]), op.Reshape(above, [-1]))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.cdist.default: cdist,
    torch.ops.aten.pdist.default: pdist,
}
