"""The house: the rooms of the package lie as ARCHITECTURE.md lists them, and imports go down."""

from __future__ import annotations

import doctest
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "benchmarks" / "house.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


house = _house()
TEXT = house.DOCUMENT.read_text(encoding="utf-8")
ROOMS = house.rooms_of(TEXT)


def test_every_room_is_listed_once() -> None:
    listed = [room.name for room in ROOMS]
    assert len(listed) == len(set(listed))
    assert set(listed) == house.rooms_there()
    assert all(room.words for room in ROOMS)


def test_imports_go_down() -> None:
    faults = house.faults_of(ROOMS, house.imports_of())
    assert not faults, "\n".join(faults)


def test_the_drawing_is_true() -> None:
    drawing = house.drawn(ROOMS, house.imports_of())
    assert house.with_drawing(TEXT, drawing) == TEXT, "run benchmarks/house.py --write"


def test_the_examples() -> None:
    assert doctest.testmod(house).failed == 0


def small_house(folder: Path, **files: str) -> Path:
    """A package of three storeys, top, middle beside other, bottom, with this text in its files."""
    source = folder / "anyshape"
    for name in ("top/__init__", "top/deep", "middle", "other", "bottom/__init__", "__init__"):
        path = source / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files.get(name.replace("/", "_"), ""))
    return source


LISTED = """## The house

```
top/      the first
middle.py the second
other.py  beside middle.py: the same
bottom/   the last
```
"""


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"top_deep": "from anyshape.middle import x\nimport anyshape.bottom\nfrom anyshape import other"},
            [],
        ),
        ({"top___init__": "from anyshape.top.deep import x"}, []),
        ({"__init__": "import anyshape.top"}, []),
        ({"bottom___init__": "import anyshape.top.deep"}, ["bottom/__init__.py:1: bottom/ imports top/"]),
        ({"middle": "import os\nfrom anyshape import top"}, ["middle.py:2: middle.py imports top/"]),
        ({"middle": "from anyshape.other import x"}, ["middle.py:1: middle.py imports other.py"]),
        (
            {"other": "def f():\n    from anyshape.middle import x"},
            ["other.py:2: other.py imports middle.py"],
        ),
        (
            {"middle": "if TYPE_CHECKING:\n    from anyshape.top import x"},
            ["middle.py:2: middle.py imports top/"],
        ),
        ({"middle": "import anyshape"}, ["middle.py:1: middle.py imports the package itself"]),
        ({"middle": "from anyshape import export"}, ["middle.py:1: middle.py imports the package itself"]),
        ({"middle": "from . import other"}, ["middle.py:1: middle.py imports other.py"]),
    ],
)
def test_an_import_that_goes_up_is_told(tmp_path: Path, files: dict[str, str], told: list[str]) -> None:
    source = small_house(tmp_path, **files)
    faults = house.faults_of(house.rooms_of(LISTED), house.imports_of(source))
    assert [fault.removeprefix("anyshape/").split(", which")[0] for fault in faults] == told


def test_rooms_that_are_not_listed(tmp_path: Path) -> None:
    source = small_house(tmp_path)
    (source / "py.typed").touch()
    assert house.rooms_there(source) == {room.name for room in house.rooms_of(LISTED)}
    (source / "helpers.py").touch()
    assert "helpers.py" in house.rooms_there(source)


def test_the_script_writes_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "ARCHITECTURE.md"
    document.write_text(TEXT.replace("→", "to"), encoding="utf-8")
    monkeypatch.setattr(house, "DOCUMENT", document)

    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["house.py", *options])
        return int(house.main())

    assert run("--check") == 1 and "is old" in capsys.readouterr().err
    assert run("--write") == 0 and run("--check") == 0
    assert run() == 0 and "errors.py" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["# No house\n", "## The house\n```\na.py  a room\n```\n"])
def test_a_document_without_its_parts(text: str) -> None:
    with pytest.raises(SystemExit, match=r"ARCHITECTURE.md has no (fenced list|place for the drawing)"):
        house.with_drawing(text, house.drawn(house.rooms_of(text), []))
