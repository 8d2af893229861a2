"""Our translations of operators that torch.onnx lacks, fixes to the traced sizes, or fails on when sizes vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

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

__all__ = ["COMPLEX", "translated", "translations"]

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


def translations() -> dict[Any, Callable[..., Any]]:
    """`TRANSLATIONS`, and those of operators of libraries that are imported."""
    return {**TRANSLATIONS, **dict(_of_libraries())}


def translated() -> frozenset[Any]:
    """The operators that a tape may keep whole; as a pair where complex tensors are meant."""
    return frozenset((*translations(), *(("complex", operator) for operator in COMPLEX)))


def _of_libraries() -> Iterator[tuple[Any, Callable[..., Any]]]:
    for name, translation in routing.OF_LIBRARIES.items():
        library, _, operator = name.partition("::")
        packet = getattr(getattr(torch.ops, library), operator, None)
        if packet is not None:
            yield packet.default, translation
