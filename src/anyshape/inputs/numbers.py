"""Plain numbers among the inputs: constants of the file, unless the user asks for an input.

Or unless examples show that they change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.errors import UsageError
from anyshape.inputs.structure import Structure
from anyshape.inputs.tree import flatten

__all__ = ["changing", "leaves_like", "places", "told_apart", "with_numbers"]

NUMBER = "number"  # what is declared in the place of a shape
TYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}


def told_apart(shapes: Any) -> tuple[list[str], Any]:
    """What is declared a number, by path, and what is declared of shapes."""
    if not isinstance(shapes, Mapping):
        return [], shapes
    numbers = [path for path, shape in shapes.items() if isinstance(shape, str) and shape == NUMBER]
    return numbers, {path: shape for path, shape in shapes.items() if path not in numbers}


def places(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every leaf of an argument with its path, in order: tensors, and what is none."""
    leaves, structure = flatten(value, path)
    tensors = iter(leaves)
    yield from _places(structure, path, tensors)


def _places(node: Structure, path: str, tensors: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    if node.kind == "tensor":
        yield next(tensors)
    elif node.kind == "constant":
        yield path, node.value
    for key, child in zip(node.keys, node.children, strict=True):
        yield from _places(child, f"{path}.{key}", tensors)


def with_numbers(
    structure: Structure, found: Sequence[tuple[str, Any]], wanted: Collection[str]
) -> tuple[Structure, list[tuple[str, torch.Tensor]]]:
    """The structure of a call and its leaves, the wanted numbers among them as tensors of one number."""
    plain = {path: value for path, value in found if not isinstance(value, torch.Tensor)}
    for path in wanted:
        if path not in plain or type(plain[path]).__name__ not in TYPES:
            numbers = [name for name, value in plain.items() if type(value).__name__ in TYPES]
            raise UsageError(
                f"{path} is declared a number, and is none among the inputs",
                hint=f"Plain numbers are: {', '.join(numbers)}." if numbers else "There is no plain number.",
            )
    rest = iter(found)
    made = _with_numbers(structure, rest, set(wanted))
    leaves = [
        (path, _as_tensor(value) if path in wanted else value)
        for path, value in found
        if path in wanted or isinstance(value, torch.Tensor)
    ]
    return made, leaves


def _with_numbers(node: Structure, rest: Iterator[tuple[str, Any]], wanted: Collection[str]) -> Structure:
    if node.kind in ("tensor", "constant"):
        path, value = next(rest)
        return Structure("number", value=type(value).__name__) if path in wanted else node
    return node.with_children(tuple(_with_numbers(child, rest, wanted) for child in node.children))


def _as_tensor(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=TYPES[type(value).__name__])


def changing(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """The plain numbers that are others in another input set."""
    made = []
    for name, value in there.items():
        before = dict(places(name, here[name])) if name in here else {}
        made += [
            path
            for path, other in places(name, value)
            if type(other).__name__ in TYPES
            and type(other) is type(before.get(path))
            and other != before[path]
        ]
    return made


def leaves_like(structure: Structure, value: Any) -> list[torch.Tensor]:
    """The leaves of another value for an argument, numbers as tensors where the example has them so."""
    wanted = _leaves_of(structure)
    found = list(places("", value))
    if len(found) != len(wanted):
        return [leaf for _, leaf in flatten(value)[0]]
    return [
        _as_tensor(TYPES_OF[kind.value](leaf))
        if kind.kind == "number" and not isinstance(leaf, torch.Tensor)
        else leaf
        for kind, (_, leaf) in zip(wanted, found, strict=True)
        if kind.kind == "number" or isinstance(leaf, torch.Tensor)
    ]


TYPES_OF = {"bool": bool, "int": int, "float": float}


def _leaves_of(node: Structure) -> list[Structure]:
    if node.kind in ("tensor", "constant", "number"):
        return [node]
    return [leaf for child in node.children for leaf in _leaves_of(child)]
