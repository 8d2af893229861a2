"""Draws: the sizes and values at which a file is tried, most of them where it would break if it does.

Sizes come from the whole contract and from the program's own axes, which the contract may have narrowed; at ends of
ranges, and around the numbers in the source, also where two sizes meet one number in a product or a sum.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuzzing.program import MASKS, SCALES, Program, numbers_of

__all__ = ["Draw", "draws_of"]

MOST_NUMBERS = 300_000  # in all inputs
MOST_SIZE = 1500
MOST_WORK = 20_000_000  # numbers times the largest size: what attention costs
USUAL = (1, 2, 3, 4, 5, 7, 8, 13, 16, 30, 60)

Sizes = dict[str, int]


@dataclass(frozen=True)
class Draw:
    """Shapes of the inputs, and how their values are made."""

    shapes: tuple[tuple[int, ...], ...]
    kinds: Mapping[str, Any]
    seed: int
    told: str  # the sizes in words


def draws_of(program: Program, contract: Any, count: int) -> list[Draw]:
    """Draws from the contract and from the program's axes, the same ones each time."""
    chance = random.Random(program.seed)
    numbers = [number for number in numbers_of(program.source) if number <= MOST_SIZE]
    ranges = {dim.name: (dim.range.minimum, dim.range.maximum) for dim in contract.dims}
    inside = _sizes(chance, ranges, numbers, contract.example, contract.allows)
    axes = {axis: _declared(program, axis) for axis in program.sizes}
    anywhere = _sizes(chance, axes, [*numbers, *_ends(ranges)], program.sizes, lambda sizes: True)
    made = _drawn(chance, inside, contract.shapes, count)
    return made + _drawn(chance, anywhere, program.shapes, count // 2)


def _declared(program: Program, axis: str) -> tuple[int, int | None]:
    """The range that was declared for an axis: beyond it, nothing is promised."""
    text = program.declared.get("dims", {}).get(axis)
    if text is None:
        return 0, None
    low, high = text.split("..")
    return int(low), int(high)


def _ends(ranges: Mapping[str, tuple[int, int | None]]) -> list[int]:
    return [end for ends in ranges.values() for end in ends if end is not None and end <= MOST_SIZE]


def _drawn(
    chance: random.Random, sizes: Iterator[Sizes], shapes_at: Callable[[Sizes], Any], count: int
) -> list[Draw]:
    """As many draws of bearable size as can be had."""
    made: dict[tuple[Any, ...], Draw] = {}
    for _, drawn in zip(range(20 * count), sizes, strict=False):
        shapes = shapes_at(drawn)
        total = sum(math.prod(shape) for shape in shapes)
        largest = max((size for shape in shapes for size in shape), default=0)
        if (
            total > MOST_NUMBERS
            or total * largest > MOST_WORK
            or min(map(min, filter(None, shapes)), default=0) < 0
        ):
            continue
        kinds = {"mask": chance.choice(MASKS), "scale": chance.choice(SCALES)}
        told = ", ".join(f"{name}={size}" for name, size in drawn.items())
        draw = Draw(shapes, kinds, chance.randrange(10**6), f"{told} ({kinds['mask']}, {kinds['scale']})")
        made.setdefault((shapes, kinds["mask"], kinds["scale"]), draw)
        if len(made) == count:
            break
    return list(made.values())


def _sizes(
    chance: random.Random,
    ranges: Mapping[str, tuple[int, int | None]],
    numbers: Sequence[int],
    example: Mapping[str, int],
    allowed: Callable[[Sizes], bool],
) -> Iterator[Sizes]:
    """Many legal sizes, or none: usual ones, and one that is the point of it."""
    around = [
        (name, number + step) for name in ranges for number in numbers if number > 2 for step in (-1, 0, 1)
    ]
    chance.shuffle(around)
    for turn in range(5000):
        sizes = {
            name: chance.choice((example[name], _clipped(chance.choice(USUAL), *ends)))
            for name, ends in ranges.items()
        }
        if turn % 2 and around:
            sizes.update([around.pop()])
        elif sizes:
            sizes.update(_special(chance, sizes, ranges, numbers))
        try:
            if all(_clipped(size, *ranges[name]) == size for name, size in sizes.items()) and allowed(sizes):
                yield sizes
        except (ValueError, ZeroDivisionError):  # a relation that has no value there
            continue


def _special(
    chance: random.Random,
    sizes: Sizes,
    ranges: Mapping[str, tuple[int, int | None]],
    numbers: Sequence[int],
) -> Sizes:
    name = chance.choice(list(sizes))
    low, high = ranges[name]
    how = chance.random()
    if how < 0.15:
        return {name: chance.choice((low, low + 1, high if high is not None and high <= MOST_SIZE else low))}
    if how < 0.3:
        return {name: low + int(math.exp(chance.uniform(0, math.log(MOST_SIZE))))}
    number = chance.choice(numbers or [1]) + chance.choice((-1, 0, 0, 1))
    if how < 0.7:
        return {name: number * chance.choice((1, 1, 1, 1, 2, 3))}
    other = chance.choice(list(sizes))
    if how < 0.85:  # both in one product, or a part of the number
        return {name: max(1, number // max(1, sizes[other])) + chance.choice((0, 1))}
    return {name: sizes[other] * chance.choice((1, 1, 2, 3)) + chance.choice((-1, 0, 1, 2))}


def _clipped(size: int, low: int, high: int | None) -> int:
    return max(low, size if high is None else min(size, high))
