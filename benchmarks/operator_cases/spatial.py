"""Operators over signals, images and volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Case, case

IMAGE, LINE, VOLUME, TOKENS = "b 3 h w", "b 3 t", "b 3 d h w", "b t 8"


def unpooled(x: Tensor) -> Tensor:
    pooled, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(pooled, places, 2, output_size=x.shape[-2:])


def unpooled_line(x: Tensor) -> Tensor:
    pooled, places = F.max_pool1d(x, 2, return_indices=True)
    return F.max_unpool1d(pooled, places, 2)


def folded(x: Tensor) -> Tensor:
    return F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1)


def patched(x: Tensor) -> Tensor:
    columns = F.unfold(x, 4, stride=2)
    return F.fold(columns, x.shape[-2:], 4, stride=2)


def padded_to_multiple(x: Tensor) -> Tensor:
    return F.pad(x, (0, -x.shape[-1] % 8, 0, -x.shape[-2] % 8))


def warped(x: Tensor, theta: Tensor) -> Tensor:
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


def spectrum(x: Tensor) -> Tensor:
    return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()


def there_and_back(x: Tensor) -> Tensor:
    window = torch.hann_window(16)
    made = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(made, 16, 4, window=window, length=x.shape[-1])


def interpolated(mode: str, **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, mode=mode, **options)


def resized_like(mode: str, **options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: F.interpolate(x, size=y.shape[-2:], mode=mode, **options)


def sampled(mode: str, padding: str, corners: bool) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, grid: F.grid_sample(x, grid, mode, padding, corners)


GROUPS: dict[str, list[Case]] = {
    "Pooling": [
        case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 4), LINE),
        case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 4)), IMAGE),
        case("adaptive_avg_pool2d, 1", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
        case("adaptive_avg_pool2d, None", lambda x: F.adaptive_avg_pool2d(x, (None, 3)), IMAGE),
        case("adaptive_avg_pool2d, half", lambda x: F.adaptive_avg_pool2d(x, x.shape[-1] // 2), IMAGE, w=2),
        case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), VOLUME),
        case("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 4), LINE),
        case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 4)), IMAGE),
        case("adaptive_max_pool2d, 1", lambda x: F.adaptive_max_pool2d(x, 1), IMAGE),
        case("adaptive_max_pool2d, None", lambda x: F.adaptive_max_pool2d(x, (None, 3)), IMAGE),
        case("adaptive_max_pool2d, indices", lambda x: F.adaptive_max_pool2d(x, 3, True), IMAGE),
        case("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)), VOLUME),
        case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, padding=1), LINE),
        case("avg_pool2d, ceil", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE),
        case(
            "avg_pool2d, without pad",
            lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            IMAGE,
        ),
        case("avg_pool2d, whole", lambda x: F.avg_pool2d(x, x.shape[-2:]), IMAGE),
        case("avg_pool3d", lambda x: F.avg_pool3d(x, 2, 2), VOLUME, d=2, h=2, w=2),
        case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, padding=1), LINE),
        case("max_pool2d, ceil", lambda x: F.max_pool2d(x, 3, 2, padding=1, ceil_mode=True), IMAGE),
        case("max_pool2d, dilated", lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), IMAGE, h=5, w=5),
        case("max_pool2d, indices", lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE, h=2, w=2),
        case("max_pool2d, whole", lambda x: F.max_pool2d(x, x.shape[-2:]), IMAGE),
        case("max_pool3d", lambda x: F.max_pool3d(x, 2), VOLUME, d=2, h=2, w=2),
        case("max_unpool1d", unpooled_line, LINE, t=2),
        case("max_unpool2d", unpooled, IMAGE, h=2, w=2),
        case("lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2), IMAGE, h=2, w=2),
    ],
    "Resizing": [
        case("interpolate, nearest 1d", interpolated("nearest", scale_factor=2.0), LINE),
        case("interpolate, nearest", interpolated("nearest", scale_factor=2.0), IMAGE),
        case("interpolate, nearest like", resized_like("nearest"), IMAGE, "b 4 t n"),
        case("interpolate, nearest-exact like", resized_like("nearest-exact"), IMAGE, "b 4 t n"),
        case("interpolate, linear", interpolated("linear", size=12), LINE),
        case("interpolate, bilinear fixed", interpolated("bilinear", size=(12, 5)), IMAGE),
        case("interpolate, bilinear like", resized_like("bilinear"), IMAGE, "b 4 t n"),
        case("interpolate, bilinear corners", resized_like("bilinear", align_corners=True), IMAGE, "b 4 t n"),
        case("interpolate, bilinear 1.7", interpolated("bilinear", scale_factor=1.7), IMAGE),
        case(
            "interpolate, bilinear 0.4 recomputed",
            interpolated("bilinear", scale_factor=0.4, recompute_scale_factor=True),
            IMAGE,
            h=4,
            w=4,
        ),
        case("interpolate, bicubic like", resized_like("bicubic"), IMAGE, "b 4 t n"),
        case("interpolate, bicubic corners", resized_like("bicubic", align_corners=True), IMAGE, "b 4 t n"),
        case("interpolate, trilinear", interpolated("trilinear", size=(4, 7, 5)), VOLUME),
        case("interpolate, nearest 3d", interpolated("nearest", scale_factor=2.0), VOLUME),
        case("interpolate, area fixed", interpolated("area", size=(4, 5)), IMAGE),
        case("interpolate, area like", resized_like("area"), IMAGE, "b 4 t n"),
        case("interpolate, area 1d", interpolated("area", size=6), LINE),
        case("interpolate, antialias", interpolated("bilinear", size=(5, 4), antialias=True), IMAGE),
        case("interpolate, antialias like", resized_like("bilinear", antialias=True), IMAGE, "b 4 t n"),
        case("interpolate, bicubic antialias", resized_like("bicubic", antialias=True), IMAGE, "b 4 t n"),
        case(
            "interpolate, antialias scaled",
            interpolated("bilinear", scale_factor=0.5, antialias=True),
            IMAGE,
            h=2,
            w=2,
        ),
        case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), "b 8 h w"),
        case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), "b 3 2*h 2*w"),
        case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), "b 8 h w"),
        case("grid_sample, bilinear", sampled("bilinear", "zeros", False), IMAGE, "b t n 2"),
        case("grid_sample, corners", sampled("bilinear", "border", True), IMAGE, "b t n 2"),
        case("grid_sample, nearest reflection", sampled("nearest", "reflection", False), IMAGE, "b t n 2"),
        case("grid_sample, bicubic", sampled("bicubic", "zeros", False), IMAGE, "b t n 2"),
        case("grid_sample, 3d", lambda x, g: F.grid_sample(x, g, align_corners=True), VOLUME, "b 2 t n 3"),
        case("affine_grid", warped, IMAGE, "b 2 3"),
        case(
            "affine_grid, corners",
            lambda x, m: F.affine_grid(m, list(x.shape), align_corners=True),
            IMAGE,
            "b 2 3",
        ),
    ],
    "Windows": [
        case("unfold", lambda x: F.unfold(x, 3, padding=1), IMAGE),
        case("unfold, patches", lambda x: F.unfold(x, 4, stride=4), IMAGE, h=4, w=4),
        case("fold", folded, IMAGE),
        case("fold, patches", patched, IMAGE, h=4, w=4),
        case("Tensor.unfold", lambda x: x.unfold(1, 4, 2), "b t", t=4),
        case("Tensor.unfold, two axes", lambda x: x.unfold(2, 3, 3).unfold(3, 3, 3), IMAGE, h=3, w=3),
        case("as_strided", lambda x: x.as_strided((x.shape[0] - 1, 2), (1, 1)), "t", t=2),
        case("conv1d", nn.Conv1d(3, 4, 5, padding="same"), LINE),
        case("conv1d, causal", lambda x: F.conv1d(F.pad(x, (4, 0)), torch.ones(2, 3, 5)), LINE),
        case("conv2d", nn.Conv2d(3, 4, 3, stride=2, padding=1), IMAGE),
        case("conv2d, same", nn.Conv2d(3, 4, 4, padding="same"), IMAGE),
        case("conv2d, dilated groups", nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=4), "b 4 h w"),
        case("conv2d, circular", nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), IMAGE),
        case("conv3d", nn.Conv3d(3, 4, 3, padding=1), VOLUME),
        case("conv2d, weights given", lambda x, y: F.conv2d(x, y), IMAGE, "n 3 2 2", h=2, w=2),
        case("conv_transpose1d", nn.ConvTranspose1d(3, 4, 4, stride=2, padding=1), LINE),
        case("conv_transpose2d", nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1), IMAGE),
        case("conv_transpose3d", nn.ConvTranspose3d(3, 2, 2, 2), VOLUME),
        case("conv_tbc", lambda x: torch.conv_tbc(x, torch.ones(3, 4, 2), torch.zeros(2), 1), "t b 4"),
    ],
    "Padding": [
        case("pad, constant", lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), IMAGE),
        case("pad, to a multiple", padded_to_multiple, IMAGE),
        case(
            "pad, to another", lambda x, y: F.pad(x, (0, x.shape[1] + y.shape[1] - x.shape[1])), "b t", "b n"
        ),
        case("pad, reflect", lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), IMAGE, h=3, w=3),
        case("pad, reflect half", lambda x: F.pad(x, (x.shape[-1] // 2,) * 2, mode="reflect"), LINE, t=2),
        case("pad, replicate", lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"), IMAGE),
        case("pad, circular", lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), IMAGE, h=2, w=2),
        case("pad, cropped", lambda x: F.pad(x, (-1, -1)), t=2),
        case("constant_pad_nd", lambda x: torch.constant_pad_nd(x, (0, x.shape[0]), 1.0)),
    ],
    "Fourier": [
        case("fft.fft", lambda x: torch.fft.fft(x)),
        case("fft.fft, abs", lambda x: torch.fft.fft(x).abs()),
        case("fft.ifft", lambda x: torch.fft.ifft(torch.fft.fft(x)).real),
        case("fft.rfft", lambda x: torch.fft.rfft(x).abs()),
        case("fft.rfft, axis", lambda x: torch.fft.rfft(x, dim=1, norm="ortho"), "b t 4"),
        case("fft.irfft", lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1])),
        case("fft.irfft, filter", lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5), "b 2*t"),
        case("fft.fft2", lambda x: torch.fft.fft2(x).abs(), "b h w"),
        case("fft.fft2, mixing", lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, TOKENS),
        case("fft.rfft2", lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]), "b h w"),
        case("fft.fftshift", lambda x: torch.fft.fftshift(x, 1)),
        case("fft.fftfreq", lambda x: x * torch.fft.fftfreq(x.shape[1])),
        case("stft", spectrum, t=16),
        case(
            "stft, plain",
            lambda x: torch.stft(x, 8, 4, center=False, window=torch.ones(8), return_complex=True).abs(),
            t=8,
        ),
        case("istft", there_and_back, t=16),
    ],
}
