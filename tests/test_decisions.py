"""Decisions on sizes and questions about values, far from the example: the file goes the way that PyTorch goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture.decisions import explored
from anyshape.errors import CaptureFault

Shape = Sequence[int]


class Net(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        self.ratio = 0.3
        self.scale_77 = 4.0

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


def far(self: Any, x: Tensor) -> Tensor:
    return x.flip(1) if x.shape[1] > 333 else x


def area(self: Any, x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] * x.shape[1] > 5000 else x


def every(self: Any, x: Tensor) -> Tensor:
    return x if x.shape[1] % 90 else x[:, : x.shape[1] // 2].cumsum(1)


def both(self: Any, x: Tensor) -> Tensor:
    return x.flip(1) if x.shape[0] > 2 and x.shape[1] > 20 else x


def against(self: Any, x: Tensor) -> Tensor:
    return x.flip(1) if x.shape[1] > 2 * x.shape[0] + 3 else x


def scaled(self: Any, x: Tensor) -> Tensor:
    return x * (0.95 if x.shape[1] > 40 else 1.0)


def attribute(self: Any, x: Tensor) -> Tensor:
    return x[:, : math.ceil(self.ratio * x.shape[1])].cumsum(1)


def of_int(self: Any, x: Tensor) -> Tensor:
    return x.flip(1) if int(x.shape[1] * 0.7) > 28 else x


def in_between(self: Any, x: Tensor) -> Tensor:
    y = nn.functional.avg_pool1d(x[:, None], 2)
    return y.sin() if y.shape[2] > 50 else y.cos()


def by_length(self: Any, x: Tensor) -> Tensor:
    return x * 2 if len(x) > 12 else x


def looked_up(self: Any, x: Tensor) -> Tensor:
    return x * [1.5, 2.0, -1.0][x.shape[1] % 3]


def looked_up_far(self: Any, x: Tensor) -> Tensor:
    return x.roll((1, 4, 2)[min(x.shape[1] // 200, 2)], 1)


def of_a_float(self: Any, x: Tensor) -> Tensor:
    return x + float(x.shape[0] * x.shape[1] % 2) * 3


def rounds_of_five(self: Any, x: Tensor) -> Tensor:
    total = x.sum() * 0
    for start in range(0, x.shape[1], 5):
        total = total * 0.5 + x[:, start : start + 2].sum()
    return x - total if x.shape[1] > 64 else x + total


def latter_half(self: Any, x: Tensor) -> Tensor:
    kept = math.ceil(x.shape[1] * 0.5)
    x = x / (1 + x.std(1, keepdim=True, correction=0)[:, : x.shape[1]])
    x = x[:, -kept:]
    return x * 2 if x.shape[0] > 2 * kept + 1 else x


def keyed(self: Any, x: Tensor) -> Tensor:
    return x * {3: 0.5, 300: 3.0}.get(x.shape[1], 1.0)


TABLE = {64, 128}


def in_a_set(self: Any, x: Tensor) -> Tensor:
    return x.flip(1) if x.shape[1] in TABLE else x


def named(self: Any, x: Tensor) -> Tensor:
    return x * getattr(self, f"scale_{x.shape[1]}", 1.0)


def of_a_tuple(self: Any, x: Tensor) -> Tensor:
    return x * 2 if tuple(x.shape) == (60, 70) else x


def nested(self: Any, x: Tensor) -> Tensor:
    if x.shape[0] > 40 and x.shape[1] > 50:
        return x.flip(1)
    return x * 2 if x.shape[1] % 2 == 0 else x


def any_of_them(self: Any, x: Tensor) -> Tensor:
    if any(size > 300 for size in x.shape):
        return x * 3
    return x.flip(1) if x.shape[1] % 2 == 0 else x


def digits(self: Any, x: Tensor) -> Tensor:
    n, total = x.shape[1], 0
    while n > 0:
        total, n = total + n % 10, n // 10
    return x * total


def square(self: Any, x: Tensor) -> Tensor:
    side = int(x.shape[1] ** 0.5)
    return x[:, : side * side].reshape(x.shape[0], side, side)


def first_of_many(self: Any, x: Tensor) -> Tensor:
    for _ in range(x.shape[1] // 4):  # not quick far out
        x = x * 0.9 + 0.1
    return x[..., :90] if x.shape[1] > 6 else x


def last_of_many(self: Any, x: Tensor) -> Tensor:
    return x[:, None, -500:].cumsum(-1)


def two_turns(self: Any, x: Tensor) -> Tensor:
    n = x.shape[1]
    return x * [1.0, 2.0][n > 300] * {True: 3.0, False: 1.0}[n % 100 == 0]


def by_its_text(self: Any, x: Tensor) -> Tensor:
    return x * 2 if str(x.shape[1]) in ["64", "300"] else x


def both_far(self: Any, x: Tensor) -> Tensor:
    return x * 3 if x.shape[0] >= 64 and x.shape[1] % 300 == 0 else x


SIZES: list[tuple[Callable[..., Tensor], Shape, list[Shape]]] = [
    (far, (2, 5), [(2, 333), (2, 334), (1, 700)]),
    (area, (3, 7), [(50, 100), (50, 101), (2, 2501), (1, 5000)]),
    (every, (2, 7), [(2, 89), (2, 90), (3, 180), (1, 270)]),
    (both, (3, 6), [(2, 20), (2, 21), (3, 20), (3, 21), (9, 60), (1, 80)]),
    (against, (3, 6), [(3, 9), (3, 10), (20, 43), (20, 44), (1, 5), (1, 6)]),
    (scaled, (2, 5), [(2, 40), (2, 41), (1, 99)]),
    (attribute, (2, 7), [(2, 1), (2, 10), (2, 33), (1, 100)]),
    (of_int, (2, 7), [(2, 40), (2, 41), (2, 42), (1, 90)]),
    (in_between, (2, 8), [(2, 100), (2, 101), (2, 102), (3, 240)]),
    (by_length, (3, 4), [(12, 4), (13, 4), (30, 2)]),
    (looked_up, (2, 5), [(2, 6), (1, 7), (3, 8), (2, 300), (2, 301), (2, 302)]),
    (looked_up_far, (2, 5), [(2, 199), (2, 200), (1, 399), (2, 400), (2, 700)]),
    (of_a_float, (2, 5), [(3, 5), (3, 6), (1, 1), (7, 99)]),
    (rounds_of_five, (2, 7), [(2, 5), (2, 10), (2, 30), (2, 31), (1, 60), (2, 65), (3, 70)]),
    (keyed, (2, 5), [(2, 3), (2, 4), (2, 299), (2, 300), (1, 301)]),
    (in_a_set, (2, 5), [(2, 63), (2, 64), (1, 65), (2, 128), (3, 129)]),
    (named, (2, 5), [(2, 76), (2, 77), (1, 78)]),
    (of_a_tuple, (2, 5), [(60, 70), (60, 71), (61, 70), (59, 9)]),
    (nested, (3, 5), [(41, 51), (41, 52), (41, 50), (40, 52), (100, 101)]),
    (any_of_them, (2, 5), [(2, 302), (2, 301), (302, 4), (302, 5), (2, 300), (300, 300), (301, 301)]),
    (digits, (2, 5), [(2, 9), (2, 10), (1, 99), (2, 123), (2, 1000)]),
    (square, (2, 5), [(2, 1), (2, 3), (2, 4), (1, 24), (2, 25), (2, 120), (2, 121)]),
    (first_of_many, (2, 5), [(2, 6), (2, 89), (2, 90), (2, 91), (1, 200)]),
    (last_of_many, (2, 5), [(2, 499), (2, 500), (1, 501), (2, 900)]),
    (two_turns, (2, 5), [(2, 100), (2, 300), (2, 301), (1, 400), (2, 600), (2, 601)]),
    (by_its_text, (2, 5), [(2, 63), (2, 64), (2, 299), (2, 300), (1, 301)]),
    (both_far, (2, 5), [(64, 300), (64, 301), (63, 300), (70, 600)]),
    (latter_half, (2, 8), [(2, 7), (8, 3), (74, 7), (74, 8), (5, 2), (5, 3), (9, 9)]),
]


@pytest.mark.parametrize(
    ("function", "example", "others"), SIZES, ids=lambda item: getattr(item, "__name__", "")
)
def test_both_sides_of_a_decision(function: Any, example: Shape, others: list[Shape], tmp_path: Any) -> None:
    net = Net(function).eval()
    anyshape.export(net, (torch.randn(*example),), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for shape in (example, *others):
        x = torch.randn(*shape)
        assert torch.allclose(torch.as_tensor(run(x)), net(x), 1e-4, 1e-5), shape


def test_nothing_is_said_of_a_side_that_was_not_run(tmp_path: Any) -> None:
    made = anyshape.export(Net(far).eval(), (torch.randn(2, 5),))
    told = [text for text in made.verdict.sampled if "333" in text or "334" in text]
    assert told and all(text.startswith("right on both sides of") for text in told)
    assert {list(row.sizes.values())[1] > 333 for row in made.verdict.tried} == {True, False}


# --- Too far to be run, or too many -----------------------------------------------------------------------


def test_what_is_too_large_to_run_is_left_out_and_refused(tmp_path: Any) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x.flip(1) if x.shape[1] > 9_000_000 else x

    made = anyshape.export(Net(function).eval(), (torch.randn(2, 5),), tmp_path / "m.onnx")
    (note,) = [note for note in made.contract.notes if "too large to be run here" in note]
    assert "<= 9000000" in note and "test_decisions.py" in note
    assert str(made.contract.relations[-1]).endswith("<= 9000000")


def test_a_declared_size_is_not_left_out() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x.flip(1) if x.shape[1] > 9_000_000 else x  # far out

    with pytest.raises(CaptureFault, match="at sizes too large to be run here") as caught:
        anyshape.export(Net(function).eval(), (torch.randn(2, 5),), shapes={"inputs": "b, n"})
    assert caught.value.hint == "Declare a smaller range for the dims that choose the way."


# --- Values -----------------------------------------------------------------------------------------------


def skip(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    if bool(mask.all()):
        return x.mean(1)
    kept = mask.float()
    return (x * kept).sum(1) / kept.sum(1)


def norm(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    size = (x * mask).norm()
    return x / size if size > 3 else x


def longest(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    return x[:, : int(mask.sum(1).max())] * 2


def checked(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    assert not bool(torch.isnan(x).any()), "numbers, please"
    if mask.sum() < 0:
        raise ValueError("a mask, please")
    return x * mask


def twice(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    for _ in range(4):
        if mask.all():
            x = x * 2
    return x.cos()


@pytest.mark.parametrize("function", [skip, norm, longest, checked, twice], ids=lambda item: item.__name__)
def test_questions_about_values(function: Any, tmp_path: Any) -> None:
    net = Net(function).eval()
    anyshape.export(net, (torch.randn(2, 6), torch.ones(2, 6, dtype=torch.bool)), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for b, n, kept, scale in (
        (2, 6, 6, 1.0),
        (3, 9, 4, 0.01),
        (1, 30, 30, 9.0),
        (4, 5, 1, 1.0),
        (2, 7, 7, 0.01),
    ):
        x, mask = torch.randn(b, n) * scale, (torch.arange(n) < kept).expand(b, n).clone()
        got = torch.as_tensor(run(x, mask))
        assert torch.allclose(got, net(x, mask), 1e-4, 1e-5), (b, n, kept, scale)


def test_a_number_of_values_that_decides_and_that_no_graph_computes_is_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x * 2 if round(x.mean().item(), 1) == 0.3 else x  # decides

    with pytest.raises(
        CaptureFault, match="a number that depends on the values of a tensor is computed"
    ) as caught:
        anyshape.export(Net(function).eval(), (torch.randn(2, 6),))
    assert caught.value.where is not None and "# decides" in caught.value.where.text
    assert caught.value.hint == "Compute it with tensors: what is not read out of them stays in the graph."


def test_another_rank_for_other_values_is_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return x.sum(1) if bool(x.sum() > 0) else x

    with pytest.raises(
        CaptureFault, match="the model returns other tensors for other values: of another number or rank"
    ):
        anyshape.export(Net(function).eval(), (torch.randn(2, 6),))


def test_too_many_ways_by_values_are_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        for number in range(5):
            x = x.sin() if bool(x.sum() > number) else x.cos() * 2
        return x

    with pytest.raises(
        CaptureFault, match="the model takes more than 8 ways, depending on the values of its tensors"
    ):
        anyshape.export(Net(function).eval(), (torch.randn(2, 6),))


# --- Exploring --------------------------------------------------------------------------------------------


def test_decisions_behind_decisions_are_found(traces: Callable[..., Any]) -> None:
    def function(x: Tensor) -> Tensor:
        if x.shape[1] > 50:
            return x.sin() if x.shape[1] > 400 else x.cos()
        return x

    found = explored(traces(function, "b, n", 2, 6))
    assert {str(turn) for turn in found.found} == {"51 <= n", "401 <= n"}
    assert {row["n"] > 400 for row in found.rows} == {True, False}
    assert all(turn.where is not None and "x.shape[1]" in turn.where.text for turn in found.found)


# --- What is refused --------------------------------------------------------------------------------------


def forgiving(self: Any, x: Tensor) -> Tensor:
    try:
        return x * torch.ones(300)  # it fails, and nobody sees
    except RuntimeError:
        return x


def by_a_float(self: Any, x: Tensor) -> Tensor:
    return x * 2 if f"{x[0, 0].item():.0f}" == "25" else x  # a float that was read


def drawn(self: Any, x: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return x @ torch.randn(x.shape[1], 4, generator=generator)  # the same each time


def divisor(self: Any, x: Tensor) -> Tensor:
    return x - math.gcd(x.shape[1], 12) * (x.shape[1] % 7)  # no graph has it


@pytest.mark.parametrize(
    ("function", "told", "line"),
    [
        (
            forgiving,
            "an operator fails here, and the model goes on without it",
            "# it fails, and nobody sees",
        ),
        (by_a_float, "Python looks at the values of a tensor", "# a float that was read"),
        (drawn, "the model draws random numbers from a generator of its own", "# the same each time"),
        (divisor, "a number in the model changes with its inputs, as no expression of", "# no graph has it"),
    ],
)
def test_what_is_refused_with_its_line(function: Any, told: str, line: str, line_in: Any) -> None:
    with pytest.raises(CaptureFault, match=told) as caught:
        anyshape.export(Net(function).eval(), torch.randn(2, 5))
    assert caught.value.where is not None and caught.value.where.line == line_in(__file__, line)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ModuleList(nn.Linear(1, 2) for _ in range(5))

    def forward(self, which: Tensor, x: Tensor) -> Tensor:
        chosen: Tensor = self.all[int(which)](x[..., None])  # one of them
        return chosen


class Rounds(nn.Module):
    def forward(self, count: Tensor, x: Tensor) -> Tensor:
        for _ in range(int(count)):
            x = x * 2 + 1
        return x


def test_a_number_that_was_read_and_never_moved_is_no_constant(tmp_path: Any, line_in: Any) -> None:
    with pytest.raises(CaptureFault, match="with other values") as caught:
        anyshape.export(Experts(), (torch.tensor(1), torch.randn(2, 5)))
    assert caught.value.where is not None and caught.value.where.line == line_in(__file__, "# one of them")
    anyshape.export(Rounds(), (torch.tensor(1), torch.randn(2, 5)), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for count in (0, 1, 2, 7):
        x = torch.randn(3, 4)
        assert torch.allclose(torch.as_tensor(run(torch.tensor(count), x)), Rounds()(torch.tensor(count), x))


def test_the_global_generator_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    anyshape.export(nn.Dropout(0.5).eval(), torch.ones(2, 5))
    assert torch.equal(before, torch.get_rng_state())


def in_a_text(self: Any, x: Tensor) -> Tensor:
    return x * 2 if f"{x.shape[1]}".endswith("00") else x  # a text of a size


def among(self: Any, x: Tensor) -> Tensor:
    return x * 2 if np.isin(x.shape[1], [300, 7]) else x


def longest(self: Any, x: Tensor) -> Tensor:
    return x * 2 if np.array(x.shape).max() > 200 else x


def test_what_becomes_of_a_size_in_a_text_is_not_guessed(line_in: Any) -> None:
    with pytest.raises(CaptureFault, match="a size that it made a text of, or handed to numpy") as caught:
        anyshape.export(Net(in_a_text), torch.randn(2, 5))
    assert caught.value.where is not None and caught.value.where.line == line_in(
        __file__, "# a text of a size"
    )


@pytest.mark.parametrize("function", [among, longest])
def test_a_size_in_numpy_is_a_decision_by_the_numbers_beside_it(function: Any, tmp_path: Any) -> None:
    model = Net(function)
    anyshape.export(model, torch.randn(2, 5), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for size in (1, 6, 7, 200, 201, 299, 300, 301):
        x = torch.randn(2, size)
        assert torch.allclose(torch.as_tensor(run(x)), model(x)), size
