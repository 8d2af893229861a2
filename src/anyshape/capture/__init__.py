"""capture: the module becomes a `Program`, a graph over symbolic sizes, by one rung of a ladder after another.

A rung may succeed and still be wrong at some size: verify is the judge of every rung.
"""

from __future__ import annotations

from anyshape.agree import Agreed
from anyshape.capture.differential import capture_differential
from anyshape.capture.program import Guard, Program
from anyshape.capture.symbolic import capture_symbolic
from anyshape.read import Case

__all__ = ["RUNGS", "Guard", "Program", "capture"]

RUNGS = ("symbolic", "symbolic, strict", "differential")


def capture(case: Case, agreed: Agreed, rung: str) -> Program:
    """The program of a case on one rung; `CaptureFault` where that rung can't hold the contract."""
    if rung == "differential":
        return capture_differential(case, agreed)
    return capture_symbolic(case, agreed, strict=rung.endswith("strict"))
