"""Telling a person what is going on, station by station."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Progress"]


@dataclass
class Progress:
    """Times each station, and passes on what it is doing and what it found.

    ``doing(station, text)`` may be called often; ``done(station, text)`` once for each station.
    """

    doing: Callable[[str, str], None] = lambda station, text: None
    done: Callable[[str, str], None] = lambda station, text: None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def station(self, name: str) -> Iterator[None]:
        """Time what happens inside as a station's work."""
        self.doing(name, "")
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start
