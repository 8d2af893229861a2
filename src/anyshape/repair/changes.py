"""Changes: a number in the source that is a size at the example, and the expression that it may stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyshape.dims import Expr
from anyshape.source.literals import Site

__all__ = ["Axis", "Change", "axis_name", "derived", "overrides", "plain"]

Axis = tuple[int, int]  # the number of an input, and of one of its axes
PARTS = (2, 3, 4, 5, 7, 8, 14, 16, 32)


def axis_name(axis: Axis) -> str:
    """The name of an axis' size in expressions, until it is told in the user's words."""
    return f"_a{axis[0]}_{axis[1]}"


@dataclass(frozen=True, slots=True)
class Change:
    """At a site, ``value`` becomes ``size``; of a row of numbers, the one at ``place``."""

    site: Site
    value: int
    size: Expr  # over axes
    place: int | None = None

    def apply(self, held: Any, sizes: Mapping[str, int]) -> Any:
        """What the site holds instead: only where it holds what it held at the example."""
        if self.place is None:
            return self.size.evaluate(sizes) if held == self.value else held
        if isinstance(held, int) or len(held) <= self.place or held[self.place] != self.value:
            return held
        row = list(held)
        row[self.place] = self.size.evaluate(sizes)
        return row if isinstance(held, list) else tuple(row)


def overrides(changes: Iterable[Change], sizes: Mapping[str, int]) -> dict[Site, Any]:
    """What to put in the place of what the sites hold, at these sizes."""
    made: dict[Site, list[Change]] = {}
    for change in changes:
        made.setdefault(change.site, []).append(change)

    def applied(held: Any, here: Sequence[Change]) -> Any:
        for change in here:
            held = change.apply(held, sizes)
        return held

    return {site: (lambda held, here=here: applied(held, here)) for site, here in made.items()}


def plain(seen: Mapping[Site, Sequence[Any]], axis: Axis, size: int) -> list[Change]:
    """Every number that equals the size."""
    name = Expr.of(axis_name(axis))
    return [Change(site, size, name, place) for site, value, place in _numbers(seen) if value == size]


def derived(seen: Mapping[Site, Sequence[Any]], axis: Axis, sizes: Mapping[Axis, int]) -> list[Change]:
    """Every number that is one more or less than the size, a part or multiple of it, or of its product with another."""
    return [
        Change(site, value, form, place)
        for site, value, place in _numbers(seen)
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


def _numbers(seen: Mapping[Site, Sequence[Any]]) -> Iterator[tuple[Site, int, int | None]]:
    for site, values in seen.items():
        for value in values:
            if isinstance(value, int):
                yield site, value, None
            else:
                yield from ((site, item, place) for place, item in enumerate(value))
