"""Told: control flow that the model tells PyTorch of (torch.cond, while_loop, scan, map) is one step with tapes inside.

Both sides of a choice are run, and one round of a loop, each with a tape of its own. What they read from outside is
given to them. The real result is PyTorch's: of the side that is taken, of all rounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from anyshape.capture.tape.steps import Step, Tape, Value, either, repeated
from anyshape.capture.watched import plain_shape
from anyshape.errors import CaptureFault
from anyshape.source.lines import innermost_caller
from anyshape.torch_bridge.control_flow import Plain, RowRound, Side, Tensors

__all__ = ["Told"]


class Recording(Protocol):
    """A tape in the making."""

    tape: Tape
    valued: set[Value]
    unheard: int

    def new(self, tensor: Any) -> Any: ...

    def value(self, tensor: torch.Tensor) -> Value: ...

    def off(self) -> contextlib.AbstractContextManager[None]: ...


@dataclass(slots=True)
class _Aside:
    """What a function of the model gave, and the steps that it took."""

    made: list[Any]
    outputs: list[Value]
    steps: list[Step]

    def tape(self, inputs: Sequence[Value]) -> Tape:
        return Tape(list(inputs), {}, self.steps, self.outputs)


@dataclass(slots=True)
class Told:
    """A `Flow` that puts what it runs on the tape of a recording."""

    recording: Recording
    plain: Plain = field(default_factory=Plain)  # runs what is not recorded
    supposing: int = 0  # how deep in functions that the model itself would not run with these values

    def choose(self, test: Any, then: Side, otherwise: Side) -> Tensors:
        if self.recording.unheard:
            return self.plain.choose(test, then, otherwise)
        truth = self._truth(_condition(test))
        sides = [self._aside(side, wanted is truth) for side, wanted in ((then, True), (otherwise, False))]
        _check_alike(sides[0].made, sides[1].made, "the two sides of a torch.cond")
        given = _free(sides, ())
        tapes = tuple(side.tape(given) for side in sides)
        return self._step(either, (self.recording.value(test), given), tapes, sides[0 if truth else 1].made)

    def repeat(
        self, test: Callable[[Tensors], Any], body: Callable[[Tensors], Tensors], carried: Tensors
    ) -> Tensors:
        if self.recording.unheard:
            return self.plain.repeat(test, body, carried)
        before = self._values(carried)
        start, own = self._copies(carried)
        asked = self._aside(lambda: [_condition(test(start))], real=True)
        going = self._truth(asked.made[0])
        run = self._aside(lambda: body(start), going)
        _check_alike(start, run.made, "what a while_loop carries and what its body returns")
        given = _free([run, asked], own)
        tapes = run.tape([*own, *given]), asked.tape([*own, *given])
        made: Tensors = run.made if going else start
        if going and not self.supposing:
            with self.recording.off():
                while test(made):
                    made = body(made)
        return self._step(repeated, (before, [], given), tapes, made)

    def over(self, body: RowRound, carried: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
        if self.recording.unheard:
            return self.plain.over(body, carried, rows)
        before, along = self._values(carried), self._values(rows)
        start, own = self._copies(carried)
        with self.recording.off():
            row, slices = self._copies([tensor.select(0, 0) for tensor in rows])
        run = self._aside(lambda: [*(parts := body(start, row))[0], *parts[1]], real=True)
        count = len(start)
        _check_alike(start, run.made[:count], "what a scan carries and what its function returns")
        given = _free([run], [*own, *slices])
        with self.recording.off():
            last, stacked = self.plain.over(body, carried, rows)
        tape = run.tape([*own, *slices, *given])
        made = self._step(repeated, (before, along, given), (tape,), [*last, *stacked])
        return made[:count], made[count:]

    def _truth(self, test: torch.Tensor) -> bool:
        with self.recording.off():
            return bool(test)

    def _aside(self, function: Side, real: bool) -> _Aside:
        """Run a function with a tape of its own; ``real`` if the model runs it, too, with these values."""
        tape = self.recording.tape
        outer, tape.steps = tape.steps, []
        reads = len(tape.reads)
        self.supposing += not real
        try:
            made = list(function())
            outputs = self._values(made)
            for read in tape.reads[reads:]:
                raise CaptureFault(
                    "Python looks at the values of a tensor in a function of the model's control flow",
                    where=read.where,
                    hint="Keep it a tensor.",
                )
            return _Aside(made, outputs, tape.steps)
        finally:
            self.supposing -= not real
            tape.steps = outer

    def _values(self, tensors: Tensors) -> list[Value]:
        for item in tensors:
            if not isinstance(item, torch.Tensor):
                raise CaptureFault(
                    f"the model's control flow carries or returns {item!r}, which is no tensor",
                    where=innermost_caller(),
                    hint="Make it a tensor: torch.tensor(...).",
                )
        return [self.recording.value(item) for item in tensors]

    def _copies(self, tensors: Tensors) -> tuple[list[torch.Tensor], list[Value]]:
        """Tensors of the inside: the model may read the same ones from outside, too."""
        with self.recording.off():
            copies = [tensor.clone() for tensor in tensors]
        values = [self.recording.new(tensor) for tensor in copies]
        self.recording.valued.update(values)
        return copies, values

    def _step(
        self, target: Any, args: tuple[Any, ...], tapes: tuple[Tape, ...], made: Tensors
    ) -> list[torch.Tensor]:
        """Put it on the tape. Its results share no memory with anything, as PyTorch has it."""
        copies, values = self._copies(made)
        self.recording.tape.steps.append(Step(target, args, {}, tuple(values), innermost_caller(), tapes))
        return copies


def _condition(test: Any) -> torch.Tensor:
    if isinstance(test, torch.Tensor) and test.numel() == 1:
        return test
    raise CaptureFault(
        f"a condition of the model's control flow is {type(test).__name__}, not a tensor with one truth value",
        where=innermost_caller(),
        hint="Compute it with tensors.",
    )


def _free(runs: Sequence[_Aside], own: Sequence[Value]) -> list[Value]:
    """What the functions read that they did not make, in the order of its use."""
    made, found = set(own), dict[Value, None]()
    for run in runs:
        for step in run.steps:
            found.update((value, None) for value in step.inputs if value not in made)
            made.update(step.outputs)
        found.update((value, None) for value in run.outputs if value not in made)
    return list(found)


def _check_alike(one: Tensors, two: Tensors, what: str) -> None:
    def kinds(tensors: Tensors) -> list[Any]:
        return [(list(plain_shape(tensor)), str(tensor.dtype)) for tensor in tensors]

    if kinds(one) != kinds(two):
        raise CaptureFault(
            f"{what} differ in shape or type: {kinds(one)} and {kinds(two)}",
            where=innermost_caller(),
            hint="A graph has one shape and type for each of them: make them alike.",
        )
