"""inputs: a module and its example become a case: tensors with names, and how to make others of any size."""

from __future__ import annotations

__all__: list[str] = []
