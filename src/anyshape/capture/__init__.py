"""capture: the module becomes a `Program`, a graph over symbolic sizes, by one rung of a ladder after another.

0. watched: runs with sizes that watch themselves: every decision of the model, with its condition.
1. symbolic: torch.export with dynamic sizes.
2. differential: runs at several sizes, lined up; 3. with loops over a size rolled; 4. with a region for each way
through the model. A rung may succeed and still be wrong at some size: verify is the judge of every rung.
"""

from __future__ import annotations

from anyshape.capture.decisions import Turn, Turns, explored
from anyshape.capture.differential import parting
from anyshape.capture.program import Guard, Limit, Program, Unseen
from anyshape.capture.regions import ends
from anyshape.capture.symbolic import NoTape, capture_symbolic
from anyshape.capture.tape import Split
from anyshape.capture.traces import Traces
from anyshape.capture.values import capture_values

__all__ = [
    "Guard",
    "Limit",
    "NoTape",
    "Program",
    "Split",
    "Traces",
    "Turn",
    "Turns",
    "Unseen",
    "capture_symbolic",
    "capture_values",
    "ends",
    "explored",
    "parting",
]
