"""Expand: operators without an ONNX translation become the operators they are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.tape.functional import functional
from anyshape.capture.tape.graph import tape_of
from anyshape.capture.tape.steps import (
    NUMBERS,
    Number,
    Step,
    Tape,
    Value,
    compared,
    leaves,
    map_leaves,
    with_inner,
)
from anyshape.errors import SourceLine
from anyshape.torch_bridge import schemas, torchlib, tracing

__all__ = ["expanded"]

DEEPEST = 8


Parts = Callable[[Step, Callable[..., Any], Sequence[Value]], Tape | None]


def expanded(tape: Tape, own: Collection[Any], parts: Parts | None = None) -> Tape:
    """The tape with each operator that neither ``own`` nor torch.onnx translates taken apart, where it can be.

    ``own`` has operators, and ``("complex", operator)`` where complex tensors are meant. ``parts`` traces a
    decomposition; by default at the sizes that the tape has, which are numbers.
    """
    made = replace(tape, steps=[], constants=dict(tape.constants))
    renamed: dict[Value, Value] = {}
    _expand_into(made, tape.steps, own, renamed, parts or _known_parts, DEEPEST)
    made.outputs = [renamed.get(value, value) for value in tape.outputs]
    return made


def _expand_into(
    made: Tape,
    steps: list[Step],
    own: Collection[Any],
    renamed: dict[Value, Value],
    parts_of: Parts,
    deepest: int,
) -> None:
    for item in steps:
        step = item.mapped(lambda leaf: renamed.get(leaf, leaf) if isinstance(leaf, Value) else leaf)
        step = with_inner(step, lambda tape: expanded(tape, own, parts_of).used_only())
        function = None if not deepest or _translated(step, own) else schemas.decomposition(step.target)
        parts = function and parts_of(step, function, step.inputs)
        if parts is None:
            made.steps.append(step)
            continue
        inner = dict(zip(parts.inputs, step.inputs, strict=True))
        for constant, tensor in parts.constants.items():
            made.constants[constant] = tensor
        _expand_into(
            made, _at(_numbers_again(parts.steps, step), step.where), own, inner, parts_of, deepest - 1
        )
        for old, new in zip(step.outputs, parts.outputs, strict=False):
            if new is not None:
                renamed[old] = inner.get(new, new)


def _translated(step: Step, own: Collection[Any]) -> bool:
    if (
        step.target in (*NUMBERS, compared)
        or (("complex", step.target) if step.is_complex else step.target) in own
    ):
        return True
    return torchlib.onnx_function(step.target, step.is_complex) is not None


def _at(steps: Sequence[Step], where: SourceLine | None) -> list[Step]:
    return [replace(step, where=where) for step in steps]


def _numbers_again(steps: Sequence[Step], like: Step) -> list[Step]:
    """The parts of a step with the numbers of values that it was given: PyTorch hands on plain ones."""
    given = {repr(leaf): leaf for leaf in leaves((like.args, dict(like.kwargs))) if isinstance(leaf, Number)}
    if not given:
        return list(steps)
    return [
        step.mapped(lambda leaf: given.get(repr(leaf), leaf) if type(leaf) is float else leaf)
        for step in steps
    ]


def _plain(leaf: Any) -> Any:
    return float(leaf) if isinstance(leaf, Number) else leaf


def _known_parts(step: Step, function: Callable[..., Any], values: Sequence[Value]) -> Tape | None:
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
    return None if known is None else _copied(known)


MOST_KNOWN = 4096
_KNOWN: dict[Any, Tape | None] = {}  # a decomposition depends on nothing but the key, and takes long


def _traced_parts(step: Step, function: Callable[..., Any], values: Sequence[Value]) -> Tape | None:
    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        args, kwargs = map_leaves(
            lambda leaf: next(rest) if isinstance(leaf, Value) else _plain(leaf), (step.args, step.kwargs)
        )
        return function(*args, **kwargs)

    try:
        return functional(tape_of(tracing.traced_without_data(call, values), {}))
    except Exception:  # it reads values, or is not for these arguments: the operator stays whole
        return None


def _copied(tape: Tape) -> Tape:
    """The tape with values of its own."""
    new: dict[Any, Any] = {value: replace(value) for value in (*tape.inputs, *tape.constants)}
    steps = []
    for step in tape.steps:
        new.update((value, replace(value)) for value in step.outputs if value is not None)
        outputs: Any = tuple(new.get(value) for value in step.outputs)
        mapped = step.mapped(lambda leaf: new.get(leaf, leaf) if isinstance(leaf, Value) else leaf)
        steps.append(replace(mapped, outputs=outputs))
    return Tape(
        [new[value] for value in tape.inputs],
        {new[value]: tensor for value, tensor in tape.constants.items()},
        steps,
        [new.get(value) for value in tape.outputs],  # type: ignore[misc]
    )
