"""Roll: a Python loop over a size leaves its body on the tape again and again. Find it, and keep it once.

Two tapes of one module that part somewhere, where one of them goes on with what it did just before, ran a loop of
another length. The repeating block is the body; what a block takes from the block before it is carried, what is the
same for all is read from outside, and what is used afterwards is the last of its kind or a list of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.tape.choose import chosen_between, rewired
from anyshape.capture.tape.loop_step import draft_of, with_results
from anyshape.capture.tape.loop_values import Plan, plan_of
from anyshape.capture.tape.merge import Apart, lined_up, numbered
from anyshape.capture.tape.skipped import filled_in
from anyshape.capture.tape.steps import Step, Tape, Value, map_leaves, rolled

__all__ = ["rolled_up"]

aten = torch.ops.aten
MOST_LOOPS = 200
LONGEST_BODY = 2000
UNPACKS = {aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default}


def rolled_up(tapes: Sequence[Tape], choices: bool = False) -> list[Tape]:
    """The tapes with loops rolled, so that all of them run the same steps; `Apart` where that does not help.

    With ``choices``, steps that are others at other sizes may become one step that takes one of several ways.
    """
    made = list(tapes)
    signs, alike = _Signs(), 0
    for _ in range(MOST_LOOPS):
        try:
            lined_up(made, alike)
        except Apart as apart:
            changed = _closer(made, apart, signs)
            if changed is None and choices:
                changed = rewired(made, apart.number) or _chosen(made, apart, signs)
            if changed is None:
                raise
            alike = min(_unchanged(old, new) for old, new in zip(made, changed, strict=True))
            made = changed
        else:
            return made
    lined_up(made)
    return made


def _unchanged(old: Tape, new: Tape) -> int:
    """How many steps two tapes have in common from the start."""
    pairs = enumerate(zip(old.steps, new.steps, strict=False))
    return next((k for k, (one, two) in pairs if one is not two), min(len(old.steps), len(new.steps)))


def _chosen(tapes: Sequence[Tape], apart: Apart, known: _Signs) -> list[Tape] | None:
    signs = [[(known[step], step.where) for step in tape.steps] for tape in tapes]
    return chosen_between(tapes, signs, apart.number, _alike)


def _alike(tapes: Sequence[Tape]) -> list[Tape] | None:
    try:
        return rolled_up(tapes)
    except Apart:
        return None


class _Signs(dict[Step, Any]):
    """The sign of each step, made once."""

    def __missing__(self, step: Step) -> Any:
        self[step] = _sign(step)
        return self[step]


def _closer(tapes: Sequence[Tape], apart: Apart, known: _Signs) -> list[Tape] | None:
    """The tapes with one more difference gone."""
    here = apart.number
    steps = [tape.steps[here] if here < len(tape.steps) else None for tape in tapes]
    first = steps[0]
    if (
        first is not None
        and first.target in UNPACKS
        and all(step is not None and step.target is first.target for step in steps)
        and len({len(step.outputs) for step in steps if step is not None}) > 1
    ):
        return [_unpacked(tape, here) for tape in tapes]
    signs = [[known[step] for step in tape.steps] for tape in tapes]
    filled = filled_in(tapes, [numbered(tape) for tape in tapes], signs, here)
    if filled is not None:
        return filled
    # One step of each tape, or none where it has ended: the first may be the shortest.
    others = [k for k in range(1, len(tapes)) if signs[k][here : here + 1] != signs[0][here : here + 1]]
    others += [k for k in range(1, len(tapes)) if k not in others]
    for other in others:
        for short, long in ((0, other), (other, 0)):
            for start, size in _blocks(signs[short], signs[long], here):
                made = _roll_all(tapes, signs, start, size)
                if made is not None:
                    return made
    return None


def _sign(step: Step) -> Any:
    """What a step is, whatever it is applied to."""

    def form(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return "value"
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            return type(leaf).__name__
        return str(leaf)

    kinds = tuple(None if value is None else (value.dtype, len(value.shape)) for value in step.outputs)
    return (
        step.target,
        step.axes,
        repr(map_leaves(form, step.args)),
        repr(map_leaves(form, dict(step.kwargs))),
        kinds,
        step.body.plan.text if step.target is rolled else "",
    )


def _blocks(short: Sequence[Any], long: Sequence[Any], here: int) -> Iterator[tuple[int, int]]:
    """Where a loop may start, and how long its body is, if ``long`` goes on with it at ``here``; ``short`` does not."""
    for size in range(1, min(here, LONGEST_BODY) + 1):
        if here + size > len(long) or long[here - size : here] != long[here : here + size]:
            continue
        for shift in range(size):
            end = here - shift
            start = end - size
            if start < 0:
                break
            body = short[start:end]
            if long[start : start + size] != body:
                continue
            while start - size >= 0 and short[start - size : start] == body:
                start -= size
            yield start, size


def _roll_all(
    tapes: Sequence[Tape], signs: Sequence[Sequence[Any]], start: int, size: int
) -> list[Tape] | None:
    """Each tape with the loop at ``start`` rolled, if all of them agree on how it goes."""
    body = signs[0][start : start + size]
    counts = [_repeats(sign, body, start) for sign in signs]
    if min(counts) < 1 or max(counts) < 3 or len(set(counts)) == 1:
        return None
    longest = max(range(len(tapes)), key=lambda k: counts[k])
    for peeled in range(3):  # the first rounds may be special: nothing to carry yet
        first = start + peeled * size
        left = [count - peeled for count in counts]
        if min(left) < 1:
            break
        plan = plan_of(tapes[longest], first, size, left[longest])
        if plan is None:
            continue
        drafts = [draft_of(tape, first, size, n, plan) for tape, n in zip(tapes, left, strict=True)]
        if all(draft is not None for draft in drafts):
            made = with_results([draft for draft in drafts if draft is not None])
            return [_rolled_again(tape, body, first + 1, n, plan) for tape, n in zip(made, left, strict=True)]
    return None


def _repeats(sign: Sequence[Any], body: Sequence[Any], start: int) -> int:
    count, size = 0, len(body)
    while sign[start + count * size : start + (count + 1) * size] == body:
        count += 1
    return count


def _rolled_again(tape: Tape, body: Sequence[Any], start: int, count: int, plan: Plan) -> Tape:
    """The same loop wherever else it was run: in another layer, or in each round of a loop around it."""
    if count < 2:
        return tape
    sign = [_sign(step) for step in tape.steps]
    places, at = [], start
    while at < len(sign):
        if sign[at] == body[0] and _repeats(sign, body, at) == count:
            places.append(at)
            at += count * len(body)
        else:
            at += 1
    for place in reversed(places):
        draft = draft_of(tape, place, len(body), count, plan)
        if draft is not None:
            (tape,) = with_results([draft])
    return tape


def _unpacked(tape: Tape, place: int) -> Tape:
    """The tape with a step that takes a tensor apart as one step for each part, where that part is first used."""
    step = tape.steps[place]
    parts = {value: _part(step, number) for number, value in enumerate(step.outputs)}
    steps = list(tape.steps[:place])
    for item in tape.steps[place + 1 :]:
        for value in dict.fromkeys(item.inputs):
            if value in parts:
                steps.append(parts.pop(value))
        steps.append(item)
    steps.extend(parts.pop(value) for value in dict.fromkeys(tape.outputs) if value in parts)
    return replace(tape, steps=steps)


def _part(step: Step, number: int) -> Step:
    source, output = step.args[0], step.outputs[number]
    axis = step.args[1] if step.target is aten.unbind.int else step.args[2] if len(step.args) > 2 else None
    if step.target is aten.unbind.int:
        return Step(aten.select.int, (source, axis, number), {}, (output,), step.where)
    axis = axis if axis is not None else step.kwargs.get("dim", 0)
    start = sum(value.shape[axis] for value in step.outputs[:number])
    # The last part may be smaller than the others: a slice ends there by itself.
    end = start + max(
        output.shape[axis], step.outputs[0].shape[axis] if step.target is aten.split.Tensor else 0
    )
    return Step(aten.slice.Tensor, (source, axis, start, end), {}, (output,), step.where)
