"""Which loop or branch a line of source is the head of, or stands in: read off its file."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator

from anyshape.errors import SourceLine
from anyshape.source.lines import line_at, path_of

__all__ = ["head_of", "loop_around"]

Span = tuple[
    str, int, int, int
]  # of a loop or branch: its kind, its head's first and last line, its last line
LOOPS = ("for", "while")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def head_of(where: SourceLine) -> str:
    """``for``, ``while`` or ``if`` where the line decides how often, or whether, others are run; else nothing."""
    spans = [span for span in _spans(path_of(where)) if span[1] <= where.line <= span[2]]
    return min(spans, key=lambda span: span[2] - span[1])[0] if spans else ""


def loop_around(where: SourceLine) -> SourceLine | None:
    """The head of the innermost loop that the line stands in, if there is one in the same function."""
    path = path_of(where)
    inside = [span for span in _spans(path) if span[1] <= where.line <= span[3]]
    functions = [span for span in inside if span[0] == "def"]
    loops = [span for span in inside if span[0] in LOOPS]
    innermost = max(loops, key=lambda span: span[1], default=None)
    if innermost is None or any(span[1] > innermost[1] for span in functions):
        return None
    return line_at(path, innermost[1])


@functools.lru_cache(maxsize=256)
def _spans(path: str) -> tuple[Span, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(span for node in ast.walk(tree) for span in _of(node))


def _of(node: ast.AST) -> Iterator[Span]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield "for", node.lineno, node.iter.end_lineno or node.lineno, node.end_lineno or node.lineno
    elif isinstance(node, (ast.While, ast.If, ast.IfExp)):
        kind = "while" if isinstance(node, ast.While) else "if"
        first = node.test.lineno
        yield kind, first, node.test.end_lineno or first, node.end_lineno or first
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        for part in node.generators:
            yield "for", part.iter.lineno, part.iter.end_lineno or part.iter.lineno, node.end_lineno or 0
    elif isinstance(node, FUNCTIONS):
        yield "def", node.lineno, node.lineno - 1, node.end_lineno or node.lineno
