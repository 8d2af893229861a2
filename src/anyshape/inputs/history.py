"""History: whether what a run leaves behind in a module changes the results of later runs.

A cache that only saves time does not: a grid made anew when the size changes, a table that grows. A mean that runs
along does, and so does a table made for the first sizes and used for all. Such a model has no one result that a file
could be held to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from anyshape.compare import same
from anyshape.errors import HistoryFault
from anyshape.inputs.case import Case, OutOfMemory, Outputs, Refusal
from anyshape.inputs.parts import Attribute
from anyshape.source.setters import line_that_sets
from anyshape.torch_bridge import tensors

__all__ = ["HINT", "History", "agree"]

Given = Sequence[torch.Tensor]
Answer = Outputs | Refusal | OutOfMemory

FURTHER = 4  # times as large as before: a change is looked at again
MOST_TOLD = 3  # attributes that a message names
MOST_TRIED = 8  # that are put back alone, to see which of them matters
ROUNDINGS = 200
HINT = "Pass it as an input and return it as an output, or make it anew in every call."


@dataclass(slots=True)
class _Looked:
    """At which inputs the effect of one set of changes was looked at."""

    last: list[Given] = field(default_factory=list)  # one at most
    sizes: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # of each axis
    largest: int = 0
    other_values: bool = False  # were tried at sizes that were tried before

    def is_due(self, given: Given) -> bool:
        """At first; once with other values; when an axis has a second size; and when all is far larger."""
        if not self.last:
            return True
        new = [axis for axis, size in _axes(given).items() if size not in self.sizes[axis]]
        if not new:
            return not self.other_values and not _are_equal(given, self.last[0])
        return any(len(self.sizes[axis]) == 1 for axis in new) or _numbers(given) >= FURTHER * self.largest

    def note(self, given: Given) -> None:
        """These inputs are looked at."""
        axes = _axes(given)
        if self.last and all(size in self.sizes[axis] for axis, size in axes.items()):
            self.other_values = True
        for axis, size in axes.items():
            self.sizes.setdefault(axis, set()).add(size)
        self.largest = max(self.largest, _numbers(given))
        self.last = [[tensor.clone() for tensor in given]]


class History:
    """Looks at the effect of what runs change: a few times for each set of attributes, as it takes more runs."""

    def __init__(self) -> None:
        self._looked: dict[frozenset[Attribute], _Looked] = {}
        self._found: list[tuple[frozenset[Attribute], HistoryFault]] = []

    def look(self, case: Case, changed: frozenset[Attribute], given: Given, outputs: Outputs) -> None:
        """`HistoryFault` if runs after this one, which changed attributes, have other results than a first run."""
        for known, fault in self._found:
            if known <= changed:
                raise fault
        looked = self._looked.setdefault(changed, _Looked())
        with tensors.unseen():
            if looked.is_due(given):
                example = [item.example for item in case.inputs]
                others = [other for other in (*looked.last, example) if not _are_equal(given, other)]
                looked.note(given)
                try:
                    _compare(case, given, outputs, others)
                except HistoryFault as fault:
                    self._found.append((changed, fault))
                    raise


def _compare(case: Case, given: Given, outputs: Outputs, others: Sequence[Given]) -> None:
    for before, now, after in _in_a_row(case, [given, given, *others], [*others[::-1], given]):
        fresh = outputs if now is given else _fresh(case, now)
        if not agree(fresh, after) and agree(fresh, _fresh(case, now)):
            raise _fault(case, before, now, fresh, after)


def _in_a_row(case: Case, *rows: list[Given]) -> Iterator[tuple[list[Given], Given, Answer]]:
    """Runs one after the other, the module as they leave it: the inputs before, those of a run, and what came of it."""
    for row in rows:
        case.state.restore()
        answers = [_copied(case.answer(given)) for given in row]
        case.state.restore()
        yield from ((row[:k], row[k], answers[k]) for k in range(1, len(row)))


def _fresh(case: Case, given: Given) -> Answer:
    """What the module answers when it has seen nothing else."""
    case.state.restore()
    answer = _copied(case.answer(given))
    case.state.restore()
    return answer


def _copied(answer: Answer) -> Answer:
    return answer.copied() if isinstance(answer, Outputs) else answer


def agree(fresh: Answer, later: Answer) -> bool:
    """Whether a later run gave what the first did, but for rounding; nothing is said of runs that could not be."""
    if not isinstance(fresh, Outputs) or isinstance(later, OutOfMemory):
        return True
    if isinstance(later, Refusal) or len(fresh.tensors) != len(later.tensors):
        return False
    return all(map(_nearly, fresh.tensors, later.tensors))


def _nearly(one: torch.Tensor, two: torch.Tensor) -> bool:
    """A table that is made longer may be rounded otherwise; next to a mask's huge numbers, others still count."""
    if not one.is_floating_point() or not one.numel():
        return same(one, two)
    slack = ROUNDINGS * torch.finfo(one.dtype).eps
    typical = one.double().abs().nan_to_num(0, 0, 0).median().item()
    return same(one, two, min(slack, 0.05), min(slack, 0.05) * typical)


def _fault(case: Case, before: Sequence[Given], now: Given, fresh: Answer, after: Answer) -> HistoryFault:
    names = _to_blame(case, before, now, fresh)
    told = [str(name) for name in names[:MOST_TOLD]]
    more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
    lines = (line_that_sets(name.kind, name.name) for name in names)
    does = f"raises {after.text.rstrip('.')}" if isinstance(after, Refusal) else "gives another result"
    return HistoryFault(
        f"the model's result depends on what it has seen before: attribute{'s' * (len(names) > 1)} "
        f"{', '.join(told)}{more}; at {_text(case, now)} it {does} after a run at {_text(case, before[-1])}",
        where=next((line for line in lines if line is not None), None),
        hint=HINT,
    )


def _to_blame(case: Case, before: Sequence[Given], now: Given, fresh: Answer) -> list[Attribute]:
    """The attributes each of which, if it alone is put back, makes the result right again; if none does, all."""
    changed = _after(case, before)
    alone = []
    for attribute in changed[:MOST_TRIED]:
        _after(case, before)
        case.state.restore(attribute)
        if agree(fresh, case.answer(now)):
            alone.append(attribute)
    case.state.restore()
    return alone or changed


def _after(case: Case, before: Sequence[Given]) -> list[Attribute]:
    """Brings the module into the state after these runs; the attributes that they change."""
    case.state.restore()
    for given in before:
        case.answer(given)
    return sorted(case.state.changed(), key=lambda attribute: (attribute.owner, attribute.name))


def _numbers(given: Given) -> int:
    return sum(tensor.numel() for tensor in given)


def _axes(given: Given) -> dict[tuple[int, int], int]:
    """The size of each axis of each input."""
    return {
        (number, axis): size for number, tensor in enumerate(given) for axis, size in enumerate(tensor.shape)
    }


def _are_equal(one: Given, two: Given) -> bool:
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, two, strict=True))


def _text(case: Case, given: Given) -> str:
    """``tokens [2, 6], mask [2, 6]``"""
    return ", ".join(
        f"{item.path} {list(tensor.shape)}" for item, tensor in zip(case.inputs, given, strict=True)
    )
