"""Verdict: what happened at every size that was tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Outcome", "Row", "Verdict"]

Outcome = Literal["right", "wrong", "fails", "refused", "not run"]
"""``fails``: in the runtime; ``refused``: by PyTorch; ``not run``: too large for this machine."""


@dataclass(frozen=True, slots=True)
class Row:
    """What happened at one assignment of sizes."""

    sizes: dict[str, int]
    outcome: Outcome
    error: float = 0.0
    allowed: float = 0.0
    why: str = ""
    variant: int = 0
    values: str = ""  # what is particular about the values of that variant


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model is right: every size that was tried, and what is proved beyond them."""

    runtime: str
    rows: tuple[Row, ...]
    proved: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    cut: str = ""  # what was left out for its cost

    @property
    def failures(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.outcome in ("wrong", "fails"))

    @property
    def right(self) -> bool:
        return not self.failures and bool(self.tried)

    @property
    def tried(self) -> tuple[Row, ...]:
        """The sizes at which PyTorch runs: only those say anything."""
        return tuple(row for row in self.rows if row.outcome not in ("refused", "not run"))

    @property
    def sizes(self) -> list[dict[str, int]]:
        return [row.sizes for row in self.tried]

    @property
    def worst(self) -> Row:
        """The right row that came closest to what is allowed."""
        return max(self.tried, key=lambda row: row.error / row.allowed if row.allowed else 0.0)

    def __str__(self) -> str:
        if self.failures:
            bad = self.failures[0]
            return f"{bad.outcome} at {bad.sizes}: {bad.why}"
        count = f"{len(self.tried)} size{'s' if len(self.tried) != 1 else ''} on {self.runtime}"
        return f"{count}, worst error {self.worst.error:.1e} of {self.worst.allowed:.0e} allowed"

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "sizes": row.sizes,
                "outcome": row.outcome,
                "error": row.error,
                "allowed": row.allowed,
                "why": row.why,
                "values": row.values,
            }
            for row in self.rows
        ]
        return {
            "runtime": self.runtime,
            "right": self.right,
            "rows": rows,
            "proved": list(self.proved),
            "sampled": list(self.sampled),
            "cut": self.cut,
        }
