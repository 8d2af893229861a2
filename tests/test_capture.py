from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyshape.capture import NoTape, Program, Traces, capture_symbolic, capture_values
from anyshape.errors import CaptureFault
from anyshape.lower.operators import TRANSLATIONS

Found = Callable[..., Any]


@pytest.fixture(scope="module")
def captured(found: Found) -> Callable[..., Program]:
    def up_to_capture(model: nn.Module, *args: Any, **declared: Any) -> Program:
        first = found(model, *args, **declared)
        return capture_symbolic(first.case, first.agreed, TRANSLATIONS)

    return up_to_capture


class Halves(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.cat([x, x], 1), x[:, 1:], x[:, ::2]


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 8:  # the branch
            return x * 2
        return x + 1


class Merges(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == x.shape[1]:  # the square
            return x.T
        return x * 2


class Looks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:  # a value decides
            return x * 2
        return x


class Numbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = [x[:, k] * k for k in range(x.shape[1])]  # one for each
        return torch.stack(rows, 1)


def test_outputs_are_expressions_of_the_dims(captured: Callable[..., Program]) -> None:
    program = captured(Halves(), (torch.randn(2, 6),), shapes={"x": "batch, n"})
    assert program.rung == "symbolic"
    doubled, shorter, halved = ([str(size) for size in shape] for shape in program.outputs)
    assert doubled == ["batch", "2*n"] and shorter == ["batch", "n - 1"]
    assert halved[0] == "batch"
    for n in range(1, 12):
        expected = Halves()(torch.randn(3, n))
        sizes = {"batch": 3, "n": n}
        for shape, tensor in zip(program.outputs, expected, strict=True):
            assert [size.evaluate(sizes) for size in shape if size is not None] == list(tensor.shape)


def test_a_branch_leaves_an_open_guard_with_its_line(
    captured: Callable[..., Program], line_in: Callable[[str, str], int]
) -> None:
    program = captured(Branch(), (torch.randn(2, 6),), shapes={"x": "batch, n"})
    (guard,) = [item for item in program.open_guards if item.names == {"n"}]
    sides = {n: guard.holds({"batch": 3, "n": n}) for n in (1, 8, 9, 40)}
    assert sides[1] == sides[8] != sides[9] == sides[40]
    assert guard.where is not None and guard.where.file.endswith("test_capture.py")
    assert guard.where.line == line_in(__file__, "# the branch")


def test_a_declared_range_on_one_side_proves_the_guard(captured: Callable[..., Program]) -> None:
    program = captured(Branch(), (torch.randn(2, 6),), shapes={"x": "batch, n"}, dims={"n": "1..8"})
    assert [item for item in program.open_guards if "n" in item.names] == []


def test_a_linear_layer_has_nothing_open(captured: Callable[..., Program]) -> None:
    assert captured(nn.Linear(3, 4), (torch.randn(2, 3),)).open_guards == ()


def test_a_guard_between_two_dims_holds_off_the_diagonal_only(captured: Callable[..., Program]) -> None:
    program = captured(Merges(), (torch.randn(2, 6),), shapes={"x": "m, n"})
    (guard,) = [item for item in program.open_guards if item.names == {"m", "n"}]
    assert guard.holds({"m": 4, "n": 5}) and not guard.holds({"m": 4, "n": 4})
    assert "m" in str(guard) and "n" in str(guard)


def test_a_value_that_decides_fails_the_trace_with_its_line(
    captured: Callable[..., Program], line_in: Callable[[str, str], int]
) -> None:
    with pytest.raises(
        CaptureFault, match=r"torch\.export can't trace the model with batch, x_1 dynamic"
    ) as info:
        captured(Looks(), (torch.rand(2, 6),))
    assert "Rewrite that line" in info.value.hint
    assert info.value.where is not None and info.value.where.line == line_in(__file__, "# a value decides")


def test_a_loop_over_a_size_fixes_it_and_the_line_is_said(
    captured: Callable[..., Program], line_in: Callable[[str, str], int]
) -> None:
    with pytest.raises(
        CaptureFault, match=r"n \(axis 1 of x\) was turned into the number \d+ in the trace"
    ) as info:
        captured(Numbers(), (torch.randn(2, 6),), shapes={"x": "batch, n"})
    assert "plain Python number" in info.value.hint
    assert info.value.where is not None
    assert info.value.where.file.endswith("test_capture.py")
    assert info.value.where.line == line_in(__file__, "# one for each")


def test_nothing_dynamic_is_traced_too(captured: Callable[..., Program]) -> None:
    program = captured(Halves(), (torch.randn(2, 6),), shapes={"x": "2, 6"})
    assert [[str(size) for size in shape] for shape in program.outputs] == [
        ["2", "12"],
        ["2", "5"],
        ["2", "3"],
    ]


def test_sizes_that_depend_on_values_are_not_known(captured: Callable[..., Program]) -> None:
    class Picks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[x > 0]

    program = captured(Picks(), (torch.randn(9),), shapes={"x": "n"})
    assert program.outputs == ((None,),)


class Fraction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 20:
            return x
        return x / (x.shape[1] / 3)  # no whole number


def test_a_trace_that_computes_with_a_fraction_is_a_fault_that_keeps_its_guards(
    captured: Callable[..., Program], line_in: Callable[[str, str], int]
) -> None:
    with pytest.raises(NoTape, match=r"the trace computes with .*, which is no whole number") as caught:
        captured(Fraction(), (torch.randn(2, 6),), shapes={"x": "batch, n"})
    assert [str(guard) for guard in caught.value.guards] == ["n <= 20"]
    assert caught.value.where is not None
    assert caught.value.where.line == line_in(__file__, "# no whole number")


class Bits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[1] | 1) + x.sum()


def test_a_trace_with_a_size_that_has_no_expression_is_a_fault(captured: Callable[..., Program]) -> None:
    with pytest.raises(NoTape, match="the trace has a size that no expression of the dims says: Bitwise"):
        captured(Bits(), (torch.randn(2, 6),), shapes={"x": "batch, n"})


class Pieces(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if x.shape[1] > 8:  # more of them
            return x.sin(), x.cos()
        return (x.exp(),)


def test_another_number_of_outputs_is_a_fault(
    found: Callable[..., Any], line_in: Callable[[str, str], int]
) -> None:
    first = found(Pieces(), (torch.randn(2, 6),), shapes={"x": "batch, n"})
    traces = Traces(first.case, first.agreed, TRANSLATIONS)
    with pytest.raises(
        CaptureFault, match=r"the model returns other tensors where n <= 8: 1 with 2 axes, beyond 2 with 2, 2"
    ) as info:
        capture_values(traces, [{"batch": 3, "n": 12}])
    assert "one number and rank" in info.value.hint
