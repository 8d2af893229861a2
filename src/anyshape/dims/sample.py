"""Choosing sizes to try: the most telling ones first, always the same ones for the same seed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from anyshape.dims.bounds import Range, Relation

__all__ = ["Space", "choose", "generic"]

# Without an example: large enough that off-by-one and 0 or 1 show, small enough to be cheap.
_USUAL = 5
# The default largest size to try is at least this; an end of a range is tried even further out.
_LARGE = 64
_FAR_END = 1024
# Below this many assignments the whole space is listed; above, random ones hardly ever repeat.
_LISTABLE = 4096
# Neither above nor below the size that breaks a relation is another one looked for any further than this.
_NEARBY = 128


@dataclass(frozen=True, slots=True)
class Space:
    """The sizes that are legal, and what is known about which of them matter.

    `typical` are the sizes of the example, `wanted` assignments that are tried as they are, and `largest` caps what
    is tried where a range is unbounded or huge (default: 4 times typical, at least 64).
    """

    dims: Mapping[str, Range]
    relations: tuple[Relation, ...] = ()
    typical: Mapping[str, int] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    wanted: tuple[Mapping[str, int], ...] = ()

    def contains(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes are in every range and satisfy every relation.

        >>> Space({"n": Range(1, 8)}).contains({"n": 9})
        False
        """
        return all(limits.contains(sizes[name]) for name, limits in self.dims.items()) and all(
            _holds(relation, sizes) for relation in self.relations
        )


@dataclass(frozen=True, slots=True)
class _Levels:
    """The few sizes of one dim from which assignments are made."""

    low: int
    typical: int
    large: int
    far: int


def choose(space: Space, count: int, seed: int = 0) -> list[dict[str, int]]:
    """At least `count` distinct legal assignments of sizes, if there are that many; the most telling first.

    First the typical sizes; each boundary and each interesting size with the others typical; all dims at
    their minimum; primes; off-multiples; larger sizes; all pairs of small, typical and large; random sizes.

    >>> choose(Space({"n": Range(1, 4)}, typical={"n": 2}), 3)
    [{'n': 2}, {'n': 1}, {'n': 4}, {'n': 3}]
    """
    levels = {name: _levels(space, name) for name in space.dims}
    chosen: dict[tuple[int, ...], dict[str, int]] = {}
    for wanted, pinned in _telling(space, levels):
        _keep(chosen, _repair(space, levels, wanted, pinned))
    if len(chosen) < count:
        for wanted in _filling(space, levels, count, random.Random(seed)):
            _keep(chosen, _repair(space, levels, wanted, space.dims.keys() if _listable(levels) else ()))
            if len(chosen) >= count:
                break
    return list(chosen.values())


def generic(space: Space, avoid: Collection[int], count: int = 1) -> list[dict[str, int]]:
    """Assignments of distinct primes near the typical sizes, none in `avoid`, to get off coincidences.

    Rows differ from each other in every dim. Where a range is too tight for that, what is there is taken.

    >>> generic(Space({"batch": Range(1), "seq": Range(1)}, typical={"batch": 4, "seq": 4}), {5}, count=2)
    [{'batch': 3, 'seq': 7}, {'batch': 11, 'seq': 13}]
    """
    levels = {name: _levels(space, name) for name in space.dims}
    rows: list[dict[str, int]] = []
    for _ in range(count):
        picker = _GenericPicker(space, levels, frozenset(avoid), rows)
        row = picker.pick()
        if row is None:
            break
        rows.append(row)
    return rows


def _keep(chosen: dict[tuple[int, ...], dict[str, int]], sizes: dict[str, int] | None) -> None:
    if sizes is not None:
        chosen.setdefault(tuple(sizes.values()), sizes)


def _levels(space: Space, name: str) -> _Levels:
    limits = space.dims[name]
    top = math.inf if limits.maximum is None else limits.maximum
    typical = int(min(max(space.typical.get(name, _USUAL), limits.minimum), top))
    large = max(space.largest.get(name, max(4 * typical, _LARGE)), typical)
    if name not in space.largest and limits.minimum >= large:
        large = limits.minimum + _LARGE
    large = far = int(min(large, top))
    # The end of a range is worth a larger size than usual, unless the caller drew the line.
    if limits.maximum is not None and limits.maximum <= _FAR_END and name not in space.largest:
        far = limits.maximum
    return _Levels(limits.minimum, typical, large, far)


def _telling(space: Space, levels: Mapping[str, _Levels]) -> Iterator[tuple[dict[str, int], Collection[str]]]:
    """The assignments worth trying, each with the names whose size is the point of it."""
    typical = {name: level.typical for name, level in levels.items()}
    yield typical, ()
    yield from ((dict(sizes), tuple(levels)) for sizes in space.wanted)
    for name, level in levels.items():
        for size in _boundaries(space.dims[name], level):
            yield {**typical, name: size}, (name,)
    yield {name: level.low for name, level in levels.items()}, ()
    yield from ((sizes, ()) for sizes in generic(space, ()))
    yield from ((sizes, ()) for sizes in _off_multiples(levels))
    yield {name: min(level.large, 2 * level.typical + 1) for name, level in levels.items()}, ()
    yield {name: level.large for name, level in levels.items()}, ()
    yield from _all_pairs(levels)


def _boundaries(limits: Range, level: _Levels) -> list[int]:
    ends = [limits.minimum, level.far, limits.minimum + 1, level.far - 1, 0, 1]
    return [size for size in ends if limits.contains(size) and size <= max(level.far, limits.minimum + 1)]


def _off_multiples(levels: Mapping[str, _Levels]) -> Iterator[dict[str, int]]:
    """Sizes one below and one above a multiple of 8, near the typical size."""
    for step in (-1, 1):
        sizes = {}
        for index, (name, level) in enumerate(levels.items()):
            multiple = 8 * max(1, round(level.typical / 8) + index % 2)
            sizes[name] = min(max(multiple + step, level.low), level.large)
        yield sizes


def _all_pairs(levels: Mapping[str, _Levels]) -> Iterator[tuple[dict[str, int], Collection[str]]]:
    """Few rows in which every two dims meet at every combination of small, typical and large."""
    options = {
        name: tuple(dict.fromkeys((level.low, level.typical, level.large))) for name, level in levels.items()
    }
    uncovered = {
        ((left, first), (right, second)): None
        for left, right in itertools.combinations(options, 2)
        for first in options[left]
        for second in options[right]
    }
    while uncovered:
        row = dict(next(iter(uncovered)))
        pinned = tuple(row)
        for name, available in options.items():
            if name not in row:
                row[name] = _most_covering(uncovered, row, name, available)
        row = {name: row[name] for name in options}
        for pair in itertools.combinations(row.items(), 2):
            uncovered.pop(pair, None)
        yield row, pinned


def _most_covering(
    uncovered: Collection[tuple[tuple[str, int], tuple[str, int]]],
    row: Mapping[str, int],
    name: str,
    available: Iterable[int],
) -> int:
    def newly_covered(size: int) -> int:
        new = (name, size)
        return sum((old, new) in uncovered or (new, old) in uncovered for old in row.items())

    return max(available, key=newly_covered)


def _listable(levels: Mapping[str, _Levels]) -> bool:
    return math.prod(level.far - level.low + 1 for level in levels.values()) <= _LISTABLE


def _filling(
    space: Space, levels: Mapping[str, _Levels], count: int, source: random.Random
) -> Iterator[dict[str, int]]:
    """Random sizes, small ones more often; in a small space, every assignment once."""
    if _listable(levels):
        every = list(itertools.product(*(range(level.low, level.far + 1) for level in levels.values())))
        source.shuffle(every)
        yield from (dict(zip(levels, sizes, strict=True)) for sizes in every)
        return
    for _ in range(100 * count):
        yield {name: _random_size(level, source) for name, level in levels.items()}


def _random_size(level: _Levels, source: random.Random) -> int:
    spread = math.log(level.large - level.low + 1)
    return min(level.large, level.low + int(math.exp(source.uniform(0, spread))) - source.randint(0, 1))


def _holds(relation: Relation, sizes: Mapping[str, int]) -> bool:
    try:
        return relation.holds(sizes)
    except (ValueError, ZeroDivisionError):
        return False


def _repair(
    space: Space, levels: Mapping[str, _Levels], sizes: Mapping[str, int], pinned: Collection[str]
) -> dict[str, int] | None:
    """The sizes with as little as possible changed so that all relations hold, or None; pinned ones stay."""
    repaired = {name: max(size, space.dims[name].minimum) for name, size in sizes.items()}
    for _ in range(2 * len(space.relations) + 1):
        broken = [relation for relation in space.relations if not _holds(relation, repaired)]
        if not broken:
            return repaired if space.contains(repaired) else None
        if not any(_mend(space, levels, relation, repaired, pinned) for relation in broken):
            return None
    return None


def _mend(
    space: Space,
    levels: Mapping[str, _Levels],
    relation: Relation,
    sizes: dict[str, int],
    pinned: Collection[str],
) -> bool:
    """Change one size so that the relation holds; whether there was one to change."""
    for name in [name for name in sizes if name in relation.names and name not in pinned]:
        level, current = levels[name], sizes[name]
        around = [size + step for size in _touching(relation, name, sizes) for step in (0, -1, 1)]
        around += [] if around else _nearest(relation, name, sizes)
        options = {*around, level.low, level.low + 1, level.typical, level.large}
        for _, size in sorted((abs(option - current), option) for option in options):
            if space.dims[name].contains(size) and _holds(relation, {**sizes, name: size}):
                sizes[name] = size
                return True
    return False


def _touching(relation: Relation, name: str, sizes: Mapping[str, int]) -> Iterable[int]:
    """The size of the name at which both sides are about equal, if the relation is affine in it."""
    others = {other: size for other, size in sizes.items() if other != name}
    try:
        affine = (relation.left - relation.right).substitute(others).affine()
    except (ValueError, ZeroDivisionError):
        return ()
    if affine is None or set(affine[0]) != {name}:
        return ()
    return (-affine[1] // affine[0][name],)


def _nearest(relation: Relation, name: str, sizes: Mapping[str, int]) -> list[int]:
    """The next size of the name on either side at which the relation holds: the squares around 30 are 25 and 36."""
    current = sizes[name]
    below = range(current - 1, max(current - _NEARBY, 0) - 1, -1)
    above = range(current + 1, current + _NEARBY + 1)
    found = (next((s for s in side if _holds(relation, {**sizes, name: s})), None) for side in (below, above))
    return [size for size in found if size is not None]


class _GenericPicker:
    """A small backtracking search for one row of generic sizes."""

    def __init__(
        self,
        space: Space,
        levels: Mapping[str, _Levels],
        avoid: frozenset[int],
        rows: Collection[Mapping[str, int]],
    ) -> None:
        self.space = space
        self.levels = levels
        self.avoid = avoid
        self.before = {name: {row[name] for row in rows} for name in levels}
        self.used = frozenset(size for row in rows for size in row.values())
        self.steps = 2000
        own = {
            name: [relation for relation in space.relations if relation.names == {name}] for name in levels
        }
        self.legal = {
            name: [
                size for size in self.nearby(name) if all(_holds(item, {name: size}) for item in own[name])
            ]
            for name in levels
        }
        # The tightest choose first, as they have the least choice; what an equality gives comes last.
        self.order = sorted(levels, key=lambda name: (self.follows(name), min(len(self.legal[name]), 100)))

    def nearby(self, name: str) -> range:
        limits, typical = self.space.dims[name], self.levels[name].typical
        end = typical + 200 if limits.maximum is None else min(typical + 200, limits.maximum)
        return range(max(limits.minimum, typical - 200), end + 1)

    def follows(self, name: str) -> bool:
        """Whether some equality gives a whole size of the name at any size of the others, as 2*n gives m."""
        differences = (
            relation.left - relation.right for relation in self.space.relations if relation.op == "=="
        )
        return any(abs(dict(difference.terms).get(((name, 1),), 0)) == 1 for difference in differences)

    def pick(self) -> dict[str, int] | None:
        found = self.extend({})
        if found is not None:
            return {name: found[name] for name in self.levels}
        typical = {name: level.typical for name, level in self.levels.items()}
        return _repair(self.space, self.levels, typical, ())

    def extend(self, row: dict[str, int]) -> dict[str, int] | None:
        if len(row) == len(self.order):
            return row
        name = self.order[len(row)]
        for size in self.options(name, row):
            self.steps -= 1
            if self.steps < 0:
                return None
            longer = {**row, name: size}
            if self.consistent(longer, name) and (found := self.extend(longer)) is not None:
                return found
        return None

    def consistent(self, row: Mapping[str, int], name: str) -> bool:
        return all(
            _holds(relation, row)
            for relation in self.space.relations
            if name in relation.names and relation.names <= row.keys()
        )

    def options(self, name: str, row: Mapping[str, int]) -> list[int]:
        limits, typical = self.space.dims[name], self.levels[name].typical
        for relation in self.space.relations:
            if relation.op == "==" and name in relation.names and relation.names <= row.keys() | {name}:
                forced = [size for size in _touching(relation, name, row) if limits.contains(size)]
                if forced:
                    return forced
        taken = set(row.values())

        def coincidence(size: int) -> tuple[bool, bool, bool, bool, bool, int, int]:
            return (
                size in self.before[name],
                size in taken,
                size in self.avoid,
                size < 3 or not _is_prime(size),
                size in self.used,
                abs(size - typical),
                size,
            )

        ranked = sorted(self.legal[name], key=coincidence)
        # A relation such as n % m == 0 leaves no prime: keep some plain neighbours in the running.
        return [*ranked[:24], *(size for size in ranked[24:] if abs(size - typical) <= 8)]


@lru_cache(maxsize=4096)
def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
