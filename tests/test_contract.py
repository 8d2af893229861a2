from __future__ import annotations

import json

import pytest

from anyshape.contract.contract import Contract, Dim, Tensor
from anyshape.dims import Range, Relation, parse_expr, parse_shape
from anyshape.errors import FileError, InputError


def relation(left: str, op: str, right: str) -> Relation:
    return Relation(parse_expr(left), op, parse_expr(right))


CONTRACT = Contract(
    dims=(
        Dim("batch", Range(0), 2),
        Dim("seq", Range(1, 128), 9, "declared", "proved", "IndexError above, net.py:14", 128),
        Dim("heads", Range(4, 4), 4),
    ),
    inputs=(
        Tensor("tokens", "int64", tuple(parse_shape("batch, seq")), {"kind": "cells", "low": 0, "high": 9}),
        Tensor("mask", "bool", tuple(parse_shape("batch, seq"))),
        Tensor("bias", "float32", tuple(parse_shape("2*seq - 1, 8, heads"))),
    ),
    outputs=(Tensor("y", "float32", (parse_expr("batch"), None)),),
    relations=(relation("batch", "<=", "seq"),),
    constants=(("scale", "2.5"),),
    notes=("something to know",),
    arguments=("tokens", "mask", "bias", "scale"),
    input_structure={
        "kind": "tuple",
        "children": [
            {"kind": "tuple", "children": ["tensor", "tensor"]},
            {"kind": "dict", "children": ["tensor", {"constant": 2.5}], "keys": ["bias", "scale"]},
        ],
    },
    output_structure="tensor",
    rung="symbolic",
)


def shapes(tokens: tuple[int, ...], mask: tuple[int, ...], bias: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tokens, mask, bias]


def refusal(*given: tuple[int, ...]) -> str:
    with pytest.raises(InputError) as info:
        CONTRACT.bind(shapes(*given))
    return str(info.value)


def test_it_prints_as_a_block() -> None:
    assert str(CONTRACT).splitlines() == [
        "tokens  int64    [batch, seq]           batch ≥ 0",
        "mask    bool     [batch, seq]           1 ≤ seq ≤ 128    IndexError above, net.py:14",
        "bias    float32  [2*seq - 1, 8, heads]  heads = 4",
        "y       float32  [batch, ?]             batch <= seq",
        "                                        scale = 2.5 (constant)",
    ]


def test_json_and_back_is_the_same() -> None:
    assert Contract.from_json(CONTRACT.to_json()) == CONTRACT


def test_bind_reads_the_sizes_off_the_shapes() -> None:
    assert CONTRACT.bind(shapes((2, 9), (2, 9), (17, 8, 4))) == {"batch": 2, "seq": 9, "heads": 4}


def test_shapes_at_sizes() -> None:
    assert CONTRACT.shapes({"batch": 2, "seq": 9, "heads": 4}) == ((2, 9), (2, 9), (17, 8, 4))


def test_allows_is_ranges_and_relations() -> None:
    assert CONTRACT.allows({"batch": 9, "seq": 9, "heads": 4})
    assert not CONTRACT.allows({"batch": 10, "seq": 9, "heads": 4})
    assert not CONTRACT.allows({"batch": 2, "seq": 129, "heads": 4})
    assert not CONTRACT.allows({"batch": 2, "seq": 0, "heads": 4})


def test_ranges_examples_and_dims_by_name() -> None:
    assert CONTRACT.ranges["seq"] == Range(1, 128)
    assert CONTRACT.example == {"batch": 2, "seq": 9, "heads": 4}
    assert CONTRACT.dim("seq").evidence == "proved"


def test_two_inputs_that_disagree() -> None:
    text = refusal((2, 9), (2, 7), (17, 8, 4))
    assert text.startswith("seq is 9 in tokens but 7 in mask")
    assert "[2*seq - 1, 8, heads]" in text  # the hint shows the contract


def test_a_fixed_size_that_differs() -> None:
    assert refusal((2, 9), (2, 9), (17, 6, 4)).startswith("bias axis 1 is 6, not 8")


def test_an_expression_that_does_not_come_out() -> None:
    text = refusal((2, 9), (2, 9), (18, 8, 4))
    assert text.startswith("2*seq - 1 is 18 in bias, but seq = 9 makes 17")


def test_an_axis_too_many() -> None:
    assert "tokens has 3 axes, not 2" in refusal((2, 9, 1), (2, 9), (17, 8, 4))


def test_outside_a_range_tells_the_range_and_why_it_ends() -> None:
    text = refusal((2, 200), (2, 200), (399, 8, 4))
    assert "seq is 200, outside 1 ≤ seq ≤ 128" in text and "IndexError above, net.py:14" in text
    assert "heads is 5, outside heads = 4" in refusal((2, 9), (2, 9), (17, 8, 5))


def test_a_relation_that_does_not_hold_shows_the_sizes() -> None:
    text = refusal((9, 5), (9, 5), (9, 8, 4))
    assert "batch = 9, seq = 5" in text and "does not hold" in text


def test_a_contract_that_is_no_json() -> None:
    for text in ("{", "[]", '{"dims": []}', "null"):
        with pytest.raises(FileError, match="can't be read"):
            Contract.from_json(text)


def test_a_contract_of_another_format() -> None:
    data = json.loads(CONTRACT.to_json())
    data["format"] = 99
    with pytest.raises(FileError, match="format 99, this anyshape reads format"):
        Contract.from_json(json.dumps(data))


def test_a_contract_that_lacks_a_part() -> None:
    for part in ("dims", "inputs", "relations", "output_structure"):
        data = json.loads(CONTRACT.to_json())
        del data[part]
        with pytest.raises(FileError, match="can't be read"):
            Contract.from_json(json.dumps(data))


def test_a_contract_with_a_broken_shape() -> None:
    with pytest.raises(FileError, match="can't be read"):
        Contract.from_json(CONTRACT.to_json().replace("2*seq - 1", "2*seq -"))


@pytest.mark.parametrize(
    ("range_", "text"),
    [(Range(0), "n ≥ 0"), (Range(1, 8), "1 ≤ n ≤ 8"), (Range(4, 4), "n = 4")],
)
def test_ranges_in_words(range_: Range, text: str) -> None:
    assert Dim("n", range_, 4).text() == text
