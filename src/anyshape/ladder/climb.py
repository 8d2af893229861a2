"""The ladder: capture on one rung after another, until a lowered and verified model is right.

Where a symbolic trace is wrong beyond one of its guards, it is traced again there; traces at concrete sizes then have
to explain the sizes at which it was wrong. Where that does not help, sizes that the user did not declare are left out:
the contract says so, and the file itself refuses them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from anyshape.blame.fault import fault_of
from anyshape.blame.operators import Lowering
from anyshape.capture import Guard, NoTape, Program, Split, Traces, capture_regions, capture_symbolic
from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Contract, Tensor
from anyshape.dims import Relation
from anyshape.errors import Fault, VerifyFault
from anyshape.inputs.read import Case
from anyshape.ladder.narrow import narrowed, without_smallest
from anyshape.ladder.retrace import elsewhere
from anyshape.lower import name_outputs
from anyshape.lower.enforce import enforce
from anyshape.lower.operators import TRANSLATED
from anyshape.lower.optimize import optimize
from anyshape.progress import Progress
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure
from anyshape.verify.verify import Reference, Verdict, verify

__all__ = ["Made", "Settings", "climb"]

MOST_NARROWINGS = 6
MOST_TRACES = 3
MOST_REFINEMENTS = 4
MOST_COUNTEREXAMPLES = 3


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
    """The first rung's model that is right; if none is, the first that is right at fewer sizes; else its fault."""
    reference = Reference(case, agreed)
    attempts: list[_Attempt] = []
    stuck: Fault | None = None
    climber = _Climber(case, reference, settings, progress)
    for rung in (_symbolic, _by_traces):
        stuck = None
        try:
            for attempt in rung(climber, attempts):
                attempts.append(attempt)
                verdict = attempt.judge()
                if verdict.right:
                    return attempt.made(verdict)
        except Fault as fault:
            stuck = fault
            climber.guards = fault.guards if isinstance(fault, NoTape) else ()
    if not attempts:
        assert stuck is not None
        raise stuck  # of the rung that can do most
    try:
        return _narrowed(attempts[0])
    except VerifyFault as fault:
        if stuck is None or attempts[0].program.rung == "symbolic":
            raise
        # Traces at more sizes were asked for and failed: that says why the first ones did not suffice.
        raise stuck from fault


@dataclass(slots=True)
class _Climber:
    """What every rung needs to make attempts, and the guards of a symbolic trace that came to nothing else."""

    case: Case
    reference: Reference
    settings: Settings
    progress: Progress
    guards: tuple[Guard, ...] = ()

    @property
    def own(self) -> Collection[Any]:
        """The operators that we, or the user, translate."""
        return TRANSLATED.union(self.settings.translations or ())

    def attempt(self, agreed: Agreed, capture: Callable[[], Program]) -> _Attempt:
        reference = Reference(self.case, agreed, self.reference.known)
        return _Attempt(self.case, reference, capture, self.settings, self.progress)


def _symbolic(climber: _Climber, attempts: Sequence[_Attempt]) -> Iterator[_Attempt]:
    """A symbolic trace; traced again beyond the guards that failures broke, while there are any."""
    case, agreed = climber.case, climber.reference.agreed
    traced = [agreed.generic]
    while True:
        latest = climber.attempt(agreed, functools.partial(capture_symbolic, case, agreed, climber.own))
        yield latest
        verdict = latest.judge()
        other = elsewhere(latest.program, verdict, latest.reference) if len(traced) < MOST_TRACES else None
        if other is None or other.generic in traced:
            return
        agreed = other
        traced.append(agreed.generic)


def _by_traces(climber: _Climber, attempts: Sequence[_Attempt]) -> Iterator[_Attempt]:
    """Traces at concrete sizes, and at those where an earlier attempt was wrong: each has to explain more."""
    agreed = climber.reference.agreed
    traces = Traces(climber.case, agreed, climber.own)
    guards = attempts[0].program.guards if attempts else climber.guards
    further: list[Mapping[str, int]] = []
    for _ in range(MOST_REFINEMENTS):
        wrong = [row.sizes for row in attempts[-1].judge().failures] if attempts else []
        further += [sizes for sizes in _telling(wrong, agreed) if sizes not in further]
        yield climber.attempt(agreed, functools.partial(_captured, traces, tuple(further), guards))


def _captured(traces: Traces, further: Sequence[Mapping[str, int]], guards: tuple[Guard, ...]) -> Program:
    return replace(capture_regions(traces, further), guards=guards)


def _telling(failures: Sequence[Mapping[str, int]], agreed: Agreed) -> list[Mapping[str, int]]:
    """A few of the sizes at which an attempt was wrong: those that differ from the generic sizes in the fewest dims."""
    generic = agreed.generic
    ranked = sorted(
        failures, key=lambda sizes: (sum(sizes[n] != generic[n] for n in generic), sum(sizes.values()))
    )
    return [sizes for sizes in ranked if min(sizes.values()) > 0][:MOST_COUNTEREXAMPLES]


def _narrowed(attempt: _Attempt) -> Made:
    """The attempt's model at the sizes where it is right, if the user did not declare the others."""
    verdict = attempt.judge()
    while not verdict.right:
        closer = narrowed(attempt.reference.agreed, attempt.program, verdict)
        if closer is None:
            raise attempt.fault(verdict)
        verdict = attempt.narrow(*closer)
    return attempt.made(verdict)


class _Attempt:
    """One captured and lowered program, its contract as far as it had to be narrowed, and its verdict."""

    def __init__(
        self,
        case: Case,
        reference: Reference,
        capture: Callable[[], Program],
        settings: Settings,
        progress: Progress,
    ) -> None:
        self.case, self.reference, self.settings, self.progress = case, reference, settings, progress
        with progress.station("capture"):
            self.program = capture()
        progress.done("capture", self.program.rung)
        contract = _with_outputs(reference.agreed.contract, case, self.program, settings)
        self.lowering = Lowering(self.program, contract, settings.opset, settings.translations)
        self.model = _model(self.lowering, settings, progress)
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
            raise self.fault(self.verdict)
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
                proved=self.program.proved,
                boundaries=[split.condition for split in self.program.splits],
                budget=self.settings.verify_seconds,
                progress=lambda text: self.progress.doing("verify", text),
            )
        return self.verdict

    def fault(self, verdict: Verdict) -> VerifyFault:
        return fault_of(verdict, self.runtime, self.reference, self.program.guards, self.lowering)

    def made(self, verdict: Verdict) -> Made:
        contract = _with_outputs(self.reference.agreed.contract, self.case, self.program, self.settings)
        contract = _with_true_outputs(contract, self.reference)
        name_outputs(self.model, contract)
        return Made(self.program, self.model, verdict, contract)


def _model(lowering: Lowering, settings: Settings, progress: Progress) -> ir.Model:
    with progress.station("lower"):
        model = lowering.model()
    progress.done("lower", f"{_count(model)} nodes, opset {model.opset_imports.get('', 0)}")
    if settings.optimize:
        with progress.station("optimize"):
            model = optimize(model)
        progress.done("optimize", f"{_count(model)} nodes")
    return model


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
    return replace(
        contract,
        dims=dims,
        outputs=outputs,
        notes=(*contract.notes, *map(_boundary, program.splits)),
        output_structure=case.outputs.structure.to_json(),
        rung=program.rung,
    )


def _boundary(split: Split) -> str:
    """A note for a boundary between regions."""
    where = f" ({split.where.file}:{split.where.line})" if split.where else ""
    return f"takes one way where {split.condition}, another beyond{where}"


def _with_true_outputs(contract: Contract, reference: Reference) -> Contract:
    """The contract with "?" for an output's size that PyTorch did not always give as the trace has it."""
    outputs = list(contract.outputs)
    for sizes, shapes in reference.output_shapes():
        for number, shape in enumerate(shapes):
            if len(shape) != len(outputs[number].shape):
                continue  # it loses an axis at some sizes: no shape says that
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
