"""Our translations of operators that torch's own fix to the traced sizes, or fail on when sizes vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.lower import distances, elementwise, indexing, order, pooling, resize, scans, sorting

__all__ = ["TRANSLATIONS"]

TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **distances.TRANSLATIONS,
    **elementwise.TRANSLATIONS,
    **indexing.TRANSLATIONS,
    **order.TRANSLATIONS,
    **pooling.TRANSLATIONS,
    **resize.TRANSLATIONS,
    **scans.TRANSLATIONS,
    **sorting.TRANSLATIONS,
}
"""What lower adds to torch.onnx's own translations."""
