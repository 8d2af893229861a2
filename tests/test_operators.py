"""Operators with a translation of our own, at many sizes against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import anyshape
from anyshape.runtime import OnnxRuntime, to_numpy


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


CASES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], list[tuple[int, ...]]]] = {
    "roll by half": (lambda x: torch.roll(x, x.shape[1] // 2, 1), (2, 10, 3), [(1, 7, 3), (3, 1, 2)]),
    "roll two axes": (lambda x: torch.roll(x, (2, -3), (0, -1)), (4, 10), [(1, 2), (3, 17)]),
    "roll flat": (lambda x: torch.roll(x, 5), (4, 10), [(2, 3), (1, 1)]),
    "average 1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 14), [(1, 3, 4), (2, 3, 31)]),
    "average 2d": (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), (2, 3, 14, 9), [(1, 3, 2, 1), (2, 3, 29, 30)]),
    "average 2d to one": (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 8, 8), [(1, 3, 1, 5), (2, 3, 9, 7)]),
    "average 2d, one size kept": (
        lambda x: F.adaptive_avg_pool2d(x, (None, 3)),
        (2, 3, 14, 9),
        [(1, 3, 2, 4), (2, 3, 29, 30)],
    ),
    "average 3d": (
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
        (2, 3, 5, 6, 7),
        [(1, 3, 3, 4, 9), (1, 3, 1, 1, 1)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_right_at_sizes_it_never_saw(name: str) -> None:
    function, example, others = CASES[name]
    torch.manual_seed(0)
    made = anyshape.export(Calls(function), torch.randn(example))
    runtime = OnnxRuntime.of_model(made.model)
    for shape in others:
        x = torch.randn(shape)
        (got,) = runtime.run({"x": to_numpy(x)})
        np.testing.assert_allclose(got, function(x).numpy(), atol=1e-6)


def test_an_operator_that_torch_fails_on_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, line_in: Callable[[str, str], int]
) -> None:
    def broken(self: Any, shifts: Any, dims: Any = ()) -> Any:
        raise ValueError("not today")

    class Rolled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.roll(x, 1, 1)  # rolled here

    with pytest.raises(
        anyshape.Fault, match=r"torch.onnx fails on the operator aten.roll: ValueError: not today"
    ) as info:
        anyshape.export(
            Rolled(), torch.randn(3, 4), custom_translation_table={torch.ops.aten.roll.default: broken}
        )
    assert info.value.where is not None
    assert info.value.where.line == line_in(__file__, "# rolled here")
