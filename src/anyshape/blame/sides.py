"""Sides: what a torch.cond would do with the other truth, held against PyTorch too: perhaps no tried value takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from anyshape.blame.operators import Lowering, Search
from anyshape.capture.tape import Played, Step, play
from anyshape.capture.tape.steps import either, repeated
from anyshape.capture.tape.walk import steps_of
from anyshape.errors import VerifyFault
from anyshape.inputs.case import OutOfMemory, Refusal, answered
from anyshape.runtimes.onnx_runtime import RuntimeFailure
from anyshape.torch_bridge import process
from anyshape.verify.reference import Expected, Reference
from anyshape.verify.verdict import Row

__all__ = ["check_sides"]

MOST_ROWS = 3
APART = 1e-3  # of the largest number: roundings add up, and there is no reference in double precision


def check_sides(lowering: Lowering, reference: Reference, rows: Sequence[Row]) -> None:
    """`VerifyFault` where a side of a torch.cond is wrong in the file, on what it would be given at a few sizes."""
    if not any(step.target is either for step in steps_of(lowering.program.body)):
        return
    usable = [row for row in rows if row.outcome == "right" and min(row.sizes.values(), default=1) > 0]
    largest = sorted(usable, key=lambda row: reference.agreed.contract.elements(row.sizes))
    for row in (*usable[:1], *largest[-MOST_ROWS + 1 :]):
        expected = reference.at(row.sizes, row.variant)
        if not isinstance(expected, Expected):
            continue
        with process.quiet():
            wrong = _wrong_side(lowering, expected.tensors, row)
        if wrong is not None:
            at = ", ".join(f"{name} = {size}" for name, size in row.sizes.items())
            raise VerifyFault(
                f"a side of a torch.cond would be wrong in the file, on what it is given at {at}",
                where=wrong.where,
                hint="No tried value takes that side: call the model with one that does, to see its operators.",
            )


def _wrong_side(lowering: Lowering, tensors: Sequence[torch.Tensor], row: Row) -> Step | None:
    search = Search(lowering, row.sizes, tensors, ())
    wrong: list[Step] = []

    def look(played: Played) -> None:
        if played.step.target is either and not wrong:
            other = _other(played, look)
            if other is not None and _is_wrong(search, other):
                wrong.append(played.step)

    answered(lambda: play(lowering.program.body, tensors, row.sizes, look))
    return wrong[0] if wrong else None


def _other(played: Played, look: object) -> Played | None:
    """The choice as it would be played were its condition the other one.

    None where PyTorch refuses that, or might never come back: a while_loop ends with values that are meant for it.
    """
    step = played.step
    test, given = step.args
    known = dict(zip(step.inputs, played.inputs, strict=True))
    truth = not bool(known[test])
    known[test] = torch.full_like(known[test], truth)
    inside = [known[value] for value in given]
    side = step.body[0 if truth else 1]
    if any(inner.target is repeated and len(inner.body) > 1 for inner in steps_of(side)):
        return None
    made = answered(lambda: play(side, inside, played.sizes, look))  # type: ignore[arg-type]
    if isinstance(made, (Refusal, OutOfMemory)):
        return None
    inputs = tuple(known[value] for value in step.inputs)
    return replace(played, inputs=inputs, args=(known[test], inside), outputs=tuple(made))


def _is_wrong(search: Search, played: Played) -> bool:
    try:
        made = search.results(played)
    except RuntimeFailure:
        return True
    return made is not None and any(
        one is not two and _far(one, two) for one, two in zip(made, played.outputs, strict=True)
    )


def _far(made: torch.Tensor, wanted: torch.Tensor) -> bool:
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return True
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return not torch.equal(made, wanted)
    if not bool((made.isfinite() == wanted.isfinite()).all()):
        return True
    known = wanted.isfinite()
    largest = wanted[known].abs().amax() if bool(known.any()) else 0.0
    return bool(((made - wanted)[known].abs() > APART * largest + 1e-6).any())
