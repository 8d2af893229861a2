from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from anyshape.contract.agree import agree
from anyshape.contract.contract import Contract
from anyshape.contract.declare import declare
from anyshape.errors import ContractFault, DeclarationError, InputError
from anyshape.inputs.read import read
from anyshape.inputs.values import make_tensors
from anyshape.probe import probe
from anyshape.verify.sizes import sizes_to_try

Found = Callable[..., Any]


class Text(nn.Module):
    """Two inputs that agree in both axes, and a table of 128 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 12), nn.Embedding(128, 12)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = self.places(torch.arange(tokens.shape[1]))
        return (self.words(tokens) + places) * mask.unsqueeze(-1)


class Image(nn.Module):
    """Rows and columns in blocks of 8."""

    def forward(self, image: Tensor) -> Tensor:
        b, c, h, w = image.shape
        return image.view(b, c, h // 8, 8, w // 8, 8).mean((3, 5))


class Kernel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 5))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv1d(x, self.weight)


class Written(nn.Module):
    """A size is written into the model."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, 60) * 2 if x.shape[1] == 60 else x.reshape(7, 7)


TEXT = (torch.randint(0, 50, (2, 6)), torch.ones(2, 6))
IMAGE = torch.randn(2, 3, 16, 24)


@pytest.fixture(scope="module")
def text(found: Found) -> Callable[..., Any]:
    """The text model's agreement under a declaration; probed once."""
    case = read(Text().eval(), TEXT)
    evidence = probe(case)
    return lambda **declared: agree(case, declare(case, **declared), evidence)


def refusal(kind: type[Exception], action: Callable[[], Any]) -> Any:
    with pytest.raises(kind) as info:
        action()
    return info.value


def shapes(made: Any) -> list[str]:
    return [item.shape_text() for item in made.contract.inputs]


def test_nothing_declared_is_what_was_found(text: Any) -> None:
    made = text()
    assert shapes(made) == ["[batch, seq]", "[batch, seq]"]
    assert [dim.origin for dim in made.contract.dims] == ["found", "found"]
    assert made.contract.example == {"batch": 2, "seq": 6}
    assert made.contract.dim("seq").range.maximum == 128
    assert "test_agree.py" in made.contract.dim("seq").reason


def test_declared_names_replace_found_ones(text: Any) -> None:
    made = text(shapes={"tokens": "b, length"})
    assert shapes(made) == ["[b, length]", "[b, length]"]
    assert made.contract.dim("length").origin == "declared"
    assert made.contract.dim("length").range.maximum == 128


def test_names_like_our_provisional_ones_are_the_users(text: Any) -> None:
    made = text(shapes={"tokens": "d1, d0", "mask": "d1, d0"}, dims={"d0": "1..64"})
    assert shapes(made) == ["[d1, d0]", "[d1, d0]"]
    assert made.contract.dim("d0").range.maximum == 64 and made.contract.example == {"d1": 2, "d0": 6}


def test_a_name_that_would_be_found_for_another_axis(text: Any) -> None:
    """The user calls the length batch: the other axis gets another name."""
    first, second = shapes(text(shapes={"tokens": [None, "batch"]}))
    assert first == second and first.endswith(", batch]") and first != "[batch, batch]"


def test_an_expression_may_be_declared_for_a_free_size(found: Found) -> None:
    """The user promises less than PyTorch accepts: only even sizes."""
    made = found(nn.Linear(4, 4), torch.randn(6, 4), shapes={"input": "2*pairs, 4"})
    assert made.shapes == {"input": "2*pairs, 4"}
    assert made.contract.example == {"pairs": 3}
    assert made.contract.shapes({"pairs": 5}) == ((10, 4),)


def test_expressions_of_sizes_that_never_meet(found: Found) -> None:
    class Apart(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, y * 2

    made = found(Apart(), (torch.randn(3, 4), torch.randn(6)), shapes={"x": "a, 2*b", "y": "c + 1"})
    assert made.shapes == {"x": "a, 2*b", "y": "c + 1"}
    assert made.contract.example == {"a": 3, "b": 2, "c": 5}
    assert made.contract.allows(made.agreed.generic)


def test_a_declared_expression_has_the_range_that_it_leaves(text: Any, found: Found) -> None:
    made = text(shapes={"tokens": "batch, 3*n"})
    assert made.contract.dim("n").range.maximum == 42  # 3 * 42 is the last below 128
    made = found(Kernel(), torch.randn(2, 3, 8), shapes={"x": "batch, 3, 4*n"})
    assert made.contract.dim("n").range.minimum == 2  # a kernel of 5 needs at least 5


def test_an_example_that_its_declaration_excludes(found: Found) -> None:
    error = refusal(
        DeclarationError, lambda: found(nn.Linear(4, 4), torch.randn(5, 4), shapes={"input": "2*pairs, 4"})
    )
    assert "the example does not fit what is declared" in str(error)
    assert "input axis 0 is 5, not 2*pairs" in str(error)


def test_the_sum_of_two_dims(found: Found) -> None:
    class Appended(nn.Module):
        def forward(self, past: Tensor, new: Tensor, bias: Tensor) -> Tensor:
            return torch.cat([past, new], 1) + bias

    args = (torch.randn(2, 4), torch.randn(2, 3), torch.randn(2, 7))
    made = found(Appended(), args, shapes={"past": "b, past", "new": "b, seq", "bias": "b, past + seq"})
    assert made.shapes == {"past": "b, past", "new": "b, seq", "bias": "b, past + seq"}
    assert made.contract.example == {"b": 2, "past": 4, "seq": 3}
    declared = {"past": "b, p", "new": "b, s", "bias": "b, p"}
    error = refusal(DeclarationError, lambda: found(Appended(), args, shapes=declared))
    assert "bias axis 1 is declared p, but PyTorch accepts only p + s there" in str(error)


def test_a_declared_range_within_the_found_one_is_kept(text: Any) -> None:
    made = text(shapes={"tokens": "batch, seq"}, dims={"seq": "2..64"})
    range_ = made.contract.dim("seq").range
    assert (range_.minimum, range_.maximum) == (2, 64)
    assert made.contract.dim("seq").reason == ""
    assert "seq" in made.explicit


def test_a_range_may_be_given_to_a_name_that_is_found(text: Any) -> None:
    assert text(dims={"seq": "1..32"}).contract.dim("seq").range.maximum == 32


def test_a_range_open_above_ends_where_pytorch_does(text: Any) -> None:
    assert text(shapes={"tokens": "batch, seq"}, dims={"seq": ">=1"}).contract.dim("seq").range.maximum == 128


def test_unnamed_dynamic_axes_get_names(text: Any) -> None:
    assert shapes(text(shapes={"tokens": [None, None]})) == ["[batch, seq]", "[batch, seq]"]


def test_static_axes_are_pinned_to_the_example(text: Any) -> None:
    made = text(dynamic_shapes=({0: Dim("n")}, {0: Dim("n")}))
    assert shapes(made) == ["[n, 6]", "[n, 6]"]
    assert text(shapes={"tokens": "n, 6"}).contract.shapes({"n": 9}) == ((9, 6), (9, 6))


def test_unlisted_axes_follow_a_listed_one(text: Any) -> None:
    """dynamic_axes of one input only: what must be equal to it varies with it."""
    made = text(dynamic_axes={"tokens": {0: "batch", 1: "seq"}})
    assert shapes(made) == ["[batch, seq]", "[batch, seq]"]
    assert shapes(text(dynamic_axes={"tokens": {0: "batch"}})) == ["[batch, 6]", "[batch, 6]"]


def test_two_labels_for_one_size_are_one_dim_and_a_note(text: Any) -> None:
    made = text(dynamic_axes={"tokens": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "mask_len"}})
    assert shapes(made) == ["[batch, seq]", "[batch, seq]"]
    assert any("mask_len is always seq" in note for note in made.contract.notes)


def test_generic_sizes_lie_in_the_declared_range(text: Any) -> None:
    made = text(shapes={"tokens": "batch, seq"}, dims={"seq": "30..40", "batch": "17"})
    assert made.contract.allows(made.generic)


def test_a_multiple_may_be_declared_or_its_size(found: Found) -> None:
    assert found(Image(), IMAGE).shapes == {"image": "batch, channels, 8*h, 8*w"}
    declared = {"image": "b, 3, 8*rows, 8*columns"}
    assert found(Image(), IMAGE, shapes=declared).shapes == declared
    made = found(Image(), IMAGE, shapes={"image": "b, 3, height, width"})
    contract = made.contract
    assert made.shapes == {"image": "b, 3, height, width"}
    assert contract.example == {"b": 2, "height": 16, "width": 24}
    assert contract.bind([(1, 3, 32, 8)]) == {"b": 1, "height": 32, "width": 8}
    with pytest.raises(InputError, match="height = 20"):
        contract.bind([(1, 3, 20, 8)])
    assert contract.allows({"b": 1, "height": 16, "width": 8})
    assert not contract.allows({"b": 1, "height": 17, "width": 8})


def test_a_multiple_may_be_declared_in_two_inputs(found: Found) -> None:
    class Two(Image):
        def forward(self, image: Tensor, other: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(image + other)

    declared = {"image": "b, 3, height, width", "other": "b, 3, height, width"}
    made = found(Two(), (IMAGE, IMAGE), shapes=declared, dims={"height": "33..60"})
    assert made.shapes == declared
    assert made.contract.allows(made.agreed.generic) and made.agreed.generic["height"] in (40, 48, 56)


class Grid(nn.Module):
    """Tokens of a grid with equal sides, behind ``more`` others."""

    def __init__(self, more: int = 0) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = (x * mask[..., None])[:, self.more :]
        side = math.isqrt(x.shape[1])
        return x.reshape(x.shape[0], side, side, 5)


def grid(found: Found, more: int = 0, **declared: Any) -> Any:
    return found(Grid(more), (torch.randn(2, 16 + more, 5), torch.randn(2, 16 + more)), **declared)


def test_a_found_square_goes_all_the_way(found: Found) -> None:
    made = grid(found, 1)
    contract = made.contract
    assert made.shapes == {"x": "batch, grid**2 + 1, 5", "mask": "batch, grid**2 + 1"}
    assert Contract.from_json(contract.to_json()) == contract
    assert contract.bind([(3, 26, 5), (3, 26)]) == {"batch": 3, "grid": 5}
    with pytest.raises(InputError, match=r"x axis 1 is 25, not grid\*\*2 \+ 1"):
        contract.bind([(3, 25, 5), (3, 25)])
    rows, _ = sizes_to_try(made.agreed, (), 0.001)
    assert all(contract.allows(row) for row in rows) and len({row["grid"] for row in rows}) > 4
    for row in rows:
        tensors = make_tensors(made.case, made.agreed.rules, contract.shapes(row), row)
        assert made.case.run(tensors).tensors[0].shape[1] == row["grid"]


def test_a_square_may_be_declared_or_its_size(found: Found) -> None:
    assert grid(found, shapes={"x": "b, side*side, 5"}).contract.example == {"b": 2, "side": 4}
    declared = {"x": "b, n, 5", "mask": "b, n"}
    made = grid(found, 1, shapes=declared)
    contract = made.contract
    assert made.shapes == declared and contract.example == {"b": 2, "n": 17}
    assert [str(relation) for relation in contract.relations] == ["isqrt(n - 1)**2 + 1 == n"]
    assert contract.dim("n").range.minimum == 1
    rows, _ = sizes_to_try(made.agreed, (), 0.001)
    assert all(contract.allows(row) for row in rows) and len({row["n"] for row in rows}) > 4
    with pytest.raises(InputError, match="n = 18"):
        contract.bind([(2, 18, 5), (2, 18)])


def test_a_square_within_a_declared_range(found: Found) -> None:
    made = grid(found, shapes={"x": "b, n, 5"}, dims={"n": "30..40"})
    assert made.agreed.generic["n"] == 36


def test_a_square_may_be_declared_static(found: Found) -> None:
    assert grid(found, shapes={"x": "b, 16, 5"}).shapes == {"x": "b, 16, 5", "mask": "b, 16"}


def test_two_names_for_one_square(found: Found) -> None:
    declared = {"x": "b, n, 5", "mask": "b, m"}
    error = refusal(DeclarationError, lambda: grid(found, shapes=declared))
    assert "mask axis 1 is declared m, but PyTorch accepts only n there" in str(error)
    labels = {"x": {1: "n"}, "mask": {1: "m"}}
    assert grid(found, dynamic_axes=labels).shapes == {"x": "2, n, 5", "mask": "2, n"}


def test_constants_and_notes_are_told(found: Found) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, scale: float, flag: bool = True) -> Tensor:
            return x * scale

    contract = found(Scaled(), (torch.randn(2, 3), 2.5), {"flag": False}).contract
    assert dict(contract.constants) == {"scale": "2.5", "flag": "False"}
    assert contract.arguments == ("x", "scale", "flag")
    assert "scale = 2.5 (constant)" in str(contract)


def test_probing_that_ran_out_of_time_is_told() -> None:
    case = read(nn.Linear(3, 3), torch.randn(2, 3))
    made = agree(case, declare(case), probe(case, budget=0.0))
    assert any("probing was cut short by its budget" in note for note in made.contract.notes)


def test_fake_tensors_are_told() -> None:
    with torch.device("meta"):
        case = read(nn.Linear(3, 3), torch.empty(2, 3, device="meta"))
    made = agree(case, declare(case), probe(case))
    assert any("fake tensors" in note for note in made.contract.notes)


def test_notes_of_the_caller_are_kept(found: Found) -> None:
    case = read(nn.Linear(3, 3), torch.randn(2, 3))
    assert "a remark" in agree(case, declare(case), probe(case), ["a remark"]).contract.notes


# What contradicts.


def test_a_name_where_pytorch_has_one_size_only(found: Found) -> None:
    error = refusal(ContractFault, lambda: found(Written(), torch.randn(2, 60), shapes={"x": "batch, n"}))
    assert "x axis 1 is declared n, but PyTorch runs only at 60 there: RuntimeError: shape" in str(error)
    assert error.where is not None and os.path.basename(error.where.file) == "test_agree.py"
    assert "reshape(" in error.where.text and "depend on the input's shape" in error.hint


def test_dynamic_where_pytorch_has_one_size_only(found: Found) -> None:
    error = refusal(ContractFault, lambda: found(Written(), torch.randn(2, 60), shapes={"x": [None, None]}))
    assert "x axis 1 is declared dynamic" in str(error)


def test_one_size_only_when_probing_was_cut_short() -> None:
    case = read(nn.Linear(3, 3), torch.randn(2, 3))
    evidence = probe(case, budget=0.0)
    error = refusal(ContractFault, lambda: agree(case, declare(case, shapes={"input": "batch, 3"}), evidence))
    assert "input axis 0 is declared batch" in str(error) and "probing was cut short by its budget" in str(
        error
    )


def test_two_names_for_what_must_be_equal(text: Any) -> None:
    error = refusal(DeclarationError, lambda: text(shapes={"tokens": "batch, seq", "mask": "batch, other"}))
    assert "mask axis 1 is declared other, but PyTorch accepts only seq there" in str(error)
    assert "Declare seq" in error.hint


def test_a_relation_that_does_not_hold(text: Any) -> None:
    error = refusal(DeclarationError, lambda: text(shapes={"tokens": "batch, seq", "mask": "batch, 2*seq"}))
    assert "mask axis 1 is declared 2*seq, but PyTorch accepts only seq there" in str(error)


def test_static_where_another_axis_makes_it_vary(text: Any) -> None:
    error = refusal(DeclarationError, lambda: text(dynamic_shapes={"tokens": {1: "seq"}, "mask": None}))
    assert "mask axis 1 is declared static, but it moves with an axis that is declared seq" in str(error)


def test_static_where_an_unnamed_axis_makes_it_vary(text: Any) -> None:
    dynamic = torch.export.Dim.DYNAMIC
    error = refusal(DeclarationError, lambda: text(dynamic_shapes={"tokens": {1: dynamic}, "mask": None}))
    assert "mask axis 1 is declared static, but it moves with an axis that is declared dynamic" in str(error)


def test_an_axis_that_is_not_listed_follows_one_that_is(text: Any) -> None:
    tokens, mask = text(dynamic_axes={"tokens": [0, 1]}).contract.inputs
    assert mask.shape_text() == tokens.shape_text() == "[batch, seq]"


def test_a_range_for_a_dim_that_is_not_there(text: Any) -> None:
    error = refusal(DeclarationError, lambda: text(dims={"sek": "1..8"}))
    assert "dims has sek, which is no dim of this model" in str(error) and "batch, seq" in error.hint


def test_a_range_that_goes_too_far(text: Any, line_in: Callable[[str, str], int]) -> None:
    error = refusal(ContractFault, lambda: text(shapes={"tokens": "batch, seq"}, dims={"seq": "2..512"}))
    assert "seq is declared up to 512, but PyTorch fails at seq = 129 (IndexError" in str(error)
    assert error.hint == "Declare seq as 2..128."
    assert os.path.basename(error.where.file) == "test_agree.py"
    assert error.where.line == line_in(__file__, "places = self.places(torch.arange")


def test_a_range_that_starts_too_low(found: Found) -> None:
    declared = {"shapes": {"x": "batch, 3, time"}, "dims": {"time": "2..90"}}
    error = refusal(ContractFault, lambda: found(Kernel(), torch.randn(2, 3, 9), **declared))
    assert "time is declared from 2, but PyTorch accepts it only from 5" in str(error)
    assert error.hint == "Declare time as >=5."
    assert error.where.text.startswith("return functional.conv1d")


def test_no_size_is_left_above(text: Any) -> None:
    error = refusal(ContractFault, lambda: text(shapes={"tokens": "batch, seq"}, dims={"seq": "200..300"}))
    assert "no size satisfies the contract: seq is declared 200..300, but PyTorch accepts only 0..128" in str(
        error
    )
    assert error.where is not None


def test_no_size_is_left_below(found: Found) -> None:
    declared = {"shapes": {"x": "batch, 3, time"}, "dims": {"time": "1..3"}}
    error = refusal(ContractFault, lambda: found(Kernel(), torch.randn(2, 3, 9), **declared))
    assert "no size satisfies the contract: time is declared 1..3, but PyTorch accepts only" in str(error)
