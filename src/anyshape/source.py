"""From a stack of frames to the one line of source a person should look at."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import traceback
import types
from collections.abc import Sequence

import torch

from anyshape.errors import SourceLine

__all__ = [
    "first_line",
    "innermost_caller",
    "innermost_line",
    "is_library",
    "line_at",
    "line_of_exception",
    "path_of",
]

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
STANDARD_FOLDER = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
CALLERS = (
    OWN_FOLDER + "read.py",
    os.path.join(OWN_FOLDER, "capture", "symbolic.py"),
    os.path.join(OWN_FOLDER, "capture", "differential.py"),
)  # where the model is called from


def line_of_exception(error: BaseException) -> SourceLine | None:
    """The innermost line of the user's (or a library's) code in a traceback: never PyTorch's, never ours."""
    return innermost_line([(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)])


def first_line(error: BaseException) -> str:
    """An exception in one line: ``IndexError: index out of range in self``."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def innermost_line(frames: Sequence[tuple[str, int]]) -> SourceLine | None:
    """The last of ``frames`` (outermost first) inside the model that is neither PyTorch's nor this package's."""
    for filename, line in reversed(frames):
        if filename in CALLERS:
            return None  # further out is who called us, not the model
        if _is_theirs(filename):
            return line_at(filename, line)
    return None


def innermost_caller() -> SourceLine | None:
    """The innermost line of the model that is running now."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename in CALLERS:
            return None
        if _is_theirs(filename):
            return line_at(filename, frame.f_lineno)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=4096)
def line_at(filename: str, line: int) -> SourceLine:
    """A line of a file, named as a person would, with its text if the file can be read."""
    return SourceLine(_short(filename), line, linecache.getline(filename, line).strip())


def path_of(where: SourceLine) -> str:
    """The path of a line's file, among the files that were read to say their lines; its short name if none fits."""
    return next((path for path in list(linecache.cache) if _short(path) == where.file), where.file)


def is_library(where: SourceLine) -> bool:
    """Whether a line is of an installed library or of Python's own, not of the user's files."""
    path = os.path.abspath(path_of(where))
    return f"{os.sep}site-packages{os.sep}" in path or path.startswith(STANDARD_FOLDER)


@functools.lru_cache(maxsize=4096)
def _is_theirs(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    full = os.path.abspath(filename)
    return not full.startswith((TORCH_FOLDER, OWN_FOLDER)) and not full.endswith(
        ("/contextlib.py", "/functools.py")
    )


def _short(filename: str) -> str:
    """The file as a person would say it: relative to here if it lies below here, else its name in its library."""
    full = os.path.abspath(filename)
    _, packages, inside = full.rpartition(f"site-packages{os.sep}")
    if packages:
        return inside
    here = os.getcwd() + os.sep
    return full[len(here) :] if full.startswith(here) else os.path.basename(full)
