"""judge: the verdict on any ONNX file against the module it is meant to be, whoever exported it.

The file is held to what it says itself: an axis with a number is tried at that number only, and a remark says so.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyshape.artifact.read import contract_of, read_model
from anyshape.artifact.signature import FileTensor, Names, match_inputs, tensors_of
from anyshape.blame.branch import Failure, blamed
from anyshape.blame.fault import shrunk_failure
from anyshape.capture import Guard, NoTape, capture_symbolic
from anyshape.contract import Contract
from anyshape.contract.agree import Agreed, agree
from anyshape.contract.declare import FOUND, Declaration, Size, declare
from anyshape.contract.held import held_to_contract, held_to_file
from anyshape.dims import Expr, parse_expr, parse_range
from anyshape.errors import ContractFault, DeclarationError, Fault, ParseError, VerifyFault
from anyshape.inputs.case import Case
from anyshape.lower.operators import translated
from anyshape.probe import Evidence
from anyshape.progress import Progress
from anyshape.runtimes.choose import only_evaluated, runtime_of_file
from anyshape.runtimes.onnx_runtime import Runtime
from anyshape.runtimes.pieces import check_kernels
from anyshape.understand import understand
from anyshape.verify.numbers import numbers_of
from anyshape.verify.reference import Reference
from anyshape.verify.verdict import Verdict
from anyshape.verify.verify import check, verify

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a file: for which sizes, with what remarks, and how it fails if it does."""

    contract: Contract
    verdict: Verdict
    remarks: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def right(self) -> bool:
        return self.failure is None


def judge(
    path: str | os.PathLike[str],
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Judgement:
    """Whether the ONNX file at ``path`` is right at the sizes that it declares and PyTorch accepts.

    Dims in ``shapes`` or ``dims`` are demanded: where the file is fixed at one size of them, it is wrong.
    ``labels`` are shapes that only name.
    """
    told = progress or Progress()
    file = read_model(path)
    check_kernels(
        file, os.fspath(path), hint="It was verified when it was exported; anyshape.load can run it."
    )
    taken, carried, evaluated = tensors_of(file)[0], contract_of(file), only_evaluated(file)
    del file  # its weights, before the runtime reads them again
    runtime = runtime_of_file(os.path.realpath(path), evaluated=evaluated)
    inputs = {item.name: item for item in taken if item.name in runtime.input_names}
    matches: list[Names] = []

    def match(case: Case) -> None:
        matches.extend(match_inputs(case.inputs, list(inputs.values())))

    with understand(model, args, kwargs, told, shapes=shapes, look=match) as known:
        case, evidence = known.case, known.evidence
        with told.station("agree"):
            demanded = frozenset((*(known.declared.names if shapes else ()), *(dims or {})))
            everything = {**(labels or {}), **(shapes or {})}
            agreed, remarks = _agreed(case, evidence, matches[0], inputs, everything, dims)
            reference = Reference(case, agreed, numbers=numbers_of(case, agreed))
            names = _match(matches, runtime, reference)
        with told.station("capture"):
            guards, fault = _guards(case, agreed)
        held = held_to_file(agreed, [inputs[name].shape if name else None for name in names], demanded)
        held = held_to_contract(held, carried, demanded)
        with told.station("verify"):
            trial = _Trial(runtime, reference.under(held.agreed), names)
            judgement = _judged(trial, guards, fault, told)
            empty = [] if judgement.failure else _fails_when_empty(judgement, trial, agreed)
    return replace(judgement, remarks=(*remarks, *held.remarks, *empty))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A file, the module that it should be, and the file's names for the module's inputs."""

    runtime: Runtime
    reference: Reference
    names: Names


def _judged(trial: _Trial, guards: tuple[Guard, ...], fault: Fault | None, told: Progress) -> Judgement:
    runtime, reference, names = trial.runtime, trial.reference, trial.names
    tell = functools.partial(told.doing, "verify")
    verdict = verify(runtime, reference, guards, names=names, progress=tell)
    contract = reference.agreed.contract
    if verdict.failures:
        tell("looking for the smallest sizes at which it is wrong")
        shrunk, row = shrunk_failure(verdict, runtime, reference, names)
        return Judgement(contract, verdict, failure=blamed(guards, fault, verdict, shrunk, row, contract))
    if not verdict.tried:
        raise VerifyFault("PyTorch refused every size that was tried, so nothing could be verified")
    return Judgement(contract, verdict)


def _fails_when_empty(judgement: Judgement, trial: _Trial, agreed: Agreed) -> list[str]:
    """Size 0 is no reason to call another exporter's file wrong, but worth a remark."""
    left_out = [
        dim.name
        for dim in judgement.contract.dims
        if dim.range.minimum == 1
        and dim.range.maximum != 1  # which would be an axis that the file fixes
        and agreed.contract.dim(dim.name).range.minimum == 0
    ]
    reference, example = trial.reference, judgement.contract.example
    rows = {name: check(trial.runtime, reference, {**example, name: 0}, trial.names) for name in left_out}
    bad = [f"{name} = 0" for name, row in rows.items() if row.outcome in ("wrong", "fails")]
    return [f"it is wrong at {' and at '.join(bad)}, where PyTorch runs"] if bad else []


def _match(matches: list[Names], runtime: Runtime, reference: Reference) -> Names:
    """The first match that is right at the example, where there are several."""
    if len(matches) > 1:
        example = reference.agreed.contract.example
        for names in matches:
            if check(runtime, reference, example, names).outcome == "right":
                return names
    return matches[0]


# The contract: the user's declaration if there is one, else the file's own names as labels.


def _agreed(
    case: Case,
    evidence: Evidence,
    names: Names,
    sides: Mapping[str, FileTensor],
    shapes: Mapping[str, Any] | None,
    dims: Mapping[str, Any] | None,
) -> tuple[Agreed, list[str]]:
    if shapes:
        return agree(case, declare(case, shapes=shapes, dims=dims), evidence), []
    ranges = {
        name: parse_range(text) if isinstance(text, str) else text for name, text in (dims or {}).items()
    }
    labels = _labels(case, names, sides)
    remarks = _shared(labels, evidence)
    try:
        return agree(case, Declaration(labels, ranges, labels=True), evidence), remarks
    except (DeclarationError, ContractFault):
        # The file's words don't fit what PyTorch accepts: keep those that name a size which varies by itself.
        kept = _plain_labels(labels, evidence)
        return agree(case, Declaration(kept, ranges, labels=True), evidence), remarks


def _labels(case: Case, names: Names, sides: Mapping[str, FileTensor]) -> tuple[tuple[Size, ...], ...]:
    made = []
    for item, name in zip(case.inputs, names, strict=True):
        shape = None if name is None else sides[name].shape
        known = shape if shape is not None and len(shape) == len(item.shape) else (None,) * len(item.shape)
        made.append(tuple(_label(size) for size in known))
    return tuple(made)


def _label(size: int | str | None) -> Size:
    if not isinstance(size, str):
        return FOUND
    try:
        label = parse_expr(size)
    except ParseError:
        return FOUND
    return label if label.names else FOUND


def _plain_labels(labels: tuple[tuple[Size, ...], ...], evidence: Evidence) -> tuple[tuple[Size, ...], ...]:
    return tuple(
        tuple(
            size if isinstance(size, Expr) and size.name and expression.name else FOUND
            for size, expression in zip(sizes, found, strict=True)
        )
        for sizes, found in zip(labels, evidence.shapes, strict=True)
    )


def _shared(labels: tuple[tuple[Size, ...], ...], evidence: Evidence) -> list[str]:
    """A remark for each name that the file gives to sizes which PyTorch lets differ."""
    places: dict[str, set[str]] = {}
    for sizes, found in zip(labels, evidence.shapes, strict=True):
        for size, expression in zip(sizes, found, strict=True):
            if isinstance(size, Expr) and size.name and expression.name:
                places.setdefault(size.name, set()).add(expression.name)
    shared = [name for name, dims in places.items() if len(dims) > 1]
    return [
        f"the file has {name} in several places, where PyTorch also accepts different sizes"
        for name in shared
    ]


def _guards(case: Case, agreed: Agreed) -> tuple[tuple[Guard, ...], Fault | None]:
    """The conditions on sizes in the model, read off a symbolic trace; the trace's fault where it fails."""
    try:
        return capture_symbolic(case, agreed, translated()).guards, None
    except NoTape as fault:
        return fault.guards, None
    except Fault as fault:
        return (), fault
    except Exception:  # a trace only helps to find the line: without one the verdict is the same
        return (), None
