"""A program: the source of a module, its inputs over named axes, and how values for them are made."""

from __future__ import annotations

import importlib.util
import math
import random
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "HEADER",
    "Input",
    "Program",
    "example_of",
    "load",
    "make_values",
    "numbers_of",
]

HEADER = """import math

import torch
import torch.nn.functional as F
from torch import nn

"""

MASKS = ("full", "ragged", "left", "random", "empty")
SCALES = (1.0, 1.0, 0.01, 10.0)


@dataclass(frozen=True)
class Input:
    """An argument of forward. ``of`` is the input and axis that bounds its values, for lengths and indices."""

    name: str
    kind: str  # floats, ids, mask, lengths or index
    shape: tuple[str, ...]  # expressions over the axes: "n + 1", "4"
    high: int = 0  # ids are below it
    of: tuple[str, int] | None = None


@dataclass(frozen=True)
class Program:
    """Python text with a class ``Model``, and the sizes of its example."""

    seed: int
    source: str
    inputs: tuple[Input, ...]
    sizes: Mapping[str, int]  # of the axes, at the example
    declared: Mapping[str, Any] = field(default_factory=dict)  # arguments of export: shapes, dims

    def shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """Each input's shape at these sizes of the axes."""
        return tuple(tuple(int(eval(size, {}, dict(sizes))) for size in item.shape) for item in self.inputs)

    def script(self) -> str:
        """The source with an export of its example below: a file to run."""
        made = [_written(item, tensor) for item, tensor in zip(self.inputs, example_of(self), strict=True)]
        told = "".join(f", {key}={value!r}" for key, value in self.declared.items())
        return (
            f"{self.source}\n\nif __name__ == '__main__':\n    import anyshape\n\n"
            f"    torch.manual_seed({self.seed})\n    model = Model().eval()\n"
            f"    args = ({', '.join(made)},)\n"
            f"    print(anyshape.export(model, args, 'model.onnx', verbose=True{told}).contract)\n"
        )


def _written(item: Input, example: Tensor) -> str:
    """An input of the example as Python."""
    if item.kind == "floats":
        return f"torch.randn({tuple(example.shape)})"
    return f"torch.tensor({example.tolist()})"


def load(program: Program, folder: Path) -> nn.Module:
    """The program's module, from a file of its own: tracebacks and `inspect` see its lines."""
    path = folder / f"module_{program.seed}_{zlib.crc32(program.source.encode())}.py"
    path.write_text(program.source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where `inspect` looks for the file of a class
    spec.loader.exec_module(module)
    torch.manual_seed(program.seed)
    made: nn.Module = module.Model().eval()
    return made


def numbers_of(source: str) -> list[int]:
    """The whole numbers in a program's text that may decide something: there a file breaks, if it does."""
    body = source[source.find("class Model") :]
    return sorted({int(text) for text in re.findall(r"(?<![\w.])\d+(?![\w.])", body)} - {0})


# --- Values ---------------------------------------------------------------------------------------------


def example_of(program: Program) -> list[Tensor]:
    """The example's inputs: floats around 0, ragged masks now and then."""
    chance = random.Random(program.seed)
    kinds = {"mask": chance.choice(("full", "ragged", "random")), "scale": 1.0}
    return make_values(program.inputs, program.shapes(program.sizes), kinds, program.seed)


def make_values(
    inputs: Sequence[Input], shapes: Sequence[tuple[int, ...]], kinds: Mapping[str, Any], seed: int
) -> list[Tensor]:
    """Tensors of these shapes. ``kinds`` has the kind of masks and the scale of floats."""
    drawn = torch.Generator().manual_seed(seed)
    by_name = dict(zip((item.name for item in inputs), shapes, strict=True))
    made = []
    for item, shape in zip(inputs, shapes, strict=True):
        limit = by_name[item.of[0]][item.of[1]] if item.of is not None else 0
        made.append(_values(item, shape, limit, kinds, drawn))
    return made


def _values(
    item: Input, shape: tuple[int, ...], limit: int, kinds: Mapping[str, Any], drawn: torch.Generator
) -> Tensor:
    if item.kind == "floats":
        return torch.randn(shape, generator=drawn) * float(kinds["scale"])
    if item.kind == "mask":
        return _mask(shape, kinds["mask"], drawn)
    low, high = {"ids": (0, item.high), "lengths": (1, limit + 1), "index": (0, limit)}[item.kind]
    made = torch.randint(low, max(high, low + 1), shape, generator=drawn)
    if kinds["mask"] == "full" and item.kind == "lengths":
        return torch.full(shape, limit)
    if item.kind == "ids" and made.numel():
        made.view(-1)[-1] = high - 1
    return made


def _mask(shape: tuple[int, ...], kind: str, drawn: torch.Generator) -> Tensor:
    if kind == "full":
        return torch.ones(shape, dtype=torch.bool)
    if kind == "empty":
        return torch.zeros(shape, dtype=torch.bool)
    if kind == "random" or not shape or math.prod(shape) == 0:
        return torch.rand(shape, generator=drawn) > 0.3
    lengths = torch.randint(1, shape[-1] + 1, (*shape[:-1], 1), generator=drawn)
    ragged: Tensor = torch.arange(shape[-1]) < lengths
    return ragged.flip(-1) if kind == "left" else ragged
