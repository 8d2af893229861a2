"""``anyshape repair``: the diff, the files written and exported again, and everything as it was where that fails."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import anyshape.repair.edit
from anyshape.cli import app
from anyshape.errors import FileError

BROKEN = """import torch
from torch import nn


class Upsample(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)

    def forward(self, image):
        small = self.down(image)
        back = nn.functional.interpolate(small, size=(32, 48), mode="nearest")  # as large as before
        return torch.cat([image, back], 1)


class Helped(nn.Module):
    def forward(self, x):
        return x + table()


def table():
    return torch.arange(6)


def build():
    return Upsample(), (torch.randn(2, 3, 32, 48),)


def clean():
    return nn.Linear(4, 3), (torch.randn(2, 4),)


def helped():
    return Helped(), (torch.randn(2, 6),)
"""
DIFF = """\
--- a/{name}.py
+++ b/{name}.py
@@ -9,7 +9,7 @@
{space}
     def forward(self, image):
         small = self.down(image)
-        back = nn.functional.interpolate(small, size=(32, 48), mode="nearest")  # as large as before
+        back = nn.functional.interpolate(small, size=image.shape[-2:], mode="nearest")  # as large as before
         return torch.cat([image, back], 1)
{space}
{space}
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of its own for each test: what was imported stays imported."""
    made = f"fix_{request.node.originalname}"
    (tmp_path / f"{made}.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    return made


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["repair", *arguments])


def test_the_diff(name: str) -> None:
    done = call(f"{name}.py:build")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(DIFF.format(name=name, space=" "))
    assert done.stdout.rstrip().endswith("sizes. Apply it with --write.")
    assert Path(f"{name}.py").read_text() == BROKEN


def test_written_and_exported_again(name: str) -> None:
    done = call(f"{name}.py:build", "--write", "--json")
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["written"] is True
    assert [(each["value"], each["text"]) for each in told["repairs"]] == [
        (32, "image.shape[-2]"),
        (48, "image.shape[-1]"),
    ]
    assert told["repairs"][0]["where"]["line"] == 12
    assert Path(f"{name}.py").read_text() == BROKEN.replace("(32, 48), mode", "image.shape[-2:], mode")


def test_put_back_if_the_changed_source_can_not_be_exported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: Any, **kwargs: Any) -> Any:
        said = json.dumps({"error": {"message": "it rains"}})
        return subprocess.CompletedProcess(args, 1, stdout=said, stderr="")

    monkeypatch.setattr(subprocess, "run", failing)
    done = call(f"{name}.py:build", "--write")
    assert done.exit_code == 1
    assert "the changed source can't be exported, so it was put back as it was: it rains" in done.stderr
    assert Path(f"{name}.py").read_text() == BROKEN


def test_nothing_to_repair(name: str) -> None:
    done = call(f"{name}.py:clean")
    assert (
        done.exit_code == 0
        and done.stdout.strip() == "Nothing to repair: no size is written into the source."
    )


def test_a_size_that_has_to_be_handed_in(name: str) -> None:
    done = call(f"{name}.py:helped", "--write")
    assert done.exit_code == 1
    assert done.stderr == textwrap.dedent(f"""\
        6 is x axis 1 at the example, and no tensor in table has that size: it has to be handed in
          at {name}.py:22    return torch.arange(6)
        {" " * len(f"  at {name}.py:22    return torch.arange(")}^
        Give the function a tensor, or the size; until then export with repair=True.
        """)
    assert Path(f"{name}.py").read_text() == BROKEN


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="can't be written: No such file or directory"):
        anyshape.repair.edit.write({str(tmp_path / "nowhere" / "net.py"): "x = 1\n"})


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "anyshape", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "repair" in done.stdout
