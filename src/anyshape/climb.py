"""The ladder: capture on one rung after another, until a lowered and verified model is right.

Where a captured graph is wrong beyond one of its guards, it is traced again there. Where that does not help, sizes
that the user did not declare are left out: the contract says so, and the file itself refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from anyshape.agree import Agreed
from anyshape.blame import fault_of
from anyshape.capture import RUNGS, Program, capture
from anyshape.contract import Contract, Tensor
from anyshape.dims import Relation
from anyshape.errors import Fault, VerifyFault
from anyshape.lower import lower, name_outputs
from anyshape.lower.enforce import enforce
from anyshape.narrow import narrowed, without_smallest
from anyshape.optimize import optimize
from anyshape.progress import Progress
from anyshape.read import Case
from anyshape.retrace import elsewhere
from anyshape.runtime import OnnxRuntime, RuntimeFailure
from anyshape.verify import Reference, Verdict, verify

__all__ = ["Made", "Settings", "climb"]

MOST_NARROWINGS = 6
MOST_TRACES = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """How to lower and verify."""

    output_names: tuple[str, ...] = ()
    opset: int | None = None
    translations: Mapping[Any, Callable[..., Any]] | None = None
    optimize: bool = True
    verify_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Made:
    """A model that was found right, with the program that it came from."""

    program: Program
    model: ir.Model
    verdict: Verdict
    contract: Contract


def climb(case: Case, agreed: Agreed, settings: Settings, progress: Progress) -> Made:
    """The first rung's model that is right; if none is, the fault of the first rung, which says most."""
    faults: list[Fault] = []
    for rung in RUNGS:
        try:
            return _on_rung(case, agreed, rung, settings, progress)
        except VerifyFault as fault:
            # The graph was captured, and is wrong: another way of capturing the same graph would not mend it.
            raise faults[0] if faults else fault from None
        except Fault as fault:
            faults.append(fault)
    raise faults[0]


def _on_rung(case: Case, agreed: Agreed, rung: str, settings: Settings, progress: Progress) -> Made:
    """A right model on one rung: traced again elsewhere while that helps, and narrowed at last."""
    first = _Attempt(case, Reference(case, agreed), rung, settings, progress)
    verdict = first.judge()
    latest, traced = first, [agreed.generic]
    while not verdict.right and len(traced) < MOST_TRACES:
        other = elsewhere(latest.program, verdict, latest.reference)
        if other is None or other.generic in traced:
            break
        traced.append(other.generic)
        try:
            latest = _Attempt(case, Reference(case, other, first.reference.known), rung, settings, progress)
            verdict = latest.judge()
        except Fault:
            break
        if verdict.right:
            return latest.made(verdict)
    verdict = first.judge()
    while not verdict.right:
        closer = narrowed(first.reference.agreed, first.program, verdict)
        if closer is None:
            raise fault_of(verdict, first.runtime, first.reference, first.program.guards)
        verdict = first.narrow(*closer)
    return first.made(verdict)


class _Attempt:
    """One captured and lowered program, its contract as far as it had to be narrowed, and its verdict."""

    def __init__(
        self, case: Case, reference: Reference, rung: str, settings: Settings, progress: Progress
    ) -> None:
        self.case, self.reference, self.settings, self.progress = case, reference, settings, progress
        self.program, self.model = _model(case, reference.agreed, rung, settings, progress)
        self.narrowings = 0
        self.verdict: Verdict | None = None
        self.runtime = _loaded(self.model)

    def judge(self) -> Verdict:
        """The verdict, once sizes of 0 that only PyTorch accepts are left out."""
        verdict = self.verdict or self._verify()
        while not verdict.right:
            closer = without_smallest(self.reference.agreed, verdict, 0)
            if closer is None:
                break
            verdict = self.narrow(*closer)
        self.verdict = verdict
        return verdict

    def narrow(self, agreed: Agreed, relations: list[Relation]) -> Verdict:
        """The verdict on the model with a narrower contract, which the file enforces."""
        self.narrowings += 1
        if self.narrowings > MOST_NARROWINGS:
            assert self.verdict is not None
            raise fault_of(self.verdict, self.runtime, self.reference, self.program.guards)
        self.reference.agreed = agreed
        enforce(self.model, agreed.contract, relations)
        self.runtime = _loaded(self.model)
        return self._verify()

    def _verify(self) -> Verdict:
        with self.progress.station("verify"):
            self.verdict = verify(
                self.runtime,
                self.reference,
                self.program.guards,
                budget=self.settings.verify_seconds,
                progress=lambda text: self.progress.doing("verify", text),
            )
        return self.verdict

    def made(self, verdict: Verdict) -> Made:
        contract = _with_outputs(self.reference.agreed.contract, self.case, self.program, self.settings)
        contract = _with_true_outputs(contract, self.reference)
        name_outputs(self.model, contract)
        return Made(self.program, self.model, verdict, contract)


def _model(
    case: Case, agreed: Agreed, rung: str, settings: Settings, progress: Progress
) -> tuple[Program, ir.Model]:
    with progress.station("capture"):
        program = capture(case, agreed, rung)
    progress.done("capture", rung)
    contract = _with_outputs(agreed.contract, case, program, settings)
    with progress.station("lower"):
        model = lower(program, contract, opset=settings.opset, translations=settings.translations)
    progress.done("lower", f"{_count(model)} nodes, opset {model.opset_imports.get('', 0)}")
    if settings.optimize:
        with progress.station("optimize"):
            model = optimize(model)
        progress.done("optimize", f"{_count(model)} nodes")
    return program, model


def _count(model: ir.Model) -> int:
    return sum(1 for _ in model.graph.all_nodes())


def _loaded(model: ir.Model) -> OnnxRuntime:
    try:
        return OnnxRuntime.of_model(model)
    except RuntimeFailure as failure:
        raise VerifyFault(f"ONNX Runtime can't load the model: {failure}") from failure


def _with_outputs(contract: Contract, case: Case, program: Program, settings: Settings) -> Contract:
    """The contract with the outputs as the program has them."""
    names = _output_names(case, settings)
    outputs = tuple(
        Tensor(name, str(tensor.dtype).removeprefix("torch."), shape)
        for name, tensor, shape in zip(names, case.outputs.tensors, program.outputs, strict=True)
    )
    dims = contract.dims
    if program.proved:
        dims = tuple(replace(dim, evidence="proved") for dim in dims)
    return replace(contract, dims=dims, outputs=outputs, output_structure=case.outputs.structure.to_json())


def _with_true_outputs(contract: Contract, reference: Reference) -> Contract:
    """The contract with "?" for an output's size that PyTorch did not always give as the trace has it."""
    outputs = list(contract.outputs)
    for sizes, shapes in reference.output_shapes():
        for number, shape in enumerate(shapes):
            kept = tuple(
                size if size is not None and size.evaluate(sizes) == actual else None
                for size, actual in zip(outputs[number].shape, shape, strict=True)
            )
            outputs[number] = replace(outputs[number], shape=kept)
    return replace(contract, outputs=tuple(outputs))


def _output_names(case: Case, settings: Settings) -> list[str]:
    """The user's names, then paths; one that an input has already gets a suffix."""
    given = list(settings.output_names)
    paths = case.outputs.paths[len(given) :]
    taken = {item.path for item in case.inputs} | set(given)
    for path in paths:
        name = f"output.{path}" if path[:1].isdigit() else path
        name = f"{name}.out" if name in taken else name
        taken.add(name)
        given.append(name)
    return given
