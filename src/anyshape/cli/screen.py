"""What a person sees: calm lines on a terminal or in a pipe, one JSON object with --json, errors in a few lines."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from anyshape.errors import AnyshapeError, InternalError, SourceLine, VerifyFault, printable

if TYPE_CHECKING:
    from anyshape.contract.contract import Contract
    from anyshape.progress import Progress

__all__ = ["Screen", "bytes_text", "contract_json", "harmless", "screen", "where_json"]

LONGEST_LINE = 20_000
WAITING = {
    "read": "running the model at its example",
    "probe": "trying sizes in PyTorch",
    "repair": "looking for sizes in the source",
    "agree": "naming the sizes",
    "capture": "tracing the model",
    "lower": "translating to ONNX",
    "optimize": "making the graph smaller",
    "verify": "comparing with PyTorch",
}


class Screen:
    """Where a command writes: lines for a person, or one JSON object. Colours on a terminal only."""

    def __init__(self, as_json: bool, verbose: bool) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self._out = sys.stdout  # the real one, also while a user's own prints are sent elsewhere
        self._console = Console(file=self._out, highlight=False, quiet=as_json)
        self._stations: dict[str, str] = {}

    def line(self, text: str = "", style: str = "") -> None:
        """A line, or a block of lines, indented by two spaces."""
        for each in harmless(text).split("\n"):
            self._console.print(Text(f"  {each}" if each else "", style), soft_wrap=True)

    def source(self, diff: str) -> None:
        """A diff, as it is: other programs read it too."""
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in diff.splitlines():
            self._console.print(Text(line, styles.get(line[:1], "")), soft_wrap=True)
        self._console.print()

    def dim(self, texts: Sequence[str]) -> None:
        """What may be passed over."""
        for text in texts:
            self.line(text, "dim")

    def result(self, value: Mapping[str, Any]) -> None:
        """The JSON object of the command, if one is wanted."""
        if self.as_json:
            self._out.write(json.dumps(_plain(value), allow_nan=False) + "\n")
            self._out.flush()

    @contextlib.contextmanager
    def stations(self, *, tell: bool = True) -> Iterator[Progress]:
        """Progress by station: live on a terminal, and with ``tell`` the finished stations as lines at the end."""
        from anyshape.progress import Progress

        spinner = Spinner("dots", style="dim")
        live = Live(console=self._console, transient=True, refresh_per_second=8)

        def doing(station: str, text: str) -> None:
            spinner.update(text=Text(f"{station:<9} {text or WAITING.get(station, '')}".rstrip(), "dim"))
            live.update(Group(*self._station_lines(), spinner))

        def done(station: str, text: str) -> None:
            self._stations.pop(station, None)  # a station that is repeated on another rung is told once
            self._stations[station] = text

        shown = live if self._console.is_terminal and not self.as_json else contextlib.nullcontext()
        try:
            with shown:
                yield Progress(doing=doing, done=done)
        finally:
            for text in self._station_lines() if tell else ():
                self._console.print(text, soft_wrap=True)

    def _station_lines(self) -> list[Text]:
        return [
            Text.assemble("  ", (f"{name:<9}", "bold"), f" {text}") for name, text in self._stations.items()
        ]

    def fail(self, kind: str, message: str, error: BaseException) -> None:
        """An error: its text on stderr, or as the one JSON object; the traceback and a script that shows it with -v."""
        script = error.script if isinstance(error, VerifyFault) else ""
        report = error.report if isinstance(error, InternalError) else ""
        if self.as_json:
            told: dict[str, Any] = {"kind": kind, "message": message, "where": None}
            if isinstance(error, AnyshapeError):
                told.update(message=error.what, where=where_json(error.where), hint=error.hint)
            told.update({key: text for key, text in (("script", script), ("report", report)) if text})
            self.result({"error": told})
        else:
            Console(stderr=True, highlight=False).print(Text(harmless(message)), soft_wrap=True)
        if self.verbose and report:
            print(f"\n{harmless(report)}", file=sys.stderr)
        elif self.verbose:
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            print(harmless(trace.rstrip("\n")), file=sys.stderr)
            if script and not self.as_json:
                print(f"\n{script}", file=sys.stderr)


@contextlib.contextmanager
def screen(as_json: bool, verbose: bool) -> Iterator[Screen]:
    """A screen for one command; what goes wrong inside becomes a message and an exit code."""
    made = Screen(as_json, verbose)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a model that prints must not get among our own lines
            yield made
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt as error:
        made.fail("Interrupted", "interrupted: nothing was written", error)
        raise typer.Exit(130) from None
    except SystemExit as error:  # a model, or what it imports, leaves Python: that is no success of ours
        made.fail("Exited", f"the model ended Python with sys.exit({error.code!r})", error)
        raise typer.Exit(1) from None
    except Exception as error:  # whatever it is, a command ends with a message and a code
        known = error if isinstance(error, AnyshapeError) else InternalError(error, "running the command")
        made.fail(type(known).__name__, str(known), known)
        raise typer.Exit(known.exit_code) from None


def where_json(where: SourceLine | None) -> dict[str, Any] | None:
    return None if where is None else {"file": where.file, "line": where.line, "text": where.text}


def contract_json(contract: Contract) -> Any:
    return json.loads(contract.to_json())


def harmless(text: str) -> str:
    """A block of lines as a terminal may get it: names from a file may hold what moves its cursor.

    >>> print(harmless("a" + chr(27) + "[2J"))
    a\\x1b[2J
    """
    return "\n".join(printable(line, LONGEST_LINE) for line in text.split("\n"))


def bytes_text(count: int) -> str:
    """``17.6 MB``

    >>> bytes_text(512), bytes_text(17_600_000)
    ('512 bytes', '17.6 MB')
    """
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
