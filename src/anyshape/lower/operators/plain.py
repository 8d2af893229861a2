"""Operators that torch.onnx takes apart first, though ONNX has one that says the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from anyshape.lower.operators.building import FLOAT, Value, op, rank_of, scalar
from anyshape.torch_bridge import torchlib

__all__ = ["TRANSLATIONS"]

aten = torch.ops.aten


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
    """Batch normalisation with the statistics of the training; of the batch itself, where none were kept."""
    if training or running_mean is None:
        return _by_batch(input, weight, bias, eps)
    zeros = op.Sub(running_mean, running_mean)
    scale = op.Add(zeros, op.CastLike(1.0, running_mean)) if weight is None else weight
    shift = zeros if bias is None else bias
    return op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)


def _by_batch(input: Value, weight: Value, bias: Value, eps: float) -> Value:
    """Each channel with the mean and the variance that it has here."""
    rank = rank_of(input)
    axes = op.Constant(value_ints=[axis for axis in range(rank) if axis != 1])
    centred = op.Sub(input, op.ReduceMean(input, axes, keepdims=1))
    variance = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=1)
    made = op.Div(centred, op.Sqrt(op.Add(variance, op.CastLike(eps, input))))
    sides = op.Constant(value_ints=[axis for axis in range(rank) if axis != 1])
    scaled = made if weight is None else op.Mul(made, op.Unsqueeze(weight, sides))
    return scaled if bias is None else op.Add(scaled, op.Unsqueeze(bias, sides))


def attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Attention as torch.onnx has it, but zeros for a query that may look at no key: that is what PyTorch gives.

    Where heads share keys and values, these are repeated first; axes for batch and heads are added where they lack.
    """
    if enable_gqa:
        key, value = _repeated(key, query), _repeated(value, query)
    lacking = list(range(4 - len(query.shape)))
    query, key, value = (_widened(tensor, lacking) for tensor in (query, key, value))
    added = None if attn_mask is None else _added(attn_mask, query.dtype)
    stock = torchlib.onnx_function(aten.scaled_dot_product_attention.default, False)
    assert stock is not None
    made = stock(query, key, value, added, dropout_p, is_causal, scale=scale)
    if added is not None:
        best = op.ReduceMax(added, op.Constant(value_ints=[-1]), keepdims=1)
        made = op.Where(op.Equal(best, _constant(-math.inf, query.dtype)), _constant(0.0, query.dtype), made)
    return op.Squeeze(made, op.Constant(value_ints=lacking)) if lacking else made


def _widened(value: Value, axes: list[int]) -> Value:
    """The value with new axes of one."""
    if not axes:
        return value
    made = op.Unsqueeze(value, op.Constant(value_ints=axes))
    made.dtype, made.shape = value.dtype, ir.Shape([1] * len(axes) + list(value.shape))
    return made


def _added(mask: Value, dtype: ir.DataType) -> Value:
    """A mask as numbers to add to the scores: minus infinity, not the least number, where nothing may be seen."""
    if mask.dtype != ir.DataType.BOOL:
        return mask
    made = op.Where(mask, _constant(0.0, dtype), _constant(-math.inf, dtype))
    made.dtype, made.shape = dtype, mask.shape
    return made


def _constant(number: float, dtype: ir.DataType) -> Value:
    return op.Constant(value=ir.tensor(number, dtype=dtype))


def _repeated(value: Value, query: Value) -> Value:
    """Each head as often in a row as makes it as many as the queries have."""
    rank = len(value.shape)
    heads, wanted = op.Shape(value, start=-3, end=-2), op.Shape(query, start=-3, end=-2)
    before, after = op.Shape(value, end=-3), op.Shape(value, start=-2)
    wide = op.Unsqueeze(value, op.Constant(value_ints=[rank - 2]))
    wide = op.Expand(wide, op.Concat(before, heads, op.Div(wanted, heads), after, axis=0))
    made = op.Reshape(wide, op.Concat(before, wanted, after, axis=0), allowzero=1)
    made.dtype = value.dtype
    made.shape = ir.Shape([*value.shape[:-3], query.shape[-3], *value.shape[-2:]])
    return made


def eye(n: Value, m: Value = None, *, dtype: int = -1, **_: Any) -> Value:
    """Ones where row and column are the same. PyTorch takes it apart with the narrowest integers that hold ``n``."""
    rows, columns = (
        op.Range(op.Constant(value_int=0), scalar(size), op.Constant(value_int=1))
        for size in (n, n if m is None else m)
    )
    alike = op.Equal(op.Unsqueeze(rows, op.Constant(value_ints=[1])), columns)
    return op.Cast(alike, to=dtype if dtype != -1 else FLOAT)


def same(self: Value, *rest: Any, **named: Any) -> Value:
    """An operator that changes nothing when a model runs."""
    return op.Identity(self)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    aten.batch_norm.default: batch_norm,
    aten.scaled_dot_product_attention.default: attention,
    aten.eye.default: eye,
    aten.eye.m: eye,
    **dict.fromkeys(
        (
            aten.contiguous.default,
            aten.detach.default,
            aten.lift_fresh.default,
            torch.ops.prims.view_of.default,
        ),
        same,
    ),
}
"""Translations of operators as they are before PyTorch takes them apart."""
