"""Capture each recurrent layer as one operator, which lowers to ONNX's own RNN, LSTM or GRU.

PyTorch's recurrent kernels loop over time inside C++, so ``torch.export`` either fixes the sequence length
or unrolls it. Under :func:`recurrent_as_operators` the call is kept whole: its shapes are known without
looking at a size, and lower/operators/recurrent.py turns it into ONNX operators that loop at run time.

One call keeps PyTorch's own path, because ONNX has no operator that means the same: dropout between layers
while training. Packed sequences are not captured here either: PyTorch's own operators for them, which pack,
run the layers, and pad again, are translated as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from anyshape.torch_bridge.schemas import Operator

__all__ = ["OPERATORS", "drops_out", "recurrent_as_operators"]


_SCHEMA = (
    "(Tensor input, Tensor[] states, Tensor[] weights, bool has_biases, int num_layers,"
    " bool bidirectional, bool batch_first) -> "
)


def _define(kernel: Callable[..., Any], *, returns: str) -> Operator:
    """The operator ``anyshape::<kernel>``, which is the dense kernel without its dropout."""

    def run(
        input: Tensor,
        states: list[Tensor],
        weights: list[Tensor],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        if states[0].shape[1] == 0 and input.shape[1 if batch_first else 0] > 0:
            # No rows, no work. PyTorch's own path divides by their number when it is traced (torch 2.13).
            return _fake(input, states, weights, has_biases, num_layers, bidirectional, batch_first)
        initial = states if kernel is torch.lstm else states[0]
        result: tuple[Tensor, ...] = kernel(
            input, initial, weights, has_biases, num_layers, 0.0, False, bidirectional, batch_first
        )
        return result

    name = kernel.__name__
    definition = torch.library.custom_op(f"anyshape::{name}", run, mutates_args=(), schema=_SCHEMA + returns)
    definition.register_fake(_fake)
    overload: Operator = getattr(torch.ops.anyshape, name).default
    return overload


def _fake(
    input: Tensor,
    states: list[Tensor],
    weights: list[Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    features = states[0].shape[2] * (2 if bidirectional else 1)
    if batch_first:
        # The kernels work time-major and hand back a transposed view; a later `view` or `is_contiguous`
        # has to see the same strides here as it does when the model runs.
        output = input.new_empty(input.shape[1], input.shape[0], features).transpose(0, 1)
    else:
        output = input.new_empty(input.shape[0], input.shape[1], features)
    return (output, *(state.new_empty(state.shape) for state in states))


OPERATORS: dict[Callable[..., Any], Operator] = {
    torch.lstm: _define(torch.lstm, returns="(Tensor, Tensor, Tensor)"),
    torch.gru: _define(torch.gru, returns="(Tensor, Tensor)"),
    torch.rnn_tanh: _define(torch.rnn_tanh, returns="(Tensor, Tensor)"),
    torch.rnn_relu: _define(torch.rnn_relu, returns="(Tensor, Tensor)"),
}


_DENSE_PARAMETERS = (
    "input",
    "hx",
    "params",
    "has_biases",
    "num_layers",
    "dropout",
    "train",
    "bidirectional",
    "batch_first",
)


@contextmanager
def recurrent_as_operators() -> Iterator[None]:
    """Within this context, recurrent kernels are called as one operator each, whole over time.

    >>> time, batch = torch.export.Dim.DYNAMIC, torch.export.Dim.DYNAMIC
    >>> model, example = torch.nn.GRU(2, 3).eval(), (torch.zeros(5, 4, 2),)
    >>> with recurrent_as_operators():
    ...     program = torch.export.export(model, example, dynamic_shapes=({0: time, 1: batch},))
    >>> [str(node.target) for node in program.graph.nodes if "gru" in node.name]
    ['anyshape.gru.default']
    """
    with _RecurrentMode():
        yield


class _RecurrentMode(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        operator = OPERATORS.get(func)
        if operator is None:
            return func(*args, **given)
        call = dict(zip(_DENSE_PARAMETERS, args, strict=False)) | given
        if not _has_onnx_operator(call):
            return func(*args, **given)
        states = [call["hx"]] if isinstance(call["hx"], Tensor) else list(call["hx"])
        return operator(
            call["input"],
            states,
            list(call["params"]),
            call["has_biases"],
            call["num_layers"],
            call["bidirectional"],
            call["batch_first"],
        )


def _has_onnx_operator(call: dict[str, Any]) -> bool:
    # The packed overloads know no `batch_first`, and take `batch_sizes` second: by position, that moves the
    # weights to where a dense call has the flag for biases.
    if "batch_first" not in call or not isinstance(call["has_biases"], bool):
        return False
    return not drops_out(call["num_layers"], call["dropout"], call["train"])


def drops_out(num_layers: int, dropout: float, train: bool) -> bool:
    """Whether there is dropout between layers, which ONNX's operators don't have."""
    return train and dropout > 0 and num_layers > 1
