"""What is asked of a name beside the name itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anyshape.errors import UsageError

__all__ = ["CACHES", "Parts", "Wanted"]

CACHES = ("none", "out", "inout")

# A model, its args and its kwargs.
Parts = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The task that chooses a class, what becomes of its cache, and whether weights are random and may be fetched.

    ``given`` are inputs that somebody has made: they stand in the place of those that would be made.
    """

    task: str | None = None
    cache: str | None = None
    random: bool = False
    download: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cache is not None and self.cache not in CACHES:
            raise UsageError(f"cache is {self.cache!r}", hint=f"It is one of {', '.join(CACHES)}.")

    def only(self, text: str, *taken: str) -> None:
        """`UsageError` where something is asked for that this kind of name can't give."""
        for name in ("task", "cache", "random", "download"):
            if getattr(self, name) and name not in taken:
                raise UsageError(
                    f"{text} takes no {name}",
                    hint="task and cache are for hf: names, random and download for the names of any library.",
                )
