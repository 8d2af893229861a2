#!/usr/bin/env python3
"""How much memory and time a model with gigabytes of weights takes, beyond the model itself.

    python benchmarks/large.py --type float32              # ten layers of 8192 x 8192: 2.7 GB
    python benchmarks/large.py --type float16 --size 8192 --layers 10

Each step runs in a process of its own, one after the other: the peak is that process's, less what it held when the
model was built. The files go to a temporary folder, which is removed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = ("export", "load", "verify")


def peak() -> float:
    """The most memory that this process has held so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def held() -> float:
    """The memory that this process holds now, in GB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e9


def build(dtype: str, size: int, layers: int):
    """A stack of linear layers, with an example of two rows."""
    import torch

    kind = getattr(torch, dtype)
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(layers))).to(kind)
    model = model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in model:
            part.weight.uniform_(-1, 1, generator=generator).mul_((3 / size) ** 0.5)
            part.bias.zero_()
    return model, torch.randn(2, size, generator=generator).to(kind)


def step(name: str, path: str, dtype: str, size: int, layers: int) -> dict[str, float]:
    """One step, in this process: its seconds, and its peak beyond what is held before."""
    import anyshape
    from anyshape.judge import judge

    if name == "load":
        import numpy

        began, before = time.perf_counter(), held()
        anyshape.load(path)(numpy.zeros((3, size), dtype))
    else:
        model, example = build(dtype, size, layers)
        began, before = time.perf_counter(), held()
        if name == "export":
            print(anyshape.export(model, example, path).verdict, file=sys.stderr)
        else:
            print(judge(path, model, example).verdict, file=sys.stderr)
    return {"seconds": time.perf_counter() - began, "before": before, "beyond": peak() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--type", default="float32")
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--step", choices=STEPS, help="only this, in this process")
    parser.add_argument("--path", help="of the file, with --step")
    given = parser.parse_args()
    if given.step:
        print(json.dumps(step(given.step, given.path, given.type, given.size, given.layers)))
        return
    width = {"float64": 8, "float32": 4}.get(given.type, 2)
    weights = given.layers * given.size * (given.size + 1) * width / 1e9
    print(f"{given.type}, {weights:.2f} GB of weights: at most {1.3 * weights + 1:.2f} GB beyond the model")
    with tempfile.TemporaryDirectory() as folder:
        for name in STEPS:
            command = [sys.executable, __file__, "--step", name, "--path", f"{folder}/model.onnx"]
            command += ["--type", given.type, "--size", str(given.size), "--layers", str(given.layers)]
            made = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            print(
                f"{name:<8} {made['beyond']:6.2f} GB beyond {made['before']:.2f} GB  {made['seconds']:6.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
