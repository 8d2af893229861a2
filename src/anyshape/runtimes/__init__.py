"""runtimes: what runs an ONNX model, behind one narrow interface."""

from __future__ import annotations

__all__: list[str] = []
