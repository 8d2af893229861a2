"""Rung 2: runs at several generic sizes, lined up; each number that moved is an expression of the dims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.program import Program
from anyshape.capture.reads import check_reads
from anyshape.capture.tape import (
    Apart,
    Fitter,
    NoExpression,
    Step,
    Tape,
    by_numbers,
    chosen,
    expanded,
    functional,
    merged,
    record,
    rolled,
    rolled_up,
)
from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Contract, Rung
from anyshape.dims import Expr, Relation, Space, generic, names
from anyshape.errors import CaptureFault, SourceLine
from anyshape.inputs.case import Case, OutOfMemory, Refusal, answered
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.source.lines import line_of_exception

__all__ = ["Parted", "Traces", "capture_differential", "first_rows", "merged_at", "parting"]

Sizes = Mapping[str, int]


def capture_differential(traces: Traces, further: Sequence[Sizes] = ()) -> Program:
    """The program of several traces at concrete sizes; `CaptureFault` if they can't be explained as one.

    ``further`` are sizes that must be explained too: those at which an earlier program was wrong.
    """
    rows = [*first_rows(traces.agreed), *map(dict, further)]
    for widening in WIDENINGS:
        try:
            return merged_at(traces, rows)
        except NoExpression as fault:
            before = len(rows)
            for row in _wider(traces, list(rows), fault.column, widening):
                if row not in rows:
                    rows.append(row)
            if len(rows) == before:
                raise
    return merged_at(traces, rows)


# Steps from the base, where the first rows do not determine a number.
WIDENINGS = ((2, 3, 5, 8), (11, 16, 24, 40))


def _wider(
    traces: Traces, rows: Sequence[Sizes], column: Sequence[Any], steps: Sequence[int]
) -> Iterator[dict[str, int]]:
    """More rows that move, alone, each dim which was seen to move a number."""
    base, contract = rows[0], traces.agreed.contract
    if column[0] != column[-1]:
        return  # it moves with the values: more sizes would not tell
    alone = {name: [k for k, row in enumerate(rows) if _differ_in(base, row) == [name]] for name in base}
    moving = [name for name, places in alone.items() if any(column[k] != column[0] for k in places)]
    for name in moving or base:
        for step in steps:
            row = _changed(contract, dict(base), {name: base[name] + step})
            if row is not None:
                yield row


def _differ_in(one: Sizes, two: Sizes) -> list[str]:
    return [name for name in one if one[name] != two[name]]


def merged_at(traces: Traces, rows: Sequence[Sizes], boundaries: Sequence[Relation] = ()) -> Program:
    """The program of the traces at these sizes; with ``boundaries``, steps may be others on either side of them."""
    contract = traces.agreed.contract
    rows = [rows[0], *(row for row in rows[1:] if traces.runs(row))]
    tapes = [traces.at(row) for row in rows]
    # Other values at the same sizes: what moves between these two is data, not size.
    rows = [*rows, rows[0]]
    tapes.append(traces.at(rows[0], seed=1))
    names = tuple(dim.name for dim in contract.dims)
    fitter = Fitter([dict(row) for row in rows], names, boundaries=tuple(boundaries))
    tensors = traces.tensors(rows[0])
    check_reads(traces.case, tapes, fitter, tensors, lambda other: traces.record(rows[0], other))
    shapes = [tuple(_known(size) for size in item.shape) for item in contract.inputs]
    try:
        tape = _one_of(rolled_up(tapes, choices=bool(boundaries)), fitter, shapes)
    except Apart as apart:
        raise _parted(traces, rows, tapes) from apart
    outputs = tuple(tuple(_spoken(size) for size in value.shape) for value in tape.outputs)
    return Program(tape, _rung(tape), outputs=outputs)


def _one_of(tapes: Sequence[Tape], fitter: Fitter, shapes: Sequence[tuple[Any, ...]]) -> Tape:
    """One tape for all. A number that is one of a few, on either side of a boundary, makes its step a choice."""
    while True:
        try:
            return merged(tapes, fitter, shapes)
        except NoExpression as fault:
            apart = _chosen_by_numbers(tapes, fault.step) if fitter.boundaries else None
            if apart is None:
                raise
            tapes = apart


def _chosen_by_numbers(tapes: Sequence[Tape], step: Step) -> list[Tape] | None:
    """The step, and all others of its line that move, as choices."""
    made = list(tapes)
    changed = False
    for number, other in enumerate(tapes[0].steps):
        if other is step or (other.target is step.target and other.where == step.where is not None):
            apart = by_numbers(made, number) if other.target is not chosen else None
            if apart is not None:
                made, changed = apart, True
            elif other is step:
                return None
    return made if changed else None


def _rung(tape: Tape) -> Rung:
    targets = {step.target for step in tape.steps}
    return "regions" if chosen in targets else "rolled loop" if rolled in targets else "differential"


def _in_range(contract: Contract, trial: dict[str, int], wanted: Mapping[str, int]) -> bool:
    """Whether a row with one size changed is legal; where more are to change, whether the ranges allow it so far."""
    if len(wanted) == 1:
        return contract.allows(trial)
    return all(dim.range.contains(trial[dim.name]) for dim in contract.dims)


def _known(size: Expr | None) -> Any:
    assert size is not None
    return size if size.constant is None else size.constant


def _spoken(size: Any) -> Expr | None:
    """A size in the contract's words: None if it depends on values."""
    made = Expr.of(size)
    return None if any(names.is_reserved(name) for name in made.names) else made


def first_rows(agreed: Agreed) -> Iterator[dict[str, int]]:
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
TOGETHER: tuple[Callable[[int], int], ...] = (
    lambda size: size * 4 // 3 + 2,
    lambda size: max(2, size * 3 // 4 - 1),
)
NEAR = 12  # how far to look for a legal size


def _changed(contract: Contract, base: dict[str, int], wanted: dict[str, int]) -> dict[str, int] | None:
    """The base with some sizes near the wanted ones: legal, and unlike all others of the row. None if there is none."""
    row = dict(base)
    for name, size in wanted.items():
        others = {other for key, other in row.items() if key != name}
        for near in (size + step for away in range(NEAR) for step in {away, -away}):
            trial = {**row, name: near}
            if near > 1 and near not in others and near != base[name] and _in_range(contract, trial, wanted):
                row = trial
                break
        else:
            if len(wanted) == 1:
                return None
    if contract.allows(row):
        return row if row != base else None
    space = Space(contract.ranges, contract.relations, typical=row)
    legal = generic(space, set(base.values()), 1)
    return legal[0] if legal else None


class Traces:
    """The tapes of a case, each traced once: functional, and of operators that have a translation."""

    def __init__(self, case: Case, agreed: Agreed, own: Collection[Any]) -> None:
        self.case, self.agreed, self.own = case, agreed, own
        self.known: dict[tuple[Any, ...], Tape] = {}

    def at(self, sizes: Sizes, seed: int = 0) -> Tape:
        """The tape at ``sizes``."""
        key = (*sorted(sizes.items()), seed)
        if key not in self.known:
            self.known[key] = self._trace(dict(sizes), seed)
        return self.known[key]

    def runs(self, sizes: Sizes) -> bool:
        """Whether the model takes these sizes: with values made by rules it may refuse some that it takes otherwise."""
        try:
            self.at(sizes)
        except CaptureFault:
            return False
        return True

    def _trace(self, sizes: dict[str, int], seed: int) -> Tape:
        return self.of_run(sizes, self.tensors(sizes, seed))

    def of_run(self, sizes: Sizes, tensors: Sequence[torch.Tensor]) -> Tape:
        """The tape of one run: without writes, of operators that have a translation."""
        return expanded(functional(self.record(sizes, tensors)).used_only(), self.own).used_only()

    def tensors(self, sizes: Sizes, seed: int = 0) -> list[torch.Tensor]:
        """Legal inputs of these sizes; another seed gives other values."""
        agreed, given = self.agreed, dict(sizes)
        return make_tensors(
            self.case, agreed.rules, agreed.contract.shapes(given), given, seed, anew=seed > 0
        )

    def record(self, sizes: Sizes, tensors: Sequence[torch.Tensor]) -> Tape:
        """The tape of one run, as it was run."""
        case = self.case
        own = (*case.module.named_parameters(), *case.module.named_buffers())
        names = {id(tensor): name for name, tensor in own}
        made = answered(lambda: record(_flat(case), [tensor.clone() for tensor in tensors], names))
        if isinstance(made, (Refusal, OutOfMemory)):
            raise CaptureFault(
                f"the model can't be traced at {_text(sizes)}: {made.text}",
                where=line_of_exception(made.error),
                hint="Call the model at these sizes to see why.",
            ) from made.error
        return made


def _flat(case: Case) -> Callable[..., Sequence[torch.Tensor]]:
    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [tensor for _, tensor in flatten(case.call(tensors))[0]]

    return call


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


class Parted(CaptureFault):
    """The model runs other operators at ``other`` than at ``base``."""

    def __init__(self, base: Sizes, other: Sizes, where: SourceLine | None) -> None:
        same = base == other
        super().__init__(
            f"the model runs other operators at {_text(other)} "
            + ("with other values" if same else f"than at {_text(base)}"),
            where=where,
            hint="A branch or a loop there depends on "
            + (
                "values, which have no place in a graph."
                if same
                else "a size, in a way that could not be followed."
            ),
        )
        self.base, self.other = base, other


def _parted(traces: Traces, rows: Sequence[Sizes], tapes: Sequence[Tape]) -> Parted:
    """The first row whose tape can't be lined up with the base's, and where they part."""
    for row, tape in zip(rows[1:], tapes[1:], strict=True):
        apart = parting(tapes[0], tape)
        if apart is not None:
            return Parted(rows[0], row, _line_of(apart))
    return Parted(rows[0], rows[1], None)


def parting(one: Tape, two: Tape) -> Apart | None:
    """Where two tapes part, if they do in more than numbers and lengths of loops."""
    try:
        rolled_up([one, two])
    except Apart as apart:
        return apart
    return None


def _line_of(apart: Apart) -> SourceLine | None:
    return next((step.where for step in apart.steps if step is not None and step.where is not None), None)
