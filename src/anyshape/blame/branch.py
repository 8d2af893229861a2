"""Branch: the line whose condition on sizes tells where a file is wrong from where it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anyshape.capture import Guard
from anyshape.contract import Contract
from anyshape.errors import Fault, SourceLine
from anyshape.verify.shrink import Shrunk
from anyshape.verify.verdict import Row, Verdict

__all__ = ["Failure", "blamed"]


@dataclass(frozen=True, slots=True)
class Failure:
    """The smallest sizes at which a file is wrong, what happens there, and the line that takes part in it."""

    shrunk: Shrunk
    row: Row
    where: SourceLine | None = None
    story: str = ""  # what the line has to do with it
    condition: str = ""  # on sizes, in that line


def blamed(
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
