"""What a process shares is replaced for one thread, under one lock, and always put back."""

from __future__ import annotations

import logging
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.progress import Progress
from anyshape.torch_bridge.process import alone, patched, quiet


def test_put_back_whatever_happens() -> None:
    owner = SimpleNamespace(size=1)
    seen = []

    def work() -> None:
        with patched(owner, "size", 2):
            seen.append(owner.size)
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        work()
    assert seen == [2] and owner.size == 1


def test_what_was_inherited_is_inherited_again() -> None:
    class Base:
        def name(self) -> str:
            return "base"

    class Derived(Base):
        pass

    with patched(Derived, "name", lambda self: "other"):
        assert Derived().name() == "other" and Base().name() == "base"
    assert "name" not in vars(Derived) and Derived().name() == "base"


def test_another_thread_gets_the_original() -> None:
    class Shared:
        def name(self) -> str:
            return "original"

    with patched(Shared, "name", lambda self: "replaced"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(Shared().name).result() == "original"
        assert Shared().name() == "replaced"


def test_one_thread_waits_for_the_other_and_says_so() -> None:
    inside, leave, told = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with alone():
            inside.set()
            leave.wait()

    def second() -> str:
        with alone(told.set):
            return "done"

    with ThreadPoolExecutor(2) as pool:
        pool.submit(first)
        inside.wait()
        answer = pool.submit(second)
        told.wait()
        assert not answer.done()
        leave.set()
        assert answer.result() == "done"


def test_quiet_puts_levels_and_filters_back() -> None:
    logger, filters = logging.getLogger("torch"), list(warnings.filters)
    before = logger.level
    seen = []

    def work() -> None:
        with quiet():
            seen.append(logger.isEnabledFor(logging.CRITICAL))
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        work()
    assert seen == [False] and logger.level == before and list(warnings.filters) == filters


def test_quiet_within_quiet_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logger, set_, level = logging.getLogger("torch"), [], logging.Logger.setLevel
    before = logger.level
    monkeypatch.setattr(logging.Logger, "setLevel", lambda *given: (set_.append(given), level(*given)))
    with quiet():
        outer = len(set_)
        with quiet():
            assert len(set_) == outer
        assert not logger.isEnabledFor(logging.CRITICAL)  # the inner one's end is not the outer one's
    assert logger.level == before
    with quiet():
        assert not logger.isEnabledFor(logging.CRITICAL)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, : x.shape[1] // 2] if x.shape[1] > 8 else x


MODELS = {"linear": nn.Linear(5, 2), "gru": nn.GRU(5, 3), "halves": Halves(), "conv": nn.Conv1d(2, 3, 3)}
SHAPES = {"linear": (2, 5), "gru": (4, 3, 5), "halves": (2, 6), "conv": (2, 2, 9)}


def exported(name: str) -> tuple[Any, ...]:
    made = anyshape.export(MODELS[name], torch.ones(SHAPES[name]))
    return made.contract, [(row.sizes, row.outcome) for row in made.verdict.rows], made.rung


def test_two_threads_give_what_one_does() -> None:
    alone_ = {name: exported(name) for name in MODELS}
    orders = [list(MODELS), list(MODELS)[::-1]]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda order: {name: exported(name) for name in order}, orders))
    assert made == [alone_, alone_]


def test_a_second_export_says_that_it_waits() -> None:
    inside, told = threading.Event(), threading.Event()

    def first(station: str, text: str) -> None:
        inside.set()
        if station == "probe":
            told.wait()

    def second(station: str, text: str) -> None:
        if "waiting for another export" in text:
            told.set()

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(anyshape.export, nn.ReLU(), torch.ones(3), progress=Progress(doing=first))
        inside.wait()
        two = pool.submit(anyshape.export, nn.ReLU(), torch.ones(3), progress=Progress(doing=second))
        assert one.result().verdict.right and two.result().verdict.right
