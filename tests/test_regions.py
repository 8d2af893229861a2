from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from anyshape.capture import Program, Split, Traces, capture_values
from anyshape.capture.differential import Parted
from anyshape.capture.regions import MOST_REGIONS, _side
from anyshape.capture.tape import Tape
from anyshape.dims import Expr, Relation
from anyshape.errors import CaptureFault

Run = Callable[..., list[Tensor]]
Made = Callable[..., Traces]


def conditions(body: Tape | Split) -> Iterator[str]:
    if isinstance(body, Split):
        yield str(body.condition)
        yield from conditions(body.then)
        yield from conditions(body.otherwise)


def chosen(body: Tape | Split, sizes: dict[str, int]) -> Tape:
    while isinstance(body, Split):
        body = body.then if body.condition.holds(sizes) else body.otherwise
    return body


def agrees(program: Program, function: Any, run_tape: Run) -> None:
    for b, n in [(b, n) for b in (1, 2, 5) for n in (1, 2, 5, 6, 7, 8, 9, 12, 13, 20, 41)]:
        x = torch.randn(b, n)
        tape = chosen(program.body, {"b": b, "n": n})
        torch.testing.assert_close(run_tape(tape, [x], {"b": b, "n": n}), [function(x)])


def longer(x: Tensor) -> Tensor:
    return x.sin() if x.shape[1] > 8 else x.cos() * 2


def parity(x: Tensor) -> Tensor:
    return x.sin() if x.shape[1] % 2 else x.cos() * 2


def every_third(x: Tensor) -> Tensor:
    return x.sin() if x.shape[1] % 3 == 1 else x.cos() * 2


def two_boundaries(x: Tensor) -> Tensor:
    if x.shape[1] > 12:
        return x.sin()
    return x.cos() if x.shape[1] > 5 else x.tanh()


def two_dims(x: Tensor) -> Tensor:
    made = x.sin() if x.shape[1] > 8 else x.cos()
    return made * 2 if x.shape[0] > 4 else made + 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (longer, {"n <= 8"}),
        (parity, {"n % 2 == 0"}),
        (every_third, {"n % 3 == 1"}),
        (two_boundaries, {"n <= 12", "n <= 5"}),
        (two_dims, {"n <= 8", "b <= 4"}),
    ],
)
def test_each_side_is_captured_and_a_condition_chooses(
    function: Any, expected: set[str], traces: Made, run_tape: Run
) -> None:
    program = capture_values(traces(function), [{"b": 5, "n": 4}, {"b": 5, "n": 30}, {"b": 2, "n": 9}])
    assert program.rung == "regions" and not program.proved
    assert {text.replace("% 2 == 1", "% 2 == 0") for text in conditions(program.body)} == expected
    agrees(program, function, run_tape)


def test_one_row_alone(traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return x[0].sin()[None] if x.shape[0] == 1 else x.cos()

    program = capture_values(traces(function), [{"b": 1, "n": 6}])
    assert set(conditions(program.body)) <= {"b == 1", "b <= 1"}
    agrees(program, function, run_tape)


def test_sides_with_loops(traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        if x.shape[1] <= 8:
            return x.sum(1)
        state = x[:, 0]
        for item in range(x.shape[1]):
            state = state * 0.5 + x[:, item]
        return state

    agrees(capture_values(traces(function), [{"b": 4, "n": 5}, {"b": 4, "n": 30}]), function, run_tape)


def test_without_a_boundary_there_is_one_tape(traces: Made) -> None:
    program = capture_values(traces(torch.sin))
    assert isinstance(program.body, Tape) and program.rung == "differential"


def test_the_split_knows_its_line(traces: Made, line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() if x.shape[1] > 8 else x.cos()  # both ways

    body = capture_values(traces(function)).body
    assert isinstance(body, Split) and body.where is not None
    assert body.where.line == line_in(__file__, "# both ways")


def test_outputs_have_the_sizes_that_hold_on_both_sides(traces: Made) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin()[:, :8] if x.shape[1] > 8 else x.cos()

    ((batch, size),) = capture_values(traces(function)).outputs
    assert str(batch) == "b" and str(size) == "n"  # the runs tell later that it is not always


# --- What has no conditions -----------------------------------------------------------------------------

WAYS = (torch.sin, torch.cos, torch.tanh, torch.exp, torch.relu, torch.abs, torch.erf, torch.neg, torch.atan)
WAYS = (*WAYS, torch.sinh, torch.cosh, torch.asinh, torch.floor, torch.ceil, torch.sigmoid, torch.sign)


def test_too_many_ways_are_told(traces: Made, line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        return WAYS[min(x.shape[1] // 3, len(WAYS) - 1)](x)  # so many

    further = [{"b": 4, "n": 3 * number + 1} for number in range(len(WAYS))]
    with pytest.raises(CaptureFault) as caught:
        capture_values(traces(function), further)
    assert caught.value.what.startswith(
        f"the model takes more than {MOST_REGIONS} ways, depending on its sizes: those at"
    )
    assert caught.value.where is not None and caught.value.where.line == line_in(__file__, "# so many")
    assert caught.value.hint == "Declare a smaller range for the dim that chooses them."


def test_two_dims_together_decide(traces: Made, run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() if (x.shape[0] * 7 + x.shape[1] * 11) % 13 < 5 else x.cos()

    agrees(capture_values(traces(function)), function, run_tape)


def test_a_difference_that_follows_no_condition_is_told(traces: Made) -> None:
    """Numpy decides, where no one sees it, and not by one dim alone: it is the two of them together."""

    def function(x: Tensor) -> Tensor:
        return x.sin() if np.less((np.int64(x.shape[0]) * 7 + x.shape[1] * 11) % 13, 5) else x.cos()

    with pytest.raises(CaptureFault, match=r"ways|runs other operators|handed to numpy"):
        capture_values(traces(function))


def test_a_difference_of_values_is_not_one_of_regions(traces: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made = traces(torch.sin)
    fault = Parted(made.agreed.generic, made.agreed.generic, None)

    def parted(*args: Any) -> Any:
        raise fault

    monkeypatch.setattr("anyshape.capture.regions.capture_differential", parted)
    with pytest.raises(Parted, match="with other values") as caught:
        capture_values(made)
    assert caught.value is fault


def test_a_side_without_sizes_is_told(traces: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyshape.capture.regions.generic", lambda *args: [])
    with pytest.raises(CaptureFault, match="no sizes were found at which n <= 1"):
        _side(traces(torch.sin), Relation(Expr.of("n"), "<=", Expr.of(1)), [])


@pytest.mark.parametrize("text", ["<=", "==", "!="])
def test_a_negated_condition_holds_where_it_does_not(text: Any) -> None:
    relation = Relation(Expr.of("n"), text, Expr.of(8))
    for n in range(20):
        assert relation.negated().holds({"n": n}) != relation.holds({"n": n})


def test_a_side_has_generic_sizes_of_its_own(traces: Made) -> None:
    made = traces(torch.sin)
    condition = Relation(Expr.of("n"), "<=", Expr.of(4))
    side, further = _side(made, condition, [{"b": 3, "n": 2}, {"b": 3, "n": 9}])
    assert condition.holds(side.agreed.generic) and side.agreed.contract.allows(side.agreed.generic)
    assert further == [{"b": 3, "n": 2}] and side.known is made.known
