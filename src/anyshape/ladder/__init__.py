"""ladder: rung after rung, until a lowered model is right."""

from __future__ import annotations

__all__: list[str] = []
