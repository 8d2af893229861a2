"""Which axes vary, alone or together: the directions in which PyTorch lets the sizes move.

A direction is a set of axes and how far each goes when the first moves by one: ``{tokens.1: 1, mask.1: 1}``,
``{x.1: 1, y.1: 2}``. It is found by trial: move an axis; where PyTorch refuses, take along the axis that lets the
run come further, until it goes through; then leave out whatever is not needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from anyshape.probe.oracle import Axis, Oracle, Point, Trial
from anyshape.source.lines import words_of

__all__ = ["Direction", "generic_point", "is_generic", "leave_limits", "leave_ones", "relations"]

STEEPEST = 8  # rates up to this are tried where a proportion says nothing
DISTANCES = (24, 32, 20, 14)  # one of these leads from 2*k + 1 to the next such size, or any other remainder


@dataclass(frozen=True, slots=True)
class Direction:
    """Axes that move together: for each step of the root, how far each of them goes."""

    root: Axis
    rates: Mapping[Axis, Fraction]
    step: int = 1  # the root moves in multiples of this

    def moved(self, point: Point, by: int) -> dict[Axis, int] | None:
        """The point with the root moved ``by``; None where another axis would not be whole."""
        made = dict(point)
        for axis, rate in self.rates.items():
            change = rate * by
            if change.denominator != 1:
                return None
            made[axis] += int(change)
        return made


def leave_ones(oracle: Oracle) -> dict[Axis, int]:
    """The example with its sizes of 1 made larger wherever PyTorch accepts it.

    A size of 1 broadcasts against anything, so at 1 nothing can be learnt about what must agree with what. Where there
    is a 1, a 2 may hide another (seq - 1): those go along as far.
    """
    point = oracle.example
    size = _fresh_size(3, set(point.values()) | oracle.case.weight_sizes())
    raised = _raised(oracle, point, 1, size)
    return _raised(oracle, raised, 2, size + 1) if raised != point else point


def _raised(oracle: Oracle, point: dict[Axis, int], old: int, new: int) -> dict[Axis, int]:
    """The point with its axes of one size at another, where PyTorch accepts it: all, those of one place, or each."""
    axes = [axis for axis, size in point.items() if size == old]
    by_place: dict[int, list[Axis]] = {}
    for axis in axes:
        by_place.setdefault(axis[1], []).append(axis)
    for group in (axes, *by_place.values(), *([axis] for axis in axes)):
        trial = dict(point) | {axis: new for axis in group if point[axis] == old}
        if trial != point and oracle.trial(trial).fits:
            point = trial
    return point


def leave_limits(oracle: Oracle, point: Point, directions: list[Direction]) -> Point:
    """The point with sizes that do not move halved wherever PyTorch accepts it: they may be all that a table holds."""
    moving = {axis for direction in directions for axis in direction.rates}
    fixed = [axis for axis, size in point.items() if axis not in moving and size >= 4]
    for size in sorted({point[axis] for axis in fixed}):
        alike = [axis for axis in fixed if point[axis] == size]
        groups = [alike, *([a for a in alike if a[1] == place] for place in {a[1]: None for a in alike})]
        for group in groups:
            trial = {**point, **dict.fromkeys(group, size // 2)}
            if oracle.trial(trial).fits:
                point = trial
                break
    return point


def relations(oracle: Oracle, base: Point) -> list[Direction]:
    """The directions in which the sizes can move from ``base``, each as small as can be."""
    alone = {axis: d for axis in base if (d := _alone(oracle, base, axis)) is not None}
    together: list[Direction] = []
    for axis in base:
        done = axis in alone and alone[axis].step == 1
        if done or any(axis in direction.rates for direction in together) or oracle.exhausted:
            continue
        direction = _together(oracle, base, axis)
        if direction is None or (axis in alone and direction.step > 1):
            continue
        if _is_at_most(oracle, base, direction, alone) and not _alike_at_example(oracle, direction):
            direction = Direction(axis, {axis: Fraction(1)}, direction.step)
        together.append(direction)
        # What a companion can do alone is no longer of interest: lengths and their batch are meant to be equal.
        alone = {a: d for a, d in alone.items() if a not in direction.rates}
    return sorted([*alone.values(), *together], key=lambda direction: direction.root)


def _alone(oracle: Oracle, base: Point, axis: Axis) -> Direction | None:
    if oracle.exhausted:
        return None
    return _stepped(oracle, base, Direction(axis, {axis: Fraction(1)}))


def _together(oracle: Oracle, base: Point, axis: Axis) -> Direction | None:
    for by in _strides(base[axis]):
        moves = _companions(oracle, base, axis, by)
        if moves is not None:
            rates = {other: Fraction(change, by) for other, change in moves.items()}
            direction = _stepped(oracle, base, Direction(axis, rates))
            if direction is not None:
                return direction
    for vector in _differences(oracle, axis):
        direction = _stepped(oracle, base, Direction(axis, vector))
        if direction is not None:
            return direction
    return None


def _strides(size: int) -> tuple[int, ...]:
    """How far to move an axis at first: a little (even, so that halves stay whole), then to its double.

    Then further, by what keeps the remainder of most divisors: 4*k + 1 frames, along with the mask of each.
    """
    return tuple(dict.fromkeys((6, max(size, 2), DISTANCES[0])))


def _companions(oracle: Oracle, base: Point, axis: Axis, by: int) -> dict[Axis, int] | None:
    """The axes that must move along with ``axis``, and by how much; None if none help."""
    alike = [a for a in base if base[a] == base[axis]]
    for group in (
        [a for a in alike if a[1] == axis[1]],
        alike,
        [a for a in alike if a[1] == axis[1] or a[0] == axis[0]],
    ):
        moves = dict.fromkeys({axis: None, **dict.fromkeys(group)}, by)
        if oracle.trial(_shifted(base, moves)).fits:
            fewest = _fewest(oracle, base, axis, moves)
            # Of the like-sized, some may move only because others do: boxes.1 and scores.1, along with boxes.0.
            climbed = _climb(oracle, base, axis, {axis: by}) if len(fewest) > 2 else None
            if climbed is None or len(climbed) >= len(fewest):
                return fewest
            return (
                fewest
                if _goes_halfway(oracle, base, fewest) > _goes_halfway(oracle, base, climbed)
                else climbed
            )
    for start in ({axis: by}, {a: by for a in alike if a[1] == axis[1]}):
        climbed = _climb(oracle, base, axis, start)
        if climbed is not None:
            return _fewest(oracle, base, axis, climbed)
    return None


def _climb(oracle: Oracle, base: Point, axis: Axis, start: dict[Axis, int]) -> dict[Axis, int] | None:
    """Take along whichever axis lets the run come further, until it goes through."""
    moves, by = dict(start), start[axis]
    reached = oracle.trial(_shifted(base, moves))
    while not reached.fits and not oracle.exhausted:
        likely = _candidates(base, axis, by, moves)
        idle = _idle(oracle, base, moves, reached)
        for other, change in itertools.chain(likely, _steep(oracle, base, axis, moves, reached)):
            if other in idle:
                continue
            tried = oracle.trial(_shifted(base, moves | {other: change}))
            if reached.stopped is not None and tried.stopped == reached.stopped:
                idle.add(other)
            same_place = tried.progress == reached.progress and _said(tried) != _said(reached)
            if tried.fits or tried.progress > reached.progress or (same_place and base[other] == base[axis]):
                moves[other], reached = change, tried
                break
        else:
            return None
    return moves if reached.fits else None


def _idle(oracle: Oracle, base: Point, moves: Mapping[Axis, int], reached: Trial) -> set[Axis]:
    """The axes that are known to have no say where a run fails, to be added to.

    The call that fails has the same sizes whether such an axis moves or not: to move it further, or the root, won't
    let that call through.
    """
    place = None if reached.stopped is None else reached.stopped.place
    if place is None:
        return set()
    return oracle.idle.setdefault((tuple(base.items()), frozenset(moves), place), set())


def _candidates(base: Point, axis: Axis, by: int, moves: Mapping[Axis, int]) -> Iterator[tuple[Axis, int]]:
    """Other axes with a likely change: the like-sized first, moved as far, or in proportion."""
    others = sorted(
        (a for a in base if a not in moves),
        key=lambda a: (base[a] != base[axis], a[1] != axis[1], base[a] % max(base[axis], 1) != 0),
    )
    for other in others:
        yield other, by
    for other in others:
        in_proportion = Fraction(by * base[other], max(base[axis], 1))
        if in_proportion.denominator == 1 and in_proportion not in (0, by):
            yield other, int(in_proportion)
    for other in others:  # with an offset there is no proportion: 2*seq - 1 relative positions
        yield from ((other, change) for change in (2 * by, by // 2))


def _steep(
    oracle: Oracle, base: Point, axis: Axis, moves: Mapping[Axis, int], reached: Trial
) -> Iterator[tuple[Axis, int]]:
    """Changes of three times as much and more, such as 3*n + 2 needs, where they may be of use.

    That is for larger axes which can't move alone and have a say where the run fails: most sizes that are fixed are
    fixed by a weight, and nothing is of use there.
    """
    by, size = moves[axis], max(base[axis], 1)
    for other in [a for a in base if a not in moves and base[a] > base[axis]]:
        if oracle.trial(_shifted(base, {other: 1})).fits:
            continue
        moved = oracle.trial(_shifted(base, {**moves, other: by}))
        if moved.progress == reached.progress and _said(moved) != _said(reached):
            least, most = base[other] // size, -(-base[other] // size)
            rates = {*range(3, min(most + 1, STEEPEST) + 1), least, most}
            yield from ((other, rate * by) for rate in sorted(rates) if rate > 2)


def _said(trial: Trial) -> str:
    return "" if trial.why is None else words_of(trial.why.error)


def _fewest(oracle: Oracle, base: Point, axis: Axis, moves: dict[Axis, int]) -> dict[Axis, int]:
    """The moves without those that are not needed.

    Where a mask spans past and present (past + seq), past moves along with seq only because the mask moved for both:
    without it, the mask moves less. One axis of several inputs, all of the root's size by coincidence, goes at once.
    """
    halfway = _goes_halfway(oracle, base, moves)

    def go(fewer: dict[Axis, int]) -> bool:
        """Whether these go alone, half as far as well: 16 numbers of a mask make 8 rows by luck, and not 5."""
        return oracle.trial(_shifted(base, fewer)).fits and _goes_halfway(oracle, base, fewer) >= halfway

    for place in {a[1]: None for a in moves if a[1] != axis[1]}:
        fewer = {a: change for a, change in moves.items() if a[1] != place}
        moves = fewer if go(fewer) else moves
    for other in [a for a in moves if a != axis]:
        if other not in moves:
            continue
        fewer = {a: change for a, change in moves.items() if a != other}
        less = [fewer | {a: change - moves[other]} for a, change in fewer.items() if change > moves[other]]
        moves = next(filter(go, (fewer, *less)), moves)
    return moves


def _goes_halfway(oracle: Oracle, base: Point, moves: Mapping[Axis, int]) -> bool:
    """Whether the same moves go half as far; not where that is no whole number."""
    halves = {axis: change // 2 for axis, change in moves.items() if change % 2 == 0}
    return len(halves) == len(moves) and oracle.trial(_shifted(base, halves)).fits


def _is_at_most(oracle: Oracle, base: Point, direction: Direction, alone: Mapping[Axis, Direction]) -> bool:
    """Whether the root only has to stay below its companions, which are free themselves."""
    companions = [a for a in direction.rates if a != direction.root]
    if not companions or not all(a in alone for a in companions):
        return False
    room = _shifted(base, {a: int(direction.rates[a] * 8 * direction.step) for a in companions})
    # Not once, which may be luck: 14 divides 42, as heads must that share keys.
    return all(
        oracle.trial(_shifted(room, {direction.root: times * direction.step})).fits for times in (1, 2, 3)
    )


def _alike_at_example(oracle: Oracle, direction: Direction) -> bool:
    return len({oracle.example[a] for a in direction.rates}) == 1 and set(direction.rates.values()) == {
        Fraction(1)
    }


def _stepped(oracle: Oracle, base: Point, direction: Direction) -> Direction | None:
    """The direction with the smallest step at which PyTorch goes along, at more than one distance."""
    size = base[direction.root]
    if _goes_along(oracle, base, direction, 1):
        return direction
    by_one = direction.moved(base, 1)
    if by_one is not None and oracle.trial(by_one).fits:
        return None  # it goes on for a little, and not from multiple to multiple
    # Twice the size is a multiple of whatever the size is a multiple of; the others are for what leaves a remainder.
    squares = any(axis in oracle.squares for axis in direction.rates)
    for distance in dict.fromkeys((max(size, 2), *(() if squares else DISTANCES))):
        far = direction.moved(base, distance)
        if far is None or not oracle.trial(far).fits:
            continue
        for step in _steps(distance):
            if _goes_along(oracle, base, direction, step):
                return Direction(direction.root, direction.rates, step)
    return None


def _goes_along(oracle: Oracle, base: Point, direction: Direction, step: int) -> bool:
    # 11 as well for single steps: near by, a view may go through by luck (60 elements split into 3, 5 or 6 rows).
    # No luck leads from one square to the next, and 11 squares further is beyond many a table.
    squares = any(axis in oracle.squares for axis in direction.rates)
    # A remainder needs all three: 36 and 100 are squares, as 4 is, and 32 apart or a multiple of that.
    multiples = step > 1 and base[direction.root] % step == 0
    distances = (1, 3) if multiples else (1, 2, 3) if squares or step > 1 else (1, 3, 11)

    def accepted(times: int) -> bool:
        point = direction.moved(base, step * times)
        return point is not None and oracle.trial(point).fits

    if all(map(accepted, distances)):
        return True
    # 11 further may be beyond a table; no luck leads to five sizes on end.
    return step == 1 and all(map(accepted, range(1, 6)))


def _steps(size: int) -> list[int]:
    """What a size is usually a multiple of: 2, its divisors, and the size itself."""
    divisors = [d for d in range(2, min(size, 512) + 1) if size % d == 0]
    return sorted({2, *divisors[:12], max(size, 2)})


def _differences(oracle: Oracle, axis: Axis) -> Iterator[dict[Axis, Fraction]]:
    """The user's further examples: what moved between two of them moves together."""
    here = oracle.example
    for tensors in oracle.case.more_examples:
        there = oracle.point_of(tuple(tuple(t.shape) for t in tensors))
        if there[axis] != here[axis]:
            change = there[axis] - here[axis]
            yield {a: Fraction(there[a] - here[a], change) for a in here if there[a] != here[a]}


def is_generic(oracle: Oracle, point: Point, directions: list[Direction]) -> bool:
    """Whether no size at this point can be taken for another, for a weight's, or for a 1."""
    moving = {axis for direction in directions for axis in direction.rates}
    roots = [point[direction.root] for direction in directions]
    others = (
        {size for axis, size in point.items() if axis not in moving} | oracle.case.weight_sizes() | {0, 1}
    )
    return len(set(roots)) == len(roots) and not _met(oracle, point, moving) & others


def generic_point(oracle: Oracle, base: Point, directions: list[Direction]) -> dict[Axis, int]:
    """A point where no two dims have one size and none has a weight's size: coincidences end here."""
    taken = set(oracle.case.weight_sizes()) | {
        base[a] for a in base if not any(a in d.rates for d in directions)
    }
    point = dict(base)
    for direction in directions:
        for target in _targets(point[direction.root], direction.step):
            moved = direction.moved(point, target - point[direction.root])
            if moved is None or _met(oracle, moved, direction.rates) & taken:
                continue
            if oracle.trial(moved).fits:
                point = moved
                taken |= _met(oracle, moved, direction.rates)
                break
    return point


def _met(oracle: Oracle, point: Point, axes: Iterable[Axis]) -> set[int]:
    """The sizes that a model meets at these axes: of a square, its root as well."""
    sizes = oracle.sizes(point)
    return {size for axis in axes for size in (point[axis], sizes[axis])}


def _targets(size: int, step: int) -> Iterator[int]:
    """Sizes above ``size`` on its lattice, primes first where every size is allowed.

    Above, not below: a smaller image may be down to a single row or column somewhere inside the model, and a trace
    takes a 1 for a constant.
    """
    if step == 1:
        yield from itertools.islice(_primes(max(size + 1, 5)), 12)
    yield from (size + step * times for times in range(1, 12))


def _shifted(base: Point, moves: Mapping[Axis, int]) -> dict[Axis, int]:
    return {axis: size + moves.get(axis, 0) for axis, size in base.items()}


def _fresh_size(at_least: int, taken: set[int]) -> int:
    return next(prime for prime in _primes(at_least) if prime not in taken)


def _primes(at_least: int) -> Iterator[int]:
    return (n for n in itertools.count(at_least) if n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)))
