"""blame for wrong numbers: which operator is translated wrongly, or which number the trace has wrong.

Every step of the program is run twice at the failing sizes, by PyTorch and on ONNX Runtime alone, both on PyTorch's
own values: so one wrong operator does not make those after it look wrong. A step that differs is to blame only if
PyTorch, with that step as ONNX Runtime does it, gets another result: ties may be sorted in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch

from anyshape.blame.script import script_of, written
from anyshape.blame.trace import Cause, capture_cause
from anyshape.capture.program import Program
from anyshape.capture.tape import Played, Split, Step, Tape, Value, chosen, play, rolled
from anyshape.capture.tape.constants import index_tensor, sizes_tensor
from anyshape.capture.tape.steps import either, map_leaves, number_of, repeated
from anyshape.capture.tape.walk import bodies
from anyshape.compare import Array, compare
from anyshape.contract.contract import Contract
from anyshape.errors import Fault
from anyshape.inputs.case import OutOfMemory, Refusal, answered
from anyshape.lower import STEP, lower, lower_alone
from anyshape.runtimes.choose import runtime_of
from anyshape.runtimes.onnx_runtime import Runtime, RuntimeFailure, to_numpy, to_torch
from anyshape.torch_bridge import process
from anyshape.verify.reference import Expected, Reference
from anyshape.verify.verdict import Row
from anyshape.verify.verify import check

__all__ = ["Lowering", "cause_of"]

MOST_STEPS = 2000  # that are run alone
aten = torch.ops.aten
# What is on a tape, but no operator.
PARTS = {
    rolled: "loop",
    chosen: "choice",
    either: "choice",
    repeated: "loop",
    sizes_tensor: "tensor of sizes",
    index_tensor: "tensor of indices",
}
WRONG_PART = "The {} at this line is translated wrongly{}: your model is not at fault."
UNDEFINED = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}


@dataclass(frozen=True, slots=True)
class Lowering:
    """A program, and how it is lowered."""

    program: Program
    contract: Contract
    opset: int | None = None
    translations: Mapping[Any, Callable[..., Any]] | None = None

    def model(self) -> ir.Model:
        """The program as an ONNX model."""
        return lower(self.program, self.contract, opset=self.opset, translations=self.translations)


def cause_of(lowering: Lowering, reference: Reference, row: Row) -> Cause | None:
    """What makes the model wrong at the row's sizes; None if it can't be told."""
    try:
        with process.quiet():
            return _cause(lowering, reference, row)
    except Exception:  # a fault is being reported: what fails here must not take its place
        return None


def _cause(lowering: Lowering, reference: Reference, row: Row) -> Cause | None:
    expected = reference.at(row.sizes, row.variant)
    if not isinstance(expected, Expected):
        return None
    tensors, body = expected.tensors, lowering.program.body
    own = answered(lambda: play(body, tensors, row.sizes))
    if isinstance(own, (Refusal, OutOfMemory)) or _apart(own, expected.outputs.tensors, expected.exact):
        operators = lowering.translations or {}
        return capture_cause(body, reference.case, reference.agreed, row.sizes, tensors, operators)
    search = _Search(lowering, row.sizes, tensors, own)
    for suspect in search.suspects():
        if search.matters(suspect):
            return _told(lowering, suspect, search.gave(suspect), row)
    if check(runtime_of(lowering.model()), reference, row.sizes, variant=row.variant).outcome == "right":
        return Cause(
            "The model is right until it is optimized: your model is not at fault. Export with optimize=False."
        )
    # Each step of the way that PyTorch takes is right: ONNX Runtime takes another.
    return Cause(WRONG_PART.format("choice", ""), body.where) if isinstance(body, Split) else None


def _told(lowering: Lowering, suspect: Played, gave: str, row: Row) -> Cause:
    step, nodes = suspect.step, _nodes(lowering, suspect.step)
    node = next((name for name in nodes if f"'{name}'" in row.why), nodes[-1] if nodes else None)
    at = f" (node {node})" if node else ""
    if step.target in PARTS:
        return Cause(WRONG_PART.format(PARTS[step.target], at), step.where)
    custom = step.target in (lowering.translations or ())
    script = script_of(suspect, gave, _constants(lowering.program.body), lowering.opset, custom=custom)
    by = " by custom_translation_table" if custom else ""
    hint = f"{step.target} is translated wrongly{by}{at}: your model is not at fault."
    if script:
        hint += " `anyshape export -v` prints a script that shows it, which is also the fault's `script`."
    return Cause(hint, step.where, script)


def _nodes(lowering: Lowering, step: Step) -> list[str]:
    """The names of the nodes that were made for a step."""
    return [node.name or "" for node in lowering.model().graph.all_nodes() if node.meta.get(STEP) is step]


@dataclass(slots=True)
class _Search:
    """The steps of a program at failing sizes, each also on ONNX Runtime alone."""

    lowering: Lowering
    sizes: Mapping[str, int]
    tensors: Sequence[torch.Tensor]
    own: Sequence[torch.Tensor]  # the program's results by PyTorch
    loaded: dict[Any, _Alone | None] = field(default_factory=dict)

    def suspects(self) -> list[Played]:
        """The steps that differ on the same values, in order, each as it was played when it differed first."""
        found: dict[Step, Played] = {}
        left = MOST_STEPS

        def look(played: Played) -> None:
            nonlocal left
            left -= 1
            if played.step not in found and left >= 0 and self.differs(played):
                found[played.step] = played

        play(self.lowering.program.body, self.tensors, self.sizes, look)
        return list(found.values())

    def matters(self, suspect: Played) -> bool:
        """Whether PyTorch, with this step as ONNX Runtime does it, gets another result, or none."""

        def look(played: Played) -> Sequence[Any] | None:
            return self.results(played) if played.step is suspect.step else None

        made = answered(lambda: play(self.lowering.program.body, self.tensors, self.sizes, look))
        return isinstance(made, (Refusal, OutOfMemory)) or _apart(made, self.own)

    def gave(self, played: Played) -> str:
        """What ONNX Runtime gives for the step, in words."""
        try:
            made = self.results(played) or []
        except RuntimeFailure as failure:
            return str(failure)
        return ", ".join(written(item) for item in made if isinstance(item, torch.Tensor))

    def differs(self, played: Played) -> bool:
        if getattr(played.step.target, "overloadpacket", None) in UNDEFINED:
            return False
        try:
            made = self.results(played)
        except RuntimeFailure:
            return True
        return made is not None and any(
            one is not two and _differ(one, two) and _differ(one, two, _in_double(played, k))
            for k, (one, two) in enumerate(zip(made, played.outputs, strict=True))
        )

    def results(self, played: Played) -> list[Any] | None:
        """What ONNX Runtime gives for the step, and PyTorch's where it gives none; None if it can't be run alone."""
        key = _sign(played)
        if key not in self.loaded:
            self.loaded[key] = self.load(played)
        alone = self.loaded[key]
        return None if alone is None else alone.run(played)

    def load(self, played: Played) -> _Alone | None:
        step, names, lowering = played.step, tuple(played.sizes), self.lowering
        if step.target is number_of:
            return None
        try:
            model, places = lower_alone(step, names, opset=lowering.opset, translations=lowering.translations)
            return _Alone(runtime_of(model), names, places)
        except (Fault, RuntimeFailure):
            return None


def _sign(played: Played) -> Any:
    """The same for steps that are translated alike: those of another layer, but for its weights."""
    step = played.step
    if step.body is not None:
        return step
    order = {value: number for number, value in enumerate(dict.fromkeys(step.inputs))}
    given = map_leaves(
        lambda leaf: f"{order[leaf]} {leaf!r}" if isinstance(leaf, Value) else leaf, (step.args, step.kwargs)
    )
    return step.target, repr(given), repr(step.outputs), tuple(played.sizes)


@dataclass(frozen=True, slots=True)
class _Alone:
    """A loaded model of one step: the sizes that it takes after the step's inputs, and which outputs it has."""

    runtime: Runtime
    names: Sequence[str]
    places: Sequence[int]

    def run(self, played: Played) -> list[Any]:
        inputs = dict(zip(played.step.inputs, played.inputs, strict=True))  # each once
        arrays = [_array(tensor) for tensor in inputs.values()]
        arrays += [to_numpy(torch.tensor(played.sizes[name])) for name in self.names]
        feed = dict(zip(self.runtime.input_names, arrays, strict=True))
        made = list(played.outputs)
        for place, array in zip(self.places, self.runtime.run(feed), strict=True):
            made[place] = _tensor(array, made[place])
        return made


def _array(tensor: torch.Tensor) -> Array:
    return to_numpy(torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor)


def _tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    """An array as a tensor; pairs in the last axis, where a complex one is expected, as complex numbers."""
    made = to_torch(array)
    return torch.view_as_complex(made) if like.is_complex() and array.shape[-1:] == (2,) else made


def _apart(
    made: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], exact: Sequence[torch.Tensor] | None = None
) -> bool:
    return len(made) != len(wanted) or any(
        _differ(one, two, None if exact is None else exact[k])
        for k, (one, two) in enumerate(zip(made, wanted, strict=True))
    )


def _differ(made: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor | None = None) -> bool:
    """Whether two tensors differ by more than verify would allow."""
    return made.dtype != wanted.dtype or bool(compare("", wanted, exact, _array(made)).why)


def _in_double(played: Played, place: int) -> torch.Tensor | None:
    """One of the step's outputs in double precision; None where PyTorch has none."""

    def wider(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.double()
        return torch.float64 if isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf

    args, kwargs = map_leaves(wider, played.args), map_leaves(wider, dict(played.kwargs))
    with torch.no_grad():
        made = answered(lambda: played.step.target(*args, **kwargs))
    if isinstance(made, (Refusal, OutOfMemory)):
        return None
    found: torch.Tensor = made[place] if isinstance(made, (list, tuple)) else made
    return found


def _constants(body: Tape | Split) -> dict[Value, torch.Tensor]:
    """The constants of a program, those of every side of every choice included."""
    tapes = [inner for inner in bodies(body) if isinstance(inner, Tape)]
    return {value: tensor for tape in tapes for value, tensor in tape.constants.items()}
