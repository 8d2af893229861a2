"""The expressions of a source file that may hold an integer, each marked so that it is reported when it runs."""

from __future__ import annotations

import ast
import builtins
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from anyshape.errors import SourceLine
from anyshape.source.lines import line_at, line_of

__all__ = ["HOOK", "Literal", "mark"]

HOOK = "__anyshape_literal__"  # ends with two underscores: inside a class Python must not mangle it

_FOLLOWS_THE_INPUT = {"shape", "ndim", "dtype", "device"}
_BUILTINS = frozenset(dir(builtins))
_numbers = itertools.count()  # unique over all files, so that one hook serves them all


@dataclass(frozen=True, slots=True)
class Literal:
    """An expression in a source file that may hold an integer: a literal, an attribute, a name, a default.

    Lines count from 1, columns from 0 in characters; the end is the first column after the expression.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    function: str
    kind: str  # "literal", "attribute", "global", "closure" or "default"

    def at(self) -> SourceLine:
        """The line as messages show it, with this in it marked."""
        found = line_at(self.file, self.line)
        start = self.column - (
            len(line_of(self.file, self.line)) - len(line_of(self.file, self.line).lstrip())
        )
        end = start + self.end_column - self.column
        return replace(found, marks=((start, end),) if self.line == self.end_line else ())


def mark(tree: ast.Module, filename: str, source: str) -> dict[int, Literal]:
    """Puts ``__anyshape_literal__(number, expression)`` for each wanted expression; the literals by their numbers."""
    marker = _Marker(filename, source)
    marker.visit(tree)
    return marker.literals


@dataclass(slots=True)
class _Scope:
    """The names that a function, lambda or comprehension binds."""

    bound: set[str]
    declared_global: set[str] = field(default_factory=set)
    defaults: dict[str, tuple[int, Any]] = field(default_factory=dict)
    comprehension: bool = False


class _Marker(ast.NodeTransformer):
    """Walks over a file; only what runs when a function is called is marked, nothing that runs at import."""

    def __init__(self, filename: str, source: str) -> None:
        self.file = os.path.abspath(filename)
        self.lines = source.split("\n")
        self.literals: dict[int, Literal] = {}
        self.path: list[str] = []  # of names, as in a __qualname__
        self.scopes: list[_Scope] = []  # without those of classes, whose names functions don't see
        self.in_function = False

    # --- Which name is whose ----------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer = self.path, self.in_function
        self.path, self.in_function = [*self.path, node.name], False
        node.body = [self.visit(statement) for statement in node.body]
        self.path, self.in_function = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node, node.name, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node, node.name, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._function(node, "<lambda>", [node.body])

    def _function(self, node: Any, name: str, body: list[Any]) -> ast.AST:
        """Only the body: decorators, defaults and annotations run when the function is made."""
        outer = self.path, self.in_function
        self.path, self.in_function = [*self.path, name], True
        bound, declared_global = _names_bound(body)
        defaults = {
            parameter: (self._literal(default, "default"), number)
            for parameter, default in _defaults(node.args)
            if parameter not in bound and (number := _number(default)) is not None
        }
        parameters = {item.arg for item in ast.walk(node.args) if isinstance(item, ast.arg)}
        self.scopes.append(_Scope(bound | parameters, declared_global, defaults))
        self.path.append("<locals>")
        changed = [self.visit(part) for part in body]
        node.body = changed[0] if isinstance(node, ast.Lambda) else changed
        self.scopes.pop()
        self.path, self.in_function = outer
        return node  # type: ignore[no-any-return]

    def _comprehension(self, node: Any) -> ast.AST:
        first = node.generators[0]
        first.iter = self.visit(first.iter)  # belongs to the scope outside
        targets = [part for item in node.generators for part in ast.walk(item.target)]
        self.scopes.append(
            _Scope({part.id for part in targets if isinstance(part, ast.Name)}, comprehension=True)
        )
        for item in node.generators:
            item.target = self.visit(item.target)
            item.iter = item.iter if item is first else self.visit(item.iter)
            item.ifs = [self.visit(condition) for condition in item.ifs]
        for part in ("elt", "key", "value"):
            if part in node._fields:
                setattr(node, part, self.visit(getattr(node, part)))
        self.scopes.pop()
        return node  # type: ignore[no-any-return]

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _owner(self, name: str) -> _Scope | str:
        """The scope of the parameter whose default it may be, else "local", "closure" or "global"."""
        kind = "local"
        for scope in reversed(self.scopes):
            if name in scope.declared_global:
                break
            if name in scope.bound:
                return scope if name in scope.defaults else kind
            if not scope.comprehension:
                kind = "closure"
        return "global"

    def _outer(self, name: str) -> str:
        """The kind of a name that is neither the function's own nor Python's, else nothing."""
        owner = self._owner(name)
        if isinstance(owner, _Scope) or owner == "local" or (owner == "global" and name in _BUILTINS):
            return ""
        return owner

    # --- What is marked ---------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._marked(node, "literal") if _is_size(node) else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """``-1`` stands for "the last" or "the rest", not for a size."""
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        return node if number == 1 else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id.startswith("__") or not self.in_function:
            return node
        owner = self._owner(node.id)
        if isinstance(owner, _Scope):
            return self._call(node, *owner.defaults[node.id])
        return self._marked(node, kind) if (kind := self._outer(node.id)) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or not (chain := _chain(node)):
            return self.generic_visit(node)
        return self._below(node) if chain & _FOLLOWS_THE_INPUT else self._marked(node, "attribute")

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        chain = _chain(node) if isinstance(node.ctx, ast.Load) else None
        if chain and not chain & _FOLLOWS_THE_INPUT:
            return self._marked(node, "attribute")
        if chain == set() and (owner := self._outer(_root(node))):
            return self._marked(node, owner)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.func = self._below(node.func)
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def _below(self, node: Any) -> Any:
        """The row of attributes itself is no number, and ``super()`` has to keep its name: only its keys count."""
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node.value = self._below(node.value)
            if isinstance(node, ast.Subscript):
                node.slice = self.visit(node.slice)
            return node
        return node if isinstance(node, ast.Name) else self.visit(node)

    # --- What is left alone -----------------------------------------------------------------------------

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.guard = self.visit(node.guard) if node.guard is not None else None
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def _leave(self, node: ast.AST) -> ast.AST:
        return node

    visit_Delete = visit_JoinedStr = visit_TemplateStr = visit_TypeAlias = _leave  # noqa: N815

    # --- How it is marked -------------------------------------------------------------------------------

    def _marked(self, node: ast.expr, kind: str) -> ast.expr:
        return self._call(node, self._literal(node, kind)) if self.in_function else node

    def _call(self, node: ast.expr, number: int, default: Any = None) -> ast.expr:
        """``__anyshape_literal__(number, node)`` where the node stands; with the default as a third argument."""
        arguments = [ast.Constant(number), node, *([ast.Constant(default)] if default is not None else [])]
        call = ast.Call(ast.Name(HOOK, ast.Load()), arguments, [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def _literal(self, node: ast.expr, kind: str) -> int:
        first, last = node.lineno, node.end_lineno or node.lineno
        start = self._column(first, node.col_offset)
        end = self._column(last, node.end_col_offset or node.col_offset)
        lines = self.lines[first - 1 : last]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        number = next(_numbers)
        self.literals[number] = Literal(
            self.file, first, start, last, end, "\n".join(lines), ".".join(self._function_path()), kind
        )
        return number

    def _function_path(self) -> list[str]:
        return self.path[:-1] if self.path[-1] == "<locals>" else self.path

    def _column(self, line: int, offset: int) -> int:
        """Python's own columns count the bytes of UTF-8."""
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode())


def _names_bound(body: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """What a function's body assigns, imports or defines itself, and what it declares global."""
    bound: set[str] = set()
    outer: set[str] = set()
    declared_global: set[str] = set()
    pending = list(body)
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
                continue
            case ast.Lambda():
                continue
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add(other or name.partition(".")[0])
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                bound.add(name)
            case ast.MatchMapping(rest=str(name)):
                bound.add(name)
            case ast.Global(names=names):
                declared_global.update(names)
            case ast.Nonlocal(names=names):
                outer.update(names)
            case ast.comprehension():
                pending += [node.iter, *node.ifs]  # its targets are its own
                continue
        pending += ast.iter_child_nodes(node)
    return bound - outer - declared_global, declared_global


def _defaults(arguments: ast.arguments) -> list[tuple[str, ast.expr]]:
    positional = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
    given = len(arguments.defaults)
    pairs = list(zip(positional[len(positional) - given :], arguments.defaults, strict=True))
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return pairs + [(item.arg, default) for item, default in named if default is not None]


def _is_size(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 1


def _number(node: ast.expr) -> Any:
    """The value of a size or of a row of sizes, else ``None``."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(ast.literal_eval(node)) if node.elts and all(map(_is_size, node.elts)) else None
    return ast.literal_eval(node) if _is_size(node) else None


def _chain(node: ast.expr) -> set[str] | None:
    """The attributes in ``a.b["c"].d``; ``None`` if it isn't a row of attributes and constant keys of a name."""
    match node:
        case ast.Name():
            return set()
        case ast.Attribute(value=value, attr=attribute):
            before = _chain(value)
            return None if before is None else before | {attribute}
        case ast.Subscript(value=value, slice=ast.Constant() | ast.UnaryOp(operand=ast.Constant())):
            return _chain(value)
    return None


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
