"""Shrink: a smaller program of which the same can be said.

It knows only a program and a predicate. What it changes: statements go, blocks give way to what they hold, expressions
to a part of themselves, names to what they stand for, numbers and sizes become smaller, inputs that nobody uses go.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzzing.program import HEADER, Program
from fuzzing.write import runs_at_its_example

__all__ = ["shrunk"]

MADE_OF_PARTS = (ast.BinOp, ast.BoolOp, ast.Call, ast.IfExp, ast.Subscript, ast.Compare, ast.Tuple, ast.Dict)


def shrunk(program: Program, holds: Callable[[Program], bool], most: int = 60) -> Program:
    """The smallest program found of which ``holds`` is true, after at most this many questions."""
    place, since, asked = 0, 0, 0
    options = list(_smaller(program))
    while options and since < len(options) and asked < most:
        option = options[place % len(options)]
        if runs_at_its_example(option):
            asked += 1
            if holds(option):
                program, options, since = option, list(_smaller(option)), 0
                continue  # what comes next has moved to this place
        place, since = place + 1, since + 1
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Every program that is one step smaller, the largest steps first."""
    if program.declared:
        yield replace(program, declared={})
    yield from _with_fewer_inputs(program)
    tree = ast.parse(program.source[program.source.index("class Model") :])
    for edit in (
        _without_a_statement,
        _without_a_block,
        _without_a_name,
        _with_a_part,
        _with_a_smaller_number,
    ):
        for made in edit(tree):
            yield replace(program, source=f"{HEADER}\n{ast.unparse(ast.fix_missing_locations(made))}\n")
    for axis, size in program.sizes.items():
        for other in (2, 3, size // 2, size - 1):
            if 0 < other < size:
                yield replace(program, sizes={**program.sizes, axis: other})


def _with_fewer_inputs(program: Program) -> Iterator[Program]:
    for item in program.inputs:
        rest = tuple(other for other in program.inputs if other is not item)
        uses = len(re.findall(rf"\b{item.name}\b", program.source))
        if uses > 1 or not rest or any(other.of is not None and other.of[0] == item.name for other in rest):
            continue
        used = " ".join(size for other in rest for size in other.shape)
        sizes = {axis: size for axis, size in program.sizes.items() if re.search(rf"\b{axis}\b", used)}
        source = re.sub(rf", {item.name}\b", "", program.source, count=1)
        yield replace(program, source=source, inputs=rest, sizes=sizes)


# --- Edits: each gives copies of the tree, changed at one place -----------------------------------------


def _nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


def _changed(tree: ast.Module, index: int, change: Callable[[ast.AST], None]) -> ast.Module:
    made = copy.deepcopy(tree)
    change(_nodes(made)[index])
    return made


def _blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The lists of statements in a node, but for the class's own."""
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if isinstance(block, list) and not isinstance(node, ast.Module | ast.ClassDef):
            yield name, block


def _without_a_statement(tree: ast.Module) -> Iterator[ast.Module]:
    for index, node in enumerate(_nodes(tree)):
        for name, block in _blocks(node):
            for number in reversed(range(len(block))):
                if len(block) > 1 or name == "orelse":

                    def change(found: ast.AST, name: str = name, number: int = number) -> None:
                        del getattr(found, name)[number]

                    yield _changed(tree, index, change)


def _without_a_block(tree: ast.Module) -> Iterator[ast.Module]:
    """An if, a for or a while gives way to one of its blocks."""
    for index, node in enumerate(_nodes(tree)):
        for name, block in _blocks(node):
            for number, statement in enumerate(block):
                for inner in (
                    ("body", "orelse") if isinstance(statement, ast.If | ast.For | ast.While) else ()
                ):
                    if getattr(statement, inner):

                        def change(
                            found: ast.AST, name: str = name, number: int = number, inner: str = inner
                        ) -> None:
                            there = getattr(found, name)
                            there[number : number + 1] = getattr(there[number], inner)

                        yield _changed(tree, index, change)


def _without_a_name(tree: ast.Module) -> Iterator[ast.Module]:
    """A name that is used once, in the next statement, gives way to what it stands for."""
    for index, node in enumerate(_nodes(tree)):
        for name, block in _blocks(node):
            for number in range(len(block) - 1):
                made = copy.deepcopy(tree)
                there = getattr(_nodes(made)[index], name)
                if _put_into(there[number], there[number + 1]):
                    del there[number]
                    yield made


def _put_into(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether the first statement is ``name = value``, and the value could take the name's one place in the second."""
    if not isinstance(first, ast.Assign) or not isinstance(first.targets[0], ast.Name):
        return False
    places = [
        (node, field, number)
        for node in ast.walk(second)
        for field, value in ast.iter_fields(node)
        for number, held in enumerate(value if isinstance(value, list) else [value])
        if isinstance(held, ast.Name) and held.id == first.targets[0].id and isinstance(held.ctx, ast.Load)
    ]
    if len(places) != 1:
        return False
    node, field, number = places[0]
    _putting(field, number if isinstance(getattr(node, field), list) else None, first.value)(node)
    return True


def _with_a_part(tree: ast.Module) -> Iterator[ast.Module]:
    """An expression gives way to one of those that it is made of."""
    for index, node in enumerate(_nodes(tree)):
        for name, value in ast.iter_fields(node):
            places = range(len(value)) if isinstance(value, list) else (None,)
            for number in places:
                held = value if number is None else value[number]
                if not isinstance(held, MADE_OF_PARTS):
                    continue
                if isinstance(getattr(held, "ctx", None), ast.Store) or _is_part_of_init(held):
                    continue
                for part in _parts(held):
                    yield _changed(tree, index, _putting(name, number, part))


def _is_part_of_init(node: ast.expr) -> bool:
    """``super().__init__()`` and the making of layers: what is left of them is no layer."""
    text = ast.unparse(node)
    return text.startswith(("super()", "nn."))


def _parts(node: ast.expr) -> list[ast.expr]:
    inner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    found = [inner] if inner is not None else []
    found += [
        child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) and child is not inner
    ]
    return [
        part
        for part in found
        if not isinstance(part, ast.Attribute | ast.Slice)
        and ast.unparse(part) not in ("torch", "F", "math", "self")
    ]


def _putting(name: str, number: int | None, part: ast.expr) -> Callable[[ast.AST], None]:
    def change(found: ast.AST) -> None:
        if number is None:
            setattr(found, name, copy.deepcopy(part))
        else:
            getattr(found, name)[number] = copy.deepcopy(part)

    return change


def _with_a_smaller_number(tree: ast.Module) -> Iterator[ast.Module]:
    for index, node in enumerate(_nodes(tree)):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 2:
            for smaller in dict.fromkeys((2, node.value // 2)):

                def change(found: ast.AST, smaller: int = smaller) -> None:
                    setattr(found, "value", smaller)  # noqa: B010 - a plain node has no such field for the types

                yield _changed(tree, index, change)
