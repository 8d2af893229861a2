"""Changes: a number in the source that is a size at the example, and the expression that it may stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyshape.dims import Expr, names
from anyshape.source.literals import Literal

__all__ = ["Axis", "Change", "axis_name", "derived", "overrides", "plain"]

Axis = tuple[int, int]  # the number of an input, and of one of its axes
PARTS = (2, 3, 4, 5, 7, 8, 14, 16, 32)


def axis_name(axis: Axis) -> str:
    """The name of an axis' size in expressions, until it is told in the user's words."""
    return names.axis_size(*axis)


@dataclass(frozen=True, slots=True)
class Change:
    """At a literal, ``value`` becomes ``size``; of a row of numbers, the one at ``place``."""

    literal: Literal
    value: int
    size: Expr  # over axes
    place: int | None = None

    def apply(self, held: Any, sizes: Mapping[str, int]) -> Any:
        """What the literal holds instead: only where it holds what it held at the example."""
        if self.place is None:
            return self.size.evaluate(sizes) if held == self.value else held
        if isinstance(held, int) or len(held) <= self.place or held[self.place] != self.value:
            return held
        row = list(held)
        row[self.place] = self.size.evaluate(sizes)
        return row if isinstance(held, list) else tuple(row)


def overrides(changes: Iterable[Change], sizes: Mapping[str, int]) -> dict[Literal, Any]:
    """What to put in the place of what the literals hold, at these sizes."""
    made: dict[Literal, list[Change]] = {}
    for change in changes:
        made.setdefault(change.literal, []).append(change)

    def applied(held: Any, here: Sequence[Change]) -> Any:
        for change in here:
            held = change.apply(held, sizes)
        return held

    return {literal: (lambda held, here=here: applied(held, here)) for literal, here in made.items()}


def plain(seen: Mapping[Literal, Sequence[Any]], axis: Axis, size: int) -> list[Change]:
    """Every number that equals the size."""
    name = Expr.of(axis_name(axis))
    return [Change(literal, size, name, place) for literal, value, place in _numbers(seen) if value == size]


def derived(seen: Mapping[Literal, Sequence[Any]], axis: Axis, sizes: Mapping[Axis, int]) -> list[Change]:
    """Every number that is one more or less than the size, a part or multiple of it, or of its product with another."""
    return [
        Change(literal, value, form, place)
        for literal, value, place in _numbers(seen)
        if value > 1 and value != sizes[axis]
        for form in dict.fromkeys(_forms(value, axis, sizes))
    ]


def _forms(value: int, axis: Axis, sizes: Mapping[Axis, int]) -> Iterator[Expr]:
    """What a number may be, if it is not the size itself."""
    size, name = sizes[axis], Expr.of(axis_name(axis))
    yield from (name + step for step in (-1, 1) if value == size + step)
    if value % size == 0:
        yield name * (value // size)
    if size % value == 0:
        yield name // (size // value)
    for part in PARTS:
        yield from (
            form
            for form in (name // part, (name + part - 1) // part)
            if form.evaluate({axis_name(axis): size}) == value
        )
    for other, length in sizes.items():
        if other == axis or length < 2:
            continue
        theirs = Expr.of(axis_name(other))
        if value == size + length:
            yield name + theirs
        if (size * length) % value == 0:
            yield name * theirs // (size * length // value)
        for part in PARTS:
            if size % part == length % part == 0 and value == (size // part) * (length // part):
                yield (name // part) * (theirs // part)


def _numbers(seen: Mapping[Literal, Sequence[Any]]) -> Iterator[tuple[Literal, int, int | None]]:
    for literal, values in seen.items():
        for value in values:
            if isinstance(value, int):
                yield literal, value, None
            else:
                yield from ((literal, item, place) for place, item in enumerate(value))
