"""Tensors that Python made from sizes, in ONNX: small ones entry by entry, larger ones from their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from onnxscript.onnx_opset import opset18

from anyshape.capture.tape.constants import sizes_tensor

__all__ = ["TRANSLATIONS"]

Value: TypeAlias = Any
op: Any = opset18


def from_entries(entries: Sequence[Value], shape: Sequence[int], dtype: int) -> Value:
    """A tensor of numbers, some of which are computed from sizes."""
    cast = [op.Reshape(op.Cast(_scalar(entry), to=dtype), [1]) for entry in entries]
    flat = op.Concat(*cast, axis=0) if len(cast) > 1 else cast[0]
    return op.Reshape(flat, op.Constant(value_ints=list(shape)))


def _scalar(entry: Value) -> Value:
    if isinstance(entry, float):
        return op.Constant(value_float=entry)
    return op.Constant(value_int=int(entry)) if isinstance(entry, int) else entry


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {sizes_tensor: from_entries}
"""`index_tensor` is made by the translator itself: its entry is an expression of indices that only it can write."""
