"""Arguments that are wrong: each is refused in words, and none ends in a mistake of our own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import LowerFault, ModelFault, UsageError, VerifyFault

X = torch.randn(2, 4)


class Net(nn.Module):
    def forward(self, x: Tensor, other: Any = None) -> Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"shapes": 5}, "shapes is 5, not a dict"),
        ({"shapes": "b, 4"}, "shapes is 'b, 4', not a dict"),
        ({"shapes": {"x": 3}}, "the shape of x is 3, neither text nor a list of sizes"),
        ({"shapes": {"x": {0: "b"}}}, "neither text nor a list of sizes"),
        ({"shapes": {3: "b, 4"}}, "shapes has 3, which is no path of an input"),
        ({"shapes": {"x": "_b, 4"}}, "_b begins with an underscore"),
        ({"dims": "b=1..5"}, "dims is 'b=1..5', not a dict"),
        ({"dims": {"_b": "1..5"}}, "_b begins with an underscore"),
        ({"dims": {"2*b": "1..5"}}, "dims has '2*b', which is no name of a dim"),
        ({"dims": {3: "1..5"}}, "dims has 3, which is no name of a dim"),
        ({"dynamic_axes": [1]}, "dynamic_axes is [1], not a dict"),
        ({"dynamic_axes": {"x": 0}}, "dynamic_axes has 0 for x, not its axes"),
        ({"dynamic_axes": {"x": {"0": "b"}}}, "dynamic_axes names axis '0' of x, which is no number"),
        ({"dynamic_axes": {"x": {0: 3}}}, "dynamic_axes calls axis 0 of x 3, which is no text"),
        ({"dynamic_shapes": 5}, "dynamic_shapes is 5, neither a dict nor a tuple"),
        ({"examples": 5}, "examples is a int, not a list of input sets"),
        (
            {"examples": [(X.double(),)]},
            "another type for x than the example: torch.float64, not torch.float32",
        ),
        ({"examples": [(X[0],)]}, "another number of axes for x than the example: 1, not 2"),
        ({"examples": [((X,), {"z": 1})]}, "an input set has z, which the example does not have"),
        ({"input_names": "x"}, "input_names is 'x', not a list of names"),
        ({"input_names": [3]}, "input_names has 3, which is no text"),
        ({"input_names": [""]}, "input_names has an empty name"),
        ({"input_names": ["\ud800"]}, "input_names has a name that a file can't hold"),
        ({"output_names": ["x"]}, "output_names has x, which is an input"),
        ({"output_names": ["y", "z"]}, "output_names has 2 names, but there are 1 outputs"),
        ({"output_names": "y"}, "output_names is 'y', not a list of names"),
        ({"output_names": ["a\nb"]}, "output_names has a name that a file can't hold"),
        ({"opset_version": "18"}, "opset_version='18' is no version of ONNX's operators"),
        ({"opset_version": True}, "opset_version=True is no version"),
        ({"opset_version": -1}, "opset_version=-1 is no version"),
        ({"f": 5}, "can't write to a int"),
        ({"f": io.StringIO()}, "can't write to a StringIO"),
        ({"f": io.BufferedReader(io.BytesIO())}, "can't write to a BufferedReader"),
        ({"f": "a\0b"}, "is no path of a file"),
    ],
)
def test_refused_in_words(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as info:
        anyshape.export(Net(), (X,), **arguments)
    assert said in info.value.what.splitlines()[0] and not isinstance(info.value, anyshape.InternalError)


def test_a_closed_file() -> None:
    file = io.BytesIO()
    file.close()
    with pytest.raises(anyshape.FileError, match="can't write to a BytesIO"):
        anyshape.export(Net(), (X,), file)


def test_an_opset_that_there_is_no_way_to() -> None:
    with pytest.raises(LowerFault, match="can't be written with version 99"):
        anyshape.export(Net(), (X,), opset_version=99)
    made = anyshape.export(Net(), (X,), opset_version=20)
    assert made.model.opset_imports[""] == 20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: (X.to_sparse(),), "x is a sparse tensor"),
        (lambda: (X.to_sparse_csr(),), "x is a sparse tensor"),
        (lambda: (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),), "x is a quantised tensor"),
        (lambda: (torch.nested.nested_tensor([X[0], X[1]]),), "x is a nested tensor"),
        (lambda: (X, np.ones(3)), "other is a numpy array, not a tensor"),
        (lambda: ({3: X, "3": X},), "the inputs repeats a name: x.3, x.3"),
        (lambda: ({"a\x1b": X},), "the inputs has a name that a file can't hold"),
        (lambda: (SimpleNamespace(a=X),), "x is a SimpleNamespace, which PyTorch's pytrees do not know"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_inputs_that_no_file_can_take(given: Callable[[], tuple[Any, ...]], said: str) -> None:
    with pytest.raises(UsageError) as info:
        anyshape.export(Net(), given())
    assert said in info.value.what


def test_inputs_of_other_sizes_than_were_asked_for() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.shape[0] <= 8 else x * 3

    with pytest.raises(UsageError, match=r"make_inputs gives x \[2, 4\] at b = \d+, not \[\d+, 4\]"):
        anyshape.export(Branch(), (X,), shapes={"x": "b, 4"}, make_inputs=lambda sizes: ((X,), {}))


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Raises(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] != 2 or x.shape[1] == 5:
            raise self.error
        return x * 2


@pytest.mark.parametrize("error", [Mute(), SystemExit(0), StopIteration(), RecursionError("deep")])
def test_whatever_a_model_raises_is_a_refusal(error: BaseException) -> None:
    made = anyshape.export(Raises(error), (X,))
    assert made.contract.inputs[0].shape_text().startswith("[2, ")
    with pytest.raises(ModelFault, match="fails at its own example"):
        anyshape.export(Raises(error), (torch.randn(3, 4),))


def test_a_model_that_leaves_python_is_no_success(tmp_path: Path) -> None:
    import subprocess

    source = (
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        raise SystemExit(0)\n"
    )
    (tmp_path / "leaves.py").write_text(source + "def build():\n    return M(), (torch.ones(2),)\n")
    command = [sys.executable, "-m", "anyshape", "export", "leaves.py:build", "-o", "m.onnx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "sys.exit(0)" in done.stderr


class Returns(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Any:
        return x * 2, self.value if self.value is not None else x.shape[0]


def test_python_values_among_the_results() -> None:
    assert anyshape.export(Returns(float("nan")), (X,)).verdict.right

    class Says(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x * 2, f"{x.shape[0]} rows"

    with pytest.raises(VerifyFault) as info:
        anyshape.export(Says(), (X,))
    assert "depends on the sizes: '2 rows', then" in info.value.what and "torch.tensor(n)" in info.value.hint


def test_whole_numbers_among_the_results_follow_the_sizes() -> None:
    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return {"twice": x * 2, "shape": x.shape, "half": x.shape[0] // 2, "kind": 7}

    made = anyshape.export(Sized(), (torch.randn(3, 5),), "sized.onnx")
    assert made.verdict.right
    for shape in ((4, 9), (1, 1), (11, 2)):
        got = anyshape.load("sized.onnx")(torch.ones(shape))
        assert tuple(got["shape"]) == shape and got["half"] == shape[0] // 2 and got["kind"] == 7


def test_an_export_inside_a_model_that_is_exported() -> None:
    net = Net()
    net.register_forward_pre_hook(lambda module, args: anyshape.export(nn.ReLU(), args) and None)
    with pytest.raises(UsageError, match="an export is under way in this thread"):
        anyshape.export(net, (X,))
    assert anyshape.export(nn.ReLU(), (X,)).verdict.right


def test_deep_nesting_is_reported_and_not_followed() -> None:
    deep: Any = X
    for _ in range(400):
        deep = [deep]
    with pytest.raises(anyshape.AnyshapeError):
        anyshape.export(Net(), (deep,))


def test_an_object_is_known_by_its_class(tmp_path: Path) -> None:
    class Config:
        pass

    made = anyshape.export(Net(), (X, Config()), tmp_path / "m.onnx")
    assert "0x" not in made.contract.to_json()
    run = anyshape.load(tmp_path / "m.onnx")
    assert run(X, Config()).shape == X.shape


class Slow(io.RawIOBase):
    """Takes a few bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data[:100])
        return min(len(data), 100)


def test_a_file_that_takes_little_at_a_time() -> None:
    file = Slow()
    made = anyshape.export(Net(), (X,), file)
    assert file.data == made.model_proto.SerializeToString()
