"""Convolutions whose padding depends on the sizes: torch.onnx takes plain numbers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir
import torch

from anyshape.lower.operators.building import Value, one_number, op, rank_of
from anyshape.torch_bridge import torchlib

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten
Numbers: TypeAlias = Value | Sequence[Value]


def convolution(
    input: Value,
    weight: Value,
    bias: Value,
    stride: Sequence[int],
    padding: Sequence[Value],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[Value],
    groups: int,
) -> Value:
    """As torch.onnx has it, with padding that is a computed size put around the input or taken off the result."""
    stock = torchlib.onnx_function(aten.convolution.default, False)
    assert stock is not None
    if all(isinstance(size, int) for size in (*padding, *output_padding)):
        return stock(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    nothing, axes = [0] * len(stride), [*range(2, rank_of(input))]
    around = op.Concat(*map(one_number, padding), axis=0)
    if not transposed:
        padded = op.Pad(input, op.Concat(around, around, axis=0), None, axes)
        padded.dtype, padded.shape = input.dtype, ir.Shape([*input.shape[:2], *[None] * len(axes)])
        return stock(padded, weight, bias, stride, nothing, dilation, False, nothing, groups)
    # The whole result, and zeros behind it; what padding takes off at either end is cut.
    whole = stock(input, weight, None, stride, nothing, dilation, True, nothing, groups)
    more = op.Concat(op.Constant(value_ints=nothing), *map(one_number, output_padding), axis=0)
    longer = op.Pad(whole, more, None, axes)
    made = op.Slice(longer, around, op.Sub(op.Shape(longer, start=2), around), axes)
    return made if bias is None else op.Add(made, op.Unsqueeze(bias, [0, *axes]))


def transposed_convolution(
    input: Value,
    weight: Value,
    bias: Value = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Value:
    """A transposed convolution before PyTorch takes it apart."""
    count = rank_of(weight) - 2
    steps, around, behind, apart = (
        _each(item, count) for item in (stride, padding, output_padding, dilation)
    )
    wide = _with_batch(input, count + 2)
    made = convolution(wide, weight, bias, steps, around, apart, True, behind, groups)
    return made if wide is input else op.Squeeze(made, [0])


def plain_convolution(target: Any) -> Callable[..., Value]:
    """A convolution before PyTorch takes it apart: as torch.onnx has it, if its padding is a number."""

    def translate(
        input: Value,
        weight: Value,
        bias: Value = None,
        stride: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Value:
        count = rank_of(weight) - 2
        around = _each(padding, count)
        if all(isinstance(size, int) for size in around):
            stock = torchlib.onnx_function(target, False)
            assert stock is not None
            return stock(input, weight, bias, stride, padding, dilation, groups)
        wide = _with_batch(input, count + 2)
        steps, apart = _each(stride, count), _each(dilation, count)
        made = convolution(wide, weight, bias, steps, around, apart, False, [0] * count, groups)
        return made if wide is input else op.Squeeze(made, [0])

    return translate


def _each(numbers: Numbers, count: int) -> list[Value]:
    """One number for each axis."""
    given = list(numbers) if isinstance(numbers, Sequence) else [numbers]
    return given * count if len(given) == 1 else given


def _with_batch(value: Value, rank: int) -> Value:
    if rank_of(value) == rank:
        return value
    made = op.Unsqueeze(value, [0])
    made.dtype, made.shape = value.dtype, ir.Shape([1, *value.shape])
    return made


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    aten.convolution.default: convolution,
    **{
        item: plain_convolution(item)
        for item in (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
    },
    **dict.fromkeys(
        (aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input),
        transposed_convolution,
    ),
}
