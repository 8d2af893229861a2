"""The rows of sizes that a column of numbers is explained over, put in the most telling order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from anyshape.dims.expr import Expr
from anyshape.dims.forms import Cells, Column

__all__ = ["Table", "tabulate"]

# Every pair and triple of columns is tried: beyond this the search would no longer be quick.
_MOST_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of sizes: a base, then those that differ from it most.

    `order` are the places of the rows among those that were given. `names` are the columns of the names that
    vary, `columns` these and the further atoms that vary, `known` the numbers that were given as atoms.
    `slices` are, for each of `names`, the rows in which nothing but that name differs from the base;
    `touches` are, for each of `columns`, the names that it depends on, as bits.
    """

    order: tuple[int, ...]
    names: tuple[Column, ...]
    columns: tuple[Column, ...]
    known: frozenset[int]
    slices: tuple[tuple[int, ...], ...]
    touches: tuple[int, ...]
    fixed: bool

    def slice(self, at: int, values: Sequence[int]) -> tuple[list[int], list[int]]:
        """The sizes and the values as one name alone moves, from the base on."""
        rows = (0, *self.slices[at])
        return [self.names[at].cells[row] for row in rows], [values[row] for row in rows]

    def without(self, at: int, *known: int) -> Table:
        """The table without one of the names and the atoms that depend on it, and with more numbers known."""
        kept = [place for place, touched in enumerate(self.touches) if not touched >> at & 1]
        low = (1 << at) - 1
        return replace(
            self,
            names=(*self.names[:at], *self.names[at + 1 :]),
            columns=tuple(self.columns[place] for place in kept),
            slices=(*self.slices[:at], *self.slices[at + 1 :]),
            known=self.known.union(known),
            touches=tuple(self.touches[place] & low | self.touches[place] >> 1 & ~low for place in kept),
        )

    def movers(self, values: Sequence[int]) -> list[int]:
        """The names that were seen to change the values as they alone moved."""
        return [at for at, rows in enumerate(self.slices) if any(values[row] != values[0] for row in rows)]


def tabulate(rows: Sequence[Mapping[str, int]], atoms: Sequence[Expr]) -> Table:
    """The table of these rows; the same rows give the same table at once."""
    names = tuple(name for name in rows[0] if all(name in row for row in rows))
    return _table(names, tuple(tuple(int(row[name]) for name in names) for row in rows), tuple(atoms))


@lru_cache(maxsize=256)
def _table(names: tuple[str, ...], rows: tuple[Cells, ...], atoms: tuple[Expr, ...]) -> Table:
    unique = {row: at for at, row in reversed(list(enumerate(rows)))}
    places = sorted(unique.values())
    beside = _neighbours(unique)
    base = max(places, key=lambda at: (beside[rows[at]], -at))
    order = sorted(places, key=lambda at: (at != base, -_apart(rows[base], rows[at]), at))
    columns = [
        Column(Expr.of(name), tuple(rows[at][place] for at in order)) for place, name in enumerate(names)
    ]
    varying = [column for column in columns if len(set(column.cells)) > 1]
    slices = tuple(
        tuple(row for row in range(1, len(order)) if _only(columns, column, row)) for column in varying
    )
    known = frozenset(atom.constant for atom in atoms if atom.constant is not None)
    seen = {column.cells for column in varying}
    further: list[Column] = []
    for column in _evaluated(names, [rows[at] for at in order], atoms):
        if column.cells not in seen and len(set(column.cells)) > 1:
            seen.add(column.cells)
            further.append(column)
    every = (*varying, *further)[:_MOST_COLUMNS]
    touches = tuple(
        sum(1 << at for at, name in enumerate(varying) if name.expr.names <= column.expr.names)
        for column in every
    )
    return Table(tuple(order), tuple(varying), every, known, slices, touches, not names)


def _neighbours(rows: Iterable[Cells]) -> dict[Cells, int]:
    """For each of these rows, of which no two are alike, how many differ from it in one place alone."""
    rests = {row: [(at, row[:at], row[at + 1 :]) for at in range(len(row))] for row in rows}
    sharing = Counter(rest for without in rests.values() for rest in without)
    return {row: sum(sharing[rest] - 1 for rest in without) for row, without in rests.items()}


def _apart(row: Cells, other: Cells) -> int:
    return sum(left != right for left, right in zip(row, other, strict=True))


def _only(columns: Sequence[Column], column: Column, row: int) -> bool:
    """Whether the row differs from the base in this column alone."""
    return all((other.cells[row] != other.cells[0]) == (other is column) for other in columns)


def _evaluated(names: Sequence[str], rows: Sequence[Cells], atoms: Sequence[Expr]) -> Iterator[Column]:
    sizes = [dict(zip(names, row, strict=True)) for row in rows]
    for atom in atoms:
        try:
            yield Column(atom, tuple(atom.evaluate(row) for row in sizes))
        except (KeyError, ValueError, ZeroDivisionError):
            continue  # not defined in some row: it can't be what explains all of them
