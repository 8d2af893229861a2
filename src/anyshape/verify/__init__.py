"""verify: an ONNX model against the module that it should be, at many sizes."""

from __future__ import annotations

__all__: list[str] = []
