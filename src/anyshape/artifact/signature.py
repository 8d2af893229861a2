"""Signature: the inputs and outputs that an ONNX file declares, and which of them is which input of a module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from anyshape.errors import FileError
from anyshape.inputs.case import Input

__all__ = ["FileTensor", "Names", "match_inputs", "tensors_of"]

MOST_MATCHES = 20  # ways to match inputs that are tried at the example

Names = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FileTensor:
    """An input or output as the ONNX file declares it; a size of None is unknown."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def shape_text(self) -> str:
        if self.shape is None:
            return "of unknown shape"
        return "[" + ", ".join("?" if size is None else str(size) for size in self.shape) + "]"

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {self.shape_text()}"


def tensors_of(model: ir.Model) -> tuple[list[FileTensor], list[FileTensor]]:
    """The inputs and the outputs as the file declares them; weights that are listed as inputs are left out."""
    weights = set(model.graph.initializers)
    given = [value for value in model.graph.inputs if value.name not in weights]
    return _tensors(given), _tensors(model.graph.outputs)


def _tensors(values: Sequence[ir.Value]) -> list[FileTensor]:
    return [FileTensor(value.name or "", _dtype(value), _shape(value)) for value in values]


def _dtype(value: ir.Value) -> str:
    if value.dtype is None:
        return "?"
    name = value.dtype.name.lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _shape(value: ir.Value) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


def match_inputs(ours: Sequence[Input], theirs: Sequence[FileTensor]) -> list[Names]:
    """For each input of the module, the file's name for it, or None where the file dropped it.

    By name, else by position, else by dtype and rank: then there may be several ways, the likeliest first.
    """
    paths = [_plain(item.path) for item in ours]
    names = {_plain(item.name): item.name for item in theirs}
    if set(names) <= set(paths) and len(names) == len(theirs):
        return [tuple(names.get(path) for path in paths)]
    if len(ours) == len(theirs) and all(map(_alike, ours, theirs)):
        return [tuple(item.name for item in theirs)]
    found = list(itertools.islice(_orders(ours, theirs), MOST_MATCHES))
    if not found:
        raise FileError(
            "the file's inputs can't be matched to the module's\n"
            f"  the file takes:    {'; '.join(map(str, theirs)) or 'nothing'}\n"
            f"  the module takes:  {'; '.join(f'{i.path} {_torch_dtype(i)} {list(i.shape)}' for i in ours)}",
            hint="Give an example with the inputs that the file was exported with.",
        )
    return found


def _plain(name: str) -> str:
    """A name as exporters write it: ``past.0.k`` and ``past_0_k`` are one."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _torch_dtype(item: Input) -> str:
    return str(item.example.dtype).removeprefix("torch.")


def _alike(ours: Input, theirs: FileTensor) -> bool:
    return _torch_dtype(ours) == theirs.dtype and (
        theirs.shape is None or len(theirs.shape) == len(ours.shape)
    )


def _orders(ours: Sequence[Input], theirs: Sequence[FileTensor]) -> Iterator[Names]:
    """Every way to drop inputs of the module so that the rest is like the file's; equal names stay together."""
    by_name = {_plain(item.path): number for number, item in enumerate(ours)}
    fixed = {by_name[_plain(t.name)]: t for t in theirs if _plain(t.name) in by_name}
    left = [item for item in theirs if _plain(item.name) not in by_name]
    free = [number for number in range(len(ours)) if number not in fixed]
    for kept in itertools.combinations(free, len(left)):
        if all(_alike(ours[number], item) for number, item in zip(kept, left, strict=True)):
            chosen = {**fixed, **dict(zip(kept, left, strict=True))}
            yield tuple(chosen[n].name if n in chosen else None for n in range(len(ours)))
