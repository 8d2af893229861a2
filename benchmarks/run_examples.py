#!/usr/bin/env python3
"""Run the examples that export a model, run its file at another size, and compare it with PyTorch there.

    python benchmarks/run_examples.py
    python benchmarks/run_examples.py --only llama_cache

Each runs in a process and a folder of its own. One whose library is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "examples"
LIBRARIES = ("transformers", "diffusers")
# A torchvision beside another torch has no operators; transformers, which only imports it, needs to see one.
START = """
import runpy, sys, torch
try:
    import torchvision
except ImportError:
    pass
except RuntimeError:
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def examples() -> list[Path]:
    """The scripts that can be run, not only named as a target."""
    return [path for path in sorted(FOLDER.glob("*.py")) if "\ndef main(" in path.read_text(encoding="utf-8")]


def outcome(path: Path, limit: float) -> tuple[str, float, str]:
    """right, wrong, refused, left out or too slow; the seconds; what it says of itself."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", START, str(path)],
                cwd=folder,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return "too slow", limit, f"not done after {limit:.0f} s"
    seconds = time.perf_counter() - start
    if done.returncode == 0:
        return "right", seconds, done.stdout.strip().splitlines()[-1]
    missing = re.search(r"No module named '(\w+)", done.stderr)
    if missing is not None and missing[1] in LIBRARIES:
        return "left out", seconds, f"{missing[1]} is not installed"
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it says nothing"
    refused = re.search(r"^anyshape\.errors\.\w+: (.*)", done.stderr, re.MULTILINE)
    return ("refused", seconds, refused[1]) if refused is not None else ("wrong", seconds, last)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="the names of examples")
    parser.add_argument("--limit", type=float, default=900, help="seconds for each")
    options = parser.parse_args()
    print("| example | outcome | seconds | |\n|---|---|---|---|", flush=True)
    bad = 0
    for path in examples():
        if options.only and path.stem not in options.only:
            continue
        how, seconds, words = outcome(path, options.limit)
        bad += how not in ("right", "left out")
        print(f"| {path.stem} | {how} | {seconds:.1f} | {words} |", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
