"""tape: what a module ran at concrete sizes, and how tapes at several sizes become one for all sizes."""

from __future__ import annotations

from anyshape.tape.expand import expanded
from anyshape.tape.explain import Apart, explained
from anyshape.tape.explainer import Explainer, Unexplained
from anyshape.tape.functional import functional
from anyshape.tape.graph import tape_of
from anyshape.tape.play import play
from anyshape.tape.record import record
from anyshape.tape.roll import rolled_up
from anyshape.tape.steps import Step, Tape, Value

__all__ = [
    "Apart",
    "Explainer",
    "Step",
    "Tape",
    "Unexplained",
    "Value",
    "expanded",
    "explained",
    "functional",
    "play",
    "record",
    "rolled_up",
    "tape_of",
]
