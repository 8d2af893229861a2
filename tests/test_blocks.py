"""Which loop or branch a line stands at or in."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyshape.errors import SourceLine
from anyshape.source.blocks import head_of, loop_around
from anyshape.source.lines import line_at

SOURCE = """def forward(x, layers):
    for step in range(
        len(x),
    ):
        x = x + step
        if x > 3:
            x = x - 1
    while x > 4:
        x = [y * 2 for y in range(x)] if x else [
            0
        ]
    x = sum(
        item + 1
        for item in range(3)
    )

    for layer in layers:

        def inner(y):
            return y + 1

        x = inner(layer)
    return x
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "blocks_source.py").write_text(SOURCE)
    return str(tmp_path / "blocks_source.py")


@pytest.mark.parametrize(
    ("line", "head"),
    [
        (1, ""),
        (2, "for"),
        (3, "for"),
        (5, ""),
        (6, "if"),
        (7, ""),
        (8, "while"),
        (13, ""),
        (14, "for"),
        (23, ""),
    ],
)
def test_heads(source: str, line: int, head: str) -> None:
    assert head_of(line_at(source, line)) == head


@pytest.mark.parametrize(
    ("line", "loop"), [(5, 2), (7, 2), (9, 9), (2, 2), (12, None), (22, 17), (20, None), (23, None)]
)
def test_the_loop_around_a_line(source: str, line: int, loop: int | None) -> None:
    found = loop_around(line_at(source, line))
    assert (found.line if found else None) == loop


def test_files_that_can_not_be_read() -> None:
    assert head_of(SourceLine("nowhere.py", 3)) == ""
    assert loop_around(SourceLine("nowhere.py", 3)) is None


def test_files_that_are_not_python(tmp_path: Path) -> None:
    (tmp_path / "blocks_broken.py").write_text("for (\n")
    assert head_of(line_at(str(tmp_path / "blocks_broken.py"), 1)) == ""
