"""A runtime of plain functions stands in for ONNX Runtime: it is wrong where the test wants it to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn

from anyshape.blame.fault import fault_of, shrunk_failure
from anyshape.capture.program import Guard, guard
from anyshape.contract.contract import Contract
from anyshape.dims import Expr
from anyshape.errors import SourceLine
from anyshape.runtimes.onnx_runtime import RuntimeFailure
from anyshape.verify.reference import Reference
from anyshape.verify.verdict import Verdict
from anyshape.verify.verify import verify


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Fake:
    """A runtime whose model doubles its input, but is wrong where ``wrong(shape)`` says so."""

    name = "Fake"
    input_names = ["x"]  # noqa: RUF012
    output_names = ["y"]  # noqa: RUF012

    def __init__(self, wrong: Callable[..., bool], *, refuses: bool = False) -> None:
        self.wrong, self.refuses = wrong, refuses

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        if not self.wrong(*feed["x"].shape):
            return [feed["x"] * 2]
        if self.refuses:
            raise RuntimeFailure("no such kernel")
        return [feed["x"] * 3]


@pytest.fixture(scope="module")
def reference(found: Callable[..., Any]) -> Reference:
    made = found(
        Doubled(), torch.randn(2, 6), shapes={"x": "batch, seq"}, dims={"batch": ">=1", "seq": ">=1"}
    )
    return Reference(made.case, made.agreed)


def shrunk(reference: Reference, runtime: Fake) -> str:
    return str(shrunk_failure(verify(runtime, reference), runtime, reference)[0])


def size_guard(
    contract: Contract, condition: Callable[[Any], Any], name: str, where: SourceLine | None
) -> Guard:
    symbol = sympy.Symbol("s0", integer=True)
    return guard(condition(symbol), {symbol: Expr.of(name)}, where, contract)


def test_the_smallest_failing_size_is_found(reference: Reference) -> None:
    assert (
        shrunk(reference, Fake(lambda b, s: s > 8)) == "seq = 9 (batch does not matter; right where seq ≤ 8)"
    )
    assert (
        shrunk(reference, Fake(lambda b, s: b == 1)) == "batch = 1 (seq does not matter; right at batch = 2)"
    )
    assert shrunk(reference, Fake(lambda b, s: b == s)) == "batch = 1, seq = 1"


def test_what_happens_at_the_smallest_is_told(reference: Reference) -> None:
    wrong, refusing = Fake(lambda b, s: s > 8), Fake(lambda b, s: s > 8, refuses=True)
    row = shrunk_failure(verify(wrong, reference), wrong, reference)[1]
    assert row.outcome == "wrong" and row.sizes == {"batch": 1, "seq": 9} and "y is off by" in row.why
    row = shrunk_failure(verify(refusing, reference), refusing, reference)[1]
    assert row.outcome == "fails" and row.why == "Fake: no such kernel"


def test_it_stays_within_the_contract(found: Callable[..., Any]) -> None:
    made = found(
        Doubled(), torch.randn(2, 6), shapes={"x": "batch, seq"}, dims={"batch": "2..9", "seq": "4..64"}
    )
    inside = Reference(made.case, made.agreed)
    runtime = Fake(lambda b, s: True)
    assert shrunk_failure(verify(runtime, inside), runtime, inside)[0].sizes == {"batch": 2, "seq": 4}


def test_the_fault_names_size_output_line_and_dim(reference: Reference) -> None:
    contract, runtime = reference.agreed.contract, Fake(lambda b, s: s > 8)
    line = SourceLine("net.py", 41, "if x.shape[1] > 8:")
    guards = [
        size_guard(contract, lambda s: s < 1000, "batch", SourceLine("other.py", 1)),
        size_guard(contract, lambda s: s <= 8, "seq", line),
    ]
    fault = fault_of(verify(runtime, reference, guards), runtime, reference, guards)
    assert str(fault).startswith("the exported model would be wrong at seq = 9 (batch does not matter")
    assert fault.where == line
    assert "The trace holds only where seq <= 8" in fault.hint and "declare a range of seq" in fault.hint


def test_a_guard_with_a_line_is_told_before_one_without(reference: Reference) -> None:
    contract, runtime = reference.agreed.contract, Fake(lambda b, s: s > 8)
    line = SourceLine("net.py", 41)
    guards = [
        size_guard(contract, lambda s: s <= 8, "seq", None),
        size_guard(contract, lambda s: s < 9, "seq", line),
    ]
    assert fault_of(verify(runtime, reference, guards), runtime, reference, guards).where == line


def test_without_a_guard_an_operator_is_to_blame(reference: Reference) -> None:
    runtime = Fake(lambda b, s: s > 8)
    fault = fault_of(verify(runtime, reference), runtime, reference, ())
    assert fault.where is None and "an operator is translated wrongly" in fault.hint


def test_nothing_could_be_verified(reference: Reference) -> None:
    fault = fault_of(Verdict("Fake", ()), Fake(lambda b, s: False), reference, ())
    assert "PyTorch refused every size" in str(fault)
