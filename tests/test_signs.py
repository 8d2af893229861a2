from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from anyshape.capture.tape import signs
from anyshape.capture.tape.signs import sign_of
from anyshape.capture.tape.steps import Step, Value

aten = torch.ops.aten


def step(target: Any, *args: Any, **more: Any) -> Step:
    made = more.pop("makes", (2, 3))
    return Step(target, args, more, (Value(made, torch.float32),))


def value(*shape: int) -> Value:
    return Value(shape, torch.float32)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (step(aten.relu.default, value(2, 3)), step(aten.relu.default, value(5, 3), makes=(5, 3))),
        (step(aten.add.Tensor, value(2), 3), step(aten.add.Tensor, value(2), 4)),
        (step(aten.slice.Tensor, value(9), 0, 1, 2), step(aten.slice.Tensor, value(9), 0, 5, 6)),
        (step(aten.cat.default, [value(2), value(3)]), step(aten.cat.default, [value(4), value(1)])),
    ],
)
def test_other_values_and_numbers_are_the_same_sign(one: Step, two: Step) -> None:
    assert sign_of(one) is sign_of(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (step(aten.relu.default, value(2)), step(aten.tanh.default, value(2))),
        (step(aten.add.Tensor, value(2), 3), step(aten.add.Tensor, value(2), 3.0)),
        (step(aten.add.Tensor, value(2), 3), step(aten.add.Tensor, value(2), value(2))),
        (step(aten.sum.dim_IntList, value(2), [0], True), step(aten.sum.dim_IntList, value(2), [0], False)),
        (step(aten.sum.dim_IntList, value(2), [0]), step(aten.sum.dim_IntList, value(2), [1])),
        (step(aten.cat.default, [value(2)]), step(aten.cat.default, [value(2), value(2)])),
        (step(aten.relu.default, value(2)), step(aten.relu.default, value(2), makes=(2,))),
        (step(aten.to.dtype, value(2), torch.int32), step(aten.to.dtype, value(2), torch.int64)),
        (step(aten.pad.default, value(2), [1], mode="reflect"), step(aten.pad.default, value(2), [1])),
    ],
)
def test_another_operation_is_another_sign(one: Step, two: Step) -> None:
    assert sign_of(one) is not sign_of(two)


def test_a_changed_step_has_a_sign_of_its_own() -> None:
    first = step(aten.add.Tensor, value(2), 3)
    assert sign_of(first) is sign_of(first)
    assert sign_of(first.mapped(lambda leaf: 3.0 if leaf == 3 else leaf)) is not sign_of(first)


def test_signs_go_with_their_steps() -> None:
    only = step(aten.add.Tensor, value(2), 3, alpha="no other step has this")
    before = len(signs._known)
    sign_of(only)
    assert len(signs._known) == before + 1
    del only
    gc.collect()
    assert len(signs._known) <= before
