"""Looking up, and writing to computed places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from anyshape.lower.operators.building import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT64,
    UINT8,
    Value,
    one_number,
    op,
    rank_of,
)

__all__ = ["TRANSLATIONS"]

REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def masked_select(self: Value, mask: Value) -> Value:
    """The values where a mask holds, in a row."""
    shape = op.Shape(op.Add(op.Cast(mask, to=INT64), op.Cast(op.Equal(self, self), to=INT64)))
    return op.Compress(op.Reshape(op.Expand(self, shape), [-1]), op.Reshape(op.Expand(mask, shape), [-1]))


def copy(self: Value, src: Value, non_blocking: bool = False) -> Value:
    """What is written, spread to the shape of what it is written to."""
    return op.Expand(op.CastLike(src, self), op.Shape(self))


def histc(self: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """How many are in each of the bins between the ends; by default these are the smallest and the largest."""
    flat = op.Reshape(self, [-1])
    if min != max:
        low, high = (op.CastLike(float(end), self) for end in (min, max))
    else:
        low, high = op.ReduceMin(flat, keepdims=0), op.ReduceMax(flat, keepdims=0)
        one, alike = op.CastLike(1.0, self), op.Equal(low, high)
        low, high = op.Where(alike, op.Sub(low, one), low), op.Where(alike, op.Add(high, one), high)
    inside = op.And(op.GreaterOrEqual(flat, low), op.LessOrEqual(flat, high))
    scaled = op.Div(op.Mul(op.Sub(flat, low), op.CastLike(float(bins), self)), op.Sub(high, low))
    places = op.Cast(op.Where(inside, scaled, op.CastLike(0.0, self)), to=INT64)
    empty = op.Expand(op.CastLike(0.0, self), [bins])
    return op.ScatterElements(
        empty, op.Min(places, bins - 1), op.CastLike(inside, self), axis=0, reduction="add"
    )


def bincount(self: Value, weights: Value | None = None, minlength: Value = 0) -> Value:
    """How often each number occurs, or the sum of its weights; at least for so many numbers."""
    least = op.Sub(one_number(minlength), 1)
    longest = op.Add(op.ReduceMax(op.Concat(op.Cast(self, to=INT64), least, axis=0)), 1)
    if weights is None:
        weights = op.Expand(op.Constant(value_int=1), op.Shape(self))
    elif weights.dtype not in (FLOAT, DOUBLE):
        weights = op.Cast(weights, to=DOUBLE)
    empty = op.Expand(op.CastLike(0, weights), longest)
    return op.ScatterElements(empty, self, weights, axis=0, reduction="add")


def scatter_reduce(
    self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    """Each value of ``src`` reduced into its place; without ``include_self`` those places start anew."""
    rank = rank_of(self)
    src = op.Slice(
        src, op.Constant(value_ints=[0] * rank), op.Shape(index), op.Constant(value_ints=[*range(rank)])
    )
    if not include_self:
        neutral = op.Expand(op.CastLike(_neutral(reduce, self), self), op.Shape(index))
        self = op.ScatterElements(self, index, neutral, axis=dim)
    total = op.ScatterElements(self, index, src, axis=dim, reduction=REDUCTIONS[reduce])
    if reduce != "mean":
        return total
    ones = op.Expand(op.CastLike(1, self), op.Shape(index))
    start = op.Expand(op.CastLike(int(include_self), self), op.Shape(self))
    count = op.ScatterElements(start, index, ones, axis=dim, reduction="add")
    return op.Div(total, op.Max(count, op.CastLike(1, self)))


def _neutral(reduce: str, like: Value) -> Value:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    dtype = np.dtype(like.dtype.numpy())
    if not np.issubdtype(dtype, np.integer):
        return op.Constant(value_float=-np.inf if reduce == "amax" else np.inf)
    limits = np.iinfo(dtype)
    return op.Constant(value_int=int(limits.min if reduce == "amax" else limits.max))


def index_reduce(
    self: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    """As `scatter_reduce`, a whole slice for each index."""
    shape = [1] * rank_of(self)
    shape[dim] = -1
    places = op.Expand(op.Reshape(index, shape), op.Shape(source))
    return scatter_reduce(self, dim, places, source, reduce, include_self)


def diagonal_scatter(self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The tensor with one of its diagonals replaced: where a row and a column meet on it, by row."""
    if self.dtype == BOOL:  # which ONNX Runtime does not choose between
        self, src = op.Cast(self, to=UINT8), op.Cast(src, to=UINT8)
        return op.Cast(diagonal_scatter(self, src, offset, dim1, dim2), to=BOOL)
    rank = rank_of(self)
    dim1, dim2 = dim1 % rank, dim2 % rank
    rows, columns = (
        op.Range(0, op.Squeeze(op.Shape(self, start=axis, end=axis + 1), [0]), 1) for axis in (dim1, dim2)
    )
    places = op.Add(rows, min(offset, 0))  # of each row on the diagonal; rows that it does not meet take any
    count = op.Shape(src, start=-1)
    # One more, as there may be none.
    last = op.Concat(op.Shape(src, end=-1), op.Constant(value_ints=[1]), axis=0)
    more = op.Concat(src, op.Expand(op.CastLike(0, src), last), axis=-1)
    inside = op.Where(op.And(op.GreaterOrEqual(places, 0), op.Less(places, count)), places, count)
    by_row = op.Gather(more, inside, axis=rank - 2)
    others = [axis for axis in range(rank) if axis not in (dim1, dim2)]
    order = [*others, dim1]  # the axes that the values by row have, in their order
    by_row = op.Transpose(by_row, perm=[order.index(axis) for axis in range(rank) if axis != dim2])
    met = op.Equal(op.Add(op.Unsqueeze(rows, [1]), offset), op.Unsqueeze(columns, [0]))
    if dim1 > dim2:
        met = op.Transpose(met, perm=[1, 0])
    met = op.Unsqueeze(met, op.Constant(value_ints=others)) if others else met
    return op.Where(met, op.Unsqueeze(by_row, [dim2]), self)


def narrow(self: Value, dim: int, start: Value, length: Value) -> Value:
    """So many from a place on; a negative one, also one that is computed, counts from the end."""
    begin, count = one_number(start), one_number(length)
    size = op.Slice(op.Shape(self), [dim], [dim + 1] if dim != -1 else [2**63 - 1], [0])
    begin = op.Where(op.Less(begin, 0), op.Add(begin, size), begin)
    return op.Slice(self, begin, op.Add(begin, count), [dim])


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.masked_select.default: masked_select,
    torch.ops.aten.bincount.default: bincount,
    torch.ops.aten.copy.default: copy,
    torch.ops.aten.diagonal_scatter.default: diagonal_scatter,
    torch.ops.aten.histc.default: histc,
    torch.ops.aten.scatter_reduce.two: scatter_reduce,
    torch.ops.aten.index_reduce.default: index_reduce,
    torch.ops.aten.narrow.default: narrow,
}
