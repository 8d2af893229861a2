"""Roll: a Python loop over a size leaves its body on the tape again and again. Find it, and keep it once.

Two tapes of one module that part somewhere, where one of them goes on with what it did just before, ran a loop of
another length. The repeating block is the body; what a block takes from the block before it is carried, what is the
same for all is read from outside, and what is used afterwards is the last of its kind or a list of all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from anyshape.capture.tape.choose import chosen_between, rewired
from anyshape.capture.tape.joins import joined_in_groups, joined_one_by_one
from anyshape.capture.tape.loop_step import draft_of, with_results
from anyshape.capture.tape.loop_values import Plan, cut, plan_of
from anyshape.capture.tape.merge import Apart, go_along
from anyshape.capture.tape.numbering import Numbering
from anyshape.capture.tape.signs import Sign, sign_of, signs_of
from anyshape.capture.tape.skipped import filled_in, lacks_a_step, may_be_left_out, rounds_filled_in
from anyshape.capture.tape.steps import Step, Tape, leaves
from anyshape.capture.tape.unpack import in_order_of_use, parts_differ, unpacked

__all__ = ["rolled_up"]

MOST_LOOPS = 200
LONGEST_BODY = 2000


def rolled_up(tapes: Sequence[Tape], choices: bool = False) -> list[Tape]:
    """The tapes with loops rolled, so that all of them run the same steps; `Apart` where that does not help.

    With ``choices``, steps that are others at other sizes may become one step that takes one of several ways.
    """
    made = list(tapes)
    alike = 0
    names = [Numbering(tape) for tape in tapes]
    for _ in range(MOST_LOOPS):
        try:
            go_along(names, alike)
        except Apart as apart:
            changed = _closer(names, apart, loosely=not choices)
            if changed is None and choices:
                changed = rewired(made, apart.number) or _chosen(made, apart)
                changed = changed or _closer(names, apart, loosely=True)
            if changed is None:
                changed = _rewritten(made, apart)
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


def _chosen(tapes: Sequence[Tape], apart: Apart) -> list[Tape] | None:
    signs = [[(sign_of(step), step.where) for step in tape.steps] for tape in tapes]
    return chosen_between(tapes, signs, apart.number, _alike)


def _alike(tapes: Sequence[Tape]) -> list[Tape] | None:
    try:
        return rolled_up(tapes)
    except Apart:
        return None


def _closer(names: Sequence[Numbering], apart: Apart, loosely: bool) -> list[Tape] | None:
    """The tapes with one more difference gone; ``loosely``, a loop's last round may lack a step of the others."""
    here, tapes = apart.number, [numbering.tape for numbering in names]
    if parts_differ(apart.steps):
        return unpacked(tapes, here)
    signs = [signs_of(tape) for tape in tapes]
    filled = filled_in(tapes, [numbering.up_to(here + 1) for numbering in names], signs, here)
    if filled is not None:
        return filled
    # A round that starts amid the next has numbers of both: those which go up evenly tell where it starts.
    for size, places in _candidates(signs, here, loosely):
        for even, start in itertools.product((True, False), places):
            made = _roll_all(tapes, signs, start, size, even, loosely)
            if made is not None:
                return made
    return None


def _rewritten(tapes: Sequence[Tape], apart: Apart) -> list[Tape] | None:
    """The tapes in other steps of the same result, where they part in a loop that can't be rolled as it is."""
    made = joined_one_by_one(tapes) or joined_in_groups(tapes)
    if made is not None:
        return made
    signs = [signs_of(tape) for tape in tapes]
    repeats = any(True for _ in _candidates(signs, apart.number, loosely=True))
    return in_order_of_use(tapes) if repeats else None


def _candidates(signs: Sequence[Sequence[Sign]], here: int, loosely: bool) -> Iterator[tuple[int, list[int]]]:
    """How long the body of a loop that goes on at ``here`` on some tapes may be, and where it may start."""
    first, distinct = signs[0], [signs[0]]
    for other in signs[1:]:
        if other not in distinct:
            distinct.append(other)
    # One step of each tape, or none where it has ended: the first may be the shortest.
    others = sorted(distinct[1:], key=lambda other: other[here : here + 1] == first[here : here + 1])
    pairs = [pair for other in others for pair in ((first, other), (other, first))]
    seen: set[int] = set()
    for number, (short, long) in enumerate(pairs):
        for size in _sizes(long, here, loosely):
            own = [] if size in seen else list(_starts(short, long, here, size, loosely))
            if own:
                seen.add(size)
                more = (_starts(*pair, here, size, loosely) for pair in pairs[number + 1 :])
                yield size, list(dict.fromkeys(itertools.chain(own, *more)))


def _starts(
    short: Sequence[Sign], long: Sequence[Sign], here: int, size: int, loosely: bool
) -> Iterator[int]:
    """Where a loop may start, if ``long`` goes on with a body of this size at ``here``; ``short`` does not."""
    last, following = long[here - size : here], long[here : here + size]
    if last != following and not (loosely and lacks_a_step(last, following)):
        return
    other = here  # the last step before the body that is another than the one a round later
    for start in range(here - size, max(-1, here - 2 * size), -1):
        if other >= start:
            other = start - 1
            while other >= 0 and short[other] is short[other + size]:
                other -= 1
        if long[start : start + size] == short[start : start + size]:
            yield start - (start - 1 - other) // size * size


def _sizes(long: Sequence[Sign], here: int, loosely: bool) -> Iterator[int]:
    """The sizes of a body that a tape may go on with at ``here``, by the first step of it."""
    sizes = range(1, min(here, LONGEST_BODY) + 1)
    if here >= len(long):
        yield from sizes
        return
    wanted = long[here]
    for size in sizes:
        first = long[here - size]
        if first is wanted or (loosely and may_be_left_out(first)):
            yield size


def _roll_all(
    tapes: Sequence[Tape],
    signs: Sequence[Sequence[Sign]],
    start: int,
    size: int,
    even: bool,
    loosely: bool,
) -> list[Tape] | None:
    """Each tape with the loop at ``start`` rolled, if all of them agree on how it goes.

    With ``even``, only if its numbers go up or down by the same from round to round; else only if they do not.
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
        if _is_even(cut(tapes[longest], first, size, left[longest])) is not even:
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
    for steps in zip(*blocks, strict=True):
        rounds = [[leaf for leaf in leaves((step.args, step.kwargs)) if type(leaf) is int] for step in steps]
        for column in zip(*rounds, strict=True):
            if len({two - one for one, two in itertools.pairwise(column)}) > 1:
                return False
    return True


def _repeats(sign: Sequence[Sign], body: Sequence[Sign], start: int) -> int:
    count, size = 0, len(body)
    while sign[start + count * size : start + (count + 1) * size] == body:
        count += 1
    return count


def _rolled_again(tape: Tape, body: Sequence[Sign], start: int, count: int, plan: Plan) -> Tape:
    """The same loop wherever else it was run: in another layer, or in each round of a loop around it."""
    if count < 2:
        return tape
    sign = signs_of(tape)
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
