from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from anyshape.contract.naming import name_dims
from anyshape.dims import Expr, parse_expr, parse_shape
from anyshape.inputs.case import Case
from anyshape.inputs.read import read
from anyshape.inputs.values import Rule, rules_of


class Keep(nn.Module):
    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return tensors[0] * 1


def named(
    taken: tuple[str, ...] = (), rules: list[Rule] | None = None, **inputs: tuple[torch.Tensor, str]
) -> dict[str, str]:
    """The names chosen for d0, d1, … in shapes such as ``x=(example, "d0, 3")``."""
    case: Case = read(Keep(), tuple(tensor for tensor, _ in inputs.values()), input_names=list(inputs))
    shapes = [
        tuple(Expr.of(0) if size is None else size for size in parse_shape(text))
        for _, text in inputs.values()
    ]
    names = sorted({name for shape in shapes for size in shape for name in size.names})
    return name_dims(case, names, shapes, rules or rules_of(case), taken)


floats: Callable[..., torch.Tensor] = torch.randn


def ints(*shape: int) -> torch.Tensor:
    return torch.randint(0, 9, shape)


@pytest.mark.parametrize(
    ("path", "example", "shape", "expected"),
    [
        ("tokens", ints(2, 5), "d0, d1", ["batch", "seq"]),
        ("x", floats(2, 5, 8), "d0, d1, 8", ["batch", "seq"]),
        ("image", floats(2, 3, 8, 8), "d0, 3, d1, d2", ["batch", "height", "width"]),
        ("image", floats(2, 3, 32, 32), "d0, 3, 32*d1, 32*d2", ["batch", "h", "w"]),
        ("x", floats(2, 4, 8, 8), "d0, d1, d2, d3", ["batch", "channels", "height", "width"]),
        ("video", floats(2, 3, 4, 8, 8), "d0, 3, d1, d2, d3", ["batch", "depth", "height", "width"]),
        ("x", floats(2, 4, 9), "d0, 4, d1", ["batch", "time"]),
        ("waveform", floats(2, 900), "d0, d1", ["batch", "time"]),
        ("past_key", floats(2, 4, 6, 8), "d0, 4, d1, 8", ["batch", "past"]),
        ("edges", ints(2, 7), "2, d0", ["edges"]),
        ("edge_index", ints(2, 7), "d0, d1", ["edge_index_0", "edges"]),
        ("tokens", floats(2, 16, 5), "d0, d1**2, 5", ["batch", "grid"]),
        ("tokens", floats(2, 17, 5), "d0, 4*d1**2 + 1, 5", ["batch", "grid"]),
        ("table", floats(4, 6), "d0, d1", ["batch", "table_1"]),
        ("tokens", ints(2, 8), "d0, 8*d1", ["batch", "seq_blocks"]),
    ],
)
def test_names_a_person_would_choose(
    path: str, example: torch.Tensor, shape: str, expected: list[str]
) -> None:
    assert list(named(**{path: (example, shape)}).values()) == expected


def test_what_an_index_goes_up_to_is_a_number_of_nodes() -> None:
    edges, features = ints(2, 7), floats(5, 3)
    rules = [Rule("spread"), Rule("index", 0, 4, limit=parse_expr("d0 - 1"))]
    made = named(rules=rules, features=(features, "d0, 3"), edges=(edges, "2, d1"))
    assert made == {"d0": "nodes", "d1": "edges"}


def test_what_each_edge_has_is_of_the_edges() -> None:
    made = named(weights=(floats(7, 3), "d0, 3"), edge_index=(ints(2, 7), "d1, d0"))
    assert made == {"d0": "edges", "d1": "edge_index_0"}


def test_a_square_is_called_after_its_side_where_that_says_more() -> None:
    made = named(x=(floats(3, 2), "d0, 2"), pairs=(floats(9, 2), "d0**2, 2"))
    assert made == {"d0": "batch"}
    made = named(x=(floats(2, 16, 5), "d0, d1**2, 5"), rows=(floats(4, 5), "d1, 5"))
    assert made == {"d0": "batch", "d1": "grid"}


def test_no_two_dims_have_one_name() -> None:
    made = named(source=(ints(2, 5), "d0, d1"), target=(ints(2, 7), "d0, d2"))
    assert made == {"d0": "batch", "d1": "seq", "d2": "target_seq"}


def test_names_that_the_user_took_are_left_to_them() -> None:
    assert named(taken=("batch",), x=(ints(2, 5), "d0, d1")) == {"d0": "x_batch", "d1": "seq"}


def test_the_place_where_a_dim_stands_alone_tells_what_it_is() -> None:
    made = named(
        mask=(floats(2, 9), "d0, d1 + d2"),
        tokens=(ints(2, 5), "d0, d1"),
        past=(floats(2, 4, 4, 8), "d0, 4, d2, 8"),
    )
    assert made == {"d0": "batch", "d1": "seq", "d2": "past"}


def test_paths_with_dots_become_names() -> None:
    made = named(**{"batch.boxes.0": (floats(4, 6), "d0, d1"), "batch.boxes.1": (floats(5, 6), "d2, d1")})
    assert len(set(made.values())) == 3
    assert all(name.isidentifier() for name in made.values())


def test_names_of_list_items_start_with_the_lists_name() -> None:
    made = named(
        x=(ints(2, 5), "d0, d1"), **{"past.0.1": (ints(2, 7), "d0, d2"), "1": (ints(2, 7), "d0, d3")}
    )
    assert made == {"d0": "batch", "d1": "seq", "d2": "past_0_1_seq", "d3": "input_1_seq"}


def test_many_alike_inputs_still_get_names_of_their_own() -> None:
    inputs: dict[str, Any] = {f"x{k}": (floats(2, 3), f"d{2 * k}, d{2 * k + 1}") for k in range(4)}
    made = named(**inputs)
    assert len(made) == 8 and len(set(made.values())) == 8


def test_items_of_nested_lists_get_names_that_are_names() -> None:
    class Step(nn.Module):
        def forward(self, past: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
            return past[0][0] * 1

    case = read(Step(), ([(floats(2, 5, 4), floats(3, 6, 4))],))
    shapes = [tuple(map(parse_expr, text.split())) for text in ("d0 d1 4", "d2 d3 4")]
    made = name_dims(case, ["d0", "d1", "d2", "d3"], shapes, rules_of(case))
    assert list(made.values()) == ["batch", "seq", "past_0_1_batch", "past_0_1_seq"]


def test_a_users_name_that_is_a_number_still_makes_names() -> None:
    assert list(named(**{"1": (floats(2, 5), "d0, d1")}).values()) == ["batch", "input_1_1"]
