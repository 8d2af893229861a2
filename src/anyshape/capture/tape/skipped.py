"""Neutral steps: what Python skips where it would change nothing (`x[:n]` of n, `if pad: F.pad`) is put in again.

Where one tape has a slice, a pad, a roll or a resize that another lacks, and which would leave the other's tensor as
it is, the tapes differ in numbers only. The same holds for the rounds of a loop: `x[:i]` is no slice in the last one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.tape.signs import Sign
from anyshape.capture.tape.steps import Step, Tape, Value

__all__ = ["filled_in", "lacks_a_step", "may_be_left_out", "rounds_filled_in"]

aten = torch.ops.aten
Ids = dict[Value, Any]
FAR = 1 << 62


def filled_in(
    tapes: Sequence[Tape], ids: Sequence[Ids], signs: Sequence[Sequence[Any]], here: int
) -> list[Tape] | None:
    """The tapes with a step put in at ``here`` where it is missing; None if it is not that what they differ in."""
    fronts: dict[int, Step] = {}
    for model, tape in enumerate(tapes):
        if here >= len(tape.steps) or tape.steps[here].target not in NEUTRAL:
            continue
        wanted = signs[model][here]
        source = ids[model].get(tape.steps[here].args[0])
        have = [k for k in range(len(tapes)) if here < len(signs[k]) and signs[k][here] == wanted]
        have = [k for k in have if ids[k].get(tapes[k].steps[here].args[0]) == source]
        lack = [k for k in range(len(tapes)) if k not in have]
        run, after = _run(tape, signs[model], here)
        runs = [_run(tapes[k], signs[k], here) for k in lack]
        # A loop that ends earlier lacks a slice too, but goes on with something else. Of several such steps
        # in a row, another one may be what is missing here, and this one comes later.
        if not lack or not all(
            then == after and mine.count(wanted) < run.count(wanted) for mine, then in runs
        ):
            continue
        for k in have:
            if k not in fronts:
                fronts[k] = _from_the_front(tapes[k].steps[here])
        steps = [fronts[k] for k in have]
        filled = [_filled(tapes[k], ids[k], tape, ids[model], here, steps) for k in lack]
        made = dict(zip(lack, filled, strict=True))
        if None not in filled:
            for k, step in zip(have, steps, strict=True):
                made[k] = replace(tapes[k], steps=[*tapes[k].steps[:here], step, *tapes[k].steps[here + 1 :]])
            return [found for k in range(len(tapes)) if (found := made[k]) is not None]
    return None


def rounds_filled_in(
    tapes: Sequence[Tape], signs: Sequence[Sequence[Any]], start: int, size: int, counts: Sequence[int]
) -> list[Tape] | None:
    """The tapes with a loop's last round made like its others, where it lacks a step; None if it lacks none.

    The rounds begin at ``start`` and have ``size`` steps; ``counts`` is how many of them a tape has as they should be.
    """
    for place in range(size):
        if tapes[0].steps[start + place].target in NEUTRAL:
            made = [
                _round_filled_in(tape, sign, start, size, count, place)
                for tape, sign, count in zip(tapes, signs, counts, strict=True)
            ]
            if any(tape is not None for tape in made):
                counted = [count + (tape is not None) for tape, count in zip(made, counts, strict=True)]
                return [
                    _rounds_from_the_front(new or old, range(start + place, start + size * count, size))
                    for new, old, count in zip(made, tapes, counted, strict=True)
                ]
    return None


def lacks_a_step(one: Sequence[Any], following: Sequence[Any]) -> bool:
    """Whether steps, by their signs, follow as they are in ``one`` round, but for a step that may be left out."""
    pairs = enumerate(zip(one, following, strict=False))
    place = next((k for k, (mine, theirs) in pairs if mine != theirs), len(one) - 1)
    return (
        len(one) > 1 and one[place].target in NEUTRAL and one[place + 1 :] == following[place : len(one) - 1]
    )


def _round_filled_in(
    tape: Tape, signs: Sequence[Any], start: int, size: int, count: int, place: int
) -> Tape | None:
    """The tape with the step that has this place in a round put into the round after the last; None if it is there."""
    end = start + size * count
    last = tape.steps[end - size : end]
    short = tape.steps[end : end + size - 1]
    rest = [*signs[end - size : end - size + place], *signs[end - size + place + 1 : end]]
    if not rest or list(signs[end : end + size - 1]) != rest:
        return None
    pattern, result = last[place], last[place].outputs[0]
    given = _a_round_later(pattern.args[0], tape.steps[end - 2 * size : end - size], last, short[:place])
    if (given.dtype, len(given.shape)) != (result.dtype, len(result.shape)):
        return None
    args = NEUTRAL[pattern.target](
        given, [_from_the_front(tape.steps[start + k * size + place]) for k in range(count)]
    )
    if args is None:
        return None
    same = Value(given.shape, given.dtype, given.strides)
    after = [
        mine.mapped(
            functools.partial(_swapped, theirs=iter(like.inputs), given=given, same=same, results={result})
        )
        for mine, like in zip(short[place:], last[place + 1 :], strict=True)
    ]
    if not any(same in step.inputs for step in after):
        return None
    filled = [*short[:place], replace(pattern, args=(given, *args), outputs=(same,)), *after]
    return replace(tape, steps=[*tape.steps[:end], *filled, *tape.steps[end + size - 1 :]])


def _a_round_later(
    value: Value, before: Sequence[Step], last: Sequence[Step], following: Sequence[Step]
) -> Value:
    """What a value that the last round uses is in the round after it: of that round, of the last, or the same."""
    for earlier, later in ((last, following), (before, last)):
        for one, two in zip(earlier, later, strict=False):
            if value in one.outputs:
                return two.outputs[one.outputs.index(value)]
    return value


def _rounds_from_the_front(tape: Tape, places: Sequence[int]) -> Tape:
    steps = list(tape.steps)
    for place in places:
        steps[place] = _from_the_front(steps[place])
    return replace(tape, steps=steps)


def may_be_left_out(step: Step | Sign) -> bool:
    """Whether the step leaves its tensor as it is at some sizes, where Python may skip it."""
    return step.target in NEUTRAL


def _run(tape: Tape, signs: Sequence[Any], here: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """The steps from here on that could be left out, and the first that could not; empty at the end."""
    end = here
    while end < len(tape.steps) and tape.steps[end].target in NEUTRAL:
        end += 1
    return signs[here:end], signs[end : end + 1]


def _from_the_front(step: Step) -> Step:
    """A slice whose bounds count from the front: no bound from behind says "to the end"."""
    if step.target is not aten.slice.Tensor:
        return step
    axis = step.args[1] if len(step.args) > 1 else 0
    size = step.args[0].shape[axis]
    bounds = [bound if bound is None or bound >= 0 else max(0, bound + size) for bound in step.args[2:4]]
    if bounds == list(step.args[2:4]):
        return step
    return replace(step, args=(*step.args[:2], *bounds, *step.args[4:]))


def _filled(
    tape: Tape, ids: Ids, model: Tape, model_ids: Ids, here: int, steps: Sequence[Step]
) -> Tape | None:
    pattern = model.steps[here]
    name = model_ids.get(pattern.args[0])
    given = next((value for value, other in ids.items() if other == name), None)
    if (
        given is None
        or given.dtype != pattern.outputs[0].dtype
        or len(given.shape) != len(pattern.outputs[0].shape)
    ):
        return None
    args = NEUTRAL[pattern.target](given, steps)
    if args is None:
        return None
    same = Value(given.shape, given.dtype, given.strides)
    step = replace(pattern, args=(given, *args), outputs=(same,))
    rest, outputs = _following(
        tape.steps[here:], tape.outputs, model, here + 1, given, same, _results(model, here)
    )
    if same not in outputs and not any(same in item.inputs for item in rest):
        return None  # a shorter list of slices, rather than one left out
    return replace(tape, steps=[*tape.steps[:here], step, *rest], outputs=outputs)


def _results(model: Tape, here: int) -> set[Value]:
    """What a step makes, and what further steps make of it that may be missing as well."""
    found = set(model.steps[here].outputs)
    for step in model.steps[here + 1 :]:
        if step.target in NEUTRAL and step.args[0] in found:
            found.update(step.outputs)
    return found


def _following(
    steps: Sequence[Step],
    outputs: Sequence[Value],
    model: Tape,
    place: int,
    given: Value,
    same: Value,
    results: set[Value],
) -> tuple[list[Step], list[Value]]:
    """The rest of the tape, using the new step's result wherever the tape that had it does."""
    made: list[Step] = []
    at = place
    for step in steps:
        # The tapes may part again: look a little further for the step's twin.
        twin = next(
            (k for k in range(at, min(at + 8, len(model.steps))) if model.steps[k].target is step.target),
            None,
        )
        if twin is None:
            made.append(step)
            continue
        at = twin + 1
        theirs = iter(model.steps[twin].inputs)
        made.append(step.mapped(lambda leaf: _swapped(leaf, theirs, given, same, results)))  # noqa: B023
    last = [
        same if mine is given and theirs in results else mine
        for mine, theirs in zip(outputs, model.outputs, strict=False)
    ]
    return made, [*last, *outputs[len(last) :]]


def _swapped(leaf: Any, theirs: Any, given: Value, same: Value, results: set[Value]) -> Any:
    if not isinstance(leaf, Value):
        return leaf
    other = next(theirs, None)
    return same if leaf is given and other in results else leaf


# --- Which arguments leave a tensor as it is ------------------------------------------------------------


def _constant(steps: Sequence[Step]) -> tuple[Any, ...] | None:
    """The arguments after the tensor, if they are the same on every tape that has the step."""
    first = steps[0].args[1:]
    return first if all(repr(step.args[1:]) == repr(first) for step in steps) else None


def _slice(given: Value, steps: Sequence[Step]) -> tuple[Any, ...] | None:
    if any(step.args[4:] not in ((), (1,)) for step in steps):
        return None  # every second one: PyTorch leaves no such slice out, not even of a single one
    axis = steps[0].args[1] if len(steps[0].args) > 1 else 0
    size = given.shape[axis]
    fixed = _constant(steps)
    if fixed is not None:
        start, end, step = ([*fixed[1:]] + [None] * 3)[:3]
        if range(size)[slice(start, end, step)] == range(size):
            return fixed
    rest = steps[0].args[2:]
    whole = (0 if rest and rest[0] is not None else None, size, 1)
    # An end beyond every tensor is how PyTorch writes "to the end".
    end = (
        size
        if len(rest) > 1 and rest[1] is not None and rest[1] < FAR
        else (rest[1] if len(rest) > 1 else None)
    )
    return (axis, whole[0], end, *rest[2:]) if len(rest) > 1 else (axis, *([whole[0]] if rest else []))


def _pad(given: Value, steps: Sequence[Step]) -> tuple[Any, ...] | None:
    return ([0] * len(steps[0].args[1]), *steps[0].args[2:])


def _roll(given: Value, steps: Sequence[Step]) -> tuple[Any, ...] | None:
    return ([0] * len(steps[0].args[1]), *steps[0].args[2:])


def _resize(given: Value, steps: Sequence[Step]) -> tuple[Any, ...] | None:
    if any(step.args[1] is None for step in steps):
        return None  # by a factor
    return (list(given.shape[2:]), *steps[0].args[2:])


NEUTRAL: dict[Any, Callable[[Value, Sequence[Step]], tuple[Any, ...] | None]] = {
    aten.slice.Tensor: _slice,
    aten.constant_pad_nd.default: _pad,
    aten.pad.default: _pad,
    aten.roll.default: _roll,
    **dict.fromkeys(
        (
            aten.upsample_nearest1d.vec,
            aten.upsample_nearest2d.vec,
            aten.upsample_linear1d.vec,
            aten.upsample_bilinear2d.vec,
            aten.upsample_bicubic2d.vec,
            aten.upsample_trilinear3d.vec,
        ),
        _resize,
    ),
}
