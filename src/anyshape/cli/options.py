"""The options that several commands share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyshape.dims import parse_input, parse_range, parse_shape
from anyshape.errors import ParseError

if TYPE_CHECKING:
    from anyshape.inputs.target import Target

__all__ = [
    "TARGETS",
    "Cache",
    "Dims",
    "Download",
    "Inputs",
    "Json",
    "Random",
    "Shapes",
    "Task",
    "Verbose",
    "again",
    "declared",
    "read_dims",
    "read_shapes",
    "read_sizes",
    "target_of",
]

TARGETS = (
    "A model, or a function that returns one: FILE.py:NAME or package.module:NAME. Or a model of a library: "
    "hf:FOLDER, timm:NAME, torchvision:NAME, diffusers:FOLDER/unet. Or a saved program: FILE.pt2."
)
Task = Annotated[
    str | None,
    typer.Option("--task", metavar="TASK", help="What an hf: model is for, such as text-generation."),
]
Cache = Annotated[
    str | None,
    typer.Option(
        "--cache",
        metavar="none|out|inout",
        help="The cache of an hf: model: left out, a result, or both ways.",
    ),
]
Random = Annotated[
    bool, typer.Option("--random", help="Random weights, always the same, for a library's model.")
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch a library's model that is not stored here.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="PATH=SHAPE", help='Declare a shape: tokens="batch, seq".'),
]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=RANGE", help="Declare a range: seq=1..512, seq>=1.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=DTYPE[SIZES]",
        help="Make an example: tokens=int64[batch=2,seq=16]<1000. Integers are 0 or 1 without a limit.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more; show tracebacks.")]


def read_shapes(texts: Sequence[str] | None) -> dict[str, str]:
    """``tokens=batch, seq`` as a path and a shape that parses.

    >>> read_shapes(["tokens=batch, seq"])
    {'tokens': 'batch, seq'}
    """
    made = {}
    for text in texts or ():
        path, equals, shape = text.partition("=")
        if not equals:
            raise ParseError(
                text, len(text), "expected '=' after the input's path", hint='Write tokens="batch, seq".'
            )
        parse_shape(shape)
        made[path.strip()] = shape
    return made


def read_dims(texts: Sequence[str] | None) -> dict[str, str]:
    """``seq=1..512`` or ``seq>=1`` as a name and a range that parses.

    >>> read_dims(["seq=1..512", "batch>=2"])
    {'seq': '1..512', 'batch': '>=2'}
    """
    made = {}
    for text in texts or ():
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:=|(?=[<>]))(.*)", text)
        if match is None:
            raise ParseError(
                text, 0, "expected a dim's name and its range", hint="Write seq=1..512 or seq>=1."
            )
        parse_range(match[2])
        made[match[1]] = match[2]
    return made


def read_sizes(texts: Sequence[str] | None) -> dict[str, int]:
    """``batch=4,seq=9`` as sizes by name.

    >>> read_sizes(["batch=4,seq=9", "past=0"])
    {'batch': 4, 'seq': 9, 'past': 0}
    """
    made: dict[str, int] = {}
    for text in texts or ():
        for match in re.finditer(r"[^,]+", text):
            pair = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*", match[0])
            if pair is None:
                hint = "Write sizes as batch=4,seq=9."
                raise ParseError(
                    text, match.start(), "expected a dim's name, '=' and a whole number", hint=hint
                )
            made[pair[1]] = int(pair[2])
    return made


def target_of(text: str, inputs: Sequence[str] | None, wanted: Mapping[str, Any]) -> Target:
    """The target of a command, with its texts read before PyTorch is loaded for it."""
    for item in inputs or ():
        parse_input(item)
    from anyshape.models.name import load_name
    from anyshape.models.wanted import Wanted

    return load_name(text, inputs or (), Wanted(**wanted))


def again(wanted: Mapping[str, Any]) -> list[str]:
    """The options that say what is wanted of a name, as they are typed.

    >>> again({"task": "text-generation", "cache": None, "random": True, "download": False})
    ['--task', 'text-generation', '--random']
    """
    texts = [
        [f"--{name}", *([value] if isinstance(value, str) else [])] for name, value in wanted.items() if value
    ]
    return [part for text in texts for part in text]


def declared(target: Target, shapes: dict[str, str]) -> dict[str, str]:
    """The shapes declared by --shape, and by --input where --shape says nothing."""
    return {**target.shapes, **shapes}
