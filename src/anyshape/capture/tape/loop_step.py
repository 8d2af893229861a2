"""Wire: put a loop into a tape as one step, and its results in the place of what its rounds made one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from anyshape.capture.tape.joins import JOINS, axis_of
from anyshape.capture.tape.loop_values import Carried, Inner, Outer, Plan, cut, owners
from anyshape.capture.tape.steps import Body, Step, Tape, Value, leaves, map_leaves, rolled
from anyshape.capture.tape.unpack import VIEWS

__all__ = ["Draft", "draft_of", "with_results"]

aten = torch.ops.aten


@dataclass(slots=True)
class Draft:
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
    listed: bool = False  # whether some list has a result of every round
    prefix: list[Step] = field(default_factory=list)


def draft_of(tape: Tape, start: int, size: int, count: int, plan: Plan) -> Draft | None:
    blocks = cut(tape, start, size, count)
    owner = owners(blocks)
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
    draft = Draft(
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


def _look_after(draft: Draft, owner: Mapping[Value, tuple[int, Inner]]) -> None:
    """Which results of the loop the rest of the tape uses, and how."""
    last = len(draft.blocks) - 1
    uses = [(step.target in JOINS, step.args, _joined_along(step)) for step in draft.tape.steps[draft.end :]]
    uses.append((False, tuple(draft.tape.outputs), None))
    for joins, args, axis in uses:
        for item in args if joins else ():
            for inner in _runs(item, owner, last):
                draft.wanted[("all", inner)] = None
                draft.listed = True
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
    if step.target not in JOINS or step.target is aten.stack.default:
        return None
    return axis_of(step)


def _gather(draft: Draft, inner: Inner, axis: int) -> None:
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


def with_results(drafts: Sequence[Draft]) -> list[Tape] | None:
    """The tapes with their loops in place: every one with the same results, whichever of them it needs itself.

    None if what they use afterwards is nothing that a loop hands on.
    """
    # A loop of one round can't tell the last result from the only one, nor a list from its reverse.
    longest = max(drafts, key=lambda draft: len(draft.blocks))
    if _only_takes_apart(longest):
        return None
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
        wanted.pop(("all", inner), None)
        wanted[("last", longest.joined[inner])] = None
    directions: list[int] = []
    try:
        made = {id(longest): _wired(longest, list(wanted), directions)}
        return [made.get(id(draft)) or _wired(draft, list(wanted), list(directions)) for draft in drafts]
    except _NotHandedOn:
        return None


def _only_takes_apart(draft: Draft) -> bool:
    """Whether the rounds take parts of tensors that are used one by one: so they would be after the loop as well."""
    views = all(step.target in VIEWS for step in draft.blocks[0])
    return views and not draft.plan.carried and not draft.listed


class _NotHandedOn(Exception):
    """A result of some round is used that the loop does not hand on, or can't: results of several sizes are no list."""


def _wired(draft: Draft, wanted: Sequence[Any], directions: list[int]) -> Tape:
    """The tape with the loop as one step; ``directions`` of the lists it is used in are noted, or followed if given."""
    count, last = len(draft.blocks), draft.blocks[-1]
    results: dict[Any, Value] = {}
    for kind, inner in wanted:
        final = last[inner.step].outputs[inner.output]
        if kind == "all" and any(
            block[inner.step].outputs[inner.output].shape != final.shape for block in draft.blocks
        ):
            raise _NotHandedOn
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
        owners(draft.blocks), results, count, directions, given=bool(directions), gathered=draft.joined
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
        axis = axis_of(step)
        parts: list[Value] = []
        items = step.args[0]
        at = 0
        while at < len(items):
            direction = _run(items, at, self.owner, self.count - 1)
            inner = self.owner[items[at]][1] if direction else None
            if inner is not None and inner in self.gathered and direction > 0:
                parts.append(self.results[("last", self.gathered[inner])])
                at += self.count
                continue
            rounds = self.results.get(("all", inner))
            if rounds is not None:
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
        rounds = results.get(("all", home[1]))
        if rounds is None:
            raise _NotHandedOn
        made = Value(leaf.shape, leaf.dtype)
        picks.append(Step(aten.select.int, (rounds, 0, home[0]), {}, (made,), where))
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
