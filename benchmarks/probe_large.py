#!/usr/bin/env python3
"""Find the dims of a transformer with a billion parameters, on the meta device: shapes without values.

    python benchmarks/probe_large.py

Exits with 1 if the dims are not found, or if it takes 60 s or 3 GB or more.
"""

from __future__ import annotations

import resource
import sys
import time

import torch
from llama import Llama

from anyshape.inputs.read import evaluation_mode, read
from anyshape.probe import probe

MOST_SECONDS, MOST_GIGABYTES = 60.0, 3.0


def main() -> int:
    start = time.perf_counter()
    with torch.device("meta"):
        module = Llama()
        tokens = torch.zeros(2, 16, dtype=torch.long)
        mask = torch.ones(2, 16, dtype=torch.long)
    with evaluation_mode(module):
        case = read(module, (tokens, mask))
        evidence = probe(case, budget=MOST_SECONDS - 10)
    seconds = time.perf_counter() - start
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(case.summary)
    print(evidence.summary)
    for item, shape in zip(case.inputs, evidence.shapes, strict=True):
        print(f"  {item.path:<8} [{', '.join(map(str, shape))}]")
    for dim in evidence.dims:
        print(f"  {dim.name}: {dim.range}, tried up to {dim.tried}")
    if not evidence.complete:
        print("  the time ran out: more may vary than is said here")
    print(f"{seconds:.1f} s ({time.process_time():.1f} s of processor time), {gigabytes:.2f} GB at most")
    found = len(evidence.dims) == 2 and evidence.shapes[0] == evidence.shapes[1]
    return 0 if found and seconds < MOST_SECONDS and gigabytes < MOST_GIGABYTES else 1


if __name__ == "__main__":
    sys.exit(main())
