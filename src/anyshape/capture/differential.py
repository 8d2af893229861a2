"""Rung 2: runs at several generic sizes, lined up; each number that moved is an expression of the dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from anyshape import torch_bridge
from anyshape.agree import Agreed
from anyshape.capture.program import Program
from anyshape.contract import Contract
from anyshape.dims import Expr, Space, generic
from anyshape.errors import CaptureFault
from anyshape.lower.translations import TRANSLATIONS
from anyshape.read import Case
from anyshape.source import first_line, line_of_exception
from anyshape.tape import Apart, Explainer, Tape, expanded, explained, functional, record, rolled_up
from anyshape.tree import flatten
from anyshape.values import make_tensors

__all__ = ["capture_differential", "traced"]


def capture_differential(case: Case, agreed: Agreed) -> Program:
    """The program of several traces at concrete sizes; `CaptureFault` if they can't be explained as one."""
    contract = agreed.contract
    rows = list(_rows(agreed))
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


def _rows(agreed: Agreed) -> Iterator[dict[str, int]]:
    """The sizes to trace at: the generic ones, each dim changed alone, and a few with every dim changed.

    Steps of one tell a remainder, steps in proportion a division by a large number; no two dims are alike in a row.
    """
    contract, base = agreed.contract, dict(agreed.generic)
    yield base
    seen = [base]
    for change in ALONE:
        for name, size in base.items():
            row = _changed(contract, base, {name: change(size)})
            if row is not None and row not in seen:
                seen.append(row)
                yield row
    for change in TOGETHER:
        row = _changed(contract, base, {name: change(size) for name, size in base.items()})
        if row is not None and row not in seen:
            seen.append(row)
            yield row


ALONE: tuple[Callable[[int], int], ...] = (lambda size: size + 1, lambda size: size * 5 // 3 + 3)
TOGETHER: tuple[Callable[[int], int], ...] = (lambda size: size * 4 // 3 + 2, lambda size: max(2, size * 3 // 4 - 1))
NEAR = 12  # how far to look for a legal size


def _changed(contract: Contract, base: dict[str, int], wanted: dict[str, int]) -> dict[str, int] | None:
    """The base with some sizes near the wanted ones: legal, and unlike all others of the row. None if there is none."""
    row = dict(base)
    for name, size in wanted.items():
        others = {other for key, other in row.items() if key != name}
        for step in range(NEAR):
            if size + step not in others and size + step != base[name]:
                trial = {**row, name: size + step}
                if len(wanted) > 1 or contract.allows(trial):
                    row = trial
                    break
        else:
            return None
    if contract.allows(row):
        return row
    space = Space(contract.ranges, contract.relations, typical=row)
    legal = generic(space, set(base.values()), 1)
    return legal[0] if legal else None


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
