"""Expressions, ranges, bounds and comparisons."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import anyshape.dims
from anyshape.dims import (
    Expr,
    Range,
    Relation,
    bounds,
    ceildiv,
    equal,
    isqrt,
    less,
    less_equal,
    log2,
    maximum,
    minimum,
    not_equal,
    parse_range,
)
from anyshape.errors import UsageError

A, B, G, H, N, S = (Expr.of(name) for name in ("a", "b", "g", "h", "n", "s"))
PAST, SEQ = Expr.of("past"), Expr.of("seq")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Expr.of("batch"), "batch"),
        (32 * H, "32*h"),
        (SEQ + PAST, "past + seq"),
        (SEQ - 1, "seq - 1"),
        ((H - 1) // 4 + 1, "(h - 1)//4 + 1"),
        (B * 2 * A, "2*a*b"),
        (G**2, "g**2"),
        (maximum(N // 3, 1), "max(1, n//3)"),
        (N % 8, "n % 8"),
        (8 - N % 8, "8 - n % 8"),
        (isqrt(N), "isqrt(n)"),
        (log2(N), "log2(n)"),
        (Expr.of(0), "0"),
        (-N, "-n"),
        (-(N // 3), "-(n//3)"),
        (-2 * (N // 3), "-2*(n//3)"),
        (A * (N // 3), "a*(n//3)"),
        ((N // 3) ** 2, "(n//3)**2"),
        ((2 * N) // 3, "(2*n)//3"),
        (N // (2 * A), "n//(2*a)"),
        (1 + N + N**2, "n**2 + n + 1"),
        (B - A + 1, "b - a + 1"),
        (ceildiv(H, 4), "(h - 1)//4 + 1"),
        (-N % 8, "(-n) % 8"),
        ((N % 8) // 3, "(n % 8)//3"),
        (7 // N, "7//n"),
        (-7 % N, "(-7) % n"),
    ],
)
def test_text(expr: Expr, text: str) -> None:
    assert str(expr) == text


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (N // 1, N),
        (N % 1, Expr.of(0)),
        (4 * N // 4, N),
        ((4 * N + 7) // 4, N + 1),
        ((4 * N + S) // 4, N + S // 4),
        (2 * N // 4, N // 2),
        ((2 * N + 1) // 4, N // 2),
        ((H + 3) // 4, (H - 1) // 4 + 1),
        (-(-H // 4), ceildiv(H, 4)),
        (N // 2 // 3, N // 6),
        (((H - 1) // 2 + 1 - 1) // 2 + 1, (H - 1) // 4 + 1),
        (N // -3, -N // 3),
        (N % -3, -(-N % 3)),
        ((8 * N + 3) % 8, Expr.of(3)),
        ((9 * N + 8) % 8, N % 8),
        ((2 * N + 1) % 4, 2 * (N % 2) + 1),
        ((A * B + 3) // A, B + 3 // A),
        ((A * B + 3) % A, 3 % A),
        (A * B // B, A),
        (2 * A // (2 * B), A // B),
        (A * B % B, Expr.of(0)),
        (2 * A % (2 * B), 2 * (A % B)),
        (maximum(1, 3, 2), Expr.of(3)),
        (maximum(N, maximum(S, 1), 2), maximum(2, S, N)),
        (maximum(N, N + 1), N + 1),
        (minimum(N, N + 1, 7), minimum(7, N)),
        (minimum(N), N),
        (isqrt(9 * G**2), 3 * G),
        (N - N, Expr.of(0)),
        (N**0, Expr.of(1)),
        ((N + 1) ** 2, N**2 + 2 * N + 1),
        (3 - N, -(N - 3)),
        (Expr.of(True), Expr.of(1)),
    ],
)
def test_equal_forms(left: Expr, right: Expr) -> None:
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)


def test_properties() -> None:
    expr = PAST + 2 * (SEQ // 2) + 1
    assert expr.names == {"past", "seq"}
    assert (expr.constant, expr.name) == (None, None)
    assert (Expr.of(7).constant, Expr.of(0).constant, SEQ.name) == (7, 0, "seq")
    assert (2 * SEQ).name is None
    assert pickle.loads(pickle.dumps(expr)) == expr
    assert repr(expr) == "Expr(past + 2*(seq//2) + 1)"


def test_evaluate() -> None:
    expr = maximum(1, N // 3) + minimum(N, 2) * isqrt(N) + log2(N) + N % 4 - G**2
    assert expr.evaluate({"n": 11, "g": 2}) == 3 + 2 * 3 + 3 + 3 - 4
    with pytest.raises(KeyError, match="seq"):
        (PAST + SEQ).evaluate({"past": 1})
    with pytest.raises(ZeroDivisionError):
        (N // S).evaluate({"n": 1, "s": 0})


def test_substitute_is_simultaneous_and_simplifies() -> None:
    assert (A - B).substitute({"a": B, "b": A}) == B - A
    assert ((N - 1) // 4 + N % 4).substitute({"n": 4 * A + 1}) == A + 1
    assert maximum(1, N).substitute({"n": 5}) == Expr.of(5)


def test_affine() -> None:
    assert (PAST + 2 * SEQ - 3).affine() == ({"past": 1, "seq": 2}, -3)
    assert Expr.of(4).affine() == ({}, 4)
    assert (A * B).affine() is None
    assert (G**2).affine() is None
    assert (N // 2).affine() is None


def test_squared() -> None:
    assert (G**2).squared() == (G, 0)
    assert (4 * G**2 + 1).squared() == (2 * G, 1)
    assert ((3 * G - 2) ** 2 + 5).squared() == (3 * G - 2, 5)
    for other in (Expr.of(4), N, 3 * G**2, G**2 + G, -(G**2), G**3, G**2 + N, A * B, (N // 2) ** 2):
        assert other.squared() is None


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (
            lambda: Expr.of("32*h"),
            UsageError,
            "'32*h' is not a dim name\nUse parse_expr to read an expression.",
        ),
        (lambda: Expr.of(1.5), UsageError, "1.5 is not a dim: expected an integer, a name or an expression"),
        (lambda: N**-1, UsageError, "the power of a dim must be between 0 and 64, not -1"),
        (lambda: N**65, UsageError, "the power of a dim must be between 0 and 64, not 65"),
        (lambda: N // 0, ZeroDivisionError, "division of n by zero"),
        (lambda: N % 0, ZeroDivisionError, "division of n by zero"),
        (lambda: isqrt(-1), ValueError, "isqrt(-1) is not defined: -1 is negative"),
        (lambda: log2(0), ValueError, "log2(0) is not defined: 0 is not positive"),
        (lambda: maximum(), UsageError, "max() needs at least one value"),
        (lambda: Range(-1), UsageError, "a size can't be negative: the minimum is -1"),
        (lambda: Range(5, 3), UsageError, "the range 5..3 is empty"),
        (lambda: Relation(N, ">", S), UsageError, "'>' is not a comparison: expected one of <=, <, ==, !="),
    ],
)
def test_messages(act: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        act()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "act",
    [lambda: N + 1.5, lambda: N - "s", lambda: N * "s", lambda: N // 1.5, lambda: N % 1.5, lambda: N**1.5],
)
def test_other_operands_are_refused(act: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        act()


def test_range() -> None:
    assert Range(1, 8).intersect(Range(4)) == Range(4, 8)
    assert Range(1, 3).intersect(Range(4)) is None
    assert Range().contains(0)
    assert not Range(1, 8).contains(9)
    for limits in (Range(), Range(1), Range(0, 5), Range(1, 512), Range(5, 5)):
        assert parse_range(limits.text()) == limits


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (2 * N + 1, (3, 17)),
        (-N, (-8, -1)),
        (S, (0, None)),
        (N - S, (None, 8)),
        (N % 4, (0, 3)),
        (N % 9, (1, 8)),
        (N % S, (0, 8)),
        (N // 3, (0, 2)),
        (S // N, (0, None)),
        (8 // N, (1, 8)),
        (N // S, (0, 8)),
        (-N // S, (-8, -1)),
        (N // (S - 3), (-8, 8)),
        (maximum(4, N), (4, 8)),
        (minimum(4, S), (0, 4)),
        (isqrt(N), (1, 2)),
        (isqrt(S), (0, None)),
        (log2(N), (0, 3)),
        (N**2, (1, 64)),
        ((S - N) % 2, (0, 1)),
        (S**2 - S, (None, None)),
        (S * N - S, (0, None)),
        (S - S // 2, (0, None)),
        (Expr.of(10**400) + S, (10**400, None)),
        (isqrt(-N - S), (None, None)),
        (log2(-N - S), (None, None)),
        (maximum(S - 5, -3) ** 2, (0, None)),
        (minimum(N - 5, 2) ** 3, (-64, 8)),
        (N % (-S - 1), (None, 0)),
    ],
)
def test_bounds(expr: Expr, expected: tuple[int | None, int | None]) -> None:
    assert bounds(expr, {"n": Range(1, 8), "s": Range()}) == expected


def test_comparisons_never_guess() -> None:
    ranges = {"n": Range(1, 8), "b": Range(1), "s": Range(1)}
    assert less_equal(S, S + 1, {}) is True
    assert less_equal(N, 8, ranges) is True
    assert less_equal(9, N, ranges) is False
    assert less_equal(N, 4, ranges) is None
    assert less_equal(B, B * S, ranges) is True
    assert less_equal(N // 2, N, ranges) is True
    assert less(N, 9, ranges) is True
    assert less(N, 1, ranges) is False
    assert less(N, 8, ranges) is None
    assert equal(A + B, B + A, {}) is True
    assert equal(N, 0, ranges) is False
    assert equal(2 * A, 2 * S + 1, {}) is False
    assert equal(A, B, {}) is None
    assert not_equal(N, 0, ranges) is True
    assert not_equal(N, N, ranges) is False
    assert not_equal(N, 3, ranges) is None


@pytest.mark.parametrize(
    ("op", "at_less", "at_equal", "decided"),
    [
        ("<=", True, True, True),
        ("<", True, False, None),
        ("==", False, True, None),
        ("!=", True, False, None),
    ],
)
def test_relation(op: str, at_less: bool, at_equal: bool, decided: bool | None) -> None:
    relation = Relation(A, op, B)
    assert str(relation) == f"a {op} b"
    assert relation.names == {"a", "b"}
    assert relation.holds({"a": 1, "b": 2}) is at_less
    assert relation.holds({"a": 2, "b": 2}) is at_equal
    assert relation.decide({"a": Range(0, 3), "b": Range(3)}) is decided


def test_all_lists_what_is_there() -> None:
    assert anyshape.dims.__all__ == sorted(anyshape.dims.__all__)
    assert all(hasattr(anyshape.dims, name) for name in anyshape.dims.__all__)
