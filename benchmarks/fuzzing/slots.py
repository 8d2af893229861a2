"""Slots: the holes in a rule, each filled at random with something that is there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import torch

from fuzzing.world import Worlds

__all__ = ["Slots", "Unfit"]

T = TypeVar("T")

FLOATS = (torch.float32,)
NEAR = (2, 3, 4, 5, 6, 7, 8, 9, 11, 15)
FAR = (20, 31, 37, 50, 64, 100, 150, 200, 300)


class Unfit(Exception):
    """A rule that has nothing to work on here."""


class Slots:
    """What one statement is made of: what is asked for twice is the same both times."""

    def __init__(self, chance: random.Random, worlds: Worlds, number: int) -> None:
        self.chance, self.worlds, self.number = chance, worlds, number
        self.parts: list[str] = []

    # --- Tensors

    @cached_property
    def x(self) -> str:
        """A tensor of floats with an axis that varies; mostly the latest."""
        return self._pick([name for name in self._floats if self.worlds.moving(name)])

    @cached_property
    def feat(self) -> str:
        """A tensor whose last axis is static."""
        return self._pick([name for name in self._floats if self._is_still(name, -1)])

    @cached_property
    def seq(self) -> str:
        """A tensor of rows in time: [any, varying, static]."""
        return self._pick(
            [n for n in self._ranked(3) if self._is_still(n, -1) and 1 in self.worlds.moving(n)]
        )

    @cached_property
    def signal(self) -> str:
        """A tensor of channels in time: [any, static, varying]."""
        return self._pick([n for n in self._ranked(3) if self._is_still(n, 1) and 2 in self.worlds.moving(n)])

    @cached_property
    def image(self) -> str:
        """A tensor of channels in the plane: [any, static, any, any]."""
        return self._pick([n for n in self._ranked(4) if self._is_still(n, 1)])

    @cached_property
    def mask(self) -> str:
        return self._pick(self.worlds.tensors(torch.bool))

    @cached_property
    def ints(self) -> str:
        return self._pick(self.worlds.tensors(torch.int64))

    @cached_property
    def masked(self) -> str:
        """A tensor whose first axes are the mask's."""
        wanted = self.worlds.shape(self.mask)
        return self._pick([n for n in self._floats if self.worlds.shape(n)[: len(wanted)] == wanted])

    @cached_property
    def partner(self) -> str:
        """Another tensor of the same shape as x."""
        same = [n for n in self._floats if n != self.x and self.worlds.shape(n) == self.worlds.shape(self.x)]
        return self._pick(same)

    @cached_property
    def other(self) -> str:
        """Another tensor in time, of its own length."""
        widths = [
            n for n in self._ranked(3) if n != self.seq and self._width(n, -1) == self._width(self.seq, -1)
        ]
        return self._pick([n for n in widths if self.worlds.sizes(n, 0) == self.worlds.sizes(self.seq, 0)])

    @cached_property
    def table(self) -> str:
        """A matrix with as many columns as x, and at the example at least as many rows."""
        return self._pick([n for n in self._ranked(2) if self._width(n, 1) == self._width(self.seq, -1)])

    @cached_property
    def rows(self) -> str:
        """What can be taken apart along its first axis, which varies."""
        return self._pick([n for n in self._floats if 0 in self.worlds.moving(n) and self.worlds.rank(n) > 1])

    # --- Axes and widths

    @cached_property
    def a(self) -> int:
        """An axis of x that varies; the batch is seldom what a model works along."""
        moving = self.worlds.moving(self.x)
        return self.chance.choice(
            moving if moving == [0] or self.chance.random() < 0.2 else [a for a in moving if a]
        )

    @cached_property
    def rank(self) -> int:
        return self.worlds.rank(self.x)

    @cached_property
    def width(self) -> int:
        """The static last size of feat."""
        return self._width(self.feat, -1)

    @property
    def out(self) -> int:
        return self.chance.choice((4, 6, 8))

    def channels(self, name: str) -> int:
        return self._width(name, 1)

    def columns(self, name: str) -> int:
        return self._width(name, -1)

    def cut(self, piece: str) -> str:
        """``x[:, piece]``, along the axis a."""
        return f"{self.x}[{':, ' * self.a}{piece}]"

    def padding(self, name: str, axis: int, before: str, after: str) -> str:
        """F.pad's numbers for one axis."""
        return f"({'0, 0, ' * (self.worlds.rank(name) - 1 - axis)}{before}, {after})"

    # --- Sizes

    @cached_property
    def n(self) -> str:
        """The size of x along a, in one of the ways to say it."""
        return self.size_of(self.x, self.a)

    def size_of(self, name: str, axis: int) -> str:
        sizes = self.worlds.sizes(name, axis)
        known = [integer for integer in self.worlds.integers() if self.worlds.values(integer) == sizes]
        if known and self.chance.random() < 0.8:
            return self.chance.choice(known)
        return self.chance.choice((f"{name}.shape[{axis}]", f"{name}.size({axis})"))

    @property
    def any_size(self) -> str:
        """The size of any axis that varies."""
        names = self.worlds.tensors(*FLOATS, torch.bool, torch.int64)
        axes = [(name, axis) for name in names for axis in self.worlds.moving(name)]
        return self.size_of(*self._pick(axes))

    @property
    def count(self) -> str:
        """A number from 1 to n by arithmetic on n."""
        n, k = self.n, self.k
        return self.chance.choice(
            (
                f"int({n} * 0.3) + 1",
                f"max(1, int({n} * {self.chance.choice((0.9, 0.75, 0.6, 0.1))}))",
                f"math.ceil({n} / {k})",
                f"math.ceil({n} * 0.{k})",
                f"max(1, round({n} * 0.7))",
                f"max({n} // {k}, 1)",
                f"({n} + {k - 1}) // {k}",
                f"min({n}, {self.limit})",
                f"max(1, {n} - {k})",
                f"{n} - {n} % 2" if self.chance.random() < 0.5 else f"{n} - {n} // {k}",
                f"{n}.bit_length()",
                f"math.isqrt({n})",
                f"int({n} ** 0.5)",
                f"1 + {n} % {k}",
            )
        )

    @property
    def amount(self) -> str:
        """A real number by arithmetic on sizes."""
        n, k = self.any_size, self.k
        return self.chance.choice(
            (
                f"{n} ** -0.5",
                f"{n} ** -0.25",
                f"1 / ({n} + 1)",
                f"math.sqrt({n})",
                f"math.log({n} + 1)",
                f"float({n} % {k})",
                f"(0.5 if {self.cond} else 2.0)",
                f"({n} // {k}) * 0.1",
                f"{n} / ({self.any_size} + 1)",
                f"min({n}, {self.limit}) / {k}",
                f"max({n}, {self.any_size}) * 0.1",
            )
        )

    @property
    def k(self) -> int:
        return self.chance.choice((2, 3, 4, 5))

    @property
    def limit(self) -> int:
        """A number that a size may pass: near the example, or far from it."""
        return self.chance.choice(NEAR if self.chance.random() < 0.5 else FAR)

    @property
    def cond(self) -> str:
        """A condition on sizes."""
        n, m, limit, k = self.any_size, self.any_size, self.limit, self.k
        apart = self.chance.choice(
            (
                f"{n} > 2 * {m} + 1",
                f"{n} >= {m}",
                f"{n} * {m} > {self.chance.choice((60, 400, 900))}",
                f"{n} < {m}",
            )
        )
        return self.chance.choice(
            (
                f"{n} > {limit}",
                f"{n} >= {limit}",
                f"{n} <= {limit}",
                f"{n} % {self.chance.choice((2, 3, 4, 7, 100))} == 0",
                f"{n} % {k} == {k - 1}",
                f"{n} > {limit} and {m} > {self.chance.choice(NEAR)}",
                f"{n} > {limit} or {m} % 2",
                apart if n != m else f"{n} // {k} > {limit}",
                f"{self.chance.choice(NEAR)} < {n} <= {limit + 15}",
                f"not {n} & ({n} - 1)",
                f"{n} in (4, 8, {limit})",
                f"math.sqrt({n}) > {k}",
                f"{n} * 0.3 > {k}",
            )
        )

    # --- Expressions

    def same(self) -> str:
        """x, changed in a way that shows, at its own shape."""
        x, a = self.x, self.a
        return self.chance.choice(
            (
                f"{x}.flip({a})",
                f"{x} * 2",
                f"{x} + 1",
                f"{x}.cumsum({a})",
                f"{x}.softmax({a})",
                f"torch.tanh({x})",
                f"{x}.roll({self.k}, {a})",
                f"{x} - {x}.mean({a}, keepdim=True)",
                f"{x}.sort({a})[0]",
                f"{x} * {self.n}",
            )
        )

    def part(self, text: str) -> str:
        """A layer or a parameter: a line in __init__."""
        self.parts.append(f"self.p{self.number}_{len(self.parts)} = {text}")
        return self.parts[-1].split(" = ")[0]

    @property
    def new(self) -> str:
        """A name that is not taken."""
        return f"t{self.number}"

    # --- How they are found

    @cached_property
    def _floats(self) -> list[str]:
        return self.worlds.tensors(*FLOATS)

    def _ranked(self, rank: int) -> list[str]:
        return [name for name in self._floats if self.worlds.rank(name) == rank]

    def _is_still(self, name: str, axis: int) -> bool:
        rank = self.worlds.rank(name)
        return rank > 0 and axis % rank not in self.worlds.moving(name)

    def _width(self, name: str, axis: int) -> int:
        sizes = set(self.worlds.sizes(name, axis))
        return sizes.pop() if len(sizes) == 1 else -1

    def _pick(self, options: Sequence[T]) -> T:
        """One of them, the latest more often than the others."""
        if not options:
            raise Unfit
        return options[-1] if self.chance.random() < 0.6 else self.chance.choice(options)
