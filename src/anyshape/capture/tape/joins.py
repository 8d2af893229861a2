"""Joins: a list that is joined anew in each round as it grows, or that has several items of each round.

Both are written as joins of joins, so that each round of the loop has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.tape.steps import Step, Tape, Value
from anyshape.capture.tape.unpack import VIEWS
from anyshape.errors import SourceLine

__all__ = ["JOINS", "axis_of", "joined_in_groups", "joined_one_by_one"]

aten = torch.ops.aten
JOINS = {aten.stack.default, aten.cat.default, aten.concat.default, aten.concatenate.default}
LARGEST_GROUP = 4


def axis_of(step: Step) -> int:
    """The axis of its result along which a step joins tensors."""
    axis: int = step.argument("dim")
    return axis % len(step.outputs[0].shape)


def joined_one_by_one(tapes: Sequence[Tape]) -> list[Tape] | None:
    """The tapes with a list that was joined before, and has grown since, as that and what is new; None if none has."""
    made = [replace(tape, steps=list(_grown(tape.steps))) for tape in tapes]
    return made if any(one.steps != two.steps for one, two in zip(tapes, made, strict=True)) else None


def _grown(steps: Sequence[Step]) -> Iterator[Step]:
    known: dict[tuple[Any, ...], Value] = {}
    lengths: set[int] = set()
    for step in steps:
        if not _joins(step):
            yield step
            continue
        items, kind = step.args[0], (step.target, axis_of(step))
        shorter = sorted((length for length in lengths if 0 < length < len(items)), reverse=True)
        length = next((length for length in shorter if (*kind, *items[:length]) in known), None)
        every = (*kind, *items)
        known[every] = step.outputs[0]
        lengths.add(len(items))
        if length is None:
            yield step
            continue
        more = _join(step, items[length:])
        yield more
        before = (*kind, *items[:length])
        yield _cat(step, [known[before], more.outputs[0]])


def joined_in_groups(tapes: Sequence[Tape]) -> list[Tape] | None:
    """The tapes with a list of several items from each round as one of the items of a round joined; None if none is."""
    sizes: dict[Any, int] = {}
    for tape in tapes:
        makers = {value: step for step in tape.steps for value in step.outputs}
        for step in tape.steps:
            if _joins(step):
                place = (step.where, step.target)
                sizes[place] = max(sizes.get(place, 0), _group([makers.get(item) for item in step.args[0]]))
    grouped = {place: size for place, size in sizes.items() if size > 1}
    made = [_with_groups(tape, grouped) for tape in tapes] if grouped else list(tapes)
    return made if any(one is not two for one, two in zip(tapes, made, strict=True)) else None


Place = tuple[SourceLine | None, Any]


def _with_groups(tape: Tape, sizes: dict[Place, int]) -> Tape:
    """The tape with groups of so many items joined as soon as all of a group are there."""
    made = {value: number for number, step in enumerate(tape.steps) for value in step.outputs}
    after: dict[int, list[Step]] = {}
    steps: dict[Step, Step] = {}
    for step in tape.steps:
        size = sizes.get((step.where, step.target), 0) if _joins(step) else 0
        items = step.args[0] if size else []
        if not size or len(items) % size or any(item not in made for item in items):
            continue
        groups = [_join(step, items[at : at + size]) for at in range(0, len(items), size)]
        for group in groups:
            after.setdefault(max(made[item] for item in group.inputs), []).append(group)
        steps[step] = _cat(step, [group.outputs[0] for group in groups])
    if not steps:
        return tape
    every = (
        new
        for number, step in enumerate(tape.steps)
        for new in (steps.get(step, step), *after.get(number, ()))
    )
    return replace(tape, steps=list(every))


def _group(makers: Sequence[Step | None]) -> int:
    """After how many items of a list the next round begins, by the steps that made them; 0 if that can't be told."""
    kinds = [
        None if step is None else (step.target, step.args[0] if step.target in VIEWS else None)
        for step in makers
    ]
    for size in range(1, LARGEST_GROUP + 1):
        if len(kinds) >= 3 * size and len(kinds) % size == 0 and kinds == kinds[:size] * (len(kinds) // size):
            return size
    return 0


def _joins(step: Step) -> bool:
    return step.target in JOINS and isinstance(step.args[0], list)


def _join(step: Step, items: Sequence[Value]) -> Step:
    """Some items of a join, joined."""
    axis, shape = axis_of(step), list(step.outputs[0].shape)
    stacks = step.target is aten.stack.default
    shape[axis] = len(items) if stacks else sum(item.shape[axis] for item in items)
    made = Value(tuple(shape), step.outputs[0].dtype)
    return replace(step, args=(list(items), axis), kwargs={}, outputs=(made,))


def _cat(step: Step, parts: Sequence[Value]) -> Step:
    """A join of parts that are joined already."""
    return replace(step, target=aten.cat.default, args=(list(parts), axis_of(step)), kwargs={})
