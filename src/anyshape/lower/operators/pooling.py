"""Pooling into windows that depend on the sizes, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.lower.operators.building import Value, along, op, rank_of, scalar, size_of
from anyshape.torch_bridge import torchlib

__all__ = ["TRANSLATIONS"]


def adaptive_average_pool(self: Value, output_size: Sequence[Value]) -> Value:
    """Adaptive average pooling over the last axes: each is multiplied by the matrix that averages its windows."""
    rank = rank_of(self)
    for number, size in enumerate(reversed(list(output_size))):
        self = _averaged(self, rank, size, -1 - number)
    return self


def _averaged(value: Value, rank: int, wanted: Value, axis: int) -> Value:
    if isinstance(wanted, int) and wanted == 1:
        return op.ReduceMean(value, [axis], keepdims=1)
    start, end = _windows(value, wanted, axis)
    places = op.Unsqueeze(op.Range(0, scalar(size_of(value, axis)), 1), [0])
    inside = op.And(op.GreaterOrEqual(places, start), op.Less(places, end))
    averages = op.Div(op.CastLike(inside, value), op.CastLike(op.Sub(end, start), value))
    return along(value, rank, axis, averages)


def _windows(value: Value, wanted: Value, axis: int) -> tuple[Value, Value]:
    """Where each window of an axis starts and ends, as two columns."""
    given, count = scalar(size_of(value, axis)), scalar(wanted)
    divisor = op.Max(count, 1)  # no window at all: nothing to divide, but nothing to divide by either
    windows = op.Unsqueeze(op.Range(0, count, 1), [1])
    start = op.Div(op.Mul(windows, given), divisor)
    end = op.Div(op.Sub(op.Add(op.Mul(op.Add(windows, 1), given), divisor), 1), divisor)
    return start, end


def adaptive_max_pool(self: Value, output_size: Sequence[Value]) -> tuple[Value, Value]:
    """Adaptive max pooling over the last axes, one after another, with the place of each maximum in its plane."""
    places, step = None, op.Constant(value_int=1)
    for number, wanted in enumerate(reversed(list(output_size))):
        axis = -1 - number
        given = scalar(size_of(self, axis))
        start, end = _windows(self, wanted, axis)
        longest = op.ReduceMax(op.Sub(end, start), keepdims=0)
        # A window shorter than the longest repeats its last place: that changes neither maximum nor first place.
        taken = op.Min(op.Add(start, op.Unsqueeze(op.Range(0, longest, 1), [0])), op.Sub(end, 1))
        inside = op.Gather(self, taken, axis=axis)
        first = op.ArgMax(inside, axis=axis, keepdims=1)
        here = op.Mul(op.Add(op.Squeeze(first, [axis]), _column(start, number)), step)
        if places is not None:
            before = op.GatherElements(op.Gather(places, taken, axis=axis), first, axis=axis)
            here = op.Add(here, op.Squeeze(before, [axis]))
        self, places, step = op.ReduceMax(inside, [axis], keepdims=0), here, op.Mul(step, given)
    return self, places


def _column(start: Value, axes_behind: int) -> Value:
    return op.Reshape(start, [-1, *[1] * axes_behind])


def average_pool(
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """As torch.onnx has it, but for a divisor of one's own, which it leaves out."""
    stock = torchlib.onnx_function(torch.ops.aten.avg_pool2d.default, False)
    assert stock is not None
    if divisor_override is None:
        return stock(self, kernel_size, stride, padding, ceil_mode, count_include_pad)
    if ceil_mode:
        raise NotImplementedError("average pooling with ceil_mode and a divisor of one's own")
    area = kernel_size[0] * kernel_size[-1] if len(kernel_size) > 1 else kernel_size[0] ** 2
    made = stock(self, kernel_size, stride, padding, False, True)
    return op.Mul(made, op.CastLike(area / divisor_override, self))


def max_unpool(self: Value, indices: Value, output_size: Sequence[Value]) -> Value:
    """Maxima put back where they were, in planes that are zero elsewhere."""
    axes = len(output_size)
    lead = op.Shape(self, end=rank_of(self) - axes)
    plane = op.Concat(*[op.Reshape(size, [1]) for size in output_size], axis=0)
    flat = op.Concat(lead, op.Constant(value_ints=[-1]), axis=0)
    empty = op.Expand(op.CastLike(0, self), op.Concat(lead, op.ReduceProd(plane, keepdims=1), axis=0))
    filled = op.ScatterElements(empty, op.Reshape(indices, flat), op.Reshape(self, flat), axis=-1)
    return op.Reshape(filled, op.Concat(lead, plane, axis=0))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.adaptive_avg_pool1d.default: adaptive_average_pool,
    torch.ops.aten.adaptive_avg_pool2d.default: adaptive_average_pool,
    torch.ops.aten.adaptive_avg_pool3d.default: adaptive_average_pool,
    torch.ops.aten.adaptive_max_pool1d.default: adaptive_max_pool,
    torch.ops.aten.adaptive_max_pool2d.default: adaptive_max_pool,
    torch.ops.aten.adaptive_max_pool3d.default: adaptive_max_pool,
    torch.ops.aten.avg_pool2d.default: average_pool,
    torch.ops.aten.max_unpool2d.default: max_unpool,
}
