"""Plan: how the values in the rounds of a loop hang together, read off the rounds themselves."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyshape.capture.tape.steps import Step, Tape, Value

__all__ = ["Carried", "Inner", "Outer", "Plan", "cut", "owners", "plan_of"]


LONGEST = 1 << 14  # results of one round


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


def plan_of(tape: Tape, start: int, size: int, count: int) -> Plan | None:
    blocks = cut(tape, start, size, count)
    owner = owners(blocks)
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


def cut(tape: Tape, start: int, size: int, count: int) -> list[list[Step]]:
    return [tape.steps[start + k * size : start + (k + 1) * size] for k in range(count)]


def owners(blocks: Sequence[Sequence[Step]]) -> dict[Value, tuple[int, Inner]]:
    return {
        value: (round_, _inner(number, k))
        for round_, block in enumerate(blocks)
        for number, step in enumerate(block)
        for k, value in enumerate(step.outputs)
        if value is not None
    }


_inner = functools.lru_cache(maxsize=LONGEST)(Inner)  # made for each round, and compared by each use


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
