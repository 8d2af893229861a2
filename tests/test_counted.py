"""Sizes that values decide, and that never moved while the model was looked at: they are no numbers for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture.tape.counted import counted_axes, one_more

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def counted(x: Tensor) -> tuple[Tensor, Tensor]:
    found = (x > 100).nonzero()
    return x + found.shape[0], found


def picked(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[x > 100], torch.unique((x > 100).long())


def one_each(x: Tensor) -> tuple[Tensor, Tensor]:
    largest = x == x.amax(1, keepdim=True)
    return x[largest].view(x.shape[0], 1), largest.nonzero()[:, 1]


def checked(x: Tensor) -> Tensor:
    if (x > 100).nonzero().numel():
        raise ValueError("too large")
    return x * 2


@pytest.mark.parametrize("function", [counted, picked, one_each, checked])
def test_a_count_that_was_never_seen_to_move(function: Callable[[Tensor], Any], tmp_path: Path) -> None:
    made = anyshape.export(Net(function), torch.randn(3, 7), tmp_path / "net.onnx")
    run = anyshape.load(tmp_path / "net.onnx")
    for shape in [(1, 1), (4, 9), (2, 30)]:
        for scale in (1.0,) if function is checked else (1.0, 300.0):
            x = torch.randn(shape) * scale
            got, wanted = run(x), function(x)
            pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
            for one, two in pairs:
                np.testing.assert_array_equal(np.asarray(one), two.numpy())
    if function is counted:
        assert made.contract.outputs[1].shape_text() == "[?, 2]"


def by_count(x: Tensor) -> Tensor:
    found = (x > 100).nonzero()
    if found.shape[0] == 0:  # never otherwise, as far as the example tells
        return x
    return x * 2


def test_a_decision_on_a_count_is_asked_by_the_graph(tmp_path: Path) -> None:
    anyshape.export(Net(by_count), torch.randn(3, 7), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for x in (torch.randn(5, 2), torch.full((2, 3), 200.0)):
        np.testing.assert_array_equal(np.asarray(run(x)), by_count(x).numpy())


def mean_of_found(x: Tensor) -> Tensor:
    found = x[x > 0]
    return x / max(found.numel(), 1) + 0.25 * len(found)


def by_distinct(x: Tensor) -> Tensor:
    distinct = x.round().unique()
    return x * len(distinct) if len(distinct) > 2 else x


@pytest.mark.parametrize("function", [mean_of_found, by_distinct])
def test_a_count_is_a_number_of_the_graph(function: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    anyshape.export(Net(function), torch.randn(3, 7), tmp_path / "m.onnx")
    run = anyshape.load(tmp_path / "m.onnx")
    for x in (torch.randn(5, 2), -torch.ones(2, 3), torch.tensor([[1.0, 2.0]]), torch.arange(9.0)[None]):
        np.testing.assert_allclose(np.asarray(run(x)), function(x).numpy(), 1e-5)


def test_which_axis_is_counted() -> None:
    x, mask = torch.randn(3, 4), torch.ones(4, dtype=torch.bool)
    assert counted_axes(aten.nonzero.default, [x]) == {0: 0}
    assert counted_axes(aten.index.Tensor, [x, [None, mask]]) == {0: 1}
    assert counted_axes(aten.index.Tensor, [x, [mask[:3]]]) == {0: 0}
    assert counted_axes(aten.index.Tensor, [x, [torch.tensor([0, 1])]]) == {}
    assert counted_axes(aten._unique2.default, [x, True, True, True]) == {0: 0, 2: 0}
    assert (
        counted_axes(aten._unique2.default, [x])
        == counted_axes(aten.unique_consecutive.default, [x])
        == {0: 0}
    )
    assert counted_axes(aten.unique_consecutive.default, [x, False, True]) == {0: 0, 2: 0}
    assert counted_axes(aten.unique_consecutive.default, [x, False, True, 1]) == {}
    assert counted_axes(aten.add.Tensor, [x, x]) == {}


def test_one_row_more() -> None:
    assert one_more(torch.tensor([[1, 2]]), {0: 0}).tolist() == [[1, 2], [1, 2]]
    assert one_more(torch.empty(0, 2), {0: 0}).tolist() == [[0, 0]]
    kept = torch.tensor([5])
    values, inverse, counts = one_more((torch.tensor([3]), kept, torch.tensor([1])), {0: 0, 2: 0})
    assert values.tolist() == [3, 3] and inverse is kept and counts.tolist() == [1, 1]
