"""Sizes that are squares: the tokens of a grid with equal sides, with a class token or without (197 = 14**2 + 1).

Between a square and the next lies nothing that such a model accepts, so its axis looks fixed. Once the points hold
the root in the place of the size, it is an axis like any other: it moves alone or along with others, and it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from anyshape.probe.limits import LARGEST_ELEMENTS
from anyshape.probe.oracle import Axis, Oracle, Point
from anyshape.probe.relations import Direction, relations

__all__ = ["with_squares"]

SMALLEST = 4  # 0, 1 and 2 are squares, or squares plus one, too often to mean it


def with_squares(oracle: Oracle, base: Point, directions: list[Direction]) -> tuple[Point, list[Direction]]:
    """The point and its directions, with ``oracle.squares`` holding the fixed sizes that can move as squares."""
    moving = {axis for direction in directions for axis in direction.rates}
    wanted = _promising(oracle, base, [axis for axis in base if axis not in moving])
    if not wanted:
        return base, directions
    shapes = oracle.shapes(base)
    oracle.squares = wanted
    again = relations(oracle, oracle.point_of(shapes))
    moving = {axis for direction in again for axis in direction.rates}
    oracle.squares = {axis: more for axis, more in wanted.items() if axis in moving}
    return oracle.point_of(shapes), again if oracle.squares else directions


def _promising(oracle: Oracle, base: Point, fixed: Collection[Axis]) -> dict[Axis, int]:
    """The fixed axes worth a closer look, with what their sizes are beyond a square: few trials for each."""
    beyond = {axis: more for axis in fixed if (more := _beyond_square(oracle, base, axis)) is not None}
    made: dict[Axis, int] = {}
    for axis in beyond:
        root = math.isqrt(base[axis])
        alike = [other for other in beyond if math.isqrt(base[other]) == root]
        at_place = [other for other in alike if other[1] == axis[1]]
        sides = [other for other in fixed if base[other] == root]
        for squares, roots in (([axis], []), (at_place, []), (alike, []), ([axis], sides), (alike, sides)):
            if axis in made or oracle.exhausted:
                break
            if _comes_further(oracle, base, {a: beyond[a] for a in squares}, roots):
                made |= {other: beyond[other] for other in alike}
    return made


def _beyond_square(oracle: Oracle, base: Point, axis: Axis) -> int | None:
    """0 if the size is a square in every example, 1 if it is a square plus one; else None."""
    examples = (tuple(tuple(tensor.shape) for tensor in tensors) for tensors in oracle.case.more_examples)
    sizes = [base[axis], *(oracle.point_of(shapes)[axis] for shapes in examples)]
    if base[axis] < SMALLEST:
        return None
    return next((more for more in (0, 1) if all(_is_square(size - more) for size in sizes)), None)


def _is_square(size: int) -> bool:
    return size >= 0 and math.isqrt(size) ** 2 == size


def _comes_further(oracle: Oracle, base: Point, squares: Mapping[Axis, int], roots: Collection[Axis]) -> bool:
    """Whether the run goes through, or comes further, at other squares than at sizes that are none."""

    def at(root: Callable[[int], int]) -> dict[Axis, int]:
        made = {axis: root(math.isqrt(base[axis])) ** 2 + more for axis, more in squares.items()}
        return {**base, **{axis: root(base[axis]) for axis in roots}, **made}

    moving = [*squares, *roots]
    between = [
        {**base, **{axis: base[axis] + 6 for axis in moving}},  # no two squares are 6 apart
        {**base, **{axis: 2 * base[axis] for axis in moving}},
    ]
    for moved in (at(lambda root: root + 1), at(lambda root: 2 * root)):
        if oracle.elements(moved) > LARGEST_ELEMENTS and not oracle.fake:
            continue
        trial = oracle.trial(moved)
        if trial.fits or trial.progress > max(oracle.trial(point).progress for point in between):
            return True
    return False
