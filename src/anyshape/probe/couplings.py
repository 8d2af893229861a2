"""Ends that move: where one size ends depends on another, as a sequence does on a table among the inputs.

A limit is found with all other sizes low. If it lies elsewhere once another size is raised, the two are bound together:
``seq ≤ table``, ``past + seq ≤ 1024``. The bound is a straight line through several such ends, or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from anyshape.probe.bounds import Bound, Direction, at
from anyshape.probe.limits import LARGEST, SLOWEST, Limit, largest, smallest
from anyshape.probe.oracle import Oracle, Point

__all__ = ["coupled"]

RAISED = (8, 4, 3, 2, 1)  # steps by which another size is raised, at most


@dataclass(frozen=True, slots=True)
class _Sizes:
    """An oracle with the directions and the point that its questions start from."""

    oracle: Oracle
    low: Point
    directions: Sequence[Direction]

    def ends_at(self, number: int, point: Point, size: int) -> bool:
        """Whether a direction's root ends at a size, from a point."""
        direction = self.directions[number]
        last, beyond = at(point, direction, size), at(point, direction, size + direction.step)
        return (
            last is not None
            and beyond is not None
            and self.oracle.trial(last).ok
            and not self.oracle.trial(beyond).ok
        )

    def raised(self, number: int) -> list[dict[tuple[int, int], int]]:
        """The points with a direction's root raised, as far as PyTorch accepts them."""
        direction = self.directions[number]
        points = (at(self.low, direction, self.low[direction.root] + n * direction.step) for n in RAISED)
        return [point for point in points if point is not None and self.oracle.trial(point).ok]


def coupled(
    oracle: Oracle, low: Point, directions: Sequence[Direction], found: Sequence[Limit]
) -> tuple[list[Limit], list[Bound]]:
    """The limits, those that depend on other sizes left to the bounds beside them."""
    made, bounds = list(found), []
    for number, limit in enumerate(found):
        if limit.largest is None or oracle.exhausted:
            continue
        asked = _able(oracle, low, directions[number], limit)
        if asked is None:
            continue
        sizes = _Sizes(asked, low, directions)
        others = _others(sizes, number, limit.largest)
        if not others:
            continue
        bound = _bound(sizes, number, limit, others)
        if bound is None:
            made[number] = replace(limit, largest=None, above=None)
            continue
        bounds.append(bound)
        _leave_to(sizes, bound, number, made)
    return made, list({str(sorted(b.rates.items())) + str(b.most): b for b in bounds}.values())


def _able(oracle: Oracle, low: Point, direction: Direction, limit: Limit) -> Oracle | None:
    """Who can be asked about runs as large as the limit: PyTorch itself if they are short, else fake tensors."""
    assert limit.largest is not None
    last = at(low, direction, limit.largest)
    if last is None:
        return None
    if not oracle.fake and oracle.knows(last):
        trial = oracle.trial(last)
        if trial.ok and trial.seconds <= SLOWEST / 8:
            return oracle
    fakes = oracle.on_fakes()
    beyond = at(low, direction, limit.largest + direction.step)
    if fakes is None or beyond is None or not fakes.trial(last).ok or fakes.trial(beyond).ok:
        return None
    return fakes


def _others(sizes: _Sizes, number: int, end: int) -> list[int]:
    """The directions that move the end of one."""
    made = []
    for other in range(len(sizes.directions)):
        raised = [] if other == number else sizes.raised(other)
        if raised and not sizes.ends_at(number, raised[0], end):
            made.append(other)
    return made


def _bound(sizes: _Sizes, number: int, limit: Limit, others: Sequence[int]) -> Bound | None:
    """The bound through the ends that were found with others raised; None if no straight one fits them all."""
    direction = sizes.directions[number]
    assert limit.largest is not None
    ends: list[tuple[Point, int]] = [(sizes.low, limit.largest)]
    rates: dict[int, Fraction] = {}
    for other in others:
        root, guess = sizes.directions[other].root, limit.largest
        for point in reversed(sizes.raised(other)):
            end = _end(sizes, number, point, guess)
            if end is None:
                return None
            guess = end
            ends.append((point, end))
            rates[other] = Fraction(end - limit.largest, point[root] - sizes.low[root])
    scale = math.lcm(*(rate.denominator for rate in rates.values()))
    whole = {number: Fraction(scale)} | {other: -rate * scale for other, rate in rates.items()}

    def used(point: Point, end: int) -> int:
        moved = at(point, direction, end)
        assert moved is not None
        return sum(int(rate) * moved[sizes.directions[n].root] for n, rate in whole.items())

    most = max(used(point, end) for point, end in ends)
    if any(used(point, end + direction.step) <= most for point, end in ends):
        return None
    return Bound(whole, most, limit.above)


def _end(sizes: _Sizes, number: int, point: Point, guess: int) -> int | None:
    """Where a direction ends from a point, tried first near where it ended before."""
    step = sizes.directions[number].step
    for size in (guess + step, guess, guess - step, guess + 2 * step):
        if size >= 0 and sizes.ends_at(number, point, size):
            return size
    return largest(sizes.oracle, point, sizes.directions[number])[0]


def _leave_to(sizes: _Sizes, bound: Bound, number: int, made: list[Limit]) -> None:
    """Widen the limits of a bound's directions to what they are with the others out of the way."""
    helping = [other for other, rate in bound.rates.items() if rate < 0]
    least = dict(sizes.low)
    for other in bound.rates:
        direction = sizes.directions[other]
        if other not in helping and other != number:
            least = at(least, direction, made[other].smallest) or least
    if not helping:
        made[number] = replace(made[number], largest=bound.end_of(number, least, sizes.directions))
        return
    made[number] = replace(made[number], largest=_own_end(sizes, bound, number, helping), above=None)
    below = at(sizes.low, sizes.directions[number], made[number].smallest)
    for other in helping:
        if below is not None and sizes.oracle.trial(below).ok:
            size, objection = smallest(sizes.oracle, below, sizes.directions[other])
            made[other] = replace(made[other], smallest=size, below=objection)


def _own_end(sizes: _Sizes, bound: Bound, number: int, helping: Sequence[int]) -> int | None:
    """The end of a direction where those that move it are far: one of its own, or None."""
    point: Point = sizes.low
    for other in helping:
        direction = sizes.directions[other]
        far = at(point, direction, point[direction.root] + LARGEST // direction.step * direction.step)
        if far is None or not sizes.oracle.trial(far).ok:
            return None
        point = far
    end, _, _ = largest(sizes.oracle, point, sizes.directions[number])
    return None if end is None or end == bound.end_of(number, point, sizes.directions) else end
