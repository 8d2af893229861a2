"""shrink: from failing sizes to the smallest failing sizes, and which dims do not matter.

The shrinker knows only sizes and a predicate. "Smaller" is one key: the sum of the sizes, then the sizes in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
        for names in _together(current):
            smaller = _smallest(current, names, max(ranges[name].minimum for name in names), tries)
            changed |= smaller < current[names[0]]
            current |= dict.fromkeys(names, smaller)
    idle = tuple(name for name in current if _is_idle(current, name, ranges[name], tries))
    if not _is_idle_on_the_right_side(current, idle, ranges, tries):
        idle = ()
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


def _together(sizes: Sizes) -> Iterator[tuple[str, ...]]:
    """What to make smaller: each dim, then dims of one size at once, as some failures need them to be equal."""
    for name in sizes:
        yield (name,)
    alike = [tuple(name for name in sizes if sizes[name] == size) for size in set(sizes.values())]
    yield from (names for names in alike if len(names) > 1)


def _smallest(sizes: Sizes, names: tuple[str, ...], minimum: int, fails: _Tries) -> int:
    """The smallest failing size of some dims at once: from below in small steps, then by halving."""
    good, bad = minimum - 1, sizes[names[0]]
    for size in range(minimum, min(minimum + 3, bad)):
        if fails({**sizes, **dict.fromkeys(names, size)}):
            return size
        good = size
    while bad - good > 1:
        middle = (good + bad) // 2
        if fails({**sizes, **dict.fromkeys(names, middle)}):
            bad = middle
        else:
            good = middle
    return bad


def _is_idle(sizes: Sizes, name: str, range_: Range, fails: _Tries) -> bool:
    """Whether it fails whatever the size of this dim; 0 tells nothing, as empty results agree by themselves."""
    here = sizes[name]
    near = (here - 1, here + 1, here + 2, here + 5, here + 11)
    others = [size for size in near if size > 0 and range_.contains(size)]
    return bool(others) and all(fails({**sizes, name: size}) for size in others)


def _is_idle_on_the_right_side(
    sizes: Sizes, idle: tuple[str, ...], ranges: Mapping[str, Range], fails: _Tries
) -> bool:
    """Whether the idle dims don't matter either where the one that matters is right: batch * seq > 20 needs both."""
    matters = [name for name in sizes if name not in idle]
    if len(matters) != 1 or sizes[matters[0]] == ranges[matters[0]].minimum:
        return True
    right = {**sizes, matters[0]: sizes[matters[0]] - 1}
    moved = [(name, sizes[name] + more) for name in idle for more in (1, 5, 11)]
    return not any(ranges[name].contains(size) and fails({**right, name: size}) for name, size in moved)


def _right_where(sizes: Sizes, name: str, range_: Range, fails: _Tries) -> str:
    here = sizes[name]
    if here > range_.minimum and not fails({**sizes, name: here - 1}):
        above = [size for size in (here + 1, here + 2, here + 5) if range_.contains(size)]
        if all(fails({**sizes, name: size}) for size in above):
            return f"right where {name} ≤ {here - 1}"
    near = (size for size in range(here + 1, here + 9) if range_.contains(size))
    beyond = next((size for size in near if not fails({**sizes, name: size})), None)
    return f"right at {name} = {beyond}" if beyond is not None else ""
