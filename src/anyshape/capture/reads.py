"""Where Python looks at values: each look is answered the other way to see what hangs on it.

A look is a truth that Python asks of a tensor (``if mask.all()``), or a comparison with a number that hangs on values.
What the other answer changes tells what it is: nothing; a check that raises, which a graph can leave out; or another
way through the model, of which a graph that knows the truth can choose (`capture/values.py`).
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.capture.program import Unseen
from anyshape.capture.tape import Tape, play
from anyshape.capture.tape.merge import Apart, lined_up
from anyshape.capture.tape.steps import NUMBERS, Read, Value, leaves
from anyshape.capture.traces import CHECK, NOTHING, WAY, Traces
from anyshape.capture.watched import Measure
from anyshape.compare import same
from anyshape.dims.formula import Part, names_of
from anyshape.errors import CaptureFault, SourceLine
from anyshape.inputs.case import OutOfMemory, Outputs, Refusal, answered
from anyshape.inputs.variants import count_variants

__all__ = ["Asked", "Look", "check_reads", "one_of_many", "open_look", "outline", "right_either_way"]

Sizes = Mapping[str, int]

MOST_LOOKS = 24
MOST_EXACT = 2


@dataclass(frozen=True, slots=True)
class Look:
    """A truth that Python saw of values."""

    key: Any
    truth: bool
    where: SourceLine | None
    value: Value | None  # the tensor whose truth it is; None for a comparison of numbers
    is_of_sizes: bool = False  # a comparison of no float: of a size that values decide, or of an integer


def open_look(traces: Traces, sizes: Sizes) -> Look | None:
    """The first look at values in a run on which the way through the model hangs; None if there is none."""
    for look in _looks(traces, sizes)[:MOST_LOOKS]:
        if look.key not in traces.answers and _status(traces, sizes, look) == WAY:
            return look
    return None


def one_of_many(traces: Traces) -> bool:
    """Whether a size is asked for again and again, as by a loop over experts: each way of each would be too many."""
    return sum(other.is_of_sizes for other in _looks(traces, traces.agreed.generic)) > MOST_EXACT


def _looks(traces: Traces, sizes: Sizes) -> list[Look]:
    """All looks of a run."""
    tape = traces.at(sizes)
    found = [Look(read.key, read.seen, read.where, read.value) for read in tape.reads if read.is_truth]
    moving = _moving(traces, sizes)
    watch = tape.watch
    for decision in watch.decisions if watch is not None else ():
        if watch is not None and decision.condition.names & moving:
            is_of_sizes = not decision.condition.names & watch.floats.keys()
            found.append(Look(decision.key, decision.truth, decision.where, None, is_of_sizes))
    return found


def _moving(traces: Traces, sizes: Sizes) -> set[str]:
    """Numbers that are no sizes: read out of tensors, or other at the same sizes with other values."""
    tapes = (traces.at(sizes), *traces.with_other_values(sizes))
    watches = [tape.watch for tape in tapes if tape.watch is not None]
    first = watches[0]
    moving = {name for watch in watches for name in (*watch.reads, *watch.floats)}
    for watch in watches[1:]:
        moving |= {name for name, size in first.sizes.items() if watch.sizes.get(name, size) != size}
    return moving


def _status(traces: Traces, sizes: Sizes, look: Look) -> str:
    """What hangs on a look: found once."""
    if look.key not in traces.settled:
        traces.settled[look.key] = _found(traces, sizes, look)
    return str(traces.settled[look.key])


def _found(traces: Traces, sizes: Sizes, look: Look) -> str:
    at, seed = _asked_at(traces, sizes, look)
    here = traces.at(at, seed)
    try:
        other = traces.of_run(at, traces.tensors(at, seed), {look.key: not look.truth})
    except CaptureFault as fault:
        if _raised(fault.__cause__):
            return CHECK
        return _among_values(traces, sizes, look)
    if repr(here.told) != repr(other.told):
        raise Unseen(
            "the result holds a Python value that depends on the values of a tensor: a graph has none to give",
            where=look.where,
            hint="Return the tensor itself, not what Python reads out of it.",
        )
    if outline(here) != outline(other):
        return WAY
    return (
        WAY
        if _hangs_at_other_sizes(traces, at, look) or _hangs_elsewhere(traces, at, seed, look)
        else NOTHING
    )


def _hangs_at_other_sizes(traces: Traces, sizes: Sizes, look: Look) -> bool:
    """Whether the answer makes a difference at other sizes: ``x.shape[0] if found else 5`` makes none at 5."""
    for key, tape in traces.tapes():
        row = dict(item for item in key if isinstance(item, tuple) and len(item) == 2)
        seed = key[-1]
        decided = tape.watch.decisions if tape.watch is not None else ()
        asked = {*(read.key for read in tape.reads), *(item.key for item in decided)}
        if not isinstance(seed, int) or look.key not in asked or any(row[n] == sizes[n] for n in sizes):
            continue
        truths = {
            **{read.key: read.seen for read in tape.reads},
            **{item.key: item.truth for item in decided},
        }
        try:
            other = traces.of_run(row, traces.tensors(row, seed), {look.key: not truths[look.key]})
        except CaptureFault:
            continue
        return outline(tape) != outline(other)
    return False


def _hangs_elsewhere(traces: Traces, sizes: Sizes, seed: int, look: Look) -> bool:
    """Whether the answer makes a difference with other numbers than those at hand: where they turn it by themselves.

    ``if k > 10: k = 10`` makes none at 13, if all that comes of ``k`` is whether it is at least 2. At 0 it does.
    """
    if look.value is not None:
        return False
    for shifts in traces.turning(sizes, seed, look.key):
        try:
            free = traces.of_run(sizes, traces.tensors(sizes, seed), more_at=shifts)
            forced = traces.of_run(sizes, traces.tensors(sizes, seed), {look.key: look.truth}, shifts)
        except CaptureFault:
            continue
        if outline(free) != outline(forced):
            return True
    return False


def _asked_at(traces: Traces, sizes: Sizes, look: Look) -> tuple[Sizes, int]:
    """Sizes and a seed at which a run comes to the look: those at hand, or the first of all that does."""
    for key, tape in ((None, traces.at(sizes)), *traces.tapes()):
        decided = tape.watch.decisions if tape.watch is not None else ()
        if look.key in {*(read.key for read in tape.reads), *(decision.key for decision in decided)}:
            if key is None:
                return sizes, 0
            if isinstance(key[-1], int):
                return dict(key[:-1]), key[-1]
    return sizes, 0


def _raised(error: BaseException | None) -> bool:
    """Whether an exception comes from a line that says so: ``raise`` or ``assert``."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    if not frames:
        return False
    text = linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
    return any(word in text.split() for word in ("raise", "assert"))


def _among_values(traces: Traces, sizes: Sizes, look: Look) -> str:
    """With these values the other way does not run. With values that lead there by themselves it may."""
    for tape in traces.with_other_values(sizes):
        seen = {read.key: read.seen for read in tape.reads}
        decided = {decision.key: decision.truth for decision in tape.watch.decisions} if tape.watch else {}
        if {**seen, **decided}.get(look.key, look.truth) != look.truth:
            return WAY
    raise CaptureFault(
        "Python looks at the values of a tensor, and with these values the model runs one way only: "
        "what it does otherwise can't be seen",
        where=look.where,
        hint="Give an example of the other way too (examples=[...]), or compute it with tensors (torch.where).",
    )


def right_either_way(traces: Traces, sizes: Sizes, look: Look) -> bool:
    """Whether the way that was traced is right also for values that turn the answer: there are some, and it is for all.

    A loop over experts skips one without tokens, to save time: what it would do with none of them changes nothing.
    """
    turned = False
    seeds = range(count_variants(traces.case, traces.agreed.rules) + 1)
    made = [traces.tensors(sizes, seed) for seed in seeds]
    for tensors in (*made, *_variants(made[0])):
        expected = traces.case.run(tensors)
        if not isinstance(expected, Outputs):
            continue
        try:
            free = traces.record(sizes, tensors)
            forced = traces.of_run(sizes, tensors, {look.key: look.truth})
        except CaptureFault:
            return False
        decided = {item.key: item.truth for item in free.watch.decisions} if free.watch is not None else {}
        if decided.get(look.key, look.truth) == look.truth:
            continue
        got = _played(forced, tensors)
        if got is None or not all(
            same(one, two, 1e-4, 1e-5) for one, two in zip(expected.tensors, got, strict=True)
        ):
            return False
        turned = True
    return turned


def outline(tape: Tape) -> list[Any]:
    """All that a tape does, in numbers; weights and inputs by which they are."""
    ids: dict[Value, Any] = {value: ("input", number) for number, value in enumerate(tape.inputs)}
    for value, tensor in tape.constants.items():
        ids[value] = "constant", tape.names.get(value) or _digest(tensor)

    def told(leaf: Any) -> Any:
        return ids.setdefault(leaf, ("value", len(ids))) if isinstance(leaf, Value) else repr(leaf)

    made = [
        (
            step.target,
            [told(leaf) for leaf in leaves((step.args, dict(step.kwargs)))],
            [told(v) for v in step.outputs],
        )
        for step in tape.steps
    ]
    return [*made, [told(value) for value in tape.outputs]]


def _digest(tensor: torch.Tensor) -> str:
    """A text that another tensor does not have."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return f"{tensor.dtype}{tuple(tensor.shape)}{hashlib.sha1(raw).hexdigest()}"


class Asked(CaptureFault):
    """Python looks at values, perhaps in some of the runs only: at ``rows``, and not at ``others``."""

    rows: Sequence[Sizes] = ()
    others: Sequence[Sizes] = ()


def check_reads(traces: Traces, rows: Sequence[Sizes], tapes: Sequence[Tape]) -> list[Tape]:
    """Tapes with other floats read, that must be explained too; `CaptureFault` where a graph can't follow a read."""
    sizes = traces.agreed.generic
    settled = {*traces.answers, *(key for key, status in traces.settled.items() if status != WAY)}
    open_reads = [
        (row, read)
        for row, tape in zip(rows, tapes, strict=True)
        for read in tape.reads
        if _is_open(read) and read.key not in settled
    ]
    for row, read in open_reads:
        if read.key not in settled and read.is_truth and _status(traces, row, _look_of(read)) != WAY:
            settled.add(read.key)
    left = {read.where: read for _, read in open_reads if read.key not in settled}
    if left:
        for line in _right_anyway(traces, sizes, tapes[0], set(left)):
            left.pop(line, None)
    for where, read in left.items():
        fault = _asked(read)
        asking = [any(other.where == where for other in tape.reads) for tape in tapes]
        fault.rows = [row for row, asks in zip(rows, asking, strict=True) if asks]
        fault.others = [row for row, asks in zip(rows, asking, strict=True) if not asks]
        raise fault

    return _check_floats(traces, sizes, tapes)


def _asked(read: Read) -> Asked:
    return Asked(
        f"Python looks at the values of a tensor ({_short(read.seen)}): a graph can't follow what it does",
        where=read.where,
        hint="Compute it with tensors (torch.where instead of if), or move the check out of the model.",
    )


def _check_floats(traces: Traces, sizes: Sizes, tapes: Sequence[Tape]) -> list[Tape]:
    """Tapes with other floats; `CaptureFault` where one is lost from sight, or a list has more at other sizes."""
    for tape in tapes:
        watch = tape.watch
        lost = {name for part in (watch.leaked if watch is not None else ()) for name in names_of(part)}
        told = [part for item in tape.told or () for part in _parts_of(item)]
        lost |= {name for part in told for name in names_of(part)}
        names = [name for name in (watch.floats if watch is not None else ()) if name in lost]
        if names and watch is not None:
            raise _asked(_read_at(tape, watch.places[names[0]]))
    counts = [Counter(step.where for step in tape.steps if step.target in NUMBERS) for tape in tapes]
    for tape, count in zip(tapes, counts, strict=True):
        for where, _ in tape.lists:
            if count[where] != counts[0][where]:
                raise _asked(next(read for read in tape.reads if read.where == where))
    home = traces.at(sizes)
    imagined = [other for other in traces.imagined(sizes) if _truths(other) == _truths(home)]
    if not all(_lines_up(home, other) for other in imagined):
        raise _asked(next(read for read in home.reads if type(read.seen) is float))
    return imagined


def _read_at(tape: Tape, place: Any) -> Read:
    return next(read for read in tape.reads if ("read", *read.key) == place)


def _parts_of(item: Any) -> Iterator[Part]:
    if isinstance(item, Measure):
        yield item.formula


def _truths(tape: Tape) -> list[Any]:
    """What the model decided by, on its way."""
    decided = tape.watch.decisions if tape.watch is not None else ()
    asked = [(read.key, read.seen) for read in tape.reads if isinstance(read.seen, bool)]
    return [*asked, *((decision.key, decision.truth) for decision in decided)]


def _lines_up(one: Tape, two: Tape) -> bool:
    try:
        lined_up([one, two])
    except Apart:
        return False
    return True


def _look_of(read: Read) -> Look:
    return Look(read.key, read.seen, read.where, read.value)


def _is_open(read: Read) -> bool:
    """A number of one tensor goes on as one that the graph computes."""
    return read.value is None or type(read.seen) not in (int, float)


def _right_anyway(
    traces: Traces, sizes: Sizes, tape: Tape, lines: set[SourceLine | None]
) -> set[SourceLine | None]:
    """The lines that were made to see something else. None of them, if the tape was wrong at any of these values."""
    before = {read.where: read.seen for read in tape.reads if read.where in lines}
    settled = set()
    for other in _variants(traces.tensors(sizes)):
        expected = traces.case.run(other)
        if not isinstance(expected, Outputs):
            continue  # values that the model refuses tell nothing
        try:
            again = traces.record(sizes, other)
            got = _played(tape, other)
        except CaptureFault:
            continue
        if got is None or not all(
            same(one, two, 1e-3, 1e-4) for one, two in zip(expected.tensors, got, strict=True)
        ):
            return set()
        now = {read.where: read.seen for read in again.reads}
        settled |= {line for line, seen in before.items() if repr(now.get(line)) != repr(seen)}
    return settled


def _played(tape: Tape, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    got = answered(functools.partial(play, tape, [tensor.clone() for tensor in tensors]))
    return None if isinstance(got, (Refusal, OutOfMemory)) else got


def _variants(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The inputs with one of them all ones, all zeros, or the other way round."""
    for number, tensor in enumerate(tensors):
        changes = [torch.ones_like(tensor), torch.zeros_like(tensor)]
        if tensor.is_floating_point():
            changes += [-tensor.abs() - 1, tensor.abs() + 1]
        changes.append(
            ~tensor
            if tensor.dtype == torch.bool
            else -tensor
            if tensor.is_floating_point()
            else tensor.flip(0)
        )
        for change in changes:
            yield [change if k == number else item.clone() for k, item in enumerate(tensors)]


def _short(seen: Any) -> str:
    text = " ".join(str(seen).split())
    return text if len(text) <= 40 else text[:37] + "..."
