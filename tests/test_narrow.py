from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn

from anyshape.capture.program import Program, guard
from anyshape.contract.agree import Agreed
from anyshape.dims import Expr
from anyshape.errors import SourceLine
from anyshape.ladder.narrow import narrowed, without_smallest
from anyshape.verify.verdict import Row, Verdict


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.fixture(scope="module")
def undeclared(found: Callable[..., Any]) -> Agreed:
    """x [batch, x_1], both from 0 on."""
    made: Agreed = found(Doubled(), torch.randn(2, 6)).agreed
    return made


@pytest.fixture(scope="module")
def declared(found: Callable[..., Any]) -> Agreed:
    made: Agreed = found(
        Doubled(), torch.randn(2, 6), shapes={"x": "batch, x_1"}, dims={"batch": ">=0", "x_1": ">=0"}
    ).agreed
    return made


def verdict(right: list[tuple[int, int]], wrong: list[tuple[int, int]]) -> Verdict:
    rows = [Row({"batch": b, "x_1": n}, "right") for b, n in right]
    return Verdict("Fake", (*rows, *(Row({"batch": b, "x_1": n}, "wrong", why="off") for b, n in wrong)))


def program(agreed: Agreed, condition: Callable[[Any], Any] | None = None, name: str = "x_1") -> Program:
    symbol = sympy.Symbol("s0", integer=True)
    guards = ()
    if condition is not None:
        guards = (
            guard(condition(symbol), {symbol: Expr.of(name)}, SourceLine("net.py", 7), agreed.contract),
        )
    return Program(None, "symbolic", (), guards)  # type: ignore[arg-type]


def test_sizes_of_zero_are_left_out_and_told(undeclared: Agreed) -> None:
    made = without_smallest(undeclared, verdict([(2, 6)], [(0, 6), (0, 3)]), 0)
    assert made is not None
    agreed, relations = made
    assert agreed.contract.dim("batch").range.minimum == 1
    assert agreed.contract.dim("x_1").range.minimum == 0
    assert agreed.contract.notes[-1].startswith("batch = 0 is left out")
    assert [str(relation) for relation in relations] == ["1 <= batch"]


def test_the_dim_that_fails_alone_is_the_one(undeclared: Agreed) -> None:
    made = without_smallest(undeclared, verdict([], [(0, 0), (3, 0)]), 0)
    assert made is not None
    assert [dim.range.minimum for dim in made[0].contract.dims] == [0, 1]


def test_a_failure_elsewhere_keeps_the_contract(undeclared: Agreed) -> None:
    assert without_smallest(undeclared, verdict([], [(0, 6), (5, 7)]), 0) is None


def test_a_declared_range_is_never_narrowed(declared: Agreed) -> None:
    failing = verdict([(2, 6)], [(0, 6)])
    assert without_smallest(declared, failing, 0) is None
    beyond = verdict([(2, 6)], [(2, 9)])
    assert narrowed(declared, program(declared, lambda s: s <= 8), beyond) is None


def test_the_generic_sizes_stay_inside(undeclared: Agreed) -> None:
    made = without_smallest(undeclared, verdict([], [(0, 6)]), 0)
    assert made is not None and made[0].contract.allows(made[0].generic)


def test_a_guard_becomes_part_of_the_contract(undeclared: Agreed) -> None:
    failing = verdict([(2, 6), (2, 8)], [(2, 9), (5, 40)])
    made = narrowed(undeclared, program(undeclared, lambda s: s <= 8), failing)
    assert made is not None
    agreed, relations = made
    assert [str(relation) for relation in relations] == ["x_1 <= 8"]
    assert agreed.contract.relations == tuple(relations)
    assert agreed.contract.allows({"batch": 2, "x_1": 8}) and not agreed.contract.allows(
        {"batch": 2, "x_1": 9}
    )
    assert "narrowed to x_1 <= 8 (net.py:7)" in agreed.contract.notes[-1]


def test_a_guard_that_fixes_a_size_is_no_range(undeclared: Agreed) -> None:
    failing = verdict([(2, 6)], [(2, 5), (2, 9)])
    assert narrowed(undeclared, program(undeclared, lambda s: sympy.Eq(s, 6)), failing) is None


def test_a_guard_that_the_example_breaks_does_not_serve(undeclared: Agreed) -> None:
    failing = verdict([(2, 20)], [(2, 6), (2, 4)])
    made = narrowed(undeclared, program(undeclared, lambda s: s >= 9), failing)
    assert made is None or not made[0].contract.relations


def test_a_guard_that_a_failure_keeps_is_not_to_blame(undeclared: Agreed) -> None:
    failing = verdict([(2, 6)], [(2, 9), (2, 7)])
    assert narrowed(undeclared, program(undeclared, lambda s: s <= 8), failing) is None


def test_a_size_of_one_is_the_last_resort(undeclared: Agreed) -> None:
    first = without_smallest(undeclared, verdict([], [(0, 6)]), 0)
    assert first is not None
    made = narrowed(first[0], program(first[0]), verdict([(2, 6)], [(1, 6), (1, 3)]))
    assert made is not None and made[0].contract.dim("batch").range.minimum == 2
    assert made[0].contract.allows(made[0].contract.example)
