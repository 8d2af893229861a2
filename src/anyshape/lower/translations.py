"""Every translation of an operator that is ours, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.lower.operators import TRANSLATIONS as OPERATORS
from anyshape.lower.plain import TRANSLATIONS as PLAIN
from anyshape.lower.routing import TRANSLATIONS as ROUTING
from anyshape.lower.size_tensors import TRANSLATIONS as SIZE_TENSORS
from anyshape.recurrent import TRANSLATIONS as RECURRENT

__all__ = ["TRANSLATIONS"]

TRANSLATIONS: dict[Any, Callable[..., Any]] = {**OPERATORS, **PLAIN, **ROUTING, **SIZE_TENSORS, **RECURRENT}
"""What we add to torch.onnx's own translations, and put before them."""
