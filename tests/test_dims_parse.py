"""Reading expressions, shapes, ranges and inputs; every mistake points at its character."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anyshape.dims import Expr, InputText, Range, parse_expr, parse_input, parse_range, parse_shape
from anyshape.errors import ParseError

A, B, H, N = (Expr.of(name) for name in ("a", "b", "h", "n"))


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("7", Expr.of(7)),
        (" a ", A),
        ("a+b*2", A + 2 * B),
        ("(a + b)*2", 2 * A + 2 * B),
        ("a - b - 1", A - B - 1),
        ("-a//2", -A // 2),
        ("-a**2", -(A**2)),
        ("2*a//3*b", ((2 * A) // 3) * B),
        ("a % 8", A % 8),
        ("--a", A),
        ("ceildiv(h, 4)", (H - 1) // 4 + 1),
        ("max", Expr.of("max")),
    ],
)
def test_expressions(text: str, expr: Expr) -> None:
    assert parse_expr(text) == expr


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", ()),
        ("()", ()),
        ("[ ]", ()),
        ("a", (A,)),
        ("a, 3", (A, Expr.of(3))),
        ("(a, b)", (A, B)),
        ("(a,)", (A,)),
        ("(a)", (A,)),
        ("[a, b]", (A, B)),
        ("(a + b)//2, b", ((A + B) // 2, B)),
        ("((a + b)//2, b)", ((A + B) // 2, B)),
        ("max(a, b), None, _, ?", (parse_expr("max(a, b)"), None, None, None)),
        ("(a)*(b)", (A * B,)),
    ],
)
def test_shapes(text: str, shape: tuple[Expr | None, ...]) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("1..512", Range(1, 512)),
        ("1..", Range(1)),
        ("..512", Range(0, 512)),
        (">=1", Range(1)),
        ("<= 512", Range(0, 512)),
        (">0", Range(1)),
        ("<9", Range(0, 8)),
        ("16", Range(16, 16)),
    ],
)
def test_ranges(text: str, limits: Range) -> None:
    assert parse_range(text) == limits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "tokens=int64[batch=2,seq=16]<1000",
            InputText("tokens", "int64", (("batch", 2), ("seq", 16)), 1000),
        ),
        ("past.0.k=float32[batch = 2, 3]", InputText("past.0.k", "float32", (("batch", 2), (None, 3)))),
        ("scale=float32[]", InputText("scale", "float32", ())),
    ],
)
def test_inputs(text: str, expected: InputText) -> None:
    assert parse_input(text) == expected


_INPUT = "Write an input as tokens=int64[batch=2,seq=16]."
_RANGE = "Write 1..512, >=1, <=512 or 16."
_DIM = "A dim is a name, an integer or an expression of them."
_JOIN = "Join them with one of + - * // %."
_FUNCTIONS = "The functions are max, min, isqrt, log2, ceildiv. To multiply, write"


@pytest.mark.parametrize(
    ("parse", "text", "position", "problem", "hint"),
    [
        (parse_expr, "h/2", 1, "'/' does not divide sizes exactly", "Use // (floor division)."),
        (parse_shape, "b, h/2", 4, "'/' does not divide sizes exactly", "Use // (floor division)."),
        (parse_expr, "/2", 0, "'/' does not divide sizes exactly", "Use // (floor division)."),
        (parse_shape, "batch seq", 6, "expected ',' before 'seq'", "Write batch, seq."),
        (parse_shape, "[batch seq]", 7, "expected ',' before 'seq'", "Write batch, seq."),
        (parse_shape, "(a, b) c", 7, "expected ',' before 'c'", "Write ), c."),
        (parse_expr, "batch seq", 6, "an operator is missing between two values", _JOIN),
        (parse_expr, "(batch seq)", 7, "an operator is missing between two values", _JOIN),
        (parse_expr, "(a + b", 0, "'(' is never closed", ""),
        (parse_shape, "[a, b", 0, "'[' is never closed", ""),
        (parse_shape, "(a, b", 0, "'(' is never closed", ""),
        (parse_shape, "a, (b", 3, "'(' is never closed", ""),
        (parse_expr, "a)", 1, "')' closes nothing", ""),
        (parse_shape, "a, b]", 4, "']' closes nothing", ""),
        (
            parse_shape,
            "batch,,seq",
            6,
            "a dim is missing before ','",
            "Write None for a dim that varies and has no name.",
        ),
        (parse_expr, "1.5", 0, "1.5 is not a whole number", "Sizes are integers."),
        (parse_shape, "b, 1.5*h", 3, "1.5 is not a whole number", "Sizes are integers."),
        (parse_shape, "h 1e3", 2, "1e3 is not a whole number", "Sizes are integers."),
        (parse_range, "1.5..3", 0, "1.5 is not a whole number", "Sizes are integers."),
        (parse_shape, "b, h$", 4, "'$' can't be part of a shape", ""),
        (parse_expr, "floor(h)", 0, "floor is not a function", f"{_FUNCTIONS} floor*(...)."),
        (parse_expr, "isqrt(a, b)", 0, "isqrt takes 1 value, not 2", ""),
        (parse_expr, "ceildiv(a)", 0, "ceildiv takes 2 values, not 1", ""),
        (parse_expr, "1 + log2(0)", 4, "log2(0) is not defined: 0 is not positive", ""),
        (parse_expr, "isqrt(-4)", 0, "isqrt(-4) is not defined: -4 is negative", ""),
        (parse_expr, "ceildiv(a, 0)", 0, "division of -a by zero", ""),
        (parse_expr, "a//0", 3, "division by zero", ""),
        (parse_expr, "2x", 1, "'*' is missing after a number", "Write 2*x."),
        (parse_shape, "2 h", 2, "'*' is missing after a number", "Write 2*h."),
        (parse_shape, "b, 2 x h", 5, "'*' is missing after a number", "Write 2*h."),
        (parse_expr, "", 0, "expected a dim, found the end", _DIM),
        (parse_expr, "a + * b", 4, "expected a dim, found '*'", _DIM),
        (parse_expr, "a**b", 3, "expected a whole number after '**'", "Write a power as g**2."),
        (parse_expr, "a**99", 3, "the power of a dim must be between 0 and 64, not 99", ""),
        (parse_range, "5..3", 0, "no size is both at least 5 and at most 3", ""),
        (parse_range, "<0", 0, "no size is both at least 0 and at most -1", ""),
        (parse_range, "-1..3", 0, "a size can't be negative", ""),
        (parse_range, "", 0, "expected a size", _RANGE),
        (parse_range, "1..n", 3, "expected a size", _RANGE),
        (parse_range, "1..3, 5", 4, "the range has ended before ','", _RANGE),
        (parse_input, "tokens", 6, "expected '=' after the name of the input", _INPUT),
        (parse_input, "to ks=int64[]", 2, "' ' can't be part of the name of an input", _INPUT),
        (parse_input, "=int64[]", 0, "the name of the input is missing", _INPUT),
        (parse_input, "t=[2]", 2, "expected a dtype, such as float32", _INPUT),
        (parse_input, "t=int64", 7, "expected '[' with the sizes after 'int64'", _INPUT),
        (parse_input, "t=int64[seq]", 11, "seq needs a size", "Write seq=16."),
        (parse_input, "t=int64[seq=n]", 12, "expected the size of seq", "Write seq=16, or 3 if it is fixed."),
        (parse_input, "t=int64[-1]", 8, "a size can't be negative", ""),
        (parse_input, "t=int64[2 3]", 10, "expected ',' or ']' before '3'", ""),
        (parse_input, "t=int64[2", 7, "'[' is never closed", ""),
        (parse_input, "t=int64[2]<n", 11, "expected an integer after '<'", "Values will be below it."),
        (parse_input, "t=int64[2] 3", 11, "the input has ended here", "Only <limit may follow the sizes."),
    ],
)
def test_mistakes(parse: Callable[[str], object], text: str, position: int, problem: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert (caught.value.what.splitlines()[0], caught.value.position) == (problem, position)
    assert caught.value.hint == hint
