"""Edit: repairs as a change of the source, which keeps its formatting and comments: a diff, or the files themselves."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from anyshape.errors import FileError
from anyshape.repair import Repair
from anyshape.source.literals import Literal

__all__ = ["diff", "edited", "unwritten", "write"]

Span = tuple[int, int]  # of characters in the file


def unwritten(repairs: Sequence[Repair]) -> list[Repair]:
    """The repairs that no expression at their place can make: no tensor there has the size."""
    return [repair for repair in repairs if repair.text is None]


def edited(repairs: Sequence[Repair]) -> dict[str, tuple[str, str]]:
    """For each file its source before and after."""
    by_file: dict[str, list[Repair]] = {}
    for repair in repairs:
        if repair.text is not None:
            by_file.setdefault(repair.change.literal.file, []).append(repair)
    made = {}
    for file, here in by_file.items():
        source = _read(file)
        after = source
        for (start, end), text in sorted(_replacements(source, here).items(), reverse=True):
            after = after[:start] + text + after[end:]
        made[file] = source, after
    return made


def diff(files: Mapping[str, tuple[str, str]]) -> str:
    """The edits as a unified diff, with paths as a person would say them from here."""
    parts = []
    for file, (before, after) in files.items():
        name = os.path.relpath(file)
        name = file if name.startswith("..") else name
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
        parts.append(
            "".join(
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
            )
        )
    return "".join(parts)


def write(files: Mapping[str, str]) -> None:
    """Puts the sources in place, each at once: a file is as it was or as it should be, never half."""
    for file, text in files.items():
        folder = os.path.dirname(file)
        try:
            handle, temporary = tempfile.mkstemp(dir=folder, suffix=".py")
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
                out.write(text)
            os.chmod(temporary, os.stat(file).st_mode)
            os.replace(temporary, file)
        except OSError as error:
            raise FileError(f"{file} can't be written: {error.strerror}") from error


def _read(file: str) -> str:
    with Path(file).open(encoding="utf-8", newline="") as handle:
        return handle.read()


def _replacements(source: str, repairs: Sequence[Repair]) -> dict[Span, str]:
    starts = [0, *(match.end() for match in re.finditer("\n", source))]

    def span(literal: Literal) -> Span:
        return starts[literal.line - 1] + literal.column, starts[literal.end_line - 1] + literal.end_column

    made: dict[Span, str] = {}
    by_literal: dict[Literal, list[Repair]] = {}
    for repair in repairs:
        by_literal.setdefault(repair.change.literal, []).append(repair)
    for literal, here in by_literal.items():
        made[span(literal)] = _text(literal, here)
    return dict(_joined(source, made))


def _text(literal: Literal, repairs: Sequence[Repair]) -> str:
    """What stands at a literal afterwards; of a row of numbers, all of them."""
    by_place = {repair.change.place: repair.text or "" for repair in repairs}
    if None in by_place:
        return by_place[None]
    count = max(place for place in by_place if place is not None) + 1
    parts = [by_place.get(place, f"{literal.text}[{place}]") for place in range(count)]
    return _row(parts) or f"({', '.join(parts)})"


def _row(parts: Sequence[str]) -> str | None:
    """``x.shape[-2], x.shape[-1]`` as ``x.shape[-2:]``."""
    found = [re.fullmatch(r"(.+)\.shape\[(-?\d+)\]", part) for part in parts]
    named = [match.group(1) for match in found if match]
    axes = [int(match.group(2)) for match in found if match]
    whole = len(axes) == len(parts) == 2 and len(set(named)) == 1 and axes == [-2, -1]
    return f"{named[0]}.shape[-2:]" if whole else None


def _joined(source: str, made: Mapping[Span, str]) -> Iterator[tuple[Span, str]]:
    """The replacements, with a pair of sizes in brackets of its own as one."""
    spans = sorted(made)
    used: set[Span] = set()
    for one, two in itertools.pairwise(spans):
        between = source[one[1] : two[0]]
        row = _row([made[one], made[two]])
        before = re.search(r"(\w|\)|\])?\s*([(\[])\s*$", source[: one[0]])
        after = re.match(r"\s*,?\s*[)\]]", source[two[1] :])
        if row and between.strip() == "," and before and not before.group(1) and after:
            used |= {one, two}
            yield (before.start(2), two[1] + after.end()), row
    for span in spans:
        if span not in used:
            yield span, made[span]
