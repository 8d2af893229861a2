"""Siblings: tensors of one shape in a list move as one, unless they are seen to differ in size.

Two images of a list may have one size by coincidence. The layers of a cache have it by nature, even where each could
do with another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anyshape.probe.oracle import Oracle, Point

__all__ = ["CACHE", "told_apart"]

MOST = 8  # a longer list is one of layers
CACHE = re.compile(r"past|cache|\bkv\b", re.IGNORECASE)


def told_apart(oracle: Oracle, point: Point) -> Point:
    """The same point, once ``oracle.bundles`` has siblings that may differ each on its own."""
    apart = {number for number in range(len(oracle.bundles)) if _may_differ(oracle, point, number)}
    if not apart:
        return point
    shapes = oracle.shapes(point)
    oracle.bundles = tuple(
        piece
        for number, members in enumerate(oracle.bundles)
        for piece in ([(member,) for member in members] if number in apart else [members])
    )
    return oracle.point_of(shapes)


def _may_differ(oracle: Oracle, point: Point, number: int) -> bool:
    """Whether PyTorch lets the first of the siblings grow on its own, or with the first of other siblings alike."""
    members = oracle.bundles[number]
    first = oracle.case.inputs[members[0]]
    if not 2 <= len(members) <= MOST or CACHE.search(first.path):
        return False
    return any(
        all(_grows(oracle, point, places, by) for by in (1, 3))
        for axis in range(len(first.shape))
        for places in _places(oracle, point, number, axis)
    )


def _places(oracle: Oracle, point: Point, number: int, axis: int) -> Iterator[set[tuple[int, int]]]:
    """Axes to grow, as (input, axis): that of one input; then all of its size in the first of each list as long."""
    members = oracle.bundles[number]
    yield {(members[0], axis)}
    alike = {a for a, size in point.items() if size == point[(number, axis)]}
    yield {(oracle.bundles[n][0], a) for n, a in alike if len(oracle.bundles[n]) == len(members)}


def _grows(oracle: Oracle, point: Point, places: set[tuple[int, int]], by: int) -> bool:
    shapes = tuple(
        tuple(size + by * ((number, axis) in places) for axis, size in enumerate(shape))
        for number, shape in enumerate(oracle.shapes(point))
    )
    return oracle.trial_of_shapes(shapes).fits
