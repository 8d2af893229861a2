"""Operators whose ONNX form keeps a fraction in 24 bits, for float64: an epsilon of 1e-05 would be 9.99999975e-06.

An attribute of an ONNX node is never a double. What PyTorch does with the fraction is written out for those tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from anyshape.lower.operators.building import DOUBLE, Value, op
from anyshape.torch_bridge import torchlib

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten


def _number(number: float) -> Value:
    return op.Constant(value=ir.tensor(number, dtype=DOUBLE))


def layer_norm(
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value = None,
    bias: Value = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    """Numbers as far from the mean of the last axes as their spread there."""
    axes = op.Constant(value_ints=[-1 - axis for axis in range(len(normalized_shape))])
    away = op.Sub(input, op.ReduceMean(input, axes))
    spread = op.ReduceMean(op.Mul(away, away), axes)
    made = op.Div(away, op.Sqrt(op.Add(spread, _number(eps))))
    made = made if weight is None else op.Mul(made, weight)
    return made if bias is None else op.Add(made, bias)


def leaky_relu(self: Value, negative_slope: float = 0.01) -> Value:
    """Numbers below zero made smaller."""
    return op.Where(op.Less(self, _number(0.0)), op.Mul(self, _number(negative_slope)), self)


def elu(self: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    """Numbers below zero as an exponential that ends at minus ``alpha``."""
    below = op.Mul(op.Sub(op.Exp(op.Mul(self, _number(input_scale))), _number(1.0)), _number(alpha))
    return op.Mul(op.Where(op.Less(self, _number(0.0)), below, self), _number(scale))


def _of_doubles(target: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    """Our translation for float64, torch.onnx's for all else."""

    @functools.wraps(own)
    def translate(tensor: Value, *args: Any, **kwargs: Any) -> Any:
        usual = torchlib.onnx_function(target, False)
        return (
            own(tensor, *args, **kwargs)
            if tensor.dtype == DOUBLE or usual is None
            else usual(tensor, *args, **kwargs)
        )

    return translate


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    target: _of_doubles(target, own)
    for target, own in (
        (aten.layer_norm.default, layer_norm),
        (aten.leaky_relu.default, leaky_relu),
        (aten.elu.default, elu),
    )
}
