"""Control flow that a model tells PyTorch of: torch.cond, while_loop, scan, map, associative_scan and torch.vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo  # which torch.cond imports: not while sizes are watched
from onnxscript import opset18
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

import anyshape
from anyshape.blame.operators import Lowering
from anyshape.blame.sides import check_sides
from anyshape.capture import capture_symbolic
from anyshape.capture.tape import functional, play, record
from anyshape.capture.tape.steps import either, repeated
from anyshape.capture.tape.walk import steps_of
from anyshape.errors import CaptureFault, VerifyFault
from anyshape.lower.operators import translated
from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy
from anyshape.torch_bridge import tracing, work
from anyshape.torch_bridge.control_flow import Plain, Refused, run_by
from anyshape.verify.reference import Reference
from anyshape.verify.verdict import Row

# What PyTorch's compiler imports when it is first used says so of itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
ROWS = {"b": 4, "n": 6}, {"b": 5, "n": 6}, {"b": 4, "n": 9}, {"b": 7, "n": 11}
WEIGHT = nn.Parameter(torch.randn(3))


def chosen_by_sum(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x.flip(1) * x.shape[0], (x,))


def chosen_in_chosen(x: Tensor) -> Any:
    def inner(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cond(x[0, 0] > 0, lambda x: (x.cos(), x.sum()), lambda x: (x.sin(), x.mean()), (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: (x + 1, x.amax()), (x,))


def with_a_closure(x: Tensor) -> Tensor:
    mean = x.mean(1)

    def far(x: Tensor) -> Tensor:
        made = x * 2
        made[:, 0] += mean  # writes to what it made itself
        return made * WEIGHT.sum()

    return torch.cond(mean[0] > 0, far, lambda x: x - mean.unsqueeze(1), (x,))


def halved(x: Tensor) -> Tensor:
    done, _ = while_loop(
        lambda x, count: x.abs().sum() > count, lambda x, count: (x / 2, count + 0.5), (x, torch.ones(()))
    )
    return done


def halved_in_parts(x: Tensor) -> Tensor:
    """A choice inside a loop, of values from outside."""
    factor = x.mean().sigmoid()

    def body(state: dict[str, Tensor]) -> tuple[dict[str, Tensor]]:
        y = torch.cond(state["y"].sum() > 0, lambda y: y * factor, lambda y: y / 2, (state["y"],))
        return ({"y": y, "k": state["k"] + 1},)

    start = {"y": x, "k": torch.zeros((), dtype=torch.int64)}
    return while_loop(lambda s: (s["y"].abs().sum() > 1) & (s["k"] < 9), body, (start,))[0]["y"]


def summed(x: Tensor) -> tuple[Tensor, Tensor]:
    return scan(lambda carried, row: (carried * 0.5 + row, carried + row), x.new_zeros(x.shape[1]), x)


def summed_backwards(x: Tensor) -> Any:
    def combine(carried: Any, row: Tensor) -> Any:
        total, count = carried
        return (total + row.sum(), count + 1), {"mean": total / count, "row": row * WEIGHT[0]}

    last, made = scan(combine, (x.new_zeros(()), x.new_ones(())), x, dim=1, reverse=True)
    return *last, made["mean"], made["row"]


def row_by_row(x: Tensor) -> Tensor:
    scale = x.std()
    return mapped(lambda row, more: row.cumsum(0) / scale + more, x, x[0] * 2)


def largest_so_far(x: Tensor) -> Tensor:
    return associative_scan(torch.maximum, x, 1, combine_mode="generic")


def batched(x: Tensor) -> Tensor:
    one = torch.vmap(lambda row: row / (1 + row.abs().sum()))
    return torch.vmap(lambda row: row.softmax(0) * WEIGHT.sum(), in_dims=1, out_dims=1)(one(x))


def chosen_by_a_size(x: Tensor) -> Tensor:
    return torch.cond(x.shape[1] > 8, lambda x: x * 2, lambda x: x.flip(1), (x,))


def chosen_with_nothing_given(x: Tensor) -> Tensor:
    far = x.mean(0)
    return torch.cond(x.sum() > 0, lambda: far * WEIGHT.sum(), lambda: far.cumsum(0) * x.shape[0])


def chosen_in_place(x: Tensor) -> Tensor:
    def written(x: Tensor) -> Tensor:
        made = x.clone()
        made[:, 0] = WEIGHT.sum()
        made.mul_(2)
        return made

    return torch.cond(x.mean() > 0, written, lambda x: x.abs(), (x,))


def chosen_as_a_tree(x: Tensor) -> Any:
    made = torch.cond(
        x.mean() > 0,
        lambda given: {"a": (given["x"] + 1, given["y"]), "b": [given["y"] * 2]},
        lambda given: {"a": (given["x"] - 1, given["y"] * 3), "b": [given["y"] + 0]},
        ({"x": x, "y": x.sum(1)},),
    )
    return made["a"][0] * 2, made["a"][1], made["b"][0]


def chosen_integers(x: Tensor) -> Tensor:
    return torch.cond(x.mean() > 0, lambda x: x.argmax(1), lambda x: x.argmin(1) + x.shape[1], (x,))


def chosen_by_a_size_in_chosen(x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.shape[1] > 8, lambda x: x * 2, lambda x: x * 3, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x + 0, (x,))


def looped_in_chosen(x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return while_loop(lambda y: y.abs().sum() > 1, lambda y: (y / 2,), (x,))[0]

    return torch.cond(x.abs().mean() > 0.5, inner, lambda x: x * WEIGHT[0], (x,))


def chosen_in_scanned(x: Tensor) -> tuple[Tensor, Tensor]:
    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.cond(row.sum() > 0, lambda row: row * WEIGHT.sum(), lambda row: row - carried, (row,))
        return carried + made, made.sum(-1)

    return scan(step, x.new_zeros(x.shape[0]), x, dim=1)


def scanned_in_scanned(x: Tensor) -> tuple[Tensor, Tensor]:
    def outer(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        last, made = scan(lambda total, number: (total + number, total * number), carried.sum(), row)
        return carried * 0.5 + last, made

    return scan(outer, x.new_zeros(x.shape[1]), x)


def written_row_by_row(x: Tensor) -> Tensor:
    def step(carried: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        at = place.reshape(1)
        made = carried.index_copy(1, at, x.index_select(1, at) * 2)
        return made, made.sum()

    return scan(step, x, torch.arange(x.shape[1]))[0]


def mapped_in_mapped(x: Tensor) -> Tensor:
    return mapped(lambda row: mapped(lambda number, total: number * 2 + total, row, row.sum(0)), x)


def counted_to_a_size(x: Tensor) -> Tensor:
    size = x.shape[1]
    start = torch.zeros((), dtype=torch.int64), x
    return while_loop(lambda k, y: k < size, lambda k, y: (k + 2, y * WEIGHT[0] + k), start)[1]


def counted_to_a_value(x: Tensor) -> Tensor:
    most = (x.mean().abs() * 5).long().clamp(max=6)
    start = torch.zeros((), dtype=torch.int64), x
    return while_loop(lambda k, y: k < most, lambda k, y: (k + 1, y + WEIGHT[0]), start)[1]


def with_integers_and_truths(x: Tensor) -> Any:
    def body(k: Tensor, done: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = y * 0.5
        return k + 1, y.abs().sum() < 1, y

    start = torch.zeros((), dtype=torch.int64), torch.tensor(False), x
    return while_loop(lambda k, done, y: (k < 7) & ~done, body, start)


def never(x: Tensor) -> Tensor:
    start = torch.zeros((), dtype=torch.int64), x
    return while_loop(lambda k, y: k < 0, lambda k, y: (k + 1, y * WEIGHT[0]), start)[1]


def largest_from_the_end(x: Tensor) -> Tensor:
    return associative_scan(torch.maximum, x, 1, reverse=True, combine_mode="generic")


def linear_recurrence(x: Tensor) -> Tensor:
    def combine(one: Any, two: Any) -> Any:
        return {"a": one["a"] * two["a"], "b": one["b"] * two["a"] + two["b"]}

    return associative_scan(combine, {"a": x.sigmoid(), "b": x}, 1, combine_mode="generic")["b"]


def one_way_or_another(x: Tensor) -> Tensor:
    """Python chooses between two kinds of control flow, and decides within a function of one."""
    if x.shape[1] > 7:
        return mapped(lambda row: row * 2 + x.shape[0], x)
    return scan(lambda total, row: (total + row, total * (2 if x.shape[0] > 4 else 3)), x[0] * 0, x)[1]


MORE = [
    chosen_by_a_size,
    chosen_with_nothing_given,
    chosen_in_place,
    chosen_as_a_tree,
    chosen_integers,
    chosen_by_a_size_in_chosen,
    looped_in_chosen,
    chosen_in_scanned,
    scanned_in_scanned,
    written_row_by_row,
    mapped_in_mapped,
    counted_to_a_size,
    counted_to_a_value,
    with_integers_and_truths,
    never,
    largest_from_the_end,
    linear_recurrence,
    one_way_or_another,
]
ALL = [
    chosen_by_sum,
    chosen_in_chosen,
    with_a_closure,
    halved,
    halved_in_parts,
    summed,
    summed_backwards,
    row_by_row,
    largest_so_far,
    batched,
]
COUNTS = {
    chosen_by_sum: [either],
    chosen_in_chosen: [either, either],
    with_a_closure: [either],
    halved: [repeated],
    halved_in_parts: [repeated, either],
    batched: [],
}


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_the_tape_is_right_at_other_sizes_and_values(
    function: Callable[[Tensor], Any], lined: Callable[..., Any]
) -> None:
    tapes = lined(function, "b n", *ROWS)
    made = tapes.merged()
    told = [step.target for step in steps_of(made) if step.target in (either, repeated)]
    assert told == COUNTS.get(function, [repeated])
    for row in (*ROWS, {"b": 3, "n": 8}, {"b": 1, "n": 2}):
        tapes.check(made, row)


class Called(nn.Module):
    """A function of one tensor as a module with a weight."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function, self.weight = function, WEIGHT

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def rarely(x: Tensor) -> Tensor:
    """The second side is not taken by any value that is tried."""
    return torch.cond(x.max() < 1e6, lambda x: x.cumsum(1), lambda x: x.flip(1) / x.shape[1], (x,))


@pytest.mark.parametrize(
    "function",
    [rarely, with_a_closure, halved_in_parts, summed_backwards, batched, *MORE],
    ids=lambda function: function.__name__,
)
def test_a_file_is_right_at_other_sizes_and_values(
    function: Callable[[Tensor], Any], lowered: Callable[..., Any]
) -> None:
    model = Called(function)
    made = lowered(model, (torch.randn(4, 6),), shapes={"x": "b, n"})
    runtime = OnnxRuntime.of_model(made.model)
    for x in (torch.randn(2, 3), torch.randn(5, 9) - 2, torch.randn(3, 4) * 30 + 40, torch.randn(1, 2) + 2e6):
        with torch.no_grad(), run_by(Plain()):
            expected = model(x)
        wanted = _pytree.tree_leaves(expected)
        got = [torch.from_numpy(array) for array in runtime.run({runtime.input_names[0]: to_numpy(x)})]
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_an_export_with_control_flow() -> None:
    made = anyshape.export(Called(chosen_by_sum), torch.randn(4, 6))
    assert [dim.range.text() for dim in made.contract.dims] == [">=0", ">=0"]
    assert "If" in {node.op_type for node in made.model.graph}


def test_sizes_that_the_other_side_refuses_are_not_in_the_contract() -> None:
    """The side that the example does not take has a say: PyTorch compiles both."""

    def function(x: Tensor) -> Tensor:
        return torch.cond(x.mean() > 100, lambda x: x * WEIGHT * x.shape[0], lambda x: x + 1, (x,))

    made = anyshape.export(Called(function), torch.randn(4, 3))
    assert str(made.contract).splitlines()[0].split()[2:4] == ["[batch,", "3]"]


def half_wrong(x: Tensor) -> Tensor:
    """In a file whose cosine is wrong, only a side that no tried value takes is."""
    return torch.cond(x.mean() > 1e9, lambda x: x.cos() * x.shape[1], lambda x: x + 1, (x,))


def half_wrong_within(x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 1e9, lambda x: x * 2, lambda x: x.cos(), (x,))

    return torch.cond(x.mean() > 1e9, inner, lambda x: x + 1, (x,))


def half_wrong_by_an_operand(x: Tensor) -> Tensor:
    """The condition is an operand, too."""
    return torch.cond(test := x.mean() > 1e9, lambda x, t: x.cos() * t, lambda x, t: x + t, (x, test))


def forever_where_it_is_not_taken(x: Tensor) -> Tensor:
    def forever(x: Tensor) -> Tensor:
        return while_loop(lambda x: x.sum() < 1e30, lambda x: (x * 1,), (x,))[0].cos()

    return torch.cond(x.mean() > 1e9, forever, lambda x: x.sin() + 1, (x,))


def sides_checked(made: Any, table: Any) -> None:
    lowering = Lowering(made.program, made.contract, translations=table)
    row = Row({**made.agreed.generic}, "right")
    check_sides(lowering, Reference(made.case, made.agreed), [row])


@pytest.mark.parametrize("function", [half_wrong, half_wrong_within, half_wrong_by_an_operand])
def test_a_side_that_no_tried_value_takes_is_not_silently_wrong(
    function: Any, lowered: Callable[..., Any]
) -> None:
    made = lowered(Called(function), (torch.randn(4, 6),), shapes={"x": "b, n"})
    sides_checked(made, None)
    with pytest.raises(VerifyFault, match=r"a side of a torch\.cond would be wrong in the file") as fault:
        sides_checked(made, {torch.ops.aten.cos.default: opset18.Sin})
    assert fault.value.where is not None and "torch.cond" in fault.value.where.text
    assert "No tried value takes that side" in fault.value.hint


def test_an_export_holds_sides_that_no_tried_value_takes() -> None:
    table = {torch.ops.aten.cos.default: opset18.Sin}
    with pytest.raises(VerifyFault, match=r"a side of a torch\.cond would be wrong in the file"):
        anyshape.export(Called(half_wrong), torch.randn(4, 6), custom_translation_table=table)


def test_a_side_that_may_never_end_is_not_run_to_look_at_it(lowered: Callable[..., Any]) -> None:
    made = lowered(Called(forever_where_it_is_not_taken), (torch.randn(4, 6),), shapes={"x": "b, n"})
    sides_checked(made, {torch.ops.aten.cos.default: opset18.Sin})


def test_what_is_no_associative_function_is_refused() -> None:
    """PyTorch combines neighbours first, which gives another result than one after the other."""

    def function(x: Tensor) -> Tensor:
        return associative_scan(lambda one, two: one * two + one, x, 1, combine_mode="generic")

    with pytest.raises(VerifyFault, match="would be wrong"):
        anyshape.export(Called(function), torch.randn(4, 6))


def test_a_symbolic_trace_leaves_control_flow_alone(found: Callable[..., Any]) -> None:
    first = found(Called(chosen_by_sum), (torch.randn(4, 6),))
    with pytest.raises(CaptureFault, match=r"the model has torch\.cond, which is not traced with") as fault:
        capture_symbolic(first.case, first.agreed, translated())
    assert fault.value.where is not None and fault.value.where.file.endswith("test_control_flow.py")


def writes_outside(x: Tensor) -> Tensor:
    kept = x * 2
    return scan(lambda carried, row: (carried + row, kept[0].add_(row) * 2), x[0], x)[1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: torch.cond(x.sum() > 0, lambda x: x[:1], lambda x: x + 1, (x,)),
            "the two sides of a torch.cond differ in shape or type",
        ),
        (
            lambda x: while_loop(lambda x: x.sum() > 0, lambda x: (x[:-1],), (x,))[0],
            "what a while_loop carries and what its body returns differ in shape or type",
        ),
        (
            lambda x: scan(lambda c, row: (c.double(), row), x[0], x)[1],
            "what a scan carries and what its function returns differ in shape or type",
        ),
        (
            lambda x: while_loop(lambda k, x: x.sum() > 0, lambda k, x: (k + 1, x / 2), (0, x))[1],
            "the model's control flow carries or returns 0, which is no tensor",
        ),
        (
            lambda x: while_loop(lambda x: False, lambda x: (x / 2,), (x,))[0],
            "a condition of the model's control flow is bool, not a tensor with one truth value",
        ),
        (
            lambda x: torch.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x + 1, (x,)),
            "a function of the model's control flow writes to a tensor from outside of it",
        ),
        (
            lambda x: torch.cond(x.sum() > 0, lambda x: x * float(x[0, 0]), lambda x: x + 1, (x,)),
            "Python looks at the values of a tensor in a function of the model's control flow",
        ),
        (
            writes_outside,
            "a function of the model's control flow writes to a tensor from outside of it",
        ),
    ],
)
def test_what_a_graph_can_not_say_is_refused(function: Any, message: str) -> None:
    with pytest.raises(CaptureFault) as fault:
        functional(record(lambda x: [function(x)], [torch.randn(3, 4)], {}))
    assert message in str(fault.value)
    assert fault.value.where is not None and fault.value.where.file.endswith("test_control_flow.py")


def test_a_side_that_is_not_taken_is_not_looped_in_for_ever() -> None:
    def forever(x: Tensor) -> Tensor:
        return while_loop(lambda x: x.sum() > 0, lambda x: (x * 1,), (x,))[0]

    def function(x: Tensor) -> list[Tensor]:
        return [torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: forever(x), (x,))]

    tape = record(function, [torch.ones(2, 3)], {})
    assert [step.target for step in steps_of(tape) if step.target in (either, repeated)] == [either, repeated]


def test_results_share_no_memory_with_what_was_given() -> None:
    def function(x: Tensor) -> list[Tensor]:
        made = torch.cond(x.sum() > 0, lambda x: x, lambda x: x.clone(), (x,))
        return [made.add_(1), x * 1]

    x = torch.ones(2, 3)
    tape = functional(record(function, [x.clone()], {}))
    assert [tensor.tolist() for tensor in play(tape, [x])] == [(x + 1).tolist(), x.tolist()]


# --- Runs that are only counted or tried ----------------------------------------------------------------


@pytest.mark.parametrize("function", [*ALL[:-2], *MORE[::5]], ids=lambda function: function.__name__)
def test_plain_runs_agree_with_pytorch_and_work_under_modes(function: Callable[[Tensor], Any]) -> None:
    for x in (torch.randn(3, 4), torch.randn(3, 4) + 2, torch.zeros(3, 4)):
        with torch.no_grad(), run_by(Plain()), Passing():
            made = function(x)
            assert work.nominal_seconds(functools.partial(function, x)) > 0
        with torch.no_grad():
            torch.testing.assert_close(made, function(x), equal_nan=True)


@pytest.mark.parametrize("function", [chosen_in_chosen, halved, summed, row_by_row])
def test_plain_runs_go_on_without_data(function: Callable[[Tensor], Any]) -> None:
    def shapes(made: Any) -> list[torch.Size]:
        return [tensor.shape for tensor in ([made] if isinstance(made, Tensor) else made)]

    with torch.no_grad(), run_by(Plain()):
        with tracing.fake_mode():
            fake = function(torch.ones(3, 4))
        assert shapes(fake) == shapes(function(torch.ones(3, 4)))


def test_plain_within_plain_is_the_same_and_within_another_is_not() -> None:
    def refused(name: str) -> Exception:
        return ValueError(name)

    x = torch.randn(3, 4)
    with torch.no_grad(), run_by(Plain()):
        with run_by(Plain()), Passing():
            made = summed(x)
        with run_by(Refused(refused)):
            with pytest.raises(ValueError, match="scan"):
                summed(x)
            with run_by(Plain()), Passing():
                torch.testing.assert_close(summed(x), made)
        with Passing():
            torch.testing.assert_close(summed(x), made)


class Passing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
