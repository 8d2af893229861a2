"""Ranks, medians, and places in sorted sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anyshape.lower.operators.building import INT32, INT64, Value, one_number, op, size_of

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
    found = op.Greater(op.ReduceSum(op.Cast(same, to=INT64), [-1], keepdims=0), 0)
    return op.Not(found) if invert else found


def stable_sort(
    self: Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    """ONNX's TopK keeps the order of equal values."""
    values, places = op.TopK(self, size_of(self, dim), axis=dim, largest=int(descending))
    return values, places


def kthvalue(self: Value, k: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest along an axis, and where it is."""
    values, places = op.TopK(self, one_number(k), axis=dim, largest=0)
    last = op.Constant(value_ints=[-1]) if keepdim else op.Constant(value_int=-1)
    return op.Gather(values, last, axis=dim), op.Gather(places, last, axis=dim)


def median(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of the two in the middle, and where it is."""
    middle = op.Div(op.Add(size_of(self, dim), 1), 2)
    return kthvalue(self, middle, dim, keepdim)


def median_of_all(self: Value) -> Value:
    """The median of all numbers."""
    return median(op.Reshape(self, [-1]), 0)[0]


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.bucketize.Tensor: bucketize,
    torch.ops.aten.isin.Tensor_Tensor: isin,
    torch.ops.aten.sort.stable: stable_sort,
    torch.ops.aten.kthvalue.default: kthvalue,
    torch.ops.aten.median.dim: median,
    torch.ops.aten.median.default: median_of_all,
}
