"""Choices: where each layer decides by its own sizes, the ways through the model multiply; the decisions only add up.

The limits at which the model changes are where its decisions turn; between those, and where none is known, they are
looked for along each dim, from small sizes to large ones. Runs between all of them, lined up, then tell what each layer
does on either side (`tape.choose`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from anyshape.capture.decisions import Turn
from anyshape.capture.differential import first_rows, merged_at, parting
from anyshape.capture.program import Program
from anyshape.capture.tape import NoExpression, Tape, Undecided, may_be_left_out
from anyshape.capture.traces import Traces
from anyshape.dims import Expr, Relation
from anyshape.dims.turns import turning
from anyshape.errors import CaptureFault

__all__ = ["capture_choices"]

LARGEST = 512
LARGEST_INPUTS = 4  # times those at generic sizes
ALWAYS = 1 << 17  # so many numbers are no burden to any model
MOST_BOUNDARIES = 8  # along one dim
TIMES = (3, 5, 8)  # so many rows between limits, as far as they are needed

Sizes = Mapping[str, int]


def capture_choices(traces: Traces, further: Sequence[Sizes] = (), turns: Sequence[Turn] = ()) -> Program:
    """The program in which each layer chooses its way; `CaptureFault` if limits of single dims do not tell them.

    ``turns`` are decisions that are known.
    """
    limits = _limits(traces, turns)
    try:
        return _captured(traces, further, limits)
    except Undecided:
        more = _limits(traces, ()) if turns else limits
        if more == limits:
            raise
    return _captured(traces, further, more)  # what decides was not all known


def _captured(traces: Traces, further: Sequence[Sizes], limits: Mapping[str, Sequence[int]]) -> Program:
    boundaries = [
        Relation(Expr.of(name), "<=", Expr.of(limit)) for name, found in limits.items() for limit in found
    ]
    if not boundaries:
        raise CaptureFault("no limit was found at which the model goes another way")
    rows: list[dict[str, int]] = []
    for times in TIMES:
        for row in (*first_rows(traces.agreed), *_rows(traces, limits, times), *map(dict, further)):
            if row not in rows:
                rows.append(row)
        try:
            return merged_at(traces, rows, boundaries)
        except NoExpression:
            if times == TIMES[-1]:
                raise
    raise AssertionError("the last try returns or raises")


def _limits(traces: Traces, turns: Sequence[Turn]) -> dict[str, list[int]]:
    """For each dim, the last sizes before the model changes, with the other dims small and at their generic sizes."""
    base = dict(traces.agreed.generic)
    small = {name: _smallest(traces, name) for name in base}
    found: dict[str, list[int]] = {name: [] for name in base}
    for name in base:
        decided = _decided(traces, turns, name, (small, base))
        # Where all that a dim decides is known, it decides by itself, whatever the others are.
        alone = bool(decided) and all(turn.names == {name} for turn in turns if name in turn.names)
        others = (small,) if alone else (small, {**base, **{n: small[n] for n in base if not found[n]}})
        for sizes in others:
            guesses = {limit for limits in found.values() for limit in limits} - set(found[name])
            places = _places(traces, sizes[name], name, decided, {*found[name], *guesses}, bool(turns))
            for limit in _along(traces, dict(sizes), name, found[name], places):
                found[name].append(limit)
                if len(found[name]) > MOST_BOUNDARIES:
                    raise CaptureFault(f"the model changes at more than {MOST_BOUNDARIES} sizes of {name}")
    return {name: sorted(limits) for name, limits in found.items() if limits}


def _decided(traces: Traces, turns: Sequence[Turn], name: str, bases: Sequence[Sizes]) -> set[int]:
    """Where the known decisions turn along one dim; one that comes and goes has no limit."""
    range_ = traces.agreed.contract.dim(name).range
    found = set()
    for turn in turns:
        for sizes in bases if name in turn.names else ():
            pairs = turning(turn, sizes, name, range_)
            if len(pairs) == 1 and 1 < pairs[0][0] < LARGEST:
                found.add(pairs[0][0])
    return found


def _places(
    traces: Traces, smallest: int, name: str, decided: Collection[int], other: Collection[int], known: bool
) -> list[int]:
    """Sizes at which to look whether the model has changed: both sides of each limit, as far as limits are known.

    Where no decision is, they are ever larger ones; where others are but none of this dim, just its generic size.
    """
    end = min(LARGEST, traces.agreed.contract.dim(name).range.maximum or LARGEST)
    sizes = {smallest}
    if not decided:
        decided = other
        if known:
            sizes.add(traces.agreed.generic[name])
    while not known and max(sizes) * 2 <= end:
        sizes.add(max(sizes) * 2)
    return sorted({*sizes, *(size for limit in decided for size in (limit, limit + 1) if size >= smallest)})


def _smallest(traces: Traces, name: str) -> int:
    """A small size that the model takes, but not 0 or 1, at which much is special."""
    agreed = traces.agreed
    range_ = agreed.contract.dim(name).range
    for size in range(max(2, range_.minimum), agreed.generic[name]):
        if traces.agreed.contract.allows({**agreed.generic, name: size}):
            return size
    return agreed.generic[name]


def _along(
    traces: Traces, others: dict[str, int], name: str, known: Sequence[int], places: Sequence[int]
) -> Iterator[int]:
    """The limits along one dim that are not known yet."""
    most = max(ALWAYS, LARGEST_INPUTS * _elements(traces, traces.agreed.generic))
    wanted = ({**others, name: size} for size in places)
    runs = [row[name] for row in wanted if _elements(traces, row) <= most and _runs(traces, row)]
    for low, high in itertools.pairwise(runs):
        if low not in known:
            yield from _between(traces, others, name, low, high)


def _between(traces: Traces, others: dict[str, int], name: str, low: int, high: int) -> Iterator[int]:
    """By bisection, every limit between two sizes; one that shows at neither end is not seen."""
    if traces.compared(_is_alike, *({**others, name: size} for size in (low, high))):
        return
    if high - low == 1:
        yield low
        return
    middle = (low + high) // 2
    if _runs(traces, {**others, name: middle}):
        yield from _between(traces, others, name, low, middle)
        yield from _between(traces, others, name, middle, high)


def _is_alike(one: Tape, two: Tape) -> bool:
    return _outline(one) == _outline(two) or parting(one, two) is None


def _outline(tape: Tape) -> list[Any]:
    """What a tape runs, and where, but for steps that come and go as sizes divide."""
    return [(step.target, step.where) for step in tape.steps if not may_be_left_out(step)]


def _elements(traces: Traces, sizes: Sizes) -> int:
    return sum(math.prod(shape) for shape in traces.agreed.contract.shapes(sizes))


def _runs(traces: Traces, sizes: Sizes) -> bool:
    return traces.agreed.contract.allows(sizes) and traces.runs(sizes)


def _rows(traces: Traces, limits: Mapping[str, Sequence[int]], times: int) -> Iterator[dict[str, int]]:
    """Sizes between all limits: every dim small, larger, largest; one dim at one end, the others at the other; and one
    dim beyond a limit, the others before theirs."""
    levels = {name: _levels(traces, name, found, times) for name, found in limits.items()}
    others = [name for name in traces.agreed.generic if name not in limits]
    most = max(len(level) for level in levels.values())
    plans = [{name: min(k, len(level) - 1) for name, level in levels.items()} for k in range(most)]
    for name in levels if len(levels) > 1 else ():
        for end in (0, -1):
            plan = {n: end if n == name else -1 - end for n in levels}
            plans += [plan] if plan not in plans else []
    count = itertools.count()
    steps = [
        {n: min(k if n == name else k - 1, len(level) - 1) for n, level in levels.items()}
        for name in levels
        for k in range(1, len(levels[name]))
    ]
    wanted = (_between_limits(plans, levels, times), _between_limits(steps, levels, 1))
    for sizes in itertools.chain(*wanted, _far(traces, limits, levels)):
        row = {**{name: 2 + next(count) % 2 for name in others}, **sizes}
        row = {name: row[name] for name in traces.agreed.generic}
        if _runs(traces, row):
            yield row


Levels = Mapping[str, Sequence[Sequence[int]]]


def _between_limits(
    plans: Sequence[Mapping[str, int]], levels: Levels, times: int
) -> Iterator[dict[str, int]]:
    for plan in plans:
        for turn in range(times):
            yield {name: levels[name][at][turn % len(levels[name][at])] for name, at in plan.items()}


def _far(traces: Traces, limits: Mapping[str, Sequence[int]], levels: Levels) -> Iterator[dict[str, int]]:
    """Each dim alone far beyond its last limit, with the others beyond theirs and before: what is still alike there
    is one number."""
    for place, (name, found) in enumerate(limits.items()):
        range_ = traces.agreed.contract.dim(name).range
        far = 2 * found[-1] + 9 + 2 * place
        if range_.contains(far):
            for end in (-1, 0):
                yield {other: far if other == name else levels[other][end][0] for other in levels}


def _levels(traces: Traces, name: str, limits: Sequence[int], times: int) -> list[list[int]]:
    """For each stretch between limits, a few sizes in it; dims of different names get different ones."""
    range_ = traces.agreed.contract.dim(name).range
    place = list(traces.agreed.generic).index(name)
    end = limits[-1] + max(8, limits[-1] // 4) * times // TIMES[0]
    edges = [max(2, range_.minimum) - 1, *limits, min(end, range_.maximum or end)]
    made = []
    for low, high in itertools.pairwise(edges):
        wanted = [
            low + 1 + (high - low - 1) * (3 * turn + place + 1) // (3 * times + 2) for turn in range(times)
        ]
        made.append(sorted(set(wanted)))
    return made
