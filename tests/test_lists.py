"""Python lists whose length is a size: right at every length, or refused in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import anyshape
from anyshape.capture.tape import Apart, Tape, rolled_up
from anyshape.capture.tape.joins import joined_in_groups, joined_one_by_one
from anyshape.capture.tape.steps import rolled
from anyshape.capture.tape.unpack import in_order_of_use, parts_differ

aten = torch.ops.aten
Lined = Callable[..., Any]
Lists = Callable[[Tensor], Any]

ROWS = [{"b": b, "n": n} for b, n in ((2, 5), (3, 5), (2, 6), (6, 5), (2, 11), (4, 8), (2, 7), (2, 9))]
UNSEEN = [{"b": b, "n": n} for b, n in ((1, 1), (1, 2), (2, 1), (3, 2), (5, 3), (1, 13), (7, 4))]


def loops(tape: Tape) -> list[Any]:
    return [step for step in tape.steps if step.target is rolled]


def targets(tape: Tape) -> list[str]:
    return [str(step.target) for step in tape.steps]


# --- Lists over a dim, from plain to involved -----------------------------------------------------------


def over_rows(x: Tensor) -> Tensor:
    return torch.stack([row.softmax(0) for row in x])


def by_number(x: Tensor) -> Tensor:
    return torch.stack([x[k].softmax(0) * k for k in range(len(x))])


def zipped(x: Tensor) -> Tensor:
    return torch.stack([one * two.sum() for one, two in zip(x.unbind(1), x.sin().unbind(1), strict=True)], 1)


def concatenated(x: Tensor) -> Tensor:
    return torch.concat([row.softmax(0) for row in x])


def reversed_list(x: Tensor) -> Tensor:
    return torch.stack([row.softmax(0) for row in reversed(list(x))])


def every_other(x: Tensor) -> Tensor:
    return torch.stack([column.sin() for column in x.unbind(1)][::2], 1)


def split_in_pairs(x: Tensor) -> Tensor:
    return torch.cat([part.softmax(1) for part in torch.split(x, 2, 1)], 1)


def chunks(x: Tensor) -> Tensor:
    return torch.cat([part.softmax(1) for part in x.chunk(x.shape[0])])


def all_pairs(x: Tensor) -> Tensor:
    return torch.stack([torch.stack([item.sin() * row.sum() for item in row]) for row in x])


def results_used_again(x: Tensor) -> Tensor:
    first = [row.softmax(0) for row in x]
    second = [item.sin() for item in first]
    return torch.stack([one + two for one, two in zip(first, second, strict=True)])


def one_of_them(x: Tensor) -> Tensor:
    parts: list[Tensor] = [row.softmax(0) for row in x]
    sums = torch.stack([parts[k] + x[k] for k in range(len(parts))])
    return sums * parts[0] * parts[-1]


def up_to_here(x: Tensor) -> Tensor:
    """Python takes no slice in the last round."""
    return torch.stack([x[:, : k + 1].softmax(1).sum(1) for k in range(x.shape[1])], 1)


def from_behind(x: Tensor) -> Tensor:
    return torch.stack([x[:, -(k + 1) :].cumsum(1).mean(1) for k in range(x.shape[1])], 1)


def from_here_on(x: Tensor) -> Tensor:
    """Python takes no slice in the first round."""
    return torch.stack([x[:, k:].softmax(1).sum(1) for k in range(x.shape[1])], 1)


def of_several_sizes(x: Tensor) -> Tensor:
    parts = [x[:, k : k + 3] for k in range(0, x.shape[1], 3)]
    sines = [part.sin() for part in parts]
    return torch.cat([part * sine.sum(1, keepdim=True) for part, sine in zip(parts, sines, strict=True)], 1)


def joined_as_it_grows(x: Tensor) -> Tensor:
    made = [x[:, 0]]
    for k in range(1, x.shape[1]):
        made.append(torch.tanh(torch.stack(made, 1).mean(1) + x[:, k]))
    return torch.stack(made, 1)


def concatenated_as_it_grows(x: Tensor) -> Tensor:
    made = [x[:, :1]]
    for k in range(1, x.shape[1]):
        made.append(torch.tanh(torch.cat(made, 1).mean(1, keepdim=True) + x[:, k : k + 1]))
    return torch.cat(made, 1)


def two_of_each_round(x: Tensor) -> Tensor:
    return torch.stack([made for item in x.unbind(1) for made in (item.sin(), item.cos())], 1)


def the_last_is_special(x: Tensor) -> Tensor:
    last = x.shape[1] - 1
    return torch.stack([x[:, k].sin() if k < last else x[:, k].cos() for k in range(last + 1)], 1)


LISTS: list[Lists] = [
    over_rows,
    by_number,
    zipped,
    concatenated,
    reversed_list,
    every_other,
    split_in_pairs,
    chunks,
    all_pairs,
    results_used_again,
    one_of_them,
    up_to_here,
    from_behind,
    from_here_on,
    of_several_sizes,
    joined_as_it_grows,
    concatenated_as_it_grows,
    two_of_each_round,
    the_last_is_special,
]


@pytest.mark.parametrize("function", LISTS, ids=lambda function: function.__name__)
def test_a_list_over_a_dim_is_right_at_any_length(function: Lists, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    made.rolled()
    tape = made.merged()
    assert loops(tape)
    for row in UNSEEN:
        made.check(tape, row)


@pytest.mark.parametrize("function", [up_to_here, from_behind], ids=lambda function: function.__name__)
def test_the_last_round_may_lack_a_slice_on_every_tape(function: Lists, lined: Lined) -> None:
    """Two lengths that follow each other: neither has a whole round that the other lacks."""
    tapes = lined(function, "b n", {"b": 2, "n": 5}, {"b": 2, "n": 6}).rolled()
    assert [step.args[0] for tape in tapes for step in loops(tape)] == [5, 6]


def test_a_list_of_which_a_few_are_joined(lined: Lined) -> None:
    """The second may be the last, which is no round of the loop: at two, the ways part."""

    def function(x: Tensor) -> Tensor:
        parts = [item.sin() for item in x.unbind(1)]
        return torch.stack([*parts[:2], *parts[:-1]], 1)

    made = lined(function, "b n", *ROWS)
    tape = made.merged()
    for row in UNSEEN:
        if row["n"] > 2:
            made.check(tape, row)


# --- As files -------------------------------------------------------------------------------------------


def side_by_side(x: Tensor) -> Tensor:
    return torch.hstack([row.softmax(0) for row in x])


def padded(x: Tensor) -> Tensor:
    return pad_sequence([row.softmax(0) for row in x], batch_first=True)


def tensor_splits(x: Tensor) -> Tensor:
    return torch.cat([part.softmax(1) for part in x.tensor_split(x.shape[0])])


class Function(nn.Module):
    def __init__(self, function: Lists) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    "function", [side_by_side, padded, tensor_splits], ids=lambda function: function.__name__
)
def test_a_file_of_a_list_over_a_dim(function: Lists, tmp_path: Path) -> None:
    path = tmp_path / "list.onnx"
    anyshape.export(Function(function), (torch.randn(2, 5),), path, shapes={"x": "b, n"})
    loaded = anyshape.load(path)
    for row in UNSEEN:
        x = torch.randn(row["b"], row["n"])
        torch.testing.assert_close(torch.as_tensor(loaded(x)), function(x))


def test_a_list_whose_length_no_round_tells_is_refused_in_words(line_in: Callable[[str, str], int]) -> None:
    """The inner loop is longer in each round."""

    def function(x: Tensor) -> Tensor:
        pairs = [(k, j) for k in range(x.shape[1]) for j in range(k + 1)]
        return torch.stack([x[:, k].sin() * x[:, j] for k, j in pairs], 1)  # of each pair

    with pytest.raises(anyshape.Fault, match="a number in the model changes with its inputs") as caught:
        anyshape.export(Function(function), (torch.randn(2, 6),), shapes={"x": "b, n"})
    assert caught.value.where is not None and caught.value.where.line == line_in(__file__, "# of each pair")


# --- What is no list of rounds --------------------------------------------------------------------------


def pairwise_up(x: Tensor) -> Tensor:
    parts = list(x.unbind(1))
    while len(parts) > 1:
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [torch.tanh(pair[0] + pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def a_list_of_results(x: Tensor) -> list[Tensor]:
    return [row.softmax(0) for row in x]


@pytest.mark.parametrize("function", [pairwise_up, a_list_of_results], ids=lambda function: function.__name__)
def test_what_no_loop_does_is_no_loop(function: Lists, lined: Lined) -> None:
    with pytest.raises(Apart, match="the tapes part at step"):
        rolled_up(lined(function, "b n", *ROWS).tapes)


def test_parts_that_are_as_many_at_every_size_stay_one_step(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        one, two = x.sin().chunk(2, 1)
        return one.sum(1) * two.sum(1)

    made = lined(function, "b n", *ROWS)
    assert not parts_differ([tape.steps[1] for tape in made.tapes])
    assert targets(made.merged()) == [
        "aten.sin.default",
        "aten.chunk.default",
        *["aten.sum.dim_IntList"] * 2,
        "aten.mul.Tensor",
    ]


# --- The same results by other steps --------------------------------------------------------------------


def test_a_list_that_has_grown_is_what_was_joined_and_what_is_new(lined: Lined) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        one, two, three = x.sin(), x.cos(), x.exp()
        return torch.stack([one, two]), torch.stack([one, two, three])

    made = lined(function, "b n", ROWS[0])
    (tape,) = joined_one_by_one(made.tapes) or []
    made.check(tape, ROWS[0])
    assert targets(tape)[3:] == ["aten.stack.default", "aten.stack.default", "aten.cat.default"]
    assert joined_one_by_one([tape]) is None


@pytest.mark.parametrize(
    ("join", "axis"), [(torch.stack, 0), (torch.stack, -1), (torch.cat, 0), (torch.cat, 1)]
)
def test_groups_of_a_list_are_joined_first(join: Any, axis: int, lined: Lined) -> None:
    def function(x: Tensor) -> Any:
        return join([made for k in range(4) for made in ((x * k).sin(), (x * k).cos())], axis)

    made = lined(function, "b n", ROWS[0])
    (tape,) = joined_in_groups(made.tapes) or []
    made.check(tape, ROWS[0])
    assert targets(tape).count(str(made.tapes[0].steps[-1].target)) == 4 + (join is torch.cat)
    assert len(tape.steps[-1].args[0]) == 4
    assert joined_in_groups([tape]) is None


def test_steps_are_moved_to_where_they_are_needed_first(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        one, two = x.sin(), x.cos()
        three = two.exp()
        return one.tan() * three + two

    made = lined(function, "b n", ROWS[0])
    (tape,) = in_order_of_use(made.tapes) or []
    made.check(tape, ROWS[0])
    order = [name.split(".")[1] for name in targets(tape)]
    assert order == ["sin", "tan", "cos", "exp", "mul", "add"]
    assert in_order_of_use([tape]) is None


def test_steps_whose_size_hangs_on_values_are_not_moved(lined: Lined) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        places = x.nonzero()
        return x.sin(), places * 2

    assert _first(in_order_of_use(lined(function, "b n", ROWS[0]).tapes)) == "aten.nonzero.default"


def _first(tapes: Sequence[Tape] | None) -> str:
    return "aten.nonzero.default" if tapes is None else targets(tapes[0])[0]
