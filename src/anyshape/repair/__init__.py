"""repair: where a size is written into the source, PyTorch itself runs only at the example. Which number is it?

The numbers in the model's source that equal a size at the example are replaced, as few as possible, by the sizes of
the inputs at hand, until PyTorch takes other sizes. Those that help are the ones to blame; kept replaced, they are the
repair. What the model computes is looked at from outside only: no graph is edited.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anyshape.contract.declare import FOUND, FREE, Declaration
from anyshape.dims import Expr
from anyshape.errors import ContractFault, SourceLine
from anyshape.inputs.case import Case, Outputs
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.probe import Evidence, probe
from anyshape.progress import Progress
from anyshape.repair.changes import Axis, Change, overrides
from anyshape.repair.runs import Runs, axis_sizes, moved
from anyshape.repair.search import Ambiguous
from anyshape.repair.solve import solve
from anyshape.repair.wording import AT_EXAMPLE, told, written
from anyshape.source.literals import Literals, instrumented

__all__ = ["Found", "Repair", "axis_names", "finding", "fixed_axes", "kept", "repairing"]

BUDGET = 20.0  # nominal seconds


@dataclass(frozen=True, slots=True)
class Repair:
    """One number in the source, and what it is replaced by: in words, and as it would be written there."""

    change: Change
    axes: tuple[Axis, ...]
    said: str  # "3 is batch at the example"
    text: str | None  # "x.shape[0]"; None if no tensor there has the size
    caller: SourceLine | None = None  # the user's own line, if the number is in a library

    @property
    def where(self) -> SourceLine:
        return replace(self.change.literal.at(), caller=self.caller)

    def __str__(self) -> str:
        return f"{self.where.file}:{self.where.line}    {self.change.value} became {self.text or self.said}"


@dataclass(frozen=True, slots=True)
class Found:
    """What was found: the repairs, and where several would do."""

    repairs: tuple[Repair, ...] = ()
    ambiguous: tuple[Ambiguous, ...] = ()


def fixed_axes(case: Case, declared: Declaration, evidence: Evidence, *, repair: bool) -> list[Axis]:
    """The axes that should vary and do not: those that are declared dynamic.

    With ``repair``, also those that nothing is declared of, and those that vary in a way that nobody would want.
    """
    found = []
    for number, shape in enumerate(case.shapes):
        for axis in range(len(shape)):
            here = (number, axis)
            named = _is_declared(declared, here)
            open_ = repair and (named or declared.sizes[number][axis] is FOUND)
            fixed = evidence.shapes[number][axis].constant is not None
            if (fixed and (named or open_)) or (open_ and _is_cut_short(case, evidence, here)):
                found.append(here)
    return found


def _is_declared(declared: Declaration, axis: Axis) -> bool:
    said = declared.sizes[axis[0]][axis[1]]
    return said is FREE or (isinstance(said, Expr) and bool(said.names))


def _is_cut_short(case: Case, evidence: Evidence, axis: Axis) -> bool:
    """Whether PyTorch takes nothing above the example's size; or its multiples, but as more rows of the same size.

    A `view(-1, 9)` takes 18 for two rows of 9.
    """
    found, size = evidence.shapes[axis[0]][axis[1]], case.shapes[axis[0]][axis[1]]
    if found.name is not None:
        return evidence.dim(found.name).range.maximum == size
    affine = found.affine()
    if affine is None or list(affine[0].values()) != [size] or size < 2:
        return False
    sizes = {dim.name: dim.example for dim in evidence.dims}
    shapes = moved(case.shapes, (axis,), 2 * size)
    answer = case.run(make_tensors(case, evidence.rules, shapes, sizes))
    if not isinstance(answer, Outputs):
        return False  # it moves with other axes
    before = [tuple(tensor.shape) for tensor in case.outputs.tensors]
    after = [tuple(tensor.shape) for tensor in answer.tensors]
    return all(
        len(one) == len(two)
        and all(b in (a, 2 * a) and (a != size or b == size) for a, b in zip(one, two, strict=True))
        for one, two in zip(before, after, strict=True)
    )


@contextlib.contextmanager
def finding(
    case: Case,
    evidence: Evidence,
    fixed: Sequence[Axis],
    declared: Sequence[Axis],
    names: Mapping[Axis, str],
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[Found, Literals]]:
    """The repairs that let the fixed axes vary, of which some are declared to; inside, the model is instrumented."""
    example = [item.example for item in case.inputs]
    with instrumented(lambda: case.run(example)) as literals:
        case.run(example)
        runs = Runs(case, evidence, fixed, declared, literals, BUDGET)
        solved = solve(runs, fixed, lambda axis: progress(f"why {names[axis]} does not vary"))
        texts = written(runs, solved.changes, solved.solutions)
        repairs = [
            Repair(change, s.axes, told(change, names), texts.get(change), literals.caller_of(change.literal))
            for s in solved.solutions
            for change in s.changes
        ]
        repairs.sort(key=lambda r: (r.change.literal.file, r.change.literal.line, r.change.literal.column))
        yield Found(tuple(repairs), solved.ambiguous), literals


@contextlib.contextmanager
def kept(case: Case, literals: Literals, repairs: Sequence[Repair]) -> Iterator[None]:
    """Within this, whoever calls the model runs it with the repairs, at the sizes of the inputs that it is given."""
    changes = [repair.change for repair in repairs]
    stack: list[contextlib.ExitStack] = []

    def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        tensors = [tensor for _, tensor in flatten((args, kwargs))[0]]
        inner = contextlib.ExitStack()
        inner.enter_context(literals.overriding(overrides(changes, axis_sizes(tensors))))
        stack.append(inner)

    def after(module: torch.nn.Module, args: Any, result: Any) -> None:
        stack.pop().close()

    handles = (
        case.module.register_forward_pre_hook(before, with_kwargs=True),
        case.module.register_forward_hook(after, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def repairing(
    case: Case,
    declared: Declaration,
    evidence: Evidence,
    repair: bool,
    progress: Progress,
) -> Iterator[tuple[Evidence, tuple[Repair, ...]]]:
    """Within this the model runs with its repairs, if ``repair`` is wanted; else a size in the source is a fault.

    Gives what probe finds of the repaired model, and the repairs.
    """
    fixed = fixed_axes(case, declared, evidence, repair=repair)
    if not fixed or case.on_meta:
        yield evidence, ()
        return
    names = axis_names(case, declared)
    wanted = [axis for axis in fixed if _is_declared(declared, axis)]
    with contextlib.ExitStack() as stack:
        with progress.station("repair"):
            found, literals = stack.enter_context(
                finding(case, evidence, fixed, wanted, names, lambda text: progress.doing("repair", text))
            )
        doubts = [doubt for doubt in found.ambiguous if set(doubt.axes) & set(wanted)]
        if doubts:
            raise _doubtful(doubts[0], names)
        if found.repairs and not repair:
            raise _blamed(found, names)
        if found.repairs:
            progress.done(
                "repair", f"{len(found.repairs)} number{'s' * (len(found.repairs) > 1)} in the source"
            )
            stack.enter_context(kept(case, literals, found.repairs))
            with progress.station("probe"):
                evidence = probe(case, progress=lambda text: progress.doing("probe", text))
            progress.done("probe", evidence.summary)
        else:
            stack.close()  # the model runs as it is
        yield evidence, found.repairs


def axis_names(case: Case, declared: Declaration) -> dict[Axis, str]:
    """How a person speaks of each axis: by its declared name, else by its place."""
    made = {}
    for number, item in enumerate(case.inputs):
        for axis in range(len(item.shape)):
            said = declared.sizes[number][axis]
            named = isinstance(said, Expr) and bool(said.names)
            made[number, axis] = str(said) if named else f"{item.path} axis {axis}"
    return made


def _blamed(found: Found, names: Mapping[Axis, str]) -> ContractFault:
    first = found.repairs[0].change.literal
    here = [
        r for r in found.repairs if (r.change.literal.file, r.change.literal.line) == (first.file, first.line)
    ]
    lines = dict.fromkeys(r.where for r in found.repairs)
    others = [f"{where.file}:{where.line}" for where in lines if where != found.repairs[0].where]
    said = " and ".join(dict.fromkeys(r.said.removesuffix(AT_EXAMPLE) for r in here)) + AT_EXAMPLE
    texts = list(dict.fromkeys(r.text for r in here if r.text))
    axes = list(dict.fromkeys(names[r.axes[0]] for r in found.repairs))
    what = "the size is" if len(axes) == 1 else "the sizes are"
    advice = f"write {' and '.join(texts)}" if texts else "take it from the input's shape"
    more = f" Likewise at {', '.join(others)}." if others else ""
    marks = {mark for r in here for mark in r.where.marks}
    return ContractFault(
        f"{' and '.join(axes)} can't vary: {what} written into the model, so PyTorch itself runs at no other",
        where=replace(found.repairs[0].where, marks=tuple(sorted(marks))),
        hint=f"{said}: {advice} instead, or export with repair=True.{more}",
    )


def _doubtful(doubt: Ambiguous, names: Mapping[Axis, str]) -> ContractFault:
    lines = [
        "; ".join(
            f"{c.literal.at().file}:{c.literal.line}, column {c.literal.column + 1}: {told(c, names)}"
            for c in changes
        )
        for changes in doubt.choices
    ]
    return ContractFault(
        f"{names[doubt.axes[0]]} can't vary: a size is written into the model, and it could be one of several numbers, "
        "which give different results:\n  " + "\n  ".join(lines),
        where=doubt.choices[0][0].literal.at(),
        hint="Write the one that is meant as a size of the input.",
    )
