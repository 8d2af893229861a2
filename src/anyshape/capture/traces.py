"""Traces: the tapes of a module at whatever sizes and values are asked for, each recorded once."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from anyshape.capture.tape import Tape, expanded, functional, record
from anyshape.capture.tape.steps import Number, Step, Value, compared, float_of, leaves, number_of, size_of
from anyshape.capture.tape.stripped import unstripped
from anyshape.capture.watched import Decision, Integer, Real, Symbols, speaking
from anyshape.contract.agree import Agreed
from anyshape.dims import Expr
from anyshape.dims.formula import Formula, Part, names_of
from anyshape.errors import CaptureFault
from anyshape.inputs.case import Case, OutOfMemory, Refusal, answered
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.inputs.variants import count_variants, varied_tensors
from anyshape.source.lines import line_of_exception
from anyshape.source.numbers import Numbers
from anyshape.torch_bridge.process import patched

__all__ = ["Traces", "known_size", "sizes_text"]

Sizes = Mapping[str, int]
Answer = TypeVar("Answer")

NOTHING, CHECK, WAY = "nothing", "a check", "a way"  # what may hang on a question about values
SHIFTS = (-1, 1, -2, 2, -3, 3, -5, 5)
MOST_SHIFTED = 4
MOST_PARTS = 24  # things computed from numbers of values that are told from each other
MOST_TURNED = 6
GOALS = (0, -1, 1, 1000, -1000)
REACH, FAR = 40, (-100, 100, -1000, 1000)  # how far such numbers are moved for that
MOST_DRAWN = 1 << 16  # numbers of an input that are not the same again: what a run does hardly hangs on more
INSTEAD: tuple[Callable[[float], float], ...] = (
    lambda value: 1.375 * value + 0.1171875,
    lambda value: 0.0,
    lambda value: -value - 1,
    lambda value: math.nan,
)
MORE = (2, 1, -1)  # an index has an end, and a loop of one round more is hardly one


@dataclass
class Exporting:
    """What a model is told that asks PyTorch whether it is being exported, and whether it did.

    Libraries ask so to leave out what only saves time and looks at values: whether a mask masks nothing, say.
    """

    answer: bool = True
    was_asked: bool = False

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """The context in which it is told so; what is exported counts as compiled, as with torch.export.

        PyTorch itself asks, too, and is told the truth: these are ordinary runs.
        """

        def answer() -> bool:
            asking = sys._getframe(2).f_globals.get(
                "__name__", ""
            )  # behind the one that asks which thread it is
            if asking.partition(".")[0] == "torch":
                return False
            self.was_asked = True
            return self.answer

        with patched(torch.compiler, "is_exporting", answer), patched(torch.compiler, "is_compiling", answer):
            yield


class Traces:
    """The tapes of a case, each traced once: functional, and of operators that have a translation."""

    def __init__(self, case: Case, agreed: Agreed, own: Collection[Any]) -> None:
        self.case, self.agreed, self.own = case, agreed, own
        self.answers: dict[Any, bool] = {}  # to Python's questions about values
        self.settled: dict[Any, str] = {}  # how it was found that a question about values does not matter
        self.known: dict[tuple[Any, ...], Tape | CaptureFault] = {}
        self.in_vain: set[Any] = set()  # decisions for whose other side no sizes were found
        self.held: dict[Any, Any] = {}  # what came of holding one tape against another
        self.symbols = Symbols()
        self.exporting = Exporting()
        self._numbers: Numbers | None = None

    def at(self, sizes: Sizes, seed: int = 0) -> Tape:
        """The tape at ``sizes``."""
        key = (*sorted(sizes.items()), seed)
        if key not in self.known:
            try:
                self.known[key] = self.of_run(sizes, self.tensors(sizes, seed))
            except CaptureFault as fault:
                self.known[key] = fault
        found = self.known[key]
        if isinstance(found, CaptureFault):
            raise found
        return found

    def compared(self, how: Callable[[Tape, Tape], Answer], one: Sizes, two: Sizes) -> Answer:
        """What comes of holding the tape at one set of sizes against that at another: done once, asked often."""
        key = how, tuple(sorted(one.items())), tuple(sorted(two.items()))
        if key not in self.held:
            self.held[key] = how(self.at(one), self.at(two))
        found: Answer = self.held[key]
        return found

    def tapes(self) -> list[tuple[tuple[Any, ...], Tape]]:
        """All tapes so far, by their sizes and the seed of their values."""
        return [(key, tape) for key, tape in self.known.items() if isinstance(tape, Tape)]

    def runs(self, sizes: Sizes) -> bool:
        """Whether the model takes these sizes: with values made by rules it may refuse some that it takes otherwise."""
        return self.runs_with(sizes, 0)

    @property
    def numbers(self) -> Numbers:
        """The plain numbers of the model's functions, which must not swallow watched ones."""
        if self._numbers is None:
            example = [item.example for item in self.case.inputs]
            self._numbers = Numbers(lambda: self.case.run(example), speaking, {"int": Integer, "float": Real})
        return self._numbers

    def of_run(
        self,
        sizes: Sizes,
        tensors: Sequence[torch.Tensor],
        more: Mapping[Any, bool] | None = None,
        more_at: Mapping[Any, float] | None = None,
    ) -> Tape:
        """The tape of one run: without writes, of operators that have a translation."""
        return self._tidy(self.record(sizes, tensors, more, more_at))

    def until_with_more(self, sizes: Sizes, key: Any) -> Tape | None:
        """The same with one row more wherever values decide a size: what was the same so far is no number for that."""
        counted = self.at(sizes).counted
        for more in MORE if counted else ():
            try:
                return self.until(sizes, key, more_at=dict.fromkeys(counted, more))
            except CaptureFault:
                continue
        return None

    def until(
        self, sizes: Sizes, key: Any, seed: int = 0, more_at: Mapping[Any, float] | None = None
    ) -> Tape | None:
        """The tape of what a look at values sees; None if it is not there at these sizes."""
        recorded = self.record(sizes, self.tensors(sizes, seed), more_at=more_at)
        decided = recorded.watch.decisions if recorded.watch is not None else ()
        decision = next((decision for decision in decided if decision.key == key), None)
        if decision is not None:
            return self._tidy(_comparing(recorded, decision))
        read = next((read for read in recorded.reads if read.key == key and read.value is not None), None)
        if read is None or read.value is None:
            return None
        before = [other for other in recorded.reads if other.step < read.step]
        return self._tidy(
            replace(recorded, steps=recorded.steps[: read.step], outputs=[read.value], reads=before)
        )

    def _tidy(self, recorded: Tape) -> Tape:
        recorded = _with_sizes(_without_idle_numbers(recorded))
        made = expanded(functional(unstripped(recorded)).used_only(), self.own).used_only()
        made.watch, made.counted, made.forgiven = recorded.watch, recorded.counted, recorded.forgiven
        made.told, made.lists = recorded.told, recorded.lists
        return made

    def tensors(self, sizes: Sizes, seed: int = 0) -> list[torch.Tensor]:
        """Legal inputs of these sizes; another seed gives other values."""
        agreed, given = self.agreed, dict(sizes)
        shapes = agreed.contract.shapes(given)
        if seed > 1:
            return varied_tensors(self.case, agreed.rules, shapes, given, seed, seed - 1)
        return make_tensors(self.case, agreed.rules, shapes, given, seed, anew=seed > 0, drawn=MOST_DRAWN)

    def with_other_values(self, sizes: Sizes) -> list[Tape]:
        """Tapes at the same sizes: with values drawn anew, and of every kind that the model takes."""
        count = count_variants(self.case, self.agreed.rules)
        seeds = [seed for seed in (1, *range(2, count + 1)) if self.runs_with(sizes, seed)]
        tapes = [self.at(sizes, seed) for seed in seeds]
        counting = self._counting(sizes, tapes)
        tapes += [counting] if counting is not None else []
        tapes += self._shifted(sizes, tapes)
        return [*tapes, *self._apart(sizes, tapes)]

    def _apart(self, sizes: Sizes, tapes: Sequence[Tape]) -> list[Tape]:
        """Tapes in which two things that were computed from numbers of values, and alike in all others, are not.

        ``abs(k)`` is ``k`` as long as nobody gives a negative one, and which of both it was is known by that.
        """
        here, made = self.at(sizes), list(tapes)
        if here.watch is None:
            return []
        numbers = here.watch.places.keys() & here.watch.sizes.keys()
        parts = [part for part in (*here.watch.used, *here.watch.numbers) if numbers & set(names_of(part))]
        parts += map(Expr.of, sorted(numbers))
        for one, two in itertools.combinations(dict.fromkeys(parts[:MOST_PARTS]), 2):
            common = sorted(numbers & {*names_of(one), *names_of(two)})
            if len(made) - len(tapes) < MOST_SHIFTED and self._are_alike(one, two, sizes, (here, *made)):
                other = self._parted(one, two, sizes, common)
                made += [other] if other is not None else []
        return made[len(tapes) :]

    def _are_alike(self, one: Part, two: Part, sizes: Sizes, tapes: Sequence[Tape]) -> bool:
        pairs = [(_value_of(one, sizes, tape), _value_of(two, sizes, tape)) for tape in tapes]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        return bool(known) and all(a == b for a, b in known)

    def _parted(self, one: Part, two: Part, sizes: Sizes, names: Sequence[str]) -> Tape | None:
        """The tape of a run in which the numbers are moved to where the two differ: the nearest that runs."""
        watch = self.at(sizes).watch
        assert watch is not None
        tried = 0
        for shift in sorted((*range(-REACH, REACH + 1), *FAR), key=abs):
            moved = {**sizes, **watch.sizes, **{name: watch.sizes[name] + shift for name in names}}
            if _at(one, moved) == _at(two, moved):
                continue
            key = (*sorted(sizes.items()), frozenset((watch.places[name], shift) for name in names))
            if key not in self.known:
                try:
                    places = {watch.places[name]: shift for name in names}
                    self.known[key] = self.of_run(sizes, self.tensors(sizes), more_at=places)
                except CaptureFault as fault:
                    self.known[key] = fault
            found, tried = self.known[key], tried + 1
            if isinstance(found, Tape):
                return found
            if tried == MOST_SHIFTED:
                break
        return None

    def _shifted(self, sizes: Sizes, tapes: Sequence[Tape]) -> list[Tape]:
        """Tapes in which what was computed from a number of values, and handed to PyTorch, is another for once.

        ``int(0.6*longest)`` may be the same in all of the others, and is no number for that.
        """
        here, made = self.at(sizes), list(tapes)
        used = list(here.watch.used) if here.watch is not None else []
        for part in used:
            numbers = {_value_of(part, sizes, tape) for tape in (here, *made)} - {None}
            if isinstance(part, Formula) and here.watch is not None and len(numbers) == 1:
                places = [here.watch.places[name] for name in sorted(part.names) if name in here.watch.places]
                alone = [[place] for place in places if len(places) > 1]
                ways = (self._with_shift(sizes, part, way) for way in (places, *alone) if way)
                other = next((tape for tape in ways if tape is not None), None)
                made += [other] if other is not None else []
            if len(made) - len(tapes) == MOST_SHIFTED:
                break
        return made[len(tapes) :]

    def _with_shift(self, sizes: Sizes, part: Formula, places: Sequence[Any]) -> Tape | None:
        before = _value_of(part, sizes, self.at(sizes))
        for shift in SHIFTS:
            key = (*sorted(sizes.items()), frozenset((place, shift) for place in places))
            if key not in self.known:
                try:
                    self.known[key] = self.of_run(
                        sizes, self.tensors(sizes), more_at=dict.fromkeys(places, shift)
                    )
                except CaptureFault as fault:
                    self.known[key] = fault
            found = self.known[key]
            if isinstance(found, Tape) and _value_of(part, sizes, found) not in (None, before):
                return found
        return None

    def turning(self, sizes: Sizes, seed: int, key: Any) -> list[dict[Any, float]]:
        """How far to move the numbers that a comparison is of, together or one alone, so that it comes out otherwise.

        A little, to nothing and below it, and far.
        """
        watch = self.at(sizes, seed).watch
        decided = [item for item in watch.decisions if item.key == key] if watch is not None else []
        if watch is None or not decided:
            return []
        condition = decided[0].condition
        values: dict[str, float] = {**sizes, **watch.sizes, **watch.floats}
        known = watch.places.keys() & values.keys()
        names, others = sorted(condition.names & known), sorted(known - condition.names)
        found: list[dict[str, float]] = []
        for moved in (names, *([name] for name in names if len(names) > 1)):
            turned = (
                shifts
                for shifts in _moves({name: values[name] for name in moved})
                if _at(condition, {**values, **{name: values[name] + by for name, by in shifts.items()}})
                not in (None, _at(condition, values))
            )
            found += itertools.islice(turned, MOST_TURNED)
        # What comes of it may hang on the other numbers, too.
        further = [{name: goal - values[name] for name in others} for goal in GOALS] if others else []
        found += [{**shifts, **more} for shifts in found[:MOST_SHIFTED] for more in further]
        return [{watch.places[name]: by for name, by in shifts.items()} for shifts in found]

    def imagined(self, sizes: Sizes) -> list[Tape]:
        """Tapes in which all floats that are read out of tensors are others for once.

        Every comparison of them is answered as it was: what the model does otherwise now, it does unseen. Where it
        goes another way by the values of tensors, or does not run, nothing is known of that.
        """
        here = self.at(sizes)
        if here.watch is None or not here.watch.floats:
            return []
        floats, made = here.watch.floats, []
        places = {here.watch.places[name]: value for name, value in floats.items()}
        hanging = {d.key: d.truth for d in here.watch.decisions if d.condition.names & floats.keys()}
        for number, instead in enumerate(INSTEAD):
            key = (*sorted(sizes.items()), "imagined", str(number))
            if key not in self.known:
                shifts = {place: instead(value) - value for place, value in places.items()}
                try:
                    self.known[key] = self.of_run(sizes, self.tensors(sizes), hanging, shifts)
                except CaptureFault as fault:
                    self.known[key] = fault
            found = self.known[key]
            if isinstance(found, Tape):
                made.append(found)
        return made

    def _counting(self, sizes: Sizes, tapes: Sequence[Tape]) -> Tape | None:
        """The tape with one row more wherever values decide a size that was the same so far: it is no number for that.

        None where there is no such size, or the model does not run so: then it knows the size for another reason.
        """
        here = self.at(sizes).counted
        # What moves on another side of a decision tells nothing here.
        others = [tape.counted for tape in tapes]
        still = frozenset(
            place
            for place, count in here.items()
            if all(other.get(place, count) == count for other in others)
        )
        key = (*sorted(sizes.items()), still)
        if still and key not in self.known:
            self.known[key] = self._with_more(sizes, still)
        found = self.known.get(key)
        return found if isinstance(found, Tape) else None

    def _with_more(self, sizes: Sizes, still: Collection[Any]) -> Tape | CaptureFault:
        for more in MORE:
            try:
                return self.of_run(sizes, self.tensors(sizes), more_at=dict.fromkeys(still, more))
            except CaptureFault as fault:
                refused = fault
        return refused

    def runs_with(self, sizes: Sizes, seed: int) -> bool:
        try:
            self.at(sizes, seed)
        except CaptureFault:
            return False
        return True

    def answering(self, answers: Mapping[Any, bool]) -> Traces:
        """The traces of the same module, with these answers to questions about values."""
        made = Traces(self.case, self.agreed, self.own)
        made.answers = {**self.answers, **answers}
        made.symbols, made._numbers, made.exporting = self.symbols, self._numbers, self.exporting
        # What does not matter after one answer may matter after another: `if a and b`.
        made.settled = {key: status for key, status in self.settled.items() if status == CHECK}
        return made

    def as_called(self) -> Traces:
        """The traces of the same module when it is told that nobody exports it."""
        made = Traces(self.case, self.agreed, self.own)
        made.exporting = Exporting(answer=False)
        return made

    def beside(self, agreed: Agreed) -> Traces:
        """The same traces under another agreement."""
        made = self.answering({})
        made.agreed, made.known, made.in_vain, made.held = agreed, self.known, self.in_vain, self.held
        made.settled = self.settled
        return made

    def record(
        self,
        sizes: Sizes,
        tensors: Sequence[torch.Tensor],
        more: Mapping[Any, bool] | None = None,
        more_at: Mapping[Any, float] | None = None,
    ) -> Tape:
        """The tape of one run, as it was run; ``more`` are further answers, ``more_at`` where to count one more."""
        case, answers = self.case, {**self.answers, **(more or {})}
        own = (*case.module.named_parameters(), *case.module.named_buffers())
        names = {id(tensor): name for name, tensor in own}
        shapes = [tuple(map(known_size, item.shape)) for item in self.agreed.contract.inputs]
        copies = [tensor.clone() for tensor in tensors]
        numbers = self.numbers  # which runs the model, too
        told: list[Any] = []
        with case.unchanged(), numbers.replaced(case.module), self.exporting.told():
            made = answered(
                lambda: record(_flat(case, told), copies, names, shapes, self.symbols, answers, more_at)
            )
        if isinstance(made, (Refusal, OutOfMemory)):
            raise CaptureFault(
                f"the model can't be traced at {sizes_text(sizes)}: {made.text}",
                where=line_of_exception(made.error),
                hint="Call the model at these sizes to see why.",
            ) from made.error
        made.told = told
        return made


def _comparing(recorded: Tape, decision: Decision) -> Tape:
    """The tape of a decision's truth: of the numbers that were read until then, and of the sizes that it asks for."""
    assert recorded.watch is not None
    steps, origins = recorded.steps[: decision.step], recorded.watch.origins
    for name in sorted(decision.condition.names & origins.keys()):
        value, axis = origins[name]
        steps.append(Step(size_of, (value, name, axis), {}, (), decision.where))
    truth = Value((), torch.bool)
    steps.append(Step(compared, (decision.condition,), {}, (truth,), decision.where))
    before = [read for read in recorded.reads if read.step <= decision.step]
    return replace(recorded, steps=steps, outputs=[truth], reads=before)


def _without_idle_numbers(tape: Tape) -> Tape:
    """The tape without the numbers that were read and never used: of a list, the model may take some only.

    An integer that was read by itself stays: Python may have made a plain one of it.
    """
    used: set[str] = set()
    for step in tape.steps:
        for leaf in leaves((step.args, dict(step.kwargs))):
            parts = (
                leaf.formulas if isinstance(leaf, Number) else (leaf,) if isinstance(leaf, Formula) else ()
            )
            used = used.union(*(part.names for part in parts))
    watch = tape.watch
    if watch is not None:
        conditions = [decision.condition for decision in watch.decisions]
        used = used.union(
            *(names_of(part) for parts in (watch.used, watch.numbers, conditions) for part in parts)
        )
    idle = {*watch.floats, *watch.listed} - used if watch is not None else set()
    steps = [
        step for step in tape.steps if step.target not in (float_of, number_of) or step.args[1] not in idle
    ]
    return replace(tape, steps=steps)


def _with_sizes(tape: Tape) -> Tape:
    """The tape with a name for each size that values may decide and that Python computes with, or hands on."""
    watch = tape.watch
    if watch is None or not tape.sized:
        return tape
    used = {name for parts in (watch.used, watch.numbers) for part in parts for name in names_of(part)}
    known = {step.args[1] for step in tape.steps if step.target is size_of}
    asked: dict[Value, list[Step]] = {}
    for name, (value, axis) in watch.origins.items():
        if value in tape.sized and name in used - known:
            asked.setdefault(value, []).append(Step(size_of, (value, name, axis), {}, ()))
    steps = [item for step in tape.steps for item in (step, *_of_any(asked, step.outputs))]
    return replace(tape, steps=steps)


def _of_any(asked: Mapping[Value, Sequence[Step]], outputs: Sequence[Value]) -> list[Step]:
    return [step for value in outputs for step in asked.get(value, ())]


def _value_of(part: Any, sizes: Sizes, tape: Tape) -> float | None:
    """What a formula of a run comes to; None where it is none of that run's."""
    return None if tape.watch is None else _at(part, {**sizes, **tape.watch.sizes})


def _moves(values: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """Moves of numbers: each to 0, 1, -1 and far, then a little further and further."""
    for goal in GOALS:
        yield {name: goal - value for name, value in values.items()}
    for shift in sorted(range(-REACH, REACH + 1), key=abs):
        yield dict.fromkeys(values, shift)


def _at(part: Any, sizes: Mapping[str, Any]) -> float | None:
    if not isinstance(part, (Formula, Expr)):
        return None
    try:
        return part.evaluate(sizes)
    except (ArithmeticError, ValueError, TypeError, KeyError):
        return None


def _flat(case: Case, told: list[Any]) -> Callable[..., Sequence[torch.Tensor]]:
    """A call that gives the tensors of a result; what else is in it is ``told``."""

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        found, structure = flatten(case.call(tensors))
        told.extend(structure.constants())
        return [tensor for _, tensor in found]

    return call


def known_size(size: Expr | None) -> Any:
    """A size of an input: a number, or an expression."""
    assert size is not None
    return size if size.constant is None else size.constant


def sizes_text(sizes: Sizes) -> str:
    """``batch = 2, seq = 5``"""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
