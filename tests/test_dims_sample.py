"""Choosing sizes: legal, distinct, repeatable, and the telling ones first."""

from __future__ import annotations

import itertools

import pytest

from anyshape.dims import Expr, Range, Relation, Space, choose, generic, isqrt

B, K, M, N = (Expr.of(name) for name in ("b", "k", "m", "n"))
TEXT = Space(
    {"batch": Range(1), "seq": Range(1, 512)},
    wanted=({"batch": 2, "seq": 8}, {"batch": 2, "seq": 9}, {"batch": 2, "seq": 900}),
    typical={"batch": 2, "seq": 16},
)


def distinct(rows: list[dict[str, int]]) -> bool:
    return len({tuple(row.items()) for row in rows}) == len(rows)


def test_typical_first_then_boundaries_then_the_rest() -> None:
    rows = choose(TEXT, 60)
    assert len(rows) >= 60
    assert distinct(rows)
    assert all(TEXT.contains(row) for row in rows)
    assert rows[0] == {"batch": 2, "seq": 16}
    first = rows[:12]
    for seq in (1, 2, 511, 512, 8, 9):
        assert {"batch": 2, "seq": seq} in first
    assert {"batch": 1, "seq": 16} in first
    assert {"batch": 1, "seq": 1} in rows
    assert any((row["batch"] > 8 and row["seq"] > 64) or row["seq"] == 64 for row in rows)
    assert any(row["seq"] % 8 == 1 for row in rows) and any(row["seq"] % 8 == 7 for row in rows)


def test_choose_is_repeatable_and_the_seed_changes_only_the_random_tail() -> None:
    assert choose(TEXT, 60) == choose(TEXT, 60)
    one, two = choose(TEXT, 60, seed=1), choose(TEXT, 60, seed=2)
    assert one != two
    telling = len(choose(TEXT, 0))
    assert one[:telling] == two[:telling]


def test_zero_and_one_are_tried_where_legal() -> None:
    rows = choose(Space({"n": Range()}), 5)
    assert {"n": 0} in rows and {"n": 1} in rows


def test_a_small_space_is_exhausted() -> None:
    space = Space({"a": Range(1, 3), "b": Range(2, 3)})
    rows = choose(space, 100)
    assert sorted(tuple(row.values()) for row in rows) == list(itertools.product((1, 2, 3), (2, 3)))


def test_no_dims_have_one_assignment() -> None:
    assert choose(Space({}), 5) == [{}]
    assert generic(Space({}), ()) == [{}]


def test_largest_caps_what_is_tried() -> None:
    rows = choose(Space({"n": Range(1, 100000)}, typical={"n": 3}, largest={"n": 20}), 15)
    assert max(row["n"] for row in rows) == 20
    assert max(row["n"] for row in choose(Space({"n": Range(1, 100000)}, typical={"n": 3}), 15)) == 64


def test_a_minimum_above_the_usual_cap() -> None:
    rows = choose(Space({"n": Range(500)}), 20)
    assert len(rows) >= 20
    assert min(row["n"] for row in rows) == 500


def test_pairs_of_small_typical_and_large_all_meet() -> None:
    space = Space({name: Range(1, 40) for name in "abcd"}, typical=dict.fromkeys("abcd", 6))
    rows = choose(space, 1)
    for left, right in itertools.combinations("abcd", 2):
        met = {(row[left], row[right]) for row in rows}
        assert met >= set(itertools.product((1, 6, 40), repeat=2))


@pytest.mark.parametrize(
    "relations",
    [
        (Relation(K, "<=", N),),
        (Relation(K, "<", N), Relation(M, "==", 2 * K)),
        (Relation(M, "==", 2 * N + 1),),
        (Relation(N, "!=", K),),
        (Relation(M % 4, "==", Expr.of(0)),),
        (Relation(Expr.of(12) // K, "<=", N),),
    ],
)
def test_relations_hold_everywhere(relations: tuple[Relation, ...]) -> None:
    space = Space({"k": Range(0), "m": Range(0), "n": Range(1)}, relations, typical={"k": 4, "m": 8, "n": 4})
    rows = choose(space, 40)
    assert len(rows) >= 40
    assert distinct(rows)
    assert all(space.contains(row) for row in rows)
    assert any(row["n"] == 1 for row in rows)
    assert all(space.contains(row) for row in generic(space, {3, 5}, count=3))


def test_relations_without_a_solution_give_nothing() -> None:
    space = Space({"k": Range(5), "n": Range(1, 3)}, (Relation(K, "<=", N),))
    assert choose(space, 5) == []
    assert generic(space, ()) == []


def test_generic_sizes_are_distinct_primes_near_typical() -> None:
    space = Space(
        {"b": Range(1), "h": Range(1), "w": Range(1), "k": Range(4, 4), "f": Range(1, 2)},
        typical={"b": 2, "h": 224, "w": 224, "k": 4, "f": 1},
    )
    rows = generic(space, {223, 3}, count=3)
    assert len(rows) == 3
    for row in rows:
        free = [row["b"], row["h"], row["w"]]
        assert len(set(free)) == 3
        assert not {223, 3} & set(free)
        assert all(size > 2 and all(size % divisor for divisor in range(2, size)) for size in free)
        assert row["k"] == 4 and row["f"] in (1, 2)
        assert abs(row["h"] - 224) < 30 and row["b"] < 30
    for name in ("b", "h", "w"):
        assert len({row[name] for row in rows}) == 3


def test_generic_keeps_an_equality() -> None:
    space = Space({"m": Range(1), "n": Range(1)}, (Relation(M, "==", 2 * N),), typical={"m": 8, "n": 4})
    assert generic(space, ())[0] in ({"m": 6, "n": 3}, {"m": 10, "n": 5}, {"m": 14, "n": 7})


def test_sizes_that_are_squares_are_many_and_legal() -> None:
    square = Relation(isqrt(N - 1) ** 2 + 1, "==", N)
    space = Space({"b": Range(0), "n": Range(1)}, (square,), typical={"b": 2, "n": 17})
    rows = choose(space, 40)
    assert len(rows) >= 40 and all(space.contains(row) for row in rows)
    assert {1, 2, 5, 10, 17, 26, 65} <= {row["n"] for row in rows}
    some = generic(space, {17}, count=3)
    assert all(space.contains(row) for row in some) and len({17, *(row["n"] for row in some)}) == 4
