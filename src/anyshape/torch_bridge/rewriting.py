"""onnxscript's rewriter, held to what a model says, and to nodes that a rule could mean."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

from onnxscript.rewriter import MatchResult, _matcher

from anyshape.torch_bridge.process import patched

__all__ = ["rewriting"]


@contextlib.contextmanager
def rewriting() -> Iterator[None]:
    """Within this context, rules mean the constants that they say, and look at nodes of their own operator only.

    onnxscript compares constants up to 1e-8, or 1e-5 of them: a rule for ``x + 0`` takes ``x + 1e-9`` for one. It tries
    each rule at each node, one of them by a look at the whole graph (0.7.2): that time grows with the square of it.
    """
    exact = patched(_matcher, "math", types.SimpleNamespace(isclose=_equal))
    with exact, patched(_matcher.SimplePatternMatcher, "match", _match):
        yield


def _equal(one: float, two: float, **tolerances: Any) -> bool:
    return one == two


_whole_match = _matcher.SimplePatternMatcher.match


def _match(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
    meant = self.pattern.output_nodes[0].op_identifier()
    if meant is not None and meant != node.op_identifier():
        return MatchResult().fail("another operator")
    return _whole_match(self, model, graph, node, **options)
