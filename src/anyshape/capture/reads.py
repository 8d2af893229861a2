"""Where Python looks at values: accepted only if what it saw follows from sizes, or if the way it took is right for
values that it would see otherwise.

Models skip work that values make needless (a mask of ones), or check them. The tape has one way: the other answer is
provoked with other values, and the tape has to give the model's own result there too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from anyshape.capture.tape import Fitter, Tape, play
from anyshape.compare import same
from anyshape.errors import CaptureFault, SourceLine
from anyshape.inputs.case import Case, OutOfMemory, Outputs, Refusal, answered

__all__ = ["check_reads"]

Trace = Callable[[Sequence[torch.Tensor]], Tape]


def check_reads(
    case: Case, tapes: Sequence[Tape], fitter: Fitter, tensors: Sequence[torch.Tensor], trace: Trace
) -> None:
    """`CaptureFault` where the tapes rely on values. ``tensors`` are the first tape's, ``trace`` records others."""
    counts = {len(tape.reads) for tape in tapes}
    open_lines: dict[SourceLine | None, Any] = {}
    for reads in zip(*(tape.reads for tape in tapes), strict=False):
        seen = [read.seen for read in reads]
        moves = all(type(item) is int for item in seen) and len(set(seen)) > 1
        if len(counts) > 1 or not moves or fitter.size(seen) is None:
            open_lines.setdefault(reads[0].where, reads[0].seen)
    if open_lines:
        for line in _settled(case, tapes[0], tensors, trace, set(open_lines)):
            open_lines.pop(line, None)
    for where, seen in open_lines.items():
        raise CaptureFault(
            f"Python looks at the values of a tensor ({_short(seen)}): a graph can't follow what it does",
            where=where,
            hint="Compute it with tensors (torch.where instead of if), or move the check out of the model.",
        )


def _settled(
    case: Case, tape: Tape, tensors: Sequence[torch.Tensor], trace: Trace, lines: set[SourceLine | None]
) -> set[SourceLine | None]:
    """The lines that were made to see something else. None of them, if the tape was wrong at any of these values."""
    before = {read.where: read.seen for read in tape.reads if read.where in lines}
    settled = set()
    for other in _variants(tensors):
        expected = case.run(other)
        if not isinstance(expected, Outputs):
            continue  # values that the model refuses tell nothing
        try:
            again = trace(other)
        except CaptureFault:
            continue
        copies = [tensor.clone() for tensor in other]
        got = answered(functools.partial(play, tape, copies))
        if isinstance(got, (Refusal, OutOfMemory)):
            return set()
        if not all(same(one, two, 1e-3, 1e-4) for one, two in zip(expected.tensors, got, strict=True)):
            return set()
        now = {read.where: read.seen for read in again.reads}
        settled |= {line for line, seen in before.items() if repr(now.get(line)) != repr(seen)}
    return settled


def _variants(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The inputs with one of them all ones, all zeros, or the other way round."""
    for number, tensor in enumerate(tensors):
        changes = [torch.ones_like(tensor), torch.zeros_like(tensor)]
        changes.append(
            ~tensor
            if tensor.dtype == torch.bool
            else -tensor
            if tensor.is_floating_point()
            else tensor.flip(0)
        )
        for change in changes:
            yield [change if k == number else item.clone() for k, item in enumerate(tensors)]


def _short(seen: Any) -> str:
    text = " ".join(str(seen).split())
    return text if len(text) <= 40 else text[:37] + "..."
