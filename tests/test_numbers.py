"""Plain numbers among the inputs: constants, or inputs where they are asked for or change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import InputError, UsageError


class Takes(nn.Module):
    def forward(self, x: Tensor, k: int = 2, scale: float = 1.5, flag: bool = True) -> Tensor:
        y = x[:, :k] * scale
        return y + 1 if flag else y


ALL = {"k": "number", "scale": "number", "flag": "number"}


def test_numbers_that_are_declared_are_inputs(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    made = anyshape.export(Takes(), (torch.randn(3, 8), 3, 2.5, True), path, shapes=ALL)
    assert [(item.name, item.dtype, item.shape) for item in made.contract.inputs[1:]] == [
        ("k", "int64", ()),
        ("scale", "float64", ()),
        ("flag", "bool", ()),
    ]
    run, x = anyshape.load(path), torch.randn(2, 11)
    for given in ((5, 0.5, False), (1, 3, True), (20, -1.0, True), (0, 1.0, True)):
        torch.testing.assert_close(run(x, *given), Takes()(x, *given))
    assert run(x.numpy(), np.asarray(4), np.asarray(2.0), flag=np.asarray(True)).shape == (2, 4)
    with pytest.raises(InputError, match=r"k is 2\.5, not a number of the type int"):
        run(x, 2.5, 1.0, True)
    with pytest.raises(InputError, match="scale is 'big', not a number of the type float"):
        run(x, 2, "big", True)
    with pytest.raises(InputError, match="x holds 0 tensors, not 1"):
        run(3, 2, 1.0, True)


def test_a_number_that_changes_among_the_examples_is_an_input(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    x = torch.randn(3, 8)
    made = anyshape.export(Takes(), (x, 3, 2.0), path, examples=[(torch.randn(2, 9), 5, 2.0)])
    assert [item.name for item in made.contract.inputs] == ["x", "k"]
    assert made.contract.constants == (("scale", "2.0"),)
    assert anyshape.load(path)(x, 6, 2.0).shape == (3, 6)


def test_others_stay_constants(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    anyshape.export(Takes(), (torch.randn(3, 8), 3), path)
    with pytest.raises(InputError, match="k is 4, but the file was exported with 3"):
        anyshape.load(path)(torch.randn(3, 8), 4)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="x is declared a number, and is none among the inputs") as info:
        anyshape.export(Takes(), (torch.randn(3, 8), 3), shapes={"x": "number"})
    assert info.value.hint == "Plain numbers are: k."
    with pytest.raises(UsageError, match="scale is declared a number") as info:
        anyshape.export(Takes(), (torch.randn(3, 8),), shapes={"scale": "number"})
    assert info.value.hint == "There is no plain number."


def test_numbers_inside_containers() -> None:
    class Nested(nn.Module):
        def forward(self, x: Tensor, how: dict[str, float]) -> Tensor:
            return x / how["by"]

    made = anyshape.export(Nested(), (torch.randn(3, 4), {"by": 2.0}), shapes={"how.by": "number"})
    assert [item.name for item in made.contract.inputs] == ["x", "how.by"]
