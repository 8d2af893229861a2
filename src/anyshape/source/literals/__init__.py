"""literals: the integers in a running model's source: where they stand, what they hold, and others in their place.

>>> import torch
>>> from anyshape.source.literals import instrumented
>>> with instrumented(lambda: torch.ones(2).relu()) as literals:
...     literals.seen
{}
"""

from __future__ import annotations

from anyshape.source.literals.marks import Literal
from anyshape.source.literals.watch import Literals, Local, instrumented

__all__ = ["Literal", "Literals", "Local", "instrumented"]
