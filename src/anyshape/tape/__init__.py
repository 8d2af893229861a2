"""tape: what a module ran at concrete sizes, and how tapes at several sizes become one for all sizes."""

from __future__ import annotations

from anyshape.tape.choose import by_numbers
from anyshape.tape.expand import expanded
from anyshape.tape.explain import Apart, explained
from anyshape.tape.explainer import Explainer, Undecided, Unexplained
from anyshape.tape.functional import functional
from anyshape.tape.graph import tape_of
from anyshape.tape.neutral import may_be_left_out
from anyshape.tape.play import Played, play
from anyshape.tape.record import record
from anyshape.tape.roll import rolled_up
from anyshape.tape.steps import Split, Step, Tape, Value, chosen, rolled

__all__ = [
    "Apart",
    "Explainer",
    "Played",
    "Split",
    "Step",
    "Tape",
    "Undecided",
    "Unexplained",
    "Value",
    "by_numbers",
    "chosen",
    "expanded",
    "explained",
    "functional",
    "may_be_left_out",
    "play",
    "record",
    "rolled",
    "rolled_up",
    "tape_of",
]
