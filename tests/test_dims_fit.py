"""Explaining numbers seen at several sizes: each class of expressions, and what is refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

import pytest

from anyshape.dims import Expr, Real, ceildiv, fit, fit_real, parse_expr

# A base, two steps, and two for the rows where everything differs; one of these is even.
SIZES = {
    "b": (3, 5, 11, 2, 7),
    "seq": (7, 13, 17, 23, 40),
    "h": (29, 37, 43, 31, 54),
    "w": (53, 61, 67, 71, 90),
    "g": (19, 23, 41, 47, 60),
}


def rows_of(*names: str, steps: int = 2, spares: int = 2) -> list[dict[str, int]]:
    base = {name: SIZES[name][0] for name in names}
    rows = [base]
    rows += [{**base, name: SIZES[name][step]} for name in names for step in range(1, steps + 1)]
    return rows + [{name: SIZES[name][spare] for name in names} for spare in range(3, 3 + spares)]


ALL = rows_of(*SIZES)


def values_of(expr: Expr, rows: Sequence[dict[str, int]]) -> list[int]:
    return [expr.evaluate(row) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        *("7", "0", "-3", "b", "w"),
        *("b + 7", "2*h - 1", "-h", "10 - h", "12*seq", "2*b - 1"),
        *("b + h - 1", "seq - b", "2*b + 3*h - 5", "b + seq + h + w", "b - seq + 4*w"),
        *("b*h*w", "4*b*seq", "b*h + 1", "h*w - 1", "h**2", "h**2 + 1", "b*seq*h*w", "12*b*h - 5", "b*h**2"),
        *(
            "h//4",
            "(h - 1)//4 + 1",
            "h//2",
            "(h - 3)//4",
            "(h + 2)//4",
            "(w - 1)//2",
            "w//7 - 1",
            "(h - 1)//2",
        ),
        *("8*((seq - 1)//8 + 1)", "7*((h - 1)//7 + 1)", "4*(h//4)", "3*(w//8)", "64*((w - 1)//4 + 1) + 1"),
        *("1 - h//4", "(3*h)//4", "(2*h)//3"),
        *("h % 8", "-h % 7", "(3 - h) % 8", "-w % 16"),
        *("min(h, 37)", "max(seq - 13, 0)", "max(seq, 13)", "min(2*w, 134)", "max(0, 40 - h)"),
        *("isqrt(h)", "isqrt(w)", "log2(h)", "log2(seq) + 1"),
        *("h*(h + 1)//2", "seq*(seq - 1)//2", "h**2 + h + 1"),
        *("w//seq", "w % seq", "h//b", "h*w//g", "max(h, g)", "min(h, g + 5)"),
        *("((h - 1)//4 + 1)*((w - 1)//4 + 1)", "b*((h - 1)//7 + 1)*((w - 1)//7 + 1)", "(h//4)*(w//4) + 1"),
        *(
            "b*((h - 1)//4 + 1)*((w - 1)//4 + 1) + 1",
            "(2*h - 1)*(2*w - 1)",
            "(h - 2)*(w - 2)",
            "b*(seq + 1)*h",
        ),
        *("b*(h + w)", "b*h + w", "seq + h//4", "4*((h - 1)//4 + 1)*w", "b*(h*w + 1)", "b*isqrt(w)"),
    ],
)
def test_each_class_is_found(text: str) -> None:
    expected = parse_expr(text)
    assert fit(ALL, values_of(expected, ALL)) == expected


@pytest.mark.parametrize("text", ["b", "b + 4", "3*h", "b*h", "b + h", "h//4", "b*((h - 1)//4 + 1)"])
def test_one_step_and_one_spare_row_are_enough_for_the_simple(text: str) -> None:
    rows = rows_of("b", "h", steps=1, spares=1)
    expected = parse_expr(text)
    assert fit(rows, values_of(expected, rows)) == expected


def test_exact_division_is_a_floor_division() -> None:
    rows = [{"h": size, "w": other} for size, other in [(32, 96), (64, 96), (96, 96), (32, 160), (224, 320)]]
    for text in ("h//32", "h//2", "3*h//4", "h*w//4", "h//32 + 5"):
        expected = parse_expr(text)
        assert fit(rows, values_of(expected, rows)) == expected


def test_perfect_squares_and_powers_of_two() -> None:
    squares = [{"n": size} for size in (16, 25, 49, 121)]
    assert fit(squares, [4, 5, 7, 11]) == parse_expr("isqrt(n)")
    shifted = [{"n": size + 20} for size in (16, 25, 49, 121)]
    assert fit(shifted, [4, 5, 7, 11]) == parse_expr("isqrt(n - 20)")
    powers = [{"n": size} for size in (8, 16, 64, 256)]
    assert fit(powers, [3, 4, 6, 8]) == parse_expr("log2(n)")


def test_an_atom_stands_for_what_it_is() -> None:
    blocks = ceildiv(Expr.of("h"), 7)
    others = ceildiv(Expr.of("w"), 7)
    atoms = (blocks, others, Expr.of("b"), Expr.of(32))
    for expected in (
        blocks,
        2 * blocks + 1,
        Expr.of("b") * blocks * others,
        32 * blocks * others,
        blocks + others - 1,
        3 * blocks + 5 * Expr.of("b") - 2,
        blocks + others + Expr.of("b"),
        ceildiv(blocks, 2),
        Expr.of("g") // blocks,
    ):
        assert fit(ALL, values_of(expected, ALL), atoms) == expected


def test_a_number_among_the_atoms_tells_divisors_apart() -> None:
    expected = Expr.of("h") // 14
    values = values_of(expected, ALL)
    assert fit(ALL, values) is None
    assert fit(ALL, values, [Expr.of(14)]) == expected


def test_an_atom_that_is_not_defined_everywhere_is_left_out() -> None:
    atoms = [parse_expr("log2(b - 3)"), parse_expr("h//(b - 3)"), Expr.of("unheard_of")]
    assert fit(ALL, values_of(parse_expr("b + 1"), ALL), atoms) == parse_expr("b + 1")


def test_more_atoms_than_can_be_searched() -> None:
    atoms = [parse_expr(f"h + {2 * number}*w") for number in range(30)]
    assert fit(ALL, values_of(parse_expr("b*h"), ALL), atoms) == parse_expr("b*h")


@pytest.mark.parametrize(
    ("sizes", "values"),
    [
        ([7], [7]),
        ([7, 7, 7], [9, 9, 9]),
        ([7, 7], [1, 2]),
        ([7, 13], [17, 29]),
        ([7, 13, 17], [100, 7, 3]),
        ([29, 37, 43, 31], [0, 0, 1, 0]),
        ([29, 37, 43, 31, 54], [2, 2, 3, 2, 3]),
    ],
)
def test_what_is_not_determined_is_refused(sizes: list[int], values: list[int]) -> None:
    assert fit([{"n": size} for size in sizes], values) is None


def test_without_dims_a_number_is_a_constant() -> None:
    assert fit([{}], [7]) == Expr.of(7)
    assert fit([], []) is None


def test_repeated_rows_must_agree() -> None:
    rows = [{"n": 7}, {"n": 13}, {"n": 7}, {"n": 17}]
    assert fit(rows, [8, 14, 8, 18]) == parse_expr("n + 1")
    assert fit(rows, [8, 14, 9, 18]) is None


def test_odd_sizes_leave_rounding_down() -> None:
    rows = [{"n": size} for size in (7, 13, 17, 29)]
    assert fit(rows, [(size["n"] - 1) // 2 for size in rows]) == parse_expr("n//2")


def single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


@pytest.mark.parametrize("rounded", [float, single], ids=["float64", "float32"])
@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda h, w: 0.125, "0.125"),
        (lambda h, w: -math.inf, "-inf"),
        (lambda h, w: float(h * w), "h*w"),
        (lambda h, w: 1 / math.sqrt(h), "1/sqrt(h)"),
        (lambda h, w: h**-0.5, "1/sqrt(h)"),
        (lambda h, w: -(h**-0.5), "-1/sqrt(h)"),
        (lambda h, w: 8 / math.sqrt(h), "8/sqrt(h)"),
        (lambda h, w: math.sqrt(h), "sqrt(h)"),
        (lambda h, w: math.sqrt(h) / 2, "sqrt(h)/2"),
        (lambda h, w: math.sqrt(h / 2), "sqrt(h)/sqrt(2)"),
        (lambda h, w: 1 / math.sqrt(h * w), "1/sqrt(h*w)"),
        (lambda h, w: 2 / (w - 1), "2/(w - 1)"),
        (lambda h, w: w / 2, "w/2"),
        (lambda h, w: (w - 1) / 2, "(w - 1)/2"),
        (lambda h, w: -w / 2, "-w/2"),
        (lambda h, w: h / w, "h/w"),
        (lambda h, w: (h - 1) / (w - 1), "(h - 1)/(w - 1)"),
        (lambda h, w: 1 / (h * w), "1/(h*w)"),
        (lambda h, w: 1 - 1 / h, "(h - 1)/h"),
        (lambda h, w: -(-h // 2) / h, "((h - 1)//2 + 1)/h"),
        (lambda h, w: math.log(h), "log(h)"),
        (lambda h, w: math.log(h / w), "log(h/w)"),
        (lambda h, w: math.log2(h), "1.4426950408889634*log(h)"),
        (lambda h, w: math.log10(h), "0.43429448190325176*log(h)"),
        (lambda h, w: 0.3 * w, "3*w/10"),
        (lambda h, w: 0.37 * w, "0.37*w"),
        (lambda h, w: 1e-5 / w, "1e-05/w"),
        (lambda h, w: 0.7 * math.sqrt(w / h), "0.7*sqrt(w)/sqrt(h)"),
        (lambda h, w: 0.7 * math.log(w), "0.7*log(w)"),
    ],
)
def test_real_numbers(
    compute: Callable[[int, int], float], text: str, rounded: Callable[[float], float]
) -> None:
    rows = rows_of("h", "w")
    values = [rounded(compute(**row)) for row in rows]
    found = fit_real(rows, values)
    assert found is not None and str(found) == text
    assert hash(found) == hash(fit_real(rows, values))
    unseen = {"h": 101, "w": 128}
    assert found.evaluate(unseen) == pytest.approx(compute(**unseen), rel=1e-6)


def test_a_factor_that_is_not_short_is_kept() -> None:
    rows = rows_of("h", "w")
    found = fit_real(rows, [math.log(row["h"]) / math.log(512) for row in rows])
    assert found is not None and found.kind == "log"
    assert found.factor == pytest.approx(1 / math.log(512), rel=1e-14)


def test_a_real_number_over_an_atom() -> None:
    rows = rows_of("h", "w")
    blocks = ceildiv(Expr.of("h"), 7)
    found = fit_real(rows, [blocks.evaluate(row) ** -0.5 for row in rows], [blocks])
    assert found == Real("root", Expr.of(1), blocks)


@pytest.mark.parametrize(
    "values",
    [
        [math.nan] * 5,
        [1.0, math.inf, 1.0, 1.0, 1.0],
        [0.1, 0.7, 0.31, 0.77, 0.123],
        [0.0, 0.5, 0.0, -0.5, 1e300],
        [1e300, 2e300, 1e308, 5e307, 1e10],
        [5e-324, 1e-310, 0.0, 1.0, -1.0],
    ],
)
def test_what_is_no_function_of_the_sizes_is_refused(values: list[float]) -> None:
    assert fit_real([{"n": size} for size in (7, 13, 17, 29, 40)], values) is None


def test_a_single_row_tells_no_real_number() -> None:
    assert fit_real([{"n": 7}], [0.5]) is None
    assert fit_real([], []) is None
    assert fit_real([{}], [0.5]) == Real("ratio", Expr.of(1), factor=0.5)
