"""Bounds: what sizes may come to together. ``seq ≤ 512``, ``seq ≤ table``, ``past + seq ≤ 1024``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from anyshape.dims import Expr, Relation
from anyshape.inputs.case import Refusal
from anyshape.probe.oracle import Point
from anyshape.probe.relations import Direction

__all__ = ["Bound", "Direction", "at"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The roots of some directions, each times its rate, come to no more than ``most``."""

    rates: Mapping[int, Fraction]  # by the direction's number; whole numbers
    most: int
    above: Refusal | None = None

    def end_of(self, number: int, point: Point, directions: Sequence[Direction]) -> int:
        """The largest root of one direction that keeps the bound, with the others as they are at a point."""
        others = sum(
            rate * point[directions[other].root] for other, rate in self.rates.items() if other != number
        )
        here, step = point[directions[number].root], directions[number].step
        room = math.floor((self.most - others) / self.rates[number]) - here
        return here + room // step * step

    def relation(self, roots: Sequence[Expr]) -> Relation:
        """``past + seq <= 1024``, given the size of each direction's root."""
        terms = [(int(rate), roots[number]) for number, rate in sorted(self.rates.items())]
        left = sum((root * rate for rate, root in terms if rate > 0), Expr.of(0))
        right = sum((root * -rate for rate, root in terms if rate < 0), Expr.of(self.most))
        return Relation(left, "<=", right)


def at(point: Point, direction: Direction, size: int) -> dict[tuple[int, int], int] | None:
    """The point with a direction's root at a size; None where another axis would not be whole."""
    return direction.moved(point, size - point[direction.root])
