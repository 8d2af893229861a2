"""Other kinds of values: what is made, and what the reference and a check do with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anyshape.inputs.case import Refusal
from anyshape.inputs.read import read
from anyshape.inputs.values import rules_of
from anyshape.inputs.variants import count_variants, variant_text, varied_tensors
from anyshape.verify.reference import Expected, Reference
from anyshape.verify.verify import check

Found = Callable[..., Any]
KINDS = ("with nothing hidden", "padded on the left", "padded on the right", "hidden at random")


class Keep(nn.Module):
    def forward(self, *tensors: Tensor) -> Tensor:
        return tensors[0] * 1


def varied(variant: int, shapes: Any, *examples: Tensor) -> list[Tensor]:
    case = read(Keep(), examples)
    return varied_tensors(case, rules_of(case), shapes, {}, 0, variant)


def texts(*examples: Tensor, name: str = "x") -> list[str]:
    case = read(Keep(), examples, input_names=[name, *(f"other_{k}" for k in range(1, len(examples)))])
    rules = rules_of(case)
    return [variant_text(case, rules, variant) for variant in range(1, count_variants(case, rules))]


MASKS = [
    (torch.ones(2, 5, dtype=torch.long), 0, 1),
    (torch.ones(2, 5).bool(), 0, 1),
    (torch.zeros(2, 5).bool(), 1, 0),
    (torch.tensor([[0.0, 0.0, -1e9]]), -1e9, 0),
    (torch.tensor([[0.0, 0.0, -math.inf]]), -math.inf, 0),
]


@pytest.mark.parametrize(("example", "hidden", "shown"), MASKS)
def test_a_mask_is_hidden_in_several_ways(example: Tensor, hidden: float, shown: float) -> None:
    full, left, right, random, row = (varied(k, ((6, 9),), example)[0].double() for k in range(1, 6))
    assert (full == shown).all()
    hides = left == hidden
    assert hides.any() and not hides.all(1).any()
    assert (hides[:, :-1] >= hides[:, 1:]).all()  # once shown, to the end
    hides = right == hidden
    assert hides.any() and not hides.all(1).any() and (hides[:, :-1] <= hides[:, 1:]).all()
    assert 0 < (random == hidden).sum() < random.numel()
    assert (row[0] == hidden).all() and (row[1:] == shown).all()


def test_a_mask_says_how() -> None:
    mask = torch.ones(2, 5).bool()
    assert texts(mask, name="mask") == [
        *(f"mask {kind}" for kind in KINDS),
        "mask with a row hidden as a whole",
    ]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1), (2, 1, 1, 7)])
def test_masks_of_any_size(shape: tuple[int, ...]) -> None:
    example = torch.ones((1,) * (len(shape) - 1) + (3,)).bool()
    for variant in range(1, 6):
        (made,) = varied(variant, (shape,), example)
        assert made.shape == shape and made.dtype == torch.bool


def test_floats_have_other_scales_and_signs() -> None:
    example = torch.rand(3, 40) + 1
    small, large, other, some = (varied(k, ((3, 40),), example)[0] for k in (1, 2, 3, 4))
    assert small.max() < 0.1 and large.min() >= 10 and other.max() < 0
    assert (some[0] == 0).all() and 0 < int((some[1:] == 0).sum()) < 80
    assert texts(example) == [
        "x a hundredth as large",
        "x ten times as large",
        "x of the other sign",
        "x with zeros among them",
    ]


def test_ids_come_from_the_whole_range() -> None:
    example = torch.tensor([[3, 90, 41], [7, 3, 12]])
    (made,) = varied(1, ((8, 20),), example)
    assert made.min() == 3 and made.max() == 90
    assert len(set(made.flatten().tolist()) - set(example.flatten().tolist())) > 10
    assert texts(example) == ["x over the whole range of what was seen"]


def test_lengths_are_shorter_than_the_tensor_and_as_long() -> None:
    examples = torch.randn(3, 6, 4), torch.tensor([6, 5, 2])
    shapes = ((5, 9, 4), (5,))
    shorter, longest = (varied(k, shapes, *examples)[1].tolist() for k in (1, 2))
    assert max(shorter) == 8 and max(longest) == 9
    assert min(shorter + longest) >= 1 and shorter == sorted(shorter, reverse=True)
    assert texts(*examples)[0] == "x a hundredth as large, other_1 shorter than the longest"


def test_a_single_length() -> None:
    shorter, longest = (varied(k, ((9, 4), ()), torch.randn(6, 4), torch.tensor(3))[1] for k in (1, 2))
    assert shorter.shape == () and longest.item() == 4


def test_numbers_above_every_size_are_no_lengths() -> None:
    assert "longest" not in " ".join(texts(torch.randn(3, 6), torch.tensor([60, 5, 2])))


def test_what_does_not_vary() -> None:
    assert texts(torch.full((2, 3), 7)) == [] and texts(torch.arange(5)) == []
    assert texts(torch.tensor(True)) == []
    case = read(Keep(), (torch.randn(2, 3),), make_inputs=lambda sizes: ((torch.zeros(2, 3),), {}))
    assert count_variants(case, rules_of(case)) == 1


class Divides(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = x.masked_fill(~mask, -torch.inf).softmax(-1)
        return weights * 2


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


class Runs:
    """A runtime that computes with a function of arrays."""

    name = "Runs"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.input_names, self.output_names = function, ["x", "mask"], ["y"]

    def run(self, feed: Any) -> list[Any]:
        return [self.function(*feed.values())]


@pytest.fixture(scope="module")
def divides(found: Found) -> Reference:
    first = found(Divides(), (torch.randn(3, 5), torch.ones(3, 5).bool()), shapes={"x": "b, n"})
    return Reference(first.case, first.agreed)


def torch_itself(x: Any, mask: Any) -> Any:
    return Divides()(torch.tensor(x), torch.tensor(mask)).numpy()


SIZES = {"b": 4, "n": 7}


def test_each_variant_is_an_answer_of_its_own(divides: Reference) -> None:
    assert divides.variants == 6
    answers = [divides.at(SIZES, variant) for variant in range(divides.variants)]
    masks = [answer.tensors[1].tolist() for answer in answers if isinstance(answer, Expected)]
    assert len(masks) == 6 and masks[1] != masks[2] != masks[3]
    assert divides.at(SIZES, 2) is answers[2] and divides.at(SIZES) is answers[0]
    assert divides.values(0) == "" and divides.values(2) == "x ten times as large, mask padded on the left"


def test_shapes_of_every_variant_are_known(divides: Reference) -> None:
    divides.at(SIZES, 1)
    assert len([sizes for sizes, _ in divides.output_shapes() if sizes == SIZES]) > 1


def test_a_model_that_is_wrong_for_some_values_says_for_which(divides: Reference) -> None:
    def no_left(x: Any, mask: Any) -> Any:
        return torch_itself(x, mask) * (1 if mask[:, 0].all() else 1.5)

    assert check(Runs(no_left), divides, SIZES, variant=1).outcome == "right"
    row = check(Runs(no_left), divides, SIZES, variant=2)
    assert (row.outcome, row.variant) == ("wrong", 2)
    assert row.why.endswith(" allowed), with x ten times as large, mask padded on the left")
    assert row.values == "x ten times as large, mask padded on the left"


def test_where_pytorch_has_no_number_any_will_do_but_not_elsewhere(divides: Reference) -> None:
    expected = divides.at(SIZES, 5)
    assert isinstance(expected, Expected) and expected.outputs.tensors[0][0].isnan().all()

    def zeros(x: Any, mask: Any) -> Any:
        return np.nan_to_num(torch_itself(x, mask))

    assert check(Runs(torch_itself), divides, SIZES, variant=5).outcome == "right"
    assert check(Runs(zeros), divides, SIZES, variant=5).outcome == "right"
    everywhere = Runs(lambda x, mask: torch_itself(x, mask) * np.nan)
    assert check(everywhere, divides, SIZES, variant=5).outcome == "wrong"


def test_values_that_leave_no_number_tell_nothing(found: Found) -> None:
    first = found(Root(), (torch.rand(3, 5) + 1,), shapes={"x": "b, n"})
    reference = Reference(first.case, first.agreed)
    answer = reference.at(SIZES, 3)
    assert isinstance(answer, Refusal)
    row = check(Runs(lambda x: x), reference, SIZES, variant=3)
    assert row.outcome == "refused"
    assert row.why == "ValueError: these values give nothing but NaN and infinity"


def test_values_that_pytorch_refuses_tell_nothing(found: Found) -> None:
    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert (x > 0).all(), "only positive"
            return x * 2

    first = found(Picky(), (torch.rand(3, 5) + 1,), shapes={"x": "b, n"})
    reference = Reference(first.case, first.agreed)
    assert check(Runs(lambda x: x * 2), reference, SIZES, variant=3).outcome == "refused"
    assert check(Runs(lambda x: x * 2), reference, SIZES, variant=2).outcome == "right"
