"""What can go wrong, as one small tree.

::

    AnyshapeError
    ├── UsageError              the call was wrong (exit code 2)
    │   ├── ParseError          a shape, a range or an input that does not parse: points at the character
    │   ├── DeclarationError    declared shapes or dims contradict each other or the inputs
    │   └── FileError           a path, a source file or an ONNX file that can't be used
    ├── Fault                   the model can't be exported, or a file is wrong (exit code 1)
    │   ├── ModelFault          PyTorch itself refuses the model at its example
    │   ├── HistoryFault        the model's result depends on what it has seen before
    │   ├── ContractFault       declared sizes at which PyTorch itself refuses the model
    │   ├── CaptureFault        a size was specialised, or the trace failed
    │   ├── LowerFault          an operator has no ONNX translation
    │   └── VerifyFault         the ONNX model disagrees with PyTorch at some size
    ├── InputError              a loaded model was called with inputs outside its contract (exit code 2)
    └── InternalError           a mistake of anyshape's own, with what to report (exit code 70)

Every message has up to four parts: what failed, in the user's own names; expected against found;
where; what to do next.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = [
    "AnyshapeError",
    "CaptureFault",
    "ContractFault",
    "DeclarationError",
    "Fault",
    "FileError",
    "HistoryFault",
    "InputError",
    "InternalError",
    "LowerFault",
    "ModelFault",
    "ParseError",
    "SourceLine",
    "UsageError",
    "VerifyFault",
    "own_mistakes",
    "printable",
]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of Python source: ``net.py:41    if x.shape[1] > 8:``."""

    file: str
    line: int
    text: str = ""
    # The columns of the culprits in the text.
    marks: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    # The user's own line, if this one is a library's.
    caller: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f"    {self.text}" if self.text else "")

    def shown(self) -> list[str]:
        """The line as a message has it: with the culprit underlined, and who called it."""
        lines = [f"  at {self}"]
        if self.marks:
            under = [" "] * max(end for _, end in self.marks)
            for start, end in self.marks:
                under[start:end] = "^" * (end - start)
            lines.append(" " * (len(lines[0]) - len(self.text)) + "".join(under))
        if self.caller is not None:
            lines.append(f"  called from {self.caller}")
        return lines


class AnyshapeError(Exception):
    """The root: what failed, then optionally where and what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, where: SourceLine | None = None, hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        lines = [what]
        if where is not None:
            lines += where.shown()
        if hint:
            lines.append(hint)
        super().__init__("\n".join(lines))


class UsageError(AnyshapeError):
    """The call was wrong."""

    exit_code = 2


class ParseError(UsageError):
    """A text that does not parse, with a caret under the offending character."""

    def __init__(self, text: str, position: int, problem: str, *, hint: str = "") -> None:
        self.text = text
        self.position = position
        super().__init__(f"{problem}\n  {text}\n  {' ' * position}^", hint=hint)


class DeclarationError(UsageError):
    """Declared shapes or dims contradict each other or the inputs."""


class FileError(UsageError):
    """A path, a source file or an ONNX file that can't be used."""


class Fault(AnyshapeError):
    """The model can't be exported, or a file is wrong."""


class ModelFault(Fault):
    """PyTorch itself refuses the model at its example."""


class HistoryFault(Fault):
    """The model's result depends on what it has seen before: no capture of it can be right."""


class ContractFault(Fault):
    """Declared sizes at which PyTorch itself refuses the model."""


class CaptureFault(Fault):
    """A size was specialised, or the trace failed."""


class LowerFault(Fault):
    """An operator has no ONNX translation."""


class VerifyFault(Fault):
    """The ONNX model disagrees with PyTorch at some size; ``script`` shows it, where one operator is to blame."""

    def __init__(
        self, what: str, *, where: SourceLine | None = None, hint: str = "", script: str = ""
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.script = script


class InputError(AnyshapeError):
    """A loaded model was called with inputs outside its contract."""

    exit_code = 2


class InternalError(AnyshapeError):
    """anyshape itself made a mistake; ``report`` is what to send: versions, what was being done, and where."""

    exit_code = 70

    def __init__(self, error: BaseException, doing: str, script: str = "") -> None:
        try:
            said = " ".join(str(error).split())[:200]
        except Exception:  # a stranger's __str__
            said = ""
        super().__init__(
            f"anyshape made a mistake while it was {doing}: {type(error).__name__}: {said}",
            hint="Your model is not at fault. Please report it, with what -v prints, or with `error.report`.",
        )
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.script = script
        self.report = "\n".join(part for part in (_versions(), script, trace.rstrip()) if part)


@contextlib.contextmanager
def own_mistakes(doing: str, script: Callable[[], str] = lambda: "") -> Iterator[None]:
    """What is neither a fault nor a wrong call is our own mistake: an `InternalError`, never a bare traceback.

    >>> with own_mistakes("counting"):
    ...     1 / 0
    Traceback (most recent call last):
    anyshape.errors.InternalError: anyshape made a mistake while it was counting: ZeroDivisionError: division by zero
    Your model is not at fault. Please report it, with what -v prints, or with `error.report`.
    """
    try:
        yield
    except AnyshapeError:
        raise
    except Exception as error:  # a mistake may be of any kind
        raise InternalError(error, doing, script()) from error


def _versions() -> str:
    """``anyshape 0.1.0, torch 2.13.0, …, Python 3.11.7``"""
    told = []
    for name in ("anyshape", "torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            told.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join([*told, f"Python {platform.python_version()} on {platform.system()}"])


def printable(text: str, most: int = 2000) -> str:
    """A text from elsewhere in one harmless line: control characters as escapes, and no longer than ``most``.

    A name in a file may hold what moves a terminal's cursor, or turns the direction of what is written after it.

    >>> print(printable("a\x1b[2Jb"), printable("x" * 99, 10))
    a\\x1b[2Jb xxxxxxx...
    """
    cut = text if len(text) <= most else text[: most - 3] + "..."
    if cut.isprintable():
        return cut
    return "".join(
        letter if letter.isprintable() or letter in "\t\u00a0" else letter.encode("unicode_escape").decode()
        for letter in cut
    )
