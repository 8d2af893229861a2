"""``anyshape repair``: sizes that are written into the source become sizes of the inputs, as an edit of the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyshape.cli.options import (
    TARGETS,
    Cache,
    Dims,
    Download,
    Inputs,
    Json,
    Random,
    Shapes,
    Task,
    Verbose,
    again,
    declared,
    read_dims,
    read_shapes,
    target_of,
)
from anyshape.cli.screen import Screen, screen, where_json

if TYPE_CHECKING:
    from anyshape.export import Export
    from anyshape.repair import Repair

__all__ = ["repair"]


def repair(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=TARGETS)],
    write: Annotated[bool, typer.Option("--write", help="Change the source, and export it again.")] = False,
    shape: Shapes = None,
    dim: Dims = None,
    make: Inputs = None,
    task: Task = None,
    cache: Cache = None,
    random: Random = False,
    download: Download = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show how to take sizes that are written into a model's source from its inputs instead, as a diff."""
    with screen(as_json, verbose) as out:
        shapes, dims = read_shapes(shape), read_dims(dim)
        wanted = {"task": task, "cache": cache, "random": random, "download": download}
        _check_own(target, write)
        with out.stations(tell=verbose) as progress:
            progress.doing("read", target)
            found = target_of(target, make, wanted)
            import anyshape

            made = anyshape.export(
                found.model,
                found.args,
                kwargs=found.kwargs,
                shapes=declared(found, shapes),
                dims=dims,
                repair=True,
                progress=progress,
            )
        _tell(
            out,
            made,
            write,
            target,
            [*_again("--shape", shape), *_again("--dim", dim), *_again("--input", make), *again(wanted)],
        )


def _check_own(target: str, write: bool) -> None:
    from anyshape.errors import UsageError
    from anyshape.models.name import is_of_library

    if write and is_of_library(target):
        raise UsageError(
            f"the source of {target} is not yours, and is not changed from here",
            hint="Leave out --write to see the edit; anyshape export --repair leaves the source alone.",
        )


def _again(option: str, texts: list[str] | None) -> list[str]:
    return [part for text in texts or () for part in (option, text)]


def _tell(out: Screen, made: Export, write: bool, target: str, options: list[str]) -> None:
    from anyshape.errors import ContractFault
    from anyshape.repair.edit import diff, edited, unwritten
    from anyshape.repair.edit import write as write_files

    files = edited(made.repairs)
    told: dict[str, Any] = {
        "repairs": [_json(repair) for repair in made.repairs],
        "diff": diff(files),
        "written": False,
        "sizes": len(made.verdict.tried),
    }
    if not made.repairs:
        out.line("Nothing to repair: no size is written into the source.")
        out.result(told)
        return
    if not out.as_json:
        out.source(told["diff"])
    left = unwritten(made.repairs)
    if left:
        raise ContractFault(
            f"{left[0].said}, and no tensor in {left[0].change.literal.function} has that size: it has to be handed in",
            where=left[0].where,
            hint="Give the function a tensor, or the size; until then export with repair=True.",
        )
    sizes = f"repaired like this it is right at {told['sizes']} sizes"
    if not write:
        out.line(f"{_count(len(files))} to change, {sizes}. Apply it with --write.")
    else:
        write_files({file: after for file, (_, after) in files.items()})
        try:
            _export_again(target, options)
        except BaseException:  # an interruption too must leave the source as it was
            write_files({file: before for file, (before, _) in files.items()})
            raise
        told["written"] = True
        out.line(f"{_count(len(files))} changed. Exported again from the source: right.")
    out.result(told)


def _export_again(target: str, options: list[str]) -> None:
    """The changed source through the whole line, in a process that has not read the old one."""
    from anyshape.errors import ContractFault

    with tempfile.TemporaryDirectory() as folder:
        command = ["export", target, "-o", os.path.join(folder, "model.onnx"), "--json", *options]
        done = subprocess.run([sys.executable, "-m", "anyshape", *command], capture_output=True, text=True)
        if done.returncode != 0:
            try:
                why = json.loads(done.stdout)["error"]["message"]
            except (ValueError, KeyError):
                why = done.stderr.strip()[-200:]
            raise ContractFault(f"the changed source can't be exported, so it was put back as it was: {why}")


def _count(files: int) -> str:
    return f"{files} file{'s' * (files != 1)}"


def _json(found: Repair) -> dict[str, Any]:
    return {
        "where": where_json(found.where),
        "value": found.change.value,
        "meaning": found.said,
        "text": found.text,
    }
