"""sites: the integers in the source of a model that runs: where they stand, what they hold, and others in their place.

>>> import torch
>>> from anyshape.sites import instrumented
>>> with instrumented(lambda: torch.ones(2).relu()) as sites:
...     sites.seen
{}
"""

from __future__ import annotations

from anyshape.sites.marks import Site
from anyshape.sites.watch import Local, Sites, instrumented

__all__ = ["Local", "Site", "Sites", "instrumented"]
