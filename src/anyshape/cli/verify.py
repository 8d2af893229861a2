"""``anyshape verify``: is an ONNX file, whoever exported it, right at every size that PyTorch accepts?"""

from __future__ import annotations

import ast
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
    read_dims,
    read_shapes,
    target_of,
)
from anyshape.cli.screen import Screen, contract_json, screen, where_json

if TYPE_CHECKING:
    from anyshape.blame.branch import Failure
    from anyshape.errors import SourceLine
    from anyshape.judge import Judgement

__all__ = ["marked", "verify"]


def verify(
    file: Annotated[str, typer.Argument(metavar="MODEL.onnx")],
    against: Annotated[
        str, typer.Option(metavar="TARGET", help=f"The PyTorch model that the file was made from. {TARGETS}")
    ],
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
    """Find the sizes at which an ONNX file is wrong. It may come from any exporter."""
    with screen(as_json, verbose) as out:
        shapes, dims = read_shapes(shape), read_dims(dim)
        wanted = {"task": task, "cache": cache, "random": random, "download": download}
        from anyshape.artifact.read import read_model

        read_model(file)  # a broken file is told before the model is built
        with out.stations(tell=verbose) as progress:
            progress.doing("read", against)
            target = target_of(against, make, wanted)
            from anyshape.judge import judge

            found = judge(
                file,
                target.model,
                target.args,
                target.kwargs,
                shapes=shapes,
                labels=target.shapes,
                dims=dims,
                progress=progress,
            )
        _tell(out, found, " ".join([against, *again(wanted)]))
        out.result(_json(found))
        if not found.right:
            raise typer.Exit(1)


def _tell(out: Screen, found: Judgement, against: str) -> None:
    if found.failure is None:
        out.line(f"Right at {found.verdict}", "bold")
    else:
        _tell_failure(out, found.failure)
    if found.remarks:
        out.line()
        out.dim(found.remarks)
    if out.verbose:
        out.line(f"\n{found.contract}\n")
        out.dim(
            [
                f"{row.outcome:<8} {_sizes(row.sizes)}  {row.why.partition(chr(10))[0]}".rstrip()
                for row in found.verdict.rows
            ]
        )
    if found.failure is not None:
        out.line(f"\nExport again with anyshape: anyshape export {against}")


def _tell_failure(out: Screen, failure: Failure) -> None:
    verb = "Wrong" if failure.row.outcome == "wrong" else "Fails"
    out.line(f"{verb} at " + str(failure.shrunk).replace(" (", "  (", 1) + "\n", "bold")
    if failure.where is not None:
        for line in marked(failure.where):
            out.line("  " + line)
    if failure.story:
        out.line(f"  {failure.story}:")
    out.line(
        "  " + failure.row.why.strip().replace("\n", "\n  ") + ("" if failure.row.why.endswith(".") else ".")
    )


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def marked(where: SourceLine) -> list[str]:
    """A source line with marks under what decides there."""
    start, end = _deciding_span(where.text)
    place = f"{where.file}:{where.line}    "
    return (
        [place + where.text, " " * (len(place) + start) + "^" * (end - start)]
        if where.text
        else [place.strip()]
    )


def _deciding_span(text: str) -> tuple[int, int]:
    """From where to where the condition goes in a line such as ``if x.shape[1] > 8:``; else the whole line."""
    skipped = 2 if text.startswith("elif ") else 0
    tree = _parsed(text[skipped:])
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) and node.test.end_lineno == 1:
            raw = text[skipped:].encode()  # ast counts bytes
            start, end = raw[: node.test.col_offset].decode(), raw[: node.test.end_col_offset].decode()
            return skipped + len(start), skipped + len(end)
    return 0, len(text.rstrip(": "))


def _parsed(text: str) -> ast.Module | None:
    """The line as Python, if it stands alone; a compound statement gets an empty body."""
    for completed in (text, text + " pass"):
        try:
            return ast.parse(completed)
        except SyntaxError:
            continue
    return None


def _json(found: Judgement) -> dict[str, Any]:
    failure = None
    if found.failure is not None:
        shrunk, row = found.failure.shrunk, found.failure.row
        failure = {
            "sizes": shrunk.sizes,
            "idle": shrunk.idle,
            "right_where": shrunk.right.removeprefix("right where ").removeprefix("right at "),
            "outcome": row.outcome,
            "why": row.why,
            "condition": found.failure.condition,
            "where": where_json(found.failure.where),
        }
    return {
        "right": found.right,
        "sizes": len(found.verdict.tried),
        "failure": failure,
        "remarks": found.remarks,
        "contract": contract_json(found.contract),
        "verdict": found.verdict.to_json(),
    }
