"""Solving for dims, and saying what disagrees."""

from __future__ import annotations

import pytest

from anyshape.dims import Mismatch, bind, parse_shape, solvable
from anyshape.dims.expr import Expr


def shape(text: str) -> tuple[Expr, ...]:
    return tuple(expr for expr in parse_shape(text) if expr is not None)


def solve(*observed: tuple[str, str, list[int]]) -> dict[str, int]:
    return bind((label, shape(text), sizes) for label, text, sizes in observed)


@pytest.mark.parametrize(
    ("observed", "sizes"),
    [
        ([("x", "batch, 3, 32*h", [2, 3, 64])], {"batch": 2, "h": 2}),
        ([("x", "", [])], {}),
        ([("t", "b, seq", [2, 3]), ("m", "b, past + seq", [2, 7])], {"b": 2, "seq": 3, "past": 4}),
        ([("m", "past + seq", [7]), ("t", "seq - 1", [2])], {"past": 4, "seq": 3}),
        ([("x", "a + b, a - b", [7, 3])], {"a": 5, "b": 2}),
        ([("x", "a + b + c, a + b, b + c", [6, 3, 5])], {"a": 1, "b": 2, "c": 3}),
        ([("x", "a + b, c - a", [4, 1])], {}),
        ([("x", "g**2 + 1", [50])], {"g": 7}),
        ([("x", "n*(n+1)//2", [10])], {"n": 4}),
        ([("x", "n*(n-1)//2 + n", [10])], {"n": 4}),
        ([("x", "b, b*s", [2, 10])], {"b": 2, "s": 5}),
        ([("x", "b, b*s", [0, 0])], {"b": 0}),
        ([("x", "n//2", [3])], {}),
        ([("x", "n, (n - 1)//2 + 1", [7, 4])], {"n": 7}),
        ([("x", "n % 8", [3])], {}),
        ([("x", "100 - g**2", [36])], {"g": 8}),
        ([("x", "n + log2(n)", [9])], {"n": 7}),
        ([("x", "7//n + n", [8])], {}),
        ([("x", "log2(n - 5)", [2])], {}),
        ([("x", "a*b, a*b*c", [6, 6])], {}),
        ([("x", "b, b*s + t, s + t", [3, 11, 5])], {"b": 3, "s": 3, "t": 2}),
    ],
)
def test_bind(observed: list[tuple[str, str, list[int]]], sizes: dict[str, int]) -> None:
    assert solve(*observed) == sizes


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([("tokens", "batch, seq", [1, 2, 3])], "tokens has 3 axes, not 2: [batch, seq]"),
        ([("tokens", "batch, seq", [1])], "tokens has 1 axis, not 2: [batch, seq]"),
        ([("image", "batch, 3", [2, 4])], "image axis 1 is 4, not 3"),
        ([("tokens", "seq", [9]), ("mask", "seq", [7])], "seq is 9 in tokens but 7 in mask"),
        ([("scores", "n, n", [9, 7])], "n is 9 in scores axis 0 but 7 in scores axis 1"),
        ([("x", "2*h", [8]), ("y", "2*h", [6])], "2*h is 8 in x but 6 in y"),
        ([("image", "b, 3, 32*h", [1, 3, 33])], "image axis 2 is 33, not 32*h"),
        ([("x", "n + 5", [3])], "x axis 0 is 3, not n + 5"),
        ([("x", "n", [-1])], "n is -1 in x: a size can't be negative"),
        ([("t", "seq", [4]), ("m", "past + seq", [3])], "m axis 0 is 3, not past + seq, as seq = 4"),
        (
            [("t", "past, seq", [4, 3]), ("mask", "past + seq", [9])],
            "past + seq is 9 in mask, but past = 4 and seq = 3 make 7",
        ),
        ([("x", "n, n//2", [7, 4])], "n//2 is 4 in x, but n = 7 makes 3"),
        ([("x", "m, n, n//m", [0, 2, 4])], "n//m is 4 in x, but m = 0 and n = 2 make it undefined"),
        ([("x", "m, n//m", [0, 4])], "x axis 1 is 4, not n//m, as m = 0"),
        ([("x", "g**2", [5])], "x axis 0 is 5, not g**2"),
        ([("x", "min(n, 5)", [6])], "x axis 0 is 6, not min(5, n)"),
        (
            [("x", "a + b", [5]), ("y", "2*a + 2*b", [12])],
            "2*a + 2*b is 12 in y, but the other inputs make it 10",
        ),
        ([("x", "a + b, a - b", [5, 2])], "no sizes fit: a + b = 5 and a - b = 2 make a = 7/2"),
        ([("x", "a + b, a - b", [3, 5])], "no sizes fit: a + b = 3 and a - b = 5 make b = -1"),
    ],
)
def test_mismatch(observed: list[tuple[str, str, list[int]]], message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        solve(*observed)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        (["batch, 32*h", "batch"], {"batch", "h"}),
        (["seq", "past + seq"], {"past", "seq"}),
        (["a + b", "a - b"], {"a", "b"}),
        (["a + b"], set()),
        (["n//2", "n % 2"], set()),
        (["g**2", "n*(n-1)//2"], {"g", "n"}),
        (["b", "b*s"], {"b", "s"}),
        (["100 - g**2"], {"g"}),
        (["b", "b*s + t", "s + t"], {"b", "s", "t"}),
        (["b", "b*s + t"], {"b"}),
        (["m", "n//m + k"], {"m"}),
        (["n + log2(n)"], {"n"}),
        (["n + n//m"], set()),
        ([], set()),
    ],
)
def test_solvable(shapes: list[str], names: set[str]) -> None:
    assert solvable(map(shape, shapes)) == names
