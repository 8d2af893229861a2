"""Reading dims, shapes, ranges and command-line inputs from text, without `eval`.

::

    shape   := "" | "(" items? ")" | "[" items? "]" | items
    items   := item ("," item)* ","?
    item    := "None" | "_" | "?" | expr
    expr    := term (("+" | "-") term)*
    term    := unary (("*" | "//" | "%") unary)*
    unary   := "-" unary | power
    power   := primary ("**" integer)?
    primary := integer | name | function "(" expr ("," expr)* ")" | "(" expr ")"
    function := "max" | "min" | "isqrt" | "log2" | "ceildiv"

    range   := integer | integer ".." integer? | ".." integer | (">=" | "<=" | ">" | "<") integer

    input   := path "=" dtype "[" (size ("," size)*)? "]" ("<" integer)?
    size    := name "=" integer | integer

Every mistake is a `ParseError` that points at the character. A text may come from anyone's file, so its length,
its nesting, its numbers and what it multiplies out to are bounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from anyshape.dims.bounds import Range
from anyshape.dims.expr import Atom, Call, Expr, ceildiv, isqrt, log2, maximum, minimum
from anyshape.dims.names import is_reserved
from anyshape.errors import ParseError, UsageError

__all__ = ["InputText", "parse_expr", "parse_input", "parse_range", "parse_shape"]

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<float>\d+\.\d+|\d+\.(?!\.)|\d+[eE][+-]?\d+)|(?P<integer>\d+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<symbol>\*\*|//|\.\.|<=|>=|[-+*%(),\[\]?<>=/])"
)
_LONGEST_TEXT = 20_000
_DEEPEST = 40
_MOST_DIGITS = 19
_MOST_TERMS = 256
_LARGEST_DEGREE = 64
_LARGEST_COEFFICIENT = 2**64
_LONGEST_CALLS = 100_000  # (n//2 + 1)**2//2 has its n//2 twice: nesting that doubles the text each time
_UNNAMED = ("None", "_", "?")
_CLOSING = {"(": ")", "[": "]"}
_OPERATORS = "+ - * // %"
# How many values each function takes; None is one or more.
_FUNCTIONS: dict[str, tuple[Callable[..., Expr], int | None]] = {
    "max": (maximum, None),
    "min": (minimum, None),
    "isqrt": (isqrt, 1),
    "log2": (log2, 1),
    "ceildiv": (ceildiv, 2),
}


@dataclass(frozen=True, slots=True)
class InputText:
    """One input as given on the command line: its path, dtype, sizes, and a limit for its values."""

    path: str
    dtype: str
    dims: tuple[tuple[str | None, int], ...]
    below: int | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_expr(text: str) -> Expr:
    """The expression that the text says.

    >>> parse_expr("2*(past + seq)"), parse_expr("max(1, n//3)")
    (Expr(2*past + 2*seq), Expr(max(1, n//3)))
    """
    reader = _Reader(text)
    value = reader.expr()
    reader.end("an operator is missing between two values", f"Join them with one of {_OPERATORS}.")
    return value


def parse_shape(text: str) -> tuple[Expr | None, ...]:
    """The dims of a shape; None stands for a dim that varies and has no name.

    >>> parse_shape("batch, 3, 32*h, ?")
    (Expr(batch), Expr(3), Expr(32*h), None)
    >>> parse_shape("[batch, past + seq]"), parse_shape("")
    ((Expr(batch), Expr(past + seq)), ())
    """
    reader = _Reader(text)
    opening = reader.surrounding()
    closing = ""
    if opening is not None:
        closing = _CLOSING[reader.take().text]
    items: list[Expr | None] = []
    while not reader.at("end", closing):
        if reader.at("symbol", ","):
            reader.fail("a dim is missing before ','", "Write None for a dim that varies and has no name.")
        items.append(reader.item())
        if not reader.accept(","):
            break
    if opening is not None and not reader.accept(closing):
        if reader.at("end"):
            raise ParseError(text, opening.position, f"{opening.text!r} is never closed")
        reader.missing_comma()
    if not reader.at("end"):
        reader.missing_comma()
    return tuple(items)


def parse_range(text: str) -> Range:
    """The range of sizes that the text says.

    >>> parse_range("1..512"), parse_range(">=1"), parse_range("16")
    (Range(minimum=1, maximum=512), Range(minimum=1, maximum=None), Range(minimum=16, maximum=16))
    """
    reader = _Reader(text)
    start = reader.token.position
    low, high = reader.limits()
    reader.end(f"the range has ended before {reader.token.text!r}", "Write 1..512, >=1, <=512 or 16.")
    if high is not None and high < low:
        raise ParseError(text, start, f"no size is both at least {low} and at most {high}")
    return Range(low, high)


def parse_input(text: str) -> InputText:
    """The input that a command-line argument says.

    >>> parse_input("tokens=int64[batch=2,seq=16]<1000")
    InputText(path='tokens', dtype='int64', dims=(('batch', 2), ('seq', 16)), below=1000)
    >>> parse_input("past.0.k=float32[]").dims
    ()
    """
    path, equals, _ = text.partition("=")
    example = "Write an input as tokens=int64[batch=2,seq=16]."
    if not equals:
        raise ParseError(text, len(text), "expected '=' after the name of the input", hint=example)
    for match in re.finditer(r"[^A-Za-z0-9_.]", path.strip()):
        position = len(path) - len(path.lstrip()) + match.start()
        raise ParseError(text, position, f"{match[0]!r} can't be part of the name of an input", hint=example)
    if not path.strip():
        raise ParseError(text, 0, "the name of the input is missing", hint=example)
    reader = _Reader(text, start=len(path) + 1)
    dtype = reader.expect("name", "expected a dtype, such as float32", example).text
    opening = reader.expect_symbol("[", f"expected '[' with the sizes after {dtype!r}", example)
    dims = reader.sizes(opening)
    below = None
    if reader.accept("<"):
        token = reader.expect("integer", "expected an integer after '<'", "Values will be below it.")
        below = reader.number(token)
    reader.end("the input has ended here", "Only <limit may follow the sizes.")
    return InputText(path.strip(), dtype, dims, below)


class _Reader:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str, start: int = 0) -> None:
        if len(text) > _LONGEST_TEXT:
            raise ParseError(text[:40] + "...", 40, f"the text is longer than {_LONGEST_TEXT} characters")
        self.text = text
        self.tokens = _tokenize(text, start)
        self.index = 0
        self.depth = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        token = self.token
        if token.kind != "end":
            self.index += 1
        return token

    def at(self, kind: str, symbol: str = "") -> bool:
        """Whether the next token is of this kind; for `end`, also whether it is the given symbol."""
        if kind == "end":
            return self.token.kind == "end" or (symbol != "" and self.token.text == symbol)
        return self.token.kind == kind and symbol in ("", self.token.text)

    def accept(self, symbol: str) -> bool:
        if self.at("symbol", symbol):
            self.take()
            return True
        return False

    def expect(self, kind: str, problem: str, hint: str = "") -> _Token:
        if self.token.kind != kind:
            self.fail(problem, hint)
        return self.take()

    def expect_symbol(self, symbol: str, problem: str, hint: str = "") -> _Token:
        if not self.at("symbol", symbol):
            self.fail(problem, hint)
        return self.take()

    def fail(self, problem: str, hint: str = "") -> NoReturn:
        if self.token.kind == "float":
            self.fail_float()
        raise ParseError(self.text, self.token.position, problem, hint=hint)

    def fail_float(self) -> NoReturn:
        token = self.token
        raise ParseError(
            self.text, token.position, f"{token.text} is not a whole number", hint="Sizes are integers."
        )

    def end(self, problem: str, hint: str) -> None:
        """Promise that nothing is left, or say what is wrong with what is."""
        if not self.at("end"):
            self.fail_juxtaposed()
            self.fail(problem, hint)

    def fail_juxtaposed(self) -> None:
        """Raise for the mistakes that leave a token where an operator or the end should be."""
        token = self.token
        if token.text == "/":
            self.fail("'/' does not divide sizes exactly", "Use // (floor division).")
        if token.text in (")", "]"):
            self.fail(f"{token.text!r} closes nothing")
        previous = self.tokens[self.index - 1] if self.index else None
        if previous is not None and previous.kind == "integer" and token.kind == "name":
            following = self.tokens[min(self.index + 1, len(self.tokens) - 1)]
            times = token.text == "x" and following.kind in ("name", "integer")
            factor = following.text if times else token.text
            self.fail("'*' is missing after a number", f"Write {previous.text}*{factor}.")
        if token.kind == "float":
            self.fail_float()

    def missing_comma(self) -> NoReturn:
        self.fail_juxtaposed()
        previous, token = self.tokens[self.index - 1], self.token
        self.fail(f"expected ',' before {token.text!r}", f"Write {previous.text}, {token.text}.")

    def surrounding(self) -> _Token | None:
        """The first bracket if it surrounds the whole shape, and is not just part of its first dim."""
        first = self.token
        if first.text not in _CLOSING or first.text == "[":
            return first if first.text == "[" else None
        depth = 0
        for at, token in enumerate(self.tokens):
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 or (depth == 1 and token.text == ","):
                surrounds = token.text == "," or self.tokens[at + 1].kind == "end"
                return first if surrounds else None
        return first

    def item(self) -> Expr | None:
        following = self.tokens[min(self.index + 1, len(self.tokens) - 1)]
        if self.token.text in _UNNAMED and following.text in (",", ")", "]", ""):
            self.take()
            return None
        return self.expr()

    def expr(self) -> Expr:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"the expression is nested more than {_DEEPEST} deep")
        value = self.term()
        while self.token.text in ("+", "-"):
            sign = self.take()
            value = value + self.term() if sign.text == "+" else value - self.term()
            self.bounded(value, sign)
        self.depth -= 1
        return value

    def term(self) -> Expr:
        value = self.unary()
        while self.token.text in ("*", "//", "%"):
            sign = self.take()
            position = self.token.position
            factor = self.unary()
            if sign.text != "*" and factor.constant == 0:
                raise ParseError(self.text, position, "division by zero")
            value = _TERMS[sign.text](value, factor)
            self.bounded(value, sign)
        return value

    def unary(self) -> Expr:
        negative = False
        while self.accept("-"):
            negative = not negative
        return -self.power() if negative else self.power()

    def power(self) -> Expr:
        base = self.primary()
        if not self.accept("**"):
            return base
        exponent = self.expect("integer", "expected a whole number after '**'", "Write a power as g**2.")
        power = self.number(exponent)
        try:
            Expr.of("n") ** power
        except UsageError as error:
            raise ParseError(self.text, exponent.position, error.what) from None
        value = Expr.of(1)
        for _ in range(power):  # step by step: a sum to a high power has more terms than there is memory
            value = value * base
            self.bounded(value, exponent)
        return value

    def bounded(self, value: Expr, at: _Token) -> None:
        """Refuse what multiplies out to more than any shape needs, and would take long to compute."""
        if _is_too_large(value):
            raise ParseError(self.text, at.position, "the expression is too large")

    def number(self, token: _Token) -> int:
        if len(token.text) > _MOST_DIGITS:
            raise ParseError(self.text, token.position, f"a number has at most {_MOST_DIGITS} digits")
        return int(token.text)

    def primary(self) -> Expr:
        token = self.token
        if token.kind == "integer":
            return Expr.of(self.number(self.take()))
        if token.kind == "name":
            if is_reserved(token.text):
                self.fail(
                    f"{token.text} begins with an underscore",
                    "Such names are anyshape's own: choose another.",
                )
            self.take()
            return self.call(token) if self.at("symbol", "(") else Expr.of(token.text)
        if token.text == "(":
            self.take()
            value = self.expr()
            self.close(token)
            return value
        if token.text == "/":
            self.fail_juxtaposed()
        found = "the end" if token.kind == "end" else repr(token.text)
        return self.fail(
            f"expected a dim, found {found}", "A dim is a name, an integer or an expression of them."
        )

    def close(self, opening: _Token) -> None:
        if self.accept(")"):
            return
        if self.at("end") or self.token.text in (",", "]"):
            raise ParseError(self.text, opening.position, "'(' is never closed")
        self.end("an operator is missing between two values", f"Join them with one of {_OPERATORS}.")

    def call(self, name: _Token) -> Expr:
        if name.text not in _FUNCTIONS:
            known = ", ".join(_FUNCTIONS)
            hint = f"The functions are {known}. To multiply, write {name.text}*(...)."
            raise ParseError(self.text, name.position, f"{name.text} is not a function", hint=hint)
        function, count = _FUNCTIONS[name.text]
        opening = self.take()
        arguments = [self.expr()]
        while self.accept(","):
            arguments.append(self.expr())
        self.close(opening)
        if count is not None and len(arguments) != count:
            problem = f"{name.text} takes {count} value{'s' * (count > 1)}, not {len(arguments)}"
            raise ParseError(self.text, name.position, problem)
        try:
            value = function(*arguments)
        except (ValueError, ZeroDivisionError) as error:
            raise ParseError(self.text, name.position, str(error)) from None
        self.bounded(value, name)
        return value

    def limits(self) -> tuple[int, int | None]:
        token = self.token
        if token.text in (">=", "<=", ">", "<"):
            self.take()
            value = self.size()
            if token.text[0] == ">":
                return value + (token.text == ">"), None
            return 0, value - (token.text == "<")
        if self.accept(".."):
            return 0, self.size()
        low = self.size()
        if not self.accept(".."):
            return low, low
        return low, None if self.at("end") else self.size()

    def size(self) -> int:
        if self.at("symbol", "-"):
            self.fail("a size can't be negative")
        return self.number(self.expect("integer", "expected a size", "Write 1..512, >=1, <=512 or 16."))

    def sizes(self, opening: _Token) -> tuple[tuple[str | None, int], ...]:
        dims: list[tuple[str | None, int]] = []
        while not self.at("symbol", "]"):
            if self.at("end"):
                raise ParseError(self.text, opening.position, "'[' is never closed")
            if dims:
                self.expect_symbol(",", f"expected ',' or ']' before {self.token.text!r}")
            dims.append(self.named_size())
        self.take()
        return tuple(dims)

    def named_size(self) -> tuple[str | None, int]:
        name = None
        if self.at("name"):
            name = self.take().text
            self.expect_symbol("=", f"{name} needs a size", f"Write {name}=16.")
        if self.at("symbol", "-"):
            self.fail("a size can't be negative")
        size = self.expect(
            "integer", f"expected the size of {name or 'a dim'}", "Write seq=16, or 3 if it is fixed."
        )
        return name, self.number(size)


_TERMS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _is_too_large(value: Expr) -> bool:
    if len(value.terms) > _MOST_TERMS or _degree(value) > _LARGEST_DEGREE:
        return True
    calls = sum(
        len(atom.text) for monomial, _ in value.terms for atom, _ in monomial if isinstance(atom, Call)
    )
    return calls > _LONGEST_CALLS or any(abs(factor) > _LARGEST_COEFFICIENT for _, factor in value.terms)


def _degree(value: Expr) -> int:
    """How fast the value grows with its names, also inside calls: (n**8//3)**8 grows like n**64."""
    return max(
        (sum(power * _growth(atom) for atom, power in monomial) for monomial, _ in value.terms), default=0
    )


def _growth(atom: Atom) -> int:
    return 1 if isinstance(atom, str) else max(map(_degree, atom.arguments), default=0)


def _tokenize(text: str, start: int) -> list[_Token]:
    tokens: list[_Token] = []
    position = start
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ParseError(text, position, f"{text[position]!r} can't be part of a shape")
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup, match[0], position))
        position = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens
