from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.dims import Expr, Relation
from anyshape.runtimes.onnx_runtime import RuntimeFailure
from anyshape.verify.reference import Expected, Reference
from anyshape.verify.sizes import Boundary, sizes_to_try
from anyshape.verify.verdict import Row, Verdict
from anyshape.verify.verify import check, verify

Found = Callable[..., Any]


class Pretend:
    """A runtime that computes with a function of arrays."""

    name = "Pretend"
    input_names = ("x",)
    output_names = ("y",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.fed: list[Mapping[str, Any]] = []

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        self.fed.append(feed)
        result = self.function(*feed.values())
        return list(result) if isinstance(result, tuple) else [result]


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Grows(nn.Module):
    def forward(self, x: Tensor, past: Tensor) -> Tensor:
        return torch.cat([past, x], 1)


class Picky(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 7:
            raise ValueError("not seven")
        return x * 2


class Counts(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"y": x * 2, "count": x.shape[0]}


@pytest.fixture(scope="module")
def doubles(found: Found) -> Reference:
    first = found(Doubles(), (torch.randn(3, 5),), shapes={"x": "batch, n"}, dims={"batch": "1..40"})
    return Reference(first.case, first.agreed)


def test_a_right_model_is_right_at_many_sizes(doubles: Reference) -> None:
    verdict = verify(Pretend(lambda x: x * 2), doubles)
    assert verdict.right and verdict.failures == ()
    assert len(verdict.tried) >= 30
    assert str(verdict).startswith(f"{len(verdict.tried)} sizes on Pretend, worst error ")


def test_boundaries_zero_one_and_larger_sizes_are_among_them(doubles: Reference) -> None:
    sizes = verify(Pretend(lambda x: x * 2), doubles).sizes
    assert {"batch": 3, "n": 5} in sizes
    assert {1, 40} <= {point["batch"] for point in sizes}
    assert {0, 1} <= {point["n"] for point in sizes}
    assert max(point["n"] for point in sizes) > 5 and all(1 <= point["batch"] <= 40 for point in sizes)


def test_the_example_is_tried_and_its_zero_does_not_hide_the_others(found: Found) -> None:
    shapes = {"x": "batch, new, 4", "past": "batch, past, 4"}
    made = found(Grows(), (torch.randn(3, 2, 4), torch.randn(3, 0, 4)), shapes=shapes)
    sizes = verify(Pretend(lambda x, past: x), Reference(made.case, made.agreed), names=("x", "past")).sizes
    assert sizes[0] == {"batch": 3, "new": 2, "past": 0}
    tried, _ = sizes_to_try(made.agreed, (), 0.0)
    assert any(point["batch"] == 0 and point["past"] > 1 for point in tried)


def test_each_dim_is_tried_alone_far_out_where_a_run_is_quick(doubles: Reference) -> None:
    rows, needed = sizes_to_try(doubles.agreed, (), 0.0)
    assert needed == 0 and {"batch": 2, "n": 263} in rows and {"batch": 2, "n": 1031} in rows
    assert max(row["batch"] for row in rows) == 40  # the contract ends there
    assert sum(row["n"] > 64 for row in rows) == 2
    slow, _ = sizes_to_try(doubles.agreed, (), 0.02)
    assert max(row["n"] for row in slow) < 263


def test_what_is_counted_in_8_bits_shows(doubles: Reference) -> None:
    verdict = verify(Pretend(lambda x: x * (2 if x.shape[1] < 256 else 3)), doubles)
    assert {row.sizes["n"] for row in verdict.failures} == {263, 1031}


def test_values_are_not_all_alike(doubles: Reference) -> None:
    runtime = Pretend(lambda x: x * 2)
    verify(runtime, doubles)
    assert all(np.unique(feed["x"]).size > 1 for feed in runtime.fed if feed["x"].size > 3)


def test_a_model_that_is_wrong_beyond_a_size(doubles: Reference) -> None:
    verdict = verify(Pretend(lambda x: x * 2 + (x.shape[1] > 8)), doubles)
    assert not verdict.right and all(row.sizes["n"] > 8 for row in verdict.failures)
    assert len(verdict.failures) == 3  # enough to know
    bad = verdict.failures[0]
    assert str(verdict) == f"wrong at {bad.sizes}: {bad.why}"
    assert "y is off by" in bad.why


def test_a_baked_shape_is_wrong(doubles: Reference) -> None:
    row = check(Pretend(lambda x: np.ones((3, 5), np.float32)), doubles, {"batch": 2, "n": 4})
    assert (row.outcome, row.why) == ("wrong", "y has shape [3, 5], expected [2, 4]")


def test_a_runtime_that_refuses_fails(doubles: Reference) -> None:
    def refuse(x: Any) -> Any:
        raise RuntimeFailure("Reshape: no")

    row = check(Pretend(refuse), doubles, {"batch": 2, "n": 4})
    assert (row.outcome, row.why) == ("fails", "Pretend: Reshape: no")


def test_another_number_of_outputs_is_wrong(doubles: Reference) -> None:
    row = check(Pretend(lambda x: (x * 2, x)), doubles, {"batch": 2, "n": 4})
    assert (row.outcome, row.why) == ("wrong", "2 outputs, expected 1")


def test_sizes_that_pytorch_refuses_say_nothing(found: Found) -> None:
    first = found(Picky(), (torch.randn(3, 5),), shapes={"x": "batch, n"}, dims={"n": "6..8"})
    reference = Reference(first.case, first.agreed)
    row = check(Pretend(lambda x: x), reference, {"batch": 2, "n": 7})
    assert (row.outcome, row.why) == ("refused", "ValueError: not seven")
    verdict = verify(Pretend(lambda x: x * 2), reference)
    assert verdict.right and 7 not in {point["n"] for point in verdict.sizes}


def test_nothing_tried_is_not_right() -> None:
    assert not Verdict("Pretend", ()).right
    assert not Verdict("Pretend", (Row({"n": 7}, "refused"),)).right


def test_a_python_value_that_depends_on_sizes_is_wrong(found: Found) -> None:
    first = found(Counts(), (torch.randn(3, 5),))
    reference = Reference(first.case, first.agreed)
    sizes = {dim.name: 4 for dim in first.contract.dims}
    row = check(Pretend(lambda x: x * 2), reference, sizes)
    assert row.outcome == "wrong"
    assert row.why == "the result holds a Python value that depends on the sizes: 3, then 4"


def test_other_input_names_and_one_that_was_dropped(found: Found) -> None:
    class First(nn.Module):
        def forward(self, x: Tensor, unused: Tensor) -> Tensor:
            return x * 2

    first = found(First(), (torch.randn(3), torch.randn(2)), shapes={"x": "n", "unused": "m"})
    runtime = Pretend(lambda x: x * 2)
    row = check(runtime, Reference(first.case, first.agreed), {"n": 4, "m": 3}, ["renamed", None])  # type: ignore[list-item]
    assert row.outcome == "right" and list(runtime.fed[0]) == ["renamed"]


def test_the_users_own_inputs_are_used(found: Found) -> None:
    import dataclasses

    first = found(Doubles(), (torch.randn(3, 5),), shapes={"x": "batch, n"})
    made = dataclasses.replace(
        first.case, make_inputs=lambda sizes: ((torch.full((sizes["batch"], sizes["n"]), 7.0),), {})
    )
    runtime = Pretend(lambda x: x * 2)
    assert verify(runtime, Reference(made, first.agreed), count=5).right
    assert all((feed["x"] == 7).all() for feed in runtime.fed)


def test_the_tolerance_follows_the_models_own_error(found: Found) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 5))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.weight).exp().sum(-1)

    first = found(Deep(), (torch.randn(3, 5),))
    reference = Reference(first.case, first.agreed)
    found_at = reference.at({"batch": 4})
    assert isinstance(found_at, Expected)
    outputs, exact = found_at.outputs, found_at.exact
    assert exact is not None and exact[0].dtype == torch.float64
    near = outputs.tensors[0].numpy() * (1 + 1e-6)
    far = outputs.tensors[0].numpy() * (1 + 1e-3)
    assert check(Pretend(lambda x: near), reference, {"batch": 4}).outcome == "right"
    assert check(Pretend(lambda x: far), reference, {"batch": 4}).outcome == "wrong"


def test_a_model_that_insists_on_float32_is_still_verified(found: Found) -> None:
    class Insists(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert x.dtype == torch.float32
            return x * 2

    first = found(Insists(), (torch.randn(3, 5),))
    assert verify(Pretend(lambda x: x * 2), Reference(first.case, first.agreed), count=6).right


def test_the_example_is_used_as_it_is(doubles: Reference) -> None:
    (tensor,) = doubles.tensors({"batch": 3, "n": 5})
    assert torch.equal(tensor, doubles.case.inputs[0].example)


def test_json(doubles: Reference) -> None:
    verdict = verify(Pretend(lambda x: x * 2), doubles, count=5)
    data = json.loads(json.dumps(verdict.to_json()))
    assert data["right"] is True and data["runtime"] == "Pretend"
    assert [row["sizes"] for row in data["rows"]] == [row.sizes for row in verdict.rows]
    assert data["sampled"] == [f"the outputs agree with PyTorch at {len(verdict.tried)} sizes"]


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 37:  # far from the example
            return x * 3
        return x * 2


@pytest.fixture(scope="module")
def branch(lowered: Callable[..., Any]) -> Any:
    return lowered(Branch(), (torch.randn(3, 5),), shapes={"x": "batch, n"})


def test_both_sides_of_an_open_guard_are_tried(branch: Any) -> None:
    rows, needed = sizes_to_try(branch.agreed, branch.program.open_guards, 0.0)
    tried = {sizes["n"] for sizes in rows[:needed]}
    assert {37, 38} <= tried


def test_an_open_guard_is_said_to_be_sampled_with_its_line(
    branch: Any, line_in: Callable[[str, str], int]
) -> None:
    verdict = verify(
        Pretend(lambda x: x * (3 if x.shape[1] > 37 else 2)),
        Reference(branch.case, branch.agreed),
        branch.program.guards,
    )
    assert verdict.right and verdict.proved == ()
    line = line_in(__file__, "# far from the example")
    assert any("n" in text and f"test_verify.py:{line}" in text for text in verdict.sampled)


def test_what_is_proved_is_said(lowered: Callable[..., Any]) -> None:
    class Needs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] < 2:
                return x
            return x * 2

    made = lowered(Needs(), (torch.randn(3, 5),), shapes={"x": "batch, n"}, dims={"n": ">=2", "batch": ">=1"})
    doubled, reference, guards = (
        Pretend(lambda x: x * 2),
        Reference(made.case, made.agreed),
        made.program.guards,
    )
    verdict = verify(doubled, reference, guards, proved=made.program.proved, count=5)
    assert len(verdict.proved) == 1 and "holds at every size of the contract" in verdict.proved[0]
    assert verify(doubled, reference, count=5).proved == ()  # a graph that no trace vouches for


def test_progress_is_told(doubles: Reference) -> None:
    told: list[str] = []
    verify(Pretend(lambda x: x * 2), doubles, count=4, progress=told.append)
    assert told[0].startswith("1 of ") and told[0].endswith(" sizes")


def test_no_time_still_tries_a_few(doubles: Reference) -> None:
    assert 8 <= len(verify(Pretend(lambda x: x * 2), doubles, budget=0.0).rows) < 30


def test_further_examples_are_tried_with_their_own_values() -> None:
    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(0)

    made = anyshape.export(Looks(), torch.randn(3), examples=[torch.randn(11)])
    assert made.verdict.rows[0].sizes == {"batch": 11}
    assert made.verdict.right


def test_a_further_example_outside_what_was_declared() -> None:
    with pytest.raises(
        anyshape.UsageError, match="example 2 does not fit the contract: n is 11, outside 1 ≤ n ≤ 9"
    ):
        anyshape.export(
            nn.ReLU(), torch.randn(3), shapes={"input": "n"}, dims={"n": "1..9"}, examples=[torch.randn(11)]
        )


def test_a_result_of_too_many_numbers_is_not_run(doubles: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("anyshape.verify.verify")
    monkeypatch.setattr(module, "MOST_RESULTS", 10)
    sizes = dict.fromkeys(doubles.agreed.generic, 60)
    row = check(Pretend(lambda x: x * 2), doubles, sizes)  # type: ignore[arg-type]
    assert row.outcome == "not run" and row.why == "the result has too many numbers to be compared here"


def test_what_decides_is_tried_well_beyond_the_usual(found: Found) -> None:
    class Halved(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.shape[1] > 9 else x

    made = found(Halved(), torch.randn(2, 6))
    (name,) = [dim.name for dim in made.agreed.contract.dims if dim.example == 6]
    condition = Boundary(Relation(Expr.of(name), "<=", Expr.of(9)))
    slow, _ = sizes_to_try(made.agreed, (condition,), 0.05)
    assert any(row[name] > 20 for row in slow)
    slower, _ = sizes_to_try(made.agreed, (condition,), 5.0)
    assert all(row[name] <= 20 for row in slower)
