"""``anyshape explain``: the lines of a model that a plain export would fix at its example's sizes."""

from __future__ import annotations

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
    declared,
    read_dims,
    read_shapes,
    target_of,
)
from anyshape.cli.screen import screen, where_json

if TYPE_CHECKING:
    from anyshape.explain import Explanation

__all__ = ["explain"]


def explain(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=TARGETS)],
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
    """List the lines where Python takes a size as a plain number, what is done there, and what a plain export keeps."""
    with screen(as_json, verbose) as out:
        shapes, dims = read_shapes(shape), read_dims(dim)
        wanted = {"task": task, "cache": cache, "random": random, "download": download}
        with out.stations() as progress:
            progress.doing("read", target)
            found = target_of(target, make, wanted)
            import anyshape

            made = anyshape.explain(
                found.model,
                found.args,
                kwargs=found.kwargs,
                shapes=declared(found, shapes),
                dims=dims,
                progress=progress,
            )
        out.line(f"\n{made}")
        out.result(_json(made))


def _json(made: Explanation) -> dict[str, Any]:
    return {
        "dims": list(made.dims),
        "rung": made.rung,
        "ended": where_json(made.ended),
        "findings": [
            {"where": where_json(f.where), "kind": f.kind, "done": f.done, "plain": f.plain}
            for f in made.findings
        ],
    }
