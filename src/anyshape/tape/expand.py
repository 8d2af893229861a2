"""Expand: operators without an ONNX translation become the operators they are made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch

from anyshape import torch_bridge
from anyshape.tape.functional import functional
from anyshape.tape.record import tape_of
from anyshape.tape.steps import Step, Tape, Value, leaves, map_leaves

__all__ = ["expanded"]

DEEPEST = 8


def expanded(tape: Tape, own: Collection[Any]) -> Tape:
    """The tape with each operator that neither ``own`` nor torch.onnx translates taken apart, where it can be."""
    made = replace(tape, steps=[], constants=dict(tape.constants))
    renamed: dict[Value, Value] = {}
    _expand_into(made, tape.steps, own, renamed, DEEPEST)
    made.outputs = [renamed.get(value, value) for value in tape.outputs]
    return made


def _expand_into(
    made: Tape, steps: list[Step], own: Collection[Any], renamed: dict[Value, Value], deepest: int
) -> None:
    for item in steps:
        step = item.mapped(lambda leaf: renamed.get(leaf, leaf) if isinstance(leaf, Value) else leaf)
        parts = None if not deepest or _translated(step, own) else _parts(step)
        if parts is None:
            made.steps.append(step)
            continue
        inner = dict(zip(parts.inputs, _tensors_of(step), strict=True))
        for constant, tensor in parts.constants.items():
            made.constants[constant] = tensor
        _expand_into(made, parts.steps, own, inner, deepest - 1)
        for old, new in zip(step.outputs, parts.outputs, strict=False):
            if new is not None:
                renamed[old] = inner.get(new, new)


def _translated(step: Step, own: Collection[Any]) -> bool:
    if step.target in own:
        return True
    return (
        torch_bridge.onnx_function(step.target, any(value.dtype.is_complex for value in step.inputs)) is not None
    )


def _tensors_of(step: Step) -> list[Value]:
    return [leaf for leaf in leaves((step.args, step.kwargs)) if isinstance(leaf, Value)]


def _parts(step: Step) -> Tape | None:
    """The tape of an operator's own decomposition at the step's sizes; None if it has none."""
    values = _tensors_of(step)
    function = torch_bridge.decomposition(step.target)
    if function is None:
        return None

    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        args, kwargs = map_leaves(
            lambda leaf: next(rest) if isinstance(leaf, Value) else leaf, (step.args, step.kwargs)
        )
        return function(*args, **kwargs)

    try:
        traced = torch_bridge.traced_without_data(call, values)
    except Exception:
        return None
    parts = tape_of(traced, {})
    located = [replace(part, where=step.where) for part in parts.steps]
    return functional(replace(parts, steps=located))
