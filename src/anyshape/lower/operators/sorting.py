"""Ranks, medians, and places in sorted sequences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from anyshape.lower.operators.building import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Value,
    one_number,
    op,
    rank_of,
    size_of,
)

__all__ = ["TRANSLATIONS"]


def searchsorted(
    sorted_sequence: Value,
    self: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Where each value would go: how many of the sequence are before it."""
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    sequence, value = op.Unsqueeze(sorted_sequence, [-2]), op.Unsqueeze(self, [-1])
    before = op.LessOrEqual(sequence, value) if right or side == "right" else op.Less(sequence, value)
    count = op.ReduceSum(op.Cast(before, to=INT64), [-1], keepdims=0)
    return op.Cast(count, to=INT32) if out_int32 else count


def bucketize(self: Value, boundaries: Value, out_int32: bool = False, right: bool = False) -> Value:
    """As `searchsorted`, the other way round."""
    return searchsorted(op.CastLike(boundaries, self), self, out_int32, right)


def isin(elements: Value, test_elements: Value, assume_unique: bool = False, invert: bool = False) -> Value:
    """Whether each element is among the others."""
    same = op.Equal(op.Unsqueeze(elements, [-1]), op.Reshape(test_elements, [-1]))
    last = [rank_of(elements)]  # ONNX Runtime does not sum an empty axis that is counted from the end
    found = op.Greater(op.ReduceSum(op.Cast(same, to=INT64), last, keepdims=0), 0)
    return op.Not(found) if invert else found


def sort(self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """ONNX's TopK keeps the order of equal values."""
    if not rank_of(self):
        return op.Identity(self), op.Constant(value_int=0)
    return topk(self, size_of(self, dim), dim, descending)


def stable_sort(
    self: Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    """As `sort`."""
    return sort(self, dim, descending)


def topk(
    self: Value, k: Value, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """The first few in order, and where they are."""
    places = _ranked(self, k, dim, largest)
    return op.GatherElements(self, places, axis=dim), places


def kthvalue(self: Value, k: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest along an axis, and where it is."""
    places = op.Gather(_ranked(self, k, dim, largest=False), op.Constant(value_ints=[-1]), axis=dim)
    return _at(self, places, dim, keepdim)


def median(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of the two in the middle, and where it is; where some are not numbers, the first of these."""
    _, places = kthvalue(self, op.Div(op.Add(size_of(self, dim), 1), 2), dim, keepdim=True)
    if self.dtype.is_floating_point():
        unknown = op.Cast(op.IsNaN(self), to=INT32)
        some = op.Greater(op.ReduceMax(unknown, [dim], keepdims=1), op.Constant(value=ir.tensor(np.int32(0))))
        places = op.Where(some, op.ArgMax(unknown, axis=dim, keepdims=1), places)
    return _at(self, places, dim, keepdim)


def nanmedian(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """As `median`, of the numbers only; not a number where there is none."""
    if not self.dtype.is_floating_point():
        return median(self, dim, keepdim)
    known = op.ReduceSum(op.Cast(op.Not(op.IsNaN(self)), to=INT64), [dim], keepdims=1)
    middle = op.Div(op.Sub(op.Max(known, 1), 1), 2)
    ranked = _ranked(self, size_of(self, dim), dim, largest=False)
    return _at(self, op.GatherElements(ranked, middle, axis=dim), dim, keepdim)


def _ranked(value: Value, count: Value, dim: int, largest: bool) -> Value:
    """The places of the first few in order. What is not a number is larger than all; runtimes put it anywhere."""
    if value.dtype.is_floating_point():
        wide = value if value.dtype in (FLOAT, DOUBLE) else op.Cast(value, to=FLOAT)
        value = op.Where(op.IsNaN(wide), op.CastLike(op.Constant(value_float=math.inf), wide), wide)
    elif value.dtype not in (INT32, INT64):
        value = op.Cast(value, to=INT64)
    return op.TopK(value, one_number(count), axis=dim, largest=int(largest))[1]


def _at(value: Value, places: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The values at one place of each line."""
    taken = op.GatherElements(value, places, axis=dim)
    return (taken, places) if keepdim else (op.Squeeze(taken, [dim]), op.Squeeze(places, [dim]))


def median_of_all(self: Value) -> Value:
    """The median of all numbers."""
    return median(_flat(self), 0)[0]


def nanmedian_of_all(self: Value) -> Value:
    """The median of all that are numbers."""
    return nanmedian(_flat(self), 0)[0]


def _flat(value: Value) -> Value:
    flat = op.Reshape(value, [-1])
    flat.dtype = value.dtype
    return flat


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.bucketize.Tensor: bucketize,
    torch.ops.aten.isin.Tensor_Tensor: isin,
    torch.ops.aten.sort.default: sort,
    torch.ops.aten.sort.stable: stable_sort,
    torch.ops.aten.topk.default: topk,
    torch.ops.aten.kthvalue.default: kthvalue,
    torch.ops.aten.median.dim: median,
    torch.ops.aten.median.default: median_of_all,
    torch.ops.aten.nanmedian.dim: nanmedian,
    torch.ops.aten.nanmedian.default: nanmedian_of_all,
}
