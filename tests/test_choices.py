"""Layers that decide by their own sizes: the ways through the model multiply, its decisions only add up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture import Traces
from anyshape.capture.choices import MOST_BOUNDARIES, capture_choices
from anyshape.capture.tape import Step, Tape, Value, by_numbers, chosen, merged, rolled_up
from anyshape.capture.tape.fitter import Fitter, Undecided
from anyshape.errors import CaptureFault

Made = Callable[..., Traces]
aten = torch.ops.aten


class Block(nn.Module):
    """Shifts and masks, if the sequence is longer than its window."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        shift = int(float(min(x.shape[1], 6)) / 6.0) * 3  # Python's numbers: no symbolic trace follows
        mixed: Tensor = self.mix(x.roll(-shift, 1)).tanh()
        if shift > 0:
            mask = torch.zeros(x.shape[1])
            mask[-3:] = 1
            mixed = mixed * (1 - mask)[:, None]
        return mixed.roll(shift, 1) + x


class Stages(nn.Module):
    """Blocks, with the sequence halved between them: each has a limit of its own."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(block(x))[:, ::2]
        return x


def test_every_layer_chooses_for_itself(tmp_path: Path) -> None:
    model = Stages(5).eval()
    made = anyshape.export(model, torch.randn(2, 20, 4), tmp_path / "stages.onnx")
    assert made.rung == "regions" and not made.verdict.proved
    found = [note for note in made.contract.notes if note.startswith("takes one way")]
    assert len(found) == 5, "a boundary for each stage, and no more"
    assert "takes one way where seq <= 5, another beyond" in found[0] and "test_choices.py:" in found[0]
    run = anyshape.load(tmp_path / "stages.onnx")
    for batch, size in [
        (1, 1),
        (3, 5),
        (1, 6),
        (2, 10),
        (2, 11),
        (1, 20),
        (1, 21),
        (3, 47),
        (1, 81),
        (2, 130),
    ]:
        x = torch.randn(batch, size, 4)
        torch.testing.assert_close(torch.as_tensor(run(x)), model(x), atol=1e-5, rtol=1e-4)


def swapped(x: Tensor) -> Tensor:
    """Which of two tensors is used, and what it is used for later on."""
    for _ in range(2):
        plain, waved = x * 2, x.sin()
        first = plain if float(x.shape[1]) > 8.0 else waved
        x = first.cos() + waved
    return x - first


def doubled(x: Tensor) -> Tensor:
    """A number that is one of two, and nothing else that differs."""
    for _ in range(2):
        x = x.roll(1 if float(x.shape[1]) > 8.0 else 2, 1).tanh()
    return x


@pytest.mark.parametrize("function", [swapped, doubled])
def test_what_is_chosen(function: Any, traces: Made, run_tape: Callable[..., list[Tensor]]) -> None:
    if function is doubled:  # without another step that differs, nothing tells that there are ways at all
        with pytest.raises(CaptureFault, match="no limit was found at which the model goes another way"):
            capture_choices(traces(function))
        return
    program = capture_choices(traces(function), [{"b": 3, "n": 4}, {"b": 3, "n": 20}])
    assert [str(split.condition) for split in program.splits] == ["n <= 8"]
    for b, n in [(1, 2), (2, 8), (2, 9), (3, 40)]:
        x = torch.randn(b, n)
        torch.testing.assert_close(run_tape(program.body, [x], {"b": b, "n": n}), [function(x)])


def test_too_many_limits_are_a_fault(traces: Made) -> None:
    def function(x: Tensor) -> Tensor:
        return (x.sin, x.cos, x.tanh)[int(x.shape[1]) // 3 % 3]()

    with pytest.raises(CaptureFault, match=f"the model changes at more than {MOST_BOUNDARIES} sizes of n"):
        capture_choices(traces(function))


def test_rows_that_no_limit_tells_apart_are_a_fault() -> None:
    fitter = Fitter([{"n": 3}, {"n": 9}], ("n",))
    with pytest.raises(Undecided, match="goes other ways at other sizes, as no limit of a single dim tells"):
        fitter.decided([0, 1], None)


def tape_of_roll(size: int, shift: int) -> Tape:
    x, y = Value((2, size), torch.float32), Value((2, size), torch.float32)
    return Tape([x], {}, [Step(aten.roll.default, (x, [shift], [1]), {}, (y,))], [y])


def test_a_step_becomes_a_choice_by_its_numbers() -> None:
    tapes = [tape_of_roll(5, 0), tape_of_roll(9, 3), tape_of_roll(6, 0), tape_of_roll(12, 3)]
    made = by_numbers(tapes, 0)
    assert made is not None
    assert [tape.steps[0].target for tape in made] == [chosen] * 4
    assert [tape.steps[0].body.label for tape in made] == [0, 1, 0, 1]
    assert by_numbers([tape_of_roll(5, 2), tape_of_roll(7, 2)], 0) is None, "nothing moves"
    assert by_numbers([tape_of_roll(30, shift) for shift in range(9)], 0) is None, "too many"


def test_a_number_on_either_side_of_a_boundary(run_tape: Callable[..., list[Tensor]]) -> None:
    from anyshape.dims import Expr, Relation

    sizes = [5, 9, 6, 12]
    tapes = by_numbers([tape_of_roll(n, 3 if n > 7 else 0) for n in sizes], 0)
    assert tapes is not None
    boundary = Relation(Expr.of("n"), "<=", Expr.of(7))
    fitter = Fitter([{"n": n} for n in sizes], ("n",), boundaries=(boundary,))
    tape = merged(rolled_up(tapes), fitter, [(2, Expr.of("n"))])
    for n in (4, 7, 8, 20):
        x = torch.randn(2, n)
        assert run_tape(tape, [x], {"n": n})[0].equal(x.roll(3 if n > 7 else 0, 1))


def windowed(x: Tensor) -> Tensor:
    """Pads to whole windows, and rolls where there is more than one: in every stage by its own size."""
    for _ in range(3):
        x = nn.functional.pad(x, (0, (7 - x.shape[1] % 7) % 7))
        x = x.roll(3, 1).sin() if x.shape[1] > 7 else x.cos()
        x = x[:, ::2]
    return x


def test_limits_of_padded_sizes_are_known_not_looked_for(traces: Made) -> None:
    from anyshape.capture.choices import _limits
    from anyshape.capture.decisions import explored

    made = traces(windowed)
    turns = explored(made).found
    turning = {
        n
        for turn in turns
        for n in range(2, 60)
        if turn.holds({"b": 3, "n": n}) != turn.holds({"b": 3, "n": n + 1})
    }
    assert turning >= {7, 14}, "each stage's own limit, though its size moves in leaps"
    assert _limits(made, turns)["n"] == _limits(made, ())["n"]
