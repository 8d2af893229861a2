#!/usr/bin/env python3
"""Time of export and of inference, beside torch's default exporter.

    python benchmarks/bench.py
    python benchmarks/bench.py --only decoder --repeats 50

Export: seconds of one export each; anyshape finds the dims and verifies, torch is told them and does neither.
Inference: ONNX Runtime on one thread, both files in turn, the median of the repeats. A ratio below 1 means that
anyshape's file is the faster one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch
from exporters import EXPORTERS, moving_axes, silence
from llama import Llama
from models import MODELS
from torch import nn

Make = Callable[[int], tuple[Any, ...]]  # inputs, grown by a factor


def resnet() -> tuple[nn.Module, Make]:
    import torchvision

    return torchvision.models.resnet18(), lambda n: (torch.randn(n, 3, 32 + 32 * n, 32 + 32 * n),)


def bert() -> tuple[nn.Module, Make]:
    import transformers

    config = transformers.BertConfig(
        vocab_size=500, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256
    )
    module = transformers.BertModel(config, add_pooling_layer=False)
    return module, lambda n: (torch.randint(0, 500, (n, 16 * n)), torch.ones(n, 16 * n, dtype=torch.long))


def decoder() -> tuple[nn.Module, Make]:
    module = Llama(words=500, width=128, layers=4, heads=4, shared=2, inner=256)
    return module, lambda n: (torch.randint(0, 500, (n, 16 * n)), torch.ones(n, 16 * n, dtype=torch.long))


def patches() -> tuple[nn.Module, Make]:
    return MODELS["patch_net"].build(), lambda n: MODELS["patch_net"].inputs(
        batch=n, height=6 * n, width=5 * n
    )[0]


def graph() -> tuple[nn.Module, Make]:
    return MODELS["message_net"].build(), lambda n: MODELS["message_net"].inputs(
        nodes=100 * n, edges=500 * n
    )[0]


BENCHES: dict[str, Callable[[], tuple[nn.Module, Make]]] = {
    "resnet": resnet,
    "bert": bert,
    "decoder": decoder,
    "patches": patches,
    "graph": graph,
}
EXPORT_AT, RUN_AT = 2, 3


def bench(name: str, repeats: int) -> dict[str, Any]:
    """Seconds of export and of inference with both exporters."""
    torch.manual_seed(0)
    module, make = BENCHES[name]()
    module.eval()
    axes = moving_axes((make(EXPORT_AT), {}), [(make(RUN_AT), {})])
    row: dict[str, Any] = {"model": name, "export": {}, "run": {}}
    with tempfile.TemporaryDirectory() as folder:
        sessions = {}
        for exporter in ("anyshape", "torch"):
            path = os.path.join(folder, f"{exporter}.onnx")
            start = time.perf_counter()
            try:
                with silence(), torch.no_grad():
                    EXPORTERS[exporter](module, make(EXPORT_AT), {}, path, axes)
            except Exception as error:
                row[exporter] = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
                continue
            row["export"][exporter] = time.perf_counter() - start
            sessions[exporter] = session_of(path)
        row["run"] = interleaved(sessions, [tensor.numpy() for tensor in make(RUN_AT)], repeats)
    return row


def session_of(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def interleaved(sessions: dict[str, Any], arrays: list[np.ndarray], repeats: int) -> dict[str, float]:
    """The median seconds of each session, run in turn so that a busy machine is fair to both."""
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for repeat in range(repeats + 3):
        for name, session in sessions.items():
            feed = dict(zip([item.name for item in session.get_inputs()], arrays, strict=True))
            start = time.perf_counter()
            session.run(None, feed)
            if repeat >= 3:  # the first runs make room
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def line(row: dict[str, Any]) -> str:
    text = f"{row['model']:<10}"
    for what, scale, unit in (("export", 1.0, "s "), ("run", 1e3, "ms")):
        ours, theirs = row[what].get("anyshape"), row[what].get("torch")
        for value in (ours, theirs):
            text += f"{value * scale:>10.2f} {unit}" if value else f"{'refused':>13}"
        text += f"{ours / theirs:>8.2f}" if ours and theirs else f"{'-':>8}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=sorted(BENCHES), metavar="MODEL")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", metavar="FILE", help="write every row here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    heads = ("anyshape", "torch", "ratio") * 2
    print(f"{'':<10}{'export':>13}{'':>21}{'run':>13}")
    print(f"{'model':<10}" + "".join(f"{head:>{8 if head == 'ratio' else 13}}" for head in heads), flush=True)
    with silence():  # the first export of a process pays for imports
        EXPORTERS["torch"](nn.Linear(2, 2), (torch.randn(3, 2),), {}, os.devnull, [{0: "n"}])
    rows = []
    for name in options.only or BENCHES:
        rows.append(bench(name, options.repeats))
        print(line(rows[-1]), flush=True)
    for row in rows:
        for exporter in ("anyshape", "torch"):
            if exporter in row:
                print(f"{row['model']} by {exporter}: {row[exporter]}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
