"""Sizes that are squares: the tokens of a grid, alone or behind a class token."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anyshape.inputs.read import read
from anyshape.probe import probe

Found = Callable[..., Any]


class Calls(nn.Module):
    """A function of tensors as a module, with a few weights to coincide with."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.function = function
        self.forward = function  # its signature names the inputs


def on_grid(x: Tensor) -> Tensor:
    b, n, c = x.shape
    side = int(math.sqrt(n))
    return x.view(b, side, side, c).mean((1, 2))


def on_grid_behind_a_class_token(x: Tensor) -> Tensor:
    return on_grid(x[:, 1:].contiguous()) + x[:, 0]


def test_the_tokens_of_a_grid(found: Found) -> None:
    made = found(Calls(on_grid), (torch.randn(2, 16, 5),))
    assert made.shapes["x"].split(", ")[1] == "grid**2"
    assert made.contract.example["grid"] == 4 and made.ranges["grid"] == ">=0"


def test_the_tokens_of_a_grid_and_a_class_token(found: Found) -> None:
    made = found(Calls(on_grid_behind_a_class_token), (torch.randn(2, 197, 8),))
    assert made.shapes["x"].split(", ")[1] == "grid**2 + 1"
    assert made.contract.example["grid"] == 14


def test_a_square_that_the_batch_and_the_channels_are_too(found: Found) -> None:
    made = found(Calls(on_grid), (torch.randn(4, 4, 4),))
    assert made.shapes == {"x": "batch, grid**2, x_2"}
    assert len(set(made.agreed.generic.values())) == 3


def test_a_grid_of_an_even_side(found: Found) -> None:
    def forward(x: Tensor) -> Tensor:
        b, n, c = x.shape
        half = int(n**0.5) // 2
        return x.view(b, half, 2, half, 2, c).mean((2, 4))

    made = found(Calls(forward), (torch.randn(2, 16, 5),))
    assert made.shapes["x"].split(", ")[1] == "4*grid**2"
    assert made.contract.example["grid"] == 2


def test_a_grid_ends_where_its_table_ends(found: Found) -> None:
    def forward(x: Tensor) -> Tensor:
        return on_grid(x + torch.zeros(100, 5)[: x.shape[1]])

    assert found(Calls(forward), (torch.randn(2, 16, 5),)).ranges["grid"] == "0..10"


def test_a_mask_of_a_grids_tokens(found: Found) -> None:
    """A weight's size is a square as well: that axis stays as it is."""
    linear = nn.Linear(16, 3)
    module = Calls(lambda x, mask: linear(on_grid(x * mask[:, :, None])), linear=linear)
    made = found(module, (torch.randn(2, 16, 16), torch.randn(2, 16)))
    assert made.shapes == {"x": "batch, grid**2, 16", "mask": "batch, grid**2"}


def test_a_position_for_each_token_of_a_grid_that_is_added_first(found: Found) -> None:
    module = Calls(lambda x, places: on_grid_behind_a_class_token(x + places))
    made = found(module, (torch.randn(2, 17, 6), torch.randn(17, 6))).shapes
    assert made == {"x": "batch, grid**2 + 1, x_2", "places": "grid**2 + 1, x_2"}


def test_the_sides_of_a_grid_are_inputs_too(found: Found) -> None:
    def forward(x: Tensor, table: Tensor) -> Tensor:
        return x.view(x.shape[0], table.shape[0], table.shape[1], 5) + table + on_grid(x)[:, None, None]

    made = found(Calls(forward), (torch.randn(2, 16, 5), torch.randn(4, 4, 5))).shapes
    assert made == {"x": "batch, grid**2, 5", "table": "grid, grid, 5"}


def test_two_grids_of_one_size(found: Found) -> None:
    module = Calls(lambda x, y: on_grid(x) + on_grid(y))
    made = found(module, (torch.randn(2, 16, 5), torch.randn(2, 16, 5)))
    assert made.shapes == {"x": "batch, grid**2, x_2", "y": "batch, y_grid**2, x_2"}
    assert made.agreed.generic["grid"] != made.agreed.generic["y_grid"]


def test_one_row_for_each_pair(found: Found) -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        if y.shape[0] != x.shape[0] ** 2:
            raise ValueError("y has one row for each pair of rows of x")
        return x.sum() + y

    more = [(torch.randn(4, 2), torch.randn(16, 2))]
    made = found(Calls(forward), (torch.randn(3, 2), torch.randn(9, 2)), examples=more).shapes
    assert made["x"].split(", ")[0] == "batch" and made["y"].split(", ")[0] == "batch**2"


def test_a_square_that_another_example_contradicts(found: Found) -> None:
    """Only 9 and 12 are accepted: 9 is a square by chance."""

    def forward(x: Tensor) -> Tensor:
        return x.view(*{9: (3, 3), 12: (3, 4)}[len(x)])

    assert found(Calls(forward), (torch.randn(9),), examples=[(torch.randn(12),)]).shapes == {"x": "9"}


def test_a_size_that_is_a_square_by_chance_stays_fixed(found: Found) -> None:
    evidence = probe(read(nn.Linear(16, 3), (torch.randn(2, 16),)))
    assert str(evidence.shapes[0][1]) == "16" and (0, 1) in evidence.objections


def test_lengths_below_a_grids_tokens(found: Found) -> None:
    def forward(x: Tensor, lengths: Tensor) -> Tensor:
        if (lengths > x.shape[1]).any():
            raise ValueError("a length beyond the tokens")
        return on_grid(x) * lengths[:, None]

    made = found(Calls(forward), (torch.randn(2, 16, 5), torch.tensor([16, 7])))
    assert made.shapes == {"x": "batch, grid**2, x_2", "lengths": "batch"}
    assert str(made.agreed.rules[1].limit) == "grid**2"


def test_a_grid_on_fake_tensors() -> None:
    with torch.device("meta"):
        case = read(Calls(on_grid, linear=nn.Linear(5, 5)), (torch.randn(2, 16, 5),))
    evidence = probe(case)
    assert evidence.fake and str(evidence.shapes[0][1]).endswith("**2")
