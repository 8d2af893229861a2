"""Contexts: in every layer, a number inside a choice is the same size of the same tensor near by.

What the few runs of one layer that took a way do not tell (is it 14, or the padded height?), all layers together do:
the line that made a tensor, and an axis of it, are the same in all of them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anyshape.capture.tape.steps import Step, Tape, Value, chosen, leaves

__all__ = ["Key", "Place", "context_of", "made_by", "number_places", "shared_contexts"]

NEAR = 80  # so many steps before a choice are near by

# Which axis of which tensor: of the last that a line made with an operator, or of an input of the step itself.
Key = tuple[Any, ...]
# Which number: of which run of an operator by a line within a way, and which of its arguments.
Place = tuple[Any, ...]


def context_of(steps: Sequence[Step]) -> dict[Key, tuple[Value, int]]:
    """The axes of the tensors that the last of the steps made."""
    made: dict[Key, tuple[Value, int]] = {}
    for step in steps[-NEAR:]:
        made.update(made_by(step))
    return made


def made_by(step: Step) -> dict[Key, tuple[Value, int]]:
    return {
        (step.where, step.target, number, axis): (value, axis)
        for number, value in enumerate(step.outputs)
        if value is not None
        for axis in range(len(value.shape))
    }


def number_places(tape: Tape) -> list[Place]:
    """For each step of a way, what names it in every layer."""
    counts: dict[Any, int] = defaultdict(int)
    made = []
    for step in tape.steps:
        made.append((step.where, step.target, counts[step.where, step.target]))
        counts[step.where, step.target] += 1
    return made


def shared_contexts(columns: Sequence[Sequence[Step]]) -> dict[Place, tuple[Key, ...]]:
    """For the numbers in ways that differ from run to run: the axis, or the two, whose size or product each is."""
    seen: dict[Place, list[tuple[int, Mapping[Key, int]]]] = defaultdict(list)
    for column in columns:
        if column[0].target is chosen:
            for step in column:
                for place, number, sizes in _numbers(step):
                    seen[place].append((number, sizes))
    found = {}
    for place, runs in seen.items():
        if len({number for number, _ in runs}) > 1:
            keys = _explaining(runs)
            if keys is not None:
                found[place] = keys
    return found


def _numbers(step: Step) -> Iterator[tuple[Place, int, Mapping[Key, int]]]:
    """Every number in a way, with the sizes near by."""
    near = {key: value.shape[axis] for key, (value, axis) in step.body.context.items()}
    for name, inner in zip(number_places(step.body.tape), step.body.tape.steps, strict=True):
        own = {
            ("own", k, axis): size for k, v in enumerate(inner.inputs) for axis, size in enumerate(v.shape)
        }
        numbers = [leaf for leaf in leaves((inner.args, inner.kwargs)) if not isinstance(leaf, Value)]
        for place, leaf in enumerate(numbers):
            if type(leaf) is int:
                yield (*name, place), leaf, {**own, **near}
        near = {**near, **{key: value.shape[axis] for key, (value, axis) in made_by(inner).items()}}


def _explaining(runs: Sequence[tuple[int, Mapping[Key, int]]]) -> tuple[Key, ...] | None:
    shared = [key for key in runs[0][1] if all(key in sizes for _, sizes in runs)]
    for key in shared:
        if all(sizes[key] == number for number, sizes in runs):
            return (key,)
    own = [key for key in shared if key[0] == "own"]
    for one, two in itertools.combinations(own, 2):
        if all(sizes[one] * sizes[two] == number for number, sizes in runs):
            return one, two
    return None
