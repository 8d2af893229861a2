"""The line of a class that sets an attribute: read off the source of its methods."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Iterator

from anyshape.errors import SourceLine
from anyshape.source.lines import line_at

__all__ = ["line_that_sets"]

BUILDERS = ("__init__", "__post_init__", "__new__", "extra_repr")  # they set it, but once


def line_that_sets(kind: type, name: str) -> SourceLine | None:
    """The first line of a method, not of a constructor, that sets ``self.name``, or else changes what is in it."""
    for find in (_sets, _changes, _holds):
        for function in _methods(kind):
            path, first = function.__code__.co_filename, function.__code__.co_firstlineno
            for node in _nodes(path, first):
                if find(node, name):
                    return line_at(path, node.lineno)
    return None


def _methods(kind: type) -> Iterator[types.FunctionType]:
    """The functions of a class and those above it, with what decorators put around them."""
    for above in kind.__mro__:
        pending = [value for name, value in vars(above).items() if name not in BUILDERS]
        seen: set[int] = set()
        while pending:
            function = pending.pop(0)
            if id(function) in seen:
                continue
            seen.add(id(function))
            if isinstance(function, types.FunctionType):
                yield function
                pending += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
            pending += [getattr(function, name) for name in INNER if hasattr(function, name)]


INNER = ("__wrapped__", "__func__", "fget")


def _is_filled(cell: types.CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, types.FunctionType)
    except ValueError:  # what it is of was not set yet
        return False


@functools.lru_cache(maxsize=64)
def _tree(path: str) -> tuple[ast.stmt | ast.expr, ...]:
    """The statements and expressions of a file, in the order of its lines."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr))]
    return tuple(sorted(nodes, key=lambda node: (node.lineno, node.col_offset)))


def _nodes(path: str, first: int) -> Iterator[ast.stmt | ast.expr]:
    """What stands in the function that begins at a line, a decorator's or its own."""
    nodes = _tree(path)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    own = [node for node in nodes if isinstance(node, functions) and _first_line(node) == first]
    for function in own:
        last = function.end_lineno or function.lineno
        yield from (node for node in nodes if first <= node.lineno <= last)


def _first_line(node: ast.stmt | ast.expr) -> int:
    above: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(node.lineno, *(part.lineno for part in above), node.lineno)


def _is_attribute(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name)


def _sets(node: ast.AST, name: str) -> bool:
    """``self.name = ...``, ``self.name += 1``, ``del self.name``, ``self.register_buffer("name", ...)``"""
    if isinstance(node, ast.Attribute):
        return _is_attribute(node, name) and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and node.args and isinstance(node.func, (ast.Attribute, ast.Name)):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        given = [part.value for part in node.args[:2] if isinstance(part, ast.Constant)]
        return name in given and called.startswith(("register_", "add_module", "setattr", "delattr"))
    return False


def _changes(node: ast.AST, name: str) -> bool:
    """``self.name[...] = ...``, ``self.name.append(...)``, ``self.name.data.copy_(...)``"""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and _is_inside(node.func.value, name)
    if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        return _is_inside(node.value, name)
    return False


def _is_inside(node: ast.AST, name: str) -> bool:
    while not _is_attribute(node, name):
        if not isinstance(node, (ast.Attribute, ast.Subscript)):
            return False
        node = node.value
    return True


def _holds(node: ast.AST, name: str) -> bool:
    """Any other mention of it."""
    return _is_attribute(node, name)
