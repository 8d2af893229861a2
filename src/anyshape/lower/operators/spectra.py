"""Spectra: Fourier transforms and the windows before them.

ONNX Runtime 1.31 computes a DFT whose length is no power of two with errors of a percent in single precision, growing
with the length; in double precision it is exact enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from anyshape.lower.operators.building import DOUBLE, FLOAT, Value, one_number, op, rank_of, scalar, size_of
from anyshape.torch_bridge import torchlib

__all__ = ["COMPLEX", "TRANSLATIONS"]


def real_to_complex(self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    """The spectrum of a real signal; onesided, the half of it that says all."""
    last = dim[-1]
    exact = _exact(self, [self.shape[axis] for axis in dim])
    made = _transformed(op.Unsqueeze(exact, [-1]), dim, inverse=False)
    if onesided:
        bins = op.Add(op.Div(size_of(self, last), 2), 1)
        made = op.Slice(made, [0], bins, [last])
    return op.CastLike(_normalized(made, [size_of(self, axis) for axis in dim], normalization), self)


def complex_to_complex(self: Value, dim: Sequence[int], normalization: int, forward: bool) -> Value:
    """A transform or its inverse."""
    exact = _exact(self, [self.shape[axis] for axis in dim])
    made = _transformed(exact, dim, inverse=not forward)
    lengths = [size_of(self, axis) for axis in dim]
    return op.CastLike(_normalized(made, lengths, normalization, inverse=not forward), self)


def complex_to_real(self: Value, dim: Sequence[int], normalization: int, last_dim_size: Value) -> Value:
    """The signal of half a spectrum: the other half is the first one's mirror."""
    *others, last = dim
    length = one_number(last_dim_size)
    exact = _exact(self, [*(self.shape[axis] for axis in others), last_dim_size])
    half = _transformed(exact, others, inverse=True) if others else exact
    turned = op.Mul(half, op.CastLike(op.Constant(value_floats=[1.0, -1.0]), half))
    behind = op.Sub(length, op.Add(op.Div(length, 2), 1))  # how many bins the half leaves out
    mirror = op.Slice(turned, behind, [0], [last], [-1])
    made = _transformed(op.Concat(half, mirror, axis=last), [last], inverse=True)
    lengths = [*(size_of(self, axis) for axis in others), length]
    real = op.Gather(_normalized(made, lengths, normalization, inverse=True), 0, axis=-1)
    return op.CastLike(real, self)


def half_to_signal(self: Value, n: Value | None = None, dim: int = -1, norm: str | None = None) -> Value:
    """`irfft`, before PyTorch takes it apart: that fails in a trace with open sizes."""
    return halves_to_signal(self, None if n is None else [n], [dim], norm)


def halves_to_signal(
    self: Value,
    s: Sequence[Value] | None = None,
    dim: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
) -> Value:
    """`irfft2` and `irfftn`: each axis cut or filled with zeros to its wanted size, then transformed."""
    rank = rank_of(self) - 1
    if dim is None:
        dim = [*range(rank)] if s is None else [*range(rank - len(s), rank)]
    axes = [axis % rank for axis in dim]
    sizes = [size_of(self, axis) for axis in axes] if s is None else [one_number(size) for size in s]
    if s is None:
        sizes[-1] = op.Mul(op.Sub(sizes[-1], 1), 2)
    wanted = [*sizes[:-1], op.Add(op.Div(sizes[-1], 2), 1)]
    known: list[Any] = [None] * (rank + 1)
    for axis, size in zip(axes, wanted, strict=True):
        more = op.Max(op.Sub(size, size_of(self, axis)), 0)
        longer = op.Pad(self, op.Concat(op.Constant(value_ints=[0]), more, axis=0), None, [axis])
        cut = op.Slice(longer, [0], size, [axis])
        cut.dtype, cut.shape = self.dtype, ir.Shape(known)
        self = cut
    return complex_to_real(self, axes, MODES[norm], sizes[-1])


MODES = {None: 2, "backward": 2, "ortho": 1, "forward": 0}


def _exact(value: Value, sizes: Sequence[Any]) -> Value:
    """The value in the type that a transform along axes of these sizes needs."""
    fast = value.dtype == FLOAT and all(
        isinstance(size, int) and size > 0 and size & (size - 1) == 0 for size in sizes
    )
    return value if fast else op.Cast(value, to=DOUBLE)


def _transformed(pairs: Value, dim: Sequence[int], inverse: bool) -> Value:
    """Transformed along each axis; the inverse is divided by the lengths. ONNX transforms no first axis."""
    pairs = op.Unsqueeze(pairs, [0])
    for axis in reversed(dim):
        pairs = op.DFT(pairs, axis=axis + 1, inverse=int(inverse), onesided=0)
    return op.Squeeze(pairs, [0])


def _normalized(value: Value, lengths: Sequence[Value], mode: int, inverse: bool = False) -> Value:
    """As PyTorch's modes say: 0 leaves sums as they are, 1 divides by the root of the length, 2 by the length."""
    if mode == (2 if inverse else 0):
        return value
    count = op.CastLike(op.ReduceProd(op.Concat(*lengths, axis=0), keepdims=0), value)
    factor = op.Sqrt(count) if mode == 1 else count
    return op.Mul(value, factor) if inverse else op.Div(value, factor)


def stft(
    self: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Value:
    """torch.onnx's own, in the type that the transform needs."""
    stock = torchlib.onnx_function(torch.ops.aten.stft.default, False)
    assert stock is not None
    if align_to_window:
        raise NotImplementedError("frames that are aligned to the window")
    exact = _exact(self, [n_fft])
    exact.shape = self.shape
    made = stock(exact, n_fft, hop_length, win_length, window, normalized, onesided, return_complex)
    return op.CastLike(made, self)


def _window(*parts: float) -> Callable[..., Value]:
    """A window that is a sum of cosines with these factors, of a length that may be a computed size."""

    def made(
        window_length: Value, periodic: bool = True, *factors: float, dtype: int = -1, **_: Any
    ) -> Value:
        heights = [*parts]
        if factors:
            heights = [factors[0], factors[1] if len(factors) > 1 else parts[1]]
        length = op.Cast(scalar(window_length), to=DOUBLE)
        around = op.Max(length if periodic else op.Sub(length, _double(1.0)), _double(1.0))
        places = op.Cast(op.Range(0, scalar(window_length), 1), to=DOUBLE)
        angles = op.Div(op.Mul(places, _double(2 * np.pi)), around)
        wave = op.Add(op.Mul(places, _double(0.0)), _double(heights[0]))
        for number, height in enumerate(heights[1:], 1):
            turn = op.Cos(op.Cast(op.Mul(angles, _double(float(number))), to=FLOAT))
            wave = op.Add(wave, op.Mul(op.Cast(turn, to=DOUBLE), _double((-1) ** number * height)))
        single = op.Equal(length, _double(1.0))
        return op.Cast(op.Where(single, _double(1.0), wave), to=FLOAT if dtype in (-1, None) else dtype)

    return made


def _double(number: float) -> Value:
    return op.Constant(value=ir.tensor(np.asarray(number, np.float64)))


hann, hamming, blackman = _window(0.5, 0.5), _window(0.54, 0.46), _window(0.42, 0.5, 0.08)

aten = torch.ops.aten
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    aten._fft_r2c.default: real_to_complex,
    aten.stft.default: stft,
    **dict.fromkeys((aten.hann_window.default, aten.hann_window.periodic), hann),
    **dict.fromkeys((aten.blackman_window.default, aten.blackman_window.periodic), blackman),
    **dict.fromkeys(
        (
            aten.hamming_window.default,
            aten.hamming_window.periodic,
            aten.hamming_window.periodic_alpha,
            aten.hamming_window.periodic_alpha_beta,
        ),
        hamming,
    ),
}
COMPLEX: dict[Callable[..., Any], Callable[..., Any]] = {
    aten._fft_c2c.default: complex_to_complex,
    aten._fft_c2r.default: complex_to_real,
    aten.fft_irfft.default: half_to_signal,
    aten.fft_irfft2.default: halves_to_signal,
    aten.fft_irfftn.default: halves_to_signal,
}
