"""The command line: ``anyshape export``, ``repair``, ``explain``, ``show``, ``verify`` and ``run``.

Exit code 0: right. 1: a fault was found. 2: the call was wrong. 70: a mistake of our own.
130: interrupted. PyTorch is imported inside the
commands, so that ``anyshape --help`` is quick.
"""

from __future__ import annotations

import io
import json
import sys

import typer

from anyshape.cli.explain import explain
from anyshape.cli.export import export
from anyshape.cli.repair import repair
from anyshape.cli.run import run
from anyshape.cli.show import show
from anyshape.cli.verify import verify

__all__ = ["app", "main"]

app = typer.Typer(
    help="PyTorch models with inputs of varying size as ONNX models that are right at every size.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(export)
app.command()(repair)
app.command("fix", hidden=True)(repair)  # what people type
app.command()(explain)
app.command()(show)
app.command()(verify)
app.command()(run)


def main() -> None:
    """The ``anyshape`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ≥ shows a ? instead of failing
    if "--json" not in sys.argv:
        app()
    sys.exit(_main_json())


def _main_json() -> int:
    """The command with its own complaints (a missing argument, an unknown option) as JSON too."""
    try:
        return int(app(standalone_mode=False) or 0)
    except Exception as error:  # of typer's parser: the commands translate their own
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        print(json.dumps({"error": {"kind": type(error).__name__, "message": message, "where": None}}))
        return 2
