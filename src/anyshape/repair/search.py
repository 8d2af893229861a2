"""Search: the fewest changes to numbers in the source with which PyTorch takes other sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anyshape.dims import Expr
from anyshape.repair.changes import Axis, Change, axis_name, derived, plain
from anyshape.repair.rows import are_apart, stay_apart
from anyshape.repair.runs import Changes, Runs, Shapes, differ, equal, moved

__all__ = ["ENOUGH", "Ambiguous", "Solution", "search", "tried"]

MOST_STATES = 24
ENOUGH = 2  # sizes at which changes have to work


@dataclass(frozen=True, slots=True)
class Solution:
    """Changes with which the model takes other sizes of some axes, and the sizes that were tried."""

    axes: tuple[Axis, ...]
    changes: Changes
    sizes: tuple[int, ...]


class Ambiguous(Exception):
    """Several changes, equally small, with which the model runs and gives different numbers."""

    def __init__(self, axes: tuple[Axis, ...], choices: Sequence[Changes]) -> None:
        super().__init__("several changes make the model run")
        self.axes, self.choices = axes, list(choices)


def moves(fixed: Sequence[Axis], axis: Axis, shapes: Shapes) -> Iterator[tuple[Axis, ...]]:
    """Which axes may have to move with one: none; the same of every input; all of its size."""
    size = shapes[axis[0]][axis[1]]
    alike = [other for other in fixed if shapes[other[0]][other[1]] == size and other != axis]
    others = [other for other in alike if other[0] != axis[0]]
    same_place = [other for other in others if other[1] == axis[1]]
    yield from dict.fromkeys([(axis,), (axis, *same_place), (axis, *others), (axis, *alike)])


def search(runs: Runs, fixed: Sequence[Axis], axis: Axis, done: Changes) -> list[Solution]:
    """The smallest changes, beside those ``done``, that let an axis have other sizes; `Ambiguous` if they differ.

    Several that come to the same as long as no other axis moves are all given, the simplest first.
    """
    for derived_too, depth in STAGES:
        if derived_too and axis not in runs.declared:
            continue  # that it should vary is but a guess already
        for axes in moves(fixed, axis, runs.case.shapes):
            found = _search(runs, axes, done, derived_too, depth)
            if found:
                return found
    return []


# Whether to look at numbers derived from the size, too, and how many changes at once: the smaller change comes first.
STAGES = ((False, 1), (False, 2), (True, 1), (True, 2), (False, 4))


def _search(
    runs: Runs, axes: tuple[Axis, ...], done: Changes, derived_too: bool, depth: int
) -> list[Solution]:
    shapes = runs.case.shapes
    sizes = {(number, axis): size for number, shape in enumerate(shapes) for axis, size in enumerate(shape)}
    size = sizes[axes[0]]
    trials = tried(shapes, axes)
    taken = {(change.literal, change.place) for change in done}
    seen = runs.numbers
    free = {axis: length for axis, length in sizes.items() if axis in runs.free or axis == axes[0]}
    candidates = [*plain(seen, axes[0], size), *(derived(seen, axes[0], free) if derived_too else ())]
    pool = [change for change in candidates if (change.literal, change.place) not in taken]
    found = _smallest(runs, axes, trials, done, pool, depth)
    if not found:
        return []
    same = [change for change in pool if change.value == size]
    kept = _settled(runs, axes, trials, done, found, same)
    good = [other for other, there in trials.items() if not isinstance(runs.at(kept[0], there), str)]
    return [Solution(axes, changes[len(done) :], tuple(good)) for changes in kept]


def tried(shapes: Shapes, axes: tuple[Axis, ...]) -> dict[int, Shapes]:
    """Other sizes of some axes: a few more, and multiples for models that want those."""
    size = shapes[axes[0][0]][axes[0][1]]
    return {size + step: moved(shapes, axes, size + step) for step in (1, 2, 4, 8, size, 2 * size)}


def _smallest(
    runs: Runs,
    axes: tuple[Axis, ...],
    trials: Mapping[int, Shapes],
    done: Changes,
    pool: Sequence[Change],
    depth: int,
) -> list[Changes]:
    """All changes of the fewest numbers that work at most sizes. A change is followed up if the objection changes.

    Where rows do not interact at the example, they must not with the changes.
    """
    apart = are_apart(runs, axes)
    states: list[Changes] = [done]
    before = _objection(runs, trials, done)
    objections, enough = {before}, max(ENOUGH, 1 + before.count(""))
    for _ in range(depth):
        made: dict[frozenset[Change], Changes] = {}
        for state, change in itertools.product(states, pool):
            if not any(other.literal == change.literal and other.place == change.place for other in state):
                made.setdefault(frozenset((*state, change)), (*state, change))
        counts: dict[Changes, int] = {}
        states = []
        for changes in made.values():
            if runs.over:
                return []
            objection = _objection(runs, trials, changes)
            counts[changes] = objection.count("")
            if objection not in objections and len(states) < MOST_STATES:
                objections.add(objection)
                states.append(changes)
        most = max(counts.values(), default=0)
        if most >= enough:
            best = [changes for changes, count in counts.items() if count == most and runs.keeps(changes)]
            best = [changes for changes in best if not apart or stay_apart(runs, axes, trials, changes)]
            if best:
                return best
    return []


def _objection(runs: Runs, trials: Mapping[int, Shapes], changes: Changes) -> tuple[str, ...]:
    """What PyTorch says at each size; nothing where it runs."""
    answers = (runs.at(changes, shapes) for shapes in trials.values())
    return tuple(answer if isinstance(answer, str) else "" for answer in answers)


def _settled(
    runs: Runs,
    axes: tuple[Axis, ...],
    trials: Mapping[int, Shapes],
    done: Changes,
    found: Sequence[Changes],
    pool: Sequence[Change],
) -> list[Changes]:
    """The changes to take: the only ones, or several that come to the same."""
    kinds: list[list[Changes]] = []
    for changes in found:
        for kind in kinds:
            if _same(runs, trials, kind[0], changes):
                kind.append(changes)
                break
        else:
            kinds.append([changes])
    if len(kinds) == 1:
        kinds += [[other] for other in _of_other_axes(runs, axes, kinds[0][0], len(done))]
        kinds += [
            [more]
            for more in _more(runs, trials, kinds[0][0], pool)
            if not _same(runs, trials, kinds[0][0], more)
        ]
    if len(kinds) > 1:
        raise Ambiguous(axes, [kind[0][len(done) :] for kind in kinds])
    return sorted(kinds[0], key=lambda changes: _rank(changes[len(done) :]))


def _rank(changes: Changes) -> tuple[int, int, int]:
    names = sum(len(change.size.names) for change in changes)
    others = sum(change.literal.kind != "literal" for change in changes)
    return names, others, sum(len(str(change.size)) for change in changes)


def _more(
    runs: Runs, trials: Mapping[int, Shapes], changes: Changes, pool: Sequence[Change]
) -> Iterator[Changes]:
    """The changes, and of each line all the same numbers: `torch.full((7,), 1 / 7)` may mean either."""
    lines = {(change.literal.file, change.literal.line, change.value) for change in changes}
    for change in pool:
        literal = change.literal
        if (literal.file, literal.line, change.value) in lines and all(
            literal != other.literal for other in changes
        ):
            more = (*changes, change)
            worked = _objection(runs, trials, more).count("") >= _objection(runs, trials, changes).count("")
            if worked and runs.keeps(more):
                yield more


def _of_other_axes(runs: Runs, axes: tuple[Axis, ...], changes: Changes, done: int) -> Iterator[Changes]:
    """The changes with another axis of the same size at the example, if that runs as well and gives other numbers."""
    shapes = runs.case.shapes
    sizes = {(n, axis): size for n, shape in enumerate(shapes) for axis, size in enumerate(shape)}
    for other, size in sizes.items():
        if size != sizes[axes[0]] or other in axes:
            continue
        words = {axis_name(axis): Expr.of(axis_name(other)) for axis in axes}
        theirs = tuple(replace(c, size=c.size.substitute(words)) for c in changes[done:])
        for steps in ((2, 5), (5, 2)):
            both = moved(moved(shapes, axes, size + steps[0]), (other,), size + steps[1])
            mine, their = runs.at(changes, both), runs.at((*changes[:done], *theirs), both)
            if differ(mine, their):
                yield (*changes[:done], *theirs)
                break


def _same(runs: Runs, trials: Mapping[int, Shapes], one: Changes, two: Changes) -> bool:
    for shapes in trials.values():
        a, b = runs.at(one, shapes), runs.at(two, shapes)
        if isinstance(a, str) or isinstance(b, str):
            if isinstance(a, str) != isinstance(b, str):
                return False
        elif not equal(a.tensors, b.tensors):
            return False
    return True
