"""Products, extremes and more of all that came before: ONNX scans only sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from anyshape.lower.operators.building import Value, op, rank_of, scalar, size_of

__all__ = ["TRANSLATIONS"]


def cumprod(self: Value, dim: int, dtype: int | None = None) -> Value:
    """The product up to each place."""
    last, turned = _last(self, dim)
    if dtype is not None:
        last = op.Cast(last, to=dtype)
    return _back(op.ReduceProd(_before(last, op.CastLike(1, last)), [-1], keepdims=0), turned)


def cummax(self: Value, dim: int) -> tuple[Value, Value]:
    """The largest up to each place, and where it was last."""
    return _extreme(self, dim, 1)


def cummin(self: Value, dim: int) -> tuple[Value, Value]:
    """The smallest up to each place, and where it was last."""
    return _extreme(self, dim, -1)


def logcumsumexp(self: Value, dim: int) -> Value:
    """The logarithm of the sum of exponentials up to each place."""
    last, turned = _last(self, dim)
    nothing = op.CastLike(op.Constant(value_float=-math.inf), last)
    return _back(op.ReduceLogSumExp(_before(last, nothing), [-1], keepdims=0), turned)


def _extreme(value: Value, dim: int, sign: int) -> tuple[Value, Value]:
    last, turned = _last(value, dim)
    if sign < 0:
        last = op.Neg(last)
    # What is not yet there must not win: the first place is always there.
    first = op.Slice(last, [0], [1], [-1])
    seen = _before(last, op.Unsqueeze(first, [-1]))
    largest = op.ReduceMax(seen, [-1], keepdims=0)
    size = scalar(size_of(last, -1))
    places = op.Range(0, size, 1)
    there = op.And(op.Equal(seen, op.Unsqueeze(largest, [-1])), _triangle(size))
    where = op.ReduceMax(op.Where(there, places, op.Constant(value_int=-1)), [-1], keepdims=0)
    return _back(op.Neg(largest) if sign < 0 else largest, turned), _back(where, turned)


def _before(value: Value, otherwise: Value) -> Value:
    """For each place of the last axis, the whole axis, with ``otherwise`` behind that place."""
    size = scalar(size_of(value, -1))
    return op.Where(_triangle(size), op.Unsqueeze(value, [-2]), otherwise)


def _triangle(size: Value) -> Value:
    places = op.Range(0, size, 1)
    return op.LessOrEqual(op.Unsqueeze(places, [0]), op.Unsqueeze(places, [1]))


def _last(value: Value, dim: int) -> tuple[Value, list[int]]:
    """The value with an axis moved to the end, and the order of axes that moves it back."""
    axes = [*range(rank_of(value))]
    axis = axes.pop(dim)
    order = [*axes, axis]
    back = [order.index(place) for place in range(len(order))]
    return op.Transpose(value, perm=order), back


def _back(value: Value, order: list[int]) -> Value:
    return op.Transpose(value, perm=order)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.cumprod.default: cumprod,
    torch.ops.aten.cummax.default: cummax,
    torch.ops.aten.cummin.default: cummin,
    torch.ops.aten.logcumsumexp.default: logcumsumexp,
}
