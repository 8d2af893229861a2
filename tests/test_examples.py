"""Examples: each gives a model and inputs that it takes; `make zoo` exports them, and runs the files."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parent.parent


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNNER = loaded(ROOT / "benchmarks" / "run_examples.py")


BUILDING = [
    path for path in RUNNER.examples() if "def build(" in path.read_text(encoding="utf-8")
]  # the others are scripts


@pytest.mark.parametrize("path", BUILDING, ids=lambda path: path.stem)
def test_an_example_gives_a_model_and_its_inputs(path: Path, library: Callable[[str], Any]) -> None:
    text = path.read_text(encoding="utf-8")
    for name in RUNNER.LIBRARIES:
        if f"from {name} import" in text:
            library(name)
    model, args, *rest = loaded(path).build()
    with torch.no_grad():
        assert model(*args, **copy.deepcopy(rest[0] if rest else {})) is not None
    assert f"anyshape export examples/{path.name}:build" in text  # its command line


def test_what_the_runner_says(tmp_path: Path) -> None:
    said = {
        "print('well')": ("right", "well"),
        "import diffusers_of_another_name": (
            "wrong",
            "ModuleNotFoundError: No module named 'diffusers_of_another_name'",
        ),
        "raise ModuleNotFoundError(\"No module named 'diffusers'\")": (
            "left out",
            "diffusers is not installed",
        ),
        "import anyshape; anyshape.load('nothing.onnx')": ("refused", "there is no file nothing.onnx"),
    }
    path = tmp_path / "example.py"
    for text, told in said.items():
        path.write_text(text)
        how, _, words = RUNNER.outcome(path, 100)
        assert (how, words) == told
    path.write_text("while True: pass")
    assert RUNNER.outcome(path, 0.1)[::2] == ("too slow", "not done after 0 s")


def test_the_runner_counts_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.py").write_text("\ndef main(): ...\n")
    (tmp_path / "no_script.py").write_text("")
    monkeypatch.setattr(RUNNER, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run_examples.py"])
    for how, code in (("right", 0), ("left out", 0), ("wrong", 1)):
        monkeypatch.setattr(RUNNER, "outcome", lambda path, limit, how=how: (how, 1.0, "words"))
        assert RUNNER.main() == code
        assert f"| one | {how} | 1.0 | words |" in capsys.readouterr().out
