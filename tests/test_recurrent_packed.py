"""Packed sequences through recurrent layers: each operator's translation, and all of them in a row."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import onnxscript.optimizer
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.onnx._internal.exporter import _core, _ir_passes, _registration

from anyshape.lower.operators.recurrent import TRANSLATIONS
from anyshape.torch_bridge import process

INPUT_SIZE, HIDDEN_SIZE = 4, 6
EXAMPLE = [5, 3, 2]
UNSEEN = [[1], [7], [4, 4, 4], [1, 1], [9, 1, 1, 1], [6, 6, 5, 2, 1], [33, *range(20, 0, -1)]]
KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "rnn_tanh": (nn.RNN, "RNN", {}),
    "rnn_relu": (nn.RNN, "RNN", {"nonlinearity": "relu"}),
    "lstm": (nn.LSTM, "LSTM", {}),
    "gru": (nn.GRU, "GRU", {}),
}
REFUSALS = (Fail, InvalidArgument, RuntimeException)

aten: Any = torch.ops.aten


# --- From a function of operators to a model -------------------------------------------------------------


class Recorder(fx.Interpreter):
    """Run a graph, and leave each node's value where torch.onnx looks for its type."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]


@functools.cache
def registry() -> Any:
    made = _registration.ONNXRegistry.from_torchlib()
    for operator, translation in TRANSLATIONS.items():
        made.register_op(operator, translation)
    return made


def translate(module: nn.Module, *example: Tensor) -> ir.Model:
    """The module's operators as ONNX with every size open.

    torch.export can't trace these operators, so this takes the path of torch.onnx from the graph on. What the
    translations see are the sizes of the example, as if they were fixed: using one shows at the next sizes.
    """
    traced = fx.symbolic_trace(module)
    Recorder(traced).run(*example)
    model = ir.Model(ir.Graph([], [], nodes=[], name="main"), ir_version=10)
    with process.quiet():  # it warns of each node without the metadata of torch.export
        _core._translate_fx_graph(
            traced.graph,
            model,
            graph_like=model.graph,
            owned_graphs={},
            lower="at_conversion",
            registry=registry(),
        )
    _ir_passes.add_opset_imports(model)
    made = [value for node in model.graph for value in node.outputs]
    for value in (*model.graph.inputs, *made):
        if value.shape is not None:
            value.shape = ir.Shape([None] * len(value.shape))
    onnxscript.optimizer.optimize(model, input_size_limit=2**62)
    return model


def session(model: ir.Model) -> Callable[..., list[Any]]:
    made = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())

    def run(*inputs: Tensor) -> list[Any]:
        names = [value.name for value in made.get_inputs()]
        return list(made.run(None, {n: v.numpy() for n, v in zip(names, inputs, strict=True)}))

    return run


def assert_same(found: list[Any], expected: tuple[Tensor, ...], *, atol: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        wanted = right.detach().numpy()
        assert (left.shape, left.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(left, wanted, rtol=0, atol=atol)


def check_everywhere(
    module: nn.Module, make_inputs: Callable[[list[int]], tuple[Tensor, ...]], *, atol: float = 1e-5
) -> ir.Model:
    """Translate at the example's lengths, and compare with PyTorch at these and the unseen ones."""
    model = translate(module, *make_inputs(EXAMPLE))
    run = session(model)
    for lengths in (EXAMPLE, *UNSEEN):
        inputs = make_inputs(lengths)
        assert_same(run(*inputs), module(*inputs), atol=atol)
    return model


# --- Each operator --------------------------------------------------------------------------------------


class Pack(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first

    def forward(self, input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        data, batch_sizes = aten._pack_padded_sequence.default(input, lengths, self.batch_first)
        return data, batch_sizes


class Pad(nn.Module):
    """Pads to a fixed total length, or to the number of rows of a third input."""

    def __init__(self, batch_first: bool, padding_value: float, total_length: int | None) -> None:
        super().__init__()
        self.options = batch_first, padding_value
        self.total_length = total_length

    def forward(self, data: Tensor, batch_sizes: Tensor, long: Tensor) -> tuple[Tensor, Tensor]:
        total = aten.sym_size.int(long, 0) if self.total_length is None else self.total_length
        padded, lengths = aten._pad_packed_sequence.default(data, batch_sizes, *self.options, total)
        return padded, lengths


class Layers(nn.Module):
    """A recurrent module's packed kernel; its kinds of state are stacked into one input."""

    def __init__(self, kind: str, *, dropout: float = 0.0, train: bool = False, **options: Any) -> None:
        super().__init__()
        make, self.onnx_type, own = KINDS[kind]
        self.inner = make(INPUT_SIZE, HIDDEN_SIZE, **own, **options)
        self.kernel = getattr(aten, kind).data
        self.flags = self.inner.bias, self.inner.num_layers, dropout, train, self.inner.bidirectional
        self.kinds_of_state = 2 if self.onnx_type == "LSTM" else 1

    def make_states(self, batch: int) -> Tensor:
        layers = self.inner.num_layers * (2 if self.inner.bidirectional else 1)
        dtype = self.inner.weight_ih_l0.dtype
        return torch.randn(self.kinds_of_state, layers, batch, HIDDEN_SIZE, dtype=dtype)

    def forward(self, data: Tensor, batch_sizes: Tensor, states: Tensor) -> tuple[Tensor, ...]:
        weights = [weight for group in self.inner.all_weights for weight in group]
        initial = [aten.select.int(states, 0, number) for number in range(self.kinds_of_state)]
        hx = initial if self.kinds_of_state == 2 else initial[0]
        result = self.kernel(data, batch_sizes, hx, weights, *self.flags)
        return tuple(result[number] for number in range(1 + self.kinds_of_state))


def padded_and_lengths(
    lengths: list[int], *rest: int, spare: int = 0, batch_first: bool = False, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    sizes = (len(lengths), max(lengths) + spare)
    input = (torch.randn(*(sizes if batch_first else sizes[::-1]), *rest) * 9).to(dtype)
    return input, torch.tensor(lengths)


def packed(lengths: list[int], *rest: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    input, sizes = padded_and_lengths(lengths, *rest, dtype=dtype)
    made = pack_padded_sequence(input, sizes)
    return made.data, made.batch_sizes


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize(
    ("rest", "dtype"), [((INPUT_SIZE,), torch.float32), ((), torch.int64), ((2, 3), torch.float16)]
)
def test_pack(batch_first: bool, spare: int, rest: tuple[int, ...], dtype: torch.dtype) -> None:
    def inputs(lengths: list[int]) -> tuple[Tensor, Tensor]:
        return padded_and_lengths(lengths, *rest, spare=spare, batch_first=batch_first, dtype=dtype)

    check_everywhere(Pack(batch_first), inputs, atol=0)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("total_length", [None, 0, -1, 40])
@pytest.mark.parametrize(
    ("rest", "dtype", "padding_value"),
    [
        ((INPUT_SIZE,), torch.float32, float("-inf")),
        ((2, 3), torch.float64, 0.1),
        ((), torch.int64, 7.0),
        ((INPUT_SIZE,), torch.float16, 0),
        ((), torch.bool, 0.0),
    ],
)
def test_pad(
    batch_first: bool,
    total_length: int | None,
    rest: tuple[int, ...],
    dtype: torch.dtype,
    padding_value: float,
) -> None:
    def inputs(lengths: list[int]) -> tuple[Tensor, ...]:
        return *packed(lengths, *rest, dtype=dtype), torch.zeros(max(lengths) + len(lengths) % 3)

    check_everywhere(Pad(batch_first, padding_value, total_length), inputs, atol=0)


def layer_inputs(module: Layers, lengths: list[int]) -> tuple[Tensor, ...]:
    states = module.make_states(len(lengths))
    return *packed(lengths, INPUT_SIZE, dtype=states.dtype), states


def recurrent_nodes(model: ir.Model, onnx_type: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == onnx_type]


def assert_native(model: ir.Model, module: Layers) -> None:
    counts = Counter(node.op_type for node in model.graph.all_nodes())
    assert not {"Loop", "Scan", "If", "Pad"} & counts.keys()
    nodes = recurrent_nodes(model, module.onnx_type)
    assert len(nodes) == module.inner.num_layers
    weights = [value for node in nodes for value in node.inputs[1:4] if value is not None]
    assert all(value.is_initializer() for value in weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_layers(kind: str, num_layers: int, bidirectional: bool, bias: bool) -> None:
    module = Layers(kind, num_layers=num_layers, bidirectional=bidirectional, bias=bias).eval()
    model = check_everywhere(module, functools.partial(layer_inputs, module))
    assert_native(model, module)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_in_half_precision(kind: str) -> None:
    module = Layers(kind, num_layers=2, bidirectional=True).eval().half()
    check_everywhere(module, functools.partial(layer_inputs, module), atol=5e-3)


def test_refuses_what_onnx_has_no_operator_for() -> None:
    layers = Layers("gru", num_layers=2, dropout=0.5, train=True)
    weights = [weight for group in layers.inner.all_weights for weight in group]
    missing = "ONNX has no recurrent operator with dropout between layers while training"
    with pytest.raises(NotImplementedError, match=missing):
        TRANSLATIONS[layers.kernel](None, None, None, weights, *layers.flags)


# --- All in a row ---------------------------------------------------------------------------------------


class Chain(nn.Module):
    """What PyTorch runs for a padded batch in any order: sort, pack, layers, pad, and back to that order."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.layers = Layers(kind, **options)

    def forward(self, input: Tensor, lengths: Tensor, states: Tensor) -> tuple[Tensor, ...]:
        sorted_lengths, order = aten.sort.default(lengths, -1, True)
        input_sorted = aten.index_select.default(input, 0, order)
        data, batch_sizes = aten._pack_padded_sequence.default(input_sorted, sorted_lengths, True)
        states_sorted = aten.index_select.default(states, 2, order)
        output, *final_states = self.layers(data, batch_sizes, states_sorted)
        total = aten.sym_size.int(input, 1)
        padded, lengths_sorted = aten._pad_packed_sequence.default(output, batch_sizes, True, -2.5, total)
        _, back = aten.sort.default(order)
        return (
            aten.index_select.default(padded, 0, back),
            aten.index_select.default(lengths_sorted, 0, back),
            *(aten.index_select.default(state, 1, back) for state in final_states),
        )


def chain_inputs(module: Chain, lengths: list[int], *, spare: int = 0) -> tuple[Tensor, ...]:
    steps = max(lengths, default=1) + spare
    input = torch.randn(len(lengths), steps, INPUT_SIZE)
    return input, torch.tensor(lengths, dtype=torch.int64), module.layers.make_states(len(lengths))


def through_modules(module: Chain, input: Tensor, lengths: Tensor, states: Tensor) -> tuple[Tensor, ...]:
    """The same by PyTorch's public functions."""
    sequence = pack_padded_sequence(input, lengths, batch_first=True, enforce_sorted=False)
    output, final = module.layers.inner(sequence, tuple(states) if len(states) == 2 else states[0])
    padded, back = pad_packed_sequence(
        output, batch_first=True, padding_value=-2.5, total_length=input.shape[1]
    )
    return padded, back, *(final if len(states) == 2 else [final])


MIXED = [[1], [2, 9, 4], [3, 3], [1, 8, 1, 8, 5, 2], [*range(1, 21), 33, 7, 7]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spare", [0, 4])
def test_a_padded_batch_in_any_order(kind: str, spare: int) -> None:
    module = Chain(kind, num_layers=2, bidirectional=True).eval()
    model = translate(module, *chain_inputs(module, [3, 5, 2], spare=1))
    assert_native(model, module.layers)
    run = session(model)
    for lengths in MIXED:
        inputs = chain_inputs(module, lengths, spare=spare)
        assert_same(run(*inputs), through_modules(module, *inputs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [3, 0]], ids=str)
def test_what_pytorch_refuses_is_an_error_of_the_runtime(kind: str, lengths: list[int]) -> None:
    # Not only a wrong answer: ONNX Runtime would end the whole process if an empty batch reached its layers.
    module = Chain(kind).eval()
    run = session(translate(module, *chain_inputs(module, [3, 5, 2])))
    inputs = chain_inputs(module, lengths, spare=2)
    with pytest.raises(RuntimeError):
        module(*inputs)
    with pytest.raises(REFUSALS):
        run(*inputs)


def test_longer_than_the_input_or_the_total_length_is_an_error_of_the_runtime() -> None:
    too_long = torch.randn(2, 4, INPUT_SIZE), torch.tensor([5, 3])
    pack = session(translate(Pack(True), torch.randn(3, 5, INPUT_SIZE), torch.tensor(EXAMPLE)))
    with pytest.raises(REFUSALS):
        pack(*too_long)
    example = *packed(EXAMPLE, INPUT_SIZE), torch.zeros(5)
    pad = session(translate(Pad(True, 0.0, None), *example))
    with pytest.raises(REFUSALS):
        pad(*example[:2], torch.zeros(4))
