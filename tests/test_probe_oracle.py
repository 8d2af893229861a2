from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anyshape.inputs.case import Refusal
from anyshape.inputs.read import read
from anyshape.probe.oracle import Call, Oracle
from anyshape.probe.relations import relations

Found = Callable[..., Any]


class Fixed(nn.Module):
    """Two inputs that never meet: the features of the first are a weight's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen: list[Any] = []

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), y * 2


def oracle_of(module: nn.Module, *tensors: Tensor) -> Oracle:
    return Oracle(read(module.eval(), tensors), 20.0)


def test_a_refusal_says_which_call_raised_it_and_at_which_sizes() -> None:
    oracle = oracle_of(Fixed(), torch.randn(3, 4), torch.randn(5, 6))

    def stopped(*shapes: tuple[int, ...]) -> Call:
        call = oracle.trial_of_shapes(shapes).stopped
        assert call is not None
        return call

    assert stopped((3, 7), (5, 6)) == stopped((3, 7), (5, 9))  # the second input has no say in it
    assert stopped((3, 7), (5, 6)) != stopped((2, 7), (5, 6))
    assert stopped((3, 7), (5, 6)).place == stopped((2, 7), (5, 6)).place
    assert oracle.trial_of_shapes(((2, 4), (1, 1))).stopped is None


def test_what_python_refuses_was_stopped_by_no_call() -> None:
    class Checked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                x.view(1, 7)
            except RuntimeError:
                if len(x) != 3:
                    raise ValueError("three") from None
            return x

    trial = oracle_of(Checked(), torch.randn(3)).trial_of_shapes(((4,),))
    assert isinstance(trial.why, Refusal) and trial.why.text == "ValueError: three"
    assert trial.stopped is None


def test_a_refused_run_is_remembered_without_its_tensors() -> None:
    seen: list[Any] = []

    class Kept(Fixed):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            seen.append(weakref.ref(x))
            made = y + 1
            seen.append(weakref.ref(made))
            return self.layer(x), made

    oracle = oracle_of(Kept(), torch.randn(3, 4), torch.randn(5, 6))
    for shapes in (((3, 7), (5, 6)), ((40, 7), (50, 6))):  # the second is large, and counted
        seen.clear()
        trial = oracle.trial_of_shapes(shapes)
        gc.collect()
        assert len(seen) == 2 and not any(ref() is not None for ref in seen)
        assert isinstance(trial.why, Refusal) and trial.why.where is not None
        assert trial.why.where.text == "return self.layer(x), made"


def test_an_axis_without_a_say_is_moved_once() -> None:
    oracle = oracle_of(Fixed(), torch.randn(3, 4), torch.randn(5, 6))
    found = relations(oracle, oracle.example)
    assert [direction.root for direction in found] == [(0, 0), (1, 0), (1, 1)]
    others = {shapes[1] for shapes, _ in oracle.known if shapes[0] != (3, 4) and shapes[0][1] != 4}
    assert len(others) <= 3  # as in the example, and each of its axes


def test_a_rate_that_only_python_checks_is_found(found: Found) -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            if y.shape[1] != 2 * x.shape[1]:
                raise ValueError("y has other frames")
            return x.sum(1) + y.sum(1)

    made = found(Twice(), (torch.randn(2, 5), torch.randn(2, 10)))
    assert made.shapes == {"x": "batch, x_1", "y": "batch, 2*x_1"}
