"""A save that is killed, interrupted or out of space at any of its steps leaves the old model or the new one.

A child process saves again and again, and is stopped at its first step, at its second, and so on, until one save comes
to its end. Python's audit events are the steps: every call that opens, renames, makes or removes a file is one, in our
code and in the libraries below; flushing to the disk is counted beside them. A limit on the size of files stops it in
the middle of a write.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from anyshape.artifact.write import save
from anyshape.errors import FileError

SIZE = 100
OLD, NEW, LATER = 1.0, 10.0, 100.0  # a model adds its number twice, once from each kind of weight
STEPS = ("open", "os.", "fcntl.", "mmap.", "shutil.", "tempfile.")
MOST_STEPS = 300
SCENARIOS = ("first", "apart to apart", "apart again", "apart to inside", "inside to apart", "in place")
LIMITS = (0, 1, 10, 100, 200, 300, 399, 400, 1000)  # bytes; the weights' file has 400
JOBS = {f"{scenario}, killed": (scenario, "kill", ()) for scenario in SCENARIOS} | {
    "out of space": ("apart to apart", "full", ()),
    "interrupted": ("apart to apart", "interrupt", ()),
    "killed in a write": ("apart to apart", "kill", LIMITS),
    "out of space in a write": ("apart to apart", "full", LIMITS),
}
UNTOUCHED, SURVIVED, FAILED = 0, 3, 4
OUT_OF_SPACE = OSError(28, "No space left on device")


def adding(number: float) -> ir.Model:
    """x + weight + small, where only the weight is large enough to lie in a file of its own."""
    weights = {"weight": np.full(SIZE, number, np.float32), "small": np.full(1, number, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "weight"], ["sum"]),
            helper.make_node("Add", ["sum", "small"], ["y"]),
        ],
        "adding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    return ir.from_proto(helper.make_model(graph, ir_version=10, opset_imports=opset))


def number_of(path: Path) -> float:
    """The number that the model at ``path`` adds: a mixture of two models has a number of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (made,) = session.run(None, {"x": np.zeros(SIZE, np.float32)})
    onnx.checker.check_model(str(path))  # which refuses data files that have two names
    assert len(set(made.tolist())) == 1
    return float(made[0]) / 2


def prepare(folder: Path, scenario: str) -> None:
    """What is there before the save that will be stopped."""
    folder.mkdir()
    if scenario != "first":
        save(adding(OLD), folder / "model.onnx", external_data=not scenario.startswith("inside"))
    if scenario == "apart again":
        save(adding(OLD), folder / "model.onnx", external_data=True)


def stopped_save(folder: Path, scenario: str) -> None:
    """The save that will be stopped."""
    model = adding(NEW)
    if scenario == "in place":  # the weights are read from the file that is replaced
        model = ir.load(folder / "model.onnx")
        factor = ir.Value(name="factor", const_value=ir.tensor([NEW / OLD], name="factor"))
        model.graph.register_initializer(factor)
        (output,) = model.graph.outputs
        node = ir.node("Mul", [output, factor])
        model.graph.append(node)
        node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = "z", output.dtype, output.shape
        model.graph.outputs[0] = node.outputs[0]
    save(model, folder / "model.onnx", external_data=scenario != "apart to inside")


# --- In the child process -------------------------------------------------------------------------------


def stop_at(step: int, how: str) -> Callable[[], bool]:
    """Stop this process at its ``step``-th step from now on; whether that step was reached."""
    left = step

    def count(*event: object) -> None:
        nonlocal left
        if not str(event[0]).startswith(STEPS):
            return
        left -= 1
        if left == -1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OUT_OF_SPACE if how == "full" else KeyboardInterrupt

    flush = os.fsync

    def counted_flush(descriptor: int) -> None:
        count("os.fsync")
        flush(descriptor)

    os.fsync = counted_flush
    sys.addaudithook(count)
    return lambda: left < 0


def limit_files(size: int, how: str) -> Callable[[], bool]:
    """Stop this process, or its write, where a file would become larger."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if how == "kill" else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return lambda: False


def child(folder: Path, scenario: str, how: str, step: int, limit: int | None) -> int:
    """A process that saves and is stopped; the signal that ended it, or `UNTOUCHED`, `SURVIVED` or `FAILED`."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        reached = stop_at(step, how) if limit is None else limit_files(limit, how)
        stopped_save(folder, scenario)
        code = SURVIVED if reached() else UNTOUCHED
    except (FileError, KeyboardInterrupt):
        code = FAILED
    finally:
        os._exit(code)


def fill(root: Path, scenario: str, how: str, limits: Sequence[int]) -> None:
    """Fill ``root`` with one folder for each step at which a save was stopped."""
    root.mkdir()
    prepare(root / "before", scenario)
    shutil.copytree(root / "before", root / "warm")
    stopped_save(root / "warm", scenario)  # what is imported late is imported now
    for step, limit in enumerate(limits or [None] * MOST_STEPS):
        folder = root / f"{step:03}"
        shutil.copytree(root / "before", folder)
        ended = child(folder, scenario, how, step, limit)
        allowed = {"kill": (-signal.SIGKILL, -signal.SIGXFSZ), "full": (SURVIVED, FAILED)}
        assert ended in (UNTOUCHED, *allowed.get(how, (FAILED,))), f"{root.name}, step {step}: {ended}"
        if ended == UNTOUCHED:
            return
    raise AssertionError(f"{root.name}: it never came to its end")


# --- In the test ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each job, with one in it for each step at which a save was stopped."""
    root = tmp_path_factory.mktemp("crash")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(root)], check=True, env=environment, timeout=120)
    return root


def numbers_left(root: Path) -> list[float | None]:
    """The number of each model that was left, None for none; then each is saved again, which tidies up."""
    found = []
    for folder in sorted(path for path in root.iterdir() if path.name.isdigit()):
        model = folder / "model.onnx"
        found.append(number_of(model) if model.exists() else None)
        save(adding(LATER), model, external_data=True)
        names = sorted(os.listdir(folder))
        assert len(names) == 2 and names[0] == "model.onnx" and names[1].endswith(".data"), names
    assert number_of(model) == LATER
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_any_step(stopped: Path, scenario: str) -> None:
    numbers = numbers_left(stopped / f"{scenario}, killed")
    before = None if scenario == "first" else OLD
    turn = numbers.index(NEW)
    assert numbers == [before] * turn + [NEW] * (len(numbers) - turn)
    assert turn > 10 and len(numbers) - turn > 5


@pytest.mark.parametrize("job", ["out of space", "interrupted"])
def test_failing_at_any_step(stopped: Path, job: str) -> None:
    numbers = numbers_left(stopped / job)
    assert len(numbers) > 30 and set(numbers) == {OLD, NEW}


@pytest.mark.parametrize("job", ["out of space in a write", "killed in a write"])
def test_stopped_in_the_middle_of_a_write(stopped: Path, job: str) -> None:
    numbers = numbers_left(stopped / job)
    turn = numbers.index(NEW)
    assert numbers == [OLD] * turn + [NEW] and turn > 5


if __name__ == "__main__":
    for job, (scenario, how, limits) in JOBS.items():
        fill(Path(sys.argv[1]) / job, scenario, how, limits)
