"""onnxscript's rewriter, held to what a model says."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

from onnxscript.rewriter import _matcher

from anyshape.torch_bridge.process import patched

__all__ = ["exact_constants"]


def _equal(one: float, two: float, **tolerances: Any) -> bool:
    return one == two


@contextlib.contextmanager
def exact_constants() -> Iterator[None]:
    """Within this context, a rule for ``x + 0`` does not take ``x + 1e-9`` for one, nor ``x * 1.000005`` for ``x``.

    onnxscript compares constants up to 1e-8, or 1e-5 of them (0.7.2), and rules do not let their users choose.
    """
    with patched(_matcher, "math", types.SimpleNamespace(isclose=_equal)):
        yield
