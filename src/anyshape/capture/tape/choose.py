"""Choose: where tapes part and meet again, what lies between becomes one step that takes one of several ways.

A layer that decides by its own sizes leaves other steps on the tape at other sizes; each way is a small tape of its
own. So does a number that is one of a few (`shift = 0 if h <= 7 else 3`): then the ways differ in numbers only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from anyshape.capture.tape.contexts import context_of
from anyshape.capture.tape.numbering import numbered
from anyshape.capture.tape.steps import Step, Tape, Value, Way, chosen, leaves

__all__ = ["MOST_WAYS", "by_numbers", "chosen_between", "rewired"]

MOST_WAYS = 6
LONGEST_WAY = 400
MOST_MEETINGS = 4
ALIKE = 2  # so many equal steps in a row, and the tapes have met again

Signs = Sequence[Sequence[Any]]
Result = tuple[Value, ...]  # one value of each tape, which the steps after use in the same place
LineUp = Callable[[Sequence[Tape]], list[Tape] | None]


def chosen_between(tapes: Sequence[Tape], signs: Signs, here: int, line_up: LineUp) -> list[Tape] | None:
    """The tapes with what lies between ``here`` and where they meet again as one step; None if they don't meet."""
    for ends in _meetings(signs, here):
        cuts = [_Cut(tape, here, end) for tape, end in zip(tapes, ends, strict=True)]
        results = _results(cuts, signs)
        made = None if results is None else _joined(cuts, results, line_up)
        if made is not None:
            return made
    return None


def by_numbers(tapes: Sequence[Tape], number: int) -> list[Tape] | None:
    """The tapes, which are lined up, with one step as a choice among those with each of the numbers it has."""
    kinds = [repr(_numbers(tape.steps[number])) for tape in tapes]
    if not 1 < len(set(kinds)) <= MOST_WAYS:
        return None
    cuts = [_Cut(tape, number, number + 1) for tape in tapes]
    results = list(zip(*(tape.steps[number].outputs for tape in tapes), strict=True))
    order = list(dict.fromkeys(kinds))
    return _joined(cuts, results, lambda subset: list(subset), [order.index(kind) for kind in kinds])


def rewired(tapes: Sequence[Tape], here: int) -> list[Tape] | None:
    """The tapes with a step at ``here`` that uses, on all of them, a choice's result and not what one way of it is."""
    if any(here >= len(tape.steps) for tape in tapes):
        return None
    ids = [numbered(tape) for tape in tapes]
    made, changed = list(tapes), False
    for place, values in enumerate(zip(*(tape.steps[here].inputs for tape in tapes), strict=False)):
        names = [own[value] for own, value in zip(ids, values, strict=True)]
        if len(set(names)) < 2:
            continue
        result = next((name for name in names if _is_result(tapes[0], name)), None)
        if result is None:
            return None
        for k, (tape, name) in enumerate(zip(tapes, names, strict=True)):
            if name != result:
                step = tape.steps[result[1]]
                if not _is_result(tape, result) or _passed_on(step, result[2]) is not values[k]:
                    return None
                made[k] = _replaced(made[k], here, place, step.outputs[result[2]])
                changed = True
    return made if changed else None


def _is_result(tape: Tape, name: Any) -> bool:
    return name[0] == "step" and tape.steps[name[1]].target is chosen


def _passed_on(step: Step, number: int) -> Value | None:
    """The value from outside that this way hands on as it is."""
    way: Tape = step.body.tape
    given = dict(zip(way.inputs, step.args[0], strict=True))
    return given.get(way.outputs[number])


def _replaced(tape: Tape, here: int, place: int, value: Value) -> Tape:
    count = iter(range(len(tape.steps[here].inputs)))

    def change(leaf: Any) -> Any:
        return value if isinstance(leaf, Value) and next(count) == place else leaf

    steps = list(tape.steps)
    steps[here] = steps[here].mapped(change)
    return replace(tape, steps=steps)


def _numbers(step: Step) -> list[Any]:
    return [leaf for leaf in leaves((step.args, step.kwargs)) if not isinstance(leaf, Value)]


# --- Where tapes meet ------------------------------------------------------------------------------------


def _meetings(signs: Signs, here: int) -> list[list[int]]:
    """Where each tape goes on as all others do: a few places, the first with as few steps as possible before."""
    if len({tuple(sign[here : here + 1]) for sign in signs}) == 1:
        return [[here] * len(signs)]  # the same step, of other values
    shortest = min(signs, key=len)
    places = [_places(sign, here) for sign in signs]
    found: list[list[int]] = []
    for start in range(here, min(here + LONGEST_WAY, len(shortest) + 1)):
        seen = _window(shortest, start)
        ends = [place.get(seen) for place in places]
        if all(end is not None for end in ends):
            found.append([end for end in ends if end is not None])
    return sorted(found, key=sum)[:MOST_MEETINGS]


def _places(sign: Sequence[Any], here: int) -> dict[Any, int]:
    """For each run of a few steps, where it comes first."""
    places: dict[Any, int] = {}
    for start in range(here, min(here + LONGEST_WAY, len(sign) + 1)):
        places.setdefault(_window(sign, start), start)
    return places


def _window(sign: Sequence[Any], start: int) -> Any:
    return tuple(sign[start : start + ALIKE])


# --- What lies between, and what is used of it ------------------------------------------------------------


class _Cut:
    """A tape before, between and after."""

    def __init__(self, tape: Tape, start: int, end: int) -> None:
        self.tape, self.start, self.end = tape, start, end
        self.between = tape.steps[start:end]
        self.after = tape.steps[end:]
        self.ids = numbered(tape)
        self.inside = {value for step in self.between for value in step.outputs}
        self.later = {
            value: ("after", number, k)
            for number, step in enumerate(self.after)
            for k, value in enumerate(step.outputs)
        }
        self.outside = {
            name: value
            for value, name in self.ids.items()
            if value not in self.inside and value not in self.later
        }

    def token(self, value: Value) -> Any:
        """The same for values that are the same on all tapes, None for one made in between."""
        if value in self.inside:
            return None
        if value in self.later:
            return self.later[value]
        name = self.ids[value]
        return ("constant", self.tape.names.get(value)) if name[0] == "constant" else name

    def is_constant(self, value: Value) -> bool:
        return value in self.tape.constants

    def used(self) -> Iterator[Value]:
        """What the steps in between use that was there before."""
        for step in self.between:
            for value in step.inputs:
                if value not in self.inside and not self.is_constant(value):
                    yield value


def _results(cuts: Sequence[_Cut], signs: Signs) -> list[Result] | None:
    """What differs among the values that the steps after the meeting use; None if more is used further on."""
    if len({len(cut.tape.outputs) for cut in cuts}) > 1:
        return None
    found: dict[Result, None] = {}
    lengths = [len(cut.after) for cut in cuts]
    alike = 0
    while alike < min(lengths):
        if len({sign[cut.end + alike] for cut, sign in zip(cuts, signs, strict=True)}) > 1:
            break
        uses = [cut.after[alike].inputs for cut in cuts]
        if len({len(values) for values in uses}) > 1:
            break
        for values in zip(*uses, strict=True):
            _note(cuts, values, found)
        alike += 1
    if all(length == alike for length in lengths):
        for values in zip(*(cut.tape.outputs for cut in cuts), strict=True):
            _note(cuts, values, found)
    for number, cut in enumerate(cuts):
        known = {result[number] for result in found}
        used = {value for step in cut.after for value in step.inputs}.union(cut.tape.outputs)
        if not used & cut.inside <= known:
            return None
    results = list(found)
    same = all(len({(value.dtype, len(value.shape)) for value in result}) == 1 for result in results)
    return results if results and same else None


def _note(cuts: Sequence[_Cut], values: Result, found: dict[Result, None]) -> None:
    tokens = [cut.token(value) for cut, value in zip(cuts, values, strict=True)]
    if None in tokens or len(set(tokens)) > 1:
        found[values] = None


# --- One step for it ---------------------------------------------------------------------------------------


def _joined(
    cuts: Sequence[_Cut], results: Sequence[Result], line_up: LineUp, labels: Sequence[int] | None = None
) -> list[Tape] | None:
    given = _given(cuts, results)
    if given is None:
        return None
    ways = [
        _way(cut, values, [result[number] for result in results])
        for number, (cut, values) in enumerate(zip(cuts, given, strict=True))
    ]
    if labels is None:
        sorted_ways = _classes(ways, line_up)
        if sorted_ways is None:
            return None
        ways, labels = sorted_ways
    where = next((step.where for cut in cuts for step in cut.between if step.where is not None), None)
    contexts = [context_of(cut.tape.steps[: cut.start]) for cut in cuts]
    made, together = [], _together(cuts)
    for number in range(len(cuts)):
        old = [result[number] for result in results]
        new = [Value(value.shape, value.dtype, value.strides) for value in old]
        step = Step(
            chosen,
            (given[number],),
            {},
            tuple(new),
            where,
            Way(ways[number], labels[number], contexts[number]),
        )
        made.append(_put_in(cuts, number, step, results, together))
    return made


def _given(cuts: Sequence[_Cut], results: Sequence[Result]) -> list[list[Value]] | None:
    """For each tape, the values from before that any of the ways needs."""
    names: dict[Any, None] = {}
    for number, cut in enumerate(cuts):
        passed = [result[number] for result in results]
        handed = [v for v in passed if v not in cut.inside and not cut.is_constant(v)]
        names.update((cut.ids[value], None) for value in (*cut.used(), *handed))
    if any(name not in cut.outside for cut in cuts for name in names):
        return None
    return [[cut.outside[name] for name in names] for cut in cuts]


def _way(cut: _Cut, given: Sequence[Value], outputs: Sequence[Value]) -> Tape:
    used = {value for step in cut.between for value in step.inputs}.union(outputs)
    constants = {value: tensor for value, tensor in cut.tape.constants.items() if value in used}
    names = {value: name for value, name in cut.tape.names.items() if value in constants}
    return Tape(list(given), constants, list(cut.between), list(outputs), names)


def _classes(ways: Sequence[Tape], line_up: LineUp) -> tuple[list[Tape], list[int]] | None:
    """The ways lined up with those that are alike, and the number of each one's kind; None if there are too many."""
    kinds: list[list[int]] = []
    for number, way in enumerate(ways):
        for kind in kinds:
            if line_up([ways[kind[0]], way]) is not None:
                kind.append(number)
                break
        else:
            kinds.append([number])
    if len(kinds) > MOST_WAYS:
        return None
    made, labels = list(ways), [0] * len(ways)
    for label, kind in enumerate(kinds):
        lined = line_up([ways[number] for number in kind])
        if lined is None:
            return None
        for number, way in zip(kind, lined, strict=True):
            made[number], labels[number] = way, label
    return made, labels


def _together(cuts: Sequence[_Cut]) -> list[list[Result] | None]:
    """For each step after, what all tapes have in each place of it; None where they are not alike."""
    made: list[list[Result] | None] = []
    for steps in zip(*(cut.after for cut in cuts), strict=False):
        same = len({len(step.inputs) for step in steps}) == 1
        made.append(list(zip(*(step.inputs for step in steps), strict=True)) if same else None)
    return made


def _put_in(
    cuts: Sequence[_Cut],
    number: int,
    step: Step,
    results: Sequence[Result],
    together: Sequence[list[Result] | None],
) -> Tape:
    """A tape with the step in the place of what lay between, and its results wherever all tapes use one."""
    cut = cuts[number]
    pairs = list(zip(results, step.outputs, strict=True))
    in_place = dict(pairs)
    inside = {r[number]: value for r, value in pairs if r[number] in cut.inside}

    def swap(together: Result | None, value: Value) -> Value:
        return in_place[together] if together in in_place else inside.get(value, value)

    after = []
    for old, uses in itertools.zip_longest(cut.after, together[: len(cut.after)]):
        columns = iter(uses or [None] * len(old.inputs))
        touched = (
            uses is None or any(column in in_place for column in uses) or inside.keys() & set(old.inputs)
        )
        after.append(
            old.mapped(lambda leaf: swap(next(columns), leaf) if isinstance(leaf, Value) else leaf)  # noqa: B023
            if touched
            else old
        )
    ends = zip(*(other.tape.outputs for other in cuts), strict=True)
    outputs = [swap(column, value) for column, value in zip(ends, cut.tape.outputs, strict=True)]
    return replace(cut.tape, steps=[*cut.tape.steps[: cut.start], step, *after], outputs=outputs)
