"""Tensors without data, and PyTorch's own tracer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx.experimental._config as fx_config
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = ["fake_mode", "needs_values", "size_oblivious", "traced_symbolically", "traced_without_data"]


def fake_mode() -> FakeTensorMode:
    """A mode in which tensors have shapes but no data; real weights are taken in as they come."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def needs_values(error: BaseException) -> bool:
    """Whether a run without data stopped because something asked for data, which says nothing of the sizes."""
    return isinstance(
        error,
        (
            DataDependentOutputException,
            DynamicOutputShapeException,
            UnsupportedFakeTensorException,
            UnsupportedOperatorException,
        ),
    )


def size_oblivious() -> contextlib.AbstractContextManager[Any]:
    """Trace without treating sizes 0 and 1 as special: torch.export has no public switch for it."""
    made: contextlib.AbstractContextManager[Any] = fx_config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return made


def traced_symbolically(function: Callable[..., Any], tensors: Sequence[Any]) -> torch.fx.GraphModule:
    """The operators that ``function`` calls on tensors without data that belong to a symbolic trace."""
    with size_oblivious(), tensors[0].fake_mode:
        return make_fx(_plain_result(function), tracing_mode="real")(*tensors)


def traced_without_data(function: Callable[..., Any], values: Sequence[Any]) -> torch.fx.GraphModule:
    """The operators that ``function`` calls on tensors of the shapes, strides and types of ``values``."""
    with FakeTensorMode():
        tensors = [
            torch.empty_strided(value.shape, value.strides, dtype=value.dtype)
            if value.strides is not None
            else torch.empty(value.shape, dtype=value.dtype)
            for value in values
        ]
        return make_fx(_plain_result(function))(*tensors)


def _plain_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """A named tuple as a plain one: a trace would hold a call of its class."""

    def call(*tensors: Any) -> Any:
        made = function(*tensors)
        return tuple(made) if isinstance(made, tuple) else made

    return call
