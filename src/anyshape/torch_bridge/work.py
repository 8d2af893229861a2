"""How much work a run is, in nominal seconds: the same on every machine, on a busy day and on an idle one.

Budgets are spent in this coin, never in seconds of a clock: what is tried, and so the contract and the verdict, must
not depend on what else a machine is doing. A nominal second is about one of a single core of 2026.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from anyshape.torch_bridge.control_flow import Plain, run_by

__all__ = ["Patience", "TooLong", "Work", "nominal_seconds"]

AN_OPERATOR = 1.2e-5  # seconds to call it
A_NUMBER = 2e-9  # to write it
A_MULTIPLICATION = 2e-11
A_CONVOLUTION = 4e-4  # more: a kernel is compiled for each shape that it has not seen
LAYERS = (
    "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
    "mkldnn_rnn_layer",
    "lstm",
    "gru",
    "rnn",
)
"""Operators that are a whole layer, which PyTorch's own formulas leave out."""


def nominal_seconds(run: Callable[[], Any]) -> float:
    """What ``run()`` costs; what it returns is dropped."""
    work = Work()
    with work:
        run()
    return work.seconds


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators, the numbers that they write, and their multiplications."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds = 0.0
        self.flow = contextlib.ExitStack()

    def __enter__(self) -> Work:
        self.flow.enter_context(run_by(Plain()))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        with self.flow:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        one = isinstance(result, torch.Tensor)  # almost always
        numbers = result.numel() if one else sum(tensor.numel() for tensor in _tensors(result))
        self.seconds += AN_OPERATOR + A_NUMBER * numbers
        self.seconds += A_MULTIPLICATION * _multiplications(func, args, kwargs or {}, result)
        self.seconds += A_CONVOLUTION * (func.overloadpacket is torch.ops.aten.convolution)
        return result


aten = torch.ops.aten
# Whether they are told the sizes of the parts, before the axis.
PARTS = {aten.split.Tensor: True, aten.split_with_sizes.default: True, aten.unbind.int: False}


class TooLong(RuntimeError):
    """A run calls more operators than it is worth."""


class Patience(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators, those inside a layer too, and gives up at too many."""

    def __init__(self, most: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self.most = 0, most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        # Who takes a tensor into so many parts goes over them, and even to make them takes seconds.
        if max(self.count, _parts(func, args)) > self.most:
            raise TooLong(f"more than {self.most} operators")
        return func(*args, **(kwargs or {}))


def _parts(func: Any, args: Any) -> int:
    """Into how many tensors an operator takes one."""
    if func not in PARTS:
        return 0
    tensor, *given = args
    sizes, axes = (given[:1], given[1:2]) if PARTS[func] else ((), given[:1])
    length = tensor.shape[axes[0] if axes else 0] if tensor.dim() else 0
    if not sizes:
        return int(length)
    return len(sizes[0]) if isinstance(sizes[0], (list, tuple)) else int(length // max(1, sizes[0]))


def _multiplications(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    packet = func.overloadpacket
    formula = flop_registry.get(packet)
    if formula is not None:
        return float(formula(*args, **kwargs, out_val=result))
    if packet.__name__.startswith(LAYERS):
        first, *weights = _tensors(args)
        rows = first.numel() // max(1, first.shape[-1] if first.dim() else 1)
        return 2.0 * rows * sum(weight.numel() for weight in weights if weight.dim() == 2)
    return 0.0


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
