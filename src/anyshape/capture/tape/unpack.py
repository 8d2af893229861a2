"""Unpack: a tensor that is taken apart into as many parts as a size says: a step for each part, where it is used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from anyshape.capture.tape.steps import NUMBERS, Step, Tape, Value

__all__ = ["VIEWS", "in_order_of_use", "parts_differ", "unpacked"]

aten = torch.ops.aten
BY_LENGTH = {aten.split.Tensor, aten.unsafe_split.Tensor, aten.chunk.default}
VIEWS = {aten.select.int, aten.slice.Tensor}
MOST_KEPT = 64  # steps whose parts are kept
UNPACKS = {aten.unbind.int, aten.split_with_sizes.default, *BY_LENGTH}


def parts_differ(steps: Sequence[Step | None]) -> bool:
    """Whether these are one step that takes a tensor apart, into more parts at some sizes than at others."""
    found = [step for step in steps if step is not None and step.target in UNPACKS]
    if len(found) < len(steps) or len({step.target for step in found}) != 1:
        return False
    return len({len(step.outputs) for step in found}) > 1


def unpacked(tapes: Sequence[Tape], place: int) -> list[Tape]:
    """The tapes with the step at ``place``, and all others of its line, as one step for each part that is used."""
    like = tapes[0].steps[place]
    return [_where_used(tape, lambda step: _parts(step, like)) for tape in tapes]


def in_order_of_use(tapes: Sequence[Tape]) -> list[Tape] | None:
    """The tapes with each step right before the first that needs it; None if it is there already.

    A loop that fills a list with tensors of several sizes has nothing to hand on; the one that uses them may make them.
    """
    made = [_where_used(tape, _movable) for tape in tapes]
    return made if any(one.steps != two.steps for one, two in zip(tapes, made, strict=True)) else None


def _movable(step: Step) -> list[Step]:
    """The step, unless sizes are known by it that others use without its tensors."""
    tags = getattr(step.target, "tags", ())
    return [] if step.target in NUMBERS or torch.Tag.dynamic_output_shape in tags else [step]


def _where_used(tape: Tape, parts_of: Callable[[Step], Sequence[Step]]) -> Tape:
    """The tape with some of its steps, or the parts of them, each right before it is first needed."""
    waiting: dict[Value, Step] = {}
    steps: list[Step] = []
    begun: set[Step] = set()

    def put(first: Step) -> None:
        """The step, and what it waits for before it: a chain of those may be as long as the tape."""
        pending = [(first, False)]
        while pending:
            step, ready = pending.pop()
            if ready:
                steps.append(step)
            elif step not in begun:
                begun.add(step)
                for output in step.outputs:
                    waiting.pop(output, None)
                needed = [waiting[value] for value in step.inputs if value in waiting]
                pending += [(step, True), *((other, False) for other in reversed(needed))]

    for step in tape.steps:
        parts = parts_of(step)
        waiting.update((output, part) for part in parts for output in part.outputs)
        if not parts:
            put(step)
    for value in tape.outputs:
        if value in waiting:
            put(waiting[value])
    return replace(tape, steps=steps)


def _parts(step: Step, like: Step) -> Sequence[Step]:
    if step.target is not like.target or step.where != like.where:
        return ()
    return _parts_of(step)


@functools.lru_cache(maxsize=MOST_KEPT)
def _parts_of(step: Step) -> tuple[Step, ...]:
    """A step for each part of its tensor. One tape is held against many others."""
    source, axis = step.args[0], step.argument("dim")
    if step.target is aten.unbind.int:
        return tuple(
            Step(aten.select.int, (source, axis, number), {}, (output,), step.where)
            for number, output in enumerate(step.outputs)
        )
    made, start = [], 0
    for output in step.outputs:
        # The last part may be smaller than the others: a slice ends there by itself.
        size = output.shape[axis]
        end = start + (step.outputs[0].shape[axis] if step.target in BY_LENGTH else size)
        made.append(Step(aten.slice.Tensor, (source, axis, start, end), {}, (output,), step.where))
        start += size
    return tuple(made)
