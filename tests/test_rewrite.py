"""Calls that would fix a size in the trace: right at other sizes, and left alone where nothing varies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from anyshape.capture.rewrite import REWRITES, sizes_kept
from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy

Shapes = list[tuple[tuple[int, ...], ...]]

LINE: Shapes = [((3, 10),), ((1, 1),), ((2, 7),), ((2, 2),), ((5, 34),)]
SIGNAL: Shapes = [((2, 3, 14),), ((1, 3, 3),), ((2, 3, 31),)]
IMAGE: Shapes = [((2, 3, 14, 9),), ((1, 3, 1, 1),), ((2, 3, 29, 30),), ((1, 3, 2, 5),)]
TWO: Shapes = [((3, 10), (7, 2)), ((1, 1), (1, 1)), ((2, 5), (4, 3))]


def there_and_back(**options: Any) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        window = torch.hann_window(12)
        made = torch.stft(
            x, 16, 4, 12, window, return_complex=True, normalized=bool(options.get("normalized"))
        )
        return torch.istft(made, 16, 4, 12, window, length=x.shape[-1], **options)

    return function


def bare_frames(x: Tensor) -> Tensor:
    made = torch.stft(x, 8, 2, window=torch.ones(8), center=False, return_complex=True)
    return torch.istft(made, 8, 2, window=torch.ones(8), center=False)


def centred_frames(x: Tensor) -> Tensor:
    return torch.istft(
        torch.stft(x[0], 9, 3, window=torch.ones(9), return_complex=True), 9, 3, window=torch.ones(9)
    )


CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "linspace": (lambda x: x * torch.linspace(-1, 3, x.shape[1]), LINE),
    "linspace to a size": (
        lambda x: torch.linspace(0, x.shape[0], steps=x.shape[1], dtype=torch.float64),
        LINE,
    ),
    "logspace": (lambda x: x * torch.logspace(0, 2, x.shape[1], base=2.0), LINE),
    "hann_window": (lambda x: x * torch.hann_window(x.shape[1]), LINE),
    "hann_window, symmetric": (lambda x: x * torch.hann_window(x.shape[1], periodic=False), LINE),
    "hamming_window": (lambda x: x * torch.hamming_window(x.shape[1]), LINE),
    "fftfreq": (lambda x: x * torch.fft.fftfreq(x.shape[1], 0.5), LINE),
    "tril_indices": (lambda x: x[:, torch.tril_indices(x.shape[1], x.shape[1], -1)[0]], LINE),
    "triu_indices": (lambda x: x[tuple(torch.triu_indices(*x.shape, dtype=torch.int32).long())], LINE),
    "one_hot": (lambda x: F.one_hot((x.abs() * 9).long() % x.shape[0], x.shape[0]), LINE),
    "tensor_split": (lambda x: torch.tensor_split(x, 3, 1), [*LINE, ((2, 9),), ((2, 11),)]),
    "tensor_split, method": (lambda x: x.tensor_split(2)[1], LINE),
    "kron": (torch.kron, TWO),
    "kron, fewer axes": (lambda x, y: torch.kron(x[0], y), TWO),
    "multi_dot": (lambda x, y: torch.linalg.multi_dot([x, x.T, x]), TWO),
    "take_along_dim": (
        lambda x, y: torch.take_along_dim(x, (y.abs() * 9).long() % x.shape[1], 1),
        [((3, 10), (1, 7)), ((1, 1), (1, 1)), ((2, 5), (1, 40))],
    ),
    "take_along_dim, flat": (lambda x: torch.take_along_dim(x, x.flatten().argsort()), LINE),
    "embedding_bag": (
        lambda x: F.embedding_bag((x.abs() * 9).long() % 5, torch.arange(20.0).view(5, 4), mode="max"),
        LINE,
    ),
    "grouped attention": (
        lambda x, y: F.scaled_dot_product_attention(x, y, y, enable_gqa=True),
        [((2, 4, 10, 8), (2, 2, 7, 8)), ((1, 3, 1, 8), (1, 3, 1, 8)), ((1, 6, 5, 8), (1, 1, 9, 8))],
    ),
    "clamp": (lambda x: x.clamp(-1, 0.5) + torch.clamp(x, min=-0.5, max=1), LINE),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, padding=1), SIGNAL),
    "max_pool1d, module": (nn.MaxPool1d(2, dilation=2, ceil_mode=True), SIGNAL),
    "max_pool2d, whole": (lambda x: F.max_pool2d(x, x.shape[-2:]), IMAGE),
    "avg_pool1d, whole": (lambda x: F.avg_pool1d(x, x.shape[-1]), SIGNAL),
    "avg_pool2d, whole": (lambda x: F.avg_pool2d(x, kernel_size=x.size()[2:]), IMAGE),
    "adaptive_max_pool2d, one size kept": (lambda x: F.adaptive_max_pool2d(x, (None, 3)), IMAGE),
    "adaptive_max_pool2d, half": (
        lambda x: F.adaptive_max_pool2d(x, (2, (x.shape[-1] + 1) // 2)),
        IMAGE,
    ),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x[None], (2, None, 3)), IMAGE),
    "affine_grid": (
        lambda x, y: F.affine_grid(y, [y.shape[0], 1, *x.shape], align_corners=False),
        [((14, 9), (2, 2, 3)), ((1, 1), (1, 2, 3)), ((31, 4), (3, 2, 3))],
    ),
    "affine_grid, corners": (
        lambda x, y: F.affine_grid(y, [y.shape[0], 1, *x.shape], align_corners=True),
        [((14, 9), (2, 2, 3)), ((1, 1), (1, 2, 3)), ((31, 4), (3, 2, 3))],
    ),
    "affine_grid, volume": (
        lambda x, y: F.affine_grid(y, [y.shape[0], 1, *x.shape], align_corners=False),
        [((4, 5, 6), (2, 3, 4)), ((1, 1, 1), (1, 3, 4)), ((3, 11, 2), (3, 3, 4))],
    ),
    "rfftfreq": (lambda x: torch.fft.rfftfreq(x.shape[-1], 0.5), LINE),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]), LINE),
    "irfft, even": (lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0) * 0.5, dim=0, norm="ortho"), LINE[:1]),
    "istft": (there_and_back(), [((3, 40),), ((1, 17),), ((2, 101),)]),
    "istft, normalized": (there_and_back(normalized=True), [((3, 40),), ((1, 17),), ((2, 101),)]),
    "istft, not centred": (bare_frames, [((3, 40),), ((1, 8),), ((2, 101),)]),
    "istft, one signal": (centred_frames, [((1, 40),), ((1, 9),), ((1, 101),)]),
}


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class CallsWithTwo(Calls):
    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y)


def inputs_of(shapes: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(shape) for shape in shapes)


@pytest.mark.filterwarnings(
    "ignore:Since version 1.3.0, affine_grid"
)  # a grid of one place is what is asked here
@pytest.mark.parametrize("name", CASES)
def test_right_at_sizes_it_never_saw(name: str, lowered: Callable[..., Any]) -> None:
    function, shapes = CASES[name]
    module = Calls(function) if len(shapes[0]) == 1 else CallsWithTwo(function)
    runtime = OnnxRuntime.of_model(lowered(module, inputs_of(shapes[0])).model)
    for shape in shapes:
        inputs = inputs_of(shape)
        got = runtime.run(dict(zip("xy", map(to_numpy, inputs), strict=False)))
        for one, two in zip(got, pytree.tree_leaves(function(*inputs)), strict=True):
            assert one.dtype == to_numpy(two).dtype
            np.testing.assert_allclose(one, to_numpy(two), rtol=1e-4, atol=5e-5, err_msg=str(shape))


@pytest.mark.parametrize("name", CASES)
def test_eager_results_are_the_same(name: str) -> None:
    """With plain numbers almost nothing is rewritten; what is must give the same result."""
    function, shapes = CASES[name]
    inputs = inputs_of(shapes[0])
    wanted = function(*inputs)
    with sizes_kept():
        got = function(*inputs)
    for one, two in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(one, two)


def test_calls_that_a_rewrite_does_not_know_are_left_alone() -> None:
    def function(x: Tensor) -> Any:
        pieces = torch.tensor_split(x, indices=[2, 5], dim=1)
        torch.linspace(0, 1, 4, out=torch.empty(4))
        return pieces

    inputs = torch.randn(3, 10)
    with sizes_kept():
        assert [piece.shape[1] for piece in function(inputs)] == [2, 3, 5]


def test_every_rewrite_has_a_case() -> None:
    seen = set()

    class Watching(sizes_kept):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(func)
            return super().__torch_function__(func, types, args, kwargs)

    for function, shapes in CASES.values():
        with Watching():
            function(*inputs_of(shapes[0]))
    methods = {getattr(Tensor, function.__name__, None) for function in seen}
    untried = [function for function in REWRITES if function not in seen | methods]
    assert {function.__name__ for function in untried} <= {"max_pool3d", "avg_pool3d", "istft", "max_pool1d"}
