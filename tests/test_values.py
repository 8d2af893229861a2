from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from anyshape.dims import parse_expr
from anyshape.inputs.case import Case
from anyshape.inputs.read import read
from anyshape.inputs.values import Rule, make_tensor, make_tensors, rule_from_json, rules_of


class Keep(nn.Module):
    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return tensors[0] * 1


def case_of(*tensors: torch.Tensor, **options: Any) -> Case:
    return read(Keep(), tensors, **options)


def rule_of(tensor: torch.Tensor, name: str = "x") -> Rule:
    return rules_of(read(Keep(), tensor, input_names=[name]))[0]


def made(
    example: torch.Tensor, shape: tuple[int, ...], rule: Rule | None = None, seed: int = 0, **sizes: int
) -> torch.Tensor:
    case = case_of(example)
    return make_tensors(case, [rule or rules_of(case)[0]], (shape,), sizes, seed)[0]


@pytest.mark.parametrize(
    ("example", "kind"),
    [
        (torch.full((2, 3), 7), "constant"),
        (torch.zeros(2, 3), "constant"),
        (torch.ones(2, 3), "constant"),
        (torch.tensor([True, False]), "mask"),
        (torch.tensor([[1, 0, 1]]), "mask"),
        (torch.tensor([1.0, 0.0]), "mask"),
        (torch.ones(2, 3, dtype=torch.long), "mask"),
        (torch.ones(2, 3, dtype=torch.bool), "mask"),
        (torch.tensor(1), "constant"),
        (torch.arange(6), "progression"),
        (torch.arange(6).expand(3, 6), "progression"),
        (torch.arange(5, 9), "progression"),
        (torch.tensor([4, 0, 9]), "cells"),
        (torch.randn(4), "spread"),
        (torch.randn(4).half(), "spread"),
        (torch.full((3,), float("inf")), "constant"),
    ],
)
def test_the_rule_is_read_off_the_example(example: torch.Tensor, kind: str) -> None:
    assert rule_of(example).kind == kind


def test_a_float_of_ones_is_a_mask_if_it_is_called_one() -> None:
    assert rule_of(torch.ones(2, 3), "attention_mask").kind == "mask"


def test_all_examples_count() -> None:
    case = case_of(torch.full((3,), 2), examples=[torch.tensor([5, 9])])
    assert rules_of(case)[0].kind == "cells"
    assert set(rules_of(case)[0].seen) == {2, 5, 9}


def test_at_its_own_sizes_the_example_itself_is_used() -> None:
    example = torch.randn(3, 4)
    case = case_of(example)
    (same,) = make_tensors(case, rules_of(case), ((3, 4),), {})
    assert torch.equal(same, example) and same is not example
    (anew,) = make_tensors(case, rules_of(case), ((3, 4),), {}, anew=True)
    assert not torch.equal(anew, example)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (7, 2), (64, 3)])
@pytest.mark.parametrize(
    "example",
    [
        torch.randn(3, 4),
        torch.randint(0, 90, (3, 4)),
        torch.arange(4).repeat(3, 1),
        torch.rand(3, 4) > 0.5,
        torch.ones(3, 4, dtype=torch.long),
        torch.full((3, 4), 5, dtype=torch.int32),
        torch.randn(3, 4).bfloat16(),
    ],
    ids=["floats", "ids", "positions", "mask", "ones", "constant", "bfloat16"],
)
def test_any_size_keeps_dtype_and_the_examples_range(example: torch.Tensor, shape: tuple[int, ...]) -> None:
    tensor = made(example, shape)
    assert tensor.shape == shape and tensor.dtype == example.dtype
    if tensor.numel() and rule_of(example).kind in ("spread", "cells", "constant"):
        assert tensor.double().min() >= example.double().min()
        assert tensor.double().max() <= example.double().max()


def test_tokens_are_tokens_that_were_seen() -> None:
    example = torch.tensor([[101, 7, 33, 102]])
    assert set(made(example, (5, 9)).flatten().tolist()) <= set(example.flatten().tolist())


def test_positions_go_on() -> None:
    assert made(torch.arange(4).repeat(2, 1), (2, 7)).tolist() == [list(range(7))] * 2
    assert made(torch.arange(3, 7), (5,)).tolist() == [3, 4, 5, 6, 7]


def test_a_mask_of_ones_gets_some_zeros_but_no_empty_row() -> None:
    mask = made(torch.ones(2, 4, dtype=torch.long), (4, 9))
    assert 0 in mask and (mask.sum(1) > 0).all()
    assert len(set(mask.sum(1).tolist())) > 1


def test_a_masks_pattern_is_stretched() -> None:
    causal = torch.tril(torch.ones(4, 4)).bool()
    larger = made(causal, (8, 8))
    assert larger[0, 0] and larger[7].all() and not larger[0, 7]


def test_values_that_belong_together_stay_together() -> None:
    boxes = torch.tensor([[[0, 0, 5, 9], [1, 2, 3, 4]], [[2, 2, 8, 8], [1, 1, 6, 2]]])
    known = {tuple(box) for box in boxes.reshape(-1, 4).tolist()}
    drawn = made(boxes, (3, 7, 4))
    assert {tuple(box) for box in drawn.reshape(-1, 4).tolist()} <= known


def test_an_index_stays_below_its_limit_at_every_size() -> None:
    rule = Rule("index", 0, 9, limit=parse_expr("n - 1"))
    edges = torch.tensor([[0, 1, 9], [2, 4, 0]])
    for nodes in (1, 2, 50):
        drawn = made(edges, (2, 40), rule, n=nodes)
        assert drawn.min() >= 0 and drawn.max() < nodes
    assert made(edges, (2, 40), rule, n=50).max() > 9
    assert made(edges, (2, 5), rule, n=0).max() == 0


def test_a_stretched_rule_keeps_the_order_of_the_example() -> None:
    example = torch.tensor([3.0, 5.0, 8.0])
    assert made(example, (6,), Rule("stretched")).tolist() == [3, 3, 5, 5, 8, 8]


def test_floats_are_distributed_as_in_the_example() -> None:
    example = torch.cat([torch.randn(900), 50 + torch.rand(100)])
    rule = rules_of(case_of(example))[0]
    made = make_tensor(rule, (4, 5000), torch.float32, {}, np.random.default_rng(0))
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    torch.testing.assert_close(made.quantile(levels), example.quantile(levels), atol=0.3, rtol=0.02)
    assert made.unique().numel() > 19_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_floats_from_end_to_end_of_their_type_stay_finite(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    rule = rules_of(case_of(torch.tensor([-most, 0, most], dtype=dtype)))[0]
    made = make_tensor(rule, (1000,), dtype, {}, np.random.default_rng(0))
    assert made.dtype == dtype and made.isfinite().all()


def test_few_are_drawn_where_few_will_do() -> None:
    case = case_of(torch.randn(4, 3))
    (many,) = make_tensors(case, rules_of(case), ((5, 7),), {})
    (few,) = make_tensors(case, rules_of(case), ((5, 7),), {}, drawn=11)
    assert many.unique().numel() == 35 and few.shape == (5, 7)
    assert torch.equal(few.flatten()[11:], few.flatten()[:-11]) and few.unique().numel() == 11
    assert not make_tensors(case, rules_of(case), ((0, 7),), {}, drawn=11)[0].numel()


def test_seeds_give_other_values_and_the_same_seed_the_same() -> None:
    example = torch.randn(8)
    assert torch.equal(made(example, (20,), seed=1), made(example, (20,), seed=1))
    assert not torch.equal(made(example, (20,), seed=1), made(example, (20,), seed=2))


def test_an_empty_example_still_makes_values() -> None:
    assert made(torch.randn(2, 0), (2, 5)).shape == (2, 5)
    assert made(torch.zeros(0, dtype=torch.long), (4,)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "rule",
    [
        Rule("spread", -1, 1, (-1.0, 0.5, 1.0)),
        Rule("index", 0, 4, limit=parse_expr("2*n - 1")),
        Rule("constant", 3, 3),
    ],
)
def test_rules_go_to_json_and_back_without_the_examples_values(rule: Rule) -> None:
    assert rule_from_json(json.loads(json.dumps(rule.to_json()))) == replace(rule, seen=())


def test_a_rule_that_json_has_no_number_for() -> None:
    text = json.dumps(Rule("constant", -math.inf, -math.inf).to_json(), allow_nan=False)
    assert rule_from_json(json.loads(text)).low == -math.inf


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["cells", "spread", "stretched", "mask", "progression", "constant", "index"])
def test_a_rule_from_a_file_makes_values_between_its_limits(kind: str, dtype: torch.dtype) -> None:
    rule = rule_from_json(
        {"kind": kind, "low": 2.0, "high": 9.0, **({"limit": "n"} if kind == "index" else {})}
    )
    made_up = make_tensor(rule, (3, 8), dtype, {"n": 9}, np.random.default_rng(0)).double()
    if kind != "mask":
        assert made_up.min() >= 2 and made_up.max() <= 9
    if kind in ("cells", "stretched", "index"):
        assert len(made_up.unique()) > 2


def test_a_rule_with_limits_that_the_type_does_not_have() -> None:
    rule = rule_from_json({"kind": "cells", "low": -1e300, "high": 1e300})
    for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool):
        assert make_tensor(rule, (4,), dtype, {}, np.random.default_rng(0)).dtype == dtype


def test_without_a_rule_there_are_zeros() -> None:
    made_up = make_tensor(rule_from_json({}), (2,), torch.float32, {}, np.random.default_rng(0))
    assert made_up.tolist() == [0, 0]
