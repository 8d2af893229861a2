"""``anyshape export``: a verified ONNX file from a model that a name stands for."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

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
from anyshape.cli.screen import Screen, bytes_text, contract_json, screen

if TYPE_CHECKING:
    from anyshape.export import Export

__all__ = ["export"]


def export(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=TARGETS)],
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="The file to write: called after TARGET if left out.")
    ] = None,
    shape: Shapes = None,
    dim: Dims = None,
    make: Inputs = None,
    task: Task = None,
    cache: Cache = None,
    random: Random = False,
    download: Download = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Take sizes that are written into the source from the inputs.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Trace with symbolic sizes first: takes longer, and proves more.")
    ] = False,
    opset: Annotated[int | None, typer.Option(help="The version of ONNX's operators.")] = None,
    safetensors: Annotated[
        bool, typer.Option("--safetensors", help="Weights in a .safetensors file beside the model.")
    ] = False,
    weights: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where the weights of a model on the meta device are."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Turn a PyTorch model into an ONNX file that is right at every size, or say which line prevents it."""
    with screen(as_json, verbose) as out:
        started = time.monotonic()
        shapes, dims = read_shapes(shape), read_dims(dim)
        wanted = {"task": task, "cache": cache, "random": random, "download": download}
        path = output or _default_path(target)
        from anyshape.artifact.write import check_writable

        check_writable(path)
        with out.stations() as progress:
            progress.doing("read", target)
            found = target_of(target, make, wanted)
            import anyshape

            made = anyshape.export(
                found.model,
                found.args,
                path,
                kwargs=found.kwargs,
                shapes=declared(found, shapes),
                dims=dims,
                opset_version=opset,
                external_data="safetensors" if safetensors else None,
                weights=weights,
                repair=repair,
                prove=prove,
                progress=progress,
            )
        _tell(out, made, path, time.monotonic() - started)


def _default_path(target: str) -> str:
    from anyshape.models.name import stem

    return stem(target) + ".onnx"


def _tell(out: Screen, made: Export, path: str, seconds: float) -> None:
    from anyshape.artifact.write import files_of

    size = sum(map(os.path.getsize, files_of(path)))
    out.line(f"\n{made.contract}\n")
    if made.contract.notes:
        out.dim(made.contract.notes)
        out.line()
    if out.verbose:
        out.dim([f"proved: {text}" for text in made.verdict.proved])
        out.dim([f"sampled: {text}" for text in made.verdict.sampled])
        out.dim([f"{station:<9} {spent:.2f} s" for station, spent in made.seconds.items()])
        out.line()
    out.line(f"{path}   {bytes_text(size)}   {seconds:.1f} s", "bold")
    out.result(
        {
            "path": path,
            "bytes": size,
            "seconds": {**made.seconds, "total": seconds},
            "rung": made.rung,
            "contract": contract_json(made.contract),
            "verdict": made.verdict.to_json(),
        }
    )
