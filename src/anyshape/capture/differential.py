"""Rung 2: runs at several generic sizes, lined up; each number that moved is an expression of the dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.capture.meanings import Meanings
from anyshape.capture.program import Program
from anyshape.capture.reads import check_reads
from anyshape.capture.tape import (
    Apart,
    Fitter,
    NoExpression,
    Step,
    Tape,
    by_numbers,
    chosen,
    merged,
    rolled,
    rolled_up,
)
from anyshape.capture.tape.steps import NUMBERS, float_of, leaves, size_of
from anyshape.capture.traces import Traces, known_size, sizes_text
from anyshape.capture.watched import Watch
from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Contract, Rung
from anyshape.dims import Expr, Relation, Space, choose, generic, names
from anyshape.dims.formula import Formula, as_expr, is_writable
from anyshape.dims.turns import Condition, crossings, legal_sizes, period_of
from anyshape.errors import CaptureFault, SourceLine

__all__ = [
    "Parted",
    "Traces",
    "capture_differential",
    "computed_sizes",
    "first_rows",
    "merged_at",
    "moving_rows",
    "parting",
]

Sizes = Mapping[str, int]


def capture_differential(
    traces: Traces, further: Sequence[Sizes] = (), turns: Sequence[Condition] = ()
) -> Program:
    """The program of several traces at concrete sizes; `CaptureFault` if they can't be explained as one.

    ``further`` are sizes that must be explained too: those at which an earlier program was wrong. ``turns`` are
    decisions by which numbers may be chosen.
    """
    rows = [*first_rows(traces.agreed), *map(dict, further)]
    rows += moving_rows(traces, rows)
    rows += [row for row in telling_rows(traces, rows) if row not in rows]
    for widening in WIDENINGS:
        try:
            return merged_at(traces, rows, turns=turns)
        except NoExpression as fault:
            before = len(rows)
            for row in _wider(traces, list(rows), fault.column, widening):
                if row not in rows:
                    rows.append(row)
            if len(rows) == before:
                raise
    return merged_at(traces, rows, turns=turns)


# Steps from the base, where the first rows do not determine a number.
WIDENINGS = ((2, 3, 5, 8), (11, 16, 24, 40))


def _wider(
    traces: Traces, rows: Sequence[Sizes], column: Sequence[Any], steps: Sequence[int]
) -> Iterator[dict[str, int]]:
    """More rows that move, alone, each dim which was seen to move a number."""
    base, contract = rows[0], traces.agreed.contract
    if column[0] != column[-1]:
        return  # it moves with the values: more sizes would not tell
    alone = {name: [k for k, row in enumerate(rows) if _differ_in(base, row) == [name]] for name in base}
    moving = [name for name, places in alone.items() if any(column[k] != column[0] for k in places)]
    for name in moving or base:
        for step in steps:
            row = _changed(contract, dict(base), {name: base[name] + step})
            if row is not None:
                yield row


def _differ_in(one: Sizes, two: Sizes) -> list[str]:
    return [name for name in one if one[name] != two[name]]


def merged_at(
    traces: Traces,
    rows: Sequence[Sizes],
    boundaries: Sequence[Relation] = (),
    turns: Sequence[Condition] = (),
) -> Program:
    """The program of the traces at these sizes; with ``boundaries``, steps may be others on either side of them."""
    rows = [rows[0], *(row for row in rows[1:] if traces.runs(row))]
    tapes = [traces.at(row) for row in rows]
    # Other values at the same sizes: what moves between these is data, not size.
    others = traces.with_other_values(rows[0])
    rows = [*rows, *(rows[0] for _ in others)]
    tapes += others
    imagined = check_reads(traces, rows, tapes)
    rows += [rows[0] for _ in imagined]
    tapes += imagined
    _check_forgiven(tapes)
    tape = merged_tapes(traces, rows, tapes, boundaries, turns)
    outputs = tuple(tuple(_spoken(size) for size in value.shape) for value in tape.outputs)
    return Program(tape, _rung(tape), outputs=outputs)


def _check_forgiven(tapes: Sequence[Tape]) -> None:
    """`CaptureFault` where an operator fails and the model catches that: nothing says at which sizes it would not."""
    for where in (line for tape in tapes for line in tape.forgiven):
        raise CaptureFault(
            "an operator fails here, and the model goes on without it: at which sizes it does not fail can't be seen",
            where=where,
            hint="Ask for the sizes with if, not with try.",
        )


def merged_tapes(
    traces: Traces,
    rows: Sequence[Sizes],
    tapes: Sequence[Tape],
    boundaries: Sequence[Relation] = (),
    turns: Sequence[Condition] = (),
) -> Tape:
    """One tape for all of these; `Parted` where they run other operators."""
    contract = traces.agreed.contract
    names = tuple(dim.name for dim in contract.dims)
    fitter = Fitter([{**row, **_read(tape)} for row, tape in zip(rows, tapes, strict=True)], names)
    fitter.spoken = _spoken_by(tapes, rows)
    fitter.boundaries, fitter.turns = tuple(boundaries), tuple(turns)
    fitter.computed, fitter.lost = _computed(tapes, rows, fitter.rows)
    shapes = [tuple(known_size(size) for size in item.shape) for item in contract.inputs]
    try:
        return _one_of(rolled_up(tapes, choices=bool(boundaries)), fitter, shapes)
    except Apart as apart:
        raise _parted(traces, rows, tapes) from apart


Computed = tuple[dict[tuple[Any, ...], Expr | Formula], tuple[Expr, ...]]


def _read(tape: Tape) -> dict[str, Any]:
    """The numbers that the tape knows by name: integers and floats that were read, sizes that values decide."""
    if tape.watch is None:
        return {}
    known = {**tape.watch.sizes, **tape.watch.reads, **tape.watch.floats}
    return {name: known[name] for name in _named(tape) if name in known}


def _named(tape: Tape) -> list[str]:
    return [step.args[1] for step in tape.steps if step.target in NUMBERS]


def _spoken_by(tapes: Sequence[Tape], rows: Sequence[Sizes]) -> Callable[[Formula], Formula | None]:
    """What Python computed from values, in dims and in the names that all tapes have; None where a graph can't."""
    named = set(_named(tapes[0])).intersection(*map(_named, tapes))
    meaning = Meanings([tape.watch for tape in tapes], rows, named=named) if named else None

    def spoken(formula: Formula) -> Formula | None:
        over = None if meaning is None else meaning.of(formula, rows[0], data=True)
        return over if over is not None and is_writable(over) else None

    return spoken


def _computed(tapes: Sequence[Tape], rows: Sequence[Sizes], known: Sequence[Sizes]) -> Computed:
    """What Python computed from sizes, by its values at each row; and what of it went on as plain numbers.

    A number of the model that has these values is that number: the simplest, where several are alike.
    """
    floats = {step.args[1] for step in tapes[0].steps if step.target is float_of}
    meaning = Meanings([tape.watch for tape in tapes], rows, named=floats)
    meaning.named |= meaning.data & {step.args[1] for step in tapes[0].steps if step.target is size_of}
    columns: dict[tuple[Any, ...], Expr | Formula] = {}  # 3 is not 3.0: a type, then the values
    lost: dict[Expr, None] = {}
    watch = tapes[0].watch
    if watch is None:
        return {}, ()
    data = {name for name in meaning.named if name in meaning.data and all(name in row for row in known)}
    _add_used(columns, watch, meaning, rows, known, data)
    for name in rows[0]:  # a size itself is the simplest
        own = tuple(row[name] for row in known)
        if len(set(own)) > 1:
            columns.setdefault((int, *own), Expr.of(name))
    for name in watch.reads:  # what was read out of a tensor, and goes by a name of its own
        if name in data:
            columns.setdefault((int, *(row[name] for row in known)), Expr.of(name))
    for formula in sorted(watch.numbers, key=lambda formula: len(formula.text)):
        over = meaning.of(formula, rows[0], data=True)
        column = None if over is None or not over.names else _column(over, known)
        if over is None or column is None or all(item == column[0] for item in column):
            continue
        if over.names & floats:
            continue  # which of several equal numbers it is, PyTorch was told when it was given it
        whole = all(type(item) is int for item in column)
        made = as_expr(over) if whole else over if is_writable(over) else None
        if made is not None and (whole or all(type(item) is float for item in column)):
            columns.setdefault((type(column[0]), *column), made)
            if formula in watch.lost and isinstance(made, Expr):
                lost.setdefault(made)
    return columns, tuple(lost)


def _add_used(
    columns: dict[tuple[Any, ...], Expr | Formula],
    watch: Watch,
    meaning: Meanings,
    rows: Sequence[Sizes],
    known: Sequence[Sizes],
    data: set[str],
) -> None:
    """Numbers that values decide, as PyTorch was given them: sizes can be chosen to tell two of them apart, values not.

    Where it was given several that are alike, none is known to be the one.
    """
    given: dict[tuple[Any, ...], dict[str, Expr]] = {}
    for part in watch.used:
        over = meaning.of(part, rows[0], data=True) if isinstance(part, Formula) else part
        made = as_expr(over) if isinstance(over, Formula) else over
        if isinstance(made, Expr) and made.names & data:
            column = _column(Formula("+", (made, 0)), known)
            if column is not None and all(type(item) is int for item in column):
                given.setdefault((int, *column), {})[str(made)] = made
    for key, options in given.items():
        if len(options) == 1:
            columns.setdefault(key, *options.values())


def computed_sizes(tapes: Sequence[Tape], rows: Sequence[Sizes]) -> list[Expr]:
    """The integers that Python computed from sizes, as expressions of the dims: the simplest first."""
    columns, _ = _computed(tapes, rows, rows)
    return [made for made in columns.values() if isinstance(made, Expr)]


def moving_rows(traces: Traces, rows: Sequence[Sizes]) -> list[dict[str, int]]:
    """Sizes at which each dim is another that is the same at all rows: what follows from it would pass for a number.

    In a narrow region, such as ``batch*seq <= 10`` from a batch of 5, no step of one leads anywhere.
    """
    contract, made = traces.agreed.contract, list(map(dict, rows))
    space = Space(contract.ranges, contract.relations, typical=made[0])
    options: list[dict[str, int]] | None = None
    for name in made[0]:
        if (
            len({row[name] for row in made}) > 1
            or contract.dim(name).range.minimum == contract.dim(name).range.maximum
        ):
            continue
        if options is None:
            options = sorted(choose(space, MOST_OPTIONS), key=contract.elements)
        other = [row for row in options if row[name] != made[0][name] and min(row.values()) > 0]
        made += [row for row in other[:MOST_TRIES] if traces.runs(row)][:2]
    return made[len(rows) :]


def telling_rows(traces: Traces, rows: Sequence[Sizes]) -> Iterator[dict[str, int]]:
    """Sizes at which two formulas part that are alike at all rows: ``7 - n % 7``, and that modulo 7."""
    runs = [row for row in rows if traces.runs(row)]
    tapes = [traces.at(row) for row in runs]
    watch = tapes[0].watch if tapes else None
    if watch is None:
        return
    meaning = Meanings([tape.watch for tape in tapes], runs)
    alike: dict[tuple[float, ...], list[Formula]] = {
        tuple(row[name] for row in runs): [Formula("+", (Expr.of(name), 0))] for name in runs[0]
    }
    for formula in watch.numbers:
        over = meaning.of(formula, runs[0])
        column = None if over is None or not over.names else _column(over, runs)
        if over is not None and column is not None:
            alike.setdefault(column, []).append(over)
    found: list[dict[str, int]] = []
    for first, *others in alike.values():
        for other in {formula.text: formula for formula in others}.values():
            if len(found) < MOST_TELLING and not any(_differ(first, other, row) for row in found):
                row = _parting_row(traces, first, other, runs[0])
                if row is not None:
                    found.append(row)
                    yield row


@dataclass(frozen=True, slots=True)
class _Parting:
    """Where two formulas are other numbers."""

    one: Formula
    two: Formula

    @property
    def names(self) -> frozenset[str]:
        return self.one.names | self.two.names

    @property
    def period(self) -> int:
        return max(period_of(self.one), period_of(self.two))

    def holds(self, sizes: Sizes) -> bool:
        return _differ(self.one, self.two, sizes)


def _parting_row(traces: Traces, one: Formula, two: Formula, base: Sizes) -> dict[str, int] | None:
    """The cheapest sizes at which two formulas part and the model runs."""
    contract = traces.agreed.contract
    parting = _Parting(one, two)
    found = [
        row
        for _, row in crossings(parting, base, contract.ranges, contract.allows)
        if parting.holds(row) and min(row.values()) > 1 and contract.elements(row) <= MOST_NUMBERS
    ]
    found.sort(key=lambda row: contract.elements(row))
    return next((row for row in found[:MOST_TRIES] if traces.runs(row)), None)


def _differ(one: Formula, two: Formula, row: Sizes) -> bool:
    values = _column(one, [row]), _column(two, [row])
    return None not in values and values[0] != values[1]


def _column(formula: Formula, rows: Sequence[Sizes]) -> tuple[float, ...] | None:
    try:
        return tuple(formula.evaluate(row) for row in rows)
    except (ArithmeticError, ValueError, TypeError, KeyError):
        return None


def _one_of(tapes: Sequence[Tape], fitter: Fitter, shapes: Sequence[tuple[Any, ...]]) -> Tape:
    """One tape for all. A number that is one of a few, on either side of a boundary, makes its step a choice."""
    while True:
        try:
            return merged(tapes, fitter, shapes)
        except NoExpression as fault:
            apart = _chosen_by_numbers(tapes, fault.step) if fitter.boundaries else None
            if apart is None:
                raise
            tapes = apart


def _chosen_by_numbers(tapes: Sequence[Tape], step: Step) -> list[Tape] | None:
    """The step, and all others of its line that move, as choices."""
    made = list(tapes)
    changed = False
    for number, other in enumerate(tapes[0].steps):
        if other is step or (other.target is step.target and other.where == step.where is not None):
            apart = by_numbers(made, number) if other.target is not chosen else None
            if apart is not None:
                made, changed = apart, True
            elif other is step:
                return None
    return made if changed else None


def _rung(tape: Tape) -> Rung:
    targets = {step.target for step in tape.steps}
    return "regions" if chosen in targets else "rolled loop" if rolled in targets else "differential"


def _in_range(contract: Contract, trial: dict[str, int], wanted: Mapping[str, int]) -> bool:
    """Whether a row with one size changed is legal; where more are to change, whether the ranges allow it so far."""
    if len(wanted) == 1:
        return contract.allows(trial)
    return all(dim.range.contains(trial[dim.name]) for dim in contract.dims)


def _spoken(size: Any) -> Expr | None:
    """A size in the contract's words: None if it depends on values, or on more than arithmetic of integers."""
    made = Expr.of(size)
    known = made.is_arithmetic and not any(names.is_reserved(name) for name in made.names)
    return made if known else None


def first_rows(agreed: Agreed) -> Iterator[dict[str, int]]:
    """The sizes to trace at: the generic ones, each dim changed alone, and a few with every dim changed.

    Steps of one tell a remainder, steps in proportion a division by a large number; no two dims are alike in a row.
    """
    contract, base = agreed.contract, dict(agreed.generic)
    most = max(MOST_NUMBERS, 8 * contract.elements(base))
    yield base
    seen = [base]
    alone = [{name: change(size)} for change in ALONE for name, size in base.items()]
    together = [{name: change(size) for name, size in base.items()} for change in TOGETHER]
    for wanted in (*alone, *together):
        row = _changed(contract, base, wanted)
        if row is not None and row not in seen and contract.elements(row) <= most:
            seen.append(row)
            yield row


ALONE: tuple[Callable[[int], int], ...] = (lambda size: size + 1, lambda size: size * 5 // 3 + 3)
TOGETHER: tuple[Callable[[int], int], ...] = (
    lambda size: size * 4 // 3 + 2,
    lambda size: max(2, size * 3 // 4 - 1),
)
MOST_TELLING = 6
MOST_TRIES = 4
MOST_OPTIONS = 48
MOST_NUMBERS = 1_000_000  # in the inputs of a run that only tells how numbers hang on sizes
NEAR = 12  # how far to look for a legal size


def _near(contract: Contract, row: Sizes, name: str, size: int) -> Iterator[int]:
    """Sizes near the wanted one; then those at which the relations hold, however far they lie apart."""
    yield from (size + step for away in range(NEAR) for step in sorted({away, -away}, reverse=True))
    legal = legal_sizes(contract.relations, row, name, contract.dim(name).range)
    yield from sorted(legal, key=lambda other: (abs(other - size), -other))[: 2 * NEAR]


def _changed(contract: Contract, base: dict[str, int], wanted: dict[str, int]) -> dict[str, int] | None:
    """The base with some sizes near the wanted ones: legal, and unlike all others of the row. None if there is none."""
    row = dict(base)
    for name, size in wanted.items():
        others = {other for key, other in row.items() if key != name}
        for near in _near(contract, row, name, size):
            trial = {**row, name: near}
            if near > 1 and near not in others and near != base[name] and _in_range(contract, trial, wanted):
                row = trial
                break
        else:
            if len(wanted) == 1:
                return None
    if contract.allows(row):
        return row if row != base else None
    space = Space(contract.ranges, contract.relations, typical=row)
    made = generic(space, set(base.values()), 1)
    return made[0] if made and min(made[0].values()) >= min(2, *base.values()) else None


class Parted(CaptureFault):
    """The model runs other operators at ``other`` than at ``base``."""

    def __init__(self, base: Sizes, other: Sizes, where: SourceLine | None) -> None:
        same = base == other
        super().__init__(
            f"the model runs other operators at {sizes_text(other)} "
            + ("with other values" if same else f"than at {sizes_text(base)}"),
            where=where,
            hint="A branch or a loop there depends on "
            + (
                "values, which have no place in a graph."
                if same
                else "a size, in a way that could not be followed."
            ),
        )
        self.base, self.other = base, other


def _parted(traces: Traces, rows: Sequence[Sizes], tapes: Sequence[Tape]) -> Parted:
    """The first row whose tape can't be lined up with the base's, and where they part."""
    for row, tape in zip(rows[1:], tapes[1:], strict=True):
        apart = parting(tapes[0], tape)
        if apart is not None and _draws(apart):
            raise CaptureFault(
                "the model draws random numbers from a generator of its own: a graph has none to draw the same from",
                where=_line_of(apart),
                hint="Draw them once, when the model is made, and keep them in a buffer.",
            )
        if apart is not None:
            return Parted(rows[0], row, _line_of(apart))
    return Parted(rows[0], rows[1], None)


def _draws(apart: Apart) -> bool:
    given = (leaf for step in apart.steps if step is not None for leaf in leaves((step.args, step.kwargs)))
    return any(isinstance(leaf, torch.Generator) for leaf in given)


def parting(one: Tape, two: Tape) -> Apart | None:
    """Where two tapes part, if they do in more than numbers and lengths of loops."""
    try:
        rolled_up([one, two])
    except Apart as apart:
        return apart
    return None


def _line_of(apart: Apart) -> SourceLine | None:
    return next((step.where for step in apart.steps if step is not None and step.where is not None), None)
