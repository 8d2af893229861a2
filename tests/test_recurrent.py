from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import onnxscript.optimizer
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.utils.rnn import pack_padded_sequence

from anyshape.capture.recurrent import recurrent_as_operators
from anyshape.lower.operators.recurrent import TRANSLATIONS

INPUT_SIZE, HIDDEN_SIZE = 4, 6
EXAMPLE = (3, 5)
# An empty batch comes first: where ONNX Runtime can't run one, it ends the process of these tests.
UNSEEN = [(0, 1), (0, 9), (0, 33), (1, 1), (2, 9), (8, 33), (1, 4), (4, 1)]
DYNAMIC = Dim.DYNAMIC

KINDS = ["rnn_tanh", "rnn_relu", "lstm", "gru"]
ONNX_TYPES = {"rnn_tanh": "RNN", "rnn_relu": "RNN", "lstm": "LSTM", "gru": "GRU"}


def make_module(kind: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    if kind == "lstm":
        return nn.LSTM(INPUT_SIZE, HIDDEN_SIZE, **options).eval()
    if kind == "gru":
        return nn.GRU(INPUT_SIZE, HIDDEN_SIZE, **options).eval()
    nonlinearity = kind.removeprefix("rnn_")
    return nn.RNN(INPUT_SIZE, HIDDEN_SIZE, nonlinearity=nonlinearity, **options).eval()


class WithStates(nn.Module):
    """The states as plain inputs, whatever the kind."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input: Tensor, hidden: Tensor, cell: Tensor | None = None) -> Any:
        return self.module(input, hidden if cell is None else (hidden, cell))


def make_inputs(module: Any, batch: int, time: int, *, states: int) -> tuple[Tensor, ...]:
    dtype = module.weight_ih_l0.dtype
    sizes = (batch, time) if module.batch_first else (time, batch)
    layers = module.num_layers * (2 if module.bidirectional else 1)
    return (
        torch.randn(*sizes, INPUT_SIZE, dtype=dtype),
        *(torch.randn(layers, batch, HIDDEN_SIZE, dtype=dtype) for _ in range(states)),
    )


def capture(model: nn.Module, inputs: tuple[Tensor, ...], dims: Any, *, strict: bool = False) -> Any:
    with recurrent_as_operators():
        return torch.export.export(model, inputs, dynamic_shapes=dims, strict=strict)


def translate(program: ExportedProgram, *, input_size_limit: int = 2**62) -> Any:
    onnx_program = torch.onnx.export(
        program, dynamo=True, optimize=False, custom_translation_table=TRANSLATIONS, verbose=False
    )
    assert onnx_program is not None
    onnxscript.optimizer.optimize(onnx_program.model, input_size_limit=input_size_limit)
    return onnx_program


def weights_are_folded(model: onnx_ir.Model) -> bool:
    recurrent = [node for node in model.graph if node.op_type in ONNX_TYPES.values()]
    weights = [value for node in recurrent for value in node.inputs[1:4] if value is not None]
    return all(value.is_initializer() for value in weights)


def operators(model: onnx_ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


def flatten(outputs: Any) -> list[np.ndarray[Any, Any]]:
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf.detach().numpy() for leaf in leaves]


def assert_same(found: Sequence[Any], expected: Any, *, atol: float = 1e-5) -> None:
    wanted = flatten(expected)
    assert len(found) == len(wanted)
    for left, right in zip(found, wanted, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, rtol=0, atol=atol)


class Session:
    def __init__(self, program: Any) -> None:
        self.session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())

    def __call__(self, *inputs: Tensor) -> list[Any]:
        names = [value.name for value in self.session.get_inputs()]
        feeds = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        return list(self.session.run(None, feeds))


def check_everywhere(
    module: Any, *, given_states: bool = False, strict: bool = False, atol: float = 1e-5
) -> Counter[str]:
    """Export from the example sizes, compare at the unseen ones, and hand back what the graph holds."""
    states = (2 if isinstance(module, nn.LSTM) else 1) if given_states else 0
    model = WithStates(module).eval() if given_states else module
    dims = ({0: DYNAMIC, 1: DYNAMIC}, *({1: DYNAMIC} for _ in range(states)))
    program = capture(model, make_inputs(module, *EXAMPLE, states=states), dims, strict=strict)
    onnx_program = translate(program)
    run = Session(onnx_program)
    captured = program.module()
    for batch, time in UNSEEN:
        inputs = make_inputs(module, batch, time, states=states)
        expected = model(*inputs)
        assert_same(run(*inputs), expected, atol=atol)
        assert_same(flatten(captured(*inputs)), expected, atol=atol)
    assert weights_are_folded(onnx_program.model)
    return operators(onnx_program.model)


def assert_native(counts: Counter[str], kind: str, num_layers: int) -> None:
    assert counts[ONNX_TYPES[kind]] == num_layers
    assert not {"Loop", "Scan", "If"} & counts.keys()
    # An empty batch is padded once for all layers: the input and each kind of state.
    assert counts["Pad"] <= {"RNN": 0, "GRU": 2, "LSTM": 3}[ONNX_TYPES[kind]]


# The two kinds of RNN differ in one attribute, so "rnn_relu" is left to the next two tests.
@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize(
    ("num_layers", "bidirectional", "batch_first", "given_states"),
    [
        (1, False, False, False),
        (1, True, True, True),
        (3, False, True, True),
        (3, True, False, False),
    ],
)
def test_is_one_onnx_operator_a_layer_and_right_at_unseen_sizes(
    kind: str, num_layers: int, bidirectional: bool, batch_first: bool, given_states: bool
) -> None:
    module = make_module(kind, num_layers=num_layers, bidirectional=bidirectional, batch_first=batch_first)
    assert_native(check_everywhere(module, given_states=given_states), kind, num_layers)


@pytest.mark.parametrize("kind", ["rnn_relu", "lstm"])
def test_without_biases(kind: str) -> None:
    module = make_module(kind, num_layers=2, bidirectional=True, bias=False)
    assert_native(check_everywhere(module), kind, 2)


@pytest.mark.parametrize("kind", ["lstm", "rnn_relu"])
def test_strict_capture(kind: str) -> None:
    module = make_module(kind, num_layers=2, batch_first=True)
    assert_native(check_everywhere(module, given_states=True, strict=True), kind, 2)


def test_half_precision() -> None:
    assert_native(check_everywhere(make_module("lstm").half(), atol=5e-3), "lstm", 1)


@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm", "gru"])
def test_double_precision_is_right_by_the_onnx_reference(kind: str) -> None:
    # ONNX Runtime 1.31 has no double kernel for any of the three operators; the reference of onnx 1.23 has
    # neither Relu nor a second direction.
    module = make_module(kind).double()
    program = capture(module, make_inputs(module, *EXAMPLE, states=0), ({0: DYNAMIC, 1: DYNAMIC},))
    proto = translate(program).model_proto
    assert {tensor.data_type for tensor in proto.graph.initializer} >= {onnx_ir.DataType.DOUBLE}
    reference = ReferenceEvaluator(proto)
    for batch, time in UNSEEN:
        (input,) = make_inputs(module, batch, time, states=0)
        found = reference.run(None, {proto.graph.input[0].name: input.numpy()})
        assert_same(list(found), module(input), atol=1e-12)


def test_unbatched_input() -> None:
    module = make_module("gru", bidirectional=True, batch_first=True)
    onnx_program = translate(capture(module, (torch.randn(5, INPUT_SIZE),), ({0: DYNAMIC},)))
    assert operators(onnx_program.model)["Pad"] == 0  # its batch is 1, so never empty
    run = Session(onnx_program)
    for time in (1, 2, 17):
        input = torch.randn(time, INPUT_SIZE)
        assert_same(run(input), module(input))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, INPUT_SIZE)
        self.encoder = nn.LSTM(INPUT_SIZE, HIDDEN_SIZE, 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(2 * HIDDEN_SIZE, HIDDEN_SIZE, batch_first=True)
        self.head = nn.Linear(HIDDEN_SIZE, 3)

    def forward(self, tokens: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        encoded, (hidden, cell) = self.encoder(self.embedding(tokens), (hidden, cell))
        decoded, _ = self.decoder(encoded)
        # The transposed strides of a batch-first output must not turn a reshape into a guard.
        flat = self.head(decoded.reshape(-1, HIDDEN_SIZE))
        return flat, decoded[:, -1], hidden, cell


def tagger_inputs(batch: int, time: int) -> tuple[Tensor, Tensor, Tensor]:
    states = torch.randn(2, 4, batch, HIDDEN_SIZE)
    return torch.randint(0, 11, (batch, time)), states[0].clone(), states[1].clone()


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_around_recurrent_layers_with_states_as_inputs(strict: bool) -> None:
    torch.manual_seed(0)
    model = Tagger().eval()
    batch, time = Dim("batch"), Dim("time")
    dims = ({0: batch, 1: time}, {1: batch}, {1: batch})
    onnx_program = translate(capture(model, tagger_inputs(*EXAMPLE), dims, strict=strict))
    counts = operators(onnx_program.model)
    assert (counts["LSTM"], counts["GRU"]) == (2, 1)
    assert weights_are_folded(onnx_program.model)
    run = Session(onnx_program)
    for sizes in UNSEEN:
        inputs = tagger_inputs(*sizes)
        assert_same(run(*inputs), model(*inputs))


def test_large_weights_are_folded_and_stored_once() -> None:
    module = nn.LSTM(600, 600, bidirectional=True).eval()
    program = capture(module, (torch.randn(5, 3, 600),), ({0: DYNAMIC, 1: DYNAMIC},))
    model = translate(program).model
    assert weights_are_folded(model)
    stored = sum(value.const_value.size for value in model.graph.initializers.values())
    wanted = sum(parameter.numel() for parameter in module.parameters())
    assert wanted <= stored < wanted + 100


def targets(program: ExportedProgram) -> set[str]:
    return {str(node.target) for node in program.graph.nodes}


def test_keeps_the_path_of_torch_where_onnx_has_no_operator() -> None:
    module = nn.GRU(INPUT_SIZE, HIDDEN_SIZE, 2, dropout=0.5).train()
    program = capture(module, (torch.randn(5, 3, INPUT_SIZE),), None)
    assert not any("anyshape" in target for target in targets(program))


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"num_layers": 1, "dropout": 0.5}])
@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
def test_training_without_effective_dropout_is_captured(options: dict[str, Any]) -> None:
    module = make_module("gru", **options).train()
    program = capture(module, (torch.randn(5, 3, INPUT_SIZE),), None)
    assert "anyshape.gru.default" in targets(program)


def test_packed_kernels_called_partly_by_keyword_are_left_alone() -> None:
    module = nn.GRU(INPUT_SIZE, HIDDEN_SIZE)
    packed = pack_padded_sequence(torch.randn(5, 3, INPUT_SIZE), torch.tensor([5, 3, 2]))
    weights = list(module.parameters())
    positional: Any = (packed.data, packed.batch_sizes, torch.zeros(1, 3, HIDDEN_SIZE), weights)
    flags: Any = {"has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False}
    with recurrent_as_operators():
        found = torch.gru(*positional, **flags)
    assert_same(flatten(found), torch.gru(*positional, **flags))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_are_left_alone(kind: str) -> None:
    module = make_module(kind)
    packed = pack_padded_sequence(torch.randn(5, 3, INPUT_SIZE), torch.tensor([5, 3, 2]))
    expected = module(packed)
    with recurrent_as_operators():
        found = module(packed)
    assert_same([found[0].data.detach().numpy()], expected[0].data)


def test_kernels_called_by_keyword_are_captured() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GRU(INPUT_SIZE, HIDDEN_SIZE)

        def forward(self, input: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            return torch.gru(
                input=input,
                hx=hidden,
                params=list(self.inner.parameters()),
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=False,
                bidirectional=False,
                batch_first=False,
            )

    inputs = torch.randn(5, 3, INPUT_SIZE), torch.zeros(1, 3, HIDDEN_SIZE)
    assert "anyshape.gru.default" in targets(capture(Direct(), inputs, None))


def test_nothing_is_changed_outside_the_context() -> None:
    program = torch.export.export(make_module("gru"), (torch.randn(5, 3, INPUT_SIZE),))
    assert not any("anyshape" in target for target in targets(program))


def test_no_warning_about_the_translations(caplog: pytest.LogCaptureFixture) -> None:
    module = make_module("lstm")
    translate(capture(module, (torch.randn(5, 3, INPUT_SIZE),), ({0: DYNAMIC, 1: DYNAMIC},)))
    assert "Failed to infer the signature" not in caplog.text
