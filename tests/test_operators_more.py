"""Layers, statistics, losses and spectra that practitioners use, at many sizes against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy

Shape = tuple[int, ...]
Function = Callable[..., Any]


class Calls(nn.Module):
    """A function of one tensor, and of a layer if there is one."""

    def __init__(self, function: Function, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, x: Tensor) -> Any:
        return self.function(x) if self.layer is None else self.function(self.layer, x)


def check(lowered: Function, function: Function, shapes: list[Shape], layer: nn.Module | None = None) -> None:
    module = Calls(function, layer).eval()
    runtime = OnnxRuntime.of_model(lowered(module, (torch.randn(shapes[0]),)).model)
    for shape in shapes:
        given = torch.randn(shape)
        with torch.no_grad():
            wanted = pytree.tree_leaves(module(given))
        for one, two in zip(runtime.run({"x": to_numpy(given)}), map(to_numpy, wanted), strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4, err_msg=str(shape))


def ids(x: Tensor, below: int) -> Tensor:
    return (x.abs() * 1000).long() % below


def holes(x: Tensor) -> Tensor:
    """Some of the numbers are not numbers."""
    return torch.where(x > 0.8, torch.full_like(x, float("nan")), x)


def real(x: Tensor) -> Tensor:
    return torch.view_as_real(x)


def with_states(layer: nn.Module, x: Tensor) -> Any:
    return layer(x, (x.new_ones(2, x.shape[0], 3), x.new_full((2, x.shape[0], 8), 0.5)))


def packed(layer: nn.Module, x: Tensor) -> Any:
    lengths = torch.arange(x.shape[0]) % x.shape[1] + 1
    rows = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, states = layer(rows)
    return nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0], states


ROWS: list[Shape] = [(2, 5, 4), (1, 1, 4), (3, 9, 4), (2, 2, 4), (1, 30, 4)]
CLASSES: list[Shape] = [(5, 4), (1, 4), (9, 4), (30, 4)]
SIGNALS: list[Shape] = [(2, 16, 4), (1, 8, 4), (3, 9, 4), (2, 31, 4), (1, 100, 4), (2, 3, 4), (1, 1, 4)]
WAVES: list[Shape] = [(2, 64), (1, 40), (3, 99), (1, 333)]
LEVELS = torch.tensor([0.1, 0.5, 0.9])
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 0.1])


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (lambda layer, x: layer(x), {}),
        (lambda layer, x: layer(x), {"bidirectional": True}),
        (lambda layer, x: layer(x), {"num_layers": 2, "bidirectional": True, "bias": False}),
        (with_states, {"bidirectional": True}),
        (packed, {"bidirectional": True}),
    ],
    ids=["plain", "both ways", "two layers", "with states", "packed"],
)
def test_lstm_with_a_projection(lowered: Function, function: Function, options: dict[str, Any]) -> None:
    check(lowered, function, ROWS, nn.LSTM(4, 8, proj_size=3, batch_first=True, **options))


STATISTICS: dict[str, Function] = {
    "quantile": lambda x: torch.quantile(x, 0.3, dim=1),
    "quantiles": lambda x: torch.quantile(x, LEVELS, dim=1),
    "quantiles, axis kept": lambda x: torch.quantile(x, LEVELS, dim=-1, keepdim=True),
    "quantiles of all": lambda x: torch.quantile(x, LEVELS),
    "quantiles of all, axes kept": lambda x: torch.quantile(x, LEVELS, keepdim=True),
    **{
        f"quantiles, {way}": lambda x, way=way: torch.quantile(x, LEVELS, dim=1, interpolation=way)
        for way in ("lower", "higher", "nearest", "midpoint")
    },
    "quantile with holes": lambda x: torch.quantile(holes(x), 0.4, dim=1),
    "nanquantiles": lambda x: torch.nanquantile(holes(x), LEVELS, dim=1),
    "median with holes": lambda x: holes(x).median(1).values,
    "nanmedian": lambda x: holes(x).nanmedian(1).values,
    "nanmedian, axis kept": lambda x: holes(x).nanmedian(-2, keepdim=True),
    "nanmedian of all": lambda x: holes(x).nanmedian(),
    "nanmedian of integers": lambda x: ids(x, 9).nanmedian(1).values,
    "sorted with holes": lambda x: holes(x).sort(1).values,
    "sorted truths": lambda x: (x > 0).sort(1).values,
    "topk with holes": lambda x: holes(x).topk((x.shape[1] + 1) // 2, 1).values,
    "histogram": lambda x: torch.histc(x, 10, -1, 1.5),
    "histogram between the ends": lambda x: torch.histc(x, 10),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics(lowered: Function, name: str) -> None:
    check(lowered, STATISTICS[name], ROWS)


LOSSES: dict[str, Function] = {
    "class": lambda x, how: F.cross_entropy(x, ids(x[:, 0], 4), reduction=how),
    "class, smoothed": lambda x, how: F.cross_entropy(x, ids(x[:, 0], 4), reduction=how, label_smoothing=0.1),
    "class, weighted": lambda x, how: F.cross_entropy(
        x, ids(x[:, 0], 3), WEIGHT, reduction=how, ignore_index=3, label_smoothing=0.1
    ),
    "probabilities": lambda x, how: F.cross_entropy(x, x.flip(1).softmax(1), reduction=how),
    "probabilities, weighted": lambda x, how: F.cross_entropy(
        x, x.flip(1).softmax(1), WEIGHT, reduction=how, label_smoothing=0.2
    ),
    "divergence": lambda x, how: F.kl_div(x.log_softmax(1), x.flip(1).softmax(1), reduction=how),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
@pytest.mark.parametrize("how", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(lowered: Function, name: str, how: str) -> None:
    check(lowered, lambda layer, x: LOSSES[name](layer(x), how), CLASSES, nn.Linear(4, 4))


def test_loss_of_a_language_model(lowered: Function) -> None:
    def shifted(layer: nn.Module, x: Tensor) -> Tensor:
        tokens = ids(x[..., 0], 10)
        return F.cross_entropy(layer(tokens)[:, :-1].reshape(-1, 10), tokens[:, 1:].reshape(-1))

    check(lowered, shifted, [(2, 5, 4), (1, 2, 4), (3, 30, 4)], nn.Embedding(10, 10))


def some_modes(layer: Any, x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x.transpose(1, 2))
    kept = torch.zeros(x.shape[0], 4, spectrum.shape[-1], dtype=torch.cfloat)
    kept[:, :, :3] = torch.einsum("bix,iox->box", spectrum[:, :, :3], torch.view_as_complex(layer.weight))
    return torch.fft.irfft(kept, n=x.shape[1])


SPECTRA: dict[str, Function] = {
    "magnitudes": lambda x: torch.fft.rfft(x, dim=1).abs(),
    "both ends, by root": lambda x: real(torch.fft.rfft(x, dim=1, norm="ortho")),
    "first axis": lambda x: real(torch.fft.fft(x[0], dim=0, norm="forward")),
    "two axes": lambda x: torch.fft.fft2(x).real,
    "and back": lambda x: torch.fft.ifft(torch.fft.fft(x, dim=1) * 2, dim=1).real,
    "half, and back": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1),
    "half, and longer": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=2 * x.shape[1], dim=1),
    "plane, and back": lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho"), s=x.shape[-2:]),
    "frequencies": lambda x: torch.fft.rfft(x, dim=1).abs() * torch.fft.rfftfreq(x.shape[1])[:, None],
    "shifted": lambda x: real(torch.fft.fftshift(torch.fft.fft(x, dim=1), dim=1)),
    "rolled flat": lambda x: real(torch.fft.fft(x, dim=1).roll(2)),
    "squared": lambda x: real(torch.fft.fft(x, dim=1) ** 2),
    "chosen": lambda x: real(
        torch.fft.fft(x, dim=1)[:, torch.tensor([0, -1])].index_select(-1, torch.tensor([1]))
    ),
    "large ones": lambda x: real(
        torch.where(x > 0, torch.fft.fft(x, dim=1), torch.zeros_like(torch.fft.fft(x, dim=1)))
    ),
    "in parts": lambda x: [real(part) for part in torch.fft.fft(x, dim=1).cumsum(1).split(2, -1)],
    "squeezed": lambda x: real(torch.fft.fft(x[:, :, :1], dim=1).squeeze(-1)),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra(lowered: Function, name: str) -> None:
    check(lowered, SPECTRA[name], SIGNALS)


def test_a_layer_in_the_spectrum(lowered: Function) -> None:
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.randn(4, 4, 3, 2))
    check(lowered, some_modes, SIGNALS[:5], layer)


def test_a_long_spectrum_is_as_exact_as_pytorch(lowered: Function) -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.fft.rfft(x, dim=1).abs()

    runtime = OnnxRuntime.of_model(lowered(Calls(forward), (torch.randn(2, 12),)).model)
    given = torch.randn(1, 1000)
    np.testing.assert_allclose(runtime.run({"x": to_numpy(given)})[0], forward(given), rtol=0, atol=1e-4)


WINDOWS: dict[str, Tensor | Function] = {
    "hann": lambda: torch.hann_window(12),
    "hann, symmetric": lambda: torch.hann_window(12, periodic=False),
    "hamming": lambda: torch.hamming_window(12),
    "hamming, by hand": lambda: torch.hamming_window(12, True, 0.6, 0.3),
    "blackman": lambda: torch.blackman_window(12),
    "one": lambda: torch.hann_window(1).expand(12),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_short_time_spectra(lowered: Function, name: str) -> None:
    def forward(x: Tensor) -> Tensor:
        window: Any = WINDOWS[name]
        return torch.stft(x, 12, 5, window=window(), return_complex=True).abs()

    check(lowered, forward, WAVES)


SHAPED: dict[str, tuple[Function, nn.Module, list[Shape]]] = {
    "transposed convolution to a size": (
        lambda layer, x: layer(x, output_size=(x.shape[2] * 2 - x.shape[2] % 2,)),
        nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1),
        [(2, 3, 5), (2, 3, 4), (1, 3, 7), (1, 3, 20)],
    ),
    "down and up again": (
        lambda layer, x: layer[1](layer[0](x), output_size=x.shape[2:]),
        nn.ModuleList([nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 3, 3, 2, 1, bias=False)]),
        [(2, 3, 10, 7), (1, 3, 8, 9), (1, 3, 31, 20)],
    ),
    "convolution with padding by size": (
        lambda layer, x: F.conv1d(x, layer.weight, layer.bias, padding=x.shape[2] // 2),
        nn.Conv1d(3, 4, 3),
        [(2, 3, 5), (2, 3, 4), (1, 3, 7), (1, 3, 20)],
    ),
    "squeezed": (lambda layer, x: layer(x).squeeze(-1), nn.Linear(4, 1), ROWS),
    "not squeezed": (lambda layer, x: layer(x).squeeze((-1, 1)), nn.Linear(4, 3), [ROWS[0], *ROWS[2:]]),
    "turned in place": (
        lambda layer, x: layer(x).unsqueeze_(0).transpose_(0, -1).squeeze_(-1) + 1,
        nn.Linear(4, 3),
        ROWS,
    ),
}


@pytest.mark.parametrize("name", SHAPED)
def test_shapes_that_depend_on_the_input(lowered: Function, name: str) -> None:
    function, layer, shapes = SHAPED[name]
    check(lowered, function, shapes, layer)


IMAGES: list[Shape] = [(2, 3, 14, 9), (1, 3, 2, 2), (1, 3, 2, 5), (1, 3, 3, 3), (2, 3, 1, 1), (1, 3, 10, 30)]
RESIZED: dict[str, tuple[Function, list[Shape]]] = {
    **{
        f"{way} by {factor}{', corners kept' if corners else ''}": (
            lambda x, way=way, factor=factor, corners=corners: F.interpolate(
                x, scale_factor=factor, mode=way, align_corners=corners
            ),
            IMAGES,
        )
        for way in ("bilinear", "bicubic")
        for factor, corners in ((1.3, None), (2.7, True))
    },
    "nearest by 1.3": (lambda x: F.interpolate(x, scale_factor=1.3), IMAGES),
    "bilinear by 1.3 with antialias": (
        lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear", antialias=True),
        IMAGES,
    ),
    "a line by 1.3": (lambda x: F.interpolate(x.flatten(2), scale_factor=1.3, mode="linear"), IMAGES),
    "a line to a size": (
        lambda x: F.interpolate(x.flatten(2), size=x.shape[2] + 3, mode="linear", align_corners=True),
        IMAGES,
    ),
    "average by a divisor": (lambda x: F.avg_pool2d(x, 2, 1, 1, divisor_override=3), IMAGES),
}


@pytest.mark.parametrize("name", RESIZED)
def test_resized(lowered: Function, name: str) -> None:
    function, shapes = RESIZED[name]
    check(lowered, function, shapes)


def test_a_row_is_written_to_all_rows(lowered: Function) -> None:
    def forward(x: Tensor) -> Tensor:
        made = x.clone()
        made[:, 1:] = x[:, :1]
        made[0] = x[0, 0]
        return made

    check(lowered, forward, ROWS)


FAR: list[Shape] = [(2, 5), (1, 1), (3, 24), (1, 255), (1, 256), (2, 257), (1, 1031)]
IDENTITIES: dict[str, Function] = {
    "square": lambda x: x @ torch.eye(x.shape[1]),
    "wide": lambda x: torch.eye(3, x.shape[1]),
    "tall": lambda x: torch.eye(x.shape[1], 300, dtype=torch.int64),
    "of two sizes": lambda x: x + torch.eye(x.shape[0], x.shape[1]),
    "as a mask": lambda x: torch.eye(x.shape[1], dtype=torch.bool)[:4] & (x[:1] > 0),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_matrices_beyond_what_8_bits_count(lowered: Function, name: str) -> None:
    check(lowered, IDENTITIES[name], FAR)


MEMBERS: dict[str, Function] = {
    "of a few": lambda x: torch.isin(ids(x, 9), torch.tensor([1, 4, 7])),
    "of as many as there are": lambda x: torch.isin(ids(x, 50), torch.arange(x.shape[1])),
    "not of them": lambda x: torch.isin(ids(x, 50), torch.arange(x.shape[1]), invert=True),
    "of rows and columns": lambda x: torch.isin(ids(x, 20), ids(x[:1] + 1, 20)),
    "of none": lambda x: torch.isin(ids(x, 9), torch.arange(0)),
    "integers of fractions": lambda x: torch.isin(ids(x, 4), torch.tensor([0.5, 1.5, 2.0])),
    "fractions of integers": lambda x: torch.isin(ids(x, 8) / 2, torch.arange(3)),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members(lowered: Function, name: str) -> None:
    check(lowered, MEMBERS[name], [(2, 5), (1, 1), (3, 2), (2, 40), (1, 300)])
