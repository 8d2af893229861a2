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
from anyshape.capture.program import Guard
from anyshape.contract import Contract, Dim, Tensor
from anyshape.dims import Range, Relation
from anyshape.errors import Fault, VerifyFault
from anyshape.lower import lower
from anyshape.lower.enforce import enforce
from anyshape.optimize import optimize
from anyshape.progress import Progress
from anyshape.read import Case
from anyshape.runtime import OnnxRuntime, RuntimeFailure
from anyshape.verify import Reference, Verdict, verify

__all__ = ["Made", "Settings", "climb"]

MOST_NARROWINGS = 4


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
    narrowed: list[Relation] = []
    reference = Reference(case, agreed)
    for _ in range(MOST_NARROWINGS):
        reference.agreed = agreed
        program, model, contract = _model(case, agreed, rung, settings, progress, narrowed)
        with progress.station("verify"):
            runtime = _loaded(model)
            verdict = verify(
                runtime,
                reference,
                program.guards,
                budget=settings.verify_seconds,
                progress=lambda text: progress.doing("verify", text),
            )
            if verdict.right:
                return Made(program, model, verdict, contract)
            closer = _narrowed(agreed, program, verdict)
            if closer is None:
                raise fault_of(verdict, runtime, reference, program.guards)
        agreed, more = closer
        narrowed += more
    raise fault_of(verdict, runtime, reference, program.guards)


def _model(
    case: Case, agreed: Agreed, rung: str, settings: Settings, progress: Progress, narrowed: list[Relation]
) -> tuple[Program, ir.Model, Contract]:
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
    enforce(model, contract, narrowed)
    return program, model, contract


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


def _narrowed(agreed: Agreed, program: Program, verdict: Verdict) -> tuple[Agreed, list[Relation]] | None:
    """The contract without the sizes that failed, if they lie beyond a guard, or at 0, and nobody declared them."""
    return _without_zero(agreed, verdict) or _one_side(agreed, program, verdict)


def _without_zero(agreed: Agreed, verdict: Verdict) -> tuple[Agreed, list[Relation]] | None:
    """0 is legal in PyTorch more often than in ONNX runtimes: a dim that fails there alone starts at 1."""
    contract = agreed.contract
    culprits = [
        dim for dim in contract.dims if dim.range.minimum == 0 and dim.name not in agreed.explicit
        and any(row.sizes[dim.name] == 0 for row in verdict.failures)
    ]
    if not culprits or not all(any(row.sizes[dim.name] == 0 for dim in culprits) for row in verdict.failures):
        return None
    names = {dim.name for dim in culprits}
    dims = tuple(_from_one(dim) if dim.name in names else dim for dim in contract.dims)
    notes = [f"{name} = 0 is left out: PyTorch accepts it, the exported model does not" for name in sorted(names)]
    made = replace(contract, dims=dims, notes=(*contract.notes, *notes))
    return replace(agreed, contract=made), [_at_least_one(name) for name in sorted(names)]


def _from_one(dim: Dim) -> Dim:
    return replace(dim, range=Range(1, dim.range.maximum), example=max(1, dim.example))


def _at_least_one(name: str) -> Relation:
    from anyshape.dims import Expr

    return Relation(Expr.of(1), "<=", Expr.of(name))


def _one_side(agreed: Agreed, program: Program, verdict: Verdict) -> tuple[Agreed, list[Relation]] | None:
    """Where every failure breaks one guard of undeclared dims, that guard becomes part of the contract."""
    contract = agreed.contract
    declared = {dim.name for dim in contract.dims if dim.origin == "declared"}
    for item in program.open_guards:
        if item.names & declared or any(item.holds(row.sizes) for row in verdict.failures):
            continue
        relations = item.relations()
        if relations is None or not _leaves_room(agreed, item):
            continue
        side = relations if item.holds(contract.example) else None
        if side is None:
            continue
        where = f" ({item.where.file}:{item.where.line})" if item.where else ""
        note = f"narrowed to {item}{where}: the model takes another path beyond"
        made = replace(
            contract,
            relations=(*contract.relations, *side),
            notes=(*contract.notes, note),
        )
        return replace(agreed, contract=made), list(side)
    return None


def _leaves_room(agreed: Agreed, item: Guard) -> bool:
    """Whether more than a handful of sizes satisfy the guard: one that fixes a size is a fault, not a range."""
    sizes = {**agreed.generic}
    kept = 0
    for name in item.names:
        kept = max(kept, sum(item.holds({**sizes, name: size}) for size in range(1, 40)))
    return kept >= 4 or len(item.names) > 1
