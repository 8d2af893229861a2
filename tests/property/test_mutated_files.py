"""An ONNX file with anything changed in it is refused with a `FileError`, or is a file that works.

The files are read in a process of their own: a library that brings it down fails the test.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.robustness import REFUSED, WORKS, Reader, mutated_file

relaxed = settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


@pytest.fixture(scope="module")
def valid(two_inputs: SimpleNamespace, nested: SimpleNamespace, linear: SimpleNamespace) -> list[bytes]:
    return [made.path.read_bytes() for made in (two_inputs, nested, linear)]


@relaxed
@given(seed=st.integers(0, 2**32))
def test_a_mutated_file_is_refused_or_works(
    reader: Reader, valid: list[bytes], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    path = tmp_path_factory.getbasetemp() / "mutated.onnx"
    path.write_bytes(mutated_file(chance.choice(valid), chance))
    assert reader.outcome(path) in (REFUSED, WORKS)


@settings(relaxed, max_examples=50)
@given(data=st.binary(max_size=200))
def test_any_other_bytes_are_refused(
    reader: Reader, tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.onnx"
    path.write_bytes(data)
    assert reader.outcome(path) == REFUSED


def test_files_as_they_are_work(reader: Reader, two_inputs: SimpleNamespace, nested: SimpleNamespace) -> None:
    for made in (two_inputs, nested):
        assert reader.outcome(Path(made.path)) == WORKS


def test_a_process_that_dies_is_seen(reader: Reader, linear: SimpleNamespace) -> None:
    assert reader.outcome(Path(linear.path)) == WORKS
    assert reader._process is not None
    reader._process.kill()
    assert reader.outcome(Path(linear.path)) == "its process dies (exit code -9)"
    assert reader.outcome(Path(linear.path)) == WORKS
