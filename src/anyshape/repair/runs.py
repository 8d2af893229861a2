"""Runs: a model at other sizes, with numbers in its source changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from anyshape.compare import same
from anyshape.inputs.case import Case, Outputs
from anyshape.inputs.values import make_tensors
from anyshape.probe import Evidence
from anyshape.repair.changes import Axis, Change, axis_name, overrides
from anyshape.source.lines import line_of_exception
from anyshape.source.literals import Literals
from anyshape.torch_bridge import process, work

__all__ = ["Changes", "Runs", "Shapes", "axis_sizes", "differ", "equal", "moved"]

Shapes = tuple[tuple[int, ...], ...]
Changes = tuple[Change, ...]


class Runs:
    """Runs of a model with changes, each once."""

    def __init__(
        self,
        case: Case,
        evidence: Evidence,
        fixed: Sequence[Axis],
        declared: Collection[Axis],
        literals: Literals,
        budget: float,
    ) -> None:
        self.case, self.evidence, self.declared, self.literals = case, evidence, declared, literals
        # Axes that vary, or should.
        self.free = {
            (number, axis)
            for number, shape in enumerate(evidence.shapes)
            for axis, size in enumerate(shape)
            if size.constant is None or (number, axis) in fixed
        }
        self.numbers = literals.seen  # at the example
        self.example = {dim.name: dim.example for dim in evidence.dims}
        self.fixed = frozenset(name for number, axis in fixed for name in evidence.shapes[number][axis].names)
        self.known: dict[Any, Outputs | str] = {}
        self.left = budget  # in nominal seconds
        with process.quiet():
            self._cost = work.nominal_seconds(lambda: case.run([item.example for item in case.inputs]))

    @property
    def over(self) -> bool:
        return self.left < 0

    def at(self, changes: Changes, shapes: Shapes) -> Outputs | str:
        """The outputs, or why there are none."""
        key = (frozenset(changes), shapes)
        if key not in self.known:
            self.known[key] = self.of(changes, self.tensors(shapes))
        return self.known[key]

    def of(self, changes: Changes, tensors: Sequence[torch.Tensor]) -> Outputs | str:
        self.left -= self._cost
        with self.literals.overriding(overrides(changes, axis_sizes(tensors))):
            answer = self.case.run(tensors)
        if isinstance(answer, Outputs):
            return answer
        return f"{answer.text} {line_of_exception(answer.error)}"

    def tensors(self, shapes: Shapes) -> list[torch.Tensor]:
        return make_tensors(self.case, self.evidence.rules, shapes, self.example)

    def keeps(self, changes: Changes) -> bool:
        """Whether the model computes what it did wherever it ran without the changes."""
        return all(
            not isinstance(made := self.at(changes, shapes), str) and equal(made.tensors, before.tensors)
            for shapes in self.elsewhere()
            if not isinstance(before := self.at((), shapes), str)
        )

    def elsewhere(self) -> Iterator[Shapes]:
        """The example, and each size that was found to vary at two others."""
        yield self.case.shapes
        for dim in self.evidence.dims:
            if dim.name in self.fixed:
                continue
            for size in {dim.generic, dim.example + 1, dim.example + 2} - {dim.example}:
                if dim.range.contains(size):
                    sizes = {**self.example, dim.name: size}
                    yield tuple(
                        tuple(axis.evaluate(sizes) for axis in shape) for shape in self.evidence.shapes
                    )


def axis_sizes(tensors: Sequence[Any]) -> dict[str, Any]:
    """The size of each axis of each input, by its name."""
    return {
        axis_name((number, axis)): size
        for number, tensor in enumerate(tensors)
        for axis, size in enumerate(tensor.shape)
    }


def moved(shapes: Shapes, axes: Sequence[Axis], size: int) -> Shapes:
    """The shapes with some axes of another size."""
    return tuple(
        tuple(size if (number, axis) in axes else old for axis, old in enumerate(shape))
        for number, shape in enumerate(shapes)
    )


def equal(one: Sequence[torch.Tensor], two: Sequence[torch.Tensor]) -> bool:
    """Whether two results are the same, but for rounding."""
    return len(one) == len(two) and all(map(same, one, two))


def differ(one: Outputs | str, two: Outputs | str) -> bool:
    """Whether both ran, and gave different numbers."""
    return not isinstance(one, str) and not isinstance(two, str) and not equal(one.tensors, two.tensors)
