"""blame: why a model is wrong: the operator, the node, the line, and a script that shows it."""

from __future__ import annotations

__all__: list[str] = []
