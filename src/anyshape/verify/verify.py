"""verify: the ONNX model against the user's own module in eager mode, at many sizes, with legal values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from anyshape.capture.decisions import Turn
from anyshape.capture.program import Guard
from anyshape.compare import compare, usual
from anyshape.dims import Relation
from anyshape.dims.turns import Condition
from anyshape.inputs.case import OutOfMemory, Outputs, Refusal
from anyshape.runtimes.onnx_runtime import Runtime, RuntimeFailure, to_numpy
from anyshape.source.lines import words_of
from anyshape.verify.numbers import at_sizes
from anyshape.verify.reference import Reference
from anyshape.verify.sizes import COUNT, Boundary, Division, sizes_to_try
from anyshape.verify.verdict import Row, Verdict

__all__ = ["PYTHON_VALUE", "check", "verify"]

FAILURES = 3  # enough to know that it is wrong
PYTHON_VALUE = "the result holds a Python value that depends on the sizes"
MOST_RESULTS = 4_000_000  # numbers: to compare them takes much more memory than they do
LEAST = 8  # sizes that are tried whatever they cost
DEAR = 40  # times the example's numbers

Sizes = Mapping[str, int]


def check(
    runtime: Runtime,
    reference: Reference,
    sizes: Sizes,
    names: Sequence[str | None] | None = None,
    variant: int = 0,
) -> Row:
    """One assignment of sizes, with one kind of values: right, wrong, fails or refused.

    ``names`` are the model's names for the inputs in order, where they are not the contract's; None drops one.
    """
    row = _checked(runtime, reference, sizes, names, variant)
    values = reference.values(variant)
    why = f"{row.why}, with {values}" if values and row.outcome in ("wrong", "fails") else row.why
    return replace(row, why=why, variant=variant, values=values)


def _checked(
    runtime: Runtime,
    reference: Reference,
    sizes: Sizes,
    names: Sequence[str | None] | None,
    variant: int,
) -> Row:
    expected = reference.at(sizes, variant)
    at = dict(sizes)
    if isinstance(expected, Refusal):
        return Row(at, "refused", why=f"{type(expected.error).__name__}: {words_of(expected.error)}")
    if isinstance(expected, OutOfMemory):
        return Row(at, "not run", why=expected.text)
    if _count(expected.outputs) > max(MOST_RESULTS, 4 * _count(reference.case.outputs)):
        return Row(at, "not run", why="the result has too many numbers to be compared here")
    inputs = names if names is not None else [item.name for item in reference.agreed.contract.inputs]
    feed = {name: to_numpy(tensor) for name, tensor in zip(inputs, expected.tensors, strict=True) if name}
    try:
        got = runtime.run(feed)
    except RuntimeFailure as failure:
        return Row(at, "fails", why=f"{runtime.name}: {failure}")
    if variant:
        got = _unanswered(got, expected.outputs.tensors)
    return _judged(at, reference, runtime.output_names, expected.outputs, expected.exact, got)


def _count(outputs: Outputs) -> int:
    return sum(tensor.numel() for tensor in outputs.tensors)


def _unanswered(got: list[Any], expected: Sequence[torch.Tensor]) -> list[Any]:
    """A runtime's outputs, NaN wherever PyTorch's are: for values that nobody gave, NaN is no answer to hold it to."""
    made = list(got)
    for number, (array, tensor) in enumerate(zip(got, expected, strict=False)):
        if tensor.is_floating_point() and array.shape == tuple(tensor.shape):
            unknown = to_numpy(torch.isnan(tensor))
            made[number] = np.where(unknown, np.nan, array) if unknown.any() else array
    return made


def _judged(
    at: dict[str, int],
    reference: Reference,
    names: Sequence[str],
    outputs: Outputs,
    exact: list[torch.Tensor] | None,
    got: list[Any],
) -> Row:
    if len(got) != len(outputs.tensors):
        return Row(at, "wrong", why=f"{len(got)} outputs, expected {len(outputs.tensors)}")
    case = reference.case
    before = at_sizes(case.outputs.structure.constants(), reference.numbers, at)
    after = outputs.structure.constants()
    if not _same_constants(before, after):
        moved = next(
            (pair for pair in zip(before, after, strict=False) if not _same_constants(*pair)), (before, after)
        )
        why = f"{PYTHON_VALUE}: {moved[0]!r}, then {moved[1]!r}"
        return Row(at, "wrong", why=why)
    worst = Row(at, "right")
    for number, (name, tensor, array) in enumerate(zip(names, outputs.tensors, got, strict=True)):
        scale = usual(case.outputs.tensors[number]) if number < len(case.outputs.tensors) else 0.0
        other = _other_type(tensor, array)
        if other:
            return Row(at, "wrong", why=f"{name} is {other}, expected {_type_of(tensor)}")
        difference = compare(name, tensor, exact[number] if exact else None, array, scale)
        if difference.why:
            return Row(at, "wrong", difference.error, difference.allowed, difference.why)
        if difference.error * (worst.allowed or 1) >= worst.error * (difference.allowed or 1):
            worst = Row(at, "right", difference.error, difference.allowed)
    return worst


def _other_type(tensor: torch.Tensor, array: Any) -> str:
    """The type of an array, where it is not the tensor's; complex tensors come as pairs of reals."""
    return "" if tensor.is_complex() or array.dtype.name == _type_of(tensor) else str(array.dtype.name)


def _type_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _same_constants(one: Any, two: Any) -> bool:
    """Whether two values of Python's are the same; NaN is like NaN."""
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same_constants, one, two))
    return bool(one == two) or (one != one and two != two)


def verify(
    runtime: Runtime,
    reference: Reference,
    guards: Sequence[Guard] = (),
    turns: Sequence[Turn] = (),
    *,
    proved: bool = False,
    boundaries: Sequence[tuple[Relation, tuple[Relation, ...]]] = (),
    divisions: Sequence[Division] = (),
    names: Sequence[str | None] | None = None,
    budget: float = 12.0,
    count: int = COUNT,
    progress: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """The verdict on a model at many sizes; stops at a few failures.

    What would take it beyond its ``budget`` of nominal seconds is not tried.

    ``proved`` says that the model's graph is the module's own wherever ``guards`` hold, and that they all do.
    ``turns`` are decisions of the module, ``boundaries`` where the model takes another way, and what holds there: both
    sides of each are tried, whatever that costs. ``divisions`` are what the model divides its sizes by.
    """
    agreed = reference.agreed
    example = (
        agreed.contract.example if agreed.contract.allows(agreed.contract.example) else dict(agreed.generic)
    )
    seconds = reference.seconds_at(example)
    open_guards = [item for item in guards if not item.proved]
    conditions: list[Condition] = [*open_guards, *turns, *(Boundary(*item) for item in boundaries)]
    rows: list[Row] = []
    wanted = reference.take_examples()
    telling, sides = sizes_to_try(agreed, conditions, seconds, count, divisions, reference.integers())
    for sizes in (example, *telling):
        if sizes not in wanted:
            wanted.append(sizes)
    least = max(LEAST, len(wanted) - len(telling) + sides)
    usual = max(1, agreed.contract.elements(example))

    def times(sizes: Sizes) -> float:
        """How many times dearer than the example sizes are to try."""
        return max(1.0, agreed.contract.elements(sizes) / usual)

    # What is far away, and dear, must not keep what is near from being tried.
    others = [*_of_other_values(reference, wanted), *((sizes, 0) for sizes in wanted[least:])]
    others.sort(key=lambda trial: times(trial[0]) > DEAR)
    trials = [*((sizes, 0) for sizes in wanted[:least]), *others]
    spent = 0.0
    for number, (sizes, variant) in enumerate(trials):
        cost = seconds * times(sizes) if number >= least else 0.0
        if spent + cost > budget:
            continue
        progress(f"{number + 1} of {len(trials)} sizes")
        spent += cost
        rows.append(check(runtime, reference, sizes, names, variant))
        if sum(row.outcome in ("wrong", "fails") for row in rows) >= FAILURES:
            break
    proofs, samples = _statements(guards, turns, rows, proved)
    cut = (
        ""
        if len(rows) == len(trials)
        else f"{len(trials) - len(rows)} of {len(trials)} chosen sizes were not tried"
    )
    return Verdict(runtime.name, tuple(rows), proofs, samples, cut)


def _of_other_values(
    reference: Reference, sizes: Sequence[dict[str, int]]
) -> list[tuple[dict[str, int], int]]:
    """Every kind of values at the sizes to trace at, and at one more: the largest of the first few."""
    contract, generic = reference.agreed.contract, dict(reference.agreed.generic)
    usual = generic if contract.allows(generic) else sizes[0]
    other = max(sizes[:LEAST], key=lambda item: contract.elements(item))
    return [
        (at, kind)
        for kind in range(1, reference.variants)
        for at in ((usual, other) if other != usual else (usual,))
    ]


def _statements(
    guards: Sequence[Guard], turns: Sequence[Turn], rows: Sequence[Row], proved: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is proved and what is sampled, each in a sentence; nothing is said of a side that was not run."""
    everywhere = f"the captured graph holds at every size of the contract ({len(guards)} guards)"
    tried = [row.sizes for row in rows if row.outcome not in ("refused", "not run")]
    sampled: dict[str, None] = {}
    asked: list[Guard | Turn] = [*(item for item in guards if not item.proved), *turns]
    for item in asked:
        sides = {item.holds(sizes) for sizes in tried}
        if len(sides) > 1:
            sampled.setdefault(f"right on both sides of {item}{_at_line(item)}")
        elif sides:
            held = "holds" if True in sides else "does not hold"
            sampled.setdefault(f"tried only where {item} {held}{_at_line(item)}")
    sampled.setdefault(f"the outputs agree with PyTorch at {len(tried)} sizes")
    return (everywhere,) if proved else (), tuple(sampled)


def _at_line(item: Guard | Turn) -> str:
    return f" ({item.where.file}:{item.where.line})" if item.where else ""
