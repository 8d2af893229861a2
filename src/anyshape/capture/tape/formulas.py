"""Formulas: a line that runs many times, in every layer or stage, follows one formula over the sizes that it is given.

What one stage alone does not determine (a pad of ``(-h) % 7`` seen at three heights), all stages together do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from anyshape.capture.tape.steps import Step, Value, leaves
from anyshape.dims import Expr, fit, names

__all__ = ["shared_formulas"]

MOST_AXES = 6


def shared_formulas(steps: Sequence[Sequence[Step]]) -> dict[Step, dict[int, Expr]]:
    """For steps of the same line, by place of the argument: its expression over ``_x0``, ``_x1``..., the axes of the
    step's first tensor. Only where the arguments move with those sizes, and one expression holds for all steps."""
    groups: dict[Any, list[Sequence[Step]]] = defaultdict(list)
    for column in steps:
        first = column[0]
        if (
            first.body is None
            and first.where is not None
            and first.inputs
            and 0 < len(first.inputs[0].shape) <= MOST_AXES
        ):
            key = (
                first.target,
                first.axes,
                first.where.file,
                first.where.line,
                len(first.inputs[0].shape),
                _form(first),
            )
            groups[key].append(column)
    found: dict[Step, dict[int, Expr]] = {}
    for columns in groups.values():
        if len(columns) > 1:
            formulas = _formulas(columns)
            if formulas:
                found.update((column[0], formulas) for column in columns)
    return found


def _form(step: Step) -> str:
    return repr([type(leaf).__name__ for leaf in leaves((step.args, step.kwargs))])


def _formulas(columns: Sequence[Sequence[Step]]) -> dict[int, Expr]:
    runs = [step for column in columns for step in column]
    rows = [{names.input_size(axis): size for axis, size in enumerate(step.inputs[0].shape)} for step in runs]
    numbers = [
        [leaf for leaf in leaves((step.args, step.kwargs)) if not isinstance(leaf, Value)] for step in runs
    ]
    made: dict[int, Expr] = {}
    for place, values in enumerate(zip(*numbers, strict=True)):
        if all(type(value) is int for value in values) and len(set(values)) > 1:
            formula = _fitted(rows, values)
            if formula is not None:
                made[place] = formula
    return made


def _fitted(rows: Sequence[dict[str, int]], values: Sequence[int]) -> Expr | None:
    """The expression over the distinct rows; None where the same sizes came with other numbers."""
    distinct = {tuple(row.items()): value for row, value in zip(rows, values, strict=True)}
    if any(distinct[tuple(row.items())] != value for row, value in zip(rows, values, strict=True)):
        return None
    return fit([dict(key) for key in distinct], list(distinct.values()))
