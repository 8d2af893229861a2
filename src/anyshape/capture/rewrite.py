"""Calls that a trace or torch.onnx can't carry at every size, said in calls that they can.

torch.linspace and its like take a plain number of steps, so a trace fixes the size that it is computed from. While a
module is traced, such a call with a symbolic size is replaced by others with the same result; any other call is left as
it is.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import SymInt, Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["sizes_kept"]


class sizes_kept(TorchFunctionMode):  # noqa: N801 - used as a context, not as a type
    """Within it, calls with symbolic sizes are rewritten."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        rewrite = REWRITES.get(func)
        made = rewrite(*args, **kwargs) if rewrite and _fits(rewrite, args, kwargs) else NotImplemented
        return func(*args, **kwargs) if made is NotImplemented else made


def _fits(rewrite: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call is one that the rewrite knows: PyTorch's functions have more ways to be called."""
    try:
        inspect.signature(rewrite).bind(*args, **kwargs)
    except TypeError:
        return False
    return kwargs.get("out") is None


def _symbolic(*values: Any) -> bool:
    return any(isinstance(value, SymInt) for value in values)


def linspace(start: Any, end: Any, steps: Any, **options: Any) -> Any:
    """Counted from both ends, as PyTorch does it, so that both are met exactly."""
    if not _symbolic(start, end, steps) or isinstance(start, Tensor) or isinstance(end, Tensor):
        return NotImplemented
    dtype = options.pop("dtype", None) or torch.get_default_dtype()
    if not dtype.is_floating_point:
        return NotImplemented
    places = torch.arange(steps, dtype=dtype, **options)
    first, last = torch.full_like(places, start), torch.full_like(places, end)
    behind = torch.arange(steps - 1, -1, -1, dtype=dtype, **options)
    step = (last - first) / (places + behind).clamp(min=1)
    return torch.where(places <= behind, first + step * places, last - step * behind)


def logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> Any:
    powers = linspace(start, end, steps, **options)
    return powers if powers is NotImplemented else torch.pow(base, powers)


def hann_window(window_length: Any, periodic: bool = True, **options: Any) -> Any:
    return _cosine_window(window_length, periodic, 0.5, options)


def hamming_window(window_length: Any, periodic: bool = True, alpha: float = 0.54, **options: Any) -> Any:
    return _cosine_window(window_length, periodic, alpha, options)


def _cosine_window(length: Any, periodic: bool, middle: float, options: dict[str, Any]) -> Any:
    if not _symbolic(length):
        return NotImplemented
    places = torch.arange(length, dtype=options.pop("dtype", None) or torch.get_default_dtype(), **options)
    around = torch.full_like(places, length if periodic else length - 1).clamp(min=1)
    waves = middle - (1 - middle) * torch.cos(places * (2 * math.pi) / around)
    return torch.where(torch.full_like(places, length) == 1, torch.ones_like(places), waves)


def fftfreq(n: Any, d: float = 1.0, **options: Any) -> Any:
    if not _symbolic(n):
        return NotImplemented
    places = torch.arange(n, dtype=options.pop("dtype", None) or torch.get_default_dtype(), **options)
    return torch.where(places < (n + 1) // 2, places, places - n) / (torch.full_like(places, n) * d)


def rfftfreq(n: Any, d: float = 1.0, **options: Any) -> Any:
    if not _symbolic(n):
        return NotImplemented
    places = torch.arange(
        n // 2 + 1, dtype=options.pop("dtype", None) or torch.get_default_dtype(), **options
    )
    return places / (torch.full_like(places, n) * d)


def tril_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> Any:
    if not _symbolic(row, col, offset):
        return NotImplemented
    return torch.ones(row, col, dtype=torch.bool).tril(offset).nonzero().T.to(**options)


def triu_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> Any:
    if not _symbolic(row, col, offset):
        return NotImplemented
    return torch.ones(row, col, dtype=torch.bool).triu(offset).nonzero().T.to(**options)


def one_hot(tensor: Tensor, num_classes: Any = -1) -> Any:
    if not _symbolic(num_classes):
        return NotImplemented
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).long()


def tensor_split(input: Tensor, sections: Any, dim: int = 0) -> Any:
    """The pieces' sizes differ by one at most, the longer ones first."""
    size = input.shape[dim]
    if not isinstance(sections, int) or isinstance(sections, SymInt) or not _symbolic(size):
        return NotImplemented
    pieces, start = [], 0
    for number in range(sections):
        length = (size + sections - 1 - number) // sections
        pieces.append(input.narrow(dim, start, length))
        start = start + length
    return tuple(pieces)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Any:
    """Both are spread to one shape but for the axis that is looked up."""
    if dim is None:
        return input.flatten().gather(0, indices.flatten())
    if input.dim() != indices.dim():
        return NotImplemented
    axis = dim % input.dim()
    sizes = list(zip(input.shape, indices.shape, strict=True))
    around = [two if isinstance(one, int) and one == 1 else one for one, two in sizes]
    places = indices.expand([*around[:axis], -1, *around[axis + 1 :]])
    return input.expand([*around[:axis], -1, *around[axis + 1 :]]).gather(axis, places)


def kron(input: Tensor, other: Tensor) -> Any:
    """Every number of the one times the whole of the other."""
    if not _symbolic(*input.shape, *other.shape):
        return NotImplemented
    rank = max(input.dim(), other.dim())
    one = [1] * (rank - input.dim()) + [*input.shape]
    two = [1] * (rank - other.dim()) + [*other.shape]
    outer = input.reshape([size for length in one for size in (length, 1)])
    inner = other.reshape([size for length in two for size in (1, length)])
    return (outer * inner).reshape([a * b for a, b in zip(one, two, strict=True)])


def multi_dot(tensors: Sequence[Tensor], **options: Any) -> Any:
    """From left to right: which order is cheapest depends on the sizes."""
    if not any(_symbolic(*tensor.shape) for tensor in tensors):
        return NotImplemented
    return functools.reduce(torch.matmul, tensors)


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Any = None, *rest: Any, mode: str = "mean", **options: Any
) -> Any:
    """Bags of one length are rows; torch.onnx would loop over them."""
    if input.dim() != 2 or rest or not options.items() <= PLAIN_BAG.items() or mode not in BAGS:
        return NotImplemented
    return BAGS[mode](F.embedding(input, weight), 1)


PLAIN_BAG = {
    "max_norm": None,
    "norm_type": 2.0,
    "scale_grad_by_freq": False,
    "sparse": False,
    "per_sample_weights": None,
    "include_last_offset": False,
    "padding_idx": None,
}
BAGS: dict[str, Callable[..., Any]] = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Any:
    """torch.onnx fails where one bound is an integer and the other is not (torch 2.13)."""
    if {type(min), type(max)} != {int, float}:
        return NotImplemented
    return torch.clamp(input, float(min), float(max))


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """By way of two axes: PyTorch looks at the size of the one axis as a number."""
    if return_indices or not _symbolic(*input.shape):
        return NotImplemented
    first = [_first(value) for value in (kernel_size, stride or kernel_size, padding, dilation)]
    window, step, around, apart = first
    wide = F.max_pool2d(
        input.unsqueeze(-2), (1, window), (1, step), (0, around), (1, apart), ceil_mode=ceil_mode
    )
    return wide.squeeze(-2)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) else value


def whole_average(axes: int) -> Callable[..., Any]:
    """Average pooling whose window is the whole plane."""

    def rewrite(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **options: Any
    ) -> Any:
        if options or rest or not _is_whole(input, kernel_size, padding, axes):
            return NotImplemented
        return input.mean(tuple(range(-axes, 0)), keepdim=True)

    return rewrite


def whole_maximum(axes: int) -> Callable[..., Any]:
    """Max pooling whose window is the whole plane."""

    def rewrite(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **options: Any
    ) -> Any:
        plain = {"dilation": 1, "ceil_mode": False, "return_indices": False}
        if rest or not options.items() <= plain.items() or not _is_whole(input, kernel_size, padding, axes):
            return NotImplemented
        return input.amax(tuple(range(-axes, 0)), keepdim=True)

    return rewrite


def _is_whole(input: Tensor, kernel: Any, padding: Any, axes: int) -> bool:
    window = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel] * axes
    return padding == 0 and _symbolic(*window) and _same(window, input.shape[-axes:])


def _same(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Whether sizes are the same in writing, which says nothing about the trace's own numbers."""
    return [str(size) for size in one] == [str(size) for size in two]


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    return _max_pooled(input, output_size, return_indices, 2)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    return _max_pooled(input, output_size, return_indices, 3)


def _max_pooled(input: Tensor, output_size: Any, return_indices: bool, axes: int) -> Any:
    """Axis by axis; one whose size is None is left as it is."""
    wanted = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * axes
    if return_indices or not any(size is None or _symbolic(size) for size in wanted):
        return NotImplemented
    for axis, size in enumerate(wanted):
        if size is not None:
            input = _max_in_windows(input, size, axis - axes)
    return input


def _max_in_windows(input: Tensor, count: Any, axis: int) -> Tensor:
    size = input.shape[axis]
    windows = torch.arange(count, device=input.device)
    start = windows * size // count
    end = ((windows + 1) * size + count - 1) // count
    longest = (size + count - 1) // count + 1
    # A place behind a window's end is its last one again, which does not change its maximum.
    places = torch.minimum(start[:, None] + torch.arange(longest, device=input.device), end[:, None] - 1)
    axis += input.dim()
    shape = [*input.shape[:axis], count, longest, *input.shape[axis + 1 :]]
    return input.index_select(axis, places.flatten()).reshape(shape).amax(axis + 1)


def affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Any:
    """The points of a plane or a volume between -1 and 1, mapped."""
    lengths = list(size)[2:]
    if not _symbolic(*lengths):
        return NotImplemented
    lines = [_between_edges(length, bool(align_corners), theta) for length in lengths]
    columns = [line.expand(lengths) for line in torch.meshgrid(*lines, indexing="ij")][::-1]
    points = torch.stack([*columns, torch.ones_like(columns[0])], -1)
    mapped = points.flatten(0, -2) @ theta.mT
    return mapped.reshape(-1, *lengths, len(lengths))


def _between_edges(length: Any, align_corners: bool, like: Tensor) -> Any:
    places = torch.arange(length, dtype=like.dtype, device=like.device)
    if align_corners:
        return (2 * places - (length - 1)) / (torch.full_like(places, length) - 1).clamp(min=1)
    return (2 * places + 1) / length - 1


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """Each frame is a sum of waves, and frames add up where they overlap: one transposed convolution."""
    if return_complex or onesided is False or not _symbolic(*input.shape):
        return NotImplemented
    hop, size = hop_length or n_fft // 4, win_length or n_fft
    shape = torch.ones(size) if window is None else window
    left = (n_fft - size) // 2
    shape = F.pad(shape, (left, n_fft - size - left))
    parts = torch.view_as_real(input).movedim(-1, -3).flatten(-3, -2)
    frames = parts if parts.dim() == 3 else parts.unsqueeze(0)
    scale = math.sqrt(n_fft) if normalized else 1.0
    signal = F.conv_transpose1d(frames, (_waves(n_fft) * shape * scale).unsqueeze(1), stride=hop)
    ones = torch.ones_like(frames[:1, :1])
    signal = signal / F.conv_transpose1d(ones, shape.square()[None, None], stride=hop).clamp(min=1e-11)
    start = n_fft // 2 if center else 0
    signal = signal[:, 0, start:]
    if length is not None:
        signal = F.pad(signal, (0, length))[:, :length]
    elif center:
        signal = signal[:, : -(n_fft // 2)]
    return signal if parts.dim() == 3 else signal[0]


def _waves(n_fft: int) -> Tensor:
    """What each bin's real and imaginary part gives to the frame of a real signal."""
    angles = (
        2 * math.pi / n_fft * torch.outer(torch.arange(n_fft // 2 + 1), torch.arange(n_fft)).remainder(n_fft)
    )
    twice = torch.full((n_fft // 2 + 1, 1), 2.0 / n_fft)
    twice[0] = 1.0 / n_fft
    if n_fft % 2 == 0:
        twice[-1] = 1.0 / n_fft
    return torch.cat([twice * angles.cos(), -twice * angles.sin()])


REWRITES: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.linspace: linspace,
    torch.logspace: logspace,
    torch.hann_window: hann_window,
    torch.hamming_window: hamming_window,
    torch.fft.fftfreq: fftfreq,
    torch.fft.rfftfreq: rfftfreq,
    torch.istft: istft,
    Tensor.istft: istft,
    torch.tril_indices: tril_indices,
    torch.triu_indices: triu_indices,
    F.one_hot: one_hot,
    torch.kron: kron,
    Tensor.kron: kron,
    torch.linalg.multi_dot: multi_dot,
    torch.take_along_dim: take_along_dim,
    Tensor.take_along_dim: take_along_dim,
    F.embedding_bag: embedding_bag,
    torch.clamp: clamp,
    Tensor.clamp: clamp,
    torch.tensor_split: tensor_split,
    Tensor.tensor_split: tensor_split,
    F.affine_grid: affine_grid,
    F.max_pool1d: max_pool1d,
    torch.max_pool1d: max_pool1d,
    F.max_pool2d: whole_maximum(2),
    F.max_pool3d: whole_maximum(3),
    F.avg_pool1d: whole_average(1),
    F.avg_pool2d: whole_average(2),
    F.avg_pool3d: whole_average(3),
    F.adaptive_max_pool2d: adaptive_max_pool2d,
    F.adaptive_max_pool3d: adaptive_max_pool3d,
}
