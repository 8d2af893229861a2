"""The rungs, and the order in which they are climbed: each a name and the programs that it captures, one by one.

A rung is a generator. What was made of the programs it gave so far is in ``attempts`` when it is asked for the next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anyshape.capture import (
    Guard,
    Program,
    Traces,
    Turns,
    Unseen,
    capture_symbolic,
    capture_values,
    ends,
    explored,
    parting,
)
from anyshape.contract.agree import Agreed
from anyshape.errors import CaptureFault, Fault
from anyshape.ladder.attempt import Attempt
from anyshape.ladder.retrace import elsewhere

__all__ = ["SYMBOLIC", "TRACES", "Capture", "Ground", "Rung", "first_program", "rungs_for", "watched"]

NONE_KNOWN = Turns((), ())
MOST_TRACES = 3
MOST_REFINEMENTS = 4
MOST_COUNTEREXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Ground:
    """What every rung starts from."""

    traces: Traces  # of the case at concrete sizes, each made once
    guards: tuple[Guard, ...] = ()  # of a symbolic trace that came to nothing else
    turns: Turns = NONE_KNOWN  # the decisions on sizes that watched runs saw

    @property
    def parted(self) -> bool:
        """Whether the model is known to run other operators on the other side of a decision."""
        rows = self.turns.rows
        for turn in self.turns.found:
            other = next((row for row in rows if turn.holds(row) != turn.holds(rows[0])), None)
            if other is not None and parting(self.traces.at(rows[0]), self.traces.at(other)) is not None:
                return True
        return False


def watched(traces: Traces) -> Ground:
    """The first rung: what a few ordinary runs say of the model's decisions; nothing, where they can't be had.

    `Unseen` where the model decides by a size in a way that no rung could follow.
    """
    try:
        return Ground(traces, turns=NONE_KNOWN if traces.case.on_meta else explored(traces))
    except Unseen:
        raise
    except CaptureFault:
        return Ground(traces)


@dataclass(frozen=True, slots=True)
class Capture:
    """A program that is about to be captured, and what was agreed for it."""

    agreed: Agreed
    program: Callable[[], Program]


Captures = Callable[[Ground, Sequence[Attempt]], Iterator[Capture]]


@dataclass(frozen=True, slots=True)
class Rung:
    """A way to capture a module; ``captures`` gives its programs until it knows no further one."""

    name: str
    captures: Captures


def _symbolic(ground: Ground, attempts: Sequence[Attempt]) -> Iterator[Capture]:
    """A symbolic trace; traced again beyond the guards that failures broke, while there are any."""
    traces = ground.traces
    agreed = traces.agreed
    traced = [agreed.generic]
    while True:
        yield Capture(agreed, functools.partial(_traced, ground, agreed))
        latest = attempts[-1]
        more = len(traced) < MOST_TRACES
        other = elsewhere(latest.program, latest.judge(), latest.reference) if more else None
        if other is None or other.generic in traced:
            return
        agreed = other
        traced.append(agreed.generic)


def _traced(ground: Ground, agreed: Agreed) -> Program:
    program = capture_symbolic(ground.traces.case, agreed, ground.traces.own)
    return replace(program, within=tuple(ends(agreed, ground.turns.beyond)))


def _traces(ground: Ground, attempts: Sequence[Attempt]) -> Iterator[Capture]:
    """Traces at concrete sizes, and at those where an earlier attempt was wrong: each has to explain more."""
    traces, agreed = ground.traces, ground.traces.agreed
    guards = attempts[0].program.guards if attempts else ground.guards
    further: list[Mapping[str, int]] = []
    for attempt in range(MOST_REFINEMENTS):
        wrong = [row.sizes for row in attempts[-1].judge().failures] if attempts else []
        new = [sizes for sizes in _telling(wrong, agreed) if sizes not in further]
        if attempt and not new:
            return  # the same sizes would give the same program
        further += new
        yield Capture(agreed, functools.partial(_captured, traces, tuple(further), guards))


def _captured(traces: Traces, further: Sequence[Mapping[str, int]], guards: tuple[Guard, ...]) -> Program:
    return replace(capture_values(traces, further), guards=guards)


def _telling(failures: Sequence[Mapping[str, int]], agreed: Agreed) -> list[Mapping[str, int]]:
    """A few of the sizes at which an attempt was wrong: those that differ from the generic sizes in the fewest dims."""
    generic = agreed.generic
    ranked = sorted(
        failures, key=lambda sizes: (sum(sizes[n] != generic[n] for n in generic), sum(sizes.values()))
    )
    return [sizes for sizes in ranked if min(sizes.values()) > 0][:MOST_COUNTEREXAMPLES]


def _as_called(ground: Ground, attempts: Sequence[Attempt]) -> Iterator[Capture]:
    """Traces of the model when it is told that nobody exports it, where it asked and another way was not right."""
    if ground.traces.exporting.was_asked:
        yield from _traces(watched(ground.traces.as_called()), ())


TRACES, AS_CALLED, SYMBOLIC = (
    Rung("traces", _traces),
    Rung("traces as it is called", _as_called),
    Rung("symbolic", _symbolic),
)


def rungs_for(ground: Ground, prove: bool) -> tuple[Rung, ...]:
    """The rungs in the order that suits the model.

    A few ordinary runs say most, and cost least. A symbolic trace takes seconds and follows one way only, but what it
    says of all sizes is proved; and weights without values can't be run.
    """
    first_symbolic = ground.traces.case.on_meta or (prove and not ground.parted)
    return (SYMBOLIC, TRACES, AS_CALLED) if first_symbolic else (TRACES, AS_CALLED, SYMBOLIC)


def first_program(ground: Ground) -> Program:
    """The first program of the highest rung that captures one: what it does with sizes says most."""
    stuck: Fault | None = None
    for rung in (TRACES, SYMBOLIC):
        try:
            return next(rung.captures(ground, ())).program()
        except Fault as fault:
            stuck = stuck or fault
    assert stuck is not None
    raise stuck
