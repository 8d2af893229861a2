"""Search: the fewest changes to numbers in the source with which PyTorch takes other sizes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anyshape.dims import Expr
from anyshape.mend.changes import Axis, Change, axis_name, derived, overrides, plain
from anyshape.probe import Evidence
from anyshape.read import Case, Outputs
from anyshape.sites import Sites
from anyshape.source import first_line, line_of_exception
from anyshape.values import make_tensors

__all__ = ["Ambiguous", "Runs", "Solution", "moves", "search"]

DEEPEST = 4
MOST_STATES = 24
ENOUGH = 2  # sizes at which changes have to work

Shapes = tuple[tuple[int, ...], ...]
Changes = tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """Changes with which the model takes other sizes of some axes, and the sizes that were tried."""

    axes: tuple[Axis, ...]
    changes: Changes
    sizes: tuple[int, ...]


class Ambiguous(Exception):
    """Several changes, equally small, with which the model runs and gives different numbers."""

    def __init__(self, axes: tuple[Axis, ...], choices: Sequence[Changes], size: int) -> None:
        super().__init__("several changes make the model run")
        self.axes, self.choices, self.size = axes, list(choices), size


class Runs:
    """Runs of a model with changes, each once."""

    def __init__(
        self, case: Case, evidence: Evidence, fixed: Sequence[Axis], sites: Sites, budget: float
    ) -> None:
        self.case, self.evidence, self.sites = case, evidence, sites
        self.fixed = frozenset(name for number, axis in fixed for name in evidence.shapes[number][axis].names)
        self.known: dict[Any, Outputs | str] = {}
        self.end = time.process_time() + budget

    @property
    def over(self) -> bool:
        return time.process_time() > self.end

    def at(self, changes: Changes, shapes: Shapes) -> Outputs | str:
        """The outputs, or why there are none."""
        key = (frozenset(changes), shapes)
        if key not in self.known:
            self.known[key] = self.of(changes, self.tensors(shapes))
        return self.known[key]

    def of(self, changes: Changes, tensors: Sequence[torch.Tensor]) -> Outputs | str:
        sizes = axis_sizes(tensors)
        try:
            with self.sites.overriding(overrides(changes, sizes)):
                return self.case.run(tensors)
        except Exception as error:
            return f"{first_line(error)} {line_of_exception(error)}"

    def tensors(self, shapes: Shapes) -> list[torch.Tensor]:
        sizes = {dim.name: dim.example for dim in self.evidence.dims}
        return make_tensors(self.case, self.evidence.rules, shapes, sizes)

    def keeps(self, changes: Changes) -> bool:
        """Whether the model computes what it did wherever it ran without the changes."""
        return all(
            not isinstance(made := self.at(changes, shapes), str) and _equal(made.tensors, before.tensors)
            for shapes in self.elsewhere()
            if not isinstance(before := self.at((), shapes), str)
        )

    def elsewhere(self) -> Iterator[Shapes]:
        """The example, and each size that was found to vary at two others."""
        yield self.case.shapes
        example = {dim.name: dim.example for dim in self.evidence.dims}
        for dim in self.evidence.dims:
            if dim.name in self.fixed:
                continue
            for size in {dim.generic, dim.example + 1, dim.example + 2} - {dim.example}:
                if dim.range.contains(size):
                    sizes = {**example, dim.name: size}
                    yield tuple(
                        tuple(axis.evaluate(sizes) for axis in shape) for shape in self.evidence.shapes
                    )


def axis_sizes(tensors: Sequence[Any]) -> dict[str, Any]:
    """The size of each axis of each input, by its name."""
    return {
        axis_name((number, axis)): size
        for number, tensor in enumerate(tensors)
        for axis, size in enumerate(tensor.shape)
    }


def moves(fixed: Sequence[Axis], axis: Axis, shapes: Shapes) -> Iterator[tuple[Axis, ...]]:
    """Which axes may have to move with one: none; the same of every input; all of its size."""
    size = shapes[axis[0]][axis[1]]
    alike = [other for other in fixed if shapes[other[0]][other[1]] == size and other != axis]
    others = [other for other in alike if other[0] != axis[0]]
    same_place = [other for other in others if other[1] == axis[1]]
    yield from dict.fromkeys([(axis,), (axis, *same_place), (axis, *others), (axis, *alike)])


def search(runs: Runs, axes: tuple[Axis, ...], done: Changes) -> Solution | None:
    """The smallest changes, beside those ``done``, that let the axes have other sizes; `Ambiguous` if they differ."""
    shapes = runs.case.shapes
    sizes = {(number, axis): size for number, shape in enumerate(shapes) for axis, size in enumerate(shape)}
    size = sizes[axes[0]]
    trials = {
        other: _moved(shapes, axes, other)
        for other in dict.fromkeys(size + step for step in (1, 2, 4, 8, size, 2 * size))
    }
    taken = {(change.site, change.place) for change in done}
    first, more = (
        [change for change in found if (change.site, change.place) not in taken]
        for found in (plain(runs.sites.seen, axes[0], size), derived(runs.sites.seen, axes[0], sizes))
    )
    for pool, depth in ((first, 2), ([*first, *more], 2), (first, DEEPEST)):
        found = _smallest(runs, trials, done, pool, depth)
        if found:
            kept = _settled(runs, axes, trials, done, found, first)
            good = [other for other, moved in trials.items() if not isinstance(runs.at(kept, moved), str)]
            return Solution(axes, kept[len(done) :], tuple(good))
    return None


def _moved(shapes: Shapes, axes: Sequence[Axis], size: int) -> Shapes:
    return tuple(
        tuple(size if (number, axis) in axes else old for axis, old in enumerate(shape))
        for number, shape in enumerate(shapes)
    )


def _smallest(
    runs: Runs, trials: Mapping[int, Shapes], done: Changes, pool: Sequence[Change], depth: int
) -> list[Changes]:
    """All changes of the fewest numbers that work at most sizes. A change is followed up if the objection changes."""
    states: list[Changes] = [done]
    before = _objection(runs, trials, done)
    objections, enough = {before}, max(ENOUGH, 1 + before.count(""))
    for _ in range(depth):
        made: dict[frozenset[Change], Changes] = {}
        for state, change in itertools.product(states, pool):
            if not any(other.site == change.site and other.place == change.place for other in state):
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
) -> Changes:
    """The changes to take: the only ones, or one of several that come to the same."""
    kinds: list[list[Changes]] = []
    for changes in found:
        for kind in kinds:
            if _same(runs, trials, kind[0], changes):
                kind.append(changes)
                break
        else:
            kinds.append([changes])
    if len(kinds) > 1:
        batched = [kind for kind in kinds if any(_is_batch(runs, axes, size, kind[0]) for size in trials)]
        kinds = batched or kinds
    if len(kinds) == 1:
        kinds += [[other] for other in _of_other_axes(runs, axes, kinds[0][0], len(done))]
        kinds += [
            [more]
            for more in _more(runs, trials, kinds[0][0], pool)
            if not _same(runs, trials, kinds[0][0], more)
        ]
    if len(kinds) > 1:
        raise Ambiguous(axes, [kind[0][len(done) :] for kind in kinds], next(iter(trials)))
    return min(
        kinds[0], key=lambda changes: [change.site.kind != "literal" for change in changes[len(done) :]]
    )


def _more(
    runs: Runs, trials: Mapping[int, Shapes], changes: Changes, pool: Sequence[Change]
) -> Iterator[Changes]:
    """The changes, and of each line all the same numbers: `torch.full((7,), 1 / 7)` may mean either."""
    lines = {(change.site.file, change.site.line, change.value) for change in changes}
    for change in pool:
        site = change.site
        if (site.file, site.line, change.value) in lines and all(site != other.site for other in changes):
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
            moved = _moved(_moved(shapes, axes, size + steps[0]), (other,), size + steps[1])
            mine, their = runs.at(changes, moved), runs.at((*changes[:done], *theirs), moved)
            if (
                not isinstance(mine, str)
                and not isinstance(their, str)
                and not _equal(mine.tensors, their.tensors)
            ):
                yield (*changes[:done], *theirs)
                break


def _same(runs: Runs, trials: Mapping[int, Shapes], one: Changes, two: Changes) -> bool:
    for shapes in trials.values():
        a, b = runs.at(one, shapes), runs.at(two, shapes)
        if isinstance(a, str) or isinstance(b, str):
            if isinstance(a, str) != isinstance(b, str):
                return False
        elif not _equal(a.tensors, b.tensors):
            return False
    return True


def _equal(one: Sequence[torch.Tensor], two: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, equal_nan=True)
        if a.is_floating_point()
        else torch.equal(a, b)
        for a, b in zip(one, two, strict=True)
    )


def _is_batch(runs: Runs, axes: Sequence[Axis], size: int, changes: Changes) -> bool:
    """Whether rows do not interact: each output for all rows is the outputs for some and for the others, joined."""
    places = dict(axes)
    if len(places) < len(axes):
        return False
    tensors = runs.tensors(_moved(runs.case.shapes, axes, size))
    head = size // 2
    if not 0 < head < size:
        return False

    def part(pick: Callable[[torch.Tensor, int], torch.Tensor]) -> list[torch.Tensor]:
        return [pick(t, places[number]) if number in places else t for number, t in enumerate(tensors)]

    whole = runs.of(changes, tensors)
    start = runs.of(changes, part(lambda t, axis: t.narrow(axis, 0, head)))
    end = runs.of(changes, part(lambda t, axis: t.narrow(axis, head, size - head)))
    if isinstance(whole, str) or isinstance(start, str) or isinstance(end, str):
        return False
    return all(_joins(*three) for three in zip(whole.tensors, start.tensors, end.tensors, strict=True))


def _joins(whole: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> bool:
    if not whole.dim() == start.dim() == end.dim():
        return False
    for axis in range(whole.dim()):
        others = [k for k in range(whole.dim()) if k != axis]
        fits = whole.shape[axis] == start.shape[axis] + end.shape[axis] and all(
            whole.shape[k] == start.shape[k] == end.shape[k] for k in others
        )
        if fits and torch.allclose(
            whole.double(), torch.cat([start, end], axis).double(), atol=1e-5, equal_nan=True
        ):
            return True
    return False
