"""foreign: the verdict on any ONNX file against the module it is meant to be, whoever exported it.

The file is held to what it says itself: an axis with a number is tried at that number only, and a remark says so.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
import torch

from anyshape.artifact.write import contract_of, read_model
from anyshape.blame.fault import shrunk_failure
from anyshape.capture import Guard, NoTape, capture_symbolic
from anyshape.contract.agree import Agreed, agree
from anyshape.contract.contract import Contract, Dim
from anyshape.contract.declare import FOUND, Declaration, Size, declare
from anyshape.dims import Expr, Mismatch, Range, Relation, bind, parse_expr, parse_range
from anyshape.errors import (
    ContractFault,
    DeclarationError,
    Fault,
    FileError,
    ParseError,
    SourceLine,
    VerifyFault,
)
from anyshape.inputs.read import Case, Input, evaluation_mode, read
from anyshape.lower.operators import TRANSLATED
from anyshape.probe import Evidence, probe
from anyshape.progress import Progress
from anyshape.runtimes.onnx_runtime import OnnxRuntime
from anyshape.verify.shrink import Shrunk
from anyshape.verify.verify import Reference, Row, Verdict, check, verify

__all__ = ["Failure", "FileTensor", "Judgement", "judge", "match_inputs", "tensors_of"]

MOST_MATCHES = 20  # ways to match inputs that are tried at the example

Names = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FileTensor:
    """An input or output as the ONNX file declares it; a size of None is unknown."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def shape_text(self) -> str:
        if self.shape is None:
            return "of unknown shape"
        return "[" + ", ".join("?" if size is None else str(size) for size in self.shape) + "]"

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} {self.shape_text()}"


@dataclass(frozen=True, slots=True)
class Failure:
    """The smallest sizes at which a file is wrong, what happens there, and the line that takes part in it."""

    shrunk: Shrunk
    row: Row
    where: SourceLine | None = None
    story: str = ""  # what the line has to do with it
    condition: str = ""  # on sizes, in that line


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
    runtime = OnnxRuntime.of_file(os.fspath(path))
    module = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    with evaluation_mode(module):
        with told.station("read"):
            case = read(module, args, kwargs)
            inputs = {item.name: item for item in tensors_of(file)[0] if item.name in runtime.input_names}
            matches = match_inputs(case.inputs, list(inputs.values()))
        told.done("read", case.summary)
        with told.station("probe"):
            evidence = probe(case)
        told.done("probe", evidence.summary)
        with told.station("agree"):
            demanded = _demanded(case, shapes, dims)
            everything = {**(labels or {}), **(shapes or {})}
            agreed, remarks = _agreed(case, evidence, matches[0], inputs, everything, dims)
            names = _match(matches, runtime, case, agreed)
        with told.station("capture"):
            guards, fault = _guards(case, agreed)
        held = _held_to_file(agreed, names, inputs, demanded)
        held = _held_to_contract(held, contract_of(file), demanded)
        with told.station("verify"):
            judgement = _judged(_Trial(runtime, Reference(case, held.agreed), names), guards, fault, told)
            empty = [] if judgement.failure else _fails_when_empty(judgement, agreed, runtime, case, names)
    return replace(judgement, remarks=(*remarks, *held.remarks, *empty))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A file, the module that it should be, and the file's names for the module's inputs."""

    runtime: OnnxRuntime
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
        return Judgement(contract, verdict, failure=_blamed(guards, fault, verdict, shrunk, row, contract))
    if not verdict.tried:
        raise VerifyFault("PyTorch refused every size that was tried, so nothing could be verified")
    return Judgement(contract, verdict)


def _fails_when_empty(
    judgement: Judgement, agreed: Agreed, runtime: OnnxRuntime, case: Case, names: Names
) -> list[str]:
    """Size 0 is no reason to call another exporter's file wrong, but worth a remark."""
    left_out = [
        dim.name
        for dim in judgement.contract.dims
        if dim.range.minimum == 1
        and dim.range.maximum != 1  # which would be an axis that the file fixes
        and agreed.contract.dim(dim.name).range.minimum == 0
    ]
    reference = Reference(case, replace(agreed, contract=judgement.contract))
    example = judgement.contract.example
    rows = {name: check(runtime, reference, {**example, name: 0}, names) for name in left_out}
    bad = [f"{name} = 0" for name, row in rows.items() if row.outcome in ("wrong", "fails")]
    return [f"it is wrong at {' and at '.join(bad)}, where PyTorch runs"] if bad else []


def tensors_of(model: ir.Model) -> tuple[list[FileTensor], list[FileTensor]]:
    """The inputs and the outputs as the file declares them; weights that are listed as inputs are left out."""
    weights = set(model.graph.initializers)
    given = [value for value in model.graph.inputs if value.name not in weights]
    return _tensors(given), _tensors(model.graph.outputs)


def _tensors(values: Sequence[ir.Value]) -> list[FileTensor]:
    return [FileTensor(value.name or "", _dtype(value), _shape(value)) for value in values]


def _dtype(value: ir.Value) -> str:
    if value.dtype is None:
        return "?"
    name = value.dtype.name.lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _shape(value: ir.Value) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


# Which input of the file is which input of the module.


def match_inputs(ours: Sequence[Input], theirs: Sequence[FileTensor]) -> list[Names]:
    """For each input of the module, the file's name for it, or None where the file dropped it.

    By name, else by position, else by dtype and rank: then there may be several ways, the likeliest first.
    """
    paths = [_plain(item.path) for item in ours]
    names = {_plain(item.name): item.name for item in theirs}
    if set(names) <= set(paths) and len(names) == len(theirs):
        return [tuple(names.get(path) for path in paths)]
    if len(ours) == len(theirs) and all(map(_alike, ours, theirs)):
        return [tuple(item.name for item in theirs)]
    found = list(itertools.islice(_orders(ours, theirs), MOST_MATCHES))
    if not found:
        raise FileError(
            "the file's inputs can't be matched to the module's\n"
            f"  the file takes:    {'; '.join(map(str, theirs)) or 'nothing'}\n"
            f"  the module takes:  {'; '.join(f'{i.path} {_torch_dtype(i)} {list(i.shape)}' for i in ours)}",
            hint="Give an example with the inputs that the file was exported with.",
        )
    return found


def _plain(name: str) -> str:
    """A name as exporters write it: ``past.0.k`` and ``past_0_k`` are one."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _torch_dtype(item: Input) -> str:
    return str(item.example.dtype).removeprefix("torch.")


def _alike(ours: Input, theirs: FileTensor) -> bool:
    return _torch_dtype(ours) == theirs.dtype and (
        theirs.shape is None or len(theirs.shape) == len(ours.shape)
    )


def _orders(ours: Sequence[Input], theirs: Sequence[FileTensor]) -> Iterator[Names]:
    """Every way to drop inputs of the module so that the rest is like the file's; equal names stay together."""
    by_name = {_plain(item.path): number for number, item in enumerate(ours)}
    fixed = {by_name[_plain(t.name)]: t for t in theirs if _plain(t.name) in by_name}
    left = [item for item in theirs if _plain(item.name) not in by_name]
    free = [number for number in range(len(ours)) if number not in fixed]
    for kept in itertools.combinations(free, len(left)):
        if all(_alike(ours[number], item) for number, item in zip(kept, left, strict=True)):
            chosen = {**fixed, **dict(zip(kept, left, strict=True))}
            yield tuple(chosen[n].name if n in chosen else None for n in range(len(ours)))


def _match(matches: list[Names], runtime: OnnxRuntime, case: Case, agreed: Agreed) -> Names:
    """The first match that is right at the example, where there are several."""
    if len(matches) > 1:
        reference = Reference(case, agreed)
        for names in matches:
            if check(runtime, reference, agreed.contract.example, names).outcome == "right":
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
    provisional = any(name[:1] == "d" and name[1:].isdigit() for name in label.names)  # probe's own names
    return FOUND if provisional or not label.names else label


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


def _demanded(case: Case, shapes: Mapping[str, Any] | None, dims: Mapping[str, Any] | None) -> frozenset[str]:
    declared = declare(case, shapes=shapes).names if shapes else []
    return frozenset((*declared, *(dims or {})))


# What the file says of itself restricts where it is tried.


@dataclass(frozen=True, slots=True)
class _Held:
    agreed: Agreed
    remarks: tuple[str, ...] = ()


def _held_to_file(
    agreed: Agreed, names: Names, sides: Mapping[str, FileTensor], demanded: frozenset[str]
) -> _Held:
    """Axes at which the file has a number are tried at that number only."""
    held = _Held(agreed)
    for item, name in zip(agreed.contract.inputs, names, strict=True):
        shape = None if name is None else sides[name].shape
        if shape is None or len(shape) != len(item.shape):
            continue
        for axis, (size, expression) in enumerate(zip(shape, item.shape, strict=True)):
            if not isinstance(size, int) or expression is None or not expression.names - demanded:
                continue
            held = _fixed(held, expression, size, f"axis {axis} of {item.name}")
    return held


def _fixed(held: _Held, expression: Expr, size: int, place: str) -> _Held:
    contract = held.agreed.contract
    remarks = (*held.remarks, f"the file is fixed at {size} on {place}, PyTorch also accepts other sizes")
    if len(expression.names) > 1:
        relation = Relation(expression, "==", Expr.of(size))
        made = replace(contract, relations=(*contract.relations, relation))
        return _Held(replace(held.agreed, contract=made), remarks)
    (name,) = expression.names
    dim = contract.dim(name)
    try:
        value = bind([(place, [expression], [size])])[name]
    except Mismatch:
        value = -1
    if not dim.range.contains(value):
        raise VerifyFault(
            f"the file is fixed at {size} on {place}, but PyTorch has {expression} there, {dim.text()}"
        )
    if dim.range.minimum == dim.range.maximum:
        return held
    fixed = replace(dim, range=Range(value, value), example=value, reason="the file is fixed there")
    return _Held(_with_dim(held.agreed, fixed), remarks)


def _with_dim(agreed: Agreed, dim: Dim) -> Agreed:
    dims = tuple(dim if old.name == dim.name else old for old in agreed.contract.dims)
    size = agreed.generic[dim.name]
    generic = {**agreed.generic, dim.name: size if dim.range.contains(size) else dim.example}
    return replace(agreed, contract=replace(agreed.contract, dims=dims), generic=generic)


def _held_to_contract(held: _Held, contract: Contract | None, demanded: frozenset[str]) -> _Held:
    """A file of ours is tried where its contract says; another's is not tried at 0, which few exporters mean."""
    agreed = held.agreed
    for dim in agreed.contract.dims:
        if dim.name in demanded:
            continue
        limits = contract.ranges.get(dim.name, Range(0)) if contract is not None else Range(1)
        met = dim.range.intersect(limits)
        if met is not None:
            example = dim.example if met.contains(dim.example) else met.minimum
            agreed = _with_dim(agreed, replace(dim, range=met, example=example))
    if contract is not None:
        known = {dim.name for dim in agreed.contract.dims}
        more = tuple(r for r in contract.relations if r.names <= known and r not in agreed.contract.relations)
        agreed = replace(
            agreed, contract=replace(agreed.contract, relations=(*agreed.contract.relations, *more))
        )
    return replace(held, agreed=agreed)


# The line of source that takes part in a failure.


def _guards(case: Case, agreed: Agreed) -> tuple[tuple[Guard, ...], Fault | None]:
    """The conditions on sizes in the model, read off a symbolic trace; the trace's fault where it fails."""
    try:
        return capture_symbolic(case, agreed, TRANSLATED).guards, None
    except NoTape as fault:
        return fault.guards, None
    except Fault as fault:
        return (), fault
    except Exception:
        return (), None  # a trace only helps to find the line: without one the verdict is the same


def _blamed(
    guards: Sequence[Guard],
    fault: Fault | None,
    verdict: Verdict,
    shrunk: Shrunk,
    row: Row,
    contract: Contract,
) -> Failure:
    """The failure with the line whose condition differs between the sizes that are wrong and those that are right."""
    right = [item.sizes for item in verdict.rows if item.outcome == "right"]
    wrong = [shrunk.sizes, *(item.sizes for item in verdict.failures)]
    telling = [item for item in guards if item.where is not None and _tells(item, shrunk.sizes, right)]
    if telling:
        best = max(telling, key=lambda item: _separation(item, right, wrong))
        here = best.holds(shrunk.sizes)
        other = next(sizes for sizes in _preferred(contract.example, right) if best.holds(sizes) != here)
        return Failure(shrunk, row, best.where, _story(best, other), str(best))
    if fault is not None and fault.where is not None:
        return Failure(
            shrunk, row, fault.where, "The file keeps what that line gave at the sizes of its example"
        )
    return Failure(shrunk, row)


def _story(item: Guard, other: Mapping[str, int]) -> str:
    sizes = ", ".join(f"{name} = {other[name]}" for name in sorted(item.names))
    words = item.where.text.replace(":", " ").split() if item.where is not None else []
    if any(word in ("if", "elif", "while") for word in words):
        return f"The file follows the branch of {sizes} at every size"
    return f"The file does at every size what that line does at {sizes}"


def _preferred(example: dict[str, int], right: list[dict[str, int]]) -> list[dict[str, int]]:
    return [example, *right] if example in right else right


def _tells(item: Guard, wrong: Mapping[str, int], right: Sequence[Mapping[str, int]]) -> bool:
    here = item.holds(wrong)
    return any(item.holds(sizes) != here for sizes in right)


def _separation(item: Guard, right: Sequence[Mapping[str, int]], wrong: Sequence[Mapping[str, int]]) -> float:
    """How well the condition tells wrong sizes from right ones, from 0 to 1."""
    here = item.holds(wrong[0])
    apart = sum(item.holds(sizes) != here for sizes in right) / len(right)
    return apart * sum(item.holds(sizes) == here for sizes in wrong) / len(wrong)
