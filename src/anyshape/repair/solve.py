"""Solve: changes for every axis that should vary, which also work when all of them vary at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anyshape.repair.changes import Axis
from anyshape.repair.runs import Changes, Runs, Shapes, differ, moved
from anyshape.repair.search import ENOUGH, Ambiguous, Solution, search, tried

__all__ = ["Solved", "solve"]

MOST_ALTERNATIVES = 3
MOST_ENDS = 27


@dataclass(frozen=True, slots=True)
class Solved:
    """A solution for each axis as far as there is one, and where several would do."""

    solutions: tuple[Solution, ...] = ()
    ambiguous: tuple[Ambiguous, ...] = ()

    @property
    def changes(self) -> Changes:
        return tuple(change for solution in self.solutions for change in solution.changes)


def solve(runs: Runs, fixed: Sequence[Axis], progress: Callable[[Axis], None]) -> Solved:
    """The smallest changes that let as many axes vary as possible, alone and together.

    Where one size moves, ``3*b`` and ``b*t//4`` may come to the same; which it is shows when the others move.
    """
    best: list[Solved] = []
    for number, end in enumerate(_ends(runs, list(fixed), Solved(), progress)):
        if _works(runs, end):
            count = len(_covered(runs, fixed, end))
            most = len(_covered(runs, fixed, best[0])) if best else -1
            best = [*best, end] if count == most else [end] if count > most else best
        if number >= MOST_ENDS or runs.over:
            break
    if not best:
        return Solved()
    first = min(best, key=_rank)
    return Solved(first.solutions, (*first.ambiguous, *_doubts(runs, first, best)))


def _ends(
    runs: Runs, fixed: Sequence[Axis], so_far: Solved, progress: Callable[[Axis], None]
) -> Iterator[Solved]:
    """Every way to let one axis after another vary, the simplest first."""
    if not fixed:
        yield so_far
        return
    axis, rest = fixed[0], fixed[1:]
    if axis in _covered(runs, (axis,), so_far):
        yield from _ends(runs, rest, so_far, progress)
        return
    progress(axis)
    try:
        found = search(runs, fixed, axis, so_far.changes)
    except Ambiguous as doubt:
        yield from _ends(runs, rest, Solved(so_far.solutions, (*so_far.ambiguous, doubt)), progress)
        return
    for solution in found[:MOST_ALTERNATIVES]:
        more = Solved((*so_far.solutions, solution), so_far.ambiguous)
        yield from _ends(runs, rest, more, progress)
    if not found:
        yield from _ends(runs, rest, so_far, progress)


def _covered(runs: Runs, fixed: Sequence[Axis], solved: Solved) -> list[Axis]:
    """The axes that vary with these changes: those they are for, and others that come along."""
    named = {axis for solution in solved.solutions for axis in solution.axes}
    return [axis for axis in fixed if axis in named or _varies(runs, axis, solved.changes)]


def _varies(runs: Runs, axis: Axis, changes: Changes) -> bool:
    """Whether more sizes of an axis run with the changes than without, and two at least."""
    trials = tried(runs.case.shapes, (axis,))
    with_changes, without = (
        sum(not isinstance(runs.at(which, shapes), str) for shapes in trials.values())
        for which in (changes, ())
    )
    return with_changes >= max(ENOUGH, without + 1)


def _works(runs: Runs, solved: Solved) -> bool:
    """Whether the model runs when all sizes that may vary do, at two sets of sizes at least."""
    together = _together(runs, solved)
    ran = sum(not isinstance(runs.at(solved.changes, shapes), str) for shapes in together)
    return ran >= min(2, len(together))


def _together(runs: Runs, solved: Solved) -> list[Shapes]:
    made = []
    for turn in range(4 if len(solved.solutions) > 1 else 0):
        shapes = runs.case.shapes
        for number, solution in enumerate(solved.solutions):
            sizes = solution.sizes
            shapes = moved(shapes, solution.axes, sizes[(turn + number) % len(sizes)])
        made.append(shapes)
    return made


def _rank(solved: Solved) -> tuple[int, int, int]:
    changes = solved.changes
    names = sum(len(change.size.names) for change in changes)
    return len(changes), names, sum(len(str(change.size)) for change in changes)


def _doubts(runs: Runs, first: Solved, others: Sequence[Solved]) -> Iterator[Ambiguous]:
    """Other changes that work for all axes at once as well, and give other numbers."""
    for other in others:
        if len(other.changes) != len(first.changes):
            continue
        for shapes in _together(runs, first):
            mine, theirs = runs.at(first.changes, shapes), runs.at(other.changes, shapes)
            if differ(mine, theirs):
                yield Ambiguous(first.solutions[0].axes, [first.changes, other.changes])
                return
