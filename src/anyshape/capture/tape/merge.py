"""Explain: tapes of one module at several sizes become one tape for all: each number that moved, an expression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.tape.constants import fitted_constant
from anyshape.capture.tape.contexts import Place, made_by, number_places, shared_contexts
from anyshape.capture.tape.fitter import Decision, Fitter, NoExpression
from anyshape.capture.tape.formulas import shared_formulas
from anyshape.capture.tape.numbering import Numbering
from anyshape.capture.tape.signs import sign_of
from anyshape.capture.tape.steps import (
    LoopBody,
    Split,
    Step,
    Tape,
    Value,
    chosen,
    either,
    leaves,
    map_leaves,
    repeated,
    rolled,
)
from anyshape.dims import Expr, names
from anyshape.errors import SourceLine

__all__ = ["Apart", "go_along", "lined_up", "merged"]

Sizes = Mapping[str, int]


class Apart(Exception):
    """The tapes do not run the same operators: from which step on, and the steps there."""

    def __init__(self, number: int, steps: Sequence[Step | None]) -> None:
        super().__init__(f"the tapes part at step {number}")
        self.number, self.steps = number, steps


def lined_up(tapes: Sequence[Tape]) -> list[list[Step]]:
    """For each step of the first tape, the same step of every tape; `Apart` where they differ in more than numbers."""
    go_along([Numbering(tape) for tape in tapes])
    return [list(steps) for steps in zip(*(tape.steps for tape in tapes), strict=True)]


def go_along(numberings: Sequence[Numbering], known: int = 0) -> None:
    """Go along all tapes at once; `Apart` where they differ. The first ``known`` steps are known to be the same."""
    tapes = [numbering.tape for numbering in numberings]
    longest = max(len(tape.steps) for tape in tapes)
    for number in range(known, longest):
        here = [tape.steps[number] if number < len(tape.steps) else None for tape in tapes]
        names = [numbering.up_to(number + 1) for numbering in numberings]
        first = here[0]
        for step, ids in zip(here[1:], names[1:], strict=True):
            if (
                first is None
                or step is None
                or not (_quickly_alike(first, names[0], step, ids) or _alike(first, names[0], step, ids))
            ):
                raise Apart(number, here)
    every = [numbering.all() for numbering in numberings]
    outputs = [[ids[value] for value in tape.outputs] for tape, ids in zip(tapes, every, strict=True)]
    if any(item != outputs[0] for item in outputs):
        raise Apart(longest, [])


def _quickly_alike(one: Step, one_ids: Mapping[Value, Any], two: Step, two_ids: Mapping[Value, Any]) -> bool:
    """Whether two steps of one sign are of the same values: then nothing else in them may differ but numbers."""
    return (
        sign_of(one) is sign_of(two)
        and one.target not in (either, repeated)
        and all(one_ids[a] == two_ids[b] for a, b in zip(one.inputs, two.inputs, strict=True))
    )


def _alike(one: Step, one_ids: Mapping[Value, Any], two: Step, two_ids: Mapping[Value, Any]) -> bool:
    return (
        one.target is two.target
        and one.axes == two.axes
        and len(one.outputs) == len(two.outputs)
        and _same_tree(one.args, one_ids, two.args, two_ids)
        and _same_tree(one.kwargs, one_ids, two.kwargs, two_ids)
        and all(
            a.dtype == b.dtype and len(a.shape) == len(b.shape) if a is not None and b is not None else a is b
            for a, b in zip(one.outputs, two.outputs, strict=True)
        )
        and _alike_inside(one, two)
    )


def _alike_inside(one: Step, two: Step) -> bool:
    """Whether control flow that the model told PyTorch of is the same, but for numbers."""
    if one.target not in (either, repeated):
        return True
    try:
        for tapes in zip(one.body, two.body, strict=True):
            lined_up(tapes)
    except Apart:
        return False
    return True


def _same_tree(one: Any, one_ids: Mapping[Value, Any], two: Any, two_ids: Mapping[Value, Any]) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(
            _same_tree(a, one_ids, b, two_ids) for a, b in zip(one, two, strict=True)
        )
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_same_tree(one[k], one_ids, two[k], two_ids) for k in one)
    if isinstance(one, Value) and isinstance(two, Value):
        return bool(one_ids[one] == two_ids[two])
    if _is_number(one) and _is_number(two):
        return isinstance(one, float) is isinstance(two, float)
    return type(one) is type(two) and bool(one == two)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float)) and not isinstance(leaf, bool)


def merged(tapes: Sequence[Tape], fitter: Fitter, shapes: Sequence[tuple[Any, ...]]) -> Tape:
    """One tape over expressions; ``shapes`` are those of the inputs. `Apart` where the tapes do not line up."""
    steps = lined_up(tapes)
    first = tapes[0]
    new: dict[Value, Value] = {
        value: replace(value, shape=shape, strides=None)
        for value, shape in zip(first.inputs, shapes, strict=True)
    }
    made = Tape([new[value] for value in first.inputs], {}, [], [])
    constants = _constants(tapes, steps)
    for value, (tensors, where) in constants.items():
        new[value] = replace(value, strides=None)
        own = value in first.names
        step = None if own else fitted_constant(tensors, new[value], fitter, where)
        if step is None:
            made.constants[new[value]] = tensors[0]
            if own:
                made.names[new[value]] = first.names[value]
        else:
            new[value] = step.outputs[0]
            made.steps.append(step)
    formulas = shared_formulas(steps)
    fitter.contexts = fitter.contexts or shared_contexts(steps)
    names = number_places(first)
    for number, column in enumerate(steps):
        fitter.formulas = formulas.get(column[0], {})
        if column[0].target is chosen:
            fitter.near = {
                key: new[value].shape[axis]
                for key, (value, axis) in column[0].body.context.items()
                if value in new
            }
        fitter.place = names[number]
        try:
            step = _explained(column, [new[value] for value in column[0].inputs], fitter)
        except NoExpression as fault:
            fault.step = column[0]  # of the outermost tape: the last to say so
            raise
        new.update(zip(column[0].outputs, step.outputs, strict=True))
        fitter.near.update((key, value.shape[axis]) for key, (value, axis) in made_by(step).items())
        made.steps.append(step)
    made.outputs = [new[value] for value in first.outputs]
    return made


def _explained(column: Sequence[Step], inputs: Sequence[Value], fitter: Fitter) -> Step:
    kinds = {
        rolled: _explained_loop,
        chosen: _explained_choice,
        either: _explained_told,
        repeated: _explained_told,
    }
    return kinds.get(column[0].target, _explained_call)(column, inputs, fitter)


def _explained_call(column: Sequence[Step], inputs: Sequence[Value], fitter: Fitter) -> Step:
    """One step of all tapes as one: arguments and the sizes of its results explained. ``inputs`` are its new values."""
    first, rest, place = column[0], iter(inputs), itertools.count()
    formulas, name = fitter.formulas, fitter.place
    atoms = list(dict.fromkeys(size for value in inputs for size in value.shape if isinstance(size, Expr)))
    # Kernels, strides and patch sizes among the arguments are what sizes are divided by.
    atoms += [Expr.of(k) for k in sorted(_hints(column))]

    def merged(trees: Sequence[Any]) -> Any:
        one = trees[0]
        if isinstance(one, (list, tuple)):
            return type(one)(merged(items) for items in zip(*trees, strict=True))
        if isinstance(one, Mapping):
            return {key: merged([tree[key] for tree in trees]) for key in one}
        if isinstance(one, Value):
            return next(rest)
        here = next(place)
        size = _near(fitter, (*name, here), inputs)
        if size is not None and all(type(tree) is int for tree in trees):
            return size
        formula = formulas.get(here)
        if formula is not None:
            made = formula.substitute(
                {names.input_size(axis): Expr.of(size) for axis, size in enumerate(inputs[0].shape)}
            )
            return made if made.constant is None else made.constant
        return fitter.leaf(trees, atoms, first.where)

    args, kwargs = merged([step.args for step in column]), merged([step.kwargs for step in column])
    outputs = tuple(
        values[0] and _explained_value(values, atoms, fitter)
        for values in zip(*(step.outputs for step in column), strict=True)
    )
    return replace(first, args=args, kwargs=kwargs, outputs=outputs)


def _near(fitter: Fitter, place: Place, inputs: Sequence[Value]) -> Any:
    """A number that is the size of a tensor near by wherever its line runs, or the product of two."""
    keys = fitter.contexts.get(place)
    if keys is None:
        return None
    sizes: list[Any] = [
        inputs[key[1]].shape[key[2]] if key[0] == "own" else fitter.near.get(key) for key in keys
    ]
    if None in sizes:
        return None
    product = math.prod((Expr.of(size) for size in sizes), start=Expr.of(1))
    return product if product.constant is None else product.constant


def _hints(column: Sequence[Step]) -> set[int]:
    """The numbers among a step's arguments that do not move."""
    numbers = [[leaf for leaf in leaves(step.args) if type(leaf) is int] for step in column]
    same = (values[0] for values in zip(*numbers, strict=True) if len(set(values)) == 1)
    return {value for value in same if 2 <= value <= 64}


def _explained_value(values: Sequence[Value], atoms: Sequence[Expr], fitter: Fitter) -> Value:
    axes = zip(*(value.shape for value in values), strict=True)
    return Value(tuple(fitter.axis(axis, atoms) for axis in axes), values[0].dtype)


def _explained_loop(column: Sequence[Step], inputs: Sequence[Value], fitter: Fitter) -> Step:
    """A loop of all tapes as one: its rounds are so many more rows, in which the round's number is a size as well."""
    first, plan = column[0], column[0].body.plan
    before, outside = inputs[: len(first.args[1])], inputs[len(first.args[1]) :]
    going = None
    try:
        count = fitter.rounds([step.args[0] for step in column], _measures(column, inputs), first.where)
    except NoExpression:
        going = _while(column)
        if going is None:
            raise
        count = MOST_ROUNDS
    index = names.round_of(fitter.depth)
    rounds = [(k, i) for k, step in enumerate(column) for i in _some_rounds(len(step.body.blocks))]
    rows = [{**fitter.rows[k], index: i} for k, i in rounds]
    inner = Fitter(rows, (*fitter.names, index), depth=fitter.depth + 1, prefix=f"{fitter.prefix}{index}")
    inner.spoken = fitter.spoken
    carried = [
        _explained_value(
            [
                column[k].body.blocks[i - 1][source.step].outputs[source.output]
                if i
                else column[k].args[1][number]
                for k, i in rounds
            ],
            (),
            inner,
        )
        for number, source in enumerate(plan.carried)
    ]
    steps: list[Step] = []
    for number, roles in enumerate(plan.roles):
        values = [role.pick(steps, carried, outside) for role in roles]
        steps.append(_explained([column[k].body.blocks[i][number] for k, i in rounds], values, inner))
    results = first.body.wanted
    collected = [inner_ for kind, inner_ in results if kind == "all"]
    body = LoopBody(
        index,
        tuple(carried),
        tuple(steps),
        tuple(steps[source.step].outputs[source.output] for source in plan.carried),
        tuple(steps[source.step].outputs[source.output] for source in collected),
        tuple(
            plan.carried.index(source) if kind == "last" else len(plan.carried) + collected.index(source)
            for kind, source in results
        ),
        going,
    )
    atoms = [size for value in before for size in value.shape if isinstance(size, Expr)]
    outputs = tuple(
        _explained_value(values, atoms, fitter)
        for values in zip(*(step.outputs for step in column), strict=True)
    )
    return replace(first, args=(count, list(before), list(outside)), outputs=outputs, body=body)


def _measures(column: Sequence[Step], inputs: Sequence[Value]) -> list[Expr]:
    """What the number of a loop's rounds may hang on: the sizes that it is given, and by how much it goes on."""
    sizes = [size for value in inputs for size in value.shape if isinstance(size, Expr)]
    longest = max(column, key=lambda step: len(step.body.blocks)).body.blocks
    one, two = (
        [leaf for step in block for leaf in leaves((step.args, step.kwargs)) if type(leaf) is int]
        for block in (longest[0], longest[1 % len(longest)])
    )
    strides = [abs(later - earlier) for earlier, later in zip(one, two, strict=False)]
    known = [Expr.of(stride) for stride in strides if stride > 1][:MOST_MEASURES]
    return list(dict.fromkeys((*known, *sizes)))


def _explained_choice(column: Sequence[Step], inputs: Sequence[Value], fitter: Fitter) -> Step:
    """A choice of all tapes as one: each way from the rows that took it, and the conditions that choose."""
    first, labels = column[0], [step.body.label for step in column]
    shapes = [value.shape for value in inputs]
    given = list(dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, Expr)))
    ways: dict[int, Tape] = {}
    for label in dict.fromkeys(labels):
        rows = [k for k, other in enumerate(labels) if other == label]
        inner = fitter.among(rows, label, given)
        ways[label] = merged([column[k].body.tape for k in rows], inner, shapes)
    outputs = tuple(
        _explained_value(values, (), fitter)
        for values in zip(*(step.outputs for step in column), strict=True)
    )
    body = _split(fitter.decided(labels, first.where), ways, first.where)
    return replace(first, args=(list(inputs),), outputs=outputs, body=body)


def _explained_told(column: Sequence[Step], inputs: Sequence[Value], fitter: Fitter) -> Step:
    """Control flow that the model told PyTorch of: each tape inside it from the same tape of every run."""
    first, rest = column[0], iter(inputs)
    args = map_leaves(lambda leaf: next(rest), first.args)
    if first.target is either:
        given = [[value.shape for value in args[1]]]
    else:
        before, rows, more = ([value.shape for value in values] for values in args)
        given = [[*before, *(shape[1:] for shape in rows), *more], [*before, *more]]
    known = list(dict.fromkeys(size for value in inputs for size in value.shape if isinstance(size, Expr)))
    tapes = []
    for number, shapes in zip(range(len(first.body)), itertools.cycle(given)):
        inner = fitter.among(range(len(column)), number, known)
        tapes.append(merged([step.body[number] for step in column], inner, shapes))
    outputs = tuple(
        _explained_value(values, known, fitter)
        for values in zip(*(step.outputs for step in column), strict=True)
    )
    return replace(first, args=args, outputs=outputs, body=tuple(tapes))


def _split(decision: Decision, ways: Mapping[int, Tape], where: SourceLine | None) -> Tape | Split:
    if isinstance(decision, int):
        return ways[decision]
    condition, then, otherwise = decision
    return Split(condition, where, _split(then, ways, where), _split(otherwise, ways, where))


MOST_ROUNDS = 1 << 31
MOST_MEASURES = 4


def _while(column: Sequence[Step]) -> tuple[int, int, int] | None:
    """A carried value's axis that is above some size before every round, and not after the last: `while h > 8`."""
    for number, source in enumerate(column[0].body.plan.carried):
        for axis in range(len(column[0].args[1][number].shape)):
            before, after = [], []
            for step in column:
                sizes = [block[source.step].outputs[source.output].shape[axis] for block in step.body.blocks]
                before += [step.args[1][number].shape[axis], *sizes[:-1]]
                after.append(sizes[-1])
            if max(after) < min(before):
                return number, axis, max(after)
    return None


def _some_rounds(count: int) -> list[int]:
    """Rounds to explain a loop's numbers from: the first, the last, and one between."""
    return sorted({0, 1, 2, count // 2, count - 2, count - 1} & set(range(count)))


Seen = tuple[list[torch.Tensor], SourceLine | None]


def _constants(tapes: Sequence[Tape], steps: Sequence[Sequence[Step]]) -> dict[Value, Seen]:
    """For each constant of the first tape, that constant on every tape, and the line that uses it first."""
    found: dict[Value, Seen] = {}
    for column in steps:
        for values in zip(*(step.inputs for step in column), strict=True):
            if values[0] in tapes[0].constants and values[0] not in found:
                found[values[0]] = _on_all(tapes, values), column[0].where
    for values in zip(*(tape.outputs for tape in tapes), strict=True):
        if values[0] in tapes[0].constants:
            found.setdefault(values[0], (_on_all(tapes, values), None))
    return found


def _on_all(tapes: Sequence[Tape], values: Sequence[Value]) -> list[torch.Tensor]:
    return [tape.constants[value] for tape, value in zip(tapes, values, strict=True)]
