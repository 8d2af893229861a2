"""Each mistake that a person can make on the command line: a few clear lines, the right exit code, nothing broken."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import anyshape
from anyshape.cli import app

NET = """
import torch

class Net(torch.nn.Module):
    def forward(self, tokens):
        return tokens * 2.0

class Short(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 4)

    def forward(self, tokens):
        return self.table(torch.arange(tokens.shape[1])) + tokens.unsqueeze(-1)

class Raising(torch.nn.Module):
    def forward(self, tokens):
        raise ValueError("no such head")

def build(): return Net(), torch.ones(2, 6)
def short(): return Short(), torch.ones(2, 6)
def raising(): return Raising(), torch.ones(2, 6)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model and with an output of earlier, which no failing command may touch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cli_net.py").write_text(NET)
    (tmp_path / "out.onnx").write_bytes(b"from before")
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name.startswith(("cli_net", "_anyshape_")):
            del sys.modules[name]
    sys.path[:] = path
    assert (tmp_path / "out.onnx").read_bytes() == b"from before"
    assert not list(tmp_path.glob(".anyshape-*")), "a half-written file is left behind"


def exporting(target: str, *options: str) -> list[str]:
    return ["export", target, "-o", "out.onnx", *options]


def refused(arguments: list[str], code: int, *texts: str) -> str:
    """What a command says on stderr when it is refused: few lines, no traceback, nothing on stdout but stations."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    for text in texts:
        assert text in result.stderr
    assert "Traceback" not in result.output
    assert 1 <= len(result.stderr.strip().splitlines()) <= 8
    return result.stderr


def test_no_such_source_file() -> None:
    refused(exporting("missing.py:build"), 2, "there is no file missing.py")


def test_no_such_name() -> None:
    refused(exporting("cli_net.py:biuld"), 2, "has no biuld", "It has: build, short, raising, Net")


def test_no_name() -> None:
    refused(exporting("cli_net.py"), 2, "does not say which model", "FILE.py:NAME")


def test_a_syntax_error(folder: Path) -> None:
    (folder / "cli_net.py").write_text("import torch\ndef build(:\n")
    refused(exporting("cli_net.py:build"), 2, "can't be imported", "cli_net.py:2", "def build(:")


def test_an_import_that_raises(folder: Path) -> None:
    (folder / "cli_net.py").write_text("import torch\nmodel = torch.nn.Linear(2, 2).encoder\n")
    refused(exporting("cli_net.py:model"), 2, "AttributeError", "cli_net.py:2")


def test_a_model_that_raises() -> None:
    refused(exporting("cli_net.py:raising"), 1, "fails at its own example", "no such head", "cli_net.py:18")


def test_an_unparsable_shape() -> None:
    said = refused(exporting("cli_net.py:build", "--shape", "tokens=batch, seq+"), 2)
    source, caret = said.splitlines()[1:3]
    assert "batch, seq+" in source and caret.strip() == "^"


def test_a_shape_without_a_path() -> None:
    refused(exporting("cli_net.py:build", "--shape", "batch, seq"), 2, "expected '='", "^")


def test_an_unknown_input_path() -> None:
    refused(exporting("cli_net.py:build", "--shape", "ids=batch, seq"), 2, "'ids'", "The inputs are: tokens.")


def test_an_unknown_dim() -> None:
    refused(exporting("cli_net.py:build", "--shape", "tokens=a, b", "--dim", "c=1..4"), 2, "dims has c")


def test_a_range_without_a_size() -> None:
    refused(exporting("cli_net.py:build", "--dim", "seq=9..3"), 2, "at least 9 and at most 3", "^")


def test_a_range_that_the_model_never_accepts() -> None:
    options = ["--shape", "tokens=batch, seq", "--dim", "seq=20..30"]
    refused(
        exporting("cli_net.py:short", *options),
        1,
        "no size satisfies",
        "seq is declared 20..30",
        "cli_net.py:14",
    )


def test_an_unparsable_input() -> None:
    refused(exporting("cli_net.py:Net", "--input", "tokens=float32(2,6)"), 2, "expected '['", "^")


def test_no_example() -> None:
    refused(exporting("cli_net.py:Net"), 2, "gives no example inputs", "--input tokens=")


def test_a_missing_folder() -> None:
    refused(["export", "cli_net.py:build", "-o", "nowhere/out.onnx"], 2, "nowhere does not exist")


def test_a_folder_as_output(folder: Path) -> None:
    refused(["export", "cli_net.py:build", "-o", str(folder)], 2, "it is a folder")


def test_a_read_only_folder(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write everywhere")
    refused(["export", "cli_net.py:build", "-o", "closed/out.onnx"], 2, "is read-only")


@pytest.fixture
def exported(folder: Path) -> Path:
    path = folder / "linear.onnx"
    example = torch.ones(2, 6)
    anyshape.export(
        torch.nn.Linear(6, 3), example, path, shapes={"input": "batch, 6"}, dims={"batch": "1..64"}
    )
    return path


COMMANDS = [["show"], ["run"], ["verify", "--against", "cli_net.py:build"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_onnx_file_that_is_not_there(command: list[str]) -> None:
    refused([*command, "missing.onnx"], 2, "there is no file missing.onnx")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_truncated_onnx_file(exported: Path, command: list[str]) -> None:
    exported.write_bytes(exported.read_bytes()[:200])
    refused([*command, str(exported)], 2, "is not a whole ONNX file", "Export it again.")


def test_verify_of_a_model_that_is_not_there(exported: Path) -> None:
    refused(["verify", str(exported), "--against", "missing.py:build"], 2, "there is no file missing.py")


def test_run_at_unknown_or_forbidden_sizes(exported: Path) -> None:
    refused(["run", str(exported), "--size", "seq=4"], 2, "there is no dim seq", "The dims are: batch.")
    refused(["run", str(exported), "--size", "batch=65"], 2, "batch is 65, outside 1 ≤ batch ≤ 64")
    refused(["run", str(exported), "--size", "batch=four"], 2, "whole number", "^")
    refused(["run", str(exported), "--size", "batch=-1"], 2, "whole number", "^")


MISTAKES = [
    (exporting("missing.py:build"), 2, "FileError", None),
    (exporting("cli_net.py:build", "--shape", "tokens=batch, seq+"), 2, "ParseError", None),
    (exporting("cli_net.py:build", "--shape", "ids=batch, seq"), 2, "DeclarationError", None),
    (exporting("cli_net.py:raising"), 1, "ModelFault", 18),
    (["show", "missing.onnx"], 2, "FileError", None),
    (["run", "missing.onnx"], 2, "FileError", None),
    (["verify", "missing.onnx", "--against", "cli_net.py:build"], 2, "FileError", None),
]


@pytest.mark.parametrize(("arguments", "code", "kind", "line"), MISTAKES)
def test_an_error_as_json(arguments: list[str], code: int, kind: str, line: int | None) -> None:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == code
    error: dict[str, Any] = json.loads(result.stdout)["error"]
    assert error["kind"] == kind and error["message"]
    assert (error["where"] or {}).get("line") == line
    assert "Traceback" not in result.output


def test_verbose_shows_the_traceback() -> None:
    result = CliRunner().invoke(app, exporting("cli_net.py:raising", "-v"))
    assert result.exit_code == 1
    assert "Traceback" in result.stderr and "no such head" in result.stderr


def test_what_nobody_expected_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the sky fell")

    monkeypatch.setattr("anyshape.artifact.read.read_model", broken)
    said = refused(["show", "out.onnx"], 70, "anyshape made a mistake", "RuntimeError: the sky fell", "-v")
    assert len(said.strip().splitlines()) <= 2
    told = CliRunner().invoke(app, ["show", "out.onnx", "-v"])
    assert told.exit_code == 70 and "torch 2." in told.stderr and "Traceback" in told.stderr


def test_an_interruption_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anyshape.models.name.load_target", interrupted)
    said = refused(exporting("cli_net.py:build"), 130, "interrupted")
    assert len(said.strip().splitlines()) == 1
