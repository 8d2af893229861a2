"""The contract of an exported model: its inputs and outputs over named dims, their ranges, and how each is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from anyshape.dims import Expr, Mismatch, Range, Relation, bind
from anyshape.errors import InputError, printable

__all__ = ["FORMAT", "Contract", "Dim", "Evidence", "Origin", "Rung", "Tensor"]

FORMAT = 2
LONGEST_TEXT = 20_000  # of a reason, a note, or a constant in words

Origin: TypeAlias = Literal["found", "declared"]
Evidence: TypeAlias = Literal["sampled", "proved"]
Rung: TypeAlias = Literal["", "symbolic", "differential", "rolled loop", "regions"]


@dataclass(frozen=True, slots=True)
class Dim:
    """A named size: its range, who says so, and why it ends where it ends."""

    name: str
    range: Range
    example: int
    origin: Origin = "found"
    evidence: Evidence = "sampled"
    reason: str = ""  # why the range ends: "IndexError at net.py:14"
    tried: int | None = None  # the largest size that PyTorch was run at

    def text(self) -> str:
        """``1 ≤ seq ≤ 128``"""
        low, high = self.range.minimum, self.range.maximum
        if high is None:
            return f"{self.name} ≥ {low}"
        return f"{self.name} = {low}" if low == high else f"{low} ≤ {self.name} ≤ {high}"


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output: name, element type, and shape over the dims. A size of None is not known."""

    name: str
    dtype: str
    shape: tuple[Expr | None, ...]
    values: Mapping[str, Any] = field(default_factory=dict)  # how to make legal values, for inputs

    def shape_text(self) -> str:
        return "[" + ", ".join("?" if size is None else str(size) for size in self.shape) + "]"


@dataclass(frozen=True, slots=True)
class Contract:
    """For which sizes the file is right: prints as a readable block, goes to JSON and back.

    >>> from anyshape.dims import parse_shape
    >>> contract = Contract(
    ...     dims=(Dim("batch", Range(1), 3),),
    ...     inputs=(Tensor("x", "float32", parse_shape("batch, 10")),),
    ...     outputs=(Tensor("y", "float32", parse_shape("batch, 5")),),
    ... )
    >>> print(contract)
    x  float32  [batch, 10]  batch ≥ 1
    y  float32  [batch, 5]
    >>> Contract.from_json(contract.to_json()) == contract
    True
    """

    dims: tuple[Dim, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] = ()
    relations: tuple[Relation, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # the module's argument names, positional first
    input_structure: Any = None
    output_structure: Any = None
    rung: Rung = ""  # how the graph was captured

    @property
    def ranges(self) -> dict[str, Range]:
        return {dim.name: dim.range for dim in self.dims}

    @property
    def example(self) -> dict[str, int]:
        return {dim.name: dim.example for dim in self.dims}

    def dim(self, name: str) -> Dim:
        return next(dim for dim in self.dims if dim.name == name)

    def shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """The inputs' shapes at ``sizes``."""
        return tuple(
            tuple(size.evaluate(sizes) for size in item.shape if size is not None) for item in self.inputs
        )

    def elements(self, sizes: Mapping[str, int]) -> int:
        """How many numbers the inputs hold: what a run costs grows with it."""
        return sum(math.prod(shape) for shape in self.shapes(sizes))

    def allows(self, sizes: Mapping[str, int]) -> bool:
        """Whether ``sizes`` lie within the ranges and relations."""
        inside = all(dim.range.contains(sizes[dim.name]) for dim in self.dims)
        return inside and self.broken(sizes) is None

    def broken(self, sizes: Mapping[str, int]) -> Relation | None:
        """The first relation over these sizes that does not hold, or has no value there, as isqrt(n - 1) at 0."""
        for relation in self.relations:
            try:
                if relation.names <= sizes.keys() and not relation.holds(sizes):
                    return relation
            except (ValueError, ZeroDivisionError):
                return relation
        return None

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The dims' sizes in ``shapes``, one shape for each input; `InputError` if they are outside the contract."""
        observed = [
            (item.name, [size for size in item.shape if size is not None], shape)
            for item, shape in zip(self.inputs, shapes, strict=True)
        ]
        try:
            sizes = bind(observed)
        except Mismatch as mismatch:
            raise InputError(str(mismatch), hint=f"The contract is:\n{self}") from mismatch
        for dim in self.dims:
            if dim.name in sizes and not dim.range.contains(sizes[dim.name]):
                reason = f" ({dim.reason})" if dim.reason else ""
                raise InputError(f"{dim.name} is {sizes[dim.name]}, outside {dim.text()}{reason}")
        broken = self.broken(sizes)
        if broken is not None:
            given = ", ".join(f"{name} = {sizes[name]}" for name in sorted(broken.names))
            raise InputError(f"{broken} does not hold: {given}")
        return sizes

    def __str__(self) -> str:
        rows = [(item.name, item.dtype, item.shape_text()) for item in (*self.inputs, *self.outputs)]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        remarks = self._remarks()
        lines = []
        for number in range(max(len(rows), len(remarks))):
            row = rows[number] if number < len(rows) else ("", "", "")
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            remark = remarks[number] if number < len(remarks) else ""
            lines.append("  ".join([*cells, remark]).rstrip())
        return "\n".join(lines)

    def _remarks(self) -> list[str]:
        """What stands to the right of the tensors: ranges with their reasons, relations, constants, notes."""
        made = [f"{dim.text()}    {dim.reason}".rstrip() for dim in self.dims]
        made += [str(relation) for relation in self.relations]
        made += [f"{path} = {value} (constant)" for path, value in self.constants]
        return made

    def to_json(self) -> str:
        """The contract as JSON text: what `from_json` reads and what the ONNX file carries."""
        return json.dumps(
            {
                "format": FORMAT,
                "dims": [_dim_to_json(dim) for dim in self.dims],
                "inputs": [_tensor_to_json(item) for item in self.inputs],
                "outputs": [_tensor_to_json(item) for item in self.outputs],
                "relations": [[str(r.left), r.op, str(r.right)] for r in self.relations],
                "constants": [[path, _told(value)] for path, value in self.constants],
                "notes": [_told(note) for note in self.notes],
                "arguments": list(self.arguments),
                "input_structure": self.input_structure,
                "output_structure": self.output_structure,
                "rung": self.rung,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Contract:
        """The contract that `to_json` wrote; `FileError` for any other text, saying where it is wrong."""
        from anyshape.contract.reader import (
            read_contract,
        )  # the reader makes contracts: it can't be imported first

        return read_contract(text)


def _told(text: str) -> str:
    """A text for people, as the reader takes it: a source line may hold anything."""
    return "\n".join(printable(line, LONGEST_TEXT) for line in text.split("\n"))[:LONGEST_TEXT]


def _dim_to_json(dim: Dim) -> dict[str, Any]:
    return {
        "name": dim.name,
        "range": dim.range.text(),
        "example": dim.example,
        "origin": dim.origin,
        "evidence": dim.evidence,
        "reason": _told(dim.reason),
        "tried": dim.tried,
    }


def _tensor_to_json(item: Tensor) -> dict[str, Any]:
    shape = [None if size is None else str(size) for size in item.shape]
    return {"name": item.name, "dtype": item.dtype, "shape": shape, "values": dict(item.values)}
