"""The ladder: capture on one rung after another, until a lowered and verified model is right.

Where a captured graph holds on one side of a guard only, sizes that the user did not declare are narrowed to
that side: the contract says so, and the file itself refuses the others.
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
from anyshape.errors import Fault, VerifyFault
from anyshape.lower import lower
from anyshape.lower.enforce import enforce
from anyshape.narrow import narrowed
from anyshape.optimize import optimize
from anyshape.progress import Progress
from anyshape.read import Case
from anyshape.runtime import OnnxRuntime, RuntimeFailure
from anyshape.verify import Reference, Verdict, verify

__all__ = ["Made", "Settings", "climb"]

MOST_NARROWINGS = 6


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
        except Fault as fault:
            faults.append(fault)
    raise faults[0]


def _on_rung(case: Case, agreed: Agreed, rung: str, settings: Settings, progress: Progress) -> Made:
    program, model = _model(case, agreed, rung, settings, progress)
    reference = Reference(case, agreed)
    with progress.station("verify"):
        for _ in range(MOST_NARROWINGS):
            runtime = _loaded(model)
            verdict = verify(
                runtime,
                reference,
                program.guards,
                budget=settings.verify_seconds,
                progress=lambda text: progress.doing("verify", text),
            )
            if verdict.right:
                contract = _with_outputs(reference.agreed.contract, case, program, settings)
                return Made(program, model, verdict, contract)
            closer = narrowed(reference.agreed, program, verdict)
            if closer is None:
                break
            reference.agreed, relations = closer
            enforce(model, reference.agreed.contract, relations)
    raise fault_of(verdict, runtime, reference, program.guards)


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
    if program.guards and not program.open_guards:
        dims = tuple(replace(dim, evidence="proved") for dim in dims)
    return replace(
        contract, dims=dims, outputs=outputs, output_structure=case.outputs.structure.to_json()
    )


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
