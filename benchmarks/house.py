#!/usr/bin/env python3
"""The rooms of the package and who imports whom, drawn from the source for ARCHITECTURE.md.

    python benchmarks/house.py            # the drawing, and every import that goes up
    python benchmarks/house.py --write    # put the drawing into ARCHITECTURE.md
    python benchmarks/house.py --check    # exit code 1 if the drawing is old, or an import goes up

The order of the rooms is the list under "The house" in that document. A room imports only from those below it; one
that is "beside" another shares its storey, and neither imports the other. Imports within functions count, and so do
those for type checkers. The package itself (``import anyshape``) is the front door: only the terminal goes through it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "anyshape"
START, END = "<!-- drawn by benchmarks/house.py: start -->", "<!-- drawn by benchmarks/house.py: end -->"
FRONT = ("__init__.py", "__main__.py", "py.typed")  # above all rooms
FRONT_DOOR = "cli/"  # the room that may use the package as its users do


@dataclass(frozen=True, slots=True)
class Room:
    """A folder or a file at the top of the package: its name, as ``probe/`` or ``judge.py``, and its storey."""

    name: str
    words: str
    storey: int


@dataclass(frozen=True, slots=True)
class Import:
    """One room takes something from another, at a line."""

    importer: str
    imported: str
    where: str


def rooms_of(text: str) -> list[Room]:
    """The rooms as the document lists them, top to bottom.

    >>> [(room.name, room.storey) for room in rooms_of(
    ...     "## The house\\n```\\na.py  first\\nb/    beside a.py: next\\nc.py  last\\n```")]
    [('a.py', 0), ('b/', 0), ('c.py', 1)]
    """
    block = re.search(r"^## The house\n.*?^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if block is None:
        raise SystemExit(f"{DOCUMENT.name} has no fenced list under '## The house'")
    made: list[Room] = []
    for line in filter(str.strip, block[1].splitlines()):
        name, _, words = line.strip().partition(" ")
        words = words.strip()
        storey = made[-1].storey + (not words.startswith("beside ")) if made else 0
        made.append(Room(name, words, storey))
    return made


def rooms_there(source: Path = SOURCE) -> set[str]:
    """The rooms that lie at the top of the package."""
    entries = [path for path in source.iterdir() if path.name != "__pycache__" and path.name not in FRONT]
    return {path.name + "/" if path.is_dir() else path.name for path in entries}


def imports_of(source: Path = SOURCE) -> list[Import]:
    """Every import between two rooms, and those of the front door, in the order of the files."""
    there = rooms_there(source)
    found = []
    for path in sorted(source.rglob("*.py")):
        top = path.relative_to(source).parts[0]
        importer = top + "/" if (source / top).is_dir() else top
        if importer in FRONT:
            continue
        for line, module in _modules(ast.parse(path.read_text(encoding="utf-8"))):
            imported = _room(module, there)
            if imported != importer:
                found.append(Import(importer, imported, f"{path.relative_to(source.parent)}:{line}"))
    return found


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The modules of the package that a file's imports name, as ``dims.expr``, each with its line."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == SOURCE.name):
            # A relative import is written nowhere in the package: it is taken for one of the front door.
            names = [f"{SOURCE.name}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        for name in names:
            package, _, module = name.partition(".")
            if package == SOURCE.name:
                yield node.lineno, module


def _room(module: str, there: set[str]) -> str:
    """The room of a module; the front door for a name that the package itself gives."""
    top = module.split(".")[0]
    return next((room for room in (f"{top}/", f"{top}.py") if room in there), FRONT[0])


def faults_of(rooms: list[Room], imports: list[Import]) -> list[str]:
    """Every import that does not go down, in words."""
    storeys = {room.name: room.storey for room in rooms}
    told = []
    for each in imports:
        if each.imported == FRONT[0]:
            if each.importer != FRONT_DOOR:
                told.append(f"{each.where}: {each.importer} imports the package itself")
        elif storeys.get(each.imported, 0) <= storeys.get(each.importer, 0):
            told.append(f"{each.where}: {each.importer} imports {each.imported}, which is not below it")
    return told


def drawn(rooms: list[Room], imports: list[Import]) -> str:
    """For each room those that it imports, nearest first, but for what these import in their turn.

    >>> top, middle, bottom = (Room(name, "", k) for k, name in enumerate("abc"))
    >>> print(drawn([top, middle, bottom], [Import("a", "b", ""), Import("b", "c", ""), Import("a", "c", "")]))
    a → b
    b → c
    c
    """
    below = {room.name: {each.imported for each in imports if each.importer == room.name} for room in rooms}
    names = [room.name for room in rooms]
    reach: dict[str, set[str]] = {}
    for name in reversed(names):
        near = below[name] & set(reach)
        reach[name] = near.union(*(reach[other] for other in near))
    width = max(map(len, names))
    lines = []
    for name in names:
        near = {other for other in below[name] if not any(other in reach.get(k, ()) for k in below[name])}
        ordered = [other for other in names if other in near]
        lines.append(f"{name:<{width}} → {', '.join(ordered)}" if ordered else name)
    return "\n".join(lines)


def with_drawing(text: str, drawing: str) -> str:
    """The document with its drawing renewed."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"{DOCUMENT.name} has no place for the drawing: {START} … {END}")
    return f"{before}{START}\n```\n{drawing}\n```\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the drawing into ARCHITECTURE.md")
    parser.add_argument("--check", action="store_true", help="exit code 1 if it is old, or an import goes up")
    given = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    rooms, imports = rooms_of(text), imports_of()
    faults = faults_of(rooms, imports)
    new = with_drawing(text, drawn(rooms, imports))
    if given.write:
        DOCUMENT.write_text(new, encoding="utf-8")
    elif new != text:
        faults.append(f"the drawing in {DOCUMENT.name} is old: run benchmarks/house.py --write")
    if not given.check and not given.write:
        print(drawn(rooms, imports))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
