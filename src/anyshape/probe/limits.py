"""How far each direction goes: the smallest and the largest size, and which inputs index a dim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anyshape.dims import Expr
from anyshape.inputs.case import Input, OutOfMemory, Refusal
from anyshape.inputs.values import Rule
from anyshape.probe.bounds import at
from anyshape.probe.oracle import Axis, Oracle, Point, axis_name
from anyshape.probe.relations import Direction

__all__ = ["Limit", "all_low", "largest", "limits", "smallest"]

LARGEST = 2048  # sizes beyond this are not tried
LARGEST_FAKE = 1 << 16  # nor beyond this on fake tensors
LARGEST_ELEMENTS = 3_000_000  # nor inputs with more numbers than this
SLOWEST = 0.5  # nominal seconds: nor runs that would take longer than this


@dataclass(frozen=True, slots=True)
class Limit:
    """The sizes of a direction's root that PyTorch accepts, and why it stops where it does."""

    smallest: int
    largest: int | None
    tried: int  # the largest size that was tried
    below: Refusal | None = None
    above: Refusal | None = None


def limits(oracle: Oracle, low: Point, directions: Sequence[Direction]) -> list[Limit]:
    """A limit for each direction, from a point at which all are low."""
    made = []
    for direction in directions:
        least, below = smallest(oracle, low, direction)
        most, tried, above = largest(oracle, low, direction)
        made.append(Limit(least, most, tried, below, above))
    return made


def _find_indices(oracle: Oracle, base: Point, direction: Direction) -> None:
    """Integers that are all alike don't show what they index: a dim, if its last index is legal and the next is not."""
    points = [moved for by in (1, 3) if (moved := direction.moved(base, by * direction.step)) is not None]
    for number, item in enumerate(oracle.case.inputs):
        if not _is_integer(item) or oracle.rules[number].kind != "constant" or oracle.fake:
            continue
        for axis in direction.rates:
            if points and all(_ends_at(oracle, number, point, axis) for point in points):
                rule = oracle.rules[number]
                index = Rule("index", rule.low, rule.high, (), Expr.of(axis_name(axis)) - 1)
                oracle.rules = (*oracle.rules[:number], index, *oracle.rules[number + 1 :])
                break


def _ends_at(oracle: Oracle, number: int, point: Point, axis: Axis) -> bool:
    """Whether an input may hold all indices of an axis, but not its size."""

    def accepts(value: int) -> bool:
        rules = (*oracle.rules[:number], Rule("constant", value, value), *oracle.rules[number + 1 :])
        return oracle.trial(point, rules).ok

    size = oracle.sizes(point)[axis]
    return accepts(size - 1) and not accepts(size)


def _is_integer(item: Input) -> bool:
    return (
        not item.example.is_floating_point()
        and not item.example.is_complex()
        and item.example.dtype != torch.bool
    )


def all_low(oracle: Oracle, base: Point, directions: Sequence[Direction]) -> dict[Axis, int]:
    """A point at which every dim is as small as can be, but for 0: cheap to run, and free of the others.

    Index-like inputs are found on the way and kept in ``oracle.rules``.
    """
    for direction in directions:
        _find_indices(oracle, base, direction)
    point = dict(base)
    for direction in directions:
        size, _ = smallest(oracle, point, direction)
        wanted = max(size, 2 if direction.step == 1 else direction.step)
        moved = direction.moved(point, wanted - point[direction.root])
        if moved is not None and wanted < point[direction.root] and oracle.trial(moved).ok:
            point = moved
    return point


def smallest(oracle: Oracle, point: Point, direction: Direction) -> tuple[int, Refusal | None]:
    """The smallest size of the root that PyTorch accepts, and its objection to the next smaller one."""
    here, step = point[direction.root], direction.step
    remainder = here % step
    floor = remainder  # zero steps: 0, or what is left over
    bad, objection = floor - step, None
    good = here
    for size in (floor, floor + step, floor + 2 * step):
        if size >= good:
            break
        error = _objection(oracle, point, direction, size)
        if error is None:
            good = size
            break
        bad, objection = size, error
    while good - bad > step:
        middle = bad + (good - bad) // step // 2 * step
        error = _objection(oracle, point, direction, middle)
        if error is None:
            good = middle
        else:
            bad, objection = middle, error
    return good, objection


def largest(oracle: Oracle, point: Point, direction: Direction) -> tuple[int | None, int, Refusal | None]:
    """The largest size that PyTorch accepts (None: no end in sight), how far was tried, and its objection.

    Where real runs become too long, fake tensors go on, if they can follow the model.
    """
    good, bad, objection = _grown(oracle, point, direction, point[direction.root])
    tried, judge = good, oracle
    if bad is None and not oracle.fake and oracle.sizes(point)[direction.root] < LARGEST:
        fakes = oracle.on_fakes()
        if fakes is not None:
            judge = fakes
            good, bad, objection = _grown(fakes, point, direction, good)
    if bad is None:
        return None, tried, None
    good, objection = _end_between(judge, point, direction, good, bad, objection)
    return good, good, objection


def _grown(
    oracle: Oracle, point: Point, direction: Direction, good: int
) -> tuple[int, int | None, Refusal | None]:
    """A size that PyTorch accepts, and one beyond that it does not, with its objection: None if all were accepted."""
    step = direction.step
    growth = 7 if oracle.fake else 3  # a fake run costs the same at any size
    farthest = LARGEST_FAKE if oracle.fake else LARGEST
    while True:
        size = good + max(step, growth * good // step * step)
        moved = at(point, direction, size)
        if (
            moved is None
            or oracle.sizes(moved)[direction.root] > farthest
            or oracle.exhausted
            or (not oracle.fake and _is_too_much(oracle, direction, point, good, moved))
        ):
            return good, None, None
        why = oracle.trial(moved).why
        if isinstance(why, OutOfMemory):
            return good, None, None
        if why is not None:
            return good, size, why
        good = size


def _end_between(
    oracle: Oracle, point: Point, direction: Direction, good: int, bad: int, objection: Refusal | None
) -> tuple[int, Refusal | None]:
    """The largest size that PyTorch accepts, between one that it does and one that it does not."""
    step = direction.step
    likely = oracle.case.weight_sizes()  # a table's rows

    def accepts(size: int) -> bool:
        nonlocal good, bad, objection
        error = _objection(oracle, point, direction, size)
        if error is None:
            good = size
            return True
        bad, objection = size, error
        return False

    while bad - good > step:
        middle = good + (bad - good) // step // 2 * step
        guesses = {good + (size - good) // step * step for size in likely if good + step <= size < bad}
        if guesses and accepts(min(guesses, key=lambda size: abs(size - middle))):
            if bad - good > step:
                accepts(good + step)
        elif bad - good > step:
            accepts(good + (bad - good) // step // 2 * step)
    return good, objection


def _is_too_much(oracle: Oracle, direction: Direction, point: Point, good: int, moved: Point) -> bool:
    """Whether a run would be too long, by what the last one took, or its inputs too large."""
    last = direction.moved(point, good - point[direction.root])
    large = oracle.elements(moved) > LARGEST_ELEMENTS
    return large or last is None or oracle.trial(last).seconds > SLOWEST / 8


def _objection(oracle: Oracle, point: Point, direction: Direction, size: int) -> Refusal | None:
    """PyTorch's objection to a size of the root, if any, once index-like inputs are kept below it."""
    moved = direction.moved(point, size - point[direction.root])
    if moved is None:
        return Refusal(ValueError(f"size {size} is not whole"))
    trial = oracle.trial(moved)
    refusal = Refusal(trial.why.error) if trial.why is not None else None
    if refusal is None or oracle.fake:
        return refusal
    for rules in _index_hypotheses(oracle, direction, moved):
        if oracle.trial(moved, rules).ok and oracle.trial(point, rules).ok:
            oracle.rules = rules
            return None
    return refusal


def _index_hypotheses(oracle: Oracle, direction: Direction, moved: Point) -> list[tuple[Rule, ...]]:
    """Rules under which one integer input stays below an axis of this direction: first up to it, then below it."""
    made, sizes = [], oracle.sizes(moved)
    for number, item in enumerate(oracle.case.inputs):
        rule = oracle.rules[number]
        # Zeros and ones may be a mask, or all that there is to index.
        kinds = ("cells", "constant", "progression", "mask")
        if not _is_integer(item) or rule.kind not in kinds:
            continue
        for axis in direction.rates:
            for offset in (0, -1):
                # An axis without entries has nothing to index: it can't tell its size from the last index.
                if sizes[axis] < 1 or rule.high <= sizes[axis] + offset:
                    continue
                limit = Expr.of(axis_name(axis)) + offset
                index = Rule("index", min(rule.low, 1), rule.high, (), limit)
                made.append((*oracle.rules[:number], index, *oracle.rules[number + 1 :]))
    return made
