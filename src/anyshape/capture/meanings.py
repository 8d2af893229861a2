"""What the sizes of tensors in between are, in dims: found from what several watched runs saw of them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from anyshape.capture.watched import Watch
from anyshape.dims import Expr, fit
from anyshape.dims.formula import Formula, Part, as_expr, names_of, replaced
from anyshape.dims.names import is_reserved
from anyshape.errors import SourceLine

__all__ = ["Earlier", "Meanings", "path_of"]

Sizes = Mapping[str, int]

MOST_ATOMS = 8
PARTS = ((1, 0), *((divisor, more) for divisor in (2, 3, 4) for more in (0, divisor - 1)))
FEWEST_VALUES = 3  # of a size: of two, too many laws are true

Earlier = dict[str, dict[Expr | None, set[int]]]  # for each size, what it was found to be, and at which rows


class Meanings:
    """What the sizes of tensors in between are, in dims: fitted to what the runs saw."""

    def __init__(
        self,
        watches: Sequence[Watch | None],
        rows: Sequence[Sizes],
        earlier: Earlier | None = None,
        named: Collection[str] = (),
    ) -> None:
        self.rows = list(rows)
        self.watches: list[Watch] = [watch for watch in watches if watch is not None]
        self.known: dict[tuple[str, Any], Expr | None] = {}
        self.spoken: dict[Any, Formula] = {}  # what was put into dims already
        # Rows are only ever added, so what was found for fewer of them is still worth a look.
        self.earlier = earlier if earlier is not None else {}
        self.padded: dict[tuple[int, ...], dict[tuple[float, ...], list[tuple[Part, Formula]]]] = {}
        self.unknown: dict[str, Sizes] = {}  # sizes without an expression, and a run that asked about them
        # Not sizes at all: other at the same sizes with other values, or read out of tensors.
        self.data: set[str] = set()
        for row, watch in zip(self.rows, self.watches, strict=True):
            same = next(other for k, other in enumerate(self.watches) if self.rows[k] == row)
            self.data |= {name for name, size in watch.sizes.items() if same.sizes.get(name, size) != size}
        self.named = {name for watch in self.watches for name in watch.reads} | set(named)
        self.data |= {name for watch in self.watches for name in watch.floats} | self.named
        self.paths = [path_of(watch) for watch in self.watches]

    def of(self, formula: Formula, row: Sizes, *, data: bool = False) -> Formula | None:
        """A formula over the dims alone; None where a size in it is no expression of them.

        With ``data``, what was read out of tensors and is ``named`` on the tape may stay in it, by its name.
        """
        at = next(k for k, other in enumerate(self.rows) if other is row)
        replacements: dict[str, Expr | int] = {}
        for name in formula.names:
            if name in self.data:
                if data and name in self.named:
                    continue
                return None
            if is_reserved(name):
                found = self._size(name, at)
                if found is None:
                    self.unknown.setdefault(name, row)
                    return None
                replacements[name] = found
        if not replacements:
            return formula
        key = formula.text, tuple(replacements.items())
        if key not in self.spoken:
            self.spoken[key] = formula.substitute(replacements)
        return self.spoken[key]

    def _size(self, name: str, at: int) -> Expr | None:
        """What a size is on the way of the run at hand, and on all others if it is the same there."""
        key = (name, self.paths[at])
        if key not in self.known:
            everywhere = [k for k, watch in enumerate(self.watches) if name in watch.sizes]
            alike = [k for k in everywhere if self.paths[k] == self.paths[at]]
            self.known[key] = self._among(name, everywhere) or (
                self._among(name, alike) if len(alike) < len(everywhere) else None
            )
        return self.known[key]

    def _among(self, name: str, places: Sequence[int]) -> Expr | None:
        """An expression that held at fewer rows is looked at first: to find one takes longer than to check it."""
        tried = self.earlier.setdefault(name, {})
        for size, seen in tried.items():
            if size is not None and all(self._is(size, name, k) for k in places if k not in seen):
                seen.update(places)
                return size
        if None in tried and tried[None] == set(places):
            return None
        found = self._fitted(name, places)
        tried[found] = set(places)
        return found

    def _is(self, size: Expr, name: str, at: int) -> bool:
        try:
            return size.evaluate(self.rows[at]) == self.watches[at].sizes[name]
        except (ArithmeticError, ValueError):
            return False

    def _fitted(self, name: str, places: Sequence[int]) -> Expr | None:
        column = [self.watches[k].sizes[name] for k in places]
        if not all(len({self.rows[k][dim] for k in places}) > 1 for dim in self.rows[0]):
            return None  # a dim that did not move among them may have a part in it
        told = self._told(name, places, column)
        if told is not None:
            return told
        if all(size == column[0] for size in column):
            moved = all(len({self.rows[k][dim] for k in places}) >= FEWEST_VALUES for dim in self.rows[0])
            return Expr.of(column[0]) if moved else None
        part = self._part(name, places, column)
        if part is not None:
            return part
        # What a tensor's size hangs on is, more often than not, the size of one before it.
        before = [size for size in self.known.values() if size is not None and size.constant is None]
        atoms = [size for size in dict.fromkeys(before) if size.name is None][-MOST_ATOMS:]
        rows = [self.rows[k] for k in places]
        return (
            _plainly(fit(rows, column))
            or self._computed(name, places, column)
            or _plainly(fit(rows, column, atoms))
        )

    def _computed(self, name: str, places: Sequence[int], column: Sequence[int]) -> Expr | None:
        """What Python computed from sizes before, and had the same value in all runs: how long a slice is to be."""
        if len(set(column)) < FEWEST_VALUES:
            return None
        first = self.watches[places[0]].sizes
        before = set(itertools.takewhile(lambda other: other != name, first))
        for number, value in self.watches[places[0]].numbers.items():
            if value == column[0] and type(value) is int and self._column(number, places) == column:
                over = self._over_dims(number, before, places[0])
                if over is not None:
                    return as_expr(over)
        return None

    def _over_dims(self, part: Part, before: set[str], at: int) -> Part | None:
        """A number over the dims alone, if all sizes in it are known and came ``before``."""
        sizes = {other for other in names_of(part) if is_reserved(other)}
        known = {other: self._size(other, at) for other in sizes & before - self.data}
        replacements = {other: found for other, found in known.items() if found is not None}
        return replaced(part, replacements) if len(replacements) == len(sizes) else None

    def _told(self, name: str, places: Sequence[int], column: Sequence[int]) -> Expr | None:
        """A size, and what Python computed from that very size to be added to it.

        What is padded to whole windows has such a size. It moves in leaps, or not at all for a while: a law that fits
        a few of its values is one of many, and most of them are wrong further on.
        """
        first = self.watches[places[0]].sizes
        before = set(itertools.takewhile(lambda other: other != name, first))
        still = len(set(column)) == 1  # then many sums are alike: only its own axis says which it is
        # The last of several that are alike is what came of the others: 7 - n % 7, and that modulo 7.
        for size, number in reversed(self._padded(tuple(places)).get(tuple(column), ())):
            if still and not self._same_axis(size, name, places[0]):
                continue
            parts = [self._over_dims(part, before, places[0]) for part in (size, number)]
            total = [as_expr(part) if part is not None else None for part in parts]
            if total[0] is not None and total[1] is not None:
                return total[0] + total[1]
        return None

    def _same_axis(self, size: Part, name: str, at: int) -> bool:
        axes = self.watches[at].axes
        return isinstance(size, Expr) and size.name in axes and axes[size.name] == axes.get(name)

    def _padded(self, places: tuple[int, ...]) -> dict[tuple[float, ...], list[tuple[Part, Formula]]]:
        """For all integers that Python computed from a size in these runs: both, by the values of their sum."""
        if places not in self.padded:
            made = self.padded[places] = {}
            for number, value in self.watches[places[0]].numbers.items():
                added = self._column(number, places) if type(value) is int else None
                for size in _parts(number) if added is not None and len(set(added)) > 1 else ():
                    sizes = self._column(size, places)
                    if added is not None and sizes is not None:
                        total = tuple(map(operator.add, added, sizes))
                        made.setdefault(total, []).append((size, number))
        return self.padded[places]

    def _column(self, part: Part, places: Sequence[int]) -> list[float] | None:
        """What a size or a number was in these runs; None where one of them did not have it."""
        if isinstance(part, Formula):
            found = [self.watches[k].numbers.get(part) for k in places]
        elif isinstance(part, Expr) and part.name is not None:
            found = [self.watches[k].sizes.get(part.name, self.rows[k].get(part.name)) for k in places]
        else:
            return None
        return None if None in found else [item for item in found if item is not None]

    def _part(self, name: str, places: Sequence[int], column: Sequence[int]) -> Expr | None:
        """A size of the same axis before, or a half, a third or a fourth of it, which a stage hands on to the next."""
        if len(set(column)) < FEWEST_VALUES:
            return None
        axes = self.watches[places[0]].axes
        before = itertools.takewhile(lambda other: other != name, axes)
        same = [other for other in before if axes[other] == axes.get(name) and other not in self.data]
        for (divisor, more), other in itertools.product(PARTS, reversed(same)):
            sizes = (self.watches[k].sizes.get(other) for k in places)
            pairs = zip(sizes, column, strict=True)
            if all(size is not None and (size + more) // divisor == item for size, item in pairs):
                whole = self._size(other, places[0])
                return None if whole is None else (whole + more) // divisor
        return None


def _parts(formula: Formula) -> Iterator[Part]:
    """The sizes and numbers that a number was computed from."""
    for part in formula.args:
        if isinstance(part, Expr) or (isinstance(part, Formula) and part.op != "%"):  # a rest is no size
            yield part
        if isinstance(part, Formula):
            yield from _parts(part)


def _plainly(size: Expr | None) -> Expr | None:
    """The expression, unless it is one of cases: with few runs to go by, those fit by chance."""
    if size is None or any(word in str(size) for word in ("min(", "max(")):
        return None
    return size


def path_of(watch: Watch) -> tuple[tuple[SourceLine | None, bool], ...]:
    return tuple((decision.where, decision.truth) for decision in watch.decisions)
