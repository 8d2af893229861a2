"""Resizing images to computed sizes, with PyTorch's own arithmetic for which places are taken, and how much of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import torch

from anyshape.lower.operators.building import DOUBLE, FLOAT, INT64, Value, along, op, rank_of, scalar, size_of
from anyshape.torch_bridge import torchlib

__all__ = ["TRANSLATIONS"]

Sizes: TypeAlias = Sequence[Value] | None
Factors: TypeAlias = Sequence[float] | None


def nearest(input: Value, output_size: Sizes, scale_factors: Factors) -> Value:
    """Each place of the result is that of the input at ``floor(place * scale)``."""
    return _taken(0.0, input, output_size, scale_factors)


def nearest_exact(input: Value, output_size: Sizes, scale_factors: Factors) -> Value:
    """As `nearest`, from the middle of each place."""
    return _taken(0.5, input, output_size, scale_factors)


def _taken(offset: float, input: Value, output_size: Sizes, scale_factors: Factors) -> Value:
    if (
        scale_factors is not None
        and offset == 0.0
        and all(_is_integer(factor) and factor in (2.0, 4.0) for factor in scale_factors)
    ):
        # These powers of two are exact everywhere, and runtimes have fast ways for them.
        scales = op.Constant(value_floats=[1.0, 1.0, *scale_factors])
        return op.Resize(
            input,
            None,
            scales,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    copies = offset == 0.0 and rank_of(input) == 4
    for axis, wanted, scale in _scaled_axes(input, output_size, scale_factors, copies):
        given = scalar(size_of(input, axis))
        places = op.Cast(op.Range(0, wanted, 1), to=FLOAT)
        taken = op.Floor(op.Mul(op.Add(places, offset), scale))
        input = op.Gather(input, op.Min(op.Cast(taken, to=INT64), op.Sub(given, 1)), axis=axis)
    return input


def _axes(value: Value, output_size: Sizes, scale_factors: Factors) -> list[tuple[int, Value, float | None]]:
    """For each axis that is resized, from the last one on: its wanted size, and the factor that was given instead."""
    if output_size is not None:
        return [(-1 - n, scalar(size), None) for n, size in enumerate(reversed(list(output_size)))]
    assert scale_factors is not None
    made: list[tuple[int, Value, float | None]] = []
    for number, factor in enumerate(reversed(list(scale_factors))):
        size = op.Cast(size_of(value, -1 - number), to=DOUBLE)
        # 10 * 0.7 is 7 in PyTorch's float64, and a little less in float32.
        exact = (
            op.Constant(value=ir.tensor(np.asarray(factor, np.float64)))
            if isinstance(factor, (int, float))
            else op.Cast(factor, to=DOUBLE)
        )
        wanted = op.Cast(op.Floor(op.Mul(size, exact)), to=INT64)
        made.append((-1 - number, scalar(wanted), factor))
    return made


def _scaled_axes(
    value: Value, output_size: Sizes, scale_factors: Factors, copies: bool
) -> list[tuple[int, Value, Value]]:
    """The axes with their wanted sizes, and how many places of the input there are for one of the result.

    Some of PyTorch's ways to resize copy an axis that keeps its size, whatever the factor.
    """
    made = []
    for axis, wanted, factor in _axes(value, output_size, scale_factors):
        given = scalar(size_of(value, axis))
        if factor is None:
            scale = op.Div(op.Cast(given, to=FLOAT), op.Cast(op.Max(wanted, 1), to=FLOAT))
        else:
            scale = (
                op.Constant(value_float=1.0 / factor)
                if isinstance(factor, (int, float))
                else op.Div(op.Constant(value_float=1.0), factor)
            )
            if copies:
                scale = op.Where(op.Equal(given, wanted), op.Constant(value_float=1.0), scale)
        made.append((axis, wanted, scale))
    return made


def interpolated(target: Any, taps: Callable[[Value], list[tuple[Value, Value]]]) -> Callable[..., Value]:
    """Resizing between neighbours: as torch.onnx has it, but by PyTorch's arithmetic where a factor is no integer.

    They differ where an axis keeps its size all the same: what is copied there, and what is moved by the factor.
    """

    def translate(input: Value, output_size: Sizes, align_corners: bool, scale_factors: Factors) -> Value:
        stock = torchlib.onnx_function(target, False)
        if stock is not None and all(map(_is_integer, scale_factors or ())):
            return stock(input, output_size, align_corners, scale_factors)
        for axis, wanted, scale in _scaled_axes(input, output_size, scale_factors, taps is _two):
            given = scalar(size_of(input, axis))
            places = op.Cast(op.Range(0, wanted, 1), to=FLOAT)
            if align_corners:
                source = op.Mul(places, _scale_between_corners(given, wanted))
            else:
                source = op.Sub(op.Mul(op.Add(places, 0.5), scale), 0.5)
            input = _mixed(input, axis, given, taps(source))
        return input

    return translate


def _is_integer(factor: Value) -> bool:
    return isinstance(factor, (int, float)) and float(factor).is_integer()


def _mixed(value: Value, axis: int, given: Value, taps: list[tuple[Value, Value]]) -> Value:
    """The sum of places along an axis, each with its weight; what is outside is the nearest that is inside."""
    total = None
    for place, weight in taps:
        inside = op.Max(op.Min(op.Cast(place, to=INT64), op.Sub(given, 1)), 0)
        column = op.CastLike(op.Reshape(weight, [-1, *[1] * (-1 - axis)]), value)
        part = op.Mul(op.Gather(value, inside, axis=axis), column)
        total = part if total is None else op.Add(total, part)
    return total


def _two(source: Value) -> list[tuple[Value, Value]]:
    source = op.Max(source, op.Constant(value_float=0.0))
    low = op.Floor(source)
    beyond = op.Sub(source, low)
    return [(low, op.Sub(1.0, beyond)), (op.Add(low, 1.0), beyond)]


def _four(source: Value) -> list[tuple[Value, Value]]:
    """Keys' kernel with a = -0.75."""
    low = op.Floor(source)
    beyond = op.Sub(source, low)
    return [
        (op.Sub(low, 1.0), _far(op.Add(beyond, 1.0))),
        (low, _near(beyond)),
        (op.Add(low, 1.0), _near(op.Sub(1.0, beyond))),
        (op.Add(low, 2.0), _far(op.Sub(2.0, beyond))),
    ]


def _near(distance: Value) -> Value:
    return op.Add(op.Mul(op.Mul(op.Sub(op.Mul(distance, 1.25), 2.25), distance), distance), 1.0)


def _far(distance: Value) -> Value:
    inner = op.Sub(op.Mul(op.Add(op.Mul(distance, -0.75), 3.75), distance), 6.0)
    return op.Add(op.Mul(inner, distance), 3.0)


def bilinear_antialiased(
    input: Value, output_size: Sizes, align_corners: bool, scale_factors: Factors
) -> Value:
    """Resizing with antialias: a matrix of weights for the width, and one for the height."""
    return _weighted(_triangle, 1.0, input, output_size, align_corners, scale_factors)


def bicubic_antialiased(
    input: Value, output_size: Sizes, align_corners: bool, scale_factors: Factors
) -> Value:
    """As `bilinear_antialiased`, over twice the reach."""
    return _weighted(_cubic, 2.0, input, output_size, align_corners, scale_factors)


def _weighted(
    kernel: Callable[[Value], Value],
    reach: float,
    input: Value,
    output_size: Sizes,
    align_corners: bool,
    scale_factors: Factors,
) -> Value:
    for axis, wanted, scale in _scaled_axes(input, output_size, scale_factors, copies=True):
        given = scalar(size_of(input, axis))
        if align_corners:
            scale = _scale_between_corners(given, wanted)
        weights = op.CastLike(_weights(kernel, reach, given, wanted, scale), input)
        input = along(input, 4, axis, weights)
    return input


def _scale_between_corners(given: Value, wanted: Value) -> Value:
    steps = op.Cast(op.Max(op.Sub(wanted, 1), 1), to=FLOAT)
    scale = op.Div(op.Cast(op.Sub(given, 1), to=FLOAT), steps)
    return op.Where(op.Greater(wanted, 1), scale, op.Constant(value_float=0.0))


def _weights(
    kernel: Callable[[Value], Value], reach: float, given: Value, wanted: Value, scale: Value
) -> Value:
    """How much each place of the result takes of each place of the input; the rows sum to one."""
    wide = op.Max(scale, op.Constant(value_float=1.0))
    centers = op.Mul(op.Add(op.Unsqueeze(op.Cast(op.Range(0, wanted, 1), to=FLOAT), [1]), 0.5), scale)
    places = op.Unsqueeze(op.Cast(op.Range(0, given, 1), to=FLOAT), [0])
    support = op.Mul(wide, reach)
    first = op.Floor(op.Add(op.Sub(centers, support), 0.5))
    behind = op.Floor(op.Add(op.Add(centers, support), 0.5))
    inside = op.And(op.GreaterOrEqual(places, first), op.Less(places, behind))
    raw = kernel(op.Abs(op.Div(op.Add(op.Sub(places, centers), 0.5), wide)))
    raw = op.Where(inside, raw, op.Constant(value_float=0.0))
    return op.Div(raw, op.ReduceSum(raw, [1], keepdims=1))


def _triangle(distance: Value) -> Value:
    return op.Max(op.Sub(1.0, distance), op.Constant(value_float=0.0))


def _cubic(distance: Value) -> Value:
    """Keys' kernel with a = -0.5."""
    near = op.Add(op.Mul(op.Mul(op.Sub(op.Mul(distance, 1.5), 2.5), distance), distance), 1.0)
    inner = op.Sub(op.Mul(op.Add(op.Mul(distance, -0.5), 2.5), distance), 4.0)
    far = op.Add(op.Mul(inner, distance), 2.0)
    beyond = op.Where(op.Less(distance, 2.0), far, op.Constant(value_float=0.0))
    return op.Where(op.Less(distance, 1.0), near, beyond)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.upsample_nearest1d.vec: nearest,
    torch.ops.aten.upsample_nearest2d.vec: nearest,
    torch.ops.aten.upsample_nearest3d.vec: nearest,
    torch.ops.aten._upsample_nearest_exact1d.vec: nearest_exact,
    torch.ops.aten._upsample_nearest_exact2d.vec: nearest_exact,
    torch.ops.aten._upsample_nearest_exact3d.vec: nearest_exact,
    torch.ops.aten.upsample_linear1d.vec: interpolated(torch.ops.aten.upsample_linear1d.vec, _two),
    torch.ops.aten.upsample_bilinear2d.vec: interpolated(torch.ops.aten.upsample_bilinear2d.vec, _two),
    torch.ops.aten.upsample_trilinear3d.vec: interpolated(torch.ops.aten.upsample_trilinear3d.vec, _two),
    torch.ops.aten.upsample_bicubic2d.vec: interpolated(torch.ops.aten.upsample_bicubic2d.vec, _four),
    torch.ops.aten._upsample_bilinear2d_aa.vec: bilinear_antialiased,
    torch.ops.aten._upsample_bicubic2d_aa.vec: bicubic_antialiased,
}
