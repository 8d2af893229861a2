"""Roll: a Python loop over a size leaves its body on the tape again and again. Find it, and keep it once.

Two tapes of one module that part somewhere, where one of them goes on with what it did just before, ran a loop of
another length. The repeating block is the body; what a block takes from the block before it is carried, what is the
same for all is read from outside, and what is used afterwards is the last of its kind or a list of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from anyshape.tape.explain import Apart, lined_up, numbered
from anyshape.tape.neutral import filled_in
from anyshape.tape.steps import Body, Step, Tape, Value, leaves, map_leaves, rolled

__all__ = ["rolled_up"]

aten = torch.ops.aten
MOST_LOOPS = 200
LONGEST_BODY = 2000
JOINS = {aten.stack.default, aten.cat.default}
UNPACKS = {aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default}


def rolled_up(tapes: Sequence[Tape]) -> list[Tape]:
    """The tapes with loops rolled, so that all of them run the same steps; `Apart` where that does not help."""
    made = list(tapes)
    for _ in range(MOST_LOOPS):
        try:
            lined_up(made)
        except Apart as apart:
            changed = _closer(made, apart)
            if changed is None:
                raise
            made = changed
        else:
            return made
    lined_up(made)
    return made


def _closer(tapes: Sequence[Tape], apart: Apart) -> list[Tape] | None:
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
    signs = [[_sign(step) for step in tape.steps] for tape in tapes]
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
        step.body.plan.text if step.body is not None else "",
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
        plan = _plan(tapes[longest], first, size, left[longest])
        if plan is None:
            continue
        drafts = [_draft(tape, first, size, n, plan) for tape, n in zip(tapes, left, strict=True)]
        if all(draft is not None for draft in drafts):
            made = _with_results([draft for draft in drafts if draft is not None])
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
        draft = _draft(tape, place, len(body), count, plan)
        if draft is not None:
            (tape,) = _with_results([draft])
    return tape


# --- How a body goes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inner:
    """A result of this round: of which step, and which of its outputs."""

    step: int
    output: int

    def pick(self, steps: Sequence[Step], carried: Sequence[Value], outside: Sequence[Value]) -> Value:
        return steps[self.step].outputs[self.output]


@dataclass(frozen=True, slots=True)
class Carried:
    """A result of the round before: the number of the carried value."""

    number: int

    def pick(self, steps: Sequence[Step], carried: Sequence[Value], outside: Sequence[Value]) -> Value:
        return carried[self.number]


@dataclass(frozen=True, slots=True)
class Outer:
    """A value from outside the loop, the same in every round."""

    number: int

    def pick(self, steps: Sequence[Step], carried: Sequence[Value], outside: Sequence[Value]) -> Value:
        return outside[self.number]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each value in the body comes from, and which results are carried."""

    roles: tuple[tuple[Any, ...], ...]  # for each step, for each value among its arguments
    carried: tuple[Inner, ...]

    @property
    def text(self) -> str:
        return repr(self)


def _plan(tape: Tape, start: int, size: int, count: int) -> Plan | None:
    blocks = _cut(tape, start, size, count)
    owner = _owners(blocks)
    carried: dict[tuple[Inner, Value], int] = {}
    outer: dict[Value, int] = {}
    roles: list[tuple[Any, ...]] = []
    for step in range(size):
        found = []
        for refs in zip(*(block[step].inputs for block in blocks), strict=True):
            role = _role(refs, owner, carried, outer)
            if role is None:
                return None
            found.append(role)
        roles.append(tuple(found))
    return Plan(tuple(roles), tuple(inner for inner, _ in carried))


def _cut(tape: Tape, start: int, size: int, count: int) -> list[list[Step]]:
    return [tape.steps[start + k * size : start + (k + 1) * size] for k in range(count)]


def _owners(blocks: Sequence[Sequence[Step]]) -> dict[Value, tuple[int, Inner]]:
    return {
        value: (round_, Inner(number, k))
        for round_, block in enumerate(blocks)
        for number, step in enumerate(block)
        for k, value in enumerate(step.outputs)
        if value is not None
    }


def _role(
    refs: Sequence[Value],
    owner: Mapping[Value, tuple[int, Inner]],
    carried: dict[tuple[Inner, Value], int],
    outer: dict[Value, int],
) -> Inner | Carried | Outer | None:
    homes = [owner.get(ref) for ref in refs]
    if homes[0] is None:
        if all(ref is refs[0] for ref in refs):
            return Outer(outer.setdefault(refs[0], len(outer)))
        source = homes[1][1] if len(homes) > 1 and homes[1] is not None else None
        if source is not None and all(home == (k, source) for k, home in enumerate(homes[1:])):
            return Carried(carried.setdefault((source, refs[0]), len(carried)))
        return None
    inner = homes[0][1]
    return inner if all(home == (k, inner) for k, home in enumerate(homes)) else None


# --- One tape -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """A tape in which one loop is rolled, but what is used of it afterwards is not wired up yet."""

    tape: Tape
    place: int
    blocks: list[list[Step]]
    plan: Plan
    before: list[Value]
    outside: list[Value]
    wanted: dict[Any, None]  # results used afterwards: ("last", carried), ("all", inner)
    end: int
    ragged: dict[Inner, set[int]] = field(
        default_factory=dict
    )  # of several sizes: along which axes they are joined
    joined: dict[Inner, Inner] = field(default_factory=dict)  # these, as what was joined so far
    prefix: list[Step] = field(default_factory=list)


def _draft(tape: Tape, start: int, size: int, count: int, plan: Plan) -> _Draft | None:
    blocks = _cut(tape, start, size, count)
    owner = _owners(blocks)
    before: dict[int, Value] = {}
    outside: dict[int, Value] = {}
    for round_, block in enumerate(blocks):
        for step, roles in zip(block, plan.roles, strict=True):
            for value, role in zip(step.inputs, roles, strict=True):
                home = owner.get(value)
                if isinstance(role, Inner):
                    fits = home == (round_, role)
                elif isinstance(role, Outer):
                    fits = home is None and outside.setdefault(role.number, value) is value
                elif round_ == 0:
                    fits = home is None and before.setdefault(role.number, value) is value
                else:
                    fits = home == (round_ - 1, plan.carried[role.number])
                if not fits:
                    return None
    draft = _Draft(
        tape,
        start,
        blocks,
        plan,
        [before[k] for k in sorted(before)],
        [outside[k] for k in sorted(outside)],
        {},
        start + size * count,
    )
    _look_after(draft, owner)
    return draft


def _look_after(draft: _Draft, owner: Mapping[Value, tuple[int, Inner]]) -> None:
    """Which results of the loop the rest of the tape uses, and how."""
    last = len(draft.blocks) - 1
    uses = [(step.target in JOINS, step.args, _joined_along(step)) for step in draft.tape.steps[draft.end :]]
    uses.append((False, tuple(draft.tape.outputs), None))
    for joins, args, axis in uses:
        for item in args if joins else ():
            for inner in _runs(item, owner, last):
                draft.wanted[("all", inner)] = None
                if axis is not None:
                    draft.ragged.setdefault(inner, set()).add(axis)
        for value in _singles(args, owner, last) if joins else leaves(args):
            home = owner.get(value) if isinstance(value, Value) else None
            if home is not None:
                final = home[0] == last and home[1] in draft.plan.carried
                draft.wanted[("last", home[1]) if final else ("all", home[1])] = None
    for inner in list(draft.ragged):
        shapes = {block[inner.step].outputs[inner.output].shape for block in draft.blocks}
        if len(shapes) == 1:
            del draft.ragged[inner]


def _joined_along(step: Step) -> int | None:
    """The axis along which a step joins tensors that may differ in size there."""
    if step.target is not aten.cat.default:
        return None
    axis: int = step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", 0)
    return axis % len(step.outputs[0].shape)


def _gather(draft: _Draft, inner: Inner, axis: int) -> None:
    """Results of several sizes can't be stacked: each round joins its own to what there is so far."""
    last = draft.blocks[-1][inner.step].outputs[inner.output]
    shape = list(last.shape)
    shape[axis] = 0
    so_far = Value(tuple(shape), last.dtype)
    where = draft.blocks[0][inner.step].where
    draft.prefix.append(Step(aten.zeros.default, (shape,), {"dtype": last.dtype}, (so_far,), where))
    carried = Carried(len(draft.plan.carried))
    source = Inner(len(draft.plan.roles), 0)
    draft.plan = Plan((*draft.plan.roles, (carried, inner)), (*draft.plan.carried, source))
    draft.before.append(so_far)
    for block in draft.blocks:
        item = block[inner.step].outputs[inner.output]
        size = so_far.shape[axis] + item.shape[axis]
        more = Value((*item.shape[:axis], size, *item.shape[axis + 1 :]), item.dtype)
        block.append(Step(aten.cat.default, ([so_far, item], axis), {}, (more,), where))
        so_far = more
    draft.joined[inner] = source


def _runs(item: Any, owner: Mapping[Value, tuple[int, Inner]], last: int) -> Iterator[Inner]:
    """The results of which a list has those of every round, in order or in reverse."""
    if isinstance(item, list):
        for at, value in enumerate(item):
            if _run(item, at, owner, last):
                yield owner[value][1]


def _run(items: Sequence[Any], at: int, owner: Mapping[Value, tuple[int, Inner]], last: int) -> int:
    """1 if the list has all rounds of a result from here on, -1 if it has them in reverse, else 0."""
    home = owner.get(items[at])
    if home is not None and at + last < len(items):
        for direction in (1, -1):
            rounds = range(last + 1) if direction > 0 else range(last, -1, -1)
            if all(owner.get(items[at + k]) == (round_, home[1]) for k, round_ in enumerate(rounds)):
                return direction
    return 0


def _singles(args: Any, owner: Mapping[Value, tuple[int, Inner]], last: int) -> Iterator[Value]:
    """The values in a step's arguments that are not part of such a run."""
    for item in args:
        if not isinstance(item, list):
            yield from (leaf for leaf in leaves(item) if isinstance(leaf, Value))
            continue
        at = 0
        while at < len(item):
            if _run(item, at, owner, last):
                at += last + 1
            else:
                yield item[at]
                at += 1


def _with_results(drafts: Sequence[_Draft]) -> list[Tape]:
    """The tapes with their loops in place: every one with the same results, whichever of them it needs itself."""
    # A loop of one round can't tell the last result from the only one, nor a list from its reverse.
    longest = max(drafts, key=lambda draft: len(draft.blocks))
    wanted: dict[Any, None] = {}
    for draft in drafts:
        if len(draft.blocks) > 1 or draft is longest:
            wanted.update(draft.wanted)
    for inner, axes in {inner: axes for draft in drafts for inner, axes in draft.ragged.items()}.items():
        if len(axes) > 1:
            continue
        (axis,) = axes
        for draft in drafts:
            _gather(draft, inner, axis)
        del wanted[("all", inner)]
        wanted[("last", longest.joined[inner])] = None
    directions: list[int] = []
    made = {id(longest): _wired(longest, list(wanted), directions)}
    return [made.get(id(draft)) or _wired(draft, list(wanted), list(directions)) for draft in drafts]


def _wired(draft: _Draft, wanted: Sequence[Any], directions: list[int]) -> Tape:
    """The tape with the loop as one step; ``directions`` of the lists it is used in are noted, or followed if given."""
    count, last = len(draft.blocks), draft.blocks[-1]
    results: dict[Any, Value] = {}
    for kind, inner in wanted:
        final = last[inner.step].outputs[inner.output]
        shape = final.shape if kind == "last" else (count, *final.shape)
        results[(kind, inner)] = Value(shape, final.dtype)
    step = Step(
        rolled,
        (count, list(draft.before), list(draft.outside)),
        {},
        tuple(results.values()),
        draft.blocks[0][0].where,
        Body(tuple(map(tuple, draft.blocks)), draft.plan, tuple(wanted)),
    )
    joiner = _Joiner(
        _owners(draft.blocks), results, count, directions, given=bool(directions), gathered=draft.joined
    )
    steps = [*draft.tape.steps[: draft.place], *draft.prefix, step]
    for item in draft.tape.steps[draft.end :]:
        steps.extend(joiner.rewired(item))
    outputs, picks = _picked(list(draft.tape.outputs), joiner.owner, results, count, None)
    return replace(draft.tape, steps=[*steps, *picks], outputs=outputs)


@dataclass(slots=True)
class _Joiner:
    """Puts a loop's results in the place of what its rounds made one by one."""

    owner: Mapping[Value, tuple[int, Inner]]
    results: Mapping[Any, Value]
    count: int
    directions: list[int]
    given: bool
    gathered: Mapping[Inner, Inner]

    def rewired(self, step: Step) -> Iterator[Step]:
        if not any(value in self.owner for value in step.inputs):
            yield step
        elif step.target in JOINS and isinstance(step.args[0], list):
            yield from self.joined(step)
        else:
            tree = [step.args, step.kwargs]
            args, picks = _picked(tree, self.owner, self.results, self.count, step.where)
            yield from picks
            yield replace(step, args=args[0], kwargs=args[1])

    def joined(self, step: Step) -> Iterator[Step]:
        """stack or cat of a list that has all rounds of a result in it: the rounds are one tensor already."""
        stacks = step.target is aten.stack.default
        rank = len(step.outputs[0].shape)
        axis = (step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", 0)) % rank
        parts: list[Value] = []
        items = step.args[0]
        at = 0
        while at < len(items):
            direction = _run(items, at, self.owner, self.count - 1)
            if direction:
                inner = self.owner[items[at]][1]
                if inner in self.gathered and direction > 0:
                    parts.append(self.results[("last", self.gathered[inner])])
                    at += self.count
                    continue
                rounds = self.results[("all", inner)]
                moved, moves = _moved(rounds, axis, stacks, self.direction(direction), step.where)
                yield from moves
                parts.append(moved)
                at += self.count
                continue
            (single,), picks = _picked([items[at]], self.owner, self.results, self.count, step.where)
            yield from picks
            if stacks:
                wide = Value((*single.shape[:axis], 1, *single.shape[axis:]), single.dtype)
                yield Step(aten.unsqueeze.default, (single, axis), {}, (wide,), step.where)
                single = wide
            parts.append(single)
            at += 1
        yield Step(aten.cat.default, (parts, axis), {}, step.outputs, step.where)

    def direction(self, seen: int) -> int:
        if self.given:
            return self.directions.pop(0) if self.directions else seen
        self.directions.append(seen)
        return seen


def _picked(
    tree: Any, owner: Mapping[Value, tuple[int, Inner]], results: Mapping[Any, Value], count: int, where: Any
) -> tuple[Any, list[Step]]:
    picks: list[Step] = []

    def pick(leaf: Any) -> Any:
        home = owner.get(leaf) if isinstance(leaf, Value) else None
        if home is None:
            return leaf
        if home[0] == count - 1 and ("last", home[1]) in results:
            return results[("last", home[1])]
        made = Value(leaf.shape, leaf.dtype)
        picks.append(Step(aten.select.int, (results[("all", home[1])], 0, home[0]), {}, (made,), where))
        return made

    return map_leaves(pick, tree), picks


def _moved(value: Value, axis: int, stacks: bool, direction: int, where: Any) -> tuple[Value, list[Step]]:
    """All rounds, stacked in front, as one tensor along ``axis``: an axis of its own, or merged with what is there."""
    count, *shape = value.shape
    steps: list[Step] = []
    if direction < 0:
        flipped = Value(value.shape, value.dtype)
        steps.append(Step(aten.flip.default, (value, [0]), {}, (flipped,), where))
        value = flipped
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(value.shape))]
    turned = Value((*shape[:axis], count, *shape[axis:]), value.dtype)
    steps.append(Step(aten.permute.default, (value, order), {}, (turned,), where))
    if stacks:
        return turned, steps
    merged = Value((*shape[:axis], count * shape[axis], *shape[axis + 1 :]), value.dtype)
    steps.append(Step(aten.reshape.default, (turned, list(merged.shape)), {}, (merged,), where))
    return merged, steps


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
