from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from anyshape.contract.declare import FOUND, FREE, STATIC, UNLISTED, Declaration, declare, matches
from anyshape.dims import Expr, Range, parse_expr
from anyshape.errors import DeclarationError, ParseError
from anyshape.inputs.case import Case
from anyshape.inputs.read import read


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


def case_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Case:
    return read(Calls(function), args, kwargs)


@pytest.fixture
def text() -> Case:
    return case_of(lambda tokens, mask: tokens * mask, torch.randint(0, 9, (2, 6)), torch.ones(2, 6))


@pytest.fixture
def nested() -> Case:
    """batch.text, batch.boxes.0, batch.boxes.1, past.0.0, past.0.1"""
    batch = {"text": torch.randn(2, 6), "boxes": [torch.randn(3, 4), torch.randn(5, 4)]}
    past = ((torch.randn(2, 8), torch.randn(2, 8)),)
    return case_of(lambda batch, past, n: batch["text"] * n, batch, past, 3)


def words(declaration: Declaration) -> list[list[str]]:
    return [
        [size.text if not isinstance(size, Expr) else str(size) for size in sizes]
        for sizes in declaration.sizes
    ]


def refusal(case: Case, kind: type[Exception] = DeclarationError, **declared: Any) -> str:
    with pytest.raises(kind) as info:
        declare(case, **declared)
    return str(info.value)


# Nothing, and anyshape's own way.


def test_nothing_declared_is_all_as_found(text: Case) -> None:
    made = declare(text)
    assert made.sizes == ((FOUND, FOUND),) * 2 and made.names == [] and not made.ranges


def test_shapes_by_path(text: Case) -> None:
    made = declare(text, shapes={"tokens": "batch, 2*h", "mask": ["batch", None]}, dims={"h": "1..64"})
    assert words(made) == [["batch", "2*h"], ["batch", "dynamic"]]
    assert made.names == ["batch", "h"] and made.ranges == {"h": Range(1, 64)}
    assert not made.labels


def test_inputs_without_a_shape_are_as_found(text: Case) -> None:
    assert words(declare(text, shapes={"mask": "batch, seq"})) == [["found", "found"], ["batch", "seq"]]


def test_a_star_stands_for_items_and_keys(nested: Case) -> None:
    made = declare(nested, shapes={"batch.boxes.*": "n, 4", "past.*.*": "batch, 8"})
    assert words(made) == [["found", "found"], ["n", "4"], ["n", "4"], ["batch", "8"], ["batch", "8"]]


def test_a_later_pattern_has_the_last_word(nested: Case) -> None:
    made = words(declare(nested, shapes={"batch.boxes.*": "n, 4", "batch.boxes.1": "m, 4"}))
    assert made[1:3] == [["n", "4"], ["m", "4"]]


@pytest.mark.parametrize(
    ("path", "pattern", "match"),
    [
        ("boxes.0", "boxes.*", True),
        ("boxes.0.x", "boxes.*", False),
        ("boxes", "boxes.*", False),
        ("past.0.1", "past.*.1", True),
        ("past.0.1", "*.*.*", True),
        ("Tokens", "tokens", False),
        ("key_0", "key_*", True),
    ],
)
def test_a_star_is_one_part_of_a_path(path: str, pattern: str, match: bool) -> None:
    assert matches(path, pattern) is match


@pytest.mark.parametrize(
    ("given", "range_"),
    [
        ("1..512", Range(1, 512)),
        (">=1", Range(1)),
        ((2, 8), Range(2, 8)),
        ([2, 8], Range(2, 8)),
        (7, Range(7, 7)),
        (Range(3, 4), Range(3, 4)),
    ],
)
def test_ranges_in_all_their_forms(text: Case, given: Any, range_: Range) -> None:
    assert declare(text, dims={"seq": given}).ranges == {"seq": range_}


def test_sizes_may_be_numbers_and_expressions(text: Case) -> None:
    made = declare(text, shapes={"tokens": [2, parse_expr("3*n")]})
    assert words(made)[0] == ["2", "3*n"]


def test_an_unknown_path_lists_the_inputs(text: Case) -> None:
    message = refusal(text, shapes={"token": "batch, seq"})
    assert "'token'" in message and "tokens, mask" in message


def test_a_shape_with_too_many_axes(text: Case) -> None:
    message = refusal(text, shapes={"tokens": "a, b, c"})
    assert "tokens is declared with 3 axes, but its example has 2: [2, 6]" in message


def test_a_number_that_is_not_the_examples(text: Case) -> None:
    assert "mask axis 1 is declared 7, but its example has 6" in refusal(text, shapes={"mask": "batch, 7"})


def test_a_size_of_another_type(text: Case) -> None:
    assert "not 2.5" in refusal(text, shapes={"mask": ["batch", 2.5]})


def test_a_range_of_another_type(text: Case) -> None:
    message = refusal(text, dims={"seq": 2.5})
    assert "'1..512'" in message and "not 2.5" in message


def test_a_shape_that_does_not_parse_points_at_the_character(text: Case) -> None:
    message = refusal(text, ParseError, shapes={"tokens": "batch, seq +"})
    assert "batch, seq +" in message and "^" in message


def test_a_range_that_no_shape_uses(text: Case) -> None:
    message = refusal(text, shapes={"tokens": "batch, seq"}, dims={"sek": "1..4"})
    assert "dims has sek" in message and "batch, seq" in message


def test_two_ways_at_once(text: Case) -> None:
    message = refusal(text, shapes={"tokens": "a, b"}, dynamic_axes={"tokens": [0]})
    assert "shapes and dynamic_axes are both given" in message


# torch.onnx.export's dynamic_axes.


def test_dynamic_axes_as_dicts_and_lists(text: Case) -> None:
    made = declare(text, dynamic_axes={"tokens": {0: "batch", 1: "seq"}, "mask": [0], "output": {0: "batch"}})
    assert made.sizes[0] == (parse_expr("batch"), parse_expr("seq"))
    assert made.sizes[1] == (FREE, UNLISTED)
    assert made.labels


def test_dynamic_axes_count_from_the_end_too(text: Case) -> None:
    assert words(declare(text, dynamic_axes={"tokens": {-1: "seq"}})) == [
        ["not listed", "seq"],
        ["not listed"] * 2,
    ]


def test_a_label_that_is_no_name_is_a_dynamic_axis(text: Case) -> None:
    for label in ("batch size", "_b", ""):
        assert declare(text, dynamic_axes={"tokens": {0: label}}).sizes[0][0] is FREE


def test_dynamic_axes_beyond_the_last(text: Case) -> None:
    assert "axis 4 of tokens, which has 2 axes" in refusal(text, dynamic_axes={"tokens": {4: "batch"}})


def test_dynamic_axes_that_name_no_input(text: Case) -> None:
    message = refusal(text, dynamic_axes={"input": {0: "batch"}})
    assert "names no input: input" in message and "tokens, mask" in message and "input_names" in message


# torch.export's dynamic_shapes.

BATCH, SEQ = Dim("batch"), Dim("seq", min=2, max=64)


@pytest.mark.parametrize(
    "given",
    [
        {"tokens": {0: BATCH, 1: SEQ}, "mask": {0: BATCH}},
        ({0: BATCH, 1: SEQ}, {0: BATCH}),
        [{0: BATCH, 1: SEQ}, {0: BATCH, 1: None}],
        ((BATCH, SEQ), (BATCH, None)),
        ({0: "batch", 1: "seq"}, {0: "batch"}),
        (("batch", "seq"), ["batch", 6]),
        ({0: BATCH, -1: SEQ}, {-2: BATCH}),
    ],
)
def test_dynamic_shapes_in_all_their_forms(text: Case, given: Any) -> None:
    assert words(declare(text, dynamic_shapes=given)) == [["batch", "seq"], ["batch", "static"]]


def test_a_dims_range_is_taken_over(text: Case) -> None:
    made = declare(text, dynamic_shapes=({1: SEQ}, None))
    assert made.ranges["seq"] == Range(2, 64)


def test_dims_has_the_last_word_on_a_range(text: Case) -> None:
    assert declare(text, dynamic_shapes=({1: SEQ}, None), dims={"seq": "3..4"}).ranges == {"seq": Range(3, 4)}


def test_a_derived_dim_is_an_expression(text: Case) -> None:
    made = declare(text, dynamic_shapes=({1: 2 * Dim("half", max=50)}, {1: SEQ}))
    assert words(made) == [["static", "2*half"], ["static", "seq"]]
    assert made.ranges["half"].maximum == 50


def test_hints(text: Case) -> None:
    made = declare(text, dynamic_shapes=({0: Dim.AUTO, 1: Dim.DYNAMIC}, {0: Dim.STATIC, 1: 6}))
    assert made.sizes == ((FOUND, FREE), (STATIC, STATIC))


def test_none_is_static_for_a_whole_input(text: Case) -> None:
    assert words(declare(text, dynamic_shapes={"tokens": {0: "batch"}, "mask": None})) == [
        ["batch", "static"],
        ["static", "static"],
    ]
    assert words(declare(text, dynamic_shapes=({0: "batch"},)))[1] == ["static", "static"]


def test_nested_dynamic_shapes(nested: Case) -> None:
    given = {
        "batch": {"text": {0: "b"}, "boxes": [{0: "n"}, {0: "m"}]},
        "past": (({0: "b"}, ("b", None)),),
        "n": None,
    }
    made = words(declare(nested, dynamic_shapes=given))
    assert made == [["b", "static"], ["n", "static"], ["m", "static"], ["b", "static"], ["b", "static"]]
    assert words(declare(nested, dynamic_shapes=tuple(given.values()))) == made


def test_variable_arguments_in_one_more_tuple() -> None:
    case = case_of(lambda *tensors: tensors[0], torch.randn(2, 3), torch.randn(2, 3))
    for given in (({0: "a"}, {0: "b"}), (({0: "a"}, {0: "b"}),), {"tensors": ({0: "a"}, {0: "b"})}):
        assert words(declare(case, dynamic_shapes=given)) == [["a", "static"], ["b", "static"]]


def test_one_variable_argument_in_one_more_tuple() -> None:
    case = case_of(lambda *tensors: tensors[0], torch.randn(2, 3))
    for given in (({0: "a"},), (({0: "a"},),), {"tensors": ({0: "a"},)}, ((("a", None),),)):
        assert words(declare(case, dynamic_shapes=given)) == [["a", "static"]]


def test_keyword_arguments_by_name() -> None:
    case = case_of(lambda x, **more: x, torch.randn(2, 3), y=torch.randn(2, 3))
    assert words(declare(case, dynamic_shapes={"x": None, "y": {0: "n"}})) == [
        ["static"] * 2,
        ["n", "static"],
    ]


def test_a_name_that_is_no_input_is_refused(text: Case) -> None:
    message = refusal(text, dynamic_shapes={"token": {0: "batch"}})
    assert "token" in message and "tokens, mask" in message


def test_more_items_than_inputs(text: Case) -> None:
    assert "3 items, but there are 2 inputs" in refusal(text, dynamic_shapes=({}, {}, {}))


def test_another_structure_than_the_inputs(nested: Case) -> None:
    assert "dynamic_shapes for past" in refusal(nested, dynamic_shapes={"past": "batch"})


def test_a_sequence_of_the_wrong_length(text: Case) -> None:
    assert "tokens is declared with 1 axes, but its example has 2" in refusal(
        text, dynamic_shapes=(("batch",), None)
    )


def test_an_axis_that_is_not_there(text: Case) -> None:
    assert "axis 5 of mask, which has 2 axes" in refusal(text, dynamic_shapes=(None, {5: "batch"}))


def test_a_number_other_than_the_examples(text: Case) -> None:
    assert "mask axis 1 is declared 9, but its example has 6" in refusal(text, dynamic_shapes=(None, {1: 9}))


def test_a_thing_that_is_no_size(text: Case) -> None:
    message = refusal(text, dynamic_shapes=({0: 2.5}, None))
    assert "tokens axis 0: 2.5 is no size" in message and "Dim" in message
