"""Operators that torch.onnx takes apart first, though ONNX has one that says the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from onnxscript.onnx_opset import opset18

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten
Value: TypeAlias = Any
op: Any = opset18


def batch_norm(
    input: Value,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Value:
    """Batch normalisation with the statistics of the training."""
    if training or running_mean is None:
        raise NotImplementedError("batch normalisation by the statistics of the batch")
    zeros = op.Sub(running_mean, running_mean)
    scale = op.Add(zeros, op.CastLike(1.0, running_mean)) if weight is None else weight
    shift = zeros if bias is None else bias
    return op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)


def same(self: Value, *rest: Any, **named: Any) -> Value:
    """An operator that changes nothing when a model runs."""
    return op.Identity(self)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    aten.batch_norm.default: batch_norm,
    **dict.fromkeys((aten.contiguous.default, aten.detach.default, aten.lift_fresh.default), same),
}
"""Translations of operators as they are before PyTorch takes them apart."""
