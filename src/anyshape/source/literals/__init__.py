"""sites: the integers in the source of a model that runs: where they stand, what they hold, and others in their place.

>>> import torch
>>> from anyshape.source.literals import instrumented
>>> with instrumented(lambda: torch.ones(2).relu()) as sites:
...     sites.seen
{}
"""

from __future__ import annotations

from anyshape.source.literals.marks import Site
from anyshape.source.literals.watch import Local, Sites, instrumented

__all__ = ["Local", "Site", "Sites", "instrumented"]
