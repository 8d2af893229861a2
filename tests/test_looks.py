"""Looks: where a size is taken as a plain value, all of them in one trace, and on every way through the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from anyshape.capture import Traces
from anyshape.capture.looks.all_ways import looks_on_all_ways
from anyshape.capture.looks.one_way import Look, looks_at
from anyshape.capture.tape.steps import Read

TracesOf = Callable[..., Traces]
ROWS = [{"b": b, "n": n} for b, n in ((3, 6), (3, 7), (5, 9), (4, 17), (2, 24))]


def several(x: Tensor) -> Tensor:
    kept = int(x.shape[1] * 0.5)
    y = x[:, :kept] + torch.zeros(kept)
    if x.shape[1] > 8:
        y = y.cumsum(1)
    return y.repeat(1, int(x.shape[0]))


def numbers(looks: tuple[Look, ...]) -> list[tuple[str, Any]]:
    return [(look.text(ROWS), look.seen) for look in looks]


def test_nothing_is_fixed_so_that_all_are_seen(traces: TracesOf) -> None:
    case = traces(several)
    seen = looks_at(case.case, case.agreed, {"b": 3, "n": 6})
    assert seen.ended is None
    assert numbers(seen.found) == [("n//2", 3), ("8 < n", False), ("b", 3)]
    half, branch, rows = seen.found
    assert (half.is_branch, branch.is_branch) == (False, True)
    assert (half.names, half.at({"b": 1, "n": 11})) == ({"n"}, 5)
    assert branch.at({"b": 1, "n": 9}) is True
    assert half.where.line + 2 == branch.where.line == rows.where.line - 2


def test_what_the_contract_decides_is_no_look(traces: TracesOf) -> None:
    def checked(x: Tensor) -> Tensor:
        return x.cumsum(1) if x.shape[1] < 64 else x

    case = traces(checked, dims={"n": "1..32"})
    assert looks_at(case.case, case.agreed, {"b": 3, "n": 6}).found == ()


def test_the_shape_environment_is_put_back(traces: TracesOf) -> None:
    before = ShapeEnv.evaluate_expr, ShapeEnv.guard_or_defer_runtime_assert

    def refused(x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            raise ValueError("not like this")
        return x * 2

    case = traces(refused)
    seen = looks_at(case.case, case.agreed, case.agreed.generic)
    assert seen.ended is not None and "not like this" in seen.ended.what
    assert (ShapeEnv.evaluate_expr, ShapeEnv.guard_or_defer_runtime_assert) == before


def test_values_are_answered_by_what_a_run_read(traces: TracesOf) -> None:
    def reading(x: Tensor) -> Tensor:
        if bool((x > 0).all()):
            return x
        return x * int(x.shape[1] * 0.5)

    case = traces(reading)
    sizes = {"b": 3, "n": 6}
    assert looks_at(case.case, case.agreed, sizes).ended is not None
    reads = case.at(sizes).reads
    assert [type(read) for read in reads] == [Read]
    seen = looks_at(case.case, case.agreed, sizes, reads)
    assert (seen.ended, numbers(seen.found)) == (None, [("n//2", 3)])


def test_the_trail_goes_beyond_branches(traces: TracesOf) -> None:
    def inside(x: Tensor) -> Tensor:
        if x.shape[1] > 20:
            if x.shape[1] > 40:
                return x.repeat(1, int(x.shape[0]))
            return x.cumsum(1)
        return x * 2

    ways = looks_on_all_ways(traces(inside))
    assert ways.ended is None
    texts = {look.text(ROWS) for looks in ways.by_line().values() for look in looks}
    assert texts == {"20 < n", "40 < n", "b"}
    reached = ways.lines_of_example()
    assert reached is not None and len(reached) == 1


def test_an_example_whose_sizes_are_alike(traces: TracesOf) -> None:
    ways = looks_on_all_ways(traces(several, "b, n", 4, 4))
    assert ways.example == {"b": 4, "n": 4}
    assert {look.text(ROWS) for looks in ways.by_line().values() for look in looks} == {"n//2", "8 < n", "b"}


def test_a_number_that_is_read_as_an_expression_of_sizes(traces: TracesOf) -> None:
    def counting(x: Tensor) -> Tensor:
        return x.reshape(int((x == x).sum()))

    case = traces(counting)
    ways = looks_on_all_ways(case)
    for row in ROWS:
        case.at(row)
    assert [ways.read_as(read) for read in ways.reads] == ["b*n"]
