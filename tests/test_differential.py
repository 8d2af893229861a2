from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anyshape.capture import Traces
from anyshape.capture.differential import Parted, capture_differential, first_rows, parting
from anyshape.capture.tape import Tape
from anyshape.errors import CaptureFault

Run = Callable[..., list[Tensor]]
Made = Callable[..., Traces]


def agrees(tape: Any, function: Any, run_tape: Run, *shapes: tuple[int, ...], names: str = "b n") -> None:
    assert isinstance(tape, Tape)
    for shape in shapes:
        x = torch.randn(shape)
        sizes = dict(zip(names.split(), shape, strict=True))
        torch.testing.assert_close(run_tape(tape, [x], sizes), [function(x)], msg=lambda t: f"{t}\n{shape}")  # noqa: B023


# --- The sizes to trace at ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "example", "dims"),
    [
        ("b, n", (2, 6), {}),
        ("b, n, m", (2, 6, 6), {}),
        ("b, n", (2, 3), {"n": "2..4"}),
        ("b, n", (2, 3), {"b": "1..5", "n": "..7"}),
        ("b, 4*n", (2, 8), {}),
        ("n, n*n", (3, 9), {}),
        ("b, n, m", (2, 6, 5), {"n": ">=16", "m": "..9"}),
    ],
)
def test_rows_are_legal_and_no_two_dims_are_alike(
    text: str, example: tuple[int, ...], dims: Any, traces: Made
) -> None:
    agreed = traces(lambda x: x * 2, text, *example, dims=dims).agreed
    rows = list(first_rows(agreed))
    assert rows[0] == agreed.generic and len(rows) > 2
    assert all(agreed.contract.allows(row) for row in rows)
    assert len({tuple(row.items()) for row in rows}) == len(rows)
    for row in rows[1:]:
        assert len(set(row.values())) == len(row)
    for name in agreed.generic:  # each dim moves alone in some row
        assert any([other for other in row if row[other] != rows[0][other]] == [name] for row in rows)


def test_a_dim_that_can_not_move_alone_moves_with_others(traces: Made) -> None:
    agreed = traces(lambda x: x * 2, "b, n", 2, 6, dims={"b": "2..2"}).agreed
    rows = list(first_rows(agreed))
    assert {row["b"] for row in rows} == {2} and len({row["n"] for row in rows}) > 3


# --- One tape of several --------------------------------------------------------------------------------


def test_numbers_become_expressions(traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, : math.ceil(float(np.float64(x.shape[1])) / 2)] * float(1 / np.sqrt(x.shape[1]))

    program = capture_differential(traces(function, "b, n", 2, 6))
    assert program.rung == "differential" and not program.proved
    batch, half = program.outputs[0]
    assert str(batch) == "b" and half is not None
    assert all(half.evaluate({"n": n}) == (n + 1) // 2 for n in range(1, 30))
    agrees(program.body, function, run_tape, (1, 1), (3, 2), (2, 17), (1, 64))


def test_a_loop_is_a_rung_of_its_own(traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        state = x[:, 0] * 0
        for item in range(x.shape[1]):
            state = state * 0.5 + x[:, item]
        return state

    program = capture_differential(traces(function, "b, n", 2, 6))
    assert program.rung == "rolled loop" and not program.proved
    agrees(program.body, function, run_tape, (1, 1), (3, 2), (2, 17))


def test_a_size_that_depends_on_values_is_not_spoken_of(traces: Made) -> None:
    program = capture_differential(traces(lambda x: x[x > 0], "b, n", 4, 6))
    assert program.outputs == ((None,),)


def test_a_counterexample_has_to_be_explained_too(traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, : min(int(np.int64(x.shape[1])) // 2, 30)].sin()

    made = traces(function, "b, n", 2, 6)
    with pytest.raises(AssertionError):
        agrees(capture_differential(made).body, function, run_tape, (2, 90))
    body = capture_differential(made, [{"b": 3, "n": 90}, {"b": 3, "n": 100}]).body
    agrees(body, function, run_tape, (2, 90), (1, 1), (2, 59), (3, 60), (2, 61), (1, 200))


@pytest.mark.parametrize("count", [lambda n: n // 7 * 2 + 1, lambda n: -n % 7 + 1])
def test_more_rows_are_traced_where_the_first_do_not_tell(count: Any, traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return x.new_ones(count(int(np.int64(x.shape[1])))) * x.sum()

    made = traces(function, "b, n", 2, 6)
    narrow = len(list(first_rows(made.agreed)))
    program = capture_differential(made)
    assert len(made.known) > narrow + 1  # one more than the rows has other values
    agrees(program.body, function, run_tape, (1, 1), (2, 13), (1, 26), (3, 51), (1, 70))


def test_each_size_is_traced_once(traces: Made) -> None:
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(tuple(x.shape))
        return x.sin()

    made = traces(function, "b, n", 2, 6)
    sizes = {"b": 3, "n": 5}
    made.at(dict(made.agreed.generic))
    calls.clear()
    assert made.at(sizes) is made.at(dict(reversed(sizes.items())))
    assert len(calls) == 1
    assert made.at(sizes, seed=1) is not made.at(sizes)


def test_tapes_are_functional_and_of_operators_that_have_a_translation(traces: Made) -> None:
    def function(x: Tensor) -> Tensor:
        x[0] = 0
        return nn.functional.huber_loss(x, x * 2)

    tape = traces(function, "b, n", 2, 6).at({"b": 3, "n": 5})
    assert not any(step.target._schema.is_mutable for step in tape.steps)
    assert torch.ops.aten.huber_loss.default not in {step.target for step in tape.steps}


# --- What can't be explained as one ---------------------------------------------------------------------


def test_other_operators_at_other_sizes_are_told(traces: Made, line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        if np.greater(x.shape[1], 12):  # which is not watched
            return x.sin() * 2  # the long way
        return x.cos()  # the short way

    with pytest.raises(Parted) as caught:
        capture_differential(traces(function, "b, n", 2, 6))
    fault = caught.value
    assert (fault.base["n"] > 12) != (fault.other["n"] > 12)
    text = [
        ", ".join(f"{name} = {size}" for name, size in sizes.items()) for sizes in (fault.other, fault.base)
    ]
    assert fault.what == f"the model runs other operators at {text[0]} than at {text[1]}"
    assert fault.hint == "A branch or a loop there depends on a size, in a way that could not be followed."
    lines = {line_in(__file__, "# the long way"), line_in(__file__, "# the short way")}
    assert fault.where is not None and fault.where.line in lines


def test_other_operators_with_other_values_are_told(traces: Made) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() if bool(x.flatten()[0] > x.flatten()[-1]) else x.cos()

    made = traces(function, "b, n", 2, 6)
    one = made.at(made.agreed.generic)
    seed = next(seed for seed in range(1, 20) if parting(one, made.at(made.agreed.generic, seed)) is not None)
    made.known[(*sorted(made.agreed.generic.items()), 1)] = made.at(made.agreed.generic, seed)
    with pytest.raises(CaptureFault, match="values"):
        capture_differential(made)


def test_parting_says_so_where_only_values_differ() -> None:
    fault = Parted({"n": 5}, {"n": 5}, None)
    assert fault.what == "the model runs other operators at n = 5 with other values"
    assert fault.hint == "A branch or a loop there depends on values, which have no place in a graph."


def test_a_number_that_moves_with_values_is_followed(traces: Made, run_tape: Run) -> None:
    """torch.nonzero's length, as a Python number."""

    def function(x: Tensor) -> Tensor:
        return x[:, : len(torch.nonzero(x > 0)) % 5] * 2

    program = capture_differential(traces(function, "b, n", 4, 6))
    agrees(program.body, function, run_tape, (2, 9), (3, 7))


def test_python_that_looks_at_values_is_told(traces: Made, line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        return x * len(str(x.sum().item()))  # a text of its own

    with pytest.raises(CaptureFault, match=r"Python looks at the values of a tensor \(\d") as caught:
        capture_differential(traces(function, "b, n", 4, 6))
    assert caught.value.what.endswith("a graph can't follow what it does")
    assert caught.value.where is not None
    assert caught.value.where.line == line_in(__file__, "# a text of its own")
    assert caught.value.hint == (
        "Compute it with tensors (torch.where instead of if), or move the check out of the model."
    )


def test_python_may_look_at_values_if_the_result_is_the_same(traces: Made, run_tape: Run) -> None:
    """What it would do otherwise is tried out."""

    def function(x: Tensor) -> Tensor:
        if bool((x == 0).all()):
            return x * 2
        return x + x

    program = capture_differential(traces(function, "b, n", 4, 6))
    agrees(program.body, function, run_tape, (1, 1), (3, 9))


def test_a_model_that_fails_when_traced_is_told(traces: Made, line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        if x.shape == (3, 5):
            raise ValueError("three by five")  # the refusal
        return x * 2

    made = traces(function, "b, n", 2, 6)
    with pytest.raises(CaptureFault) as caught:
        made.at({"b": 3, "n": 5})
    assert caught.value.what == "the model can't be traced at b = 3, n = 5: ValueError: three by five"
    assert caught.value.where is not None and caught.value.where.line == line_in(__file__, "# the refusal")
    assert caught.value.hint == "Call the model at these sizes to see why."
    assert made.runs({"b": 3, "n": 4}) and not made.runs({"b": 3, "n": 5})
