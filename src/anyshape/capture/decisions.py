"""Decisions: every comparison of sizes that a model makes, as a condition on the dims, and sizes on both sides of it.

The watched run (`capture/watched.py`) knows each condition over the inputs' sizes and those of tensors in between;
what the latter are is found from runs at other sizes. A decision that all runs so far take one way is crossed: sizes
that turn it are solved for, and the model is run there, until no decision is left that could go another way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anyshape.capture.differential import first_rows, parting
from anyshape.capture.meanings import Earlier, Meanings, path_of
from anyshape.capture.program import Unseen
from anyshape.capture.traces import Traces
from anyshape.contract.contract import Contract
from anyshape.dims import Expr, Relation
from anyshape.dims.formula import Formula, as_relation, is_whole
from anyshape.dims.names import is_reserved
from anyshape.dims.turns import crossings, period_of, searched, turning
from anyshape.errors import SourceLine

__all__ = ["Turn", "Turns", "explored"]

Sizes = Mapping[str, int]

MOST_ROUNDS = 12
STEPS = (2, 5, 13, 34, 89)
MOST_CROSSED = 40
MOST_TRIES = 6
MOST_STILL = 1000
MOST_STEPS = 4000  # on tapes that only show the law of a size
FEWEST_WIDER = 6
MOST_BESIDE = 300  # sizes to look at for one on the same way
MOST_LEAKED = 3
# Of many digits and factors.
VALUES = (10, 11, 12, 16, 20, 21, 50, 64, 99, 100, 101, 128, 200, 256, 300, 512, 1000)
MOST_NUMBERS = 4_000_000  # in the inputs of a run that only crosses a decision


@dataclass(frozen=True, slots=True)
class Turn:
    """A decision of the model as a condition on its dims."""

    condition: Formula
    where: SourceLine | None
    relation: Relation | None  # the same, exactly, where a graph can compute it
    period: int = field(compare=False)
    names: frozenset[str] = field(compare=False)

    proved = False

    def holds(self, sizes: Sizes) -> bool:
        """Whether the condition holds; where it has no value, the model does not run either."""
        try:
            return bool(self.condition.evaluate(sizes))
        except (ArithmeticError, ValueError, TypeError):
            return False

    def __str__(self) -> str:
        return str(self.relation if self.relation is not None else self.condition)


@dataclass(frozen=True, slots=True)
class Turns:
    """The decisions that are open within a contract, and the sizes at which the model was run to know them."""

    found: tuple[Turn, ...]
    rows: tuple[dict[str, int], ...]
    beyond: tuple[Turn, ...] = ()  # those whose other side is too large to be run here


def explored(traces: Traces, further: Sequence[Sizes] = ()) -> Turns:
    """The model's decisions, each run on both sides where that is possible; `CaptureFault` if it can't be run.

    ``further`` are sizes at which the model was run before: they need not be looked for again.
    """
    rows = [row for row in first_rows(traces.agreed) if traces.runs(row)]
    rows += [dict(row) for row in further if row not in rows and traces.runs(row)]
    if not rows:
        traces.at(traces.agreed.generic)
    crossed: set[Turn] = set()
    beyond: list[Turn] = []
    turns: tuple[Turn, ...] = ()
    widened: set[str] = set()
    earlier: Earlier = {}
    known: dict[str, Turn | None] = {}
    others = [tape.watch for tape in traces.with_other_values(rows[0])]
    for _ in range(MOST_ROUNDS):
        # The same sizes with other values, too: what differs between them is no size.
        first, *seen = [traces.at(row).watch for row in rows]
        again = [rows[0] for _ in others]
        meaning = Meanings([first, *others, *seen], [rows[0], *again, *rows[1:]], earlier)
        asked = _open_turns(traces, meaning, known)
        turns = tuple(asked)
        for name, row in meaning.unknown.items():
            if name not in widened:
                most = max(FEWEST_WIDER, MOST_STEPS // max(1, len(traces.at(row).steps)))
                wider = itertools.islice(_wider(traces, meaning, row), most)
                rows += [other for other in wider if other not in rows]
        if not meaning.unknown.keys() <= widened:
            widened |= meaning.unknown.keys()
            continue
        new = [turn for turn in turns if turn not in crossed][: MOST_CROSSED - len(crossed)]
        if not new:
            break
        for turn in new:
            crossed.add(turn)
            if len({turn.holds(row) for row, _ in asked[turn]}) > 1:
                continue
            # From a run that asks it: elsewhere the model may never come to it.
            found, reachable = _other_side(traces, meaning, turn, *asked[turn][0])
            for row in found:
                rows += [other for other in (row, *_around(traces, turn, row)) if other not in rows]
            if not reachable:
                beyond.append(turn)
    rows += [row for row in _where_leaked(traces, meaning) if row not in rows]
    return Turns(turns, tuple(rows), tuple(beyond))


def _where_leaked(traces: Traces, meaning: Meanings) -> Iterator[dict[str, int]]:
    """Sizes that tell what becomes of a number which goes into a text or into numpy, where it is not seen any more.

    `Unseen` where the model goes another way there, though all decisions that are seen go the same way.
    """
    base = meaning.rows[0]
    watch = meaning.watches[0]
    for part, where in itertools.islice(watch.leaked.items(), MOST_LEAKED):
        for value in VALUES:
            condition = meaning.of(Formula("==", (part, value)), base)
            row = None if condition is None else _meeting(traces, condition, base)
            if row is None:
                continue
            yield row
            there = traces.at(row)
            assert there.watch is not None
            if path_of(there.watch) == meaning.paths[0] and traces.compared(parting, base, row) is not None:
                raise Unseen(
                    "the model goes another way by a size that it made a text of, or handed to numpy: "
                    f"at {', '.join(f'{name} = {size}' for name, size in row.items())}",
                    where=where,
                    hint="Compare the size itself, as in `if n % 10 == 0`.",
                )


def _meeting(traces: Traces, condition: Formula, base: Sizes) -> dict[str, int] | None:
    """Sizes near the base at which a condition holds and the model runs."""
    contract = traces.agreed.contract
    turn = Turn(condition, None, None, period_of(condition), condition.names)
    rows = (row for _, row in crossings(turn, base, contract.ranges, contract.allows) if turn.holds(row))
    cheap = (row for row in rows if contract.elements(row) <= MOST_NUMBERS)
    return next((row for row in cheap if traces.runs(row)), None)


def _wider(traces: Traces, meaning: Meanings, row: Sizes) -> Iterator[dict[str, int]]:
    """More sizes on the same way as a run, so that a size which it asked about shows its law."""
    watch = traces.at(row).watch
    assert watch is not None
    path, contract = path_of(watch), traces.agreed.contract
    goes = _way_to(meaning, row, "")
    for step in STEPS:
        for name, size in row.items():
            near = ({**row, name: size + step + more} for more in range(MOST_BESIDE))
            other = next((other for other in near if goes(other) and contract.allows(other)), None)
            if other is not None and contract.elements(other) <= MOST_NUMBERS and traces.runs(other):
                seen = traces.at(other).watch
                if seen is not None and path_of(seen) == path:
                    yield other


def _other_side(
    traces: Traces, meaning: Meanings, turn: Turn, base: Sizes, text: str
) -> tuple[list[dict[str, int]], bool]:
    """For each dim that turns a decision, the cheapest sizes beyond at which the model runs, and comes to it.

    With them, whether there are any that are not too large. ``text`` is the decision as the run at ``base`` made it.
    """
    contract, here = traces.agreed.contract, turn.holds(base)
    legal = [
        (name, row)
        for name, row in crossings(turn, base, contract.ranges, contract.allows)
        if turn.holds(row) != here
    ]
    cheap = [(name, row) for name, row in legal if contract.elements(row) <= MOST_NUMBERS]
    # At 0 and 1 much else is special.
    cheap.sort(
        key=lambda item: (min(item[1].values()) < 2, contract.elements(item[1]), sorted(item[1].items()))
    )
    # Elsewhere than where it was asked, the model may not come to it: then the other dims stay as they are.
    here_only = [item for item in cheap if all(item[1][n] == base[n] for n in base if n != item[0])]
    found: dict[str, dict[str, int]] = {}
    reached: set[str] = set()

    def on_the_way() -> Iterator[tuple[str, dict[str, int]]]:
        """Where none of those comes to it: sizes that are solved for together with all decisions before it."""
        # What no run asked, as it is about a computed number, all come to.
        goes = _way_to(meaning, base, text) if text else lambda sizes: True
        # Where none were found under a wider contract, there are none under this one.
        sought = turn.condition.text, text, tuple(base.items())
        if not reached and sought not in traces.in_vain:
            traces.in_vain.add(sought)
            for item in searched(
                turn,
                base,
                contract.ranges,
                lambda row: (
                    turn.holds(row) != here
                    and goes(row)
                    and contract.elements({dim: max(size, 1) for dim, size in row.items()}) <= MOST_NUMBERS
                    and contract.allows(row)
                ),
            ):
                traces.in_vain.discard(sought)
                yield item

    for options in (cheap, here_only, on_the_way()):
        tries: dict[str, int] = {}
        for name, row in options:
            tries[name] = tries.get(name, 0) + 1
            if name not in reached and tries[name] <= MOST_TRIES and traces.runs(row):
                found.setdefault(name, row)
                if _asks(traces, row, text):
                    reached.add(name)
                    found[name] = row
    return list(found.values()), bool(cheap or found) or not legal


def _way_to(meaning: Meanings, row: Sizes, text: str) -> Callable[[Sizes], bool]:
    """Whether a run at other sizes decides as the one at ``row`` does, until it comes to a decision or to its end."""
    watch = meaning.watches[next(k for k, other in enumerate(meaning.rows) if other is row)]
    before = itertools.takewhile(lambda decision: decision.condition.text != text, watch.decisions)
    spoken = ((meaning.of(decision.condition, row), decision.truth) for decision in before)
    conditions = [(over, truth) for over, truth in spoken if over is not None]

    def goes(sizes: Sizes) -> bool:
        try:
            return all(bool(over.evaluate(sizes)) == truth for over, truth in conditions)
        except (ArithmeticError, ValueError, TypeError):
            return False

    return goes


def _asks(traces: Traces, row: Sizes, text: str) -> bool:
    """Whether a run made a decision; one that no run made, as it is about a computed number, is made by all."""
    watch = traces.at(row).watch
    return not text or (watch is not None and any(item.condition.text == text for item in watch.decisions))


def _around(traces: Traces, turn: Turn, row: Sizes) -> Iterator[dict[str, int]]:
    """Sizes near by on the same side: one run alone does not tell how the sizes of tensors in between hang on the dims.

    Where none of those is asked about there, none are needed.
    """
    watch = traces.at(row).watch
    assert watch is not None
    if not any(is_reserved(name) for decision in watch.decisions for name in decision.condition.names):
        return
    contract, here = traces.agreed.contract, turn.holds(row)
    for near in (True, False):
        for name, size in row.items():
            for away in range(4):
                other = {**row, name: (size + 1 if near else size * 5 // 4 + 2) + away}
                if contract.allows(other) and turn.holds(other) == here:
                    if contract.elements(other) <= MOST_NUMBERS and traces.runs(other):
                        yield other
                    break


Asked = dict[Turn, list[tuple[Sizes, str]]]  # by which runs, and in their words


def _open_turns(traces: Traces, meaning: Meanings, known: dict[str, Turn | None]) -> Asked:
    """The decisions that the contract leaves open, in the order in which they are made; and the runs that made them.

    ``known`` has those that were looked at before, by their text: it takes a while to tell what is open.
    """
    contract = traces.agreed.contract
    asked: Asked = {}

    def ask(
        condition: Formula | None, where: SourceLine | None, made_by: Sequence[tuple[Sizes, str]]
    ) -> None:
        if condition is None or not condition.names:
            return
        if condition.text not in known:
            known[condition.text] = _turn(condition, where, contract)
        made = known[condition.text]
        if made is not None:
            asked.setdefault(made, []).extend(made_by)

    for row in meaning.rows:
        watch = traces.at(row).watch
        assert watch is not None
        for decision in watch.decisions:
            ask(meaning.of(decision.condition, row), decision.where, [(row, decision.condition.text)])
    for condition in _still(meaning):
        ask(condition, None, [(row, "") for row in meaning.rows])
    return asked


def _still(meaning: Meanings) -> Iterator[Formula]:
    """Integers that Python computed, the same in every run: ``n // 100`` may choose from a list, unseen."""
    first, rows = meaning.watches[0], meaning.rows
    for formula in itertools.islice(first.numbers, MOST_STILL):
        over = meaning.of(formula, rows[0]) if is_whole(formula) and period_of(formula) else None
        if over is None or not over.names:
            continue
        try:
            here = over.evaluate(rows[0])
            if all(over.evaluate(row) == here for row in reversed(rows)):
                yield Formula("==", (over, here))
        except (ArithmeticError, ValueError, TypeError):
            continue


def _turn(condition: Formula, where: SourceLine | None, contract: Contract) -> Turn | None:
    """The decision, if the contract leaves both answers open."""
    relation = as_relation(condition)
    if relation is not None and (
        relation.decide(contract.ranges) is not None or relation in contract.relations
    ):
        return None
    turn = Turn(condition, where, relation, period_of(condition), condition.names)
    return turn if relation is not None else _single(turn, contract)


def _single(turn: Turn, contract: Contract) -> Turn:
    """A condition that no graph computes exactly, on one dim that turns it once: the size at which it does."""
    if len(turn.names) != 1:
        return turn
    (name,) = turn.names
    pairs = turning(turn, {}, name, contract.dim(name).range)
    if len(pairs) != 1:
        return turn
    limit = pairs[0][0]
    below = turn.holds({name: limit})
    size = Expr.of(name)
    relation = Relation(size, "<=", Expr.of(limit)) if below else Relation(Expr.of(limit + 1), "<=", size)
    return Turn(turn.condition, turn.where, relation, 0, turn.names)
