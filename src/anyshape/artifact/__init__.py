"""artifact: the file: written whole or not at all, read, loaded, called."""

from __future__ import annotations

__all__: list[str] = []
