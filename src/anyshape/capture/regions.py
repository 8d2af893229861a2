"""Rung 4: where the model takes another path at other sizes, each side is captured and a condition chooses.

A boundary is found by trial: between two rows whose tapes part, the one dim that makes the difference is moved by
bisection to the last size on this side. A difference that comes and goes is one of remainders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anyshape.capture.choices import capture_choices
from anyshape.capture.differential import Parted, Traces, capture_differential, parting
from anyshape.capture.program import Program
from anyshape.capture.tape import Apart, Split, chosen, rolled_up
from anyshape.dims import Expr, Relation, Space, generic
from anyshape.errors import CaptureFault

__all__ = ["MOST_REGIONS", "capture_regions"]

MOST_REGIONS = 8
LARGEST_DIVISOR = 8

Sizes = Mapping[str, int]
Alike = Callable[
    [Sizes], bool | None
]  # whether a tape at these sizes goes the same way; None if there is none


def capture_regions(traces: Traces, further: Sequence[Sizes] = ()) -> Program:
    """The program of all regions, joined by conditions on sizes; `CaptureFault` if there are too many."""
    try:
        return capture_differential(traces, further)
    except Parted as parted:
        if parted.base != parted.other and _in_layers(traces, parted):
            try:
                return capture_choices(traces, further)
            except CaptureFault:
                pass  # what chooses is not a limit of a dim: perhaps the model as a whole has but a few ways
    return _captured(traces, further, [MOST_REGIONS])


def _in_layers(traces: Traces, parted: Parted) -> bool:
    """Whether the tapes part and meet again several times at one line: then the ways through the model multiply."""
    try:
        tape, _ = rolled_up([traces.at(parted.base), traces.at(parted.other)], choices=True)
    except Apart:
        return False
    lines = [step.where for step in tape.steps if step.target is chosen]
    return len(lines) > len(set(lines))


def _captured(traces: Traces, further: Sequence[Sizes], budget: list[int]) -> Program:
    """One side, split again as long as the ``budget`` of ways lasts, which all sides share."""
    try:
        return capture_differential(traces, further)
    except Parted as parted:
        if parted.base == parted.other:
            raise
        budget[0] -= 1
        if budget[0] <= 0:
            raise CaptureFault(
                f"the model takes more than {MOST_REGIONS} ways, depending on its sizes: {parted.what}",
                where=parted.where,
                hint="Declare a smaller range for the dim that chooses them.",
            ) from parted
        condition = _boundary(traces, parted)
        if condition is None:
            raise
        then = _captured(*_side(traces, condition, further), budget)
        otherwise = _captured(*_side(traces, _negated(condition), further), budget)
        if [len(shape) for shape in then.outputs] != [len(shape) for shape in otherwise.outputs]:
            raise CaptureFault(
                f"the model returns other tensors where {condition}: {len(then.outputs)} with "
                f"{_ranks(then)} axes, beyond {len(otherwise.outputs)} with {_ranks(otherwise)}",
                where=parted.where,
                hint="Return tensors of one number and rank at every size.",
            ) from parted
        body = Split(condition, parted.where, then.body, otherwise.body)
        return Program(body, "regions", outputs=_common(then.outputs, otherwise.outputs))


def _ranks(program: Program) -> str:
    return ", ".join(str(len(shape)) for shape in program.outputs)


Shapes = tuple[tuple[Expr | None, ...], ...]


def _common(one: Shapes, two: Shapes) -> Shapes:
    """Sizes of outputs where both sides agree on them."""
    return tuple(
        # Where the sides differ, the one that is not a number may hold for both; the runs will tell.
        tuple(b if a is not None and a.constant is not None else a for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, two, strict=True)
    )


def _negated(relation: Relation) -> Relation:
    if relation.op == "<=":
        return Relation(relation.right + 1, "<=", relation.left)
    return Relation(relation.left, "!=" if relation.op == "==" else "==", relation.right)


def _side(traces: Traces, condition: Relation, further: Sequence[Sizes]) -> tuple[Traces, list[Sizes]]:
    """The traces of one side of a boundary, with generic sizes of its own."""
    agreed = traces.agreed
    contract = replace(agreed.contract, relations=(*agreed.contract.relations, condition))
    base = agreed.generic
    if not contract.allows(base):
        space = Space(contract.ranges, contract.relations, typical=base)
        rows = [row for row in (*further, *generic(space, (), 3)) if contract.allows(row)]
        ranked = sorted(rows, key=lambda row: (min(row.values()) < 2, sum(row[n] != base[n] for n in base)))
        if not ranked:
            raise CaptureFault(f"no sizes were found at which {condition}")
        base = ranked[0]
    side = Traces(traces.case, replace(agreed, contract=contract, generic=dict(base)), traces.own)
    side.known = traces.known
    return side, [row for row in further if contract.allows(row)]


def _boundary(traces: Traces, parted: Parted) -> Relation | None:
    """The condition that tells the sizes of the one tape from those of the other."""
    base, other = dict(parted.base), dict(parted.other)
    home = traces.at(base)

    def alike(sizes: Sizes) -> bool | None:
        if not traces.agreed.contract.allows(sizes):
            return None
        try:
            return parting(home, traces.at(sizes)) is None
        except CaptureFault:
            return None

    name = _deciding(base, other, alike)
    if name is None:
        return None
    here = {**other, name: base[name]} if alike({**other, name: base[name]}) else base
    near, far = here[name], other[name]
    remainder = _remainder(name, {**here}, near, alike)
    if remainder is not None:
        return remainder
    while abs(far - near) > 1:
        middle = (near + far) // 2
        verdict = alike({**here, name: middle})
        if verdict is None:
            return None
        near, far = (middle, far) if verdict else (near, middle)
    if far == 1 and alike({**here, name: 0}):
        return Relation(Expr.of(name), "==", Expr.of(1))
    return Relation(Expr.of(name), "<=", Expr.of(min(near, far)))


def _deciding(base: Sizes, other: Sizes, alike: Alike) -> str | None:
    """The dim that makes the difference: the base with just its size taken from the other row parts already."""
    moved = [name for name in base if base[name] != other[name]]
    for name in moved:
        if alike({**base, name: other[name]}) is False:
            return name
    for name in moved:
        if alike({**other, name: base[name]}) is True:
            return name
    return None


def _remainder(name: str, here: Sizes, near: int, alike: Alike) -> Relation | None:
    """A difference that comes and goes as the dim grows by one: ``seq % 2 == 0``."""
    seen = {
        size: alike({**here, name: size}) for size in range(max(2, near), max(2, near) + 2 * LARGEST_DIVISOR)
    }
    known = {size: verdict for size, verdict in seen.items() if verdict is not None}
    flips = sum(known[a] != known[b] for a, b in zip(list(known), list(known)[1:], strict=False))
    if flips < 3:
        return None
    for divisor in range(2, LARGEST_DIVISOR + 1):
        for rest in range(divisor):
            for wanted in (True, False):
                if all((size % divisor == rest) == (verdict is wanted) for size, verdict in known.items()):
                    return Relation(Expr.of(name) % divisor, "==", Expr.of(rest))
    return None
