"""Is the smallest failing size found, and is the right line named?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
import anyshape.ladder.climb
from anyshape.errors import AnyshapeError, CaptureFault, ContractFault, ModelFault, VerifyFault
from anyshape.ladder.rungs import SYMBOLIC

Line = Callable[[str, str], int]


class Branch(nn.Module):
    """Two different functions on either side of a size."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 8:
            return x.cumsum(1)
        return x * 2


class ByValue(nn.Module):
    """A branch on a value, which no trace can follow."""

    def forward(self, x: Tensor) -> Tensor:
        if str(x.sum().item()).startswith("-"):
            return x + 1
        return x - 1


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places(torch.arange(x.shape[1]))


class Breaks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, 1000)


def fault(model: nn.Module, *args: Tensor, **declared: Any) -> AnyshapeError:
    with pytest.raises(AnyshapeError) as info:
        anyshape.export(model, args, **declared)
    return info.value


def points_at(error: AnyshapeError, line_in: Line, text: str) -> bool:
    """Whether the error names this file and the line that has ``text``; and shows the line itself."""
    where = error.where
    return (
        where is not None
        and os.path.basename(where.file) == "test_smallest.py"
        and where.line == line_in(__file__, text)
        and text in where.text
        and f"{where.file}:{where.line}" in str(error)
    )


@contextlib.contextmanager
def symbolic_only() -> Iterator[None]:
    """Without the rungs that would follow both ways, so that there is something to blame."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyshape.ladder.climb, "rungs_for", lambda ground, prove: (SYMBOLIC,))
        yield


@pytest.fixture(scope="module")
def branch() -> AnyshapeError:
    declared = {"shapes": {"x": "batch, seq"}, "dims": {"batch": ">=1", "seq": "1..64"}}
    with symbolic_only():
        return fault(Branch(), torch.randn(2, 5), **declared)


def test_a_branch_on_a_declared_size(branch: AnyshapeError, line_in: Line) -> None:
    assert isinstance(branch, VerifyFault)
    assert points_at(branch, line_in, "if x.shape[1] > 8:")


def test_the_branchs_smallest_failing_size(branch: AnyshapeError) -> None:
    assert branch.what.startswith(
        "the exported model would be wrong at seq = 9 (batch does not matter; right where seq ≤ 8): output is off by"
    )
    assert "The trace holds only where seq <= 8" in branch.hint and "declare a range of seq" in branch.hint


def test_a_branch_on_a_text_of_values(line_in: Line) -> None:
    error = fault(ByValue(), torch.rand(2, 5) + 1)
    assert isinstance(error, CaptureFault)
    assert points_at(error, line_in, 'if str(x.sum().item()).startswith("-"):')
    assert "Python looks at the values of a tensor" in error.what
    assert "torch.where" in error.hint


def test_a_range_beyond_a_table(line_in: Line) -> None:
    error = fault(Table(), torch.randn(2, 5, 4), shapes={"x": "batch, seq, 4"}, dims={"seq": "1..64"})
    assert isinstance(error, ContractFault)
    assert "fails at seq = 33" in error.what
    assert points_at(error, line_in, "return x + self.places(torch.arange(x.shape[1]))")


def test_a_model_that_fails_at_its_example(line_in: Line) -> None:
    error = fault(Breaks(), torch.randn(2, 5))
    assert isinstance(error, ModelFault)
    assert points_at(error, line_in, "return x.reshape(-1, 1000)")


def test_an_undeclared_branch_is_narrowed_and_told_with_its_line(line_in: Line) -> None:
    with symbolic_only():
        made = anyshape.export(Branch(), torch.randn(2, 5))
    assert made.verdict.right
    notes = "\n".join(made.contract.notes)
    assert f"test_smallest.py:{line_in(__file__, 'if x.shape[1] > 8:')}" in notes
    (dim,) = [dim for dim in made.contract.dims if dim.name != "batch"]
    assert made.contract.allows({"batch": 2, dim.name: 8}) and not made.contract.allows(
        {"batch": 2, dim.name: 9}
    )
