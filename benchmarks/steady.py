#!/usr/bin/env python3
"""The same export twice: on a machine that is idle and one that is busy, one after the other and in two threads.

    python benchmarks/steady.py                        # every model: idle, and beside a load on every core
    python benchmarks/steady.py --suite cases.py       # the models of another file: suites.py says how it looks
    python benchmarks/steady.py --threads --exports 20 # two threads, that many exports each

What is compared is the contract that the file carries, and every size that verify tried with its outcome.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

BUSY = "while True: sum(range(10000))"


def outcome(suite: str | None, name: str) -> str:
    """What an export comes to, as text: contract and verdict, or the fault's own words."""
    import torch
    from suites import inputs_at, model_of

    import anyshape

    torch.manual_seed(0)
    item = model_of(suite, name)
    module = item.build().eval()
    args, kwargs = inputs_at(item, item.example, seed=0)
    try:
        made = anyshape.export(module, args, kwargs=kwargs)
    except anyshape.AnyshapeError as error:
        return f"{type(error).__name__}: {error}"
    tried = [(row.sizes, row.outcome) for row in made.verdict.rows]
    return json.dumps([json.loads(made.contract.to_json()), tried, made.verdict.cut], sort_keys=True)


def quietly(suite: str | None, name: str) -> str:
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    return outcome(suite, name)


def in_a_process(suite: str | None, names: list[str]) -> tuple[dict[str, str], float]:
    """What each export comes to, one after the other in a process of their own, and the seconds of all."""
    start = time.perf_counter()
    job = json.dumps([suite, names])
    done = subprocess.run(
        [sys.executable, __file__, "--one", job], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - start


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def under_load(suite: str | None, names: list[str], processes: int) -> int:
    idle, quiet_seconds = in_a_process(suite, names)
    with load(processes):
        busy, busy_seconds = in_a_process(suite, names)
    different = [name for name in names if idle[name] != busy[name]]
    for name in different:
        print(f"DIFFERENT  {name}")
    print(
        f"{len(names) - len(different)} of {len(names)} equal; {quiet_seconds:.0f} s without, "
        f"{busy_seconds:.0f} s beside {processes} busy processes"
    )
    return len(different)


def in_threads(suite: str | None, names: list[str], exports: int) -> int:
    chosen = [[names[(2 * k + thread) % len(names)] for k in range(exports)] for thread in range(2)]
    alone = {name: quietly(suite, name) for name in {name for mine in chosen for name in mine}}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda mine: [outcome(suite, name) for name in mine], chosen))
    pairs = [
        (name, got)
        for mine, results in zip(chosen, made, strict=True)
        for name, got in zip(mine, results, strict=True)
    ]
    wrong = [name for name, got in pairs if got != alone[name]]
    digest = hashlib.sha256("".join(sorted(alone.values())).encode()).hexdigest()[:12]
    print(
        f"{len(pairs) - len(wrong)} of {len(pairs)} exports in two threads equal the sequential ones ({digest})"
    )
    for name in wrong:
        print(f"DIFFERENT  {name}")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", help="a file with CASES; our own models if there is none")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--exports", type=int, default=20, help="for each thread")
    parser.add_argument("--busy", type=int, default=2 * (os.cpu_count() or 1), help="processes of the load")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        suite, chosen = json.loads(given.one)
        print(json.dumps({name: quietly(suite, name) for name in chosen}))
        return 0
    from suites import names_of

    names: list[Any] = given.only or names_of(given.suite)
    if given.threads:
        return min(1, in_threads(given.suite, names, given.exports))
    return min(1, under_load(given.suite, names, given.busy))


if __name__ == "__main__":
    sys.exit(main())
