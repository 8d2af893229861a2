"""A world: the names of a program at one choice of sizes, while the program is being written.

A program is written in several worlds at once. Axes that have the same size in all of them belong together, an axis of
the same size everywhere is static, and a statement that raises at the example is never written.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["World", "Worlds"]

MOST_NUMBERS = 200_000  # of one tensor, while a program is written


@dataclass
class World:
    """What the names of forward stand for at some sizes."""

    names: dict[str, Any] = field(default_factory=dict)

    def after(self, parts: str, text: str) -> World:
        """The world in which these lines ran as well; whatever they raise."""
        names = {**self.names, "self": copy.deepcopy(self.names["self"])}
        torch.manual_seed(0)
        exec(parts, names)
        names["self"].eval()
        exec(text, names)
        if any(isinstance(made, Tensor) and made.numel() > MOST_NUMBERS for made in names.values()):
            raise MemoryError("too large to be a statement of a small program")
        return World(names)


def _fresh(inputs: Mapping[str, Tensor]) -> World:
    return World({"torch": torch, "F": F, "math": math, "nn": nn, "self": nn.Module(), **inputs})


class Worlds:
    """All worlds of a program: the first is the example's."""

    def __init__(self, inputs: Sequence[Mapping[str, Tensor]]) -> None:
        self._all = [_fresh(given) for given in inputs]

    def try_lines(self, parts: Sequence[str], lines: Sequence[str]) -> bool:
        """Whether the lines run at the example and in one more world; those in which they don't are left behind."""
        there = []
        for number, world in enumerate(self._all):
            try:
                with torch.no_grad():
                    there.append(world.after("\n".join(parts), "\n".join(lines)))
            except Exception:  # a line that was written at random may raise anything
                if number == 0:
                    return False
        if len(there) < 2:
            return False
        self._all = there
        return True

    def tensors(self, *dtypes: torch.dtype) -> list[str]:
        """Tensors of a type, the latest last."""
        return [name for name in self._names(Tensor) if self._all[0].names[name].dtype in dtypes]

    def integers(self) -> list[str]:
        return self._names(int)

    def sizes(self, name: str, axis: int) -> tuple[int, ...]:
        """The size of an axis in each world."""
        return tuple(world.names[name].shape[axis] for world in self._all)

    def values(self, name: str) -> tuple[int, ...]:
        """What an integer is in each world."""
        return tuple(world.names[name] for world in self._all)

    def rank(self, name: str) -> int:
        ranks = {world.names[name].dim() for world in self._all}
        return ranks.pop() if len(ranks) == 1 else -1

    def shape(self, name: str) -> tuple[tuple[int, ...], ...]:
        """An axis is known by its sizes in all worlds."""
        return tuple(self.sizes(name, axis) for axis in range(self.rank(name)))

    def moving(self, name: str) -> list[int]:
        return [axis for axis, sizes in enumerate(self.shape(name)) if len(set(sizes)) > 1]

    def _names(self, kind: type) -> list[str]:
        first = self._all[0].names
        return [
            name
            for name, value in first.items()
            if type(value) is kind and all(type(world.names.get(name)) is kind for world in self._all)
        ]
