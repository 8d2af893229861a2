"""tape: what a module ran at concrete sizes, and how tapes at several sizes become one for all sizes."""

from __future__ import annotations

from anyshape.capture.tape.choose import by_numbers
from anyshape.capture.tape.expand import expanded
from anyshape.capture.tape.fitter import Fitter, NoExpression, Undecided
from anyshape.capture.tape.functional import functional
from anyshape.capture.tape.graph import tape_of
from anyshape.capture.tape.loops import rolled_up
from anyshape.capture.tape.merge import Apart, merged
from anyshape.capture.tape.play import Played, play
from anyshape.capture.tape.record import record
from anyshape.capture.tape.skipped import may_be_left_out
from anyshape.capture.tape.steps import Split, Step, Tape, Value, chosen, rolled

__all__ = [
    "Apart",
    "Fitter",
    "NoExpression",
    "Played",
    "Split",
    "Step",
    "Tape",
    "Undecided",
    "Value",
    "by_numbers",
    "chosen",
    "expanded",
    "functional",
    "may_be_left_out",
    "merged",
    "play",
    "record",
    "rolled",
    "rolled_up",
    "tape_of",
]
