"""Rung 4: where the model takes another path at other sizes, each side is captured and a condition chooses.

The condition is the model's own: the decision that tells the runs on one side from those on the other. Where none is
known, since C code decides behind Python's back, a boundary is looked for by trial: between two rows whose tapes part,
the one dim that makes the difference is moved by bisection to the last size on this side. A difference that comes and
goes is one of remainders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anyshape.capture.choices import capture_choices
from anyshape.capture.decisions import Turn, Turns, explored
from anyshape.capture.differential import Parted, capture_differential, computed_sizes, parting
from anyshape.capture.program import Limit, Program
from anyshape.capture.reads import Asked
from anyshape.capture.tape import Apart, NoExpression, Split, Tape, chosen, rolled_up
from anyshape.capture.traces import Traces
from anyshape.contract.agree import Agreed
from anyshape.dims import Expr, Relation, Space, fit, fit_real, generic
from anyshape.errors import CaptureFault, SourceLine

__all__ = ["MOST_REGIONS", "capture_regions", "common_shapes", "ends", "split_at"]

MOST_REGIONS = 12
LARGEST_DIVISOR = 8
ROOM = 64
MOST_NEAR = 6  # sizes around which generic ones are looked for
MOST_ASKED = 24  # decisions that are held against what parts the runs
MOST_FITTED = 8  # of them, where numbers have to be explained for it, which takes a while

Sizes = Mapping[str, int]
Alike = Callable[
    [Sizes], bool | None
]  # whether a tape at these sizes goes the same way; None if there is none


Capture = Callable[[Traces, Sequence[Sizes], "list[int]"], Program]


def capture_regions(
    traces: Traces,
    further: Sequence[Sizes] = (),
    budget: list[int] | None = None,
    side: Capture | None = None,
) -> Program:
    """The program of all regions, joined by conditions on sizes.

    Of more regions than `MOST_REGIONS`, those next to the example are captured, and the program says where it ends:
    the ``budget`` is shared by all sides, which ``side`` captures, if it is another function.
    """
    budget = budget if budget is not None else [MOST_REGIONS]
    return _captured(traces, further, budget, side or capture_regions)


def _captured(traces: Traces, further: Sequence[Sizes], budget: list[int], side: Capture) -> Program:
    """One side, split again as long as the ``budget`` of ways lasts, which all sides share."""
    turns = explored(traces, further)
    rows = [*turns.rows, *(row for row in further if row not in turns.rows)]
    chosen_by_layers = _by_layers(traces, turns, further)
    if chosen_by_layers is not None:
        return chosen_by_layers
    try:
        program = capture_differential(
            traces, rows, [turn for turn in turns.found if turn.relation is not None]
        )
    except CaptureFault as fault:
        if isinstance(fault, Parted):
            if fault.base == fault.other:
                raise
            if traces.compared(_in_layers, fault.base, fault.other):
                try:
                    return capture_choices(traces, further, turns.found)
                except CaptureFault:
                    pass  # what chooses is not a limit of a dim: perhaps the model as a whole has but a few ways
        boundary = _telling(traces, turns, rows, fault)
        if boundary is None:
            raise
        program = _split(traces, rows, boundary, budget, side)
    return replace(program, within=(*program.within, *ends(traces.agreed, turns.beyond)))


def split_at(
    traces: Traces, further: Sequence[Sizes], fault: CaptureFault, budget: list[int], side: Capture
) -> Program | None:
    """Both sides of the boundary that explains best why something can't be captured as one; None if there is none."""
    turns = explored(traces, further)
    rows = [*turns.rows, *(row for row in further if row not in turns.rows)]
    boundary = _telling(traces, turns, rows, fault)
    return None if boundary is None else _split(traces, rows, boundary, budget, side)


Boundary = tuple[Relation, SourceLine | None]


def ends(agreed: Agreed, beyond: Sequence[Turn]) -> list[Limit]:
    """Decisions whose other side is too large to be run here end the program."""
    why = "the model goes another way beyond, at sizes too large to be run here"
    made = []
    for turn in beyond:
        if turn.relation is not None:
            kept = turn.relation if turn.holds(agreed.generic) else turn.relation.negated()
            made.append(Limit(kept, why, turn.where))
    return made


def _split(
    traces: Traces, rows: Sequence[Sizes], boundary: Boundary, budget: list[int], side: Capture
) -> Program:
    """Both sides of a boundary; when the ``budget`` is spent, the side of the example."""
    condition, where = boundary
    here = condition if condition.holds(traces.agreed.generic) else condition.negated()
    budget[0] -= 1
    if budget[0] <= 0:
        why = f"the model takes more than {MOST_REGIONS} ways, depending on its sizes"
        if not _leaves_room(traces.agreed, here):
            raise CaptureFault(
                f"{why}: those at {here} are not the last",
                where=where,
                hint="Declare a smaller range for the dim that chooses them.",
            )
        program = side(*_side(traces, here, rows), budget)
        return replace(program, within=(*program.within, Limit(here, why, where)))
    near = side(*_side(traces, here, rows), budget)
    far = side(*_side(traces, here.negated(), rows), budget)
    if [len(shape) for shape in near.outputs] != [len(shape) for shape in far.outputs]:
        raise CaptureFault(
            f"the model returns other tensors where {here}: {len(near.outputs)} with "
            f"{_ranks(near)} axes, beyond {len(far.outputs)} with {_ranks(far)}",
            where=where,
            hint="Return tensors of one number and rank at every size.",
        )
    plain = here.op == "==" or (here.op == "<=" and here.left.constant is None)
    body = (
        Split(here, where, near.body, far.body)
        if plain  # as a person would say it: n <= 8, and not 9 <= n
        else Split(here.negated(), where, far.body, near.body)
    )
    within = (*near.within, *far.within)
    return Program(body, "regions", outputs=common_shapes(near.outputs, far.outputs), within=within)


def _leaves_room(agreed: Agreed, limit: Relation) -> bool:
    """Whether a limit lies far out: a way for every few sizes is a loop that was not understood, not a contract."""
    return all(
        sum(limit.holds({**agreed.generic, name: size}) for size in range(1, ROOM + 1)) == ROOM
        for name in limit.names
    )


def _telling(traces: Traces, turns: Turns, rows: Sequence[Sizes], fault: CaptureFault) -> Boundary | None:
    """The boundary that explains best why the rows can't be captured as one; None if there is none."""
    runs = [row for row in rows if traces.runs(row)]
    apart = [turn for turn in turns.found if len({turn.holds(row) for row in runs}) > 1]
    known = [turn for turn in apart if turn.relation is not None][:MOST_ASKED]
    if isinstance(fault, Asked):
        known = [turn for turn in known if _tells(turn, fault)]
        scores = [0 for _ in known]
    elif isinstance(fault, Parted):
        known = [turn for turn in known if turn.holds(fault.base) != turn.holds(fault.other)]
        alike = [traces.compared(parting, fault.base, row) is None for row in runs]
        scores = [
            sum(
                (turn.holds(row) == turn.holds(fault.base)) == same
                for row, same in zip(runs, alike, strict=True)
            )
            for turn in known
        ]
    else:
        known = known[:MOST_FITTED]
        scores = [_explained(turn, fault) for turn in known]
    if known:
        turn = known[scores.index(max(scores))]
        return turn.relation, turn.where  # type: ignore[return-value]
    if isinstance(fault, Parted):
        condition = _boundary(traces, fault)
        return None if condition is None else (condition, fault.where)
    return _picked(traces, runs, fault) if isinstance(fault, NoExpression) else None


def _tells(turn: Turn, fault: Asked) -> bool:
    """Whether a look at values is there on one side of a decision only."""
    asking, others = ({turn.holds(row) for row in rows} for rows in (fault.rows, fault.others))
    return len(asking) == 1 and bool(others - asking)


def _picked(traces: Traces, runs: Sequence[Sizes], fault: NoExpression) -> Boundary | None:
    """A number that was looked up by one that Python computed, ``table[n % 3]``: a boundary around one entry."""
    rows = [row for row in fault.rows if all(name in row for name in traces.agreed.generic)]
    if len(rows) < len(fault.column) or len(set(fault.column)) > MOST_REGIONS:
        return None
    for index in computed_sizes([traces.at(row) for row in runs], runs):
        column = [index.evaluate(row) for row in rows]
        entries = set(zip(column, fault.column, strict=True))
        if len(set(column)) == len(entries) and 2 * len(entries) <= len(set(map(repr, rows))):
            return Relation(index, "==", Expr.of(index.evaluate(traces.agreed.generic))), fault.where
    return None


def _explained(turn: Turn, fault: CaptureFault) -> int:
    """On how many sides of a decision a number that moves is an expression of the dims."""
    if not isinstance(fault, NoExpression) or not fault.rows:
        return 0
    count = 0
    for side in (True, False):
        places = [k for k, row in enumerate(fault.rows) if turn.holds(row) is side]
        column = [fault.column[k] for k in places]
        rows = [fault.rows[k] for k in places]
        if len(set(column)) == 1 or (column and _fits(rows, column)):
            count += 1
    return count


def _fits(rows: Sequence[Sizes], column: Sequence[int | float]) -> bool:
    # What was read out of tensors stands among the sizes, and need not be a whole number, or any.
    names = [name for name in rows[0] if all(isinstance(row[name], int) for row in rows)]
    rows = [{name: row[name] for name in names} for row in rows]
    if all(isinstance(item, int) for item in column):
        return fit(rows, [int(item) for item in column]) is not None
    if not all(map(math.isfinite, column)):
        return False
    return fit_real(rows, [float(item) for item in column]) is not None


def _by_layers(traces: Traces, turns: Turns, further: Sequence[Sizes]) -> Program | None:
    """The program in which each layer chooses, where a decision is known to part and join the tapes layer by layer."""
    base = traces.agreed.generic
    for turn in turns.found:
        other = next((row for row in turns.rows if turn.holds(row) != turn.holds(base)), None)
        if other is not None and traces.runs(base) and traces.compared(_in_layers, base, other):
            try:
                return capture_choices(traces, further, turns.found)
            except CaptureFault:
                return None  # what chooses is not a limit of a dim: perhaps the model as a whole has but a few ways
    return None


def _in_layers(one: Tape, two: Tape) -> bool:
    """Whether the tapes part and meet again several times at one line: then the ways through the model multiply."""
    try:
        tape, _ = rolled_up([one, two], choices=True)
    except Apart:
        return False
    lines = [step.where for step in tape.steps if step.target is chosen]
    return len(lines) > len(set(lines))


def _ranks(program: Program) -> str:
    return ", ".join(str(len(shape)) for shape in program.outputs)


Shapes = tuple[tuple[Expr | None, ...], ...]


def common_shapes(one: Shapes, two: Shapes) -> Shapes:
    """Sizes of outputs where both sides agree on them."""
    return tuple(
        # Where the sides differ, the one that is not a number may hold for both; the runs will tell.
        tuple(b if a is not None and a.constant is not None else a for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, two, strict=True)
    )


def _side(traces: Traces, condition: Relation, further: Sequence[Sizes]) -> tuple[Traces, list[Sizes]]:
    """The traces of one side of a boundary, with generic sizes of its own."""
    agreed = traces.agreed
    contract = replace(agreed.contract, relations=(*agreed.contract.relations, condition))
    base = agreed.generic
    if not contract.allows(base):
        there = [row for row in further if contract.allows(row)]
        near = [dict(base), *sorted(there, key=lambda row: sum(row.values()))[:MOST_NEAR]]
        made = [
            row
            for typical in near
            for row in generic(Space(contract.ranges, contract.relations, typical=typical), (), 2)
        ]
        rows = [row for row in (*made, *there) if contract.allows(row)]
        ranked = sorted(rows, key=lambda row: (min(row.values()) < 2, _alike_sizes(row), sum(row.values())))
        if not ranked:
            raise CaptureFault(f"no sizes were found at which {condition}")
        base = ranked[0]
    side = traces.beside(replace(agreed, contract=contract, generic=dict(base)))
    return side, [row for row in further if contract.allows(row)]


def _alike_sizes(row: Sizes) -> int:
    """How many dims share their size with another: coincidences that a graph must not take for laws."""
    return len(row) - len(set(row.values()))


def _boundary(traces: Traces, parted: Parted) -> Relation | None:
    """The condition that tells the sizes of the one tape from those of the other."""
    base, other = dict(parted.base), dict(parted.other)

    def alike(sizes: Sizes) -> bool | None:
        if not traces.agreed.contract.allows(sizes):
            return None
        try:
            return traces.compared(parting, base, sizes) is None
        except CaptureFault:
            return None

    name = _deciding(base, other, alike)
    if name is None:
        return None
    here = {**other, name: base[name]} if alike({**other, name: base[name]}) else base
    near, far = here[name], other[name]
    remainder = _remainder(name, {**here}, near, alike)
    if remainder is not None:
        return remainder
    while abs(far - near) > 1:
        middle = (near + far) // 2
        verdict = alike({**here, name: middle})
        if verdict is None:
            return None
        near, far = (middle, far) if verdict else (near, middle)
    if far == 1 and alike({**here, name: 0}):
        return Relation(Expr.of(name), "==", Expr.of(1))
    return Relation(Expr.of(name), "<=", Expr.of(min(near, far)))


def _deciding(base: Sizes, other: Sizes, alike: Alike) -> str | None:
    """The dim that makes the difference: the base with just its size taken from the other row parts already."""
    moved = [name for name in base if base[name] != other[name]]
    for name in moved:
        if alike({**base, name: other[name]}) is False:
            return name
    for name in moved:
        if alike({**other, name: base[name]}) is True:
            return name
    return None


def _remainder(name: str, here: Sizes, near: int, alike: Alike) -> Relation | None:
    """A difference that comes and goes as the dim grows by one: ``seq % 2 == 0``."""
    seen = {
        size: alike({**here, name: size}) for size in range(max(2, near), max(2, near) + 2 * LARGEST_DIVISOR)
    }
    known = {size: verdict for size, verdict in seen.items() if verdict is not None}
    flips = sum(known[a] != known[b] for a, b in zip(list(known), list(known)[1:], strict=False))
    if flips < 3:
        return None
    for divisor in range(2, LARGEST_DIVISOR + 1):
        for rest in range(divisor):
            for wanted in (True, False):
                if all((size % divisor == rest) == (verdict is wanted) for size, verdict in known.items()):
                    return Relation(Expr.of(name) % divisor, "==", Expr.of(rest))
    return None
