from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from anyshape.capture.tape import Apart, Fitter, NoExpression, record
from anyshape.capture.tape.constants import fitted_constant, index_tensor, sizes_tensor
from anyshape.capture.tape.formulas import shared_formulas
from anyshape.capture.tape.merge import lined_up, merged
from anyshape.capture.tape.numbering import numbered
from anyshape.capture.tape.steps import Step, Tape, Value
from anyshape.dims import Expr, Real
from anyshape.errors import CaptureFault, SourceLine

aten = torch.ops.aten
Lined = Callable[..., Any]

ROWS = [{"b": b, "n": n} for b, n in ((3, 7), (5, 7), (3, 8), (3, 14), (9, 16), (2, 12), (3, 10), (3, 9))]
UNSEEN = [{"b": b, "n": n} for b, n in ((2, 1), (1, 2), (4, 3), (2, 17), (1, 40))]


# --- Lining up ------------------------------------------------------------------------------------------


def test_constants_are_told_apart_by_name_or_by_use() -> None:
    layer = nn.Linear(4, 3)
    names = {id(tensor): name for name, tensor in layer.named_parameters()}
    tape = record(lambda x: [layer(x) * torch.from_numpy(np.ones(3, np.float32))], [torch.randn(2, 4)], names)
    found = list(numbered(tape).values())
    assert ("input", 0) in found and ("constant", "weight") in found and ("constant", "bias") in found
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: (x + 2).sum(0).cos(),
        lambda x: (x + 1).sum(1).sin(),
        lambda x: (x + 1).sum(0, keepdim=True).sin(),
        lambda x: (x + 1.5).sum(0).sin(),
        lambda x: (x + x).sum(0).sin(),
        lambda x: (x + 1).sum(0).sin().cos(),
        lambda x: (x + 1).sum(0, dtype=torch.float64).sin(),
    ],
)
def test_another_operator_axis_type_or_tensor_is_another_tape(other: Any) -> None:
    def tape(function: Any) -> Tape:
        return record(lambda x: [function(x)], [torch.randn(3, 4)], {})

    one = tape(lambda x: (x + 1).sum(0).sin())
    with pytest.raises(Apart):
        lined_up([one, tape(other)])
    assert len(lined_up([one, tape(lambda x: (x + 5).sum(0).sin())])) == 3  # another number is not


def test_apart_knows_the_steps() -> None:
    tapes = [record(lambda x, f=f: [f(x)], [torch.randn(3)], {}) for f in (torch.sin, torch.cos)]  # type: ignore[misc]
    with pytest.raises(Apart, match="the tapes part at step 0") as caught:
        lined_up(tapes)
    assert [step and step.target for step in caught.value.steps] == [aten.sin.default, aten.cos.default]


# --- Numbers become expressions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(x.shape[0] * x.shape[1]),
        lambda x: x[:, int(np.int64(x.shape[1]) // 2) :],
        lambda x: pad(x, (0, math.ceil(x.shape[1] / 4) * 4 - x.shape[1])).view(x.shape[0], -1, 4),
        lambda x: x * float(np.float64(x.shape[1]) ** -0.5),
        lambda x: x * math.log(x.shape[1] + 1),
        lambda x: x.expand(4, x.shape[0], x.shape[1]).cumsum(0),
        lambda x: (x.sum(0), x.shape[1] * x.sum(1), x.new_full((x.shape[1], 2), x.shape[0])),
    ],
)
def test_each_number_that_moved_is_an_expression(function: Any, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    tape = made.merged()
    for row in UNSEEN:
        made.check(tape, row)


def test_sizes_of_results_are_expressions(lined: Lined) -> None:
    made = lined(lambda x: torch.cat([x, x[:, 1:]], 1)[:, ::2], "b n", *ROWS).merged()
    (output,) = made.outputs
    assert output.shape[0] == Expr.of("b")
    assert all(output.shape[1].evaluate({"n": n}) == n for n in range(1, 40))


def test_a_size_that_depends_on_values_has_a_name_of_its_own(lined: Lined) -> None:
    made = lined(lambda x: x[x > 0] * 2, "b n", *ROWS)
    tape = made.merged()
    (size,) = tape.outputs[0].shape
    assert str(size).startswith("_data")
    for row in UNSEEN:
        made.check(tape, row)


def test_weights_stay_as_they_are_with_their_names() -> None:
    layer = nn.Linear(4, 3)
    names = {id(tensor): name for name, tensor in layer.named_parameters()}
    rows = [{"b": b} for b in (3, 5, 8)]
    tapes = [record(lambda x: [layer(x)], [torch.randn(row["b"], 4)], names) for row in rows]
    made = merged(tapes, Fitter(rows, ("b",)), [(Expr.of("b"), 4)])
    assert sorted(made.names.values()) == ["bias", "weight"]
    assert made.outputs[0].shape == (Expr.of("b"), 3) and made.inputs[0].shape == (Expr.of("b"), 4)


def test_a_number_without_an_expression_is_told_with_examples() -> None:
    fitter = Fitter([{"n": 7}, {"n": 8}, {"n": 14}, {"n": 16}], ("n",))
    where = SourceLine("net.py", 3, "x[:k]")
    with pytest.raises(NoExpression) as caught:
        fitter.leaf([5, 2, 9, 1], (), where)
    assert caught.value.column == (5, 2, 9, 1) and caught.value.where == where
    assert caught.value.what == (
        "a number in the model changes with its inputs, as no expression of n: 5 at n = 7; 2 at n = 8; 9 at n = 14"
    )
    assert caught.value.hint == (
        "If it depends on the values of a tensor, keep it a tensor; else declare fewer dims as dynamic."
    )


def test_text_that_moves_has_no_expression() -> None:
    with pytest.raises(NoExpression, match="reflect at n = 7; constant at n = 8"):
        Fitter([{"n": 7}, {"n": 8}], ("n",)).leaf(["reflect", "constant"], (), None)


def test_an_argument_that_did_not_move_stays_what_it_is() -> None:
    fitter = Fitter([{"n": 7}, {"n": 8}, {"n": 11}], ("n",))
    assert fitter.leaf([True] * 3, (), None) is True
    assert math.isnan(fitter.leaf([math.nan] * 3, (), None))
    assert fitter.leaf([7, 8, 11], (), None) == Expr.of("n")
    assert isinstance(fitter.leaf([1 / 7, 1 / 8, 1 / 11], (), None), Real)


def test_a_column_is_explained_once() -> None:
    fitter = Fitter([{"n": 7}, {"n": 8}, {"n": 11}], ("n",))
    one, two = fitter.axis([5, 9, 2], ()), fitter.axis([5, 9, 2], ())
    assert one is two and str(one) == "_data0"
    assert str(fitter.axis([3, 8, 1], ())) == "_data1"
    assert fitter.size([10, 18, 4], [one]) == 2 * one  # type: ignore[operator, list-item]


# --- Constants that Python made -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "target"),
    [
        (lambda x: x * torch.tensor([x.shape[1], 2 * x.shape[0]]).sum(), sizes_tensor),
        (lambda x: x * torch.tensor(1 / x.shape[1]), sizes_tensor),
        (lambda x: x + torch.from_numpy(np.arange(x.shape[1], dtype=np.float32)), index_tensor),
        (lambda x: x + torch.tensor([2 * k + 1 for k in range(x.shape[1])]), index_tensor),
        (lambda x: x + torch.tensor([[k / x.shape[1]] for k in range(x.shape[0])]), index_tensor),
        (lambda x: x @ torch.from_numpy(np.tril(np.ones((x.shape[1],) * 2, bool))).float(), index_tensor),
        (lambda x: x @ torch.from_numpy(np.triu(np.ones((x.shape[1],) * 2, bool), 1)).float(), index_tensor),
        (lambda x: x[:, torch.tensor(range(x.shape[1] - 1, -1, -1))], index_tensor),
    ],
)
def test_a_constant_that_follows_sizes_is_made_from_them(function: Any, target: Any, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    tape = made.merged()
    assert target in {step.target for step in tape.steps}
    for row in UNSEEN:
        made.check(tape, row)


def test_a_constant_that_stays_the_same_is_kept(lined: Lined) -> None:
    made = lined(lambda x: x * torch.tensor([[2.0]]) + torch.tensor(3), "b n", *ROWS).merged()
    assert sorted(tensor.item() for tensor in made.constants.values()) == [2, 3]


def test_a_constant_may_be_an_output(lined: Lined) -> None:
    made = lined(lambda x: (x.sin(), torch.from_numpy(np.arange(x.shape[1]))), "b n", *ROWS)
    tape = made.merged()
    for row in UNSEEN:
        made.check(tape, row)


def test_entries_without_an_expression_are_told() -> None:
    rows = [{"n": n} for n in (7, 8, 11)]
    tensors = [torch.tensor([k * k * k % 5 for k in range(row["n"])]) for row in rows]
    where = SourceLine("net.py", 3, "torch.tensor(table)")
    value = Value((7,), torch.int64)
    with pytest.raises(CaptureFault) as caught:
        fitted_constant(tensors, value, Fitter(rows, ("n",)), where)
    assert caught.value.what == (
        "the model makes a tensor in Python whose size follows the inputs' and whose entries are no simple "
        "expression of their indices: [7] of torch.int64"
    )
    assert caught.value.where == where
    assert caught.value.hint == (
        "Make it with PyTorch's own functions (torch.arange, torch.tril, ...), so that it can be followed."
    )


def test_a_mask_that_is_no_comparison_of_indices_is_told() -> None:
    rows = [{"n": n} for n in (7, 8, 11)]
    tensors = [torch.tensor([k % 3 == 0 for k in range(row["n"])]) for row in rows]
    with pytest.raises(CaptureFault, match=r"no simple expression of their indices: \[7\] of torch\.bool"):
        fitted_constant(tensors, Value((7,), torch.bool), Fitter(rows, ("n",)), None)


def test_entries_that_move_without_an_expression_are_told() -> None:
    rows = [{"n": n} for n in (7, 8, 11, 16)]
    tensors = [torch.tensor([1, k]) for k in (5, 2, 9, 1)]
    with pytest.raises(NoExpression, match="5 at n = 7; 2 at n = 8; 9 at n = 11"):
        fitted_constant(tensors, Value((2,), torch.int64), Fitter(rows, ("n",)), None)


# --- Formulas that stages share -------------------------------------------------------------------------


def padded_columns(
    sizes: list[list[int]], values: list[list[int]], where: SourceLine | None
) -> list[list[Step]]:
    """For each stage, the step that pads it on each tape."""
    return [
        [
            Step(
                aten.constant_pad_nd.default,
                (x, [0, more]),
                {},
                (Value((2, n + more), torch.float32),),
                where,
            )
            for n, more in zip(stage, pads, strict=True)
            for x in [Value((2, n), torch.float32)]
        ]
        for stage, pads in zip(sizes, values, strict=True)
    ]


LINE = SourceLine("net.py", 3, "pad(x)")
STAGES = [[30, 31, 37, 40], [15, 16, 19, 20], [8, 9, 10, 12]]


def test_stages_together_determine_what_one_alone_does_not() -> None:
    columns = padded_columns(STAGES, [[-n % 7 for n in stage] for stage in STAGES], LINE)
    found = shared_formulas(columns)
    assert found.keys() == {column[0] for column in columns}
    (formula,) = found[columns[0][0]].values()
    assert all(formula.evaluate({"_x0": 2, "_x1": n}) == -n % 7 for n in range(1, 60))


def test_steps_without_a_line_or_alone_on_it_share_nothing() -> None:
    pads = [[-n % 7 for n in stage] for stage in STAGES]
    assert shared_formulas(padded_columns(STAGES, pads, None)) == {}
    assert shared_formulas(padded_columns(STAGES[:1], pads[:1], LINE)) == {}


def test_the_same_sizes_with_other_numbers_share_nothing() -> None:
    columns = padded_columns([[30, 31, 37], [30, 31, 37]], [[1, 2, 3], [1, 2, 4]], LINE)
    assert shared_formulas(columns) == {}


def test_a_shared_formula_holds_at_sizes_not_seen(lined: Lined) -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(3):
            x = pad(x, (0, -x.shape[1] % 7)).cumsum(1)[:, ::2]
        return x

    rows = [
        {"b": b, "n": n} for b, n in ((3, 29), (5, 29), (3, 30), (3, 51), (6, 40), (2, 20), (3, 36), (3, 44))
    ]
    made = lined(function, "b n", *rows)
    tape = made.merged()
    for row in ({"b": 1, "n": 2}, {"b": 2, "n": 7}, {"b": 1, "n": 23}, {"b": 1, "n": 100}):
        made.check(tape, row)
