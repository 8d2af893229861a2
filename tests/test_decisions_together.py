"""Decisions that are made only where others went a certain way, and sizes that Python compares unseen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.dims import Range
from anyshape.dims.turns import searched

Asked = Callable[[Tensor, int, int], Any]


class Net(nn.Module):
    """Doubles its input where something is true of the sizes."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked

    def forward(self, x: Tensor) -> Tensor:
        b, n = x.shape
        return x * 2 if self.asked(x, b, n) else x + 1


def agree(asked: Asked, sizes: Sequence[tuple[int, int]], tmp_path: Any) -> None:
    net = Net(asked)
    anyshape.export(net, torch.randn(2, 6), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for shape in sizes:
        x = torch.randn(*shape)
        assert torch.allclose(torch.as_tensor(run(x)), net(x)), shape


LONG = [
    (2, n)
    for n in (*range(1, 120), 150, 200, 201, 207, 223, 224, 225, 256, 299, 300, 301, 309, 310, 311, 336)
]
TOGETHER: dict[str, Asked] = {
    "a rest, then far": lambda x, b, n: n % 32 == 0 and n > 200,
    "far, then a rest": lambda x, b, n: n > 200 and n % 50 == 7,
    "two rests": lambda x, b, n: n % 6 == 0 and n % 4 == 0 and n > 60,
    "one of two rests": lambda x, b, n: n % 10 in (3, 7) and n > 155,
    "squares": lambda x, b, n: math.isqrt(n) ** 2 == n and n > 150,
    "bits": lambda x, b, n: (n & 1 and n > 33) or (n >> 3) & 1,
    "of a letter": lambda x, b, n: "abcd"[n % 4] == "c" and n > 99,
    "every other one": lambda x, b, n: x[:, ::2].shape[1] % 16 == 0 and x[:, ::2].shape[1] > 40,
    "a quotient": lambda x, b, n: round(n / 7) == 12,
    "of a stride": lambda x, b, n: x[:, ::3].shape[1] == 30,
    "both of divmod": lambda x, b, n: divmod(n, 40) == (2, 5),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_a_decision_behind_others(name: str, tmp_path: Any) -> None:
    agree(TOGETHER[name], LONG, tmp_path)


@pytest.mark.parametrize(
    "asked",
    [
        lambda x, b, n: n >= 2 * b and n <= 3 * b and n > 30,
        lambda x, b, n: (n % 7 == 3 and b % 5 == 4) or ((b + n) % 11 == 0 and n > b * 3),
        lambda x, b, n: b == n and n > 40,
        lambda x, b, n: [n, b] < [50, 50] and n % 5 == 0,
    ],
    ids=["lines", "rests", "a square", "lists"],
)
def test_decisions_on_two_dims(asked: Asked, tmp_path: Any) -> None:
    sizes = [(b, n) for b in (1, 2, 4, 9, 11, 14, 41, 50) for n in (*range(1, 56), 73, 80)]
    agree(asked, sizes, tmp_path)


UNSEEN: dict[str, Asked] = {
    "a sum of ones": lambda x, b, n: 300 < torch.ones(n).sum() < 310,
    "a tensor": lambda x, b, n: torch.tensor(n) > 300 and torch.tensor(n) < 310,
    "pieces": lambda x, b, n: 300 < len(x.unbind(1)) < 310,
    "counted": lambda x, b, n: 300 < sum(1 for _ in range(n)) < 310,
    "a list": lambda x, b, n: 300 < len([0] * n) < 310,
    "the last of a range": lambda x, b, n: range(n)[-1] == 99,
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_size_that_is_compared_unseen_with_a_number_of_the_source(name: str, tmp_path: Any) -> None:
    agree(UNSEEN[name], LONG, tmp_path)


def test_an_integer_read_out_of_a_tensor_of_sizes(tmp_path: Any) -> None:
    agree(lambda x, b, n: int((torch.arange(n) % 3 == 0).sum()) % 20 == 7, LONG, tmp_path)


@pytest.mark.parametrize(
    "number",
    [lambda b, n: int(math.log10(n + 1)), lambda b, n: statistics.mean([b, n])],
    ids=["log10", "mean"],
)
def test_a_number_as_python_has_it(number: Callable[[int, int], float], tmp_path: Any) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * float(number(*x.shape))

    net = Scaled()
    anyshape.export(net, torch.randn(2, 6), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for n in (1, 8, 9, 98, 99, 100, 998, 999, 1000):
        x = torch.randn(2, n)
        assert torch.allclose(torch.as_tensor(run(x)), net(x)), n


class Condition:
    """What `searched` is asked about."""

    names, period = frozenset({"n"}), 0

    def holds(self, sizes: Any) -> bool:
        return bool(sizes["n"] > 200)


def test_sizes_are_solved_for_together() -> None:
    ranges = {"b": Range(0, None), "n": Range(0, None)}
    base = {"b": 2, "n": 32}
    rows = searched(Condition(), base, ranges, lambda row: row["n"] > 200 and row["n"] % 32 == 0)
    assert next(rows) == ("n", {"b": 2, "n": 224})
    beside = searched(Condition(), base, ranges, lambda row: row["n"] > 200 and row["b"] * 3 == row["n"])
    name, row = next(beside)
    assert name == "n" and row["b"] * 3 == row["n"] > 200
