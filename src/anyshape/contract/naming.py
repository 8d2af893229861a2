"""Names a person would choose for sizes that nobody named."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from anyshape.dims import Expr
from anyshape.inputs.case import Case, Input
from anyshape.inputs.values import Rule
from anyshape.probe.siblings import CACHE

__all__ = ["name_dims"]

EDGES = re.compile(r"edge", re.IGNORECASE)
AUDIO = re.compile(r"audio|wave|speech|sound|input_values|signal|mel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dim occurs: the axis of an input, and how many sizes one unit of it makes there."""

    item: Input
    axis: int
    unit: int
    shape: tuple[Expr, ...]
    squared: bool = False


def name_dims(
    case: Case,
    names: Sequence[str],
    shapes: Sequence[tuple[Expr, ...]],
    rules: Sequence[Rule],
    taken: Collection[str] = (),
) -> dict[str, str]:
    """A name for each provisional name, unlike each other and unlike ``taken``."""
    indexed = {name for rule in rules if rule.limit is not None for name in rule.limit.names}
    made: dict[str, str] = {}
    used = set(taken)
    for name in names:
        places = _places(case, name, shapes)
        for candidate in _candidates(places, name in indexed):
            if candidate not in used:
                made[name] = candidate
                used.add(candidate)
                break
    return made


def _places(case: Case, name: str, shapes: Sequence[tuple[Expr, ...]]) -> list[Place]:
    """Where the dim stands on its own come first: those places tell what it is."""
    places = []
    for item, shape in zip(case.inputs, shapes, strict=True):
        for axis, size in enumerate(shape):
            square = size.squared()
            affine = (size if square is None else square[0]).affine()
            if affine is not None and name in affine[0]:
                place = Place(item, axis, affine[0][name], shape, square is not None)
                places.append((size.names != {name}, place.squared, place.unit > 1, place))
    return [place for *_, place in sorted(places, key=lambda ranked: ranked[:3])]


def _candidates(places: list[Place], indexed: bool) -> list[str]:
    first = places[0]
    kinds = [word for place in places if (word := _kind(place, indexed))]
    # An axis of a list of edges is sure to count edges; the other kinds are likely.
    kind = "edges" if "edges" in kinds else next(iter(kinds), "")
    own = re.sub(r"\W+", "_", first.item.path)
    own = own if own.isidentifier() else f"input_{own}"
    parts = first.item.path.split(".")
    # The shortest end of the path that can be a name: keys, or boxes_0, or past_0_1.
    ends = ["_".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]
    last = next((end for end in ends if end.isidentifier()), own)
    whole = f"{own}_{first.axis}"
    if not kind:
        return [f"{last}_{first.axis}", whole, f"{whole}_size"]
    if first.unit > 1:
        kind = {"height": "h", "width": "w", "grid": "grid"}.get(kind, f"{kind}_blocks")
    instead = ["grid"] if any(place.squared for place in places) else []
    return [kind, *instead, f"{last}_{kind}", f"{own}_{kind}", whole, f"{whole}_size"]


def _kind(place: Place, indexed: bool) -> str:
    rank, axis, path = len(place.shape), place.axis, place.item.path
    integers = not place.item.example.is_floating_point()
    fixed = [size.constant is not None for size in place.shape]
    if place.squared:
        return "grid"
    if rank == 2 and integers and place.item.shape[0] == 2 and (fixed[0] or EDGES.search(path)):
        return "edges" if axis == 1 else ""
    if axis == 0 and indexed and rank == 2:
        return "nodes"
    if axis == 0:
        return "batch"
    if rank == 4 and CACHE.search(path):
        return "past" if axis == 2 else ""
    if rank == 4:
        return {1: "channels", 2: "height", 3: "width"}[axis]
    if rank == 5:
        return {1: "channels", 2: "depth", 3: "height", 4: "width"}[axis]
    if rank == 3 and axis == 2 and fixed[1]:
        return "time"
    if rank == 2 and axis == 1 and not integers and AUDIO.search(path):
        return "time"
    if axis == 1 and (rank == 3 or (rank == 2 and integers)):
        return "seq"
    return ""
