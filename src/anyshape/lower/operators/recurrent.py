"""Recurrent layers, dense and packed, as ONNX's own RNN, LSTM and GRU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import onnx_ir as ir
import torch
from onnxscript.onnx_opset import opset18

from anyshape.capture.recurrent import OPERATORS, drops_out

__all__ = ["TRANSLATIONS"]

op: Any = opset18
# An `onnxscript.ir.Value`. It is not called that because onnxscript types its operators by tensor type, and
# torch.onnx reads the annotations of a translation and warns about any other class.
Value: TypeAlias = Any
_Weights: TypeAlias = tuple[Value, Value, Value | None]


@dataclass(frozen=True, slots=True)
class _Cell:
    """An ONNX recurrent operator, and where each of its gates lies in PyTorch's weights."""

    operator: Callable[..., Any]
    gates: tuple[int, ...]
    activation: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    runs_empty_batches: bool = True


# PyTorch: in, forget, cell, out; ONNX: in, out, forget, cell.
_LSTM = _Cell(op.LSTM, gates=(0, 3, 1, 2), runs_empty_batches=False)
# PyTorch: reset, update, new; ONNX: update, reset, new. PyTorch resets after the hidden matrix product.
_GRU = _Cell(op.GRU, gates=(1, 0, 2), attributes={"linear_before_reset": 1}, runs_empty_batches=False)
_RNN_TANH = _Cell(op.RNN, gates=(0,), activation="Tanh")
_RNN_RELU = _Cell(op.RNN, gates=(0,), activation="Relu")


@dataclass(frozen=True, slots=True)
class _Stack:
    """The layers of one recurrent module."""

    cell: _Cell
    weights: Sequence[Value]
    has_biases: bool
    num_layers: int
    bidirectional: bool

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def hidden(self) -> int:
        return _fixed_sizes(self.weights[0])[0] // len(self.cell.gates)

    @property
    def features(self) -> int:
        """How many numbers a step of one direction gives."""
        return _fixed_sizes(self.weights[1])[1]

    @property
    def per_direction(self) -> int:
        return len(self.weights) // (self.num_layers * self.directions)

    @property
    def projects(self) -> bool:
        """Whether each direction of each layer has one more weight, which maps its output (``proj_size``)."""
        return self.per_direction == (5 if self.has_biases else 3)

    @property
    def attributes(self) -> dict[str, Any]:
        given = dict(self.cell.attributes)
        given["hidden_size"] = self.hidden
        given["direction"] = "bidirectional" if self.bidirectional else "forward"
        if self.cell.activation is not None:
            given["activations"] = [self.cell.activation] * self.directions
        return given


def _translation(cell: _Cell) -> Callable[..., tuple[Value, ...]]:
    def translate(
        input: Value,
        states: Sequence[Value],
        weights: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        stack = _Stack(cell, weights, has_biases, num_layers, bidirectional)
        time_major = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        output, *final_states = _run_stack_with_a_row(stack, time_major, states)
        if batch_first:
            output = op.Transpose(output, perm=[1, 0, 2])
        return output, *final_states

    return translate


def _run_stack_with_a_row(stack: _Stack, sequence: Value, states: Sequence[Value]) -> list[Value]:
    """As :func:`_run_stack`, but a row of zeros stands in for an empty batch while the layers run."""
    # ONNX Runtime 1.31.1 on CPU ends the whole process ("terminate called without an active exception") when
    # an LSTM or GRU node gets a batch of 0; its RNN is right. We know of no upstream issue. This can go, with
    # `runs_empty_batches`, once the oldest ONNX Runtime that we support runs both.
    batch_size = states[0].shape[1]
    never_empty = isinstance(batch_size, int) and batch_size > 0
    if stack.cell.runs_empty_batches or never_empty:
        return _run_stack(stack, sequence, states)
    batch = op.Shape(sequence, start=1, end=2)
    rows_before_and_after = op.Clip(op.Sub([0, 1], batch), 0)
    padded = [op.Pad(value, rows_before_and_after, None, [1]) for value in (sequence, *states)]
    return [op.Slice(result, [0], batch, [1]) for result in _run_stack(stack, padded[0], padded[1:])]


def _run_stack(
    stack: _Stack, sequence: Value, states: Sequence[Value], lengths: Value | None = None
) -> list[Value]:
    """The output of the last layer, then each kind of final state of all layers.

    With lengths, each row of the batch ends at its own: there its forward state is final, and there its
    backward direction begins.
    """
    final_states: list[tuple[Value, ...]] = []
    for layer in range(stack.num_layers):
        initial = [_layer_state(stack, state, layer) for state in states]
        run = _run_projected if stack.projects else _run_layer
        output, *final = run(stack, layer, sequence, initial, lengths)
        sequence = _join_directions(stack, output)
        final_states.append(tuple(final))
    return [sequence, *(_concat(list(kind)) for kind in zip(*final_states, strict=True))]


def _run_layer(
    stack: _Stack, layer: int, sequence: Value, states: Sequence[Value], lengths: Value | None
) -> list[Value]:
    weights = _joined(_layer_weights(stack, layer))
    return list(stack.cell.operator(sequence, *weights, lengths, *states, **stack.attributes))


def _run_projected(
    stack: _Stack, layer: int, sequence: Value, states: Sequence[Value], lengths: Value | None
) -> list[Value]:
    """A layer that hands on a projection of its output, to the next step as well: R (P h) is (R P) h.

    What it is given at first is no such product: that is one more input, which is zero at all other steps.
    """
    all_weights, projections = _layer_weights(stack, layer), _projections(stack, layer)
    given, first = states[0], _first_steps(stack, sequence, lengths)
    zero = op.CastLike(0.0, given)
    starts = [
        op.Where(step, op.Slice(given, [number], [number + 1], [0]), zero)
        for number, step in enumerate(first)
    ]
    weights = []
    for number, (of_input, of_state, biases) in enumerate(all_weights):
        nothing = op.Mul(of_state, op.CastLike(0.0, of_state))
        beside = [of_state if other == number else nothing for other in range(stack.directions)]
        wide = op.Concat(of_input, *beside, axis=2)
        weights.append((wide, op.MatMul(of_state, projections[number]), biases))
    output, hidden, *rest = stack.cell.operator(
        op.Concat(sequence, *starts, axis=2),
        *_joined(weights),
        lengths,
        None,
        *states[1:],
        **stack.attributes,
    )
    by_direction = _concat([op.Transpose(op.Unsqueeze(one, [0]), perm=[0, 2, 1]) for one in projections])
    return [op.MatMul(output, by_direction), op.MatMul(hidden, by_direction), *rest]


def _first_steps(stack: _Stack, sequence: Value, lengths: Value | None) -> list[Value]:
    """For each direction, where it begins: at the first step, or at the last one of each row."""
    steps = op.Shape(sequence, start=0, end=1)
    places = op.Unsqueeze(op.Range(0, op.Squeeze(steps, [0]), 1), [1, 2])
    ends = steps if lengths is None else op.Cast(lengths, to=ir.DataType.INT64)
    last = op.Unsqueeze(op.Sub(ends, 1), [0, 2])
    return [op.Equal(places, 0), op.Equal(places, last)][: stack.directions]


def _projections(stack: _Stack, layer: int) -> list[Value]:
    first = layer * stack.directions * stack.per_direction
    return [
        stack.weights[first + (number + 1) * stack.per_direction - 1] for number in range(stack.directions)
    ]


def _layer_state(stack: _Stack, state: Value, layer: int) -> Value:
    if stack.num_layers == 1:
        return state
    first = layer * stack.directions
    return op.Slice(state, [first], [first + stack.directions], [0])


def _join_directions(stack: _Stack, output: Value) -> Value:
    """From [time, directions, batch, hidden] to [time, batch, directions * hidden]."""
    if not stack.bidirectional:
        return op.Squeeze(output, [1])
    # The last size is written out because a -1 can't be inferred when the batch is empty.
    by_batch = op.Transpose(output, perm=[0, 2, 1, 3])
    return op.Reshape(by_batch, [0, 0, stack.directions * stack.features])


def _layer_weights(stack: _Stack, layer: int) -> list[_Weights]:
    """ONNX's W, R and B of each direction of one layer."""
    made: list[_Weights] = []
    for number in range(stack.directions):
        first = (layer * stack.directions + number) * stack.per_direction
        count = 4 if stack.has_biases else 2
        of_input, of_state, *biases = [
            _reorder_gates(stack, weight) for weight in stack.weights[first : first + count]
        ]
        made.append((of_input, of_state, op.Concat(*biases, axis=1) if biases else None))
    return made


def _joined(weights: Sequence[_Weights]) -> list[Value | None]:
    """The weights of all directions as ONNX takes them, the directions first."""
    return [None if kind[0] is None else _concat(kind) for kind in zip(*weights, strict=True)]


def _reorder_gates(stack: _Stack, weight: Value) -> Value:
    """From PyTorch's [gates * hidden, ...] to ONNX's [1, gates * hidden, ...]."""
    gates = stack.cell.gates
    if len(gates) == 1:
        return op.Unsqueeze(weight, [0])
    # A chain in which each value is used once: the optimizer folds those whatever their size, because the
    # model does not grow, while slices of one weight would stop at its `output_size_limit`.
    rows, *columns = _fixed_sizes(weight)
    by_gate = op.Reshape(weight, [len(gates), stack.hidden, *columns])
    return op.Reshape(op.Gather(by_gate, list(gates), axis=0), [1, rows, *columns])


def _fixed_sizes(weight: Value) -> list[int]:
    assert weight.shape.is_static(), f"{weight.name}: {weight.shape}"
    return [int(size) for size in weight.shape.numpy()]


def _concat(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else op.Concat(*values, axis=0)


# --- Translation of packed sequences --------------------------------------------------------------------

# A packed sequence holds the steps of all rows without padding, in the order of time and then of rows. Its
# rows are sorted by length, longest first, so the rows that are alive at a step are always the first few:
# `batch_sizes` says how many. PyTorch refuses an empty batch and a row without steps, so no row has to stand
# in for one here; `_first` fails cleanly in the runtime before an empty batch could reach the layers.


def _packed_translation(cell: _Cell) -> Callable[..., tuple[Value, ...]]:
    def translate(
        data: Value,
        batch_sizes: Value,
        hx: Value,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Value, ...]:
        if drops_out(num_layers, dropout, train):
            raise NotImplementedError(
                "ONNX has no recurrent operator with dropout between layers while training"
            )
        stack = _Stack(cell, params, has_biases, num_layers, bidirectional)
        states = list(hx) if isinstance(hx, Sequence) else [hx]
        places = _places(batch_sizes)
        sequence = _scatter(data, places, (op.Shape(batch_sizes), _first(batch_sizes)), fill=0)
        lengths = op.Cast(_counts_across(batch_sizes), to=ir.DataType.INT32)
        output, *final_states = _run_stack(stack, sequence, states, lengths)
        return op.GatherND(output, places), *final_states

    return translate


def _pack(input: Value, lengths: Value, batch_first: bool) -> tuple[Value, Value]:
    batch_sizes = _counts_across(lengths)
    return op.GatherND(input, _places(batch_sizes, batch_first=batch_first)), batch_sizes


def _pad(
    data: Value, batch_sizes: Value, batch_first: bool, padding_value: float, total_length: Value
) -> tuple[Value, Value]:
    steps, rows = _padded_steps(batch_sizes, total_length), _first(batch_sizes)
    sizes = (rows, steps) if batch_first else (steps, rows)
    places = _places(batch_sizes, batch_first=batch_first)
    return _scatter(data, places, sizes, fill=padding_value), _counts_across(batch_sizes)


def _padded_steps(batch_sizes: Value, total_length: Value) -> Value:
    if not isinstance(total_length, int):
        given = op.Reshape(total_length, [1])
        return op.Where(op.Greater(given, [0]), given, op.Shape(batch_sizes))
    return op.Constant(value_ints=[total_length]) if total_length > 0 else op.Shape(batch_sizes)


def _first(counts: Value) -> Value:
    return op.Gather(counts, [0], axis=0)


def _below(counts: Value) -> Value:
    """Falling counts as a table of truths: in each line, as many as its count, from the left."""
    columns = op.Range(0, op.Squeeze(_first(counts), [0]), 1)
    return op.Less(op.Unsqueeze(columns, [0]), op.Unsqueeze(counts, [1]))


def _counts_across(counts: Value) -> Value:
    """From the length of each row to the number of rows at each step, and as well from that to the lengths."""
    return op.ReduceSum(op.Cast(_below(counts), to=ir.DataType.INT64), [0], keepdims=0)


def _places(batch_sizes: Value, *, batch_first: bool = False) -> Value:
    """Where each line of packed data lies in the padded sequence."""
    steps_and_rows = op.NonZero(_below(batch_sizes))
    if batch_first:
        steps_and_rows = op.Gather(steps_and_rows, [1, 0], axis=0)
    return op.Transpose(steps_and_rows, perm=[1, 0])


def _scatter(data: Value, places: Value, sizes: tuple[Value, Value], *, fill: float) -> Value:
    """The padded sequence, whose first two sizes are given."""
    shape = op.Concat(*sizes, op.Shape(data, start=1), axis=0)
    padding = op.ConstantOfShape(shape, value=ir.tensor([fill], dtype=data.dtype))
    return op.ScatterND(padding, places, data)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    OPERATORS[torch.lstm]: _translation(_LSTM),
    OPERATORS[torch.gru]: _translation(_GRU),
    OPERATORS[torch.rnn_tanh]: _translation(_RNN_TANH),
    OPERATORS[torch.rnn_relu]: _translation(_RNN_RELU),
    torch.ops.aten._pack_padded_sequence.default: _pack,
    torch.ops.aten._pad_packed_sequence.default: _pad,
    torch.ops.aten.lstm.data: _packed_translation(_LSTM),
    torch.ops.aten.gru.data: _packed_translation(_GRU),
    torch.ops.aten.rnn_tanh.data: _packed_translation(_RNN_TANH),
    torch.ops.aten.rnn_relu.data: _packed_translation(_RNN_RELU),
}
"""What to pass as ``torch.onnx.export(..., custom_translation_table=TRANSLATIONS)``."""
