"""Our translations of operators that torch's own fix to the traced sizes, or fail on when sizes vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.lower.distances import TRANSLATIONS as DISTANCES
from anyshape.lower.elementwise import TRANSLATIONS as ELEMENTWISE
from anyshape.lower.indexing import TRANSLATIONS as INDEXING
from anyshape.lower.order import TRANSLATIONS as ORDER
from anyshape.lower.pooling import TRANSLATIONS as POOLING
from anyshape.lower.resize import TRANSLATIONS as RESIZE
from anyshape.lower.scans import TRANSLATIONS as SCANS
from anyshape.lower.sorting import TRANSLATIONS as SORTING

__all__ = ["TRANSLATIONS"]

TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **DISTANCES,
    **ELEMENTWISE,
    **INDEXING,
    **ORDER,
    **POOLING,
    **RESIZE,
    **SCANS,
    **SORTING,
}
"""What lower adds to torch.onnx's own translations."""
