"""Sizes to try: those at which a wrong model shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from anyshape.capture.program import Guard
from anyshape.contract import Contract
from anyshape.contract.agree import Agreed
from anyshape.dims import Relation, Space, choose

__all__ = ["COUNT", "elements", "sizes_to_try"]

COUNT = 36  # size assignments to try by default
ROW_SECONDS = 1.0  # nominal: sizes that would take longer than about this to try are left out
SMALL = 500_000  # numbers in the inputs that any model is given

Sizes = Mapping[str, int]


def sizes_to_try(
    agreed: Agreed, guards: Sequence[Guard | Relation], seconds: float, count: int = COUNT
) -> list[dict[str, int]]:
    """Sizes that tell most: every boundary, both sides of every open guard, primes, pairs, larger than the example."""
    contract = agreed.contract
    growth, floor = (4, 64) if seconds < 0.01 else (2, 36) if seconds < 0.03 else (1.5, 8)
    largest = {
        dim.name: max(int(dim.example * growth), agreed.generic[dim.name], floor)
        for dim in contract.dims
        if dim.range.maximum is None or dim.range.maximum > 1024 or seconds > 0.05
    }
    space = Space(
        contract.ranges,
        contract.relations,
        interesting=_sides(contract, agreed.generic, guards, largest),
        # At the example's own 0 or 1, many a fault elsewhere does not show.
        typical=agreed.generic if contract.allows(agreed.generic) else contract.example,
        largest=largest,
    )
    most = max(SMALL, int(elements(contract, space.typical) * min(64.0, ROW_SECONDS / max(seconds, 1e-6))))
    telling = len(choose(space, 1))  # these are tried even if they are more than were asked for
    wanted = [sizes for sizes in choose(space, 4 * count) if elements(contract, sizes) <= most]
    return wanted[: max(count, telling)]


def elements(contract: Contract, sizes: Sizes) -> int:
    """How many numbers the inputs hold: what a run costs grows with it."""
    return sum(math.prod(shape) for shape in contract.shapes(sizes))


def _sides(
    contract: Contract, generic: Sizes, guards: Sequence[Guard | Relation], largest: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """For each dim, the sizes on either side of where a guard turns, the other dims being generic."""
    made: dict[str, set[int]] = {}
    for item in guards:
        for name in item.names:
            range_ = contract.dim(name).range
            limit = item.right.constant if isinstance(item, Relation) else None
            end = min(range_.maximum or 10**9, max(largest.get(name, 64) * 2, 64, (limit or 0) + 1))
            beyond = limit + limit // 2 + 1 if limit is not None else None
            if beyond is not None and range_.contains(beyond):
                made.setdefault(name, set()).add(beyond)
            before: bool | None = None
            for size in range(range_.minimum, end + 1):
                now = item.holds({**generic, name: size})
                if before is not None and now != before:
                    made.setdefault(name, set()).update((size - 1, size))
                before = now
    return {name: tuple(sorted(sizes)[:16]) for name, sizes in made.items()}
