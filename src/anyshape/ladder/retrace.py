"""retrace: where to trace again when a captured graph is wrong beyond one of its guards.

A trace follows one path through the model's branches. Often the path taken at other sizes is the general one
(slice to the last eight, pad to a multiple, resize to fit), which is right on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anyshape.capture.program import Guard, Program
from anyshape.contract.agree import Agreed
from anyshape.dims import Space, choose
from anyshape.verify.reference import Expected, Reference
from anyshape.verify.verdict import Row, Verdict

__all__ = ["elsewhere"]

Sizes = Mapping[str, int]


def elsewhere(program: Program, verdict: Verdict, reference: Reference) -> Agreed | None:
    """The agreement with other sizes to trace at: beyond the guards that the failures broke. None if there are none."""
    agreed = reference.agreed
    broken = _broken(program.open_guards, verdict.failures)
    if not broken:
        return None
    example = agreed.contract.example
    for sizes in sorted(_candidates(agreed, verdict), key=lambda sizes: _rank(sizes, broken, example)):
        if _beyond(sizes, broken) == 0:
            return None
        if isinstance(reference.at(sizes), Expected):
            return replace(agreed, generic=sizes)
    return None


def _broken(guards: Sequence[Guard], failures: Sequence[Row]) -> list[Guard]:
    return [item for item in guards if any(not item.holds(row.sizes) for row in failures)]


def _candidates(agreed: Agreed, verdict: Verdict) -> list[dict[str, int]]:
    contract = agreed.contract
    space = Space(contract.ranges, contract.relations, typical=agreed.generic)
    return [*(row.sizes for row in verdict.rows), *choose(space, 120)]


def _rank(sizes: Sizes, broken: Sequence[Guard], example: Sizes) -> tuple[int, int, int, int, int]:
    """The most guards broken first; then no size of 0 or 1, none below the example's, no two alike, and small."""
    values = list(sizes.values())
    return (
        -_beyond(sizes, broken),
        sum(value < 2 for value in values),
        sum(size < example[name] for name, size in sizes.items()),
        len(values) - len(set(values)),
        sum(values),
    )


def _beyond(sizes: Sizes, broken: Sequence[Guard]) -> int:
    return sum(not item.holds(sizes) for item in broken)
