"""What the sizes of tensors in between are, in dims: found from what several watched runs saw of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anyshape.capture.watched import Watch
from anyshape.dims import Expr, fit
from anyshape.dims.formula import Formula
from anyshape.dims.names import is_reserved
from anyshape.errors import SourceLine

__all__ = ["Earlier", "Meanings", "path_of"]

Sizes = Mapping[str, int]

MOST_ATOMS = 8

Earlier = dict[str, dict[Expr | None, set[int]]]  # for each size, what it was found to be, and at which rows


class Meanings:
    """What the sizes of tensors in between are, in dims: fitted to what the runs saw."""

    def __init__(
        self, watches: Sequence[Watch | None], rows: Sequence[Sizes], earlier: Earlier | None = None
    ) -> None:
        self.rows = list(rows)
        self.watches: list[Watch] = [watch for watch in watches if watch is not None]
        self.known: dict[tuple[str, Any], Expr | None] = {}
        # Rows are only ever added, so what was found for fewer of them is still worth a look.
        self.earlier = earlier if earlier is not None else {}
        self.unknown: dict[str, Sizes] = {}  # sizes without an expression, and a run that asked about them
        # Not sizes at all: other at the same sizes with other values; or read out of tensors, and not what sizes say.
        self.data: set[str] = set()
        for row, watch in zip(self.rows, self.watches, strict=True):
            same = next(other for k, other in enumerate(self.watches) if self.rows[k] == row)
            self.data |= {name for name, size in watch.sizes.items() if same.sizes.get(name, size) != size}
        reads = {name for watch in self.watches for name in watch.reads}
        self.data |= {name for name in reads if not self._follows(name)}
        self.paths = [path_of(watch) for watch in self.watches]

    def of(self, formula: Formula, row: Sizes, *, data: bool = False) -> Formula | None:
        """A formula over the dims alone; None where a size in it is no expression of them.

        With ``data``, what was read out of tensors may stay in it, by its name.
        """
        at = next(k for k, other in enumerate(self.rows) if other is row)
        replacements: dict[str, Expr | int] = {}
        for name in formula.names:
            if name in self.data:
                if data and any(name in watch.reads for watch in self.watches):
                    continue
                return None
            if is_reserved(name):
                found = self._size(name, at)
                if found is None:
                    self.unknown.setdefault(name, row)
                    return None
                replacements[name] = found
        return formula.substitute(replacements) if replacements else formula

    def _follows(self, name: str) -> bool:
        """Whether a number that was read out of a tensor moves as the sizes do, whatever the values."""
        places = [k for k, watch in enumerate(self.watches) if name in watch.sizes]
        column = [self.watches[k].sizes[name] for k in places]
        moves = len(places) == len(self.watches) and len(set(column)) > 1
        return moves and name not in self.data and fit([self.rows[k] for k in places], column) is not None

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
        except ArithmeticError:
            return False

    def _fitted(self, name: str, places: Sequence[int]) -> Expr | None:
        column = [self.watches[k].sizes[name] for k in places]
        if not all(len({self.rows[k][dim] for k in places}) > 1 for dim in self.rows[0]):
            return None  # a dim that did not move among them may have a part in it
        if all(size == column[0] for size in column):
            return Expr.of(column[0])
        # What a tensor's size hangs on is, more often than not, the size of one before it.
        before = [size for size in self.known.values() if size is not None and size.constant is None]
        atoms = [size for size in dict.fromkeys(before) if size.name is None][-MOST_ATOMS:]
        rows = [self.rows[k] for k in places]
        return _plainly(fit(rows, column)) or _plainly(fit(rows, column, atoms))


def _plainly(size: Expr | None) -> Expr | None:
    """The expression, unless it is one of cases: with few runs to go by, those fit by chance."""
    if size is None or any(word in str(size) for word in ("min(", "max(")):
        return None
    return size


def path_of(watch: Watch) -> tuple[tuple[SourceLine | None, bool], ...]:
    return tuple((decision.where, decision.truth) for decision in watch.decisions)
