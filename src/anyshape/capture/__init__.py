"""capture: the module becomes a `Program`, a graph over symbolic sizes, by one rung of a ladder after another.

1. symbolic: torch.export with dynamic sizes.
2. differential: runs at several sizes, lined up; 3. with loops over a size rolled; 4. with a region for each way
through the model. A rung may succeed and still be wrong at some size: verify is the judge of every rung.
"""

from __future__ import annotations

from anyshape.capture.differential import Traces
from anyshape.capture.program import Guard, Program
from anyshape.capture.regions import capture_regions
from anyshape.capture.symbolic import NoTape, capture_symbolic
from anyshape.capture.tape import Split

__all__ = ["Guard", "NoTape", "Program", "Split", "Traces", "capture_regions", "capture_symbolic"]
