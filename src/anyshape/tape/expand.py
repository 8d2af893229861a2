"""Expand: operators without an ONNX translation become the operators they are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape import torch_bridge
from anyshape.errors import SourceLine
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
    function = torch_bridge.decomposition(step.target)
    if function is None:
        return None
    values = _tensors_of(step)
    key = (
        step.target,
        tuple((value.shape, value.dtype, value.strides) for value in values),
        repr(map_leaves(lambda leaf: "value" if isinstance(leaf, Value) else leaf, (step.args, step.kwargs))),
    )
    if key not in _KNOWN:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _traced_parts(step, function, values)
    known = _KNOWN[key]
    return None if known is None else _copied(known, step.where)


MOST_KNOWN = 4096
_KNOWN: dict[Any, Tape | None] = {}  # a decomposition depends on nothing but the key, and takes long


def _traced_parts(step: Step, function: Callable[..., Any], values: Sequence[Value]) -> Tape | None:
    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        args, kwargs = map_leaves(
            lambda leaf: next(rest) if isinstance(leaf, Value) else leaf, (step.args, step.kwargs)
        )
        return function(*args, **kwargs)

    try:
        return functional(tape_of(torch_bridge.traced_without_data(call, values), {}))
    except Exception:
        return None  # it reads values, or the decomposition is not for these arguments: the operator stays whole


def _copied(tape: Tape, where: SourceLine | None) -> Tape:
    """The tape with values of its own, as run by the line ``where``."""
    new: dict[Any, Any] = {value: replace(value) for value in (*tape.inputs, *tape.constants)}
    steps = []
    for step in tape.steps:
        new.update((value, replace(value)) for value in step.outputs if value is not None)
        outputs = tuple(new.get(value) for value in step.outputs)
        mapped = step.mapped(lambda leaf: new.get(leaf, leaf) if isinstance(leaf, Value) else leaf)
        steps.append(replace(mapped, outputs=outputs, where=where))
    return Tape(
        [new[value] for value in tape.inputs],
        {new[value]: tensor for value, tensor in tape.constants.items()},
        steps,
        [new.get(value) for value in tape.outputs],  # type: ignore[misc]
    )
