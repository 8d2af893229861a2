"""AllWays: the looks at sizes on every way through a model, and the values that Python reads there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anyshape.capture.differential import first_rows
from anyshape.capture.looks.one_way import Look, Looks, looks_at
from anyshape.capture.tape.steps import Read
from anyshape.capture.traces import Traces
from anyshape.dims import Space, choose, fit
from anyshape.errors import CaptureFault, SourceLine

__all__ = ["AllWays", "looks_on_all_ways"]

MOST_TRACES = 6
MOST_CANDIDATES = 60

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AllWays:
    """The looks of traces at several sizes, and the reads of values in runs at many."""

    traces: Traces
    seen: tuple[Looks, ...]
    reads: tuple[Read, ...]  # that a trace can't follow: of the run at the example, or near it

    @property
    def ended(self) -> CaptureFault | None:
        """Why a trace could not go on to its end, if one could not."""
        return next((looks.ended for looks in self.seen if looks.ended is not None), None)

    @property
    def example(self) -> dict[str, int]:
        return self.traces.agreed.contract.example

    def by_line(self) -> dict[SourceLine, list[Look]]:
        """All looks of each line, in the order of the traces."""
        made: dict[SourceLine, list[Look]] = {}
        for looks in self.seen:
            for look in looks.found:
                made.setdefault(look.where, []).append(look)
        return made

    def lines_of_example(self) -> set[SourceLine] | None:
        """The lines that look at sizes on the example's own way; None if no trace went it."""
        for looks in self.seen:
            if all(look.at(self.example) == look.seen for look in looks.found if look.is_branch):
                return {look.where for look in looks.found}
        return None

    def read_as(self, read: Read) -> str | None:
        """The expression of sizes that a number read from a tensor is, at all sizes that were run."""
        rows, column = [], []
        for key, tape in self.traces.tapes():
            seen = [other.seen for other in tape.reads if other.where == read.where]
            if key[-1] == 0 and seen and type(seen[0]) is int:
                rows.append(dict(key[:-1]))
                column.append(seen[0])
        found = fit(rows, column) if len(set(column)) > 1 else None
        return None if found is None else str(found)


def looks_on_all_ways(traces: Traces) -> AllWays:
    """The ways of a case: traced at the example, at generic sizes, and beyond each branch on a size."""
    agreed = traces.agreed
    pending = [*_plain_example(traces), dict(agreed.generic)]
    candidates = _candidates(traces)
    done: list[Sizes] = []
    seen: list[Looks] = []
    while pending and len(seen) < MOST_TRACES:
        sizes = pending.pop(0)
        if sizes in done:
            continue
        done.append(sizes)
        seen.append(looks_at(traces.case, agreed, sizes, _reads(traces, sizes)))
        pending += _beyond(seen, candidates)
    values = {where for looks in seen for where in looks.values}
    ended = any(looks.ended is not None for looks in seen)
    reads = _reads(traces, agreed.contract.example) or _reads(traces, agreed.generic)
    return AllWays(traces, tuple(seen), tuple(read for read in reads if ended or read.where in values))


def _plain_example(traces: Traces) -> Iterator[dict[str, int]]:
    """The example's sizes, if a trace can tell them apart and takes none of them as special."""
    sizes = traces.agreed.contract.example
    if len(set(sizes.values())) == len(sizes) and min(sizes.values(), default=0) > 1:
        yield sizes


def _candidates(traces: Traces) -> list[dict[str, int]]:
    agreed = traces.agreed
    space = Space(agreed.contract.ranges, agreed.contract.relations, typical=agreed.generic)
    rows = [*first_rows(agreed), *choose(space, MOST_CANDIDATES)]
    return [row for row in rows if min(row.values(), default=0) > 1 and agreed.contract.allows(row)]


def _beyond(seen: list[Looks], candidates: list[dict[str, int]]) -> Iterator[dict[str, int]]:
    """Sizes at which a branch goes the way that no trace went yet."""
    answers: dict[tuple[SourceLine, str], set[Any]] = {}
    looks = [look for each in seen for look in each.found if look.is_branch]
    for look in looks:
        answers.setdefault((look.where, str(look.condition)), set()).add(look.seen)
    for look in looks:
        known = answers[look.where, str(look.condition)]
        if len(known) == 1:
            known.add(not look.seen)
            yield from [row for row in candidates if look.at(row) == (not look.seen)][:1]


def _reads(traces: Traces, sizes: Sizes) -> tuple[Read, ...]:
    """What Python reads of values at these sizes; nothing where the model can't be run there."""
    try:
        return tuple(traces.at(sizes).reads)
    except CaptureFault:
        return ()
