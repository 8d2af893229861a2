"""source: lines, blocks and numbers of the Python that a model is written in."""

from __future__ import annotations

__all__: list[str] = []
