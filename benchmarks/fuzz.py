#!/usr/bin/env python3
"""Write modules at random that touch sizes, export them, and hold each file against PyTorch at many sizes and values.

    python benchmarks/fuzz.py --count 200 -j 2 --keep build/fuzz       # seeds 0 to 199; failing sources, made small
    python benchmarks/fuzz.py --seed 1000 --count 50 --json rows.json
    python benchmarks/fuzz.py --only 17                                # one seed again: its source and its outcome

`fuzzing/judge.py` says what the outcomes mean. Exits with 1 if a file was wrong or failed, or an export broke down.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import logging
import multiprocessing
import queue
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fuzzing.judge import FAULTS, OUTCOMES, Row, judge
from fuzzing.program import Program
from fuzzing.shrink import shrunk
from fuzzing.write import write

JOBS_OF_A_PROCESS = 25  # then it is started again: compilers keep much of what they saw
SECONDS_OF_IMPORTS = 600.0
WAITING = (
    10  # a module may take this many times longer by the clock than by the processor: others work here, too
)


def work(pipe: Any) -> None:
    """A process that judges what it is sent until it is told to stop, and says what it is doing."""
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    pipe.send("ready")
    while (job := pipe.recv()) is not None:
        program, limit = job
        start = time.process_time()
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(start + limit) + 1, most))
        row = judge(program, tell=pipe.send)
        pipe.send(replace(row, seconds=time.process_time() - start))


class Worker:
    """A process that is started again when it ends, takes too long, or has done enough."""

    def __init__(self) -> None:
        self.process: Any = None
        self.jobs = 0

    def ask(self, program: Program, limit: float) -> Row:
        """The program's row; a process that does not come to an end is `slow`, one that dies is `internal`."""
        self._start()
        self.pipe.send((program, limit))
        stage, end = "start", time.monotonic() + WAITING * limit
        try:
            while self.pipe.poll(max(0.0, end - time.monotonic())):
                answer = self.pipe.recv()
                if isinstance(answer, Row):
                    return answer
                stage = answer
            slow = True
        except EOFError:
            self.process.join()
            slow = self.process.exitcode == -signal.SIGXCPU
        self._kill()
        if slow:
            return Row(
                program.seed, "slow", f"not done in {limit:.0f} s, {stage.split()[0]}", stage, seconds=limit
            )
        return Row(program.seed, "internal", f"the process ended, {stage.split()[0]}", stage)

    def _start(self) -> None:
        if self.jobs >= JOBS_OF_A_PROCESS:
            self.stop()
        self.jobs += 1
        if self.process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.poll(SECONDS_OF_IMPORTS)
        self.pipe.recv()

    def _kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.process, self.jobs = None, 0

    def stop(self) -> None:
        if self.process is not None:
            self.pipe.send(None)
            self.process.join()
            self.process, self.jobs = None, 0


class Pool:
    """Several workers: each program goes to one that is idle."""

    def __init__(self, count: int, limit: float) -> None:
        self._idle: queue.Queue[Worker] = queue.Queue()
        self._count, self._limit = count, limit
        for _ in range(count):
            self._idle.put(Worker())

    def ask(self, program: Program) -> Row:
        worker = self._idle.get()
        try:
            return worker.ask(program, self._limit)
        finally:
            self._idle.put(worker)

    def each(self, job: Any, items: Sequence[Any]) -> Iterator[Any]:
        """The job's results, as they come."""
        with concurrent.futures.ThreadPoolExecutor(self._count) as threads:
            for done in concurrent.futures.as_completed([threads.submit(job, item) for item in items]):
                yield done.result()

    def stop(self) -> None:
        while not self._idle.empty():
            self._idle.get().stop()


def table(rows: Sequence[Row]) -> str:
    """How many of each outcome, and the causes of all that is not right, most frequent first."""
    counts = collections.Counter(row.outcome for row in rows)
    lines = [
        "".join(f"{outcome:>15}" for outcome in OUTCOMES),
        "".join(f"{counts[o]:>15}" for o in OUTCOMES),
        "",
    ]
    causes = collections.defaultdict(list)
    for row in rows:
        if row.outcome not in ("right", "narrowed"):
            causes[row.cause].append(row.seed)
    for cause, seeds in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        lines.append(f"{len(seeds):4}  {cause}   seeds {' '.join(map(str, sorted(seeds)[:6]))}")
    return "\n".join(lines)


def smaller(program: Program, row: Row, pool: Pool, most: int) -> Program:
    """The failing program with as few lines as still fail alike."""

    def fails_alike(option: Program) -> bool:
        other = pool.ask(option)
        return other.outcome == row.outcome and (
            row.outcome != "internal" or other.cause[:60] == row.cause[:60]
        )

    return shrunk(program, fails_alike, most)


def keep(folder: Path, program: Program, row: Row) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    told = f"# {row.outcome}: {row.why.splitlines()[0] if row.why else ''}\n# {row.at}\n"
    (folder / f"{row.outcome.replace(' ', '_')}_{program.seed}.py").write_text(
        told + program.script(), "utf-8"
    )


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many modules")
    parser.add_argument("--only", type=int, metavar="SEED", help="just this one, with its source")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--limit", type=float, default=90, help="seconds of the processor for one module")
    parser.add_argument(
        "--shrink", type=int, default=60, metavar="N", help="exports to spend on making one small"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows here")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write failing sources here, made small")
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of()
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.count)
    warnings.simplefilter("ignore")  # of programs that are tried while they are written
    programs = {seed: write(seed) for seed in seeds}
    if options.only is not None:
        print(programs[options.only].script())
    pool = Pool(options.j, options.limit)
    rows = []
    for row in pool.each(pool.ask, list(programs.values())):
        rows.append(row)
        why = row.why.splitlines()[0][:140] if row.why else ""
        print(
            f"{len(rows):5}  seed {row.seed:<6} {row.seconds:5.1f} s  {row.outcome:<13} {row.at}  {why}".rstrip(),
            flush=True,
        )
    faults = [row for row in rows if row.outcome in FAULTS]
    if options.keep is not None or options.only is not None:
        for row, small in pool.each(
            lambda row: (row, smaller(programs[row.seed], row, pool, options.shrink)), faults
        ):
            print(f"\n{row.outcome} with seed {row.seed}: {row.why}\n{small.script()}", flush=True)
            if options.keep is not None:
                keep(options.keep, small, row)
    pool.stop()
    print(f"\n{len(rows)} modules\n{table(rows)}")
    if options.json:
        made = [{**asdict(row), "program": asdict(programs[row.seed])} for row in rows]
        Path(options.json).write_text(json.dumps(made, indent=1), "utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
