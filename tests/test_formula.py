"""Formulas compute what Python computes, become exact expressions where they are, and say where they turn."""

from __future__ import annotations

import math

import pytest

from anyshape.dims import Expr, Range, Relation, maximum
from anyshape.dims.formula import Formula, as_expr, as_relation, is_whole
from anyshape.dims.turns import crossings, legal_sizes, period_of, turning

N, M = Expr.of("n"), Expr.of("m")


def times(factor: float) -> Formula:
    return Formula("*", (N, factor))


@pytest.mark.parametrize(
    ("formula", "python"),
    [
        (Formula("int", (times(0.9),)), lambda n: int(n * 0.9)),
        (Formula("int", (times(0.29),)), lambda n: int(n * 0.29)),
        (Formula("ceil", (times(0.3),)), lambda n: math.ceil(n * 0.3)),
        (Formula("round", (Formula("/", (N, 2)),)), lambda n: round(n / 2)),
        (Formula("bit_length", (N - 1,)), lambda n: (n - 1).bit_length()),
        (Formula("//", (N, 3)), lambda n: n // 3),
        (Formula("floor", (Formula("sqrt", (N,)),)), lambda n: math.floor(math.sqrt(n))),
        (Formula("ceil", (Formula("log2", (N,)),)), lambda n: math.ceil(math.log2(n))),
        (Formula("int", (Formula("/", (N, 7)),)), lambda n: int(n / 7)),
        (Formula("min", (N, 12)), lambda n: min(n, 12)),
    ],
)
def test_formulas_are_pythons_own_arithmetic(formula, python):
    whole = as_expr(formula)
    assert whole is not None and is_whole(formula)
    for n in range(1, 700):
        assert formula.evaluate({"n": n}) == python(n)
        assert whole.evaluate({"n": n}) == python(n)


def test_what_floats_hold_exactly_is_integer_arithmetic():
    assert as_expr(Formula("int", (times(0.5),))) == N // 2
    assert as_expr(Formula("ceil", (Formula("/", (N, 4)),))) == (N - 1) // 4 + 1
    assert str(as_expr(Formula("int", (times(0.9),)))) == "int(n*0.9)"


def test_a_logarithm_that_a_runtime_may_round_otherwise_is_no_size():
    assert as_expr(Formula("int", (Formula("log", (N, 300)),))) is None
    assert as_relation(Formula(">", (Formula("log", (N,)), 3))) is None


def test_formulas_with_names_replaced():
    formula = Formula("int", (times(0.9),))
    whole = as_expr(formula)
    assert whole is not None
    assert str(whole.substitute({"n": M + 1})) == "int((m + 1)*0.9)"
    assert whole.substitute({"n": 10}) == Expr.of(9)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Formula(">", (N, 600)), "601 <= n"),
        (Formula(">=", (N, 600)), "600 <= n"),
        (Formula("<", (N, M)), "n <= m - 1"),
        (Formula("!=", (Formula("%", (N, 300)), 0)), "n % 300 != 0"),
        (Formula(">", (times(0.3), 2.5)), "int"),
    ],
)
def test_comparisons_are_relations(condition, text):
    relation = as_relation(condition)
    assert relation is not None
    assert str(relation) == text or text == "int"
    for n in range(700):
        sizes = {"n": n, "m": 50}
        assert relation.holds(sizes) == condition.evaluate(sizes)


class At:
    def __init__(self, condition: Formula) -> None:
        self.condition, self.names = condition, condition.names
        self.period = period_of(condition)

    def holds(self, sizes):
        return bool(self.condition.evaluate(sizes))


@pytest.mark.parametrize("limit", [3, 150, 600, 9_000, 100_000])
def test_a_turn_is_solved_for_however_far(limit):
    assert turning(At(Formula(">", (N, limit))), {}, "n", Range(0)) == [(limit, limit + 1)]


def test_remainders_turn_at_every_multiple():
    pairs = turning(At(Formula("==", (Formula("%", (N, 250)), 0))), {}, "n", Range(1))
    assert (249, 250) in pairs and (250, 251) in pairs


def test_products_turn_with_either_dim():
    area = At(Formula(">", (Formula("*", (N, M)), 9000)))
    found = list(crossings(area, {"n": 6, "m": 8}, {"n": Range(1), "m": Range(1)}))
    assert {name for name, _ in found} == {"n", "m"}
    assert {area.holds(row) for _, row in found} == {True, False}


def test_two_dims_are_moved_where_one_does_not_turn_it():
    both = At(Formula(">", (Formula("min", (N, M)), 10)))
    found = [row for _, row in crossings(both, {"n": 5, "m": 5}, {"n": Range(1), "m": Range(1)})]
    assert any(both.holds(row) for row in found)


def test_sizes_that_relations_allow():
    multiple = Relation(N % 60, "==", Expr.of(0))
    assert legal_sizes([multiple], {}, "n", Range(1))[:3] == [60, 120, 180]


def test_what_a_contract_has_words_for() -> None:
    rounded = as_expr(Formula("ceil", (Formula("*", (N, 0.3)),)))
    assert rounded is not None and not rounded.is_arithmetic
    assert not maximum(1, rounded + N).is_arithmetic  # however deep it lies
    assert maximum(1, N // 3 + N % 2).is_arithmetic and Expr.of(4).is_arithmetic
