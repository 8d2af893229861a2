"""Attempt: one captured program, lowered and judged; its contract as far as it had to be narrowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from anyshape.blame.fault import fault_of
from anyshape.blame.operators import Lowering
from anyshape.blame.sides import check_sides
from anyshape.capture import Program, Split, Turn
from anyshape.contract import Contract, Tensor
from anyshape.contract.agree import CHANGES_ITSELF, Agreed
from anyshape.dims import Expr, Relation
from anyshape.dims.turns import period_of
from anyshape.errors import VerifyFault
from anyshape.inputs.case import Case
from anyshape.inputs.names import present
from anyshape.ladder.kept import by_pytorch, note_of
from anyshape.ladder.narrow import limited, narrowed, without_smallest
from anyshape.lower import name_outputs
from anyshape.lower.custom import kept_in
from anyshape.lower.enforce import enforce, enforce_shapes
from anyshape.lower.optimize import optimize
from anyshape.lower.types import with_lawful_types
from anyshape.progress import Progress
from anyshape.repair import Repair
from anyshape.runtimes.choose import runtime_of
from anyshape.runtimes.onnx_runtime import Runtime, RuntimeFailure
from anyshape.runtimes.pieces import Pieces, foreign
from anyshape.verify.reference import Reference
from anyshape.verify.verdict import Verdict
from anyshape.verify.verify import verify

__all__ = ["Attempt", "Made", "Settings", "repaired"]

MOST_NARROWINGS = 6


@dataclass(frozen=True, slots=True)
class Settings:
    """How to lower and verify."""

    output_names: tuple[str, ...] = ()
    opset: int | None = None
    translations: Mapping[Any, Callable[..., Any]] | None = None
    optimize: bool = True
    prove: bool = False  # begin with a symbolic trace, whose guards say what holds at every size
    verify_budget: float = 12.0  # nominal seconds


@dataclass(frozen=True, slots=True)
class Made:
    """A model that was found right, with the program that it came from."""

    program: Program
    model: ir.Model
    verdict: Verdict
    contract: Contract


class Attempt:
    """One captured and lowered program, its contract as far as it had to be narrowed, and its verdict."""

    def __init__(
        self,
        case: Case,
        reference: Reference,
        capture: Callable[[], Program],
        settings: Settings,
        progress: Progress,
        turns: Sequence[Turn] = (),
    ) -> None:
        self.case, self.reference, self.settings, self.progress = case, reference, settings, progress
        self.turns = turns
        with progress.station("capture"):
            self.program = capture()
        progress.done("capture", self.program.rung)
        contract = _with_outputs(reference, case, self.program, settings)
        self.lowering = Lowering(self.program, contract, settings.opset, settings.translations)
        self.model = _model(self.lowering, settings, progress)
        agreed, relations = limited(reference.agreed, self.program.within)
        self.reference = reference.under(agreed)
        enforce(self.model, agreed.contract, list(dict.fromkeys((*relations, *_kept_from(agreed.contract)))))
        enforce_shapes(self.model, agreed.contract)
        self.narrowings = 0
        self.verdict: Verdict | None = None
        self.verdict_of_sides: Verdict | None = None  # under which every side of a choice was right
        self.runtime = _loaded(self.model, settings)

    def judge(self) -> Verdict:
        """The verdict, once sizes of 0 that only PyTorch accepts are left out."""
        verdict = self.verdict or self._verify()
        while not verdict.right:
            closer = without_smallest(self.reference.agreed, verdict, 0)
            if closer is None:
                break
            verdict = self.narrow(*closer)
        if verdict.right and verdict is not self.verdict_of_sides:
            check_sides(self.lowering, self.reference, verdict.rows)
            self.verdict_of_sides = verdict
        self.verdict = verdict
        return verdict

    def narrowed(self) -> Made:
        """The model at the sizes where it is right, if the user did not declare the others; else its fault."""
        verdict = self.judge()
        while not verdict.right:
            closer = narrowed(self.reference.agreed, self.program, verdict)
            if closer is None:
                raise self.fault(verdict)
            verdict = self.narrow(*closer)
        return self.made(verdict)

    def narrow(self, agreed: Agreed, relations: list[Relation]) -> Verdict:
        """The verdict on the model with a narrower contract, which the file enforces."""
        self.narrowings += 1
        if self.narrowings > MOST_NARROWINGS:
            assert self.verdict is not None
            raise self.fault(self.verdict)
        self.reference.agreed = agreed
        enforce(self.model, agreed.contract, relations)
        self.runtime = _loaded(self.model, self.settings)
        return self._verify()

    def _verify(self) -> Verdict:
        with self.progress.station("verify"):
            self.verdict = verify(
                self.runtime,
                self.reference,
                self.program.guards,
                self.turns,
                proved=self.program.proved,
                boundaries=self.program.boundaries,
                divisions=self.program.divisions,
                budget=self.settings.verify_budget,
                progress=lambda text: self.progress.doing("verify", text),
            )
        return self.verdict

    def fault(self, verdict: Verdict) -> VerifyFault:
        return fault_of(verdict, self.runtime, self.reference, self.program.guards, self.lowering)

    def made(self, verdict: Verdict) -> Made:
        contract = _with_outputs(self.reference, self.case, self.program, self.settings)
        contract = _with_true_outputs(contract, self.reference)
        names = foreign(self.model)
        notes = [note_of(item) for item in kept_in(self.settings.translations) if item.name in names]
        notes += [self.runtime.note] if self.runtime.note else []
        contract = replace(contract, notes=(*contract.notes, *notes))
        name_outputs(self.model, contract)
        return Made(self.program, self.model, verdict, contract)


def _kept_from(contract: Contract) -> list[Relation]:
    """What the file itself must refuse, as PyTorch may run there.

    Ranges that begin where the model no longer changes itself, or have but one size, and remainders: PyTorch refuses
    most sizes with another one, but now and then a reshape comes out even.
    """
    starts = [
        Relation(Expr.of(dim.range.minimum), "<=", Expr.of(dim.name))
        for dim in contract.dims
        if dim.reason.startswith(CHANGES_ITSELF)
    ]
    only = [
        Relation(Expr.of(dim.name), "==", Expr.of(dim.range.minimum))
        for dim in contract.dims
        if dim.range.minimum == dim.range.maximum
    ]
    return starts + only + [item for item in contract.relations if period_of(item.left, item.right)]


def _model(lowering: Lowering, settings: Settings, progress: Progress) -> ir.Model:
    with progress.station("lower"):
        model = lowering.model()
    progress.done("lower", f"{_count(model)} nodes, opset {model.opset_imports.get('', 0)}")
    if settings.optimize:
        with progress.station("optimize"):
            model = optimize(model)
        progress.done("optimize", f"{_count(model)} nodes")
    return with_lawful_types(model)


def _count(model: ir.Model) -> int:
    return sum(1 for _ in model.graph.all_nodes())


def _loaded(model: ir.Model, settings: Settings) -> Runtime:
    kept = {item.name: by_pytorch(item) for item in kept_in(settings.translations)}
    try:
        return Pieces(model, kept) if kept.keys() & set(foreign(model)) else runtime_of(model)
    except RuntimeFailure as failure:
        raise VerifyFault(f"ONNX Runtime can't load the model: {failure}") from failure


def _with_outputs(reference: Reference, case: Case, program: Program, settings: Settings) -> Contract:
    """The contract with the outputs as the program has them."""
    contract, structure = reference.agreed.contract, case.outputs.structure
    told = zip(structure.constants(), reference.numbers, strict=False)
    numbers = [value if number is None else number for value, number in told]
    names = _output_names(case, settings)
    outputs = tuple(
        Tensor(name, str(tensor.dtype).removeprefix("torch."), shape)
        for name, tensor, shape in zip(names, case.outputs.tensors, program.outputs, strict=True)
    )
    dims = contract.dims
    if program.proved:
        dims = tuple(replace(dim, evidence="proved") for dim in dims)
    return replace(
        contract,
        dims=dims,
        outputs=outputs,
        notes=(*contract.notes, *map(_boundary, (*program.splits, *program.questions))),
        output_structure=(structure.with_constants(iter(numbers)) if numbers else structure).to_json(),
        rung=program.rung,
    )


def _boundary(split: Split) -> str:
    """A note for a boundary between regions."""
    where = f" ({split.where.file}:{split.where.line})" if split.where else ""
    if not isinstance(split.condition, Relation):
        return f"takes one of two ways by the values of its inputs{where}"
    return f"takes one way where {split.condition}, another beyond{where}"


def _with_true_outputs(contract: Contract, reference: Reference) -> Contract:
    """The contract with "?" for an output's size that PyTorch did not always give as the trace has it."""
    outputs = list(contract.outputs)
    for sizes, shapes in reference.output_shapes():
        for number, shape in enumerate(shapes):
            if len(shape) != len(outputs[number].shape):
                continue  # it loses an axis at some sizes: no shape says that
            kept = tuple(
                size if size is not None and _is(size, sizes, actual) else None
                for size, actual in zip(outputs[number].shape, shape, strict=True)
            )
            outputs[number] = replace(outputs[number], shape=kept)
    return replace(contract, outputs=tuple(outputs))


def _is(size: Expr, sizes: Mapping[str, int], actual: int) -> bool:
    try:
        return size.evaluate(sizes) == actual
    except (ArithmeticError, ValueError):
        return False


def _output_names(case: Case, settings: Settings) -> list[str]:
    """The user's names, then paths; one that an input has already gets a suffix."""
    given = list(settings.output_names)
    paths = present(case.outputs.structure, case.outputs.paths)[len(given) :]
    taken = {item.path for item in case.inputs} | set(given)
    for path in paths:
        name = f"output.{path}" if path[:1].isdigit() else path
        name = f"{name}.out" if name in taken else name
        taken.add(name)
        given.append(name)
    return given


def repaired(made: Made, repairs: Sequence[Repair]) -> Made:
    """What was made, saying plainly what was repaired, and what it was compared with."""
    if not repairs:
        return made
    count = sum(row.outcome != "refused" for row in made.verdict.rows)
    said = (
        f"repaired, agrees with the repaired source at {count} sizes: PyTorch's own runs at the example only"
    )
    notes = (*made.contract.notes, *(f"repaired: {repair}" for repair in repairs), said)
    return replace(
        made,
        verdict=replace(made.verdict, sampled=(*made.verdict.sampled[:-1], said)),
        contract=replace(made.contract, notes=notes),
    )
