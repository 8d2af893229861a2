"""Rung 5: where the model takes another path for other values, both are captured, and the graph asks for the truth.

Python's question (``if mask.all()``) is answered both ways, whatever the values say; each way is captured as a model
of its own, and an ONNX `If` chooses by the truth that the graph computes itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyshape.capture.decisions import explored
from anyshape.capture.differential import first_rows, merged_tapes, moving_rows
from anyshape.capture.program import Program
from anyshape.capture.reads import Look, one_of_many, open_look, outline, right_either_way
from anyshape.capture.regions import MOST_REGIONS, capture_regions, common_shapes, split_at
from anyshape.capture.tape import Split, Tape
from anyshape.capture.traces import Traces
from anyshape.errors import CaptureFault

__all__ = ["MOST_WAYS", "capture_values"]

MOST_WAYS = 8

Sizes = Mapping[str, int]


def capture_values(traces: Traces, further: Sequence[Sizes] = ()) -> Program:
    """The program of all ways that values may choose; `CaptureFault` where a graph can't tell them apart."""
    return _captured(traces, further, [MOST_WAYS], {})


def _captured(
    traces: Traces,
    further: Sequence[Sizes],
    budget: list[int],
    known: Mapping[str, bool],
    regions: list[int] | None = None,
) -> Program:
    regions = regions if regions is not None else [MOST_REGIONS]

    def side(part: Traces, rows: Sequence[Sizes], left: list[int]) -> Program:
        return _captured(part, rows, budget, known, left)

    look = open_look(traces, traces.agreed.generic)
    if look is None:
        return capture_regions(traces, further, regions, side)  # Python may look at values on one side only
    asked = traces.until(traces.agreed.generic, look.key)
    if look.is_of_sizes and one_of_many(traces) and right_either_way(traces, traces.agreed.generic, look):
        return _captured(traces.answering({look.key: look.truth}), further, budget, known, regions)
    assert asked is not None  # the run that has the look
    question = repr(outline(asked))
    if question in known:  # asked before, of the same tensors
        return _captured(traces.answering({look.key: known[question]}), further, budget, known, regions)
    budget[0] -= 1
    if budget[0] <= 0:
        raise CaptureFault(
            f"the model takes more than {MOST_WAYS} ways, depending on the values of its tensors",
            where=look.where,
            hint="Compute it with tensors (torch.where instead of if).",
        )
    try:
        condition = _condition(traces, look)
    except CaptureFault as fault:
        # Asked of other tensors at other sizes: those part first.
        split = split_at(traces, further, fault, regions, side)
        if split is None:
            raise
        return split
    then, otherwise = (
        _captured(traces.answering({look.key: truth}), further, budget, {**known, question: truth}, regions)
        for truth in (True, False)
    )
    if [len(shape) for shape in then.outputs] != [len(shape) for shape in otherwise.outputs]:
        raise CaptureFault(
            "the model returns other tensors for other values: of another number or rank",
            where=look.where,
            hint="Return tensors of one number and rank whatever the values are.",
        )
    body = Split(condition, look.where, then.body, otherwise.body)
    outputs = common_shapes(then.outputs, otherwise.outputs)
    return replace(then, body=body, rung="regions", outputs=outputs, within=(*then.within, *otherwise.within))


def _condition(traces: Traces, look: Look) -> Tape:
    """The tape of the question, for all sizes: on both sides of each decision, too."""
    found: list[tuple[dict[str, int], Any]] = []
    base, turns = dict(traces.agreed.generic), explored(traces)
    rows = [*first_rows(traces.agreed), *turns.rows]
    rows += moving_rows(traces, rows)
    for row in (row for number, row in enumerate(rows) if row not in rows[:number]):
        if traces.runs(row):
            found.append((row, traces.until(row, look.key)))
    found.append((base, traces.until(base, look.key, seed=1) if traces.runs_with(base, 1) else None))
    found.append((base, traces.until_with_more(base, look.key)))
    rows = [row for row, tape in found if tape is not None]
    tapes = [tape for _, tape in found if tape is not None]
    return merged_tapes(
        traces, rows, tapes, turns=[turn for turn in turns.found if turn.relation is not None]
    )
