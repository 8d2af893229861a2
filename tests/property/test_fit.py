"""What is fitted holds at sizes that were not seen, or nothing is answered."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anyshape.dims import Expr, ceildiv, fit, fit_real, isqrt, log2, maximum, minimum

NAMES = ("a", "b", "c")
A, B, C = (Expr.of(name) for name in NAMES)
Rows = list[dict[str, int]]
PRIMES = [number for number in range(3, 200) if all(number % divisor for divisor in range(2, number))]
steady = settings(deadline=None, max_examples=50, derandomize=True)


@st.composite
def rows_of(draw: st.DrawFn) -> Rows:
    """A base, two steps of each name alone, and two rows where all differ, one of which is mostly even."""
    sizes = draw(st.lists(st.sampled_from(PRIMES), min_size=15, max_size=15, unique=True))
    return laid_out(sizes)


def laid_out(sizes: list[int]) -> Rows:
    of = {name: sizes[5 * at : 5 * at + 5] for at, name in enumerate(NAMES)}
    base = {name: of[name][0] for name in NAMES}
    steps = [{**base, name: of[name][step]} for name in NAMES for step in (1, 2)]
    return [base, *steps, {name: of[name][3] + 1 for name in NAMES}, {name: of[name][4] for name in NAMES}]


def holds(found: Expr, truth: Expr, seed: int = 0) -> bool:
    source = random.Random(seed)
    unseen = [{name: source.randint(2, 600) for name in NAMES} for _ in range(200)]
    return all(found.evaluate(sizes) == truth.evaluate(sizes) for sizes in unseen)


def values_of(truth: Expr, rows: Rows) -> list[int]:
    return [truth.evaluate(row) for row in rows]


names = st.sampled_from((A, B, C))
pairs = st.permutations((A, B, C)).map(lambda three: (three[0], three[1]))
small = st.integers(-9, 9)
factor = st.sampled_from((1, 2, 3, 4, 12, -1))
divisors = st.sampled_from((2, 3, 4, 5, 7, 8, 16, 32))
rounded = st.builds(lambda d, q, up: ceildiv(d, q) if up else d // q, names, divisors, st.booleans())

DETERMINED: dict[str, st.SearchStrategy[Expr]] = {
    "a constant": st.integers(-1000, 1000).map(Expr.of),
    "a line": st.builds(lambda d, a, c: a * d + c, names, factor, small),
    "a sum": st.builds(lambda p, a, c: a * p[0] - p[1] + c, pairs, factor, small),
    "a sum of all": st.builds(lambda a, b, c: a * A + b * B + C + c, factor, factor, small),
    "a product": st.builds(lambda p, a, c: a * p[0] * p[1] + c, pairs, factor, small),
    "a product of all": st.builds(lambda a, c: a * A * B * C + c, factor, small),
    "a square": st.builds(lambda d, c: d**2 + c, names, small),
    "a triangle": st.builds(lambda d, c: d * (d + c) // 2, names, st.sampled_from((1, -1))),
    "a product with a sum": st.builds(lambda c: A * (B + C + c), st.integers(-1, 1)),
}


@pytest.mark.parametrize("kind", DETERMINED)
@steady
@given(data=st.data(), rows=rows_of())
def test_what_is_determined_is_found(kind: str, data: st.DataObject, rows: Rows) -> None:
    truth = data.draw(DETERMINED[kind])
    found = fit(rows, values_of(truth, rows))
    assert found is not None and holds(found, truth)


@steady
@given(rounded, rows_of())
def test_rounding_is_right_or_refused(truth: Expr, rows: Rows) -> None:
    values = values_of(truth, rows)
    assume(len(set(values)) > 2)
    found = fit(rows, values)
    assert found is None or holds(found, truth)


@steady
@given(pairs, st.sampled_from((minimum, maximum, ceildiv, Expr.__floordiv__, Expr.__mod__)), rows_of())
def test_one_by_another_is_found(
    pair: tuple[Expr, Expr], function: Callable[[Expr, Expr], Expr], rows: Rows
) -> None:
    truth = function(*pair)
    values = values_of(truth, rows)
    # Where one size is always the smaller, it alone explains the values; where both appear, it does not.
    assume(len(set(values)) > 2 and not any(values == [row[name] for row in rows] for name in NAMES))
    found = fit(rows, values)
    assert found is not None and holds(found, truth)


def test_nearly_everything_else_is_right_or_refused() -> None:
    source = random.Random(7)

    def pick(*options: int) -> int:
        return source.choice(options)

    def quotient(name: Expr) -> Expr:
        divisor = pick(2, 3, 4, 5, 7, 8, 16)
        return source.choice((name // divisor, ceildiv(name, divisor)))

    def patches() -> Expr:
        size = pick(2, 4, 7, 8, 14, 16)
        return source.choice((A * (B // size) * (C // size), A * ceildiv(B, size) * ceildiv(C, size)))

    def round_up() -> Expr:
        size = pick(2, 4, 7, 8, 16, 32)
        return size * ceildiv(A, size)

    def rest() -> Expr:
        size = pick(3, 4, 7, 8, 16)
        return source.choice((A % size, -A % size, (pick(1, 2, 5) - A) % size))

    # For each kind: how it is made, how many of 50 must be found, how many may be wrong.
    kinds: dict[str, tuple[Callable[[], Expr], int, int]] = {
        "quotient": (lambda: quotient(A), 38, 1),
        "round up": (round_up, 42, 1),
        "rest": (rest, 35, 1),
        "steps": (lambda: source.choice((isqrt(A), log2(A), log2(A) + 1)), 40, 1),
        "two quotients": (lambda: quotient(B) * quotient(C), 27, 1),
        "patches": (patches, 33, 1),
        "a sum with a quotient": (lambda: B + quotient(A), 35, 1),
        "a product with a constant": (lambda: A * quotient(B) + 1, 32, 1),
    }
    for kind, (make, least, most) in kinds.items():
        right = wrong = 0
        for seed in range(50):
            rows, truth = laid_out(source.sample(PRIMES, 15)), make()
            found = fit(rows, values_of(truth, rows))
            if found is not None:
                right, wrong = (right + 1, wrong) if holds(found, truth, seed) else (right, wrong + 1)
        assert right >= least and wrong <= most, f"{kind}: {right} right, {wrong} wrong"


numbers = st.integers(-3, 40) | st.sampled_from((0, -1, 2**31, -(2**63), 10**30))


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.data(), st.integers(1, 9))
def test_no_numbers_make_it_fail(data: st.DataObject, count: int) -> None:
    rows = [data.draw(st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))) for _ in range(count)]
    values = data.draw(st.lists(numbers, min_size=count, max_size=count))
    atoms = data.draw(st.lists(st.sampled_from((A // 2, B % 3, A * B, log2(C), Expr.of(7))), max_size=4))
    found = fit(rows, values, atoms)
    assert found is None or values_of(found, rows) == values


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.data(), st.integers(1, 6))
def test_no_real_numbers_make_it_fail(data: st.DataObject, count: int) -> None:
    rows = [data.draw(st.fixed_dictionaries({"n": numbers})) for _ in range(count)]
    values = data.draw(
        st.lists(st.floats() | st.sampled_from((0.5, 0.0, 1.0)), min_size=count, max_size=count)
    )
    found = fit_real(rows, values)
    assert found is None or [found.evaluate(row) for row in rows] == pytest.approx(values, rel=1e-6)
