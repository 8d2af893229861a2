#!/usr/bin/env python3
"""Score exporters on small models, at sizes that they never saw.

    python benchmarks/zoo.py                                # every model, every exporter
    python benchmarks/zoo.py --only tagger_gru --exporter anyshape
    python benchmarks/zoo.py --json scores.json

Each model is exported at one example and run at held-out sizes, each in a process of its own, since an exporter or
a runtime may end its process. The outcome is one of

    right           every held-out size agrees with PyTorch
    silently wrong  a size gives another result, and nothing says so
    refused         the exporter raises: no file
    fails           the file does not load, or the runtime raises at some size
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import copy
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

OUTCOMES = ("right", "silently wrong", "refused", "fails")
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


def score(name: str, exporter: str) -> dict[str, Any]:
    """One model by one exporter: the outcome, the reason, the seconds of the export."""
    import torch
    from exporters import EXPORTERS, moving_axes, silence
    from models import MODELS

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    item = MODELS[name]
    module = item.build().eval()
    args, kwargs = item.inputs(**item.example)
    axes = moving_axes((args, kwargs), [item.inputs(**sizes) for sizes in item.held_out])
    row = {"model": name, "kind": item.kind, "exporter": exporter, "why": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        start = time.perf_counter()
        try:
            with silence(), torch.no_grad():
                EXPORTERS[exporter](module, args, kwargs, path, axes)
        except Exception as error:
            return {
                **row,
                "outcome": "refused",
                "seconds": time.perf_counter() - start,
                "why": in_a_line(error),
            }
        seconds = time.perf_counter() - start
        outcome, why = "right", ""
        for sizes in (item.example, *item.held_out):
            outcome, why = worse((outcome, why), judge(path, module, item.inputs(**sizes), sizes))
        return {**row, "outcome": outcome, "seconds": seconds, "why": why}


def worse(one: tuple[str, str], two: tuple[str, str]) -> tuple[str, str]:
    order = ("right", "fails", "silently wrong")
    return max(one, two, key=lambda pair: order.index(pair[0]))


def judge(path: str, module: Any, inputs: Any, sizes: dict[str, int]) -> tuple[str, str]:
    """The file's outcome at one size."""
    import numpy as np
    import onnxruntime
    import torch
    from torch.utils import _pytree as pytree

    args, kwargs = inputs
    with torch.no_grad():
        result = module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    wanted = [out.numpy() for out in pytree.tree_leaves(result) if isinstance(out, torch.Tensor)]
    given = [leaf.numpy() for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_inputs()]
        # TorchScript drops inputs that it does not use, and keeps the given names of the others.
        kept = given if len(names) == len(given) else [given[int(name.rsplit("_", 1)[1])] for name in names]
        got = session.run(None, dict(zip(names, kept, strict=True)))
    except Exception as error:
        return "fails", f"{in_a_line(error)} at {sizes}"
    if len(got) != len(wanted):
        return "silently wrong", f"{len(got)} outputs, not {len(wanted)}"
    for one, two in zip(got, wanted, strict=True):
        if one.shape != two.shape:
            return "silently wrong", f"shape {list(one.shape)}, not {list(two.shape)}, at {sizes}"
        if not np.allclose(one, two, equal_nan=True, **TOLERANCE):
            return "silently wrong", f"other values at {sizes}"
    return "right", ""


def in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:140]}"


def in_a_process(name: str, exporter: str, limit: float) -> dict[str, Any]:
    """`score` in a process of its own, so that a crash is a row of the table."""
    row = {"model": name, "exporter": exporter, "outcome": "fails"}
    command = [sys.executable, os.path.abspath(__file__), "--one", name, exporter]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {**row, "seconds": limit, "why": f"no answer in {limit:.0f} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {**row, "seconds": 0.0, "why": f"exit code {done.returncode}: {done.stderr[-140:]}"}
    return answer


def table(rows: list[dict[str, Any]], exporters: list[str]) -> str:
    """One line for each exporter."""
    lines = [f"{'exporter':<13}" + "".join(f"{outcome:>16}" for outcome in OUTCOMES) + f"{'median':>10}"]
    for exporter in exporters:
        mine = [row for row in rows if row["exporter"] == exporter]
        counts = collections.Counter(row["outcome"] for row in mine)
        median = statistics.median(row["seconds"] for row in mine)
        lines.append(
            f"{exporter:<13}"
            + "".join(f"{counts[outcome]:>16}" for outcome in OUTCOMES)
            + f"{median:>8.1f} s"
        )
    return "\n".join(lines)


def main() -> int:
    from exporters import EXPORTERS
    from models import MODELS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=sorted(MODELS), metavar="MODEL", help="just these models"
    )
    parser.add_argument("--exporter", nargs="+", choices=list(EXPORTERS), default=list(EXPORTERS))
    parser.add_argument("--json", metavar="FILE", help="write every row here")
    parser.add_argument("-j", type=int, default=2, help="how many at once")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one model")
    options = parser.parse_args()
    names = options.only or list(MODELS)
    jobs = [(name, exporter) for name in names for exporter in options.exporter]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for row in pool.map(lambda job: in_a_process(*job, options.limit), jobs):
            rows.append(row)
            print(
                f"{row['model']:<16} {row['exporter']:<12} {row['seconds']:5.1f} s  {row['outcome']:<15} {row['why']}",
                flush=True,
            )
    print(f"\n{len(names)} models\n{table(rows, options.exporter)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)
    return (
        1 if any(row["exporter"] == "anyshape" and row["outcome"] == "silently wrong" for row in rows) else 0
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(score(*sys.argv[2:4])))
    else:
        sys.exit(main())
