"""A short written report of an export, for ``report=True``: contract, verdict and timings as Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from anyshape.contract.contract import Contract
from anyshape.verify.verdict import Verdict

__all__ = ["write_report"]


class Reported(Protocol):
    """What a report needs of an export."""

    @property
    def contract(self) -> Contract: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def rung(self) -> str: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...


def write_report(export: Reported, folder: str | os.PathLike[str]) -> str:
    """Write ``anyshape_report.md`` into ``folder``; its path."""
    verdict = export.verdict
    lines = ["# anyshape report", "", "```", str(export.contract), "```", "", f"Captured: {export.rung}.", ""]
    lines += [f"- proved: {text}" for text in verdict.proved]
    lines += [f"- sampled: {text}" for text in verdict.sampled]
    lines += [f"- note: {text}" for text in export.contract.notes]
    lines += ["", "| sizes | outcome | error | allowed |", "|---|---|---|---|"]
    for row in verdict.rows:
        sizes = ", ".join(f"{name}={size}" for name, size in row.sizes.items())
        lines.append(f"| {sizes} | {row.outcome} | {row.error:.1e} | {row.allowed:.1e} |")
    lines += ["", "| station | seconds |", "|---|---|"]
    lines += [f"| {name} | {seconds:.2f} |" for name, seconds in export.seconds.items()]
    path = os.path.join(os.fspath(folder), "anyshape_report.md")
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    return path
