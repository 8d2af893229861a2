from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.capture.tape import Apart, Tape, rolled_up
from anyshape.capture.tape.loops import _candidates
from anyshape.capture.tape.signs import Sign
from anyshape.capture.tape.skipped import lacks_a_step
from anyshape.capture.tape.steps import LoopBody, rolled
from anyshape.dims import Expr

aten = torch.ops.aten
Lined = Callable[..., Any]

ROWS = [{"b": b, "n": n} for b, n in ((3, 7), (4, 7), (3, 8), (8, 7), (3, 14), (6, 11), (2, 5))]
UNSEEN = [{"b": b, "n": n} for b, n in ((2, 1), (1, 2), (4, 3), (2, 6), (1, 23))]


def loops(tape: Tape) -> list[Any]:
    return [step for step in tape.steps if step.target is rolled]


# --- Loops, from plain to involved ----------------------------------------------------------------------


def last_state(x: Tensor) -> Tensor:
    state = torch.zeros(x.shape[0])
    for item in range(x.shape[1]):
        state = torch.tanh(state * 0.5 + x[:, item])
    return state


def every_state(x: Tensor) -> Tensor:
    states = []
    state = torch.zeros(x.shape[0])
    for item in range(x.shape[1]):
        state = state * 0.5 + x[:, item]
        states.append(state)
    return torch.stack(states, 1)


def in_reverse(x: Tensor) -> Tensor:
    states = []
    state = torch.zeros(x.shape[0])
    for item in range(x.shape[1]):
        state = state * 0.5 + x[:, item]
        states.append(state)
    return torch.stack(states[::-1], 1)


def backwards(x: Tensor) -> Tensor:
    state = torch.zeros(x.shape[0])
    for item in reversed(range(x.shape[1])):
        state = state * 0.5 + x[:, item]
    return state


def unbound(x: Tensor) -> Tensor:
    state = torch.zeros(x.shape[0])
    for item in x.unbind(1):
        state = (state + item).sin()
    return state


def two_states(x: Tensor) -> tuple[Tensor, Tensor]:
    one, two = torch.zeros(x.shape[0]), torch.ones(x.shape[0])
    for item in range(x.shape[1]):
        one, two = two * 0.5 + x[:, item], one.sin()
    return one, two


def nothing_carried(x: Tensor) -> Tensor:
    return torch.stack([(x[:, item] * 2).sin() for item in range(x.shape[1])], 1)


def read_from_outside(x: Tensor) -> Tensor:
    scale, state = x.mean(1), torch.zeros(x.shape[0])
    for item in range(x.shape[1]):
        state = state * scale + x[:, item]
    return state * scale


def written(x: Tensor) -> Tensor:
    made = torch.zeros_like(x)
    for item in range(x.shape[1]):
        made[:, item] = x[:, item].cos()
    return made


def from_the_second(x: Tensor) -> Tensor:
    states = [x[:, 0]]
    for item in range(1, x.shape[1]):
        states.append(states[-1] * 0.5 + x[:, item])
    return torch.stack(states, 1)


def concatenated(x: Tensor) -> Tensor:
    parts = []
    for item in range(x.shape[1]):
        one = x[:, item : item + 1].exp()
        parts.append(torch.cat([one, -one], 1))
    return torch.cat(parts, 1)


def joined_with_others(x: Tensor) -> Tensor:
    state, states = torch.zeros(x.shape[0]), []
    for item in range(x.shape[1]):
        state = state * 0.5 + x[:, item]
        states.append(state)
    return torch.stack([x[:, 0], *states, x[:, -1]], 0)


def used_twice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    state, states = torch.zeros(x.shape[0]), []
    for item in range(x.shape[1]):
        state = state * 0.5 + x[:, item]
        states.append(state)
    return torch.stack(states, 1), state, torch.stack(states[::-1])


def one_after_another(x: Tensor) -> Tensor:
    states, state = [], torch.zeros(x.shape[0])
    for item in range(x.shape[1]):
        state = state * 0.5 + x[:, item]
        states.append(state)
    state = torch.ones(x.shape[0])
    for item in reversed(states):
        state = state.sin() * item
    return state


LOOPS: list[Callable[..., Any]] = [
    last_state,
    every_state,
    in_reverse,
    backwards,
    unbound,
    two_states,
    nothing_carried,
    read_from_outside,
    written,
    from_the_second,
    concatenated,
    joined_with_others,
    used_twice,
    one_after_another,
]


@pytest.mark.parametrize("function", LOOPS, ids=lambda function: function.__name__)
def test_a_loop_becomes_one_step_that_is_right_at_any_length(function: Any, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    tapes = made.rolled()
    assert len({len(tape.steps) for tape in tapes}) == 1 and loops(tapes[0])
    tape = made.merged()
    for row in UNSEEN:
        if function is not from_the_second or row["n"] > 1:  # a join of no rounds has no shape here
            made.check(tape, row)


def test_the_number_of_rounds_is_an_expression(lined: Lined) -> None:
    (step,) = loops(lined(from_the_second, "b n", *ROWS).merged())
    assert step.args[0] == Expr.of("n") - 1
    assert isinstance(step.body, LoopBody) and step.body.index == "_t0"
    assert len(step.body.carried) == 1 and [str(size) for size in step.body.carried[0].shape] == ["b"]


def test_numbers_in_a_round_are_expressions_of_its_number(lined: Lined) -> None:
    (step,) = loops(lined(backwards, "b n", *ROWS).merged())
    (select,) = (item for item in step.body.steps if item.target is aten.select.int)
    assert str(select.args[2]) == "n - _t0 - 1" or select.args[2] == Expr.of("n") - Expr.of("_t0") - 1


def test_a_loop_knows_its_line(lined: Lined, line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0])
        for item in range(x.shape[1]):
            state = state + x[:, item].sin()  # each round
        return state

    (step,) = loops(lined(function, "b n", *ROWS).rolled()[0])
    assert step.where is not None and step.where.line == line_in(__file__, "# each round")


def test_loops_in_loops(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        rows = []
        for row in range(x.shape[1]):
            total = x[:, row, 0]
            for column in range(x.shape[2]):
                total = total * 0.5 + x[:, row, column]
            rows.append(total.sin())
        return torch.stack(rows, 1)

    sizes = ((3, 7, 5), (4, 7, 5), (3, 8, 5), (3, 7, 6), (8, 7, 5), (3, 13, 5), (3, 7, 11), (6, 9, 8))
    rows = [{"b": b, "h": h, "w": w} for b, h, w in sizes]
    made = lined(function, "b h w", *rows)
    tape = made.merged()
    (outer,) = loops(tape)
    (inner,) = [step for step in outer.body.steps if step.target is rolled]
    assert (inner.body.index, outer.body.index) == ("_t1", "_t0")
    for row in ({"b": 2, "h": 1, "w": 1}, {"b": 1, "h": 4, "w": 2}, {"b": 1, "h": 3, "w": 15}):
        made.check(tape, row)


def test_rounds_may_differ_in_size(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0])
        for item in range(x.shape[1]):
            state = state * 0.5 + x[:, :item].sum(1)
        return state

    made = lined(function, "b n", *ROWS)
    tape = made.merged()
    for row in UNSEEN:
        made.check(tape, row)


def test_tapes_that_agree_already_stay_as_they_are(lined: Lined) -> None:
    made = lined(lambda x: (x * 2).softmax(1), "b n", *ROWS)
    assert rolled_up(made.tapes) == made.tapes


def test_a_loop_of_a_fixed_length_is_not_rolled(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        for number in range(4):
            x = (x * number).sin()
        return x

    assert not loops(lined(function, "b n", *ROWS).rolled()[0])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_branch_is_no_loop(swapped: bool, lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() if (x.shape[1] > 10) == swapped else x.cos() * 2

    with pytest.raises(Apart, match="the tapes part at step 0") as caught:
        rolled_up(lined(function, "b n", *ROWS).tapes)
    assert caught.value.number == 0
    assert {step.target for step in caught.value.steps} == {aten.sin.default, aten.cos.default}


def test_a_tape_that_goes_on_where_the_first_ends_is_no_loop(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        made = x.sin()
        return made.cos() if x.shape[1] > 7 else made

    with pytest.raises(Apart, match="the tapes part at step 1") as caught:
        rolled_up(lined(function, "b n", *ROWS).tapes)
    assert {step and step.target for step in caught.value.steps} == {None, aten.cos.default}
    assert caught.value.steps[0] is None


def test_rounds_that_use_what_lies_two_rounds_back_are_no_loop(lined: Lined) -> None:
    """What is carried comes from the round before."""

    def function(x: Tensor) -> Tensor:
        states = [x[:, 0], x[:, 0] * 2]
        for item in range(x.shape[1]):
            states.append(states[-2].sin() + x[:, item])
        return states[-1]

    with pytest.raises(Apart):
        rolled_up(lined(function, "b n", *ROWS).tapes)


def test_outputs_in_another_order_are_another_path(lined: Lined) -> None:
    made = lined(lambda x: (x.sin(), x.cos()), "b n", *ROWS)
    made.tapes[2].outputs.reverse()
    with pytest.raises(Apart, match="the tapes part at step 2"):
        rolled_up(made.tapes)


# --- Where a loop may be --------------------------------------------------------------------------------


def tried_one_by_one(short: list[Sign], long: list[Sign], here: int, loosely: bool) -> set[tuple[int, int]]:
    """Every size of a body that the longer tape goes on with, and each place where the first of its rounds may be."""
    found = set()
    for size in range(1, here + 1):
        last, following = long[here - size : here], long[here : here + size]
        if last != following and not (loosely and lacks_a_step(last, following)):
            continue
        for start in range(here - size, max(-1, here - 2 * size), -1):
            body, first = short[start : start + size], start
            while (
                long[start : start + size] == body and first >= size and short[first - size : first] == body
            ):
                first -= size
            if long[start : start + size] == body:
                found.add((size, first))
    return found


@pytest.mark.parametrize("loosely", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_bodies_of_loops_are_those_that_a_plain_search_finds(seed: int, loosely: bool) -> None:
    draw = random.Random(seed)
    kinds = [Sign(aten.slice.Tensor), *(Sign(number) for number in range(draw.randint(1, 3)))]
    before, body, after = (draw.choices(kinds, k=draw.randint(*ends)) for ends in ((0, 3), (1, 4), (0, 3)))
    one, two = (before + body * times + after for times in draw.sample(range(6), 2))
    if draw.random() < 0.4:
        del two[draw.randrange(len(two))]
    alike = [a is b for a, b in zip(one, two, strict=False)]
    here = alike.index(False) if False in alike else min(len(one), len(two))
    wanted = {*tried_one_by_one(one, two, here, loosely), *tried_one_by_one(two, one, here, loosely)}
    got = [(size, start) for size, starts in _candidates([one, two], here, loosely) for start in starts]
    assert len(got) == len(set(got)) and set(got) == wanted
