"""blame for a wrong trace: the program does something else than the module, so both are run and lined up."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.capture import Traces
from anyshape.capture.tape import Played, Split, Tape, chosen, play, rolled
from anyshape.capture.tape.constants import index_tensor, sizes_tensor
from anyshape.capture.tape.steps import NUMBERS, compared, either, leaves, repeated
from anyshape.compare import compare
from anyshape.contract.agree import Agreed
from anyshape.errors import SourceLine
from anyshape.inputs.case import Case, answered
from anyshape.lower.operators import translated
from anyshape.runtimes.onnx_runtime import to_numpy

__all__ = ["Cause", "capture_cause"]

# No operators: what only a tape for all sizes has, and control flow, of which the steps inside are compared.
NOT_RUN = (rolled, chosen, either, repeated, *NUMBERS, compared, sizes_tensor, index_tensor)
MOST_SHOWN = 4  # numbers of a tensor


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a model is wrong, in the words of a fault: what to say of it, the line, and a script that shows it."""

    hint: str
    where: SourceLine | None = None
    script: str = ""
    in_trace: bool = False  # the trace is wrong, rather than how it was translated


def capture_cause(
    body: Tape | Split,
    case: Case,
    agreed: Agreed,
    sizes: Mapping[str, int],
    tensors: Sequence[torch.Tensor],
    operators: Collection[Any],
) -> Cause | None:
    """The first line at which the program computes something else than the module does at these sizes."""
    run = Traces(case, agreed, translated().union(operators)).of_run(sizes, tensors)
    mine, theirs = _steps(body, tensors, sizes), _steps(run, tensors, {})
    skipped: tuple[list[Played], list[Played]] | None = None
    for ours, other in _lined_up(mine, theirs):
        if len(ours) != 1 or len(other) != 1 or _key(ours[0]) != _key(other[0]):
            skipped = skipped or (ours, other)
        elif _same(ours[0].outputs, other[0].outputs):
            skipped = None
        elif skipped is not None and not _same(ours[0].inputs, other[0].inputs):
            break
        else:
            return _other_numbers(ours[0], other[0], sizes)
    return None if skipped is None else _other_steps(*skipped)


def _steps(body: Tape | Split, tensors: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> list[Played]:
    """The steps as they were run, in order; up to the one that PyTorch refuses."""
    made: list[Played] = []

    def look(played: Played) -> None:
        if played.step.target not in NOT_RUN:
            made.append(played)

    answered(lambda: play(body, tensors, sizes, look))
    return made


def _lined_up(
    mine: Sequence[Played], theirs: Sequence[Played]
) -> Iterator[tuple[list[Played], list[Played]]]:
    """Pairs of steps that are the same operator at the same line, and what lies between them."""
    matcher = difflib.SequenceMatcher(None, list(map(_key, mine)), list(map(_key, theirs)), autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            yield from (([one], [two]) for one, two in zip(mine[a:b], theirs[c:d], strict=True))
        else:
            yield list(mine[a:b]), list(theirs[c:d])


def _key(played: Played) -> tuple[str, Any]:
    return str(played.step.target), played.step.where


def _same(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return len(one) == len(two) and all(map(_alike, one, two))


def _alike(one: Any, two: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return one is two
    if one.is_complex():
        one, two = torch.view_as_real(one.resolve_conj()), torch.view_as_real(two.resolve_conj())
    return one.dtype == two.dtype and not compare("", two, None, to_numpy(one)).why


def _other_numbers(mine: Played, theirs: Played, sizes: Mapping[str, int]) -> Cause:
    pairs = zip(leaves((mine.args, mine.kwargs)), leaves((theirs.args, theirs.kwargs)), strict=False)
    found = ((_shown(one), _shown(two)) for one, two in pairs if not _equal(one, two))
    ours, other = next(found, ("other tensors", "its own"))
    return Cause(
        f"The trace has {ours} at this line where the model has {other} ({theirs.step.target}): how it is computed "
        f"could not be followed. Compute it from shapes, in simple steps, or declare a range of "
        f"{', '.join(sizes)} where it is right.",
        theirs.step.where or mine.step.where,
        in_trace=True,
    )


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(two, torch.Tensor):
        return _alike(one, two)
    return bool(one == two)


def _shown(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return str(leaf)
    if leaf.numel() > MOST_SHOWN:
        return f"a tensor {list(leaf.shape)}"
    return str(leaf.tolist())


def _other_steps(mine: Sequence[Played], theirs: Sequence[Played]) -> Cause:
    ours, other = (str(steps[0].step.target) if steps else "" for steps in (mine, theirs))
    first = (theirs or mine)[0].step
    what = f"runs {other} at this line" if other else f"does not run {ours} at this line"
    lacks = f", where the trace has {ours}" if ours and other else ", which the trace lacks" if other else ""
    return Cause(
        f"At these sizes the model {what}{lacks}: what decides it could not be followed. "
        "Declare a range of sizes at which the model takes one way.",
        first.where,
        in_trace=True,
    )
