from __future__ import annotations

import numpy as np
import pytest
import torch

from anyshape.compare import compare


def test_equal_is_equal() -> None:
    difference = compare("y", torch.ones(3), None, np.ones(3, np.float32))
    assert difference.why == "" and difference.error == 0


def test_rounding_is_allowed_and_more_is_not() -> None:
    expected = torch.full((4,), 100.0)
    assert compare("y", expected, None, np.full(4, 100.0001, np.float32)).why == ""
    far = compare("y", expected, None, np.full(4, 100.1, np.float32))
    assert far.why.startswith("y is off by 0.1") and "allowed" in far.why
    assert far.error == pytest.approx(0.1, rel=1e-3)


def test_pytorchs_own_error_widens_what_is_allowed() -> None:
    expected, exact = torch.full((4,), 1.0), torch.full((4,), 1.001, dtype=torch.float64)
    got = np.full(4, 1.005, np.float32)
    assert compare("y", expected, None, got).why
    assert compare("y", expected, exact, got).why == ""


def test_half_precision_is_allowed_its_own_rounding() -> None:
    expected = torch.full((4,), 1.0, dtype=torch.float16)
    assert compare("y", expected, None, np.full(4, 1.002, np.float16)).why == ""
    assert compare("y", torch.full((4,), 1.0), None, np.full(4, 1.002, np.float32)).why


def test_a_shape_that_differs_shows_both() -> None:
    why = compare("scores", torch.ones(2, 3), None, np.ones((3, 2), np.float32)).why
    assert why == "scores has shape [3, 2], expected [2, 3]"


def test_a_missing_axis_of_one_is_a_difference() -> None:
    assert compare("y", torch.ones(2, 1), None, np.ones(2, np.float32)).why


def test_integers_and_booleans_must_be_equal() -> None:
    assert compare("ids", torch.tensor([1, 2]), None, np.array([1, 2])).why == ""
    assert compare("ids", torch.tensor([1, 2]), None, np.array([1, 3])).why == "ids has different integers"
    assert compare("ok", torch.tensor([True]), None, np.array([False])).why


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [1.0, np.nan], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([np.inf, 1.0], [3e38, 1.0], False),
        ([np.nan], [np.nan], True),
        ([1.0], [np.nan], False),
    ],
)
def test_nan_and_infinity_must_be_in_the_same_places(
    expected: list[float], got: list[float], same: bool
) -> None:
    why = compare("y", torch.tensor(expected), None, np.array(got, np.float32)).why
    assert (why == "") == same
    if not same:
        assert "y has NaN or infinity" in why


def test_complex_numbers_come_as_pairs() -> None:
    expected = torch.tensor([1 + 2j])
    assert compare("y", expected, None, np.array([[1.0, 2.0]], np.float32)).why == ""
    assert compare("y", expected, None, np.array([[1.0, 3.0]], np.float32)).why


def test_empty_outputs_agree_by_their_shape() -> None:
    assert compare("y", torch.ones(0, 3), None, np.ones((0, 3), np.float32)).why == ""
    assert compare("y", torch.ones(0, 3), None, np.ones((0, 4), np.float32)).why


def test_zero_where_all_is_zero() -> None:
    assert compare("y", torch.zeros(3), None, np.zeros(3, np.float32)).why == ""
    assert compare("y", torch.zeros(3), None, np.full(3, 1e-3, np.float32)).why
