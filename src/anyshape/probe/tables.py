"""Where a model ends because its tables do: position embeddings, read by an index that grows with a size.

No run far out is needed to see it coming: at three sizes near by, each index is so many rows away from the end of its
table. Where that number falls evenly as a size grows, the size at which nothing is left is known. PyTorch is then
asked on both sides of it, in runs that stop after that line, so that a model of any size can be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from anyshape.errors import SourceLine
from anyshape.inputs.case import Refusal
from anyshape.probe.bounds import Bound, Direction, at
from anyshape.probe.oracle import Oracle, Point
from anyshape.source.lines import innermost_caller
from anyshape.torch_bridge import indexing, process

__all__ = ["table_bounds"]

STEPS = (1, 3)  # where an index is looked at, beside the point itself
LONGEST_RUN = 3.0  # nominal seconds: a longer one is not made only to confirm an end
LARGEST_ELEMENTS = 3_000_000
MOST_LINES = 8  # that are asked about


@dataclass
class _Looked:
    """What one run showed of each line that indexes: the rows left, how often it ran, and the work before the last."""

    left: dict[SourceLine, int] = field(default_factory=dict)
    times: Counter[SourceLine] = field(default_factory=Counter)
    work: dict[SourceLine, float] = field(default_factory=dict)


class _FarEnough(BaseException):
    """Stops a run once it has shown what it was made for; no model catches this."""


def table_bounds(oracle: Oracle, low: Point, directions: Sequence[Direction]) -> list[Bound]:
    """The bounds that tables set to the sizes, as PyTorch confirms them."""
    if not oracle.has_values or not directions:
        return []
    here = _looked_at(oracle, low)
    if here is None or not here.left:
        return []
    rates: dict[SourceLine, dict[int, Fraction]] = {line: {} for line in here.left}
    runs: dict[int, list[_Looked]] = {}
    for number, direction in enumerate(directions):
        runs[number] = []
        for times in STEPS:
            moved = at(low, direction, low[direction.root] + times * direction.step)
            looked = _looked_at(oracle, moved) if moved is not None and oracle.trial(moved).ok else None
            if looked is None:
                return []
            runs[number].append(looked)
        for line in list(rates):
            rate = _rate(here, runs[number], line)
            if rate is None:
                del rates[line]
            elif rate:
                rates[line][number] = rate / direction.step
    made: dict[tuple[tuple[int, Fraction], ...], Bound] = {}
    for line in sorted(rates, key=lambda line: here.left[line])[:MOST_LINES]:
        bound = _bound(low, directions, rates[line], here.left[line])
        key = tuple(sorted(bound.rates.items()))
        if not any(rate > 0 for rate in bound.rates.values()) or (
            key in made and made[key].most <= bound.most
        ):
            continue
        confirmed = _confirmed(oracle, low, directions, bound, line, here, runs)
        if confirmed is not None:
            made[key] = confirmed
    return list(made.values())


def _rate(here: _Looked, runs: Sequence[_Looked], line: SourceLine) -> Fraction | None:
    """By how many rows an index comes closer to the end with each step; None if not evenly."""
    if any(line not in looked.left for looked in runs):
        return None
    rates = {
        Fraction(here.left[line] - looked.left[line], times)
        for times, looked in zip(STEPS, runs, strict=True)
    }
    return rates.pop() if len(rates) == 1 else None


def _bound(low: Point, directions: Sequence[Direction], rates: Mapping[int, Fraction], left: int) -> Bound:
    """What is left at the low point, less what each size takes of it, is not below 0."""
    used = sum((rate * low[directions[number].root] for number, rate in rates.items()), Fraction(0))
    scale = 1
    for rate in rates.values():
        scale *= rate.denominator
    return Bound({n: rate * scale for n, rate in rates.items()}, int((left + used) * scale))


def _confirmed(
    oracle: Oracle,
    low: Point,
    directions: Sequence[Direction],
    bound: Bound,
    line: SourceLine,
    here: _Looked,
    runs: Mapping[int, Sequence[_Looked]],
) -> Bound | None:
    """The bound with PyTorch's objection, if it goes past the line up to it and objects beyond, along each size."""
    for number, rate in bound.rates.items():
        if rate <= 0:
            continue
        direction = directions[number]
        end = bound.end_of(number, low, directions)
        last, beyond = (at(low, direction, size) for size in (end, end + direction.step))
        if last is None or beyond is None or oracle.elements(beyond) > LARGEST_ELEMENTS:
            return None
        steps = (end - low[direction.root]) // direction.step + 1
        if _foreseen(here, runs[number], line, steps) > LONGEST_RUN:
            return None
        if _objection(oracle, last, line, here.times[line]) is not None:
            return None
        objection = _objection(oracle, beyond, line, here.times[line])
        if objection is None:
            return None
        bound = Bound(bound.rates, bound.most, objection)
    return bound


def _foreseen(here: _Looked, runs: Sequence[_Looked], line: SourceLine, steps: int) -> float:
    """The work before a line so many steps further, by the curve through what it is at three sizes."""
    near, far = (
        (looked.work[line] - here.work[line]) / times for times, looked in zip(STEPS, runs, strict=True)
    )
    bend = (far - near) / (STEPS[1] - STEPS[0])
    return here.work[line] + steps * (near + bend * (steps - STEPS[0]))


def _looked_at(oracle: Oracle, point: Point) -> _Looked | None:
    """A whole run on real tensors, looked at; None if PyTorch refuses it."""
    looked = _Looked()

    def seen(left: int) -> Callable[[], None]:
        line = innermost_caller()
        if line is not None:
            looked.left[line] = min(left, looked.left.get(line, left))
            looked.times[line] += 1
            looked.work[line] = mode.seconds
        return lambda: None

    mode = indexing.Indexed(seen)
    return None if isinstance(_run(oracle, point, mode), Refusal) else looked


def _objection(oracle: Oracle, point: Point, line: SourceLine, times: int) -> Refusal | None:
    """PyTorch's objection on its way past a line, which it passes so many times."""
    passed = 0

    def seen(left: int) -> Callable[[], None]:
        return stop if innermost_caller() == line else lambda: None

    def stop() -> None:
        nonlocal passed
        passed += 1
        if passed >= times:
            raise _FarEnough

    try:
        answer = _run(oracle, point, indexing.Indexed(seen))
    except _FarEnough:
        return None
    return answer if isinstance(answer, Refusal) else None


def _run(oracle: Oracle, point: Point, mode: indexing.Indexed) -> object:
    tensors = oracle.tensors(point)
    with process.quiet(), mode:
        return oracle.case.run(tensors)
