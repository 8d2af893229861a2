#!/usr/bin/env python3
"""Score exporters on small models, at sizes that they never saw.

    python benchmarks/zoo.py                                # every model, every exporter
    python benchmarks/zoo.py --only tagger_gru --exporter anyshape
    python benchmarks/zoo.py --json scores.json
    python benchmarks/zoo.py --example one                  # from an awkward example: a batch of 1
    python benchmarks/zoo.py --example alike                # or two dims of one size
    python benchmarks/zoo.py --suite cases.py --example one # the models of another file: suites.py says how it looks

Each model is exported at one example and run at held-out sizes, each in a process of its own, since an exporter or
a runtime may end its process. From an awkward example, the model's own example is held out as well; where PyTorch
refuses every awkward one, the row says so. The outcome is one of

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


def score(suite: str | None, name: str, exporter: str, how: str) -> dict[str, Any]:
    """One model by one exporter: the outcome, the reason, the seconds of the export."""
    import torch
    from exporters import EXPORTERS, moving_axes, silence
    from suites import example_of, inputs_at, model_of

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    item = model_of(suite, name)
    module = item.build().eval()
    example, remark = example_of(item, module, how)
    args, kwargs = inputs_at(item, example, seed=0)
    judged = [example, *(sizes for sizes in (item.example, *item.held_out) if sizes != example)]
    axes = moving_axes((args, kwargs), [inputs_at(item, sizes) for sizes in judged])
    row = {
        "model": name,
        "kind": item.kind,
        "exporter": exporter,
        "example": example,
        "remark": remark,
        "why": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        start = time.perf_counter()
        try:
            with silence(), torch.no_grad():
                EXPORTERS[exporter](module, args, kwargs, path, axes)
        except Exception as error:
            seconds = time.perf_counter() - start
            return {**row, "outcome": "refused", "seconds": seconds, "why": in_a_line(error)}
        seconds = time.perf_counter() - start
        outcome, why = "right", ""
        for sizes in judged:
            outcome, why = worse((outcome, why), judge(path, module, inputs_at(item, sizes), sizes))
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
    wanted = [as_array(out) for out in pytree.tree_leaves(result) if isinstance(out, torch.Tensor)]
    given = [as_array(leaf) for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
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


def as_array(tensor: Any) -> Any:
    """A tensor as numpy has it; numpy knows no bfloat16."""
    detached = tensor.detach()
    return (detached.float() if str(detached.dtype) == "torch.bfloat16" else detached).numpy()


def in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:140]}"


def in_a_process(suite: str | None, name: str, exporter: str, how: str, limit: float) -> dict[str, Any]:
    """`score` in a process of its own, so that a crash is a row of the table."""
    row = {"model": name, "exporter": exporter, "outcome": "fails", "remark": ""}
    job = json.dumps([suite, name, exporter, how])
    command = [sys.executable, os.path.abspath(__file__), "--one", job]
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
    from suites import AS_IT_IS, EXAMPLES, names_of

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", metavar="FILE", help="score the models of this file, not our own")
    parser.add_argument(
        "--example", choices=EXAMPLES, default=AS_IT_IS, help="the model's own, or an awkward one"
    )
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="just these models")
    parser.add_argument("--exporter", nargs="+", choices=list(EXPORTERS), default=list(EXPORTERS))
    parser.add_argument("--json", metavar="FILE", help="write every row here")
    parser.add_argument("-j", type=int, default=2, help="how many at once")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one model")
    options = parser.parse_args()
    every = names_of(options.suite)
    names = options.only or every
    if unknown := [name for name in names if name not in every]:
        parser.error(f"no model is called {unknown[0]}; there are {', '.join(sorted(every))}")
    jobs = [
        (options.suite, name, exporter, options.example) for name in names for exporter in options.exporter
    ]
    width = max(map(len, names))
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for row in pool.map(lambda job: in_a_process(*job, options.limit), jobs):
            rows.append(row)
            said = "; ".join(text for text in (row["why"], row["remark"]) if text)
            print(
                f"{row['model']:<{width}} {row['exporter']:<12} {row['seconds']:5.1f} s  {row['outcome']:<15} {said}",
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
        print(json.dumps(score(*json.loads(sys.argv[2]))))
    else:
        sys.exit(main())
