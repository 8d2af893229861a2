"""tape: what a module ran at concrete sizes, and how tapes at several sizes become one for all sizes."""

from __future__ import annotations

from anyshape.capture.tape.choose import by_numbers
from anyshape.capture.tape.expand import expanded
from anyshape.capture.tape.explain import Apart, explained
from anyshape.capture.tape.explainer import Explainer, Undecided, Unexplained
from anyshape.capture.tape.functional import functional
from anyshape.capture.tape.graph import tape_of
from anyshape.capture.tape.neutral import may_be_left_out
from anyshape.capture.tape.play import Played, play
from anyshape.capture.tape.record import record
from anyshape.capture.tape.roll import rolled_up
from anyshape.capture.tape.steps import Split, Step, Tape, Value, chosen, rolled

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
