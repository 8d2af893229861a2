"""Which expressions of a file are literals, and where exactly they stand."""

from __future__ import annotations

import ast
import os

import pytest

from anyshape.source.literals.marks import HOOK, mark


def marks(source: str) -> list[str]:
    """The literals of a source as ``kind text``, as they stand in the file; its code compiles."""
    tree = ast.parse(source)
    literals = mark(tree, "net.py", source)
    compile(tree, "net.py", "exec")
    assert ast.unparse(tree).count(HOOK) >= len(literals) - sum(
        s.kind == "default" for s in literals.values()
    )
    found = sorted(literals.values(), key=lambda literal: (literal.line, literal.column))
    return [f"{literal.kind} {literal.text}" for literal in found]


def in_function(body: str, signature: str = "self, x") -> list[str]:
    return marks(
        f"def forward({signature}):\n" + "\n".join(f"    {line}" for line in body.split("\n")) + "\n"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x.view(6, -1, 1, 0, 2.0, True, 'a')", ["literal 6", "literal 1"]),
        ("x.view((4, 6), [8])", ["literal 4", "literal 6", "literal 8"]),
        ("x.transpose(-2, -3)", ["literal 2", "literal 3"]),
        ("x[:, :6, ..., 2]", ["literal 6", "literal 2"]),
        ("for i in range(6): x = x.sum(dim=3)", ["literal 6", "literal 3"]),
        ("x[:, 3:5] = 7", ["literal 3", "literal 5", "literal 7"]),
        ("y: Wide[3] = 4", ["literal 4"]),
        ("y: Wide[3]", []),
        ("y = x if 3 < 4 else None", ["literal 3", "literal 4"]),
    ],
)
def test_literals(body: str, expected: list[str]) -> None:
    assert in_function(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x.view(self.seq)", ["attribute self.seq"]),
        ("x.view(self.config.model.n)", ["attribute self.config.model.n"]),
        ("x.view(self.sizes[0], self.sizes[-1])", ["attribute self.sizes[0]", "attribute self.sizes[-1]"]),
        ("x.view(self.sizes['n'].deep[2])", ["attribute self.sizes['n'].deep[2]"]),
        ("self.layers[2](x)", ["literal 2"]),
        ("self.layer.inner(x).more", []),
        ("self.find(self.n).size[3]", ["attribute self.n", "literal 3"]),
        ("x.shape, x.shape[2], self.table.shape[0], x.ndim, x.device.index, x.dtype", ["literal 2"]),
        ("x.shape[self.axis]", ["attribute self.axis"]),
        ("x.rows[4].shape", ["literal 4"]),
        ("self.seen = 5\nself.seen += self.step", ["literal 5", "attribute self.step"]),
        ("self.cache[self.at] = 5", ["attribute self.cache", "attribute self.at", "literal 5"]),
    ],
)
def test_attributes(body: str, expected: list[str]) -> None:
    assert in_function(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x.view(SEQ)", ["global SEQ"]),
        ("x.view(SIZES[1])", ["global SIZES[1]"]),
        ("x.view(SIZES[1].n)", ["attribute SIZES[1].n"]),
        ("x.view(len, int)", []),
        ("pool(x)", []),
        ("n = 3\nx.view(n)", ["literal 3"]),
        ("rows = [3]\nx.view(rows[2])", ["literal 3", "literal 2"]),
        ("import numpy as np, a.b\nf(np, a)", []),
        ("try: pass\nexcept Wrong as error: f(error)", ["global Wrong"]),
        ("match x:\n    case [3, *rest] if rest: f(rest)\n    case {4: b, **more}: f(b, more)", []),
        ("match x:\n    case {'a': 5} as got if 6: f(got)", ["literal 6"]),
        ("with opened as (a, b): f(a, b)", ["global opened"]),
        (
            "f([i for i in x], {j: 2 for j in OTHERS}, (y for row in x for y in row))",
            ["literal 2", "global OTHERS"],
        ),
        ("[(last := i) for i in x]\nf(last)", []),
        ("[i for i in x]\nf(i)", ["global i"]),
        ("global n\nn = 3\nf(n)", ["literal 3", "global n"]),
        ("f(__file__, __debug__)", []),
    ],
)
def test_names(body: str, expected: list[str]) -> None:
    assert in_function(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("f'{4:>8} {self.n}'", []),
        ("del x[3]", []),
        ("'6'", []),
        ("@keep(3)\ndef inner(a: Wide[4] = CALL(5)) -> Wide[6]: pass", []),
        ("class Inner(Base[2]):\n    size = 3\n    __slots__ = ('a',)", []),
        ("class Inner:\n    size = 3\n    def get(self): return size", ["global size"]),
        ("def inner():\n    nonlocal x\n    x = 3", ["literal 3"]),
    ],
)
def test_what_is_left_alone(body: str, expected: list[str]) -> None:
    assert in_function(body) == expected


def test_closures() -> None:
    assert in_function("n = x.shape[0]\nreturn lambda a: a.view(n, other)") == ["closure n", "global other"]
    assert in_function("sizes = x.sizes()\ndef inner(): return sizes[0]") == ["closure sizes[0]"]
    assert in_function("n = f()\nreturn [n for _ in x]") == []


def test_defaults_are_one_literal_where_the_default_stands() -> None:
    signature = "x, n=4, *, sizes=(32, 48), rest=[2], flag=True, one=1, name=SEQ, none=None"
    found = in_function(
        "return x.view(n, n, *sizes, *rest, flag, one, name, none), [n for _ in x]", signature
    )
    assert found == ["default 4", "default (32, 48)", "default [2]", "default 1"]
    assert in_function("return lambda: n", "n=4") == ["default 4"]
    assert in_function("return lambda n=4: n", "n") == ["default 4"]
    assert in_function("class Inner: size = n\nreturn Inner", "n=4") == ["default 4"]
    assert in_function("n = n or 3\nreturn n", "n=4") == ["literal 3"]  # from then on it is another number


def test_what_runs_at_import_is_no_literal() -> None:
    source = (
        "SEQ = 6\nclass Net:\n    size = SEQ\n    act = lambda x: x.view(8)\nrows = [9 for _ in range(7)]\n"
    )
    assert marks(source) == ["literal 8"]


def test_async_functions() -> None:
    assert marks("async def f(x):\n    await x.wait(5)\n") == ["literal 5"]


def test_spans_count_characters() -> None:
    source = (
        "class Net:\n    def forward(self, x):\n        return 'größe', x.view(self\n            .seq, 16)\n"
    )
    attribute, literal = mark(ast.parse(source), "net.py", source).values()
    assert (attribute.line, attribute.column, attribute.end_line, attribute.end_column) == (3, 31, 4, 16)
    assert attribute.text == "self\n            .seq"
    assert (literal.line, literal.column, literal.end_line, literal.end_column) == (4, 18, 4, 20)
    assert literal.text == "16" and literal.function == "Net.forward"
    assert literal.file == os.path.abspath("net.py")


def test_functions_have_their_qualified_names() -> None:
    source = """
class Net:
    def make(self, n=5):
        class Inner:
            def get(self):
                return [lambda: 6 for _ in self]
        return n
"""
    found = mark(ast.parse(source), "net.py", source).values()
    assert {literal.text: literal.function for literal in found} == {
        "5": "Net.make",
        "6": "Net.make.<locals>.Inner.get.<locals>.<lambda>",
    }
