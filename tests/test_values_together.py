"""Looks at values: what hangs on them, where they are asked, and what of them is in the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import CaptureFault

Tensors = tuple[Tensor, ...]
YES, NO = torch.tensor(True), torch.tensor(False)


class Net(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("one", torch.randn(4))
        self.register_buffer("two", torch.randn(4))

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(self, *tensors)


def agree(function: Callable[..., Any], example: Tensors, others: Sequence[Tensors], folder: Path) -> None:
    net = Net(function).eval()
    anyshape.export(net, example, folder / "m.onnx")
    run = anyshape.load(folder / "m.onnx")
    for tensors in (example, *others):
        with torch.no_grad():
            wanted = net(*tensors)
        got = torch.as_tensor(np.asarray(run(*tensors)))
        assert got.shape == wanted.shape, tensors
        assert torch.allclose(got, wanted, 1e-4, 1e-5, equal_nan=True), tensors


def by_task(self: Any, x: Tensor, task: Tensor) -> Tensor:
    for number, layer in enumerate((self.a, self.b, self.c)):
        if task == number:
            return layer(x)  # type: ignore[no-any-return]
    return x


def by_mean(self: Any, x: Tensor) -> Tensor:
    mean = x.mean()
    layer = self.a if mean > 100 else self.b if mean > 5 else self.c
    return layer(x)  # type: ignore[no-any-return]


X = torch.randn(3, 4)
CHOSEN: dict[str, tuple[Callable[..., Any], Tensors, list[Tensors]]] = {
    "a layer": (by_task, (X, torch.tensor(1)), [(X, torch.tensor(k)) for k in range(4)]),
    "a layer by a mean": (by_mean, (X,), [(X + 10,), (X + 200,)]),
    "a buffer": (lambda self, x, flag: x + (self.one if flag else self.two), (X, YES), [(X, NO)]),
    "an input": (lambda self, x, y, flag: (x if flag else y) * 2, (X, X + 1, YES), [(X, X + 1, NO)]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_values_choose_among_tensors_of_one_shape(name: str, tmp_path: Path) -> None:
    agree(*CHOSEN[name], tmp_path)


def below(self: Any, x: Tensor) -> Tensor:
    if x.shape[1] > 3:
        return x * 2
    return x * 3 if x.min() < -50 else x * 5


def above(self: Any, x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 4 and x.max() > 20 else x + 1


@pytest.mark.parametrize("example", [torch.randn(2, 5), torch.randn(2, 2), torch.randn(7, 5)])
@pytest.mark.parametrize("function", [below, above])
def test_a_look_on_one_side_of_a_decision_on_sizes(function: Any, example: Tensor, tmp_path: Path) -> None:
    shapes = [(2, 3), (2, 2), (2, 9), (4, 5), (5, 4), (9, 3)]
    agree(function, (example,), [(torch.randn(s) * k,) for s in shapes for k in (1, 1000)], tmp_path)


def of_the_last(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    if x.shape[1] > 32:
        mask = mask[:, -32:]
    return x if mask.all() else x - 1


def of_the_first(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    return x - 1 if mask[:, :32].any() else x


@pytest.mark.parametrize("function", [of_the_last, of_the_first])
def test_a_look_at_what_is_cut_off_at_other_sizes(function: Any, tmp_path: Path) -> None:
    half = torch.cat([torch.zeros(2, 45), torch.ones(2, 45)], 1).bool()
    x = torch.randn(2, 90)
    none = torch.zeros(2, 5).bool()
    agree(function, (X[:2, :4], torch.ones(2, 4).bool()), [(x, half), (x, ~half), (x[:, :5], none)], tmp_path)


def test_a_number_that_is_cut_at_another(tmp_path: Path) -> None:
    def function(self: Any, x: Tensor, lengths: Tensor) -> Tensor:
        return x[:, : min(int(lengths.max()), 8)]

    others = [(torch.randn(2, 60), torch.tensor(lengths)) for lengths in ([9, 20], [50, 2], [5, 2])]
    agree(function, (torch.randn(2, 6), torch.tensor([2, 4])), others, tmp_path)


def test_a_slice_up_to_a_tensor(tmp_path: Path) -> None:
    def function(self: Any, x: Tensor, mask: Tensor) -> Tensor:
        return x[:, : mask.sum(-1).max()]

    rows = [torch.arange(7).expand(3, 7) < kept for kept in (0, 1, 6, 7)]
    agree(
        function,
        (torch.randn(3, 7), torch.ones(3, 7).bool()),
        [(torch.randn(3, 7), m) for m in rows],
        tmp_path,
    )


@pytest.mark.parametrize(
    "function",
    [lambda self, x: (x * 2, bool((x > 0).any())), lambda self, x: (x * 2, x.nonzero().shape[0] > 0)],
    ids=["a truth", "a count"],
)
def test_a_python_value_of_values_in_the_result_is_refused(function: Any) -> None:
    with pytest.raises(
        CaptureFault, match="the result holds a Python value that depends on the values"
    ) as caught:
        anyshape.export(Net(function).eval(), torch.randn(3, 4))
    assert caught.value.where is not None
    assert caught.value.hint == "Return the tensor itself, not what Python reads out of it."


REDUCED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda t: t.sum(-1),
    "sum of all": lambda t: t.sum(),
    "sum of rows": lambda t: t.sum(0),
    "mean": lambda t: t.mean(-1),
    "max": lambda t: t.max(-1)[0],
    "amax": lambda t: t.amax(-1),
    "argmax": lambda t: t.argmax(-1),
    "norm": lambda t: t.norm(dim=-1),
    "prod": lambda t: t.prod(-1, keepdim=True),
    "any": lambda t: (t > 0).any(-1),
    "all": lambda t: (t > 0).all(),
    "logsumexp": lambda t: t.logsumexp(-1),
}


@pytest.mark.parametrize("name", REDUCED)
def test_a_reduction_of_what_values_leave_empty(name: str, tmp_path: Path) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return REDUCED[name](x[x[:, 0] > 0])

    agree(function, (torch.randn(4, 3),), [(-torch.ones(2, 3),), (torch.randn(20, 3),)], tmp_path)


def test_experts_without_tokens_are_skipped_to_save_time(tmp_path: Path) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        chosen, made = self.a(x).argmax(-1) % 3, torch.zeros_like(x)
        for number, expert in enumerate((self.a, self.b, self.c)):
            tokens = (chosen == number).nonzero().squeeze(-1)
            if tokens.numel() == 0:
                continue
            made[tokens] = expert(x[tokens])
        return made

    agree(function, (torch.randn(9, 4),), [(torch.randn(rows, 4) * 9,) for rows in (1, 2, 30)], tmp_path)


def test_a_number_of_values_that_is_the_same_on_one_side_of_a_decision(tmp_path: Path) -> None:
    def function(self: Any, x: Tensor, mask: Tensor) -> Tensor:
        longest = int(mask.sum(-1).max())
        made = x[:, : max(1, int(longest * 0.6))]
        return made * 2 if x.shape[1] in (4, 8) else made

    masks = [torch.arange(8).expand(4, 8) < kept for kept in (1, 3, 5, 6, 8)]
    others = [(torch.randn(4, 8), mask) for mask in masks]
    agree(function, (torch.randn(4, 7), torch.ones(4, 7).bool()), others, tmp_path)


OF_A_NUMBER: dict[str, Callable[[Tensor, int], Any]] = {
    "without its sign": lambda x, k: x * abs(k) + k,
    "up to it": lambda x, k: (x[: abs(k)], x[:k]),
    "at most five": lambda x, k: (x[: min(k, 5)], x + k),
    "at least one": lambda x, k: (torch.zeros(max(k, 1)), x[:k]),
    "from the end": lambda x, k: (x[: x.shape[0] - k], x[max(0, x.shape[0] - k) :]),
    "halves": lambda x, k: (x[int(k * 0.5) :], x[k // 2 :], x[int(k / 2) :]),
    "a place": lambda x, k: x.narrow(0, k, 1),
}


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_what_is_computed_from_a_number_of_values_is_told_from_it(name: str) -> None:
    """All of them are alike for the few numbers that most inputs hold."""

    class Of(nn.Module):
        def forward(self, x: Tensor, k: Tensor) -> Any:
            return OF_A_NUMBER[name](x, int(k))

    anyshape.export(Of(), (torch.randn(5, 4), torch.tensor(2)), "model.onnx")
    run, tried = anyshape.load("model.onnx"), 0
    for size, number in itertools.product((4, 7), (-3, -1, 0, 1, 3, 6, 9)):
        x, k = torch.randn(size, 4), torch.tensor(number)
        try:
            wanted = Of()(x, k)
        except (RuntimeError, IndexError):
            continue
        torch.testing.assert_close(run(x, k), wanted)
        tried += 1
    assert tried > 5


def test_a_question_in_a_narrow_region_follows_every_size(tmp_path: Path) -> None:
    class Asks(nn.Module):
        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            x = (x / x.shape[1]).flatten(0, 1)
            if x.shape[0] < 11:
                x = torch.cat([x, x], 0)
            return x / x.norm() if x.norm() > 3 else x

    path = str(tmp_path / "model.onnx")
    anyshape.export(Asks(), (torch.randn(2, 16, 4), torch.zeros(2, 16, dtype=torch.long)), path)
    run = anyshape.load(path)
    for seq in (1, 3, 5, 6, 9):
        for scale in (0.3, 1.0, 3.0, 9.0):
            x, ids = torch.randn(2, seq, 4) * scale, torch.zeros(2, 16, dtype=torch.long)
            torch.testing.assert_close(run(x, ids), Asks()(x, ids))


def _at_most_ten(x: Tensor, c: Tensor) -> Tensor:
    k = int(c[0])
    if k > 10:
        k = 10
    return x * 2 if k >= 2 else x + 1


def _one_or_three(x: Tensor, c: Tensor) -> Tensor:
    k, j = c.tolist()
    limit = k if k > 1 else 3
    return x + 1 if j < limit else x * 2


def _by_what_is_not_nothing(x: Tensor, c: Tensor) -> Tensor:
    largest = x.max().item()
    return x / (1.0 if largest == 0 else largest) + c[0] * 0


ASKED_IN_VAIN: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], list[int]]] = {
    "the first changes the second": (_at_most_ten, [13, 0]),
    "by two numbers": (_one_or_three, [13, 17]),
    "another number by chance": (_by_what_is_not_nothing, [0, 0]),
    "one either way": (lambda x, c: x * (1 if int(c[0]) <= 0 else int(c[0])), [1, 0]),
    "three either way": (lambda x, c: x * (int(c[0]) if x.sum().item() > 0 else 3), [3, 0]),
    "an even sum": (lambda x, c: x * ((int(c[0]) + int(c[1])) % 2), [13, 17]),
    "a size by chance": (lambda x, c: x * (x.shape[0] if x.sum().item() > int(c[0]) else 5), [1, 0]),
}


@pytest.mark.parametrize("name", ASKED_IN_VAIN)
def test_a_question_whose_answer_makes_no_difference_at_the_example(name: str) -> None:
    """Nor for most other values: it does where the numbers are others."""
    function, example = ASKED_IN_VAIN[name]

    class Asks(nn.Module):
        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            return function(x, c)

    x = torch.rand(5, 3)
    anyshape.export(Asks(), (x / x.max(), torch.tensor(example)), "model.onnx")
    run = anyshape.load("model.onnx")
    for one, two, scale in itertools.product((-1, 0, 1, 2, 5, 11), (-1, 2, 18), (1.0, -1.0, 0.0)):
        given = torch.rand(4, 3) * scale, torch.tensor([one, two])
        torch.testing.assert_close(run(*given), function(*given))
