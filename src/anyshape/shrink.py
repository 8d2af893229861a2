"""shrink: from failing sizes to the smallest failing sizes, and which dims do not matter.

The shrinker knows only sizes and a predicate. "Smaller" is one key: the sum of the sizes, then the sizes in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anyshape.dims import Range

__all__ = ["Shrunk", "shrink"]

Sizes = Mapping[str, int]
MOST_TRIES = 60


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing sizes; the dims that don't matter; and up to where (or from where) it is right."""

    sizes: dict[str, int]
    idle: tuple[str, ...]
    right: str = ""  # "right where seq ≤ 8"

    def __str__(self) -> str:
        shown = {name: size for name, size in self.sizes.items() if name not in self.idle}
        text = ", ".join(f"{name} = {size}" for name, size in (shown or self.sizes).items()) or "every size"
        remarks = []
        if shown and self.idle:
            verb = "does" if len(self.idle) == 1 else "do"
            remarks.append(f"{' and '.join(self.idle)} {verb} not matter")
        if self.right:
            remarks.append(self.right)
        return text + (f" ({'; '.join(remarks)})" if remarks else "")


def shrink(sizes: Sizes, ranges: Mapping[str, Range], fails: Callable[[Sizes], bool]) -> Shrunk:
    """The smallest sizes that still fail, dim by dim.

    >>> str(shrink({"batch": 7, "seq": 40}, {"batch": Range(1), "seq": Range(1)}, lambda s: s["seq"] > 8))
    'seq = 9 (batch does not matter; right where seq ≤ 8)'
    """
    tries = _Tries(fails)
    current = dict(sizes)
    changed = True
    while changed and tries.left:
        changed = False
        for name in current:
            smaller = _smallest(current, name, ranges[name].minimum, tries)
            changed |= smaller < current[name]
            current[name] = smaller
    idle = tuple(name for name in current if _is_idle(current, name, ranges[name], tries))
    matters = [name for name in current if name not in idle]
    right = _right_where(current, matters[0], ranges[matters[0]], tries) if len(matters) == 1 else ""
    return Shrunk(current, idle, right)


class _Tries:
    """The predicate with a memory and a limit."""

    def __init__(self, fails: Callable[[Sizes], bool]) -> None:
        self._fails = fails
        self._known: dict[tuple[tuple[str, int], ...], bool] = {}
        self.left = MOST_TRIES

    def __call__(self, sizes: Sizes) -> bool:
        key = tuple(sizes.items())
        if key not in self._known:
            if not self.left:
                return False
            self.left -= 1
            self._known[key] = self._fails(sizes)
        return self._known[key]


def _smallest(sizes: Sizes, name: str, minimum: int, fails: _Tries) -> int:
    """The smallest failing size of one dim: from below in small steps, then by halving."""
    good, bad = minimum - 1, sizes[name]
    for size in range(minimum, min(minimum + 3, bad)):
        if fails({**sizes, name: size}):
            return size
        good = size
    while bad - good > 1:
        middle = (good + bad) // 2
        if fails({**sizes, name: middle}):
            bad = middle
        else:
            good = middle
    return bad


def _is_idle(sizes: Sizes, name: str, range_: Range, fails: _Tries) -> bool:
    """Whether it fails whatever the size of this dim."""
    here = sizes[name]
    others = [size for size in (here + 1, here + 2, here + 5, here + 11) if range_.contains(size)]
    return bool(others) and all(fails({**sizes, name: size}) for size in others)


def _right_where(sizes: Sizes, name: str, range_: Range, fails: _Tries) -> str:
    here = sizes[name]
    if here > range_.minimum and not fails({**sizes, name: here - 1}):
        above = [size for size in (here + 1, here + 2, here + 5) if range_.contains(size)]
        if all(fails({**sizes, name: size}) for size in above):
            return f"right where {name} ≤ {here - 1}"
    beyond = next((size for size in range(here + 1, here + 9) if range_.contains(size) and not fails({**sizes, name: size})), None)
    return f"right at {name} = {beyond}" if beyond is not None else ""
