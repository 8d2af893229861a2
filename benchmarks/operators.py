#!/usr/bin/env python3
"""Sweep over PyTorch's operators: which exporter gets them right at sizes that it never saw?

    python benchmarks/operators.py                                  # every operator, both exporters
    python benchmarks/operators.py --only cdist fft.rfft            # an operator, or one case of it
    python benchmarks/operators.py --group Pooling --exporter anyshape
    python benchmarks/operators.py --json rows.json --write         # docs/operators.md, from all rows so far

The stock exporter is told which axes vary; anyshape is given one example, and nothing is declared. The outcome is

    right      agrees with PyTorch at every size
    narrower   right at every size of the contract, which leaves out some of the judged sizes and says so
    refused    the exporter raises: no file
    fails      the file does not load, or the runtime raises at some size
    wrong      another result at some size, and nothing says so
    no answer  not done in time, or the process ended
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import importlib.metadata
import json
import logging
import multiprocessing
import os
import queue
import re
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

OUTCOMES = ("right", "narrower", "refused", "fails", "wrong", "no answer")
EXPORTERS = ("torch", "anyshape")
DOCUMENT = Path(__file__).parent.parent / "docs" / "operators.md"
Row = dict[str, Any]


def score(name: str, exporter: str) -> Row:
    """One case by one exporter: the outcome, the reason, the seconds of the export."""
    import torch
    from exporters import silence
    from operator_cases import CASES

    item = CASES[name]
    module = item.module().eval()
    row = {"case": name, "exporter": exporter, "why": ""}
    start = time.perf_counter()
    contract = None
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        try:
            with silence(), torch.no_grad():
                if exporter == "anyshape":
                    contract = with_anyshape(module, item, path)
                else:
                    with_torch(module, item, path)
        except Exception as error:
            return {
                **row,
                "outcome": "refused",
                "seconds": time.perf_counter() - start,
                "why": in_a_line(error),
            }
        seconds = time.perf_counter() - start
        found = [judge(path, module, item, sizes, contract) for sizes in item.sizes]
    outcome, why = max(found, key=lambda pair: OUTCOMES.index(pair[0]))
    return {**row, "outcome": outcome, "seconds": seconds, "why": why}


def with_anyshape(module: Any, item: Any, path: str) -> Any:
    import anyshape

    return anyshape.export(module, item.tensors(item.sizes[0]), path).contract


def with_torch(module: Any, item: Any, path: str) -> None:
    import torch

    inputs, moving = item.tensors(item.sizes[0]), item.moving()
    # A forward that takes *inputs is told of them as one tuple.
    shapes = (moving,) if type(module).__name__ == "Calls" else moving
    torch.onnx.export(module, inputs, path, dynamo=True, dynamic_shapes=shapes, verbose=False)


def judge(path: str, module: Any, item: Any, sizes: dict[str, int], contract: Any) -> tuple[str, str]:
    """The file's outcome at one size."""
    import onnxruntime
    import torch
    from torch.utils import _pytree as pytree

    inputs = item.tensors(sizes)
    at = ", ".join(f"{dim}={sizes[dim]}" for dim in sizes if re.search(rf"\b{dim}\b", " ".join(item.inputs)))
    with torch.no_grad():
        result = pytree.tree_leaves(module(*[tensor.clone() for tensor in inputs]))
    wanted = [torch.view_as_real(out) if out.is_complex() else out for out in result]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [given.name for given in session.get_inputs()]
        feed = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))
        got = session.run(None, feed)
    except Exception as error:
        if contract is not None and left_out(contract, inputs):
            return "narrower", f"the contract leaves out {at}"
        return "fails", f"{in_a_line(error)} at {at}"
    return compared(got, [out.numpy() for out in wanted], at)


def left_out(contract: Any, inputs: tuple[Any, ...]) -> bool:
    from anyshape import InputError

    try:
        return not contract.allows(contract.bind([tuple(tensor.shape) for tensor in inputs]))
    except InputError:
        return True


def compared(got: list[Any], wanted: list[Any], at: str) -> tuple[str, str]:
    import numpy as np

    if len(got) != len(wanted):
        return "wrong", f"{len(got)} outputs, not {len(wanted)}, at {at}"
    for one, two in zip(got, wanted, strict=True):
        if one.shape != two.shape:
            return "wrong", f"shape {list(one.shape)}, not {list(two.shape)}, at {at}"
        if one.dtype != two.dtype:
            return "wrong", f"{one.dtype}, not {two.dtype}"
        scale = max(1.0, float(np.abs(two[np.isfinite(two)].astype(float)).max(initial=0.0)))
        if not np.allclose(one, two, rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
            return "wrong", f"other values at {at}"
    return "right", ""


def in_a_line(error: Exception) -> str:
    """The innermost cause says most: torch's exporter wraps it in advice."""
    while error.__cause__ is not None and type(error).__module__.startswith("torch.onnx"):
        error = error.__cause__  # type: ignore[assignment]
    text = re.sub(r"\x1b\[\d+m|\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))
    return f"{type(error).__name__}: {' '.join(text.split())[:160]}"


def work(pipe: Any) -> None:
    """A process that scores what it is asked until it is told to stop."""
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    while (job := pipe.recv()) is not None:
        torch.manual_seed(0)
        pipe.send(score(*job))


class Worker:
    """A process that is started again when it ends or takes too long."""

    def __init__(self) -> None:
        self.process: Any = None

    def ask(self, name: str, exporter: str, limit: float) -> Row:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=work, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
            limit += 30  # the imports
        self.pipe.send((name, exporter))
        row = {"case": name, "exporter": exporter, "outcome": "no answer", "seconds": limit}
        try:
            if self.pipe.poll(limit):
                answer: Row = self.pipe.recv()
                return answer
            row["why"] = f"not done in {limit:.0f} s"
        except EOFError:
            row["why"] = "the process ended"
        self.process.kill()
        self.process = None
        return row

    def stop(self) -> None:
        if self.process is not None:
            self.pipe.send(None)
            self.process.join()


def run(jobs: list[tuple[str, str]], count: int, limit: float) -> Any:
    """The rows, as they come."""
    idle: queue.Queue[Worker] = queue.Queue()
    for _ in range(count):
        idle.put(Worker())

    def one(job: tuple[str, str]) -> Row:
        worker = idle.get()
        try:
            return worker.ask(*job, limit)
        finally:
            idle.put(worker)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, job) for job in jobs]):
            yield done.result()
    while not idle.empty():
        idle.get().stop()


def summary(rows: list[Row]) -> str:
    """One line for each exporter."""
    lines = [f"{'exporter':<10}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES)]
    for exporter in EXPORTERS:
        counts = collections.Counter(row["outcome"] for row in rows if row["exporter"] == exporter)
        lines.append(f"{exporter:<10}" + "".join(f"{counts[outcome]:>11}" for outcome in OUTCOMES))
    return "\n".join(lines)


def document(rows: list[Row], groups: dict[str, list[Any]]) -> str:
    """docs/operators.md: every case with both outcomes, and a note where one is not right."""
    found = {(row["case"], row["exporter"]): row for row in rows}
    cases = [item for items in groups.values() for item in items]
    both = [item for item in cases if all((item.name, exporter) in found for exporter in EXPORTERS)]
    counts = {e: collections.Counter(found[item.name, e]["outcome"] for item in both) for e in EXPORTERS}
    versions = ", ".join(
        f"{n} {importlib.metadata.version(n)}" for n in ("torch", "onnxscript", "onnxruntime")
    )
    lines = [
        "# Operators",
        "",
        f"{len(both)} cases of {len({item.operator for item in both})} operators, each exported from one example "
        f"and run at {len(both[0].sizes)} sizes. {datetime.date.today()}, {versions}.",
        "",
        "| exporter | " + " | ".join(OUTCOMES) + " |",
        "|---|" + "---|" * len(OUTCOMES),
        *(
            f"| {e} | " + " | ".join(str(counts[e][outcome]) for outcome in OUTCOMES) + " |"
            for e in EXPORTERS
        ),
        "",
        "`torch` is `torch.onnx.export(dynamo=True)`, told which axes vary; anyshape is told nothing. Narrower: right",
        "at every size of the contract, which leaves out some of the judged sizes and says so. A note is about",
        "anyshape where it is not right, else about torch. `benchmarks/operators.py` makes this table;",
        "its rows may span several commits of one version.",
    ]
    for group, items in groups.items():
        lines += ["", f"## {group}", "", "| case | torch | anyshape | |", "|---|---|---|---|"]
        lines += [line_of(item.name, found) for item in items if item in both]
    return "\n".join(lines) + "\n"


def line_of(name: str, found: dict[tuple[str, str], Row]) -> str:
    ours, theirs = found[name, "anyshape"], found[name, "torch"]
    worst = ours if ours["outcome"] != "right" else theirs
    note = re.sub(r" Failure message: .*| Give one with .*|Load model from \S+ failed: ?", "", worst["why"])
    note = note.replace("|", "\\|")
    return f"| {name} | {theirs['outcome']} | {ours['outcome']} | {note} |"


def main() -> None:
    from operator_cases import GROUPS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="just these operators or cases")
    parser.add_argument("--group", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--exporter", nargs="+", choices=EXPORTERS, default=list(EXPORTERS))
    parser.add_argument("--json", metavar="FILE", help="keep the rows here, with those of earlier runs")
    parser.add_argument("--write", action="store_true", help="write docs/operators.md")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one case")
    options = parser.parse_args()
    items = [item for group in options.group for item in GROUPS[group]]
    if options.only is not None:
        items = [item for item in items if {item.name, item.operator} & set(options.only)]
    kept: dict[str, Row] = {}
    if options.json and os.path.exists(options.json):
        kept = {
            f"{row['case']} {row['exporter']}": row
            for row in json.loads(Path(options.json).read_text("utf-8"))
        }
    jobs = [(item.name, exporter) for item in items for exporter in options.exporter]
    rows = []
    for row in run(jobs, options.j, options.limit):
        rows.append(row)
        kept[f"{row['case']} {row['exporter']}"] = row
        print(
            f"{row['case']:<36} {row['exporter']:<9} {row['seconds']:5.1f} s  {row['outcome']:<10} {row['why']}",
            flush=True,
        )
        if options.json:
            Path(options.json).write_text(json.dumps(list(kept.values()), indent=1), "utf-8")
    print(f"\n{len(items)} cases\n{summary(rows)}")
    if options.write:
        DOCUMENT.write_text(document(list(kept.values()), GROUPS), "utf-8")


if __name__ == "__main__":
    main()
