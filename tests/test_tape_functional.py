from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.capture.tape import Step, Tape, Value, functional, record
from anyshape.dims import Expr
from anyshape.errors import CaptureFault

aten = torch.ops.aten
Run = Callable[..., list[Tensor]]
Function = Callable[[Tensor], Any]


def outputs_of(function: Function, x: Tensor) -> list[Tensor]:
    made = function(x)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def tape_of(function: Function, x: Tensor) -> Tape:
    return record(lambda *tensors: outputs_of(function, *tensors), [x.clone()], {})


def writes(tape: Tape) -> list[str]:
    return [str(step.target) for step in tape.steps if step.target._schema.is_mutable]


# --- Writes, each as a function that ends with what can be seen of it -----------------------------------


def add_to_a_slice(x: Tensor) -> Tensor:
    x[:, 1:3].add_(1, alpha=2)
    return x * 2


def add_with_a_stride(x: Tensor) -> Tensor:
    x[:, ::2] += 1
    return x


def fill_a_row(x: Tensor) -> Tensor:
    x[1].fill_(7)
    return x


def fill_from_behind(x: Tensor) -> Tensor:
    x[..., -1] = 3
    x[-2:] *= 2
    return x


def copy_into_a_column(x: Tensor) -> Tensor:
    x[:, 2] = x[:, 0] * 2
    return x


def copy_with_broadcast(x: Tensor) -> Tensor:
    x[1:] = x[0]
    return x


def copy_another_type(x: Tensor) -> Tensor:
    whole = x.to(torch.int64)
    whole[0] = x[1] * 10
    return whole


def through_a_transpose(x: Tensor) -> Tensor:
    x.transpose(0, 1)[1].mul_(x[0, 0])
    x.t()[3].add_(1)
    return x


def through_a_permutation(x: Tensor) -> Tensor:
    cube = x.view(2, 2, 6)
    cube.permute(2, 0, -2)[4, 1].neg_()
    return cube


def through_views_of_views(x: Tensor) -> Tensor:
    torch.unflatten(x.view(2, -1)[1][2:9], 0, (7, 1)).squeeze(1)[1:4].mul_(3)
    return x


def through_flatten(x: Tensor) -> Tensor:
    x.flatten()[5:9].zero_()
    x.unsqueeze(0).reshape(-1)[:2].fill_(1)
    return x


def through_pieces(x: Tensor) -> Tensor:
    torch.split(x, 4, 1)[1].mul_(2)
    torch.split(x, [1, 5], 1)[1].add_(1)
    x.chunk(2, 0)[1].sub_(3)
    x.tensor_split(3, 1)[2].mul_(5)
    x.unbind(0)[2].exp_()
    x.narrow(1, 2, 2).neg_()
    return x


def through_a_diagonal(x: Tensor) -> Tensor:
    x.diagonal().fill_(9)
    x.diagonal(1, 0, 1).mul_(2)
    return x


def through_an_alias(x: Tensor) -> Tensor:
    x.detach().contiguous().to(torch.float32).type_as(x).add_(1)
    return x


def through_what_was_handed_back(x: Tensor) -> tuple[Tensor, Tensor]:
    same = torch.atleast_2d(x.type_as(x))
    same[0] = 0
    return x, same.mul_(2)


def truth_as_numbers(x: Tensor) -> Tensor:
    x[0].gt_(0)
    x[1].add_(torch.ones(6, dtype=torch.float64))
    return x * 2


def put_by_index(x: Tensor) -> Tensor:
    x[torch.tensor([0, 2]), torch.tensor([1, 3])] = torch.tensor([5.0, 6.0])
    x[:, torch.tensor([0, 5])] += 1
    return x


def put_by_mask(x: Tensor) -> Tensor:
    x[x > 0] = -1
    return x.masked_fill_(x < -1, 0)


def scatter(x: Tensor) -> Tensor:
    x.scatter_(1, torch.tensor([[1], [2], [0], [3]]), 8.0)
    return x.index_fill_(0, torch.tensor([3]), 2.0)


def other_overloads(x: Tensor) -> Tensor:
    x.pow_(2).clamp_(min=0.1, max=4).div_(3).sqrt_()
    x.pow_(torch.tensor(3.0)).floor_divide_(0.5)
    return x.relu_().logical_not_()


def seen_through_another_view(x: Tensor) -> tuple[Tensor, Tensor]:
    row, column = x[1], x[:, 2]
    column.fill_(4)
    row += 1
    return row * 2, column * 2


def output_is_an_older_view(x: Tensor) -> tuple[Tensor, Tensor]:
    view = x.t()[1:]
    x.mul_(2)
    x[0] = 0
    return view, x[:, :2]


def output_is_what_was_written(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x[1:3].add_(1)
    x.sub_(5)
    return made, x


def reads_before_and_after(x: Tensor) -> Tensor:
    before = x + 0
    x.zero_()
    x[0] = before[1]
    return torch.stack([before, x])


def copies_are_apart(x: Tensor) -> tuple[Tensor, ...]:
    copies = [x.clone(), x.t().contiguous(), x.t().reshape(24), x.to(torch.float64), x[:, :3].flatten()]
    for copy in copies:
        copy.add_(1)
    return (*copies, x)


def starts_from_a_constant(x: Tensor) -> Tensor:
    total = torch.zeros(6)
    for row in x:
        total += row
    return total


def copy_of_itself(x: Tensor) -> Tensor:
    x[0] = x[1]
    x[1] = x[0] + x[2]
    return x


FUNCTIONS: list[Function] = [
    add_to_a_slice,
    add_with_a_stride,
    fill_a_row,
    fill_from_behind,
    copy_into_a_column,
    copy_with_broadcast,
    copy_another_type,
    through_a_transpose,
    through_a_permutation,
    through_views_of_views,
    through_flatten,
    through_pieces,
    through_a_diagonal,
    through_an_alias,
    through_what_was_handed_back,
    truth_as_numbers,
    put_by_index,
    put_by_mask,
    scatter,
    other_overloads,
    seen_through_another_view,
    output_is_an_older_view,
    output_is_what_was_written,
    reads_before_and_after,
    copies_are_apart,
    starts_from_a_constant,
    copy_of_itself,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_tape_does_the_same_without_writing(function: Function, run_tape: Run) -> None:
    recorded = tape_of(function, torch.randn(4, 6))
    made = functional(recorded)
    assert writes(recorded) and not writes(made)
    x = torch.randn(4, 6)  # other values than the recorded ones
    torch.testing.assert_close(run_tape(made, [x]), outputs_of(function, x.clone()))


def test_a_tape_without_writes_keeps_its_steps(run_tape: Run) -> None:
    recorded = tape_of(lambda x: torch.cat([x, x * 2]).softmax(0), torch.randn(4, 6))
    made = functional(recorded)
    assert [step.target for step in made.steps] == [step.target for step in recorded.steps]
    x = torch.randn(4, 6)
    torch.testing.assert_close(run_tape(made, [x]), [torch.cat([x, x * 2]).softmax(0)])


def test_steps_that_matter_to_memory_only_are_left_out(run_tape: Run) -> None:
    def function(x: Tensor) -> Tensor:
        return x.t().contiguous().clone().detach() + 1

    made = functional(tape_of(function, torch.randn(4, 6)))
    assert [step.target for step in made.steps] == [aten.t.default, aten.add.Tensor]
    x = torch.randn(4, 6)
    torch.testing.assert_close(run_tape(made, [x]), [function(x)])


def test_an_output_that_only_matters_to_memory_is_what_it_was_made_of() -> None:
    made = functional(tape_of(lambda x: x.clone(), torch.randn(4, 6)))
    assert made.steps == [] and made.outputs == made.inputs


# --- Writes that have no functional form ----------------------------------------------------------------


def test_a_write_to_another_argument_than_the_first_is_a_fault(line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        made = torch.empty(6)
        torch.sum(x, 0, out=made)  # into made
        return made

    with pytest.raises(
        CaptureFault, match=r"aten\.sum\.IntList_out does not write to its first argument alone"
    ) as caught:
        functional(tape_of(function, torch.randn(4, 6)))
    assert caught.value.what.endswith("which has no functional form here")
    assert caught.value.where is not None and caught.value.where.line == line_in(__file__, "# into made")
    assert caught.value.hint == "Write it without the in-place operation."


def test_a_write_without_a_twin_is_a_fault() -> None:
    with torch.library._scoped_library("anyshape_tests", "FRAGMENT") as library:
        library.define("bump_(Tensor(a!) x) -> Tensor(a!)")
        library.impl("bump_", lambda x: x.add_(1), "CPU")
        value, made = Value((3,), torch.float32), Value((3,), torch.float32)
        step = Step(torch.ops.anyshape_tests.bump_.default, (value,), {}, (made,))
        with pytest.raises(CaptureFault, match=r"anyshape_tests\.bump_\.default has no functional twin"):
            functional(Tape([value], {}, [step], [made]))


def test_a_write_through_an_unknown_view_is_a_fault(line_in: Callable[[str, str], int]) -> None:
    def function(x: Tensor) -> Tensor:
        x.unfold(1, 2, 2)[0].zero_()  # through windows
        return x

    with pytest.raises(CaptureFault, match=r"writes to a tensor through aten\.unfold\.default") as caught:
        functional(tape_of(function, torch.randn(4, 6)))
    assert caught.value.where is not None and caught.value.where.line == line_in(
        __file__, "# through windows"
    )


def test_a_write_to_what_may_be_a_view_is_a_fault() -> None:
    """At symbolic sizes nobody knows whether reshape copies."""
    size = Expr.of("n")
    x, flat, made = (Value(shape, torch.float32) for shape in ((size, 3), (3 * size,), (3 * size,)))
    steps = [
        Step(aten.reshape.default, (x, [-1]), {}, (flat,)),
        Step(aten.add_.Tensor, (flat, 1), {}, (made,)),
    ]
    with pytest.raises(CaptureFault, match="writes to a tensor that may share its memory with another"):
        functional(Tape([x], {}, steps, [made]))
