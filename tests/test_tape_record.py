from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from anyshape.capture.tape import Tape, functional, play, record, tape_of
from anyshape.capture.tape.constants import index_tensor, sizes_tensor
from anyshape.capture.tape.steps import AXES, Step, Value, float_of, leaves, map_leaves, number_of, rolled
from anyshape.errors import CaptureFault

aten = torch.ops.aten
Run = Callable[..., list[Tensor]]


def targets(tape: Tape) -> list[Any]:
    return [step.target for step in tape.steps]


def named(module: nn.Module) -> dict[int, str]:
    return {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}


# --- A run on real tensors ------------------------------------------------------------------------------


def test_composite_operators_stay_whole() -> None:
    layer = nn.Linear(4, 3)
    tape = record(lambda x: [layer(x).softmax(-1).flatten(1)], [torch.randn(2, 5, 4)], named(layer))
    assert targets(tape) == [aten.linear.default, aten.softmax.int, aten.flatten.using_ints]


def test_a_whole_layer_is_not_taken_for_one_operator() -> None:
    """PyTorch has one fast operator for an encoder layer in evaluation mode, which nothing translates."""
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    tape = record(lambda x: [layer(x)], [torch.randn(2, 5, 8)], named(layer))
    assert aten._transformer_encoder_layer_fwd.default not in targets(tape)
    assert torch.backends.mha.get_fastpath_enabled()


def test_lines_are_the_models(line_in: Callable[[str, str], int]) -> None:
    layer = nn.Linear(4, 3)

    def function(x: Tensor) -> list[Tensor]:
        made = layer(x)  # through PyTorch's own files
        return [made + 1]  # and here

    steps = record(function, [torch.randn(2, 4)], {}).steps
    where = [step.where for step in steps]
    assert all(item is not None and item.file.endswith("test_tape_record.py") for item in where)
    assert [item.line for item in where if item is not None] == [
        line_in(__file__, "# through PyTorch's own files"),
        line_in(__file__, "# and here"),
    ]


def test_weights_have_their_names_and_are_not_copied() -> None:
    layer = nn.BatchNorm1d(4).eval()
    tape = record(lambda x: [layer(x)], [torch.randn(2, 4)], named(layer))
    used = {name: tape.constants[value] for value, name in tape.names.items()}
    assert used.keys() == {"weight", "bias", "running_mean", "running_var"}
    assert used["weight"].data_ptr() == layer.weight.data_ptr()


def test_a_constant_that_the_model_writes_to_is_kept_as_it_was(run_tape: Run) -> None:
    def function(x: Tensor) -> list[Tensor]:
        table = torch.from_numpy(torch.arange(4.0).numpy().copy())
        table[1:] += x
        return [table * 2]

    tape = record(function, [torch.ones(3)], {})
    (constant,) = (tensor for tensor in tape.constants.values() if tensor.shape == (4,))
    assert constant.tolist() == [0, 1, 2, 3] and not tape.names
    x = torch.randn(3)
    torch.testing.assert_close(run_tape(functional(tape), [x]), function(x))


def test_the_tape_can_be_run_again_with_other_values(run_tape: Run) -> None:
    lstm = nn.LSTM(3, 4, batch_first=True)

    def function(x: Tensor) -> list[Tensor]:
        made, (hidden, _) = lstm(x)
        return [made.sort(dim=1, descending=True)[0], hidden, x]

    tape = record(function, [torch.randn(2, 5, 3)], named(lstm))
    x = torch.randn(2, 5, 3)
    with torch.no_grad():
        torch.testing.assert_close(run_tape(tape, [x]), function(x))


def test_a_tape_is_played_on_other_values() -> None:
    def function(x: Tensor) -> list[Tensor]:
        values, places = torch.topk(x * torch.tensor([1.0, -1.0, 2.0]), 2)
        return [values, places, *x.unbind()]

    x = torch.randn(2, 3)
    torch.testing.assert_close(play(record(function, [torch.randn(2, 3)], {}), [x]), function(x))


@pytest.mark.parametrize(
    ("look", "seen"),
    [
        (lambda x: x.sum().item(), 3.0),
        (lambda x: int(x[0]), 1),
        (lambda x: bool((x > 0).all()), True),
        (lambda x: torch.equal(x, x + 0), True),
    ],
)
def test_where_python_looks_at_values_is_noted(look: Any, seen: Any) -> None:
    def function(x: Tensor) -> list[Tensor]:
        look(torch.zeros_like(x))  # sizes alone: nothing to note
        look(x * 1)
        return [x]

    (read,) = record(function, [torch.tensor([1.0, 2.0])], {}).reads
    assert read.seen == seen and read.where is not None


def test_each_number_of_a_list_is_read_by_itself() -> None:
    tape = record(lambda x: [x * sum((x * 1).tolist())], [torch.tensor([1.0, 2.0])], {})
    assert [read.seen for read in tape.reads] == [1.0, 2.0]
    assert [step.target for step in tape.steps].count(float_of) == 2


def test_values_know_shape_type_and_strides() -> None:
    tape = record(lambda x: [x.t()], [torch.randn(2, 3)], {})
    assert tape.inputs[0].strides == (3, 1) and tape.outputs[0].strides == (1, 3)
    assert repr(tape.outputs[0]) == "<float32[3, 2]>"
    assert repr(tape.steps[0]) == "[<float32[3, 2]>] = aten.t.default(<float32[2, 3]>,)"


def test_an_output_that_no_operator_made_is_a_constant() -> None:
    kept = torch.arange(3.0)
    tape = record(lambda x: [x, kept], [torch.randn(2)], {})
    assert tape.outputs[0] is tape.inputs[0]
    assert tape.constants[tape.outputs[1]].tolist() == [0, 1, 2] and not tape.steps


def test_a_function_that_fails_leaves_nothing_behind() -> None:
    def fails(x: Tensor) -> list[Tensor]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        record(fails, [torch.randn(2)], {})
    tape = record(lambda x: [x + 1], [torch.randn(2)], {})
    assert targets(tape) == [aten.add.Tensor]
    assert torch.backends.mha.get_fastpath_enabled()


def test_gradients_and_autocast_are_off() -> None:
    layer = nn.Linear(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        tape = record(lambda x: [layer(x)], [torch.randn(2, 3)], named(layer))
    assert tape.outputs[0].dtype == torch.float32
    assert not any(tensor.requires_grad for tensor in tape.constants.values())


# --- A graph that torch traced --------------------------------------------------------------------------


def test_a_traced_graph_becomes_the_same_tape(run_tape: Run) -> None:
    weight = torch.randn(4, 3)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x @ weight, 1)
        return values + weight.sum(), places

    traced = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(torch.randn(2, 4))
    tape = tape_of(traced, {id(weight): "weight"})
    x = torch.randn(2, 4)
    torch.testing.assert_close(run_tape(tape, [x]), list(function(x)))
    assert len(tape.constants) == 1  # however often it is used


def test_a_trace_that_holds_no_tensor_where_one_belongs_is_a_fault() -> None:
    graph = torch.fx.Graph()
    graph.output(graph.get_attr("thing"))
    root = nn.Module()
    root.thing = "text"  # type: ignore[assignment]
    traced = torch.fx.GraphModule(root, graph)
    with pytest.raises(CaptureFault, match="the trace holds str where a tensor is expected"):
        tape_of(traced, {})


# --- Steps ----------------------------------------------------------------------------------------------


def test_axes_are_those_arguments_that_name_them() -> None:
    x = Value((2, 3), torch.float32)
    step = Step(aten.sum.dim_IntList, (x, [1], True), {}, (x,))
    assert step.axes == ("[1]",)
    assert Step(aten.add.Tensor, (x, 3), {}, (x,)).axes == ()
    assert Step(aten.stack.default, ([x, x],), {"dim": 1}, (x,)).axes == ("1",) and "dim" in AXES


def test_leaves_are_found_and_changed_in_any_nesting() -> None:
    tree = ([1, (2, None)], {"a": [3]})
    assert list(leaves(tree)) == [1, 2, None, 3]
    assert map_leaves(lambda leaf: leaf and leaf * 2, tree) == ([2, (4, None)], {"a": [6]})


def test_what_no_output_needs_is_left_out() -> None:
    weight, idle = torch.randn(3), torch.randn(3)

    def function(x: Tensor) -> list[Tensor]:
        x * idle
        return [x * weight]

    tape = record(function, [torch.randn(3)], {}).used_only()
    assert len(tape.steps) == 1 and len(tape.constants) == 1


def test_a_number_read_out_of_a_tensor_is_always_needed() -> None:
    x, out = Value((), torch.int64), Value((), torch.int64)
    step = Step(number_of, (x, "_data_u0"), {}, (out,))
    assert Tape([x], {}, [step], [x]).used_only().steps == [step]


@pytest.mark.parametrize(
    ("stand_in", "count"), [(rolled, 3), (number_of, 2), (sizes_tensor, 3), (index_tensor, 3)]
)
def test_what_stands_for_something_on_a_tape_can_not_be_called(stand_in: Any, count: int) -> None:
    with pytest.raises(NotImplementedError, match="a step on a tape, not a function"):
        stand_in(*[None] * count)
