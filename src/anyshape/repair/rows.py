"""Rows: whether the rows along an axis go through the model without touching each other, as those of a batch do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from anyshape.compare import same
from anyshape.inputs.values import make_tensors
from anyshape.repair.changes import Axis
from anyshape.repair.runs import Changes, Runs, Shapes

__all__ = ["are_apart", "stay_apart"]


def are_apart(runs: Runs, axes: tuple[Axis, ...]) -> bool:
    """Whether, at the example, a row of the inputs along these axes touches one row of each output, in any order."""
    places = dict(axes)
    tensors = runs.tensors(runs.case.shapes)
    others = make_tensors(runs.case, runs.evidence.rules, runs.case.shapes, runs.example, seed=1, anew=True)
    size = tensors[axes[0][0]].shape[axes[0][1]]
    before = runs.of((), tensors)
    if len(places) < len(axes) or size < 2 or isinstance(before, str):
        return False
    for row in (0, size - 1):
        changed = [
            tensor if number not in places else _with_row(tensor, other, places[number], row)
            for number, (tensor, other) in enumerate(zip(tensors, others, strict=True))
        ]
        after = runs.of((), changed)
        if isinstance(after, str) or not all(
            _differ_in_row(one, two, row, size)
            for one, two in zip(before.tensors, after.tensors, strict=True)
        ):
            return False
    turned = runs.of((), [t.flip(places[n]) if n in places else t for n, t in enumerate(tensors)])
    return not isinstance(turned, str) and all(
        any(same(one, two.flip(k)) for k in range(one.dim()))
        for one, two in zip(before.tensors, turned.tensors, strict=True)
    )


def _differ_in_row(one: torch.Tensor, two: torch.Tensor, row: int, size: int) -> bool:
    """Whether two results differ, but along some axis of that size in one row only."""
    if one.shape != two.shape or not (one != two).any():
        return False
    rest = [k for k in range(size) if k != row]
    axes = [axis for axis in range(one.dim()) if one.shape[axis] == size]
    return any(not (one != two).movedim(axis, 0)[rest].any() for axis in axes)


def _with_row(tensor: torch.Tensor, other: torch.Tensor, axis: int, row: int) -> torch.Tensor:
    made = tensor.clone()
    made.select(axis, row).copy_(other.select(axis, row))
    return made


def stay_apart(runs: Runs, axes: Sequence[Axis], trials: Mapping[int, Shapes], changes: Changes) -> bool:
    """Whether rows do not interact: each output for all rows is the outputs for some and for the others, joined."""
    places, checked = dict(axes), 0
    for size, shapes in trials.items():
        tensors = runs.tensors(shapes)
        head = size // 2
        parts = [tensors] + [
            [t.narrow(places[n], *cut) if n in places else t for n, t in enumerate(tensors)]
            for cut in ((0, head), (head, size - head))
        ]
        answers = [runs.of(changes, part) for part in parts]
        made = [answer.tensors for answer in answers if not isinstance(answer, str)]
        if len(made) == len(parts):
            checked += 1
            if not all(_joins(*three) for three in zip(*made, strict=True)):
                return False
    return checked > 0


def _joins(whole: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> bool:
    if not whole.dim() == start.dim() == end.dim():
        return False
    for axis in range(whole.dim()):
        others = [k for k in range(whole.dim()) if k != axis]
        fits = whole.shape[axis] == start.shape[axis] + end.shape[axis] and all(
            whole.shape[k] == start.shape[k] == end.shape[k] for k in others
        )
        if fits and same(whole, torch.cat([start, end], axis), absolute=1e-5):
            return True
    return False
