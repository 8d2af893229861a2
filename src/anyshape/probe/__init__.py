"""probe: from one example, which sizes PyTorch accepts: what varies, what must agree, and how far it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anyshape.inputs.case import Case
from anyshape.probe.couplings import coupled
from anyshape.probe.evidence import Evidence, FoundDim, Objection, evidence_of
from anyshape.probe.limits import all_low, limits
from anyshape.probe.oracle import Oracle, Point
from anyshape.probe.relations import Direction, generic_point, is_generic, leave_limits, leave_ones, relations
from anyshape.probe.siblings import told_apart
from anyshape.probe.squares import with_squares
from anyshape.probe.tables import table_bounds
from anyshape.torch_bridge import control_flow, process

__all__ = ["Evidence", "FoundDim", "Objection", "probe"]

BUDGET = 20.0  # nominal seconds


def probe(
    case: Case, *, budget: float = BUDGET, progress: Callable[[str], None] = lambda text: None
) -> Evidence:
    """Which sizes PyTorch accepts, found by running it at many of them within a budget in nominal seconds."""
    with (
        process.quiet(),
        control_flow.run_by(control_flow.Plain()),
    ):  # once: each run enters both again, for free
        return _found(Oracle(case, budget, progress))


def _found(oracle: Oracle) -> Evidence:
    first, directions = with_squares(oracle, *_first_relations(oracle))
    base = first if is_generic(oracle, first, directions) else generic_point(oracle, first, directions)
    if base != first:
        again = relations(oracle, base)
        if _reaches(again, base, oracle.example) or not _reaches(directions, first, oracle.example):
            directions = again
        else:
            base = first
    directions = _without_broadcasts(oracle, base, directions)
    low = all_low(oracle, base, directions)
    found, bounds = coupled(oracle, low, directions, limits(oracle, low, directions))
    bounds += table_bounds(oracle, low, directions)
    return evidence_of(oracle, base, directions, found, bounds)


def _first_relations(oracle: Oracle) -> tuple[Point, list[Direction]]:
    """Directions from the example, or from near by where its own sizes hide some: ones, and the last of a table."""
    first = told_apart(oracle, leave_ones(oracle))
    directions = relations(oracle, first)
    lower = leave_limits(oracle, first, directions)
    if lower != first:
        again = relations(oracle, lower)
        if _reaches(again, lower, oracle.example):
            return lower, again
    return first, directions


def _reaches(directions: list[Direction], base: Point, example: Point) -> bool:
    """Whether the example lies where the directions lead from ``base``: a contract must hold its own example."""
    point: Point = base
    for direction in directions:
        moved = direction.moved(point, example[direction.root] - point[direction.root])
        if moved is not None:
            point = moved
    return all(point[axis] == size for axis, size in example.items() if size != 1)


def _without_broadcasts(oracle: Oracle, base: Point, directions: list[Direction]) -> list[Direction]:
    """Leave out directions of equal sizes that the example itself does not lie on: its 1 was meant to broadcast."""
    example = oracle.example
    kept = []
    for direction in directions:
        ones = [a for a in direction.rates if example[a] == 1]
        alike = [a for a in direction.rates if direction.rates[a] == 1]
        if ones and len({base[a] for a in alike}) == 1 < len({example[a] for a in alike}):
            rest = {a: rate for a, rate in direction.rates.items() if a not in ones}
            if direction.root in rest:
                kept.append(replace(direction, rates=rest))
            continue
        kept.append(direction)
    return kept
