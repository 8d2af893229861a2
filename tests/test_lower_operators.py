"""Operators with a translation of our own, at many sizes against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import anyshape
from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy

Shape = tuple[int, ...]
Function = Callable[..., Any]


class Calls(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class CallsWithTwo(Calls):
    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y)


class CallsWithThree(Calls):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y, z)


def called(function: Function, inputs: int) -> nn.Module:
    return (Calls, CallsWithTwo, CallsWithThree)[inputs - 1](function)


def ids(x: Tensor, below: int) -> Tensor:
    """Integers below a size, out of floats: the inputs stay floats, whatever their size."""
    return (x.abs() * 1000).long() % below


def pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x)


def pooled_and_back(x: Tensor) -> Tensor:
    pooled, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(pooled, places, 2, output_size=x.shape[-2:])


def resized(mode: str, **options: Any) -> Function:
    return lambda x, y: F.interpolate(x, size=y.shape[-2:], mode=mode, **options)


def scaled(mode: str, factor: float, **options: Any) -> Function:
    return lambda x: F.interpolate(x, scale_factor=factor, mode=mode, **options)


IMAGE = [((2, 3, 14, 9),), ((1, 3, 2, 1),), ((2, 3, 29, 30),), ((1, 3, 1, 1),), ((3, 3, 4, 17),)]
IMAGES = [
    ((2, 3, 14, 9), (2, 3, 5, 21)),
    ((1, 3, 14, 1), (1, 3, 2, 2)),
    ((1, 3, 1, 1), (1, 3, 1, 7)),
    ((2, 3, 40, 33), (2, 3, 11, 8)),
]
MATRIX: list[tuple[Shape, ...]] = [((3, 10),), ((1, 1),), ((2, 7),), ((5, 33),)]
POINTS = [((3, 10, 4), (3, 7, 4)), ((1, 1, 4), (1, 1, 4)), ((2, 20, 4), (2, 25, 4))]
SCATTERED = [
    ((10, 4), (7,), (7, 4)),
    ((1, 4), (1,), (1, 4)),
    ((5, 4), (23,), (23, 4)),
    ((33, 4), (2,), (2, 4)),
]

# name: function, the example's shapes and the others'
CASES: dict[str, tuple[Function, list[tuple[Shape, ...]]]] = {
    "roll by half": (lambda x: torch.roll(x, x.shape[1] // 2, 1), [*MATRIX, ((3, 0),)]),
    "roll two axes": (lambda x: torch.roll(x, (2, -3), (0, -1)), MATRIX),
    "roll flat": (lambda x: torch.roll(x, 5), MATRIX),
    "repeat by a size": (lambda x: x.repeat_interleave(x.shape[0], 1), [*MATRIX, ((3, 0),)]),
    "repeat flat": (lambda x: x.repeat_interleave(3), MATRIX),
    "rounded size": (lambda x: x[:, : round(x.shape[1] * 0.5)], [*MATRIX, ((2, 5),), ((2, 3),)]),
    "average 1d": (lambda x: F.adaptive_avg_pool1d(x, 4), [((2, 3, 14),), ((1, 3, 4),), ((2, 3, 31),)]),
    "average 2d": (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), [*IMAGE, ((0, 3, 5, 5),)]),
    "average 2d to one": (lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "average 2d, one size kept": (lambda x: F.adaptive_avg_pool2d(x, (None, 3)), IMAGE),
    "average 2d, down to nothing": (lambda x: F.adaptive_avg_pool2d(x, (2, x.shape[-1] // 2)), IMAGE),
    "average 3d": (
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
        [((2, 3, 5, 6, 7),), ((1, 3, 3, 4, 9),), ((1, 3, 1, 1, 1),)],
    ),
    "maximum 1d": (lambda x: F.adaptive_max_pool1d(x, 4, True), [((2, 3, 14),), ((1, 3, 1),), ((2, 3, 31),)]),
    "maximum 2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3), True), IMAGE),
    "maximum 2d of equals": (lambda x: F.adaptive_max_pool2d(x.round(), 3, True), IMAGE),
    "maximum 2d without batch": (lambda x: F.adaptive_max_pool2d(x[0], (4, 3)), IMAGE),
    "maximum 3d": (
        lambda x: F.adaptive_max_pool3d(x, (2, 3, 4), True),
        [((2, 3, 5, 6, 7),), ((1, 3, 3, 4, 9),), ((1, 3, 1, 1, 1),)],
    ),
    "unpooled": (pooled_and_back, [((2, 3, 14, 9),), ((1, 3, 2, 2),), ((1, 3, 31, 8),)]),
    "area": (resized("area"), IMAGES),
    "nearest": (resized("nearest"), IMAGES),
    "nearest-exact": (resized("nearest-exact"), IMAGES),
    "nearest, factor 2": (scaled("nearest", 2.0), IMAGE),
    "nearest, factor 1.7": (scaled("nearest", 1.7), IMAGE),
    "nearest, factor 0.7": (scaled("nearest", 0.7), [IMAGE[0], IMAGE[2], ((1, 3, 10, 20),)]),
    "nearest-exact, factor 0.6": (scaled("nearest-exact", 0.6), [IMAGE[0], *IMAGE[2:3], ((1, 3, 2, 2),)]),
    "bilinear with antialias": (resized("bilinear", antialias=True), IMAGES),
    "bilinear with antialias and corners": (
        resized("bilinear", antialias=True, align_corners=True),
        [*IMAGES, ((1, 3, 5, 5), (1, 3, 1, 1))],
    ),
    "bilinear with antialias, by half": (
        scaled("bilinear", 0.5, antialias=True),
        [IMAGE[0], IMAGE[2], ((1, 3, 2, 2),)],
    ),
    "bicubic with antialias": (
        resized("bicubic", antialias=True),
        [*IMAGES, ((0, 3, 5, 5), (1, 3, 4, 4))],
    ),
    "distances": (torch.cdist, POINTS),
    "distances, p = 0": (lambda x, y: torch.cdist(x.round(), y.round(), p=0.0), POINTS),
    "distances, p = 1": (lambda x, y: torch.cdist(x, y, p=1.0), POINTS),
    "distances, p = 3": (lambda x, y: torch.cdist(x, y, p=3.0), POINTS),
    "distances, p = inf": (lambda x, y: torch.cdist(x, y, p=float("inf")), POINTS),
    "distances to themselves": (lambda x: torch.cdist(x, x), [((10, 4),), ((1, 4),), ((25, 4),)]),
    "condensed distances": (F.pdist, [((10, 4),), ((2, 4),), ((31, 4),), ((1, 4),)]),
    "searchsorted": (
        lambda x, y: torch.searchsorted(x.sort(-1).values, y),
        [((3, 10), (3, 7)), ((1, 1), (1, 1)), ((2, 31), (2, 40))],
    ),
    "searchsorted among equals": (
        lambda x, y: torch.searchsorted(x.round().sort().values, y.round(), side="right", out_int32=True),
        [((10,), (3, 7)), ((1,), (1, 1)), ((31,), (2, 40))],
    ),
    "searchsorted with a sorter": (
        lambda x, y: torch.searchsorted(x, y, sorter=x.argsort(-1)),
        [((3, 10), (3, 7)), ((1, 1), (1, 1))],
    ),
    "bucketize": (
        lambda x, y: torch.bucketize(x, y.sort().values, right=True),
        [((3, 10), (7,)), ((1, 1), (1,)), ((2, 31), (40,))],
    ),
    "isin": (
        lambda x, y: (torch.isin(ids(x, 9), ids(y, 9)), torch.isin(ids(x, 9), ids(y, 9), invert=True)),
        [((3, 10), (7,)), ((1, 1), (1,)), ((2, 31), (2,))],
    ),
    "stable sort": (lambda x: torch.sort(x.round(), dim=1, stable=True), MATRIX),
    "stable sort, falling": (lambda x: torch.sort(x.round(), dim=0, descending=True, stable=True), MATRIX),
    "kthvalue": (lambda x: torch.kthvalue(x, 2, 1, keepdim=True), [MATRIX[0], *MATRIX[2:], ((1, 2),)]),
    "kthvalue by a size": (lambda x: torch.kthvalue(x, (x.shape[1] + 2) // 3), MATRIX),
    "median": (lambda x: torch.median(x, 1), MATRIX),
    "median of all": (torch.median, MATRIX),
    "cumprod": (lambda x: torch.cumprod(x, 0), MATRIX),
    "cummax": (lambda x: torch.cummax(x.round(), 1), MATRIX),
    "cummin": (lambda x: torch.cummin(x.round(), 0), MATRIX),
    "masked_select": (
        lambda x, y: torch.masked_select(x, y > 0),
        [((3, 10), (10,)), ((1, 1), (1,)), ((2, 33), (33,))],
    ),
    "bincount": (lambda x: torch.bincount(ids(x, 9)), [((10,),), ((1,),), ((33,),)]),
    "bincount of weights": (lambda x: torch.bincount(ids(x, 9), x, 12), [((10,),), ((1,),), ((33,),)]),
    "bincount of integers": (
        lambda x: torch.bincount(ids(x, 9), ids(x, 5), 3),
        [((10,),), ((1,),), ((33,),)],
    ),
    **{
        f"scatter {reduce}, {'with' if kept else 'without'} what was there": (
            lambda x, y, z, reduce=reduce, kept=kept: x.scatter_reduce(
                0, ids(z, x.shape[0]), z, reduce, include_self=kept
            ),
            [((10, 4), (1,), (7, 3)), ((1, 4), (1,), (1, 1)), ((5, 4), (1,), (23, 4))],
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
        for kept in (True, False)
    },
    "scatter amax of integers": (
        lambda x: ids(x, 50).scatter_reduce(0, ids(x, x.shape[0]), ids(x, 70), "amax", include_self=False),
        [((10,),), ((1,),), ((33,),)],
    ),
    "index_reduce": (
        lambda x, y, z: x.index_reduce(0, ids(y, x.shape[0]), z, "amin", include_self=False),
        SCATTERED,
    ),
    "remainder by a size": (
        lambda x: ((x * 100).long() % x.shape[1], torch.remainder(x * 9, x.shape[0])),
        MATRIX,
    ),
    "fmax": (lambda x, y: torch.fmax(x.log(), y.log()), [((3, 10), (10,)), ((1, 1), (1,)), ((2, 0), (0,))]),
    "fmin": (lambda x, y: torch.fmin(x.log(), y.log()), [((3, 10), (10,)), ((1, 1), (1,))]),
    "hypot": (torch.hypot, [((3, 10), (10,)), ((1, 1), (1,))]),
    "copysign": (torch.copysign, [((3, 10), (10,)), ((1, 1), (1,))]),
    "extremes of all": (lambda x: x.amax() - x.amin(), MATRIX),
    "extremes along axes": (lambda x: (x.amax((0, 1)), x.amin(-1, keepdim=True)), MATRIX),
    "complex axes": (
        lambda x, y: torch.view_as_real(pairs(x)[:, None] * pairs(y).unsqueeze(-1)[0]),
        [((3, 10, 2), (4, 7, 2)), ((1, 1, 2), (1, 1, 2))],
    ),
    "complex expand": (
        lambda x, y: torch.view_as_real(pairs(x).expand(y.shape[0], -1, -1).exp()),
        [((1, 10, 5, 2), (7, 4)), ((1, 1, 1, 2), (1, 1))],
    ),
    "complex product with a number": (
        lambda x: torch.view_as_real(pairs(x) * (2 - 3j)) + torch.view_as_real(pairs(x) * 2),
        [((3, 10, 2),), ((1, 1, 2),)],
    ),
}


@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta")  # torch says so once a process
@pytest.mark.parametrize("name", CASES)
def test_right_at_sizes_it_never_saw(name: str, lowered: Callable[..., Any]) -> None:
    function, shapes = CASES[name]
    module = called(function, len(shapes[0]))
    runtime = OnnxRuntime.of_model(lowered(module, tuple(torch.randn(shape) for shape in shapes[0])).model)
    for shape in shapes:
        inputs = [torch.randn(one) for one in shape]
        got = runtime.run(dict(zip("xyz", map(to_numpy, inputs), strict=False)))
        wanted = pytree.tree_leaves(function(*inputs))
        for one, two in zip(got, wanted, strict=True):
            assert one.dtype == to_numpy(two).dtype
            np.testing.assert_allclose(one, to_numpy(two), rtol=1e-4, atol=1e-5, err_msg=str(shape))


def test_an_operator_that_torch_fails_on_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, line_in: Callable[[str, str], int]
) -> None:
    def broken(self: Any, shifts: Any, dims: Any = ()) -> Any:
        raise ValueError("not today")

    class Rolled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.roll(x, 1, 1)  # rolled here

    with pytest.raises(
        anyshape.Fault, match=r"no ONNX form of aten.roll.default could be made: ValueError: not today"
    ) as info:
        anyshape.export(
            Rolled(), torch.randn(3, 4), custom_translation_table={torch.ops.aten.roll.default: broken}
        )
    assert info.value.where is not None
    assert info.value.where.line == line_in(__file__, "# rolled here")
