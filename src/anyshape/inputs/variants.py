"""Other values for the same inputs, of kinds that the example does not show: what a model does with them differs.

Variant 0 is what the rules make. In variant 1, 2, 3, … each input has the first, second, third, … of its own kinds:

masks     nothing hidden, ends hidden, starts hidden, hidden at random, one row hidden as a whole
floats    a hundredth as large, ten times as large, of the other sign, with zeros among them
ids       all from the smallest to the largest seen
lengths   shorter than what they are lengths of; up to its very size
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anyshape.inputs.case import Case, Input, Shapes
from anyshape.inputs.values import Rule, make_tensors

__all__ = ["count_variants", "variant_text", "varied_tensors"]

HIDING = -1e3  # a float this low, beside zeros alone, hides what it is added to
Shape = tuple[int, ...]
Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of values: its words, and how they are made from those of the rule and the shapes of all inputs."""

    text: str
    make: Callable[[torch.Tensor, Shapes, Random], Any]


def count_variants(case: Case, rules: Sequence[Rule]) -> int:
    """How many variants there are, the first included."""
    if case.make_inputs is not None or case.on_meta or any(item.example.is_meta for item in case.inputs):
        return 1
    return 1 + max((len(kinds) for kinds in _kinds(case, rules)), default=0)


def variant_text(case: Case, rules: Sequence[Rule], variant: int) -> str:
    """``mask padded on the left, x ten times as large``: what is other than usual."""
    found = zip(case.inputs, _kinds(case, rules), strict=True)
    told = [f"{item.path} {kinds[variant - 1].text}" for item, kinds in found if 0 < variant <= len(kinds)]
    return ", ".join(told)


def varied_tensors(
    case: Case, rules: Sequence[Rule], shapes: Shapes, sizes: dict[str, int], seed: int, variant: int
) -> list[torch.Tensor]:
    """Tensors of ``shapes`` with the values of a variant; an input without such a kind has new ones by its rule."""
    made = make_tensors(case, rules, shapes, sizes, seed, anew=True)
    generator = np.random.default_rng([seed, variant])
    for number, kinds in enumerate(_kinds(case, rules)):
        if 0 < variant <= len(kinds):
            values = kinds[variant - 1].make(made[number], shapes, generator)
            made[number] = torch.as_tensor(values).to(made[number].dtype).to(made[number].device)
    return made


def _kinds(case: Case, rules: Sequence[Rule]) -> list[tuple[_Kind, ...]]:
    return [_kinds_of(case, number, rule) for number, rule in enumerate(rules)]


def _kinds_of(case: Case, number: int, rule: Rule) -> tuple[_Kind, ...]:
    """The kinds of one input, by its example."""
    item = case.inputs[number]
    if item.is_number:
        return NUMBERS[item.example.dtype]
    length = _what_it_measures(case, number)
    levels = _levels(item, rule)
    if levels is not None:
        return _mask_kinds(*levels)
    if length is not None:
        return _length_kinds(*length)
    if rule.kind == "spread":
        return FLOATS
    if rule.kind == "cells":
        return (_Kind("over the whole range of what was seen", _between(int(rule.low), int(rule.high))),)
    return ()


NUMBERS = {
    torch.bool: (_Kind("the other way", lambda made, shapes, generator: ~made),),
    torch.int64: (
        _Kind("one more", lambda made, shapes, generator: made + 1),
        _Kind("twice as large", lambda made, shapes, generator: made * 2),
        _Kind("one less", lambda made, shapes, generator: made - made.sign()),
        _Kind("one", lambda made, shapes, generator: torch.ones_like(made)),
    ),
    torch.float64: (
        _Kind("twice as large", lambda made, shapes, generator: made * 2),
        _Kind("a third as large", lambda made, shapes, generator: made / 3),
        _Kind("one more", lambda made, shapes, generator: made + 1),
    ),
}

FLOATS = (
    _Kind("a hundredth as large", lambda made, shapes, generator: made * 0.01),
    _Kind("ten times as large", lambda made, shapes, generator: made * 10),
    _Kind("of the other sign", lambda made, shapes, generator: -made),
    _Kind("with zeros among them", lambda made, shapes, generator: _with_zeros(made, generator)),
)


def _with_zeros(made: torch.Tensor, generator: Random) -> Any:
    """A third of them zero, and the first row: nothing at all is what many a model is told to add a little to.

    A picture of nothing is none that a model can say much of.
    """
    kept = torch.from_numpy(generator.random(tuple(made.shape)) > 1 / 3)
    if 0 < made.dim() <= 3:
        kept[:1] = False
    return torch.where(kept, made.cpu(), torch.zeros_like(made, device="cpu"))


def _levels(item: Input, rule: Rule) -> tuple[float, float] | None:
    """Of a mask, what hides and what shows; None for anything else."""
    example = item.example
    if example.dim() == 0:
        return None
    if rule.kind == "mask":
        # What most of the example is, shows: a mask may say what is hidden.
        shown = float(example.numel() == 0 or bool((example == 1).sum() * 2 >= example.numel()))
        return 1 - shown, shown
    if example.is_floating_point() and example.numel():
        found = np.unique(example.detach().cpu().to(torch.float64).numpy()).tolist()
        if len(found) == 2 and found[1] == 0 and found[0] <= HIDING:
            return found[0], 0.0
    return None


def _mask_kinds(hidden: float, shown: float) -> tuple[_Kind, ...]:
    def kind(text: str, hides: Callable[[Shape, Random], Any]) -> _Kind:
        return _Kind(
            text, lambda made, shapes, generator: np.where(hides(tuple(made.shape), generator), hidden, shown)
        )

    return (
        kind("with nothing hidden", lambda shape, generator: np.zeros(shape, bool)),
        kind("padded on the left", _starts),
        kind("padded on the right", lambda shape, generator: np.flip(_starts(shape, generator), -1)),
        kind("hidden at random", lambda shape, generator: generator.random(shape) < 0.3),
        kind("with a row hidden as a whole", _one_row),
    )


def _starts(shape: Shape, generator: Random) -> Any:
    """True at the start of each row: another count in each, never all of it."""
    size = shape[-1]
    counts = generator.integers(0, max(size, 1), size=_rows(shape))
    counts[-1:] = size // 2  # one at least is padded, whatever was drawn
    return (np.arange(size) < counts[:, None]).reshape(shape)


def _rows(shape: Shape) -> int:
    return math.prod(shape[:-1])


def _one_row(shape: Shape, generator: Random) -> Any:
    hides = np.zeros(shape, bool)
    hides.reshape(_rows(shape), shape[-1])[:1] = True
    return hides


def _what_it_measures(case: Case, number: int) -> tuple[int, int] | None:
    """Which axis of which other input bounds the numbers of this one: the smallest that does; None for no lengths."""
    example = case.inputs[number].example
    if example.dim() > 1 or example.numel() == 0 or not _counts(example):
        return None
    largest = int(example.max())
    if int(example.min()) < 1 or largest < 2:
        return None
    axes = [
        (size, other, axis)
        for other, item in enumerate(case.inputs)
        for axis, size in enumerate(item.shape)
        if other != number and size >= largest
    ]
    return min(axes)[1:] if axes else None


def _counts(tensor: torch.Tensor) -> bool:
    return not (tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex())


def _length_kinds(other: int, axis: int) -> tuple[_Kind, ...]:
    def drawn(made: torch.Tensor, shapes: Shapes, generator: Random, less: int) -> Any:
        largest = max(1, shapes[other][axis] - less)
        lengths = generator.integers(1, largest, size=made.numel(), endpoint=True)
        lengths[:1] = largest
        # From the longest to the shortest, as some models insist.
        return np.sort(lengths)[::-1].reshape(made.shape).copy()

    return (
        _Kind("shorter than the longest", lambda made, shapes, generator: drawn(made, shapes, generator, 1)),
        _Kind("up to the longest", lambda made, shapes, generator: drawn(made, shapes, generator, 0)),
    )


def _between(low: int, high: int) -> Callable[[torch.Tensor, Shapes, Random], Any]:
    def drawn(made: torch.Tensor, shapes: Shapes, generator: Random) -> Any:
        values = generator.integers(low, high, size=made.shape, endpoint=True)
        values.reshape(-1)[:1], values.reshape(-1)[-1:] = high, low
        return values

    return drawn
