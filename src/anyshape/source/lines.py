"""From a stack of frames to the one line of source a person should look at."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from anyshape.errors import SourceLine

__all__ = [
    "TORCH_FOLDER",
    "calls_the_model",
    "first_line",
    "innermost_caller",
    "innermost_line",
    "is_library",
    "is_ours",
    "is_own_mistake",
    "let_go",
    "line_at",
    "line_of",
    "line_of_exception",
    "path_of",
    "words_of",
]

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
STANDARD_FOLDER = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
PACKAGE = __name__.partition(".")[0]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_CALLERS: set[tuple[str, int]] = set()  # file and line of the calls in functions that call the model

MOST_KEPT = 4096
_called: dict[tuple[int, int], tuple[SourceLine, SourceLine, SourceLine]] = {}  # lines, with their callers

MISTAKES = (AssertionError, AttributeError, KeyError, NameError)


def calls_the_model(function: _Function) -> _Function:
    """Marks a function of ours that calls the model: further out on the stack is who called us, not the model."""
    code = function.__code__
    _CALLERS.update((code.co_filename, line) for _, _, line in code.co_lines() if line is not None)
    return function


def is_own_mistake(error: BaseException) -> bool:
    """Whether an exception that came out of a model was raised by our own Python, which its calls go through.

    PyTorch's objections to an argument reach us there, too: those are of other kinds.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, MISTAKES):
        return False
    return is_ours(os.path.abspath(trace.tb_frame.f_code.co_filename))


def line_of_exception(error: BaseException) -> SourceLine | None:
    """The innermost line of the user's (or a library's) code in a traceback: never PyTorch's, never ours."""
    return innermost_line([(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)])


def let_go(error: BaseException | None) -> None:
    """Frees what the frames of an exception hold, such as all tensors of a run; its lines are still known.

    Frames further out, which have ended since, hang on to those of the traceback.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        trace = error.__traceback__
        traceback.clear_frames(trace)
        outer = None if trace is None else trace.tb_frame.f_back
        with contextlib.suppress(RuntimeError):  # one that is still running
            while outer is not None:
                outer.clear()
                outer = outer.f_back
        error = error.__cause__ or error.__context__


def first_line(error: BaseException) -> str:
    """An exception in one line: ``IndexError: index out of range in self``."""
    lines = words_of(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def words_of(error: BaseException) -> str:
    """What an exception says; nothing, where even that raises."""
    try:
        return str(error).strip()
    except Exception:  # a stranger's __str__
        return ""


def innermost_line(frames: Sequence[tuple[str, int]]) -> SourceLine | None:
    """The last of ``frames`` (outermost first) inside the model that is neither PyTorch's nor this package's.

    If that is a library's, the user's own line that led there is its caller.
    """
    return _innermost(reversed(frames))


def _innermost(frames: Iterable[tuple[str, int]]) -> SourceLine | None:
    found: SourceLine | None = None
    for filename, line in frames:
        if (filename, line) in _CALLERS:
            break
        if not _is_theirs(filename):
            continue
        if found is not None and not _is_library(filename):
            return _called_by(found, line_at(filename, line))
        found = found or line_at(filename, line)
        if not _is_library(filename):
            break
    return found


def innermost_caller() -> SourceLine | None:
    """The innermost line of the model that is running now."""
    return _innermost(_frames(sys._getframe(1)))


def _frames(frame: types.FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _called_by(where: SourceLine, caller: SourceLine) -> SourceLine:
    key = id(where), id(caller)  # equal lines may have other callers
    known = _called.get(key)
    if known is None or known[0] is not where or known[1] is not caller:
        if len(_called) > MOST_KEPT:
            _called.clear()
        known = _called[key] = where, caller, replace(where, caller=caller)
    return known[2]


@functools.lru_cache(maxsize=4096)
def line_at(filename: str, line: int) -> SourceLine:
    """A line of a file, named as a person would, with its text if the file can be read."""
    return SourceLine(_short(filename), line, line_of(filename, line).strip())


def line_of(filename: str, line: int) -> str:
    """The text of a line, indented as it is."""
    return linecache.getline(filename, line)


def path_of(where: SourceLine) -> str:
    """The path of a line's file, among the files that were read to say their lines; its short name if none fits."""
    return next((path for path in list(linecache.cache) if _short(path) == where.file), where.file)


def is_library(where: SourceLine) -> bool:
    """Whether a line is of an installed library or of Python's own, not of the user's files."""
    path = os.path.abspath(path_of(where))
    return _is_library(path) or path.startswith(STANDARD_FOLDER)


@functools.lru_cache(maxsize=4096)
def _is_theirs(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    full = os.path.abspath(filename)
    between = full.endswith(("/contextlib.py", "/functools.py"))
    return not between and not full.startswith(TORCH_FOLDER) and not is_ours(full)


def is_ours(path: str) -> bool:
    """Whether a file is one of this package's modules, wherever they lie."""
    return path in _own_files(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _own_files(loaded: int) -> frozenset[str]:
    """The files of the modules of this package that are loaded: looked up again when more modules are."""
    own = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == PACKAGE]
    files = [getattr(module, "__file__", None) for module in own]
    return frozenset(os.path.abspath(file) for file in files if file)


def _is_library(filename: str) -> bool:
    return f"site-packages{os.sep}" in filename


def _short(filename: str) -> str:
    """The file as a person would say it: relative to here if it lies below here, else its name in its library."""
    full = os.path.abspath(filename)
    _, packages, inside = full.rpartition(f"site-packages{os.sep}")
    if packages:
        return inside
    here = os.getcwd() + os.sep
    return full[len(here) :] if full.startswith(here) else os.path.basename(full)
