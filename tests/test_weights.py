"""Weights beside the model: in a .safetensors file, and from a folder for a model on the meta device."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import anyshape
from anyshape.errors import FileError, UsageError
from anyshape.inputs.weights import with_weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.out = (
            nn.Embedding(20, 16),
            nn.Linear(16, 16),
            nn.Linear(16, 20, bias=False),
        )
        self.out.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.out(torch.relu(self.mix(self.words(ids))))
        return made


def on_meta() -> Tied:
    with torch.device("meta"):
        return Tied()


IDS = torch.tensor([[1, 2, 3], [4, 5, 19]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_in_a_safetensors_file(dtype: torch.dtype, tmp_path: Path) -> None:
    model = Tied().to(dtype)
    anyshape.export(model, IDS, tmp_path / "model.onnx", external_data="safetensors")
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "model.onnx.safetensors"]
    there = load_file(tmp_path / "model.onnx.safetensors")
    assert torch.equal(there["words.weight"], model.words.weight)
    assert all(tensor.dtype == dtype for tensor in there.values())
    onnx.checker.check_model(str(tmp_path / "model.onnx"))
    result = anyshape.load(tmp_path / "model.onnx")(IDS)
    torch.testing.assert_close(result, model(IDS), atol=0.05, rtol=0.05)
    if dtype == torch.float32:
        plain = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        assert torch.equal(torch.from_numpy(plain.run(None, {"ids": IDS.numpy()})[0]), result)


def test_the_old_safetensors_file_goes_with_its_model(tmp_path: Path) -> None:
    made = anyshape.export(nn.Linear(16, 16), torch.randn(2, 16))
    for external_data in ("safetensors", "safetensors", True, "safetensors"):
        made.save(tmp_path / "model.onnx", external_data=external_data)
        assert len(os.listdir(tmp_path)) == 2  # the model, and its own weights
        anyshape.load(tmp_path / "model.onnx")


def test_small_weights_stay_in_the_model(tmp_path: Path) -> None:
    anyshape.export(nn.Linear(3, 2), torch.randn(2, 3), tmp_path / "model.onnx", external_data="safetensors")
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_another_word_for_external_data_is_refused() -> None:
    with pytest.raises(UsageError, match="external_data is 'zip'"):
        anyshape.export(nn.Linear(3, 2), torch.randn(2, 3), external_data="zip")


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_model_on_meta_takes_its_weights_from_a_folder(kind: str, tmp_path: Path) -> None:
    model, folder = Tied(), tmp_path / "weights"
    folder.mkdir()
    if kind == "pt":
        torch.save(model.state_dict(), folder / "part.pt")
    else:  # tied weights are there once
        save_file(
            {k: v for k, v in model.state_dict().items() if k != "out.weight"}, folder / "part.safetensors"
        )
    empty = on_meta()
    made = anyshape.export(empty, IDS, tmp_path / "model.onnx", weights=folder)
    assert made.verdict.right and all(weight.is_meta for weight in empty.parameters())
    torch.testing.assert_close(anyshape.load(tmp_path / "model.onnx")(IDS), model(IDS).detach())


def folder_with(path: Path, **tensors: Tensor) -> Path:
    save_file(tensors, path / "weights.safetensors")
    return path


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = nn.Linear(4, 3)
    cases = [
        ({"weight": torch.ones(3, 4)}, "bias: no such weights in"),
        ({"weight": torch.ones(4, 3), "bias": torch.ones(3)}, "weight has another shape in the folder"),
        ({"weight": torch.ones(3, 4).half(), "bias": torch.ones(3)}, "weight has another type in the folder"),
    ]
    for tensors, words in cases:
        with pytest.raises(UsageError, match=words):
            with_weights(empty, folder_with(tmp_path, **tensors))


def test_a_buffer_that_no_file_can_hold_is_named(tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = nn.Linear(4, 3, bias=False)
        empty.register_buffer("table", torch.ones(3), persistent=False)
    with pytest.raises(
        UsageError, match=r"table: on the meta device, and no part of the model's state_dict\(\)"
    ):
        with_weights(empty, folder_with(tmp_path, weight=torch.ones(3, 4)))


def test_weights_for_a_model_that_has_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model has its own"):
        with_weights(nn.Linear(4, 3), tmp_path)
    with pytest.raises(UsageError, match="weights are given for a function"):
        with_weights(folder_with, tmp_path)


def test_a_folder_without_weights_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there are no weights in"):
        with_weights(on_meta(), tmp_path)
    with pytest.raises(FileError, match="can't read the weights in"):
        with_weights(on_meta(), tmp_path / "nowhere")
    row = {"dtype": "F32", "shape": [20, 16], "data_offsets": [0, 1280]}
    for head, words in (
        (struct.pack("<Q", 1 << 40), "its header is longer than the file"),
        (struct.pack("<Q", 2) + b"no", "can't be read as weights"),
        (
            struct.pack("<Q", len(json.dumps({"w": row}))) + json.dumps({"w": row}).encode(),
            "w does not lie where",
        ),
    ):
        (tmp_path / "broken.safetensors").write_bytes(head)
        with pytest.raises(FileError, match=words):
            with_weights(on_meta(), tmp_path)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from anyshape.cli import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    torch.manual_seed(0)
    save_file(nn.Linear(16, 16).state_dict(), tmp_path / "weights" / "linear.safetensors")
    (tmp_path / "linear.py").write_text(
        "import torch\n\ndef build():\n    with torch.device('meta'):\n        model = torch.nn.Linear(16, 16)\n"
        "    return model, (torch.randn(2, 16),)\n"
    )
    made = CliRunner().invoke(app, ["export", "linear.py:build", "--weights", "weights", "--safetensors"])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "linear.onnx.safetensors").exists()
