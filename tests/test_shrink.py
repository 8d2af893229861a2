from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from anyshape.dims import Range
from anyshape.verify.shrink import MOST_TRIES, shrink

Sizes = Mapping[str, int]
ANY = {"batch": Range(1), "seq": Range(1)}


@pytest.mark.parametrize(
    ("start", "fails", "text"),
    [
        (
            {"batch": 7, "seq": 40},
            lambda s: s["seq"] > 8,
            "seq = 9 (batch does not matter; right where seq ≤ 8)",
        ),
        ({"batch": 7, "seq": 40}, lambda s: True, "batch = 1, seq = 1"),
        (
            {"batch": 7, "seq": 1},
            lambda s: s["seq"] == 1,
            "seq = 1 (batch does not matter; right at seq = 2)",
        ),
        ({"batch": 9, "seq": 30}, lambda s: s["batch"] * s["seq"] > 20, "batch = 1, seq = 21"),
        (
            {"batch": 5, "seq": 41},
            lambda s: s["seq"] % 2 == 1,
            "seq = 1 (batch does not matter; right at seq = 2)",
        ),
    ],
)
def test_the_smallest_failing_sizes(start: Sizes, fails: Callable[[Sizes], bool], text: str) -> None:
    assert str(shrink(start, ANY, fails)) == text


def test_dims_that_must_be_equal_shrink_together() -> None:
    shrunk = shrink({"batch": 6, "seq": 6}, ANY, lambda s: s["batch"] == s["seq"])
    assert shrunk.sizes == {"batch": 1, "seq": 1}


def test_the_range_is_the_floor() -> None:
    shrunk = shrink({"seq": 40}, {"seq": Range(16, 64)}, lambda s: s["seq"] >= 3)
    assert shrunk.sizes == {"seq": 16}


def test_an_empty_dim_that_is_right_tells_nothing() -> None:
    ranges = {"batch": Range(0), "seq": Range(0)}
    shrunk = shrink({"batch": 7, "seq": 40}, ranges, lambda s: s["batch"] > 0 and s["seq"] > 8)
    assert str(shrunk) == "seq = 9 (batch does not matter; right where seq ≤ 8)"


def test_zero_is_tried() -> None:
    assert shrink({"seq": 12}, {"seq": Range(0)}, lambda s: True).sizes == {"seq": 0}


def test_a_dim_at_the_only_size_of_its_range_is_not_idle() -> None:
    shrunk = shrink({"batch": 1, "seq": 9}, {"batch": Range(1, 1), "seq": Range(1)}, lambda s: s["seq"] > 4)
    assert shrunk.idle == ()


def test_many_dims_that_do_not_matter_are_told_together() -> None:
    ranges = {name: Range(1) for name in ("a", "b", "c")}
    shrunk = shrink({"a": 4, "b": 5, "c": 6}, ranges, lambda s: s["b"] > 2)
    assert str(shrunk) == "b = 3 (a and c do not matter; right where b ≤ 2)"


def test_what_it_returns_did_fail() -> None:
    asked: list[dict[str, int]] = []

    def fails(sizes: Sizes) -> bool:
        asked.append(dict(sizes))
        return sizes["seq"] % 7 == 3 and sizes["batch"] > 1

    shrunk = shrink({"batch": 8, "seq": 52}, ANY, fails)
    assert shrunk.sizes["seq"] % 7 == 3 and shrunk.sizes["batch"] == 2
    assert len(asked) <= MOST_TRIES
    assert len({tuple(sizes.items()) for sizes in asked}) == len(asked)  # nothing is asked twice


def test_without_dims_it_is_every_size() -> None:
    assert str(shrink({}, {}, lambda s: True)) == "every size"
