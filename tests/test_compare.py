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


def off_by(
    expected: torch.Tensor, place: tuple[int, ...], error: float, exact: torch.Tensor | None = None
) -> str:
    """What is said where one number is off."""
    got = expected.double().numpy().copy()
    got[place] += error
    return compare("y", expected, exact, got.astype(expected.double().numpy().dtype)).why


def scores(*shape: int) -> torch.Tensor:
    return torch.rand(shape) * 0.8 + 0.1


@pytest.mark.parametrize("known", [True, False], ids=["own error known", "not known"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_what_a_mask_fills_in_lends_nothing(share: float, known: bool) -> None:
    expected = scores(4, 9, 30).masked_fill(torch.rand(4, 9, 30) < share, -1e9)
    expected[0, 0, 0] = 0.5
    exact = expected.double() if known else None
    assert "y is off by 0.001" in off_by(expected, (0, 0, 0), 1e-3, exact)
    assert off_by(expected, (0, 0, 0), 1e-6, exact) == ""


def test_a_mask_that_is_added_lends_nothing_either() -> None:
    exact = scores(4, 9, 30).double() + (torch.rand(4, 9, 30) < 0.4) * -1e9
    exact[0, 0, 0] = 0.5
    assert off_by(exact.float(), (0, 0, 0), 1e-3, exact)


@pytest.mark.parametrize("known", [True, False], ids=["own error known", "not known"])
def test_pixels_lend_nothing_to_scores(known: bool) -> None:
    exact = torch.cat([torch.randn(2, 40, 4) * 2000 + 2000, scores(2, 40, 2)], -1).double()
    expected = exact.float()
    given = exact if known else None
    assert off_by(expected, (1, 7, 4), 1e-3, given)
    assert off_by(expected, (1, 7, 5), 1e-6, given) == ""
    assert off_by(expected, (1, 7, 0), 2e-3, given) == ""  # of a pixel, that is rounding
    assert off_by(expected.transpose(1, 2), (1, 4, 7), 1e-3, None if given is None else exact.transpose(1, 2))


def test_among_few_numbers_one_that_is_far_larger_lends_nothing() -> None:
    assert off_by(torch.tensor([0.5, -1e9, 0.2]), (0,), 1e-3)
    assert off_by(torch.tensor([0.5, 3.0, 2e-5]), (2,), 1e-5) == ""


def test_a_number_that_is_small_by_cancellation_may_be_off_as_its_neighbours_are() -> None:
    expected = torch.randn(6, 50)
    expected[2, 3] = 1e-9
    assert off_by(expected, (2, 3), 1e-6, expected.double()) == ""


def test_a_channel_that_is_nothing_but_rounding_may_be_off_as_the_others_are() -> None:
    expected = torch.randn(30, 50, 2)
    expected[..., 1] *= 1e-8  # what remains of a difference of equal numbers
    for exact in (None, expected.double() * 1.0):
        assert off_by(expected, (3, 4, 1), 1e-6, exact) == ""
    assert off_by(expected, (3, 4, 1), 1e-2)


def test_zeros_say_nothing_of_the_numbers_beside_them() -> None:
    expected = torch.randn(8, 40).relu() * (torch.rand(8, 40) < 0.2)
    assert off_by(expected, (0, 0), 1e-6, expected.double()) == ""
    assert off_by(expected, (0, 0), 1e-2, expected.double())


def test_an_error_of_pytorchs_in_one_number_is_not_lent_to_all() -> None:
    expected = torch.randn(8, 40)
    exact = expected.double()
    exact[0, 0] += 0.5  # as where a choice flips
    assert off_by(expected, (0, 0), 1.0, exact) == ""
    assert off_by(expected, (5, 7), 1e-2, exact)


def test_a_fault_of_a_thousandth_is_seen_in_plain_numbers() -> None:
    expected = torch.randn(3, 7, 20)
    got = expected.numpy() * np.float32(1.001)
    assert compare("y", expected, expected.double() + 1e-7, got).why
    assert compare("y", expected, None, got).why


def test_many_numbers_are_compared_by_some_of_them() -> None:
    expected = torch.randn(3, 300, 400)
    assert off_by(expected, (1, 2, 3), 1e-6) == "" and off_by(expected, (1, 2, 3), 1e-2)


@pytest.mark.parametrize(
    ("dtype", "right", "wrong"), [(torch.float16, 1e-2, 0.2), (torch.bfloat16, 0.1, 1.0)]
)
def test_other_precisions_have_their_own_rounding(dtype: torch.dtype, right: float, wrong: float) -> None:
    expected = scores(4, 40).to(dtype)
    expected[0, :20] = -60000
    assert off_by(expected, (1, 2), right) == "" and off_by(expected, (1, 2), wrong)


def test_numbers_too_small_for_a_processor_may_be_zero() -> None:
    expected = torch.full((3,), 1e-40)
    assert compare("y", expected, None, np.zeros(3, np.float32)).why == ""


def test_complex_numbers_have_an_own_error_too() -> None:
    exact = torch.tensor([1 + 2j], dtype=torch.complex128)
    expected = (exact + 1e-3).to(torch.complex64)
    got = torch.view_as_real(expected).numpy() + np.float32(5e-3)
    assert compare("y", expected, exact, got).why == ""
    assert compare("y", expected, None, got).why


def test_zeros_beside_what_a_mask_fills_in() -> None:
    expected = torch.zeros(4, 30).masked_fill(torch.rand(4, 30) < 0.5, -1e9)
    expected[0, 0] = 0
    assert off_by(expected, (0, 0), 1e-6) == "" and off_by(expected, (0, 0), 0.5)


def test_numbers_that_are_nothing_but_rounding_may_be_off_like_the_worst_of_them() -> None:
    exact = torch.zeros(40, dtype=torch.float64)
    expected = torch.randn(40) * 1e-9
    expected[7] = 1e-7
    assert off_by(expected, (3,), 1e-6, exact) == ""
