"""Rung 2: runs at several generic sizes, lined up; each number that moved is an expression of the dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from anyshape import torch_bridge
from anyshape.agree import Agreed
from anyshape.capture.program import Program
from anyshape.dims import Expr, Space, generic
from anyshape.errors import CaptureFault
from anyshape.lower.translations import TRANSLATIONS
from anyshape.read import Case
from anyshape.source import first_line, line_of_exception
from anyshape.tape import Apart, Explainer, Tape, expanded, explained, functional, record, rolled_up
from anyshape.tree import flatten
from anyshape.values import make_tensors

__all__ = ["capture_differential", "traced"]

VARIATIONS = 2  # further sizes for each dim alone
SPARES = 2  # rows in which every dim is another


def capture_differential(case: Case, agreed: Agreed) -> Program:
    """The program of several traces at concrete sizes; `CaptureFault` if they can't be explained as one."""
    contract = agreed.contract
    rows = list(_rows(case, agreed))
    tapes = [traced(case, agreed, row) for row in rows]
    rows.append(rows[0])
    tapes.append(traced(case, agreed, rows[0], seed=1))  # other values at the same sizes: what moves is data
    explainer = Explainer([dict(row) for row in rows], tuple(dim.name for dim in contract.dims))
    shapes = [tuple(_known(size) for size in item.shape) for item in contract.inputs]
    try:
        tape = explained(rolled_up(tapes), explainer, shapes)
    except Apart as apart:
        raise _parted(apart, rows) from apart
    outputs = tuple(tuple(_spoken(size) for size in value.shape) for value in tape.outputs)
    return Program(tape, "differential", outputs=outputs)


def _known(size: Expr | None) -> Any:
    assert size is not None
    return size if size.constant is None else size.constant


def _spoken(size: Any) -> Expr | None:
    """A size in the contract's words: None if it depends on values."""
    made = Expr.of(size)
    return None if any(name.startswith("_") for name in made.names) else made


def _rows(case: Case, agreed: Agreed) -> Iterator[dict[str, int]]:
    """The sizes to trace at: the generic ones, each dim changed alone, and a few with every dim changed."""
    contract, base = agreed.contract, dict(agreed.generic)
    space = Space(contract.ranges, contract.relations, typical=base)
    avoid = {size for tensor in _own_tensors(case) for size in tensor.shape} | set(base.values())
    others = generic(space, avoid, VARIATIONS + SPARES)
    yield base
    seen = [base]
    for other in others[:VARIATIONS]:
        for name in base:
            row = {**base, name: other[name]}
            if row not in seen and contract.allows(row):
                seen.append(row)
                yield row
    for other in others[VARIATIONS:] or others:
        if other not in seen:
            seen.append(other)
            yield other


def _own_tensors(case: Case) -> Iterator[torch.Tensor]:
    yield from case.module.parameters()
    yield from case.module.buffers()


def traced(case: Case, agreed: Agreed, sizes: dict[str, int], seed: int = 0) -> Tape:
    """The tape of one run at ``sizes``: functional, and of operators that have a translation."""
    tensors = make_tensors(case, agreed.rules, agreed.contract.shapes(sizes), sizes, seed, anew=seed > 0)
    names = {id(tensor): name for name, tensor in (*case.module.named_parameters(), *case.module.named_buffers())}
    try:
        tape = record(_flat(case), tensors, names)
    except Exception as error:
        raise CaptureFault(
            f"the model can't be traced at {_text(sizes)}: {first_line(error)}",
            where=line_of_exception(error),
            hint="Call the model at these sizes to see why.",
        ) from error
    return expanded(functional(tape).used_only(), TRANSLATIONS).used_only()


def _flat(case: Case) -> Callable[..., Sequence[torch.Tensor]]:
    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [tensor for _, tensor in flatten(case.call(tensors))[0]]

    return call


def _text(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def _parted(apart: Apart, rows: Sequence[dict[str, int]]) -> CaptureFault:
    steps = [step for step in apart.steps if step is not None]
    other = next((k for k, step in enumerate(apart.steps) if step is None or step.target is not steps[0].target), 0)
    return CaptureFault(
        f"the model runs other operators at {_text(rows[other])} than at {_text(rows[0])}",
        where=steps[0].where if steps else None,
        hint="A branch or a loop there depends on a size or on values.",
    )
