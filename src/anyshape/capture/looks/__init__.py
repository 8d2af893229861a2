"""looks: where a model's Python takes a size as a plain number or a plain truth."""

from __future__ import annotations

__all__: list[str] = []
