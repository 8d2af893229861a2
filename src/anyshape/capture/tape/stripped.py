"""What PyTorch does to a value before it is written by an index: leading axes of one are taken off.

How many rows values choose is one now and then, and the tapes would part there; a value with its axes on is written the
same.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from anyshape.capture.tape.steps import Step, Tape, Value

__all__ = ["unstripped"]

aten = torch.ops.aten
WRITES = (aten.index_put_.default, aten.index_put.default)


def unstripped(tape: Tape) -> Tape:
    """The tape with what is written by an index as it was before its leading axes of one were taken off."""
    views = {step.outputs[0]: step for step in tape.steps if step.target is aten.view.default}
    steps = [_unstripped(step, views) if step.target in WRITES else step for step in tape.steps]
    return replace(tape, steps=steps)


def _unstripped(step: Step, views: dict[Value, Step]) -> Step:
    target, indices, value, *more = step.args
    view = views.get(value) if isinstance(value, Value) else None
    if view is None:
        return step
    source = view.args[0]
    count = len(source.shape) - len(value.shape)
    if count <= 0 or tuple(source.shape) != (*(1 for _ in range(count)), *value.shape):
        return step
    given = [index for index in indices if index is not None]
    rank = len(target.shape) - len(given) + max((len(index.shape) for index in given), default=0)
    return replace(step, args=(target, indices, source, *more)) if len(source.shape) <= rank else step
