"""One boundary: what a model raises, what making inputs raises, too little memory and our own mistakes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import InternalError, ModelFault, UsageError, own_mistakes
from anyshape.inputs.case import OutOfMemory, Outputs, Refusal, answered
from anyshape.inputs.read import read
from anyshape.ladder import rungs
from anyshape.verify.reference import Expected, Reference
from anyshape.verify.verify import check


class Picky(nn.Module):
    """Refuses more than four rows, and asks for more memory than there is at exactly four."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            raise ValueError("at most four rows")
        if x.shape[0] == 4:
            return x + torch.empty(1 << 46)[: x.shape[1]]
        return x * 2


def test_outputs_a_refusal_or_too_little_memory(line_in: Any) -> None:
    case = read(Picky(), torch.randn(2, 3))
    assert isinstance(case.run([torch.randn(3, 3)]), Outputs)
    refused = case.run([torch.randn(5, 3)])
    assert isinstance(refused, Refusal) and refused.text == "ValueError: at most four rows"
    assert refused.where is not None and refused.where.line == line_in(__file__, "raise ValueError")
    large = case.run([torch.randn(4, 3)])
    assert isinstance(large, OutOfMemory) and "not enough memory" in large.text


class Hungry(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.empty(1 << 46)[: x.shape[1]] if x.shape[0] == 41 else x * 2


def test_too_little_memory_is_no_refusal_of_pytorchs(found: Any) -> None:
    made = found(Hungry(), (torch.randn(2, 3),), shapes={"x": "rows, 3"})
    runtime = SimpleNamespace(name="none", output_names=["out"], run=lambda feed: [])
    row = check(runtime, Reference(made.case, made.agreed), {"rows": 41})
    assert (row.outcome, row.why) == (
        "not run",
        "there is not enough memory here to run PyTorch at these sizes",
    )


def test_an_example_that_is_too_large() -> None:
    with pytest.raises(ModelFault, match="own example is too large: there is not enough memory"):
        read(Picky(), torch.randn(4, 3))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_the_ways_in_which_memory_runs_out(error: Exception) -> None:
    def call() -> None:
        raise error

    assert isinstance(answered(call), OutOfMemory)


def fails(sizes: dict[str, int]) -> Any:
    raise KeyError("no such thing")


def test_what_make_inputs_raises_is_its_own_fault(line_in: Any) -> None:
    with pytest.raises(UsageError) as info:
        anyshape.export(nn.ReLU(), torch.randn(4), shapes={"input": "n"}, make_inputs=fails)
    assert "make_inputs fails at n = " in info.value.what and "no such thing" in info.value.what
    assert info.value.where is not None and info.value.where.line == line_in(__file__, "raise KeyError")
    assert "dims={...}" in info.value.hint


def test_what_make_inputs_gives_amiss() -> None:
    with pytest.raises(UsageError, match=r"make_inputs gives a Tensor at n = \d+, not \(args, kwargs\)"):
        anyshape.export(
            nn.ReLU(), torch.randn(4), shapes={"input": "n"}, make_inputs=lambda sizes: torch.zeros(2)
        )


class Cache:
    def __init__(self, keys: Tensor) -> None:
        self.layers = [{"keys": keys}]


class TakesCache(nn.Module):
    def forward(self, x: Tensor, cache: Any) -> Tensor:
        return x + cache.layers[0]["keys"]


class GivesCache(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return {"x": x, "cache": Cache(x)}


def test_an_unknown_object_that_holds_tensors_is_no_constant() -> None:
    with pytest.raises(UsageError) as info:
        read(TakesCache(), (torch.randn(2, 3), Cache(torch.ones(3))))
    assert info.value.what == (
        "cache is a Cache, which PyTorch's pytrees do not know, and it holds tensors: cache.layers[0]['keys']"
    )
    assert "_pytree.register_pytree_node(Cache, " in info.value.hint
    with pytest.raises(ModelFault) as told:
        read(GivesCache(), torch.randn(2, 3))
    assert "the result holds a Cache" in told.value.what and "cache.layers[0]['keys']" in told.value.what
    assert told.value.hint.startswith("Return its tensors")


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight: Any) -> None:
        self.weight = weight


class TakesAnything(nn.Module):
    def forward(self, x: Tensor, other: Any) -> Tensor:
        return x * 2


def test_objects_without_tensors_are_constants_and_those_in_slots_are_seen() -> None:
    assert read(TakesAnything(), (torch.randn(2), Slotted(3))).inputs[0].path == "x"
    loop = Slotted(None)
    loop.weight = loop  # what holds itself ends
    assert read(TakesAnything(), (torch.randn(2), loop)).constants[0][0] == "other"
    with pytest.raises(UsageError, match=r"holds tensors: other\.weight"):
        read(TakesAnything(), (torch.randn(2), Slotted(torch.ones(1))))
    with pytest.raises(UsageError, match="holds tensors"):
        read(TakesAnything(), (torch.randn(2), {torch.ones(1)}))


def test_a_mistake_of_ours_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("forgotten")

    monkeypatch.setattr("anyshape.understand.probe", broken)
    with pytest.raises(InternalError) as info:
        anyshape.export(nn.Linear(3, 2), torch.randn(4, 3))
    error = info.value
    assert error.exit_code == 70 and "KeyError: 'forgotten'" in error.what and "report" in error.hint
    assert f"torch {torch.__version__.partition('+')[0]}" in error.report and "Traceback" in error.report
    assert "model: torch.nn.modules.linear.Linear" in error.report
    assert "torch.zeros((4, 3), dtype=torch.float32)" in error.report


def test_faults_pass_through() -> None:
    with pytest.raises(UsageError, match="mine"), own_mistakes("testing"):
        raise UsageError("mine")


def test_a_mistake_on_one_rung_does_not_keep_another_from_being_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: Any) -> Any:
        raise AssertionError("a slip")

    with monkeypatch.context() as patch:
        patch.setattr(rungs, "capture_symbolic", broken)
        assert anyshape.export(nn.Linear(3, 2), torch.randn(4, 3), prove=True).rung == "differential"
    monkeypatch.setattr(rungs, "capture_values", broken)
    assert anyshape.export(nn.Linear(3, 2), torch.randn(4, 3)).rung == "symbolic"
    monkeypatch.setattr(rungs, "capture_symbolic", broken)
    with pytest.raises(InternalError, match="AssertionError: a slip"):
        anyshape.export(nn.Linear(3, 2), torch.randn(4, 3))


def test_our_own_mistake_inside_a_models_call_is_not_the_models() -> None:
    def mistaken() -> Any:
        from anyshape.dims import names

        return names.found  # an attribute that is there

    assert answered(mistaken) is not None
    own = compile("def slip():\n    assert False\n", anyshape.understand.__file__, "exec")  # type: ignore[attr-defined]
    space: dict[str, Any] = {}
    exec(own, space)
    with pytest.raises(AssertionError):
        answered(space["slip"])
    assert isinstance(answered(lambda: (_ for _ in ()).throw(AssertionError("the model's"))), Refusal)


def test_one_copy_in_float64_for_all_agreements(found: Any) -> None:
    made = found(nn.Linear(3, 2), (torch.randn(4, 3),))
    reference = Reference(made.case, made.agreed)
    other = reference.under(made.agreed)
    assert isinstance(other.at({"batch": 5}), Expected)
    assert other.exact is reference.exact and other.known is reference.known
