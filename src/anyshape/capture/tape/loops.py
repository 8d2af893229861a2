"""Roll: a Python loop over a size leaves its body on the tape again and again. Find it, and keep it once.

Two tapes of one module that part somewhere, where one of them goes on with what it did just before, ran a loop of
another length. The repeating block is the body; what a block takes from the block before it is carried, what is the
same for all is read from outside, and what is used afterwards is the last of its kind or a list of all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from anyshape.capture.tape.choose import chosen_between, rewired
from anyshape.capture.tape.joins import joined_in_groups, joined_one_by_one
from anyshape.capture.tape.loop_step import draft_of, with_results
from anyshape.capture.tape.loop_values import Plan, cut, plan_of
from anyshape.capture.tape.merge import Apart, go_along
from anyshape.capture.tape.numbering import Numbering
from anyshape.capture.tape.skipped import filled_in, lacks_a_step, rounds_filled_in
from anyshape.capture.tape.steps import Step, Tape, Value, either, leaves, map_leaves, repeated, rolled
from anyshape.capture.tape.unpack import in_order_of_use, parts_differ, unpacked

__all__ = ["rolled_up"]

MOST_LOOPS = 200
LONGEST_BODY = 2000


def rolled_up(tapes: Sequence[Tape], choices: bool = False) -> list[Tape]:
    """The tapes with loops rolled, so that all of them run the same steps; `Apart` where that does not help.

    With ``choices``, steps that are others at other sizes may become one step that takes one of several ways.
    """
    made = list(tapes)
    signs, alike = _Signs(), 0
    names = [Numbering(tape) for tape in tapes]
    for _ in range(MOST_LOOPS):
        try:
            go_along(names, alike)
        except Apart as apart:
            changed = _closer(names, apart, signs, loosely=not choices)
            if changed is None and choices:
                changed = rewired(made, apart.number) or _chosen(made, apart, signs)
                changed = changed or _closer(names, apart, signs, loosely=True)
            if changed is None:
                changed = _rewritten(made, apart, signs)
            if changed is None:
                raise
            kept = [_unchanged(old, new, apart.number) for old, new in zip(made, changed, strict=True)]
            for numbering, tape, count in zip(names, changed, kept, strict=True):
                numbering.changed(tape, count)
            alike, made = min(kept), changed
        else:
            return made
    go_along(names)
    return made


def _unchanged(old: Tape, new: Tape, end: int) -> int:
    """How many steps two tapes have in common from the start, of those before ``end``."""
    pairs = enumerate(zip(old.steps[:end], new.steps, strict=False))
    return next((k for k, (one, two) in pairs if one is not two), min(end, len(old.steps), len(new.steps)))


def _chosen(tapes: Sequence[Tape], apart: Apart, known: _Signs) -> list[Tape] | None:
    signs = [[(known[step], step.where) for step in tape.steps] for tape in tapes]
    return chosen_between(tapes, signs, apart.number, _alike)


def _alike(tapes: Sequence[Tape]) -> list[Tape] | None:
    try:
        return rolled_up(tapes)
    except Apart:
        return None


class _Signs(dict[Step, Any]):
    """The sign of each step, made once; equal ones are the same object, and so quick to compare."""

    def __init__(self) -> None:
        super().__init__()
        self._same: dict[Any, Any] = {}

    def __missing__(self, step: Step) -> Any:
        sign = _sign(step)
        self[step] = self._same.setdefault(sign, sign)
        return self[step]


def _closer(names: Sequence[Numbering], apart: Apart, known: _Signs, loosely: bool) -> list[Tape] | None:
    """The tapes with one more difference gone; ``loosely``, a loop's last round may lack a step of the others."""
    here, tapes = apart.number, [numbering.tape for numbering in names]
    signs = [[known[step] for step in tape.steps] for tape in tapes]
    if parts_differ(apart.steps):
        return unpacked(tapes, here)
    filled = filled_in(tapes, [numbering.up_to(here + 1) for numbering in names], signs, here)
    if filled is not None:
        return filled
    # A round that starts amid the next has numbers of both: those which go up evenly tell where it starts.
    starts: dict[int, list[int]] = {}
    for start, size in _candidates(signs, here, loosely):
        starts.setdefault(size, []).append(start)
    for size, places in starts.items():
        for even, start in itertools.product((True, False), places):
            made = _roll_all(tapes, signs, start, size, even, loosely)
            if made is not None:
                return made
    return None


def _rewritten(tapes: Sequence[Tape], apart: Apart, known: _Signs) -> list[Tape] | None:
    """The tapes in other steps of the same result, where they part in a loop that can't be rolled as it is."""
    made = joined_one_by_one(tapes) or joined_in_groups(tapes)
    signs = [[known[step] for step in tape.steps] for tape in tapes]
    if made is None and any(True for _ in _candidates(signs, apart.number, loosely=True)):
        made = in_order_of_use(tapes)
    return made


def _candidates(signs: Sequence[Sequence[Any]], here: int, loosely: bool) -> Iterator[tuple[int, int]]:
    """Where a loop that goes on at ``here`` on some tapes may start, and how long its body is."""
    first, distinct = signs[0], [signs[0]]
    for other in signs[1:]:
        if other not in distinct:
            distinct.append(other)
    # One step of each tape, or none where it has ended: the first may be the shortest.
    others = sorted(distinct[1:], key=lambda other: other[here : here + 1] == first[here : here + 1])
    seen: set[tuple[int, int]] = set()
    for other in others:
        for short, long in ((first, other), (other, first)):
            for block in _blocks(short, long, here, loosely):
                if block not in seen:
                    seen.add(block)
                    yield block


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
        _inner_sign(step),
    )


def _inner_sign(step: Step) -> Any:
    if step.target is rolled:
        return step.body.plan.text
    if step.target in (either, repeated):
        return tuple(tuple(map(_sign, tape.steps)) for tape in step.body)
    return ""


def _blocks(short: Sequence[Any], long: Sequence[Any], here: int, loosely: bool) -> Iterator[tuple[int, int]]:
    """Where a loop may start, and how long its body is, if ``long`` goes on with it at ``here``; ``short`` does not."""
    for size in range(1, min(here, LONGEST_BODY) + 1):
        last, following = long[here - size : here], long[here : here + size]
        if last != following and not (loosely and lacks_a_step(last, following)):
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
    tapes: Sequence[Tape],
    signs: Sequence[Sequence[Any]],
    start: int,
    size: int,
    even: bool,
    loosely: bool,
) -> list[Tape] | None:
    """Each tape with the loop at ``start`` rolled, if all of them agree on how it goes.

    With ``even``, only if its numbers go up or down by the same from round to round.
    """
    body = signs[0][start : start + size]
    counts = [_repeats(sign, body, start) for sign in signs]
    filled = rounds_filled_in(tapes, signs, start, size, counts) if loosely and min(counts) > 0 else None
    if filled is not None:
        return filled
    if min(counts) < 1 or max(counts) < 3 or len(set(counts)) == 1:
        return None
    longest = max(range(len(tapes)), key=lambda k: counts[k])
    for peeled in range(3):  # the first rounds may be special: nothing to carry yet
        first = start + peeled * size
        left = [count - peeled for count in counts]
        if min(left) < 1:
            break
        if even and not _is_even(cut(tapes[longest], first, size, left[longest])):
            continue
        plan = plan_of(tapes[longest], first, size, left[longest])
        if plan is None:
            continue
        drafts = [draft_of(tape, first, size, n, plan) for tape, n in zip(tapes, left, strict=True)]
        made = None if None in drafts else with_results([draft for draft in drafts if draft is not None])
        if made is not None:
            return [_rolled_again(tape, body, first + 1, n, plan) for tape, n in zip(made, left, strict=True)]
    return None


def _is_even(blocks: Sequence[Sequence[Step]]) -> bool:
    """Whether each integer in the rounds of a loop goes up or down by the same from round to round."""
    rounds = [
        [leaf for step in block for leaf in leaves((step.args, step.kwargs)) if type(leaf) is int]
        for block in blocks
    ]
    return all(
        len({two - one for one, two in itertools.pairwise(column)}) < 2
        for column in zip(*rounds, strict=True)
    )


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
        made = None if draft is None else with_results([draft])
        tape = made[0] if made else tape
    return tape
