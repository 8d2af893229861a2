"""Sizes that watch themselves: ordinary integers that say how they came about, and what was decided by them."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch

from anyshape.capture.watched import Integer, Symbols, Watch, speaking, watching
from anyshape.dims import Expr


def watch(run, *shape):
    x = torch.randn(*shape)
    seen = Watch(Symbols(), {id(x): (x, tuple(Expr.of(f"d{k}") for k in range(len(shape))))})
    with watching(seen):
        result = run(x)
    return seen, result


def decisions(run, *shape):
    return [(str(decision.condition), decision.truth) for decision in watch(run, *shape)[0].decisions]


@pytest.mark.parametrize(
    ("run", "condition", "truth"),
    [
        (lambda x: x.shape[1] > 600, "d1 > 600", False),
        (lambda x: x.size(1) % 300 == 0, "(d1 % 300) == 0", False),
        (lambda x: x.size()[0] * x.shape[1] >= 9, "(d0*d1) >= 9", True),
        (lambda x: len(x) < 5, "d0 < 5", True),
        (lambda x: bool(x.shape[1] % 2), "(d1 % 2) != 0", False),
        (lambda x: x.numel() > 3, "((1*d0)*d1) > 3", True),
        (lambda x: math.sqrt(x.shape[1]) > 2, "sqrt(d1) > 2", True),
        (lambda x: (x.shape[1] * 0.5).is_integer(), "((d1*0.5) % 1) == 0", True),
        (lambda x: speaking(0.3) * x.shape[1] > 2, "(0.3*d1) > 2", False),
        (lambda x: Integer(x.shape[1] * 0.5) > 2, "int(d1*0.5) > 2", True),
        (lambda x: round(x.shape[1] / 4) == 2, "round(d1/4) == 2", True),
        (lambda x: x.shape[1] == 7, "d1 == 7", False),
        (lambda x: divmod(x.shape[1], 4)[1] != 0, "(d1 % 4) != 0", True),
    ],
)
def test_comparisons_are_decisions_with_their_condition(run, condition, truth):
    assert decisions(run, 2, 6) == [(condition, truth)]


def test_which_of_two_is_smaller_is_a_decision():
    assert decisions(lambda x: min(x.shape) > 1, 2, 6) == [("d0 <= d1", True), ("min(d0, d1) > 1", True)]


def test_a_decision_names_its_line():
    seen, _ = watch(lambda x: x.shape[1] > 600, 2, 6)
    assert seen.decisions[0].where is not None
    assert "x.shape[1] > 600" in seen.decisions[0].where.text


def test_sizes_of_tensors_in_between_have_names_of_their_own():
    seen, _ = watch(lambda x: torch.cat([x, x], 1).shape[1] > 5, 2, 6)
    (decision,) = seen.decisions
    (name,) = decision.condition.names
    assert seen.sizes[name] == 12


def test_they_compute_like_any_other_integer():
    def run(x):
        b, n = x.shape
        return [
            *(b + n, n - b, n * 2, n / 4, n // 4, n % 4, n**2, 2**n, -n, abs(-n), n << 1, n & 3),
            *(10 // n, 10 % n, 1.5 * n, n**-0.25, int(n), float(n), f"{n}", [0] * n, list(range(n))),
            *(hash(n), {n: 1}[6], n.bit_length(), divmod(n, 4)),
        ]

    plain = run(torch.randn(2, 6))
    _, made = watch(run, 2, 6)
    assert made == plain


def test_pytorch_takes_them_everywhere():
    def run(x):
        b, n = x.shape
        made = [
            x.view(b * n),
            x.reshape(n, b),
            x[:, : n // 2],
            torch.zeros(n, b),
            x.expand(3, b, n),
            x.new_ones(x.shape),
        ]
        made += [
            torch.nn.functional.pad(x, (0, n)),
            torch.nn.functional.interpolate(x[None], size=n),
            torch.arange(n),
            x.narrow(1, 0, n - 1),
            x.repeat(n, 1),
        ]
        return [tuple(map(int, item.shape)) for item in made]

    assert watch(run, 2, 6)[1] == run(torch.randn(2, 6))


def test_copies_are_plain():
    _, size = watch(lambda x: x.shape[1], 2, 6)
    assert type(copy.deepcopy(size)) is int
    assert type(pickle.loads(pickle.dumps(size))) is int


def test_nothing_is_left_behind():
    before = torch.Tensor.shape, torch.Tensor.size, min, len, math.sqrt
    watch(lambda x: x.shape, 2, 6)
    assert before == (torch.Tensor.shape, torch.Tensor.size, min, len, math.sqrt)
    assert type(torch.randn(2, 6).shape[1]) is int


def test_int_is_still_a_type():
    assert isinstance(3, Integer) and not isinstance("3", Integer) and Integer("12") == 12
    assert issubclass(bool, Integer) and (Integer == int)  # noqa: E721
