"""The command line, where the call is right: what a person sees, what --json gives, and the exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

import anyshape
from anyshape.cli import app
from anyshape.cli.options import read_dims, read_shapes, read_sizes
from anyshape.cli.verify import marked
from anyshape.errors import ParseError, SourceLine

NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, tokens):
        print("forward")
        return self.head(self.table(tokens))


class Branching(Net):
    def forward(self, tokens):
        x = self.table(tokens)
        if x.shape[1] > 8:
            x = x[:, :8]
        return self.head(x)


def build():
    torch.manual_seed(0)
    return Net(), torch.randint(0, 20, (2, 6))


def branching():
    torch.manual_seed(0)
    return Branching(), torch.randint(0, 20, (2, 6))
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with models, an export of ours, and one of torch's older exporter."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop_net.py").write_text(NET)
    path = list(sys.path)
    result = CliRunner().invoke(app, ["export", f"{folder}/shop_net.py:build", "-o", f"{folder}/net.onnx"])
    assert result.exit_code == 0, result.output
    (folder / "export.txt").write_text(result.stdout)
    model, tokens = sys.modules["shop_net"].branching()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (tokens,),
            str(folder / "old.onnx"),
            dynamo=False,
            input_names=["tokens"],
            output_names=["logits"],
            dynamic_axes={"tokens": {0: "batch", 1: "seq"}},
        )
    yield folder
    sys.modules.pop("shop_net", None)
    sys.path[:] = path


@pytest.fixture(autouse=True)
def in_shop(shop: Path, in_a_folder_of_its_own: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def as_json(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == code, result.output
    made: dict[str, Any] = json.loads(result.stdout)  # one object and nothing else
    return made


def test_export_tells_station_by_station_then_the_contract_and_the_file(shop: Path) -> None:
    lines = (shop / "export.txt").read_text().splitlines()
    assert lines[0] == "  read      1 input, 1 output, 141 parameters"
    assert [line.split()[0] for line in lines[:6]] == [
        "read",
        "probe",
        "capture",
        "lower",
        "optimize",
        "verify",
    ]
    assert lines[6:10] == [
        "",
        "  tokens  int64    [batch, seq]     batch ≥ 0",
        "  output  float32  [batch, seq, 3]  seq ≥ 0",
        "",
    ]
    assert lines[-1].startswith(f"  {shop}/net.onnx   ") and lines[-1].endswith(" s")


def test_what_the_model_prints_stays_apart(shop: Path) -> None:
    assert "forward" not in (shop / "export.txt").read_text()


def test_export_as_json_with_inputs_from_the_command_line() -> None:
    made = as_json(
        "export",
        "shop_net.py:Net",
        "-o",
        "small.onnx",
        "--input",
        "tokens=int64[b=2,n=6]<20",
        "--dim",
        "n=1..16",
    )
    assert made["path"] == "small.onnx" and made["verdict"]["right"] and made["rung"]
    assert made["contract"]["inputs"][0]["shape"] == ["b", "n"]
    assert made["contract"]["dims"][1]["range"] == "1..16"
    assert anyshape.load("small.onnx")(tokens=torch.tensor([[1, 2]])).shape == (1, 2, 3)


def test_a_proof_is_asked_for_on_the_command_line() -> None:
    plain = as_json("export", "shop_net.py:build", "-o", "plain.onnx")
    proved = as_json("export", "shop_net.py:build", "-o", "proved.onnx", "--prove")
    assert (plain["rung"], proved["rung"]) == ("differential", "symbolic")
    for made, evidence in ((plain, "sampled"), (proved, "proved")):
        assert {dim["evidence"] for dim in made["contract"]["dims"]} == {evidence}
        assert bool(made["verdict"]["proved"]) == (evidence == "proved")


def test_the_output_is_called_after_the_file() -> None:
    assert as_json("export", "shop_net.py:build")["path"] == "shop_net.onnx"
    assert Path("shop_net.onnx").exists()


def test_a_shape_on_the_command_line_names_the_dims() -> None:
    made = as_json("export", "shop_net.py:build", "-o", "named.onnx", "--shape", "tokens=rows, columns")
    assert [dim["name"] for dim in made["contract"]["dims"]] == ["rows", "columns"]


def test_show_ours() -> None:
    text = call("show", "net.onnx").stdout
    assert "tokens  int64    [batch, seq]" in text
    assert "weights   3, " in text and "nodes     3: " in text and "anyshape " in text
    made = as_json("show", "net.onnx")
    assert made["contract"]["dims"][0]["name"] == "batch" and made["weights"]["count"] == 3


def test_show_anothers() -> None:
    text = call("show", "old.onnx").stdout
    assert "tokens  int64    [batch, seq]" in text and "There is no contract in this file" in text
    made = as_json("show", "old.onnx")
    assert made["contract"] is None
    assert made["inputs"] == [{"name": "tokens", "dtype": "int64", "shape": ["batch", "seq"]}]


def test_verify_a_right_file() -> None:
    result = call("verify", "net.onnx", "--against", "shop_net.py:build")
    assert result.exit_code == 0, result.output
    assert re.match(r"  Right at \d+ sizes on ONNX Runtime, worst error ", result.stdout)


def test_verify_a_wrong_file_as_a_person_sees_it() -> None:
    result = call("verify", "old.onnx", "--against", "shop_net.py:branching")
    assert result.exit_code == 1
    assert result.stdout == (
        "  Wrong at seq = 9  (batch does not matter; right where seq ≤ 8)\n"
        "\n"
        "    shop_net.py:18    if x.shape[1] > 8:\n"
        "                         ^^^^^^^^^^^^^^\n"
        "    The file follows the branch of seq = 6 at every size:\n"
        "    logits has shape [1, 9, 3], expected [1, 8, 3].\n"
        "\n"
        "  Export again with anyshape: anyshape export shop_net.py:branching\n"
    )


def test_verify_a_wrong_file_as_json() -> None:
    made = as_json("verify", "old.onnx", "--against", "shop_net.py:branching", code=1)
    assert made["right"] is False
    assert made["failure"]["sizes"] == {"batch": 1, "seq": 9} and made["failure"]["idle"] == ["batch"]
    assert made["failure"]["where"] == {"file": "shop_net.py", "line": 18, "text": "if x.shape[1] > 8:"}


def test_verify_says_more_with_v() -> None:
    result = call("verify", "net.onnx", "--against", "shop_net.py:build", "-v")
    assert "  probe     " in result.stdout and "right    batch = 2, seq = 6" in result.stdout


def test_run_gives_shapes_and_digests() -> None:
    text = call("run", "net.onnx", "--size", "batch=4,seq=9").stdout
    assert text.startswith("  batch = 4, seq = 9, seed 0\n\n  output  float32  [4, 9, 3]  mean ")
    first = as_json("run", "net.onnx", "--size", "seq=9")
    assert first["sizes"] == {"batch": 2, "seq": 9}
    assert first == as_json("run", "net.onnx", "--size", "seq=9")
    other = as_json("run", "net.onnx", "--size", "seq=9", "--seed", "1")
    assert first["outputs"][0]["sha256"] != other["outputs"][0]["sha256"]


def test_run_on_empty_inputs() -> None:
    made = as_json("run", "net.onnx", "--size", "seq=0")
    assert made["outputs"][0]["shape"] == [2, 0, 3] and "mean" not in made["outputs"][0]


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("if x.shape[1] > 8:", "   ^^^^^^^^^^^^^^"),
        ("elif n > 8:", "     ^^^^^"),
        ("return a if n > 8 else b", "            ^^^^^"),
        ("y = x.view(2, n)", "^^^^^^^^^^^^^^^^"),
    ],
)
def test_marks_stand_under_the_condition(line: str, marks: str) -> None:
    shown = marked(SourceLine("net.py", 41, line))
    assert shown == [f"net.py:41    {line}", " " * len("net.py:41    ") + marks]


def test_options_are_read_with_a_caret_at_the_mistake() -> None:
    assert read_shapes(["x = batch, 3"]) == {"x": " batch, 3"}
    assert read_dims(["seq=1..512", "n>=2"]) == {"seq": "1..512", "n": ">=2"}
    for read, text in (
        (read_shapes, "tokens"),
        (read_shapes, "x=batch,,3"),
        (read_dims, "1..5"),
        (read_sizes, "a=x"),
    ):
        with pytest.raises(ParseError, match=r"\^"):
            read([text])


def test_ctrl_c_is_one_line_and_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anyshape.models.name.load_target", interrupted)
    before = Path("net.onnx").read_bytes()
    result = call("export", "shop_net.py:build", "-o", "net.onnx")
    assert result.exit_code == 130
    assert result.stderr == "interrupted: nothing was written\n"
    assert Path("net.onnx").read_bytes() == before


def test_a_bug_of_ours_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("out of\ncheese")

    monkeypatch.setattr("anyshape.models.name.load_target", broken)
    result = call("export", "shop_net.py:build", "-o", "bug.onnx")
    assert result.exit_code == 70
    assert result.stderr.splitlines() == [
        "anyshape made a mistake while it was running the command: RuntimeError: out of cheese",
        "Your model is not at fault. Please report it, with what -v prints, or with `error.report`.",
    ]
    assert "Traceback" in call("export", "shop_net.py:build", "-o", "bug.onnx", "-v").stderr
    told = as_json("export", "shop_net.py:build", "-o", "bug.onnx", code=70)["error"]
    assert told["kind"] == "InternalError" and "out of\ncheese" in told["report"]


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from anyshape.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_script_itself() -> None:
    """Help without torch, exit codes from a shell's point of view, and JSON even for a call that does not parse."""
    quick = "import sys, anyshape.cli; assert 'torch' not in sys.modules and 'onnx' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", quick], check=False).returncode == 0
    assert script("--help").returncode == 0
    assert script("show", "missing.onnx").returncode == 2
    assert script("verify", "net.onnx").returncode == 2
    refused = script("verify", "net.onnx", "--json")
    assert refused.returncode == 2 and "--against" in json.loads(refused.stdout)["error"]["message"]
    assert script("show", "net.onnx").stdout.startswith("  tokens  int64")  # plain: no colours in a pipe
