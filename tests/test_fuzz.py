"""The fuzzer: programs come from their seed alone, outcomes are what they say, and what fails becomes small."""

from __future__ import annotations

import inspect
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dims import Range

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import fuzz
from fuzzing.draws import draws_of
from fuzzing.judge import FAULTS, Row, judge
from fuzzing.program import HEADER, Input, Program, numbers_of
from fuzzing.shrink import shrunk
from fuzzing.write import runs_at_its_example, write

SEEDS = (102, 108, 110, 112, 115, 117)


@pytest.fixture(autouse=True)
def unwarned() -> Any:
    """A statement that is tried while a program is written may warn of anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def program_of(*lines: str, parts: str = "pass", **sizes: int) -> Program:
    """A program of one input x [b, n, 4]."""
    body = "\n".join(f"        {line}" for line in lines)
    source = (
        f"{HEADER}\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {parts}\n\n    def forward(self, x):\n{body}\n"
    )
    return Program(0, source, (Input("x", "floats", ("b", "n", "4")),), {"b": 2, "n": 5, **sizes})


def test_a_seed_is_always_the_same_program() -> None:
    first, second = write(3), write(3)
    assert first == second
    assert write(5).source != first.source


def test_programs_run_and_say_so() -> None:
    for seed in range(20, 32):
        program = write(seed)
        assert runs_at_its_example(program)
        compile(program.script(), "script", "exec")


def test_what_raises_or_is_random_is_no_program() -> None:
    assert runs_at_its_example(program_of("return x + 1"))
    assert not runs_at_its_example(program_of("return x + torch.rand(1)"))
    assert not runs_at_its_example(program_of("assert x.shape[1] > 37", "return x"))
    assert not runs_at_its_example(program_of("return x.shape[1]"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_few_programs_are_exported_without_a_fault(seed: int) -> None:
    row = judge(write(seed))
    assert row.outcome not in FAULTS, f"{row}\n{write(seed).source}"


# --- Exporters that make mistakes -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An exporter that takes every module for one that hands on its input."""
    kept = str(tmp_path_factory.mktemp("identity") / "model.onnx")
    made = anyshape.export(torch.nn.Identity(), torch.randn(2, 5, 4), kept, input_names=["x"])

    def export(module: torch.nn.Module, args: Any, path: str, declared: Any) -> Any:
        shutil.copyfile(kept, path)
        return made

    return export


def limited(export: Any, name: str, most: int) -> Any:
    """An exporter whose contract ends at a size, and whose file does not."""

    def made(module: torch.nn.Module, args: Any, path: str, declared: Any) -> Any:
        contract = export(module, args, path, declared).contract
        dims = tuple(replace(dim, range=Range(1, most)) if dim.name == name else dim for dim in contract.dims)
        return SimpleNamespace(contract=replace(contract, dims=dims))

    return made


def mistaken(module: torch.nn.Module, args: Any, path: str, declared: Any) -> Any:
    """An exporter that has a mistake in its cumsum, and refuses all else."""
    if "cumsum" in Path(inspect.getfile(type(module))).read_text(encoding="utf-8"):
        raise KeyError("lost")
    raise anyshape.Fault("no")


BEYOND_37 = ("if x.shape[1] > 37:", "    return x * 2", "return x")


def test_draws_are_in_the_contract_and_around_the_numbers(identity: Any, tmp_path: Path) -> None:
    program = program_of(*BEYOND_37)
    assert numbers_of(program.source) == [1, 2, 37]
    contract = identity(None, None, str(tmp_path / "model.onnx"), {}).contract
    draws = draws_of(program, contract, 24)
    assert draws == draws_of(program, contract, 24)
    assert len(draws) >= 24
    assert {37, 38} <= {size for draw in draws for size in draw.shapes[0]}


def test_a_right_file(identity: Any) -> None:
    row = judge(program_of("return x * 1"), identity)
    assert row.outcome == "right" and row.tried >= 20


def test_a_file_that_follows_one_way_is_wrong(identity: Any) -> None:
    row = judge(program_of(*BEYOND_37), identity)
    assert row.outcome == "wrong" and row.why == "other numbers" and row.at


def test_a_file_that_follows_one_way_only_outside_its_contract(identity: Any) -> None:
    export = limited(identity, "seq", 37)
    assert judge(program_of(*BEYOND_37), export).outcome == "wrong outside"
    assert judge(program_of("return x * 1"), export).outcome == "narrowed"


def test_mistakes_and_refusals() -> None:
    assert judge(program_of("return x.cumsum(1)"), mistaken).why.startswith("KeyError")
    assert judge(program_of("return x"), mistaken).outcome == "refused"


def test_a_result_that_hangs_on_a_rounding_is_not_judged(identity: Any) -> None:
    assert judge(program_of("return x + (x / 3 * 3 > x).float()"), identity).outcome != "wrong"


def test_a_planted_mistake_becomes_small() -> None:
    program = program_of(
        "b, n, c = x.shape",
        "y = self.p(x) * n ** -0.5",
        "if n > 37:",
        "    y = y.flip(1)",
        "elif n % 7 == 0:",
        "    y = torch.tanh(x.cumsum(1) + y)",
        "for _ in range(n // 2):",
        "    x = x * 0.5",
        "return y",
        parts="self.p = nn.Linear(4, 4)",
    )
    small = shrunk(program, lambda option: judge(option, mistaken).outcome == "internal", most=200)
    body = small.source.split("def forward(self, x):")[1].split()
    assert "".join(body) == "returnx.cumsum(1)"
    assert "nn.Linear" not in small.source
    assert small.sizes == {"b": 1, "n": 1}


def test_inputs_that_nobody_uses_go() -> None:
    program = program_of("return x + 1")
    program = replace(
        program,
        source=program.source.replace("self, x", "self, x, mask"),
        inputs=(*program.inputs, Input("mask", "mask", ("b", "m"))),
        sizes={"b": 2, "n": 5, "m": 7},
    )
    small = shrunk(program, lambda option: True)
    assert [item.name for item in small.inputs] == ["x"] and set(small.sizes) == {"b", "n"}
    assert runs_at_its_example(small)


# --- The command ----------------------------------------------------------------------------------------


def test_rows_of_one_cause_are_counted_together() -> None:
    rows = [
        Row(1, "right"),
        Row(2, "refused", "CaptureFault: 3 ways\n  at module_2_1.py:15"),
        Row(7, "refused", "CaptureFault: 5 ways\n  at module_7_1.py:9"),
    ]
    told = fuzz.table(rows)
    assert "   2  refused: CaptureFault: _ ways   seeds 2 7" in told


def test_failing_sources_are_kept(tmp_path: Path) -> None:
    program = program_of(*BEYOND_37)
    fuzz.keep(tmp_path / "kept", program, Row(0, "wrong outside", "other numbers", "n=38"))
    kept = (tmp_path / "kept" / "wrong_outside_0.py").read_text(encoding="utf-8")
    assert kept.startswith("# wrong outside: other numbers\n# n=38\n")
    assert "x.shape[1] > 37" in kept and "anyshape.export(model, args" in kept


def test_options() -> None:
    options = fuzz.options_of(["--only", "7", "-j", "1"])
    assert options.only == 7 and options.j == 1 and options.count == 100
