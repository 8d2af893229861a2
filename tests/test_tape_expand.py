from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.capture.tape import Tape, expanded, functional, record
from anyshape.capture.tape.expand import _KNOWN
from anyshape.torch_bridge import torchlib, tracing

aten = torch.ops.aten
Run = Callable[..., list[Tensor]]


def tape_of(function: Callable[..., Any], *tensors: Tensor) -> Tape:
    return functional(record(lambda *given: [function(*given)], tensors, {}))


def targets(tape: Tape) -> list[Any]:
    return [step.target for step in tape.steps]


def translated(tape: Tape) -> bool:
    """Whether torch.onnx has a translation for every step."""
    return all(torchlib.onnx_function(target, False) is not None for target in targets(tape))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.huber_loss(x, x * 2),
        lambda x: torch.nn.functional.pairwise_distance(x, x.flip(0)),
        lambda x: x.addcdiv(x, x.abs() + 1).std(1),
        lambda x: torch.block_diag(x, x[:1]),
        lambda x: torch.nn.functional.softshrink(x).frac().logit(0.1),
    ],
)
def test_operators_become_those_they_are_made_of(function: Callable[..., Any], run_tape: Run) -> None:
    made = expanded(tape_of(function, torch.randn(4, 6)), ())
    assert translated(made)
    x = torch.randn(4, 6)
    torch.testing.assert_close(run_tape(made, [x]), [function(x)])


def test_operators_that_torch_translates_stay() -> None:
    tape = tape_of(lambda x: torch.softmax(x @ x.mT, -1), torch.randn(4, 6))
    assert aten.softmax.int in targets(expanded(tape, ()))


def test_own_operators_stay() -> None:
    tape = tape_of(lambda x: torch.nn.functional.huber_loss(x, x * 2), torch.randn(4, 6))
    assert aten.huber_loss.default in targets(expanded(tape, {aten.huber_loss.default}))
    assert aten.huber_loss.default not in targets(expanded(tape, ()))


def test_own_operators_on_complex_tensors_are_named_apart() -> None:
    tape = tape_of(lambda x: torch.complex(x, x).square(), torch.randn(4, 6))
    assert aten.square.default not in targets(expanded(tape, {aten.square.default}))
    assert aten.square.default in targets(expanded(tape, {("complex", aten.square.default)}))


def test_an_operator_that_is_made_of_nothing_else_stays() -> None:
    tape = tape_of(lambda x: torch.linalg.eig(x)[0], torch.randn(4, 4))
    assert targets(expanded(tape, ())) == [aten.linalg_eig.default]


def test_a_decomposition_that_fails_leaves_the_operator_whole() -> None:
    def fails(step: Any, function: Any, values: Any) -> None:
        return None

    tape = tape_of(lambda x: torch.nn.functional.huber_loss(x, x * 2), torch.randn(4, 6))
    assert targets(expanded(tape, (), fails)) == targets(tape)


def test_lines_stay_those_of_the_model(line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.huber_loss(x, x * 2)  # made of many

    made = expanded(tape_of(function, torch.randn(4, 6)), ())
    assert len(made.steps) > 3
    assert {step.where and step.where.line for step in made.steps} == {line_in(__file__, "# made of many")}


@pytest.mark.parametrize("operator", [torch.std_mean, torch.var_mean, torch.aminmax])
def test_several_outputs_of_one_operator_are_followed(operator: Callable[..., Any], run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        one, other = operator(x)
        return one * other

    made = expanded(tape_of(function, torch.randn(4, 6)), ())
    assert translated(made)
    x = torch.randn(4, 6)
    torch.testing.assert_close(run_tape(made, [x]), [function(x)])


def test_an_output_may_be_an_input_after_all(run_tape: Run) -> None:
    made = expanded(tape_of(lambda x: torch.dropout(x, 0.5, False), torch.randn(4)), ())
    x = torch.randn(4)
    torch.testing.assert_close(run_tape(made, [x]), [x])


def test_the_same_call_is_traced_once(run_tape: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        once = torch.nn.functional.huber_loss(x, x * 2, delta=0.25)
        return torch.nn.functional.huber_loss(x * 3, x, delta=0.25) + once

    calls: list[Any] = []
    trace = tracing.traced_without_data

    def counted(function: Callable[..., Any], values: Sequence[Any]) -> Any:
        calls.append(function)
        return trace(function, values)

    monkeypatch.setattr(tracing, "traced_without_data", counted)
    _KNOWN.clear()
    tape = tape_of(function, torch.randn(4, 6))
    made = expanded(tape, ())
    before = len(calls)
    again = expanded(tape, ())
    assert len(calls) == before
    assert [step.target for step in made.steps] == [step.target for step in again.steps]
    values = [value for step in made.steps for value in step.outputs]
    assert len(set(values)) == len(values)  # each call has values of its own
    x = torch.randn(4, 6)
    torch.testing.assert_close(run_tape(made, [x]), [function(x)])


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyshape.capture.tape.expand.MOST_KNOWN", 2)
    _KNOWN.clear()
    for size in range(2, 7):
        expanded(tape_of(lambda x: torch.nn.functional.huber_loss(x, x * 2), torch.randn(size)), ())
    assert 0 < len(_KNOWN) <= 2


def test_constants_of_a_decomposition_come_along(run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.cosine_embedding_loss(x, x * 2, torch.ones(4))

    tape = tape_of(function, torch.randn(4, 6))
    made = expanded(tape, ())
    assert tape.constants.keys() <= made.constants.keys()
    x = torch.randn(4, 6)
    torch.testing.assert_close(run_tape(made, [x]), [function(x)])
