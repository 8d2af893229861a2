"""Our translations of operators that torch.onnx lacks, fixes to the traced sizes, or fails on when sizes vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.lower.operators import (
    convolution,
    distances,
    doubles,
    elementwise,
    extremes,
    indexing,
    order,
    plain,
    pooling,
    resize,
    routing,
    scans,
    size_tensors,
    sorting,
    spectra,
    squeezing,
)
from anyshape.lower.operators.complex import MAKES_COMPLEX
from anyshape.lower.operators.complex import TRANSLATIONS as COMPLEX
from anyshape.lower.operators.recurrent import TRANSLATIONS as RECURRENT

__all__ = ["COMPLEX", "TRANSLATED", "TRANSLATIONS"]

TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    **convolution.TRANSLATIONS,
    **distances.TRANSLATIONS,
    **doubles.TRANSLATIONS,
    **elementwise.TRANSLATIONS,
    **extremes.TRANSLATIONS,
    **indexing.TRANSLATIONS,
    **order.TRANSLATIONS,
    **plain.TRANSLATIONS,
    **pooling.TRANSLATIONS,
    **resize.TRANSLATIONS,
    **routing.TRANSLATIONS,
    **scans.TRANSLATIONS,
    **size_tensors.TRANSLATIONS,
    **sorting.TRANSLATIONS,
    **spectra.TRANSLATIONS,
    **squeezing.TRANSLATIONS,
    **MAKES_COMPLEX,
    **RECURRENT,
}
"""What we put before torch.onnx's own translations, for real tensors; `COMPLEX` is for complex ones."""

TRANSLATED: frozenset[Any] = frozenset((*TRANSLATIONS, *(("complex", operator) for operator in COMPLEX)))
"""The operators that a tape may keep whole; as a pair where complex tensors are meant."""
