"""blame: from a verdict that is not right to a fault that names the smallest sizes, the output and the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyshape.blame.operators import Lowering, cause_of
from anyshape.capture.program import Guard
from anyshape.dims import Range
from anyshape.errors import VerifyFault
from anyshape.runtimes.onnx_runtime import Runtime
from anyshape.verify.reference import Reference
from anyshape.verify.shrink import Shrunk, shrink
from anyshape.verify.verdict import Row, Verdict
from anyshape.verify.verify import PYTHON_VALUE, check

__all__ = ["fault_of", "shrunk_failure"]


def shrunk_failure(
    verdict: Verdict, runtime: Runtime, reference: Reference, names: Sequence[str | None] | None = None
) -> tuple[Shrunk, Row]:
    """The smallest sizes at which the model is wrong, and what happens there."""
    contract = reference.agreed.contract
    rows: dict[tuple[int, ...], Row] = {}

    def fails(sizes: Mapping[str, int]) -> bool:
        if not contract.allows(sizes):
            return False
        row = check(runtime, reference, sizes, names, first.variant)
        rows[tuple(sizes.values())] = row
        return row.outcome in ("wrong", "fails")

    # An empty input is a fault of its own: a failure that has none comes first, and does not shrink to one.
    first = min(verdict.failures, key=lambda row: (0 in row.sizes.values(), sum(row.sizes.values())))
    ranges = {
        name: Range(max(range_.minimum, min(1, first.sizes[name])), range_.maximum)
        for name, range_ in contract.ranges.items()
    }
    shrunk = shrink(first.sizes, ranges, fails)
    return shrunk, rows.get(tuple(shrunk.sizes.values()), first)


def fault_of(
    verdict: Verdict,
    runtime: Runtime,
    reference: Reference,
    guards: Sequence[Guard],
    lowering: Lowering | None = None,
) -> VerifyFault:
    """The fault of a verdict: what, at which sizes, and the line whose guard does not hold there.

    With ``lowering``, which says how the model was made, also the operator that is translated wrongly.
    """
    if not verdict.failures:
        return VerifyFault("PyTorch refused every size that was tried, so nothing could be verified")
    shrunk, row = shrunk_failure(verdict, runtime, reference)
    broken = [item for item in guards if not item.proved and not item.holds(shrunk.sizes)]
    told = next((item for item in broken if item.where is not None), broken[0] if broken else None)
    what = f"the exported model would be wrong at {shrunk}: {row.why}"
    cause = None if lowering is None else cause_of(lowering, reference, row)
    # A guard may be broken there by chance: the trace is right nonetheless if an operator alone makes the difference.
    if cause is not None and (told is None or not cause.in_trace):
        return VerifyFault(what, where=cause.where, hint=cause.hint, script=cause.script)
    if told is None and row.why.startswith(PYTHON_VALUE):
        return VerifyFault(
            what,
            hint="Return it as a tensor (torch.tensor(n)), or leave it out: a file can't compute Python values.",
        )
    if told is None:
        return VerifyFault(what, hint="No line of the model is to blame: an operator is translated wrongly.")
    names = ", ".join(sorted(told.names))
    return VerifyFault(
        what,
        where=told.where,
        hint=f"The trace holds only where {told}. Rewrite that line so that it does not depend on {names}, "
        f"or declare a range of {names} on one side of it.",
    )
