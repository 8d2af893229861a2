"""A case of the sweep over operators: a small function of one to three inputs whose sizes vary.

An input is written as its axes: ``"b 3 h w"`` is a float tensor with the sizes b, 3, h and w. What stands before a
colon says which values it holds: ``"ids<10: b t"`` or, below a size, ``"ids<n: b t"``; ``"bool: t"``, ``"positive: t"``
or ``"unit: t"``. A keyword sets the least size of a dim at which the operator is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

EXAMPLE = {"b": 3, "t": 10, "n": 7, "h": 14, "w": 9, "d": 6}
JUDGED = (
    {"b": 1, "t": 1, "n": 1, "h": 1, "w": 1, "d": 1},
    {"b": 2, "t": 7, "n": 4, "h": 5, "w": 6, "d": 3},
    {"b": 5, "t": 16, "n": 12, "h": 13, "w": 8, "d": 11},
    {"b": 1, "t": 33, "n": 23, "h": 31, "w": 28, "d": 4},
    {"b": 4, "t": 100, "n": 60, "h": 64, "w": 45, "d": 17},
)


@dataclass(frozen=True)
class Case:
    """One operator with its arguments; judged at `sizes`, the first of which are the example's."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[str, ...]
    least: dict[str, int]

    @property
    def operator(self) -> str:
        return self.name.partition(",")[0]

    @property
    def sizes(self) -> list[dict[str, int]]:
        return [
            {dim: max(size, self.least.get(dim, 0)) for dim, size in sizes.items()}
            for sizes in (EXAMPLE, *JUDGED)
        ]

    def module(self) -> nn.Module:
        return self.call if isinstance(self.call, nn.Module) else Calls(self.call)

    def tensors(self, sizes: dict[str, int]) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(sum(sizes.values()))
        return tuple(_tensor(text, sizes, generator) for text in self.inputs)

    def moving(self) -> tuple[dict[int, Any] | None, ...]:
        """For each input the axes that vary, in the stock exporter's words."""
        return tuple(
            {
                axis: torch.export.Dim.DYNAMIC
                for axis, size in enumerate(text.rpartition(":")[2].split())
                if not size.isdigit()
            }
            or None
            for text in self.inputs
        )


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def _tensor(text: str, sizes: dict[str, int], generator: torch.Generator) -> Tensor:
    kind, _, axes = text.rpartition(":")
    shape = [eval(axis, {}, sizes) for axis in axes.split()]
    if kind.startswith("ids<"):
        return torch.randint(0, eval(kind[4:], {}, sizes), shape, generator=generator)
    if kind == "bool":
        return torch.rand(shape, generator=generator) < 0.6
    made = torch.randn(shape, generator=generator)
    return made.abs() + 0.1 if kind == "positive" else made.sigmoid() if kind == "unit" else made


def case(name: str, call: Callable[..., Any], *inputs: str, **least: int) -> Case:
    return Case(name, call, inputs or ("b t",), least)
