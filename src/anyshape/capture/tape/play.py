"""Play: what a tape computes, by PyTorch itself: on other values than it was recorded with, or at any sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from anyshape.capture.tape.constants import index_tensor, sizes_tensor
from anyshape.capture.tape.steps import (
    NUMBERS,
    Body,
    LoopBody,
    Number,
    Split,
    Step,
    Tape,
    Value,
    Way,
    chosen,
    compared,
    either,
    float_of,
    map_leaves,
    repeated,
    rolled,
    size_of,
)
from anyshape.dims import Expr, Real, Relation, names
from anyshape.dims.formula import Formula

__all__ = ["Look", "Played", "play"]


@dataclass(frozen=True, slots=True)
class Played:
    """A step as it was played: the sizes known to it, its arguments as numbers and tensors, and what it gave."""

    step: Step
    sizes: Mapping[str, int]
    inputs: tuple[torch.Tensor, ...]  # one for each of the step's
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Any, ...]


Look = Callable[[Played], Sequence[Any] | None]


def play(
    body: Tape | Split,
    tensors: Sequence[torch.Tensor],
    sizes: Mapping[str, int] | None = None,
    look: Look | None = None,
) -> list[torch.Tensor]:
    """The outputs of a tape on these inputs; of one over expressions, at these sizes.

    ``look`` is shown every step once it is played, a loop or a choice after the steps inside it. What it returns, if
    anything, takes the place of the step's outputs.
    """
    with torch.no_grad():
        return _Player(dict(sizes or {}), look).run(body, tensors)


@dataclass(slots=True)
class _Player:
    """What is known so far: sizes by name, and tensors."""

    sizes: dict[str, int]
    look: Look | None
    known: dict[Value, Any] = field(default_factory=dict)

    def run(self, body: Tape | Split | Way, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        while isinstance(body, Split):
            body = body.then if self.truth(body.condition, tensors) else body.otherwise
        tape = body.tape if isinstance(body, Way) else body
        self.known.update(tape.constants)
        self.known.update(zip(tape.inputs, tensors, strict=True))
        for step in tape.steps:
            self.step(step, step.inputs)
        return [self.known[value] for value in tape.outputs]

    def truth(self, condition: Relation | Tape, tensors: Sequence[torch.Tensor]) -> bool:
        if isinstance(condition, Tape):
            return bool(_Player(dict(self.sizes), None).run(condition, tensors)[0])
        return condition.holds(self.sizes)

    def step(self, step: Step, inputs: Sequence[Value]) -> None:
        """Play a step; in a loop at concrete sizes, its inputs are others than those on the tape."""
        given = tuple(self.known[value] for value in inputs)
        rest = iter(given)
        args, kwargs = step.args, dict(step.kwargs)
        if step.target is not index_tensor:  # its expressions are over its own indices too
            args, kwargs = map_leaves(
                lambda leaf: next(rest) if isinstance(leaf, Value) else self.number(leaf), (args, kwargs)
            )
        result = self.called(step, given, args, kwargs)
        outputs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
        self.keep(step, outputs)
        if self.look is not None:
            instead = self.look(Played(step, dict(self.sizes), given, args, kwargs, outputs))
            if instead is not None:
                self.keep(step, instead)

    def keep(self, step: Step, outputs: Sequence[Any]) -> None:
        for value, tensor in zip(step.outputs, outputs, strict=False):
            if value is not None:
                self.known[value] = tensor
                for size, seen in zip(value.shape, tensor.shape, strict=False):
                    if isinstance(size, Expr) and size.name is not None:
                        self.sizes.setdefault(size.name, seen)  # one that depends on values

    def called(
        self, step: Step, given: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        if step.target is rolled:
            return self.loop(step, args) if isinstance(step.body, LoopBody) else self.rounds(step)
        if step.target is chosen:
            return self.inside(step.body, given)
        if step.target is either:
            return self.inside(step.body[0 if args[0] else 1], args[1])
        if step.target is repeated:
            return self.told_loop(step.body, *args)
        if step.target is index_tensor:
            return self.by_index(*args)
        if step.target is sizes_tensor:
            return torch.tensor(args[0], dtype=args[2]).reshape(args[1])
        if step.target in NUMBERS:
            self.sizes[args[1]] = _number_read(step, args)
            return args[0]
        if step.target is compared:
            return torch.tensor(bool(args[0]))
        return step.target(*args, **kwargs)

    def inside(self, body: Tape | Split | Way, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return _Player(dict(self.sizes), self.look).run(body, given)

    def told_loop(
        self,
        tapes: Sequence[Tape],
        carried: list[torch.Tensor],
        rows: Sequence[torch.Tensor],
        given: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        """A loop of PyTorch's own: over rows, or while its test is true."""
        body, *test = tapes
        count, number = len(carried), 0
        kept: list[list[torch.Tensor]] = [[] for _ in body.outputs[count:]]
        while number < rows[0].shape[0] if rows else self.inside(test[0], [*carried, *given])[0]:
            made = self.inside(body, [*carried, *(tensor[number] for tensor in rows), *given])
            carried, number = made[:count], number + 1
            for items, item in zip(kept, made[count:], strict=True):
                items.append(item)
        return [*carried, *map(_stacked, kept, body.outputs[count:])]

    def number(self, leaf: Any) -> Any:
        if isinstance(leaf, Number):
            formula = leaf.formulas[0]
            return formula.evaluate(self.sizes) if formula.names <= self.sizes.keys() else float(leaf)
        return leaf.evaluate(self.sizes) if isinstance(leaf, (Expr, Real, Formula)) else leaf

    def by_index(self, entry: Any, shape: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        made = torch.empty([self.number(size) for size in shape], dtype=dtype)
        for place in np.ndindex(*made.shape):
            inner = _Player({**self.sizes, **{names.place(axis): at for axis, at in enumerate(place)}}, None)
            sides = [inner.number(side) for side in entry] if isinstance(entry, tuple) else []
            made[place] = sides[0] <= sides[1] if sides else inner.number(entry)
        return made

    def loop(self, step: Step, args: tuple[Any, ...]) -> list[torch.Tensor]:
        """A loop over expressions, in which the number of the round is a size."""
        body: LoopBody = step.body
        count, carried, _ = args
        collected: list[list[torch.Tensor]] = [[] for _ in body.collected]
        for number in range(count):
            if body.going is not None and carried[body.going[0]].shape[body.going[1]] <= body.going[2]:
                break
            inner = _Player({**self.sizes, body.index: number}, self.look, dict(self.known))
            inner.known.update(zip(body.carried, carried, strict=True))
            for item in body.steps:
                inner.step(item, item.inputs)
            carried = [inner.known[value] for value in body.carried_on]
            for made, value in zip(collected, body.collected, strict=True):
                made.append(inner.known[value])
        stacked = (_stacked(*item, self.sizes) for item in zip(collected, body.collected, strict=True))
        results = [*carried, *stacked]
        return [results[place] for place in body.results]

    def rounds(self, step: Step) -> list[torch.Tensor]:
        """A loop at concrete sizes: the numbers of each round, wired as the plan says."""
        body: Body = step.body
        _, carried, outside = step.args
        kept: dict[Any, list[torch.Tensor]] = {key: [] for key in body.wanted}
        for block in body.blocks:
            for item, roles in zip(block, body.plan.roles, strict=True):
                self.step(item, [role.pick(block, carried, outside) for role in roles])
            carried = [source.pick(block, (), ()) for source in body.plan.carried]
            for key in body.wanted:
                kept[key].append(self.known[key[1].pick(block, (), ())])
        return [made[-1] if key[0] == "last" else torch.stack(made) for key, made in kept.items()]


def _number_read(step: Step, args: Sequence[Any]) -> Any:
    if step.target is size_of:
        return args[0].shape[args[2]]
    return float(args[0]) if step.target is float_of else int(args[0])


def _stacked(
    tensors: Sequence[torch.Tensor], value: Value, sizes: Mapping[str, int] | None = None
) -> torch.Tensor:
    """The results of all rounds; without any, what changes from round to round is 0."""
    if tensors:
        return torch.stack(list(tensors))
    known = sizes or {}
    shape = [Expr.of(size) for size in value.shape]
    evaluated = [size.evaluate(known) if size.names <= known.keys() else 0 for size in shape]
    return torch.empty([0, *evaluated], dtype=value.dtype)
