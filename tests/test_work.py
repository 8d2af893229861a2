"""Budgets count work: the same on every machine, and no clock decides what is tried."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import anyshape
from anyshape.torch_bridge.work import Patience, TooLong, nominal_seconds

PACKAGE = Path(anyshape.__file__).parent
CLOCKS = {
    "progress.py": "tells how long each station took",
    "cli/export.py": "tells how long the export took",
    "artifact/write.py": "waits for another process that saves to the same path",
}


def at(model: nn.Module, *shape: int) -> float:
    tensor = torch.ones(shape)
    with torch.no_grad():
        return nominal_seconds(lambda: model.eval()(tensor))


def test_the_same_work_twice() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    assert at(model, 3, 8) == at(model, 3, 8) > 0


@pytest.mark.parametrize(
    ("model", "small", "large"),
    [
        (nn.Linear(64, 64), (8, 64), (4096, 64)),
        (nn.Conv2d(3, 16, 3), (1, 3, 16, 16), (1, 3, 256, 256)),
        (nn.LSTM(16, 64), (8, 2, 16), (512, 16, 16)),
        (nn.GELU(), (100,), (1_000_000,)),
        (nn.TransformerEncoderLayer(32, 4, batch_first=True), (1, 8, 32), (8, 256, 32)),
    ],
)
def test_more_to_do_is_more_work(model: nn.Module, small: tuple[int, ...], large: tuple[int, ...]) -> None:
    assert at(model, *large) > 5 * at(model, *small)


def test_no_clock_decides_anything() -> None:
    """Only what tells a person how long it took, or waits for another process, looks at a clock."""
    users = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if "time" in names or (isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime")):
                users.add(path.relative_to(PACKAGE).as_posix())
    assert users == set(CLOCKS)


@pytest.mark.parametrize(
    "apart",
    [
        lambda x: x.split(1),
        lambda x: x.split(1, -2),
        lambda x: x.split([1] * 40),
        lambda x: x.unbind(),
        lambda x: x.mT.unbind(1),
        lambda x: x.chunk(40),
    ],
)
def test_patience_ends_before_a_tensor_is_in_too_many_parts(apart: Callable[[torch.Tensor], object]) -> None:
    """Each part of it would be an operator more, and to make them takes seconds."""
    x = torch.ones(40, 2)
    with Patience(50) as patience:
        apart(x)
    assert patience.count < 5
    with pytest.raises(TooLong), Patience(39):
        apart(x)
