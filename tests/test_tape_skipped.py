from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from anyshape.capture.tape import Apart, rolled_up

aten = torch.ops.aten
Lined = Callable[..., Any]

ROWS = [
    {"b": b, "n": n} for b, n in ((3, 7), (5, 7), (3, 8), (3, 14), (9, 16), (2, 12), (3, 10), (3, 9), (3, 13))
]
UNSEEN = [{"b": b, "n": n} for b, n in ((2, 1), (1, 4), (4, 6), (2, 17), (1, 40))]


def cut(x: Tensor) -> Tensor:
    return x[:, :8].sin()  # Python leaves the slice out where there is nothing to cut


def cut_from_behind(x: Tensor) -> Tensor:
    skipped = x.shape[1] % 4
    return x[:, skipped:].sin()


def padded(x: Tensor) -> Tensor:
    missing = -x.shape[1] % 4
    if missing:
        x = pad(x, (0, missing))
    return x.sin()


def padded_and_cut_again(x: Tensor) -> Tensor:
    missing = -x.shape[1] % 4
    if missing:
        x = pad(x, (0, missing))
    x = x.view(x.shape[0], -1, 4).softmax(-1).flatten(1)
    if missing:
        x = x[:, :-missing]
    return x.sin()


def turned(x: Tensor) -> Tensor:
    shift = x.shape[1] % 3
    if shift:
        x = torch.roll(x, shift, 1)
    return x.sin()


def padded_twice(x: Tensor) -> Tensor:
    if -x.shape[1] % 4:
        x = pad(x, (0, -x.shape[1] % 4))
    if -x.shape[0] % 2:
        x = pad(x, (0, 0, 0, x.shape[0] % 2))
    return x.sin()


def as_the_output(x: Tensor) -> Tensor:
    x = x.sin()
    return pad(x, (0, x.shape[1] % 2)) if x.shape[1] % 2 else x


@pytest.mark.parametrize(
    "function",
    [padded, padded_and_cut_again, turned, padded_twice, as_the_output],
    ids=lambda function: function.__name__,
)
def test_a_step_that_changes_nothing_is_put_in_where_it_is_missing(function: Any, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    assert len({len(tape.steps) for tape in made.tapes}) > 1
    assert len({len(tape.steps) for tape in made.rolled()}) == 1
    tape = made.merged()
    for row in UNSEEN:
        made.check(tape, row)


@pytest.mark.parametrize("function", [cut, cut_from_behind], ids=lambda function: function.__name__)
def test_a_slice_is_on_the_tape_also_where_it_takes_all(function: Any, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    assert len({len(tape.steps) for tape in made.tapes}) == 1
    tape = made.merged()
    for row in UNSEEN:
        made.check(tape, row)


def test_a_resize_to_the_size_it_has_is_put_in(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        if x.shape[2] != 8:
            x = interpolate(x, (8, 8), mode="bilinear")
        return x.sin()

    rows = [{"b": b, "n": n} for b, n in ((3, 7), (5, 7), (3, 8), (2, 14))]
    made = lined(function, "b 1 n n", *rows)
    tapes = made.rolled()
    assert all(tape.steps[0].target is aten.upsample_bilinear2d.vec for tape in tapes)
    made.check(made.merged(), {"b": 1, "n": 11})


def test_a_resize_by_a_factor_is_another_operation(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        if x.shape[2] != 8:
            x = interpolate(x, scale_factor=2.0)
        return x.sin()

    rows = [{"b": b, "n": n} for b, n in ((3, 7), (3, 8), (2, 14))]
    with pytest.raises(Apart):
        rolled_up(lined(function, "b 1 n n", *rows).tapes)


def test_a_step_that_changes_something_is_not_put_in(lined: Lined) -> None:
    """With a change of type, or of the number of axes, there is nothing to leave out."""

    def function(x: Tensor) -> Tensor:
        return x.sin() if x.shape[1] > 10 else x.to(torch.float64)[:, :3].sin()

    with pytest.raises(Apart):
        rolled_up(lined(function, "b n", *ROWS).tapes)


def test_what_goes_on_otherwise_is_another_path(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, 1:].sin() if x.shape[1] > 10 else x.cos()

    with pytest.raises(Apart, match="the tapes part at step 0"):
        rolled_up(lined(function, "b n", *ROWS).tapes)


def test_who_used_the_tensor_itself_still_does(lined: Lined) -> None:
    """Only those who use the padded tensor elsewhere use what is put in here."""

    def function(x: Tensor) -> Tensor:
        missing = -x.shape[1] % 4
        wide = pad(x, (0, missing)) if missing else x
        return wide.sum(1) + x.sin().mean(1)

    made = lined(function, "b n", *ROWS)
    tape = made.merged()
    sin = next(step for step in tape.steps if step.target is aten.sin.default)
    assert sin.inputs == (tape.inputs[0],)
    for row in UNSEEN:
        made.check(tape, row)
