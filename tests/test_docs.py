"""The documents: every command and every Python block runs as shown, every link leads somewhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language and text."""

    language: str
    text: str


def sections(path: Path) -> dict[str, list[Block]]:
    """The fenced blocks under each heading; each section stands by itself."""
    made: dict[str, list[Block]] = {}
    heading, language, lines = "top", None, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```") and language is None:
            language, lines = line[3:].strip(), []
        elif line.startswith("```"):
            made.setdefault(heading, []).append(Block(str(language), "\n".join(lines)))
            language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("## "):
            heading = line[3:]
    return made


def to_run() -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(ROOT)), heading)
        for path in DOCUMENTS
        for heading, blocks in sections(path).items()
        if any(block.language in ("console", "sh", "python") for block in blocks)
    ]


@dataclass(slots=True)
class Command:
    """A line after ``$``, what is shown below it, and the exit code that ``echo $?`` shows."""

    line: str
    shown: list[str]
    code: int = 0


def commands(text: str) -> list[Command]:
    made: list[Command] = []
    asks = False
    for line in text.splitlines():
        if line == "$ echo $?":
            asks = True
        elif line.startswith("$ "):
            made.append(Command(line[2:], []))
        elif asks:
            made[-1].code, asks = int(line), False
        elif made:
            made[-1].shown.append(line)
    return made


def rough(line: str) -> str:
    """A line without its numbers and digests, which differ from one machine to the next."""
    line = re.sub(r"sha256 [0-9a-f]+", "sha256 #", line)
    return " ".join(re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", line).split())


def run_command(command: Command, folder: Path) -> None:
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(places), "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(
        command.line, shell=True, cwd=folder, env=environment, capture_output=True, text=True
    )
    printed = done.stdout + done.stderr
    assert done.returncode == command.code, f"$ {command.line}\n{printed}"
    seen = {rough(line) for line in printed.splitlines()}
    missing = [line for line in command.shown if rough(line) not in seen]
    assert not missing, f"$ {command.line}\nnot printed: {missing}\nprinted:\n{printed}"


def run_python(text: str, where: str) -> str:
    """What the block prints."""
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")  # torch's own exporters warn; a reader would see that too
        exec(compile(text, where, "exec"), {"__name__": "__main__"})
    return printed.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples in it, from which they can be imported."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.parametrize(("document", "heading"), to_run())
def test_runs_as_shown(document: str, heading: str, folder: Path) -> None:
    printed = ""
    for block in sections(ROOT / document)[heading]:
        if printed and block.language == "":
            assert block.text == printed.rstrip("\n")
        printed = ""
        if block.language == "python":
            printed = run_python(block.text, f"{document}: {heading}")
        elif block.language in ("console", "sh"):
            for command in commands(block.text):
                if not command.line.startswith("make "):
                    run_command(command, folder)


@pytest.mark.parametrize("document", [str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not broken


def test_make_targets_that_documents_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for path in DOCUMENTS for name in re.findall(r"`?make ([a-z]+)", _code(path))}
    assert named <= targets


def _code(path: Path) -> str:
    """What stands in back-ticks or fenced blocks."""
    text = path.read_text(encoding="utf-8")
    fenced = "\n".join(block.text for blocks in sections(path).values() for block in blocks)
    return fenced + "\n" + "\n".join(re.findall(r"`make [a-z]+`", text))
