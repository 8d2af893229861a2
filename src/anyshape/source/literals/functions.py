"""The Python functions that a run executes, and for each the same code with marks."""

from __future__ import annotations

import ast
import bisect
import cProfile
import functools
import gc
import os
import sys
import sysconfig
import tokenize
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from anyshape.source.lines import TORCH_FOLDER, is_ours
from anyshape.source.literals.marks import Literal, mark

__all__ = ["Code", "Swap", "executed", "functions_with"]

Code = types.CodeType
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


def executed(run: Callable[[], Any]) -> list[Code]:
    """The code of each function of the model that ``run()`` calls: not PyTorch's, not Python's, not ours."""
    found: dict[int, Code] = {}

    def called(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[id(frame.f_code)] = frame.f_code

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(None)
        if before is not None:
            # cProfile's own profiler can't be handed back as a function: it is switched on again.
            before.enable() if isinstance(before, cProfile.Profile) else sys.setprofile(before)
    return [code for code in found.values() if _is_the_models(code.co_filename)]


@functools.lru_cache(maxsize=4096)
def _is_the_models(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    full = os.path.abspath(filename)
    installed = f"{os.sep}site-packages{os.sep}" in full or f"{os.sep}dist-packages{os.sep}" in full
    known = full.startswith(TORCH_FOLDER) or is_ours(full)
    return not known and (installed or not full.startswith(_STANDARD))


class Swap:
    """Living functions that get marked code, and their own again; those that can't be matched are left alone."""

    def __init__(self, codes: Iterable[Code]) -> None:
        self.literals: dict[int, Literal] = {}
        self._marked: dict[int, tuple[Code, Code]] = {}  # by the id of a running code: it, and with marks
        self._plain: dict[int, tuple[Code, Code]] = {}  # the way back, also for functions inside functions
        self._own: dict[types.FunctionType, Code] = {}
        by_file: dict[str, list[Code]] = defaultdict(list)
        for code in codes:
            by_file[code.co_filename].append(code)
        for filename, inside in by_file.items():
            file = _marked_file(filename, inside)
            if file is not None:
                self._match(inside, file)

    def _match(self, codes: Iterable[Code], file: _File) -> None:
        self.literals.update(file.literals)
        for code in codes:
            marked = _counterpart(code, file)
            if marked is not None:
                self._marked[id(code)] = code, marked
        for pairs in file.pairs.values():
            self._plain.update((id(marked), (marked, plain)) for plain, marked in pairs)

    def apply(self) -> None:
        """Every living function with the code of one that ran: of a method there is one, of a closure many."""
        for function in functions_with(self._marked):
            self._own[function] = function.__code__
            function.__code__ = self._marked[id(function.__code__)][1]

    def undo(self) -> None:
        """Also for functions that were made in the meantime, such as a closure that the model keeps."""
        for function in functions_with(self._plain):
            function.__code__ = self._own.get(function) or self._plain[id(function.__code__)][1]


def functions_with(codes: Container[int]) -> list[types.FunctionType]:
    """A look at each object once: gc.get_referrers compares each reference with each code."""
    return [f for f in gc.get_objects() if type(f) is types.FunctionType and id(f.__code__) in codes]


@dataclass(frozen=True, slots=True)
class _File:
    """A file's codes in pairs, plain and marked, by name and first line; and its literals by number."""

    pairs: dict[tuple[str, int], list[tuple[Code, Code]]]
    literals: dict[int, Literal]


def _marked_file(filename: str, codes: Iterable[Code]) -> _File | None:
    """What a file says around these codes, with marks and without; ``None`` if it can't be read or compiled."""
    try:
        status = os.stat(filename)
        lines = tuple(sorted({code.co_firstlineno for code in codes}))
        return _compiled(filename, status.st_mtime_ns, status.st_size, lines)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@functools.lru_cache(maxsize=256)
def _compiled(filename: str, _changed: int, _size: int, lines: tuple[int, ...]) -> _File:
    """Of a library's large file little runs: only the definitions around these lines are compiled."""
    with tokenize.open(filename) as file:
        source = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they came when the file was imported
        tree = ast.parse(source, filename)
        tree.body = [statement for statement in tree.body if _is_needed(statement, lines)]
        plain = compile(tree, filename, "exec", dont_inherit=True)
        literals = mark(tree, filename, source)
        marked = compile(tree, filename, "exec", dont_inherit=True)
    pairs: dict[tuple[str, int], list[tuple[Code, Code]]] = defaultdict(list)
    _pair(plain, marked, pairs)
    return _File(dict(pairs), literals)


def _is_needed(statement: ast.stmt, lines: tuple[int, ...]) -> bool:
    """Of functions and classes those around the lines; imports also say how calls of their names are compiled."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return True
    first = min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])
    at = bisect.bisect_left(lines, first)
    return at < len(lines) and lines[at] <= (statement.end_lineno or first)


def _pair(plain: Code, marked: Code, pairs: dict[tuple[str, int], list[tuple[Code, Code]]]) -> bool:
    """Enters the pairs inside; whether every code has its counterpart: only such a function can be put back."""
    inside, whole = _nested(marked), plain.co_freevars == marked.co_freevars
    for place, codes in _nested(plain).items():
        others = inside[place]
        if len(codes) == 1:  # before Python 3.12 equal codes on one line are one, until marks part them
            codes = codes * len(others)
        if len(codes) != len(others):
            whole = False
            continue
        for one, other in zip(codes, others, strict=True):
            whole &= _pair(one, other, pairs)
    if whole:
        pairs[plain.co_name, plain.co_firstlineno].append((plain, marked))
    return whole


def _nested(code: Code) -> dict[tuple[str, int], list[Code]]:
    found: dict[tuple[str, int], list[Code]] = defaultdict(list)
    for constant in code.co_consts:
        if isinstance(constant, Code):
            found[constant.co_name, constant.co_firstlineno].append(constant)
    return found


def _counterpart(code: Code, file: _File) -> Code | None:
    """The marked code of a function that runs now, if the file still says what the function does."""
    for plain, marked in file.pairs.get((code.co_name, code.co_firstlineno), ()):
        if _is_same(code, plain):
            return marked
    return None


def _is_same(code: Code, plain: Code) -> bool:
    """Also in the functions inside. Part by part, since == on codes differs between versions of Python."""
    inside, others = ([item for item in one.co_consts if isinstance(item, Code)] for one in (code, plain))
    return (
        _variables(code) == _variables(plain)
        and (_does_the_same(code, plain) or _differs_in_asserts(code, plain))
        and len(inside) == len(others)
        and all(map(_is_same, inside, others))
    )


def _does_the_same(code: Code, plain: Code) -> bool:
    return (
        code.co_code == plain.co_code
        and code.co_names == plain.co_names
        and _constants(code) == _constants(plain)
    )


def _differs_in_asserts(code: Code, plain: Code) -> bool:
    """pytest rewrites the asserts of test files, with names that start with an @, and leaves the rest as it is.

    So the instructions can't be compared, but whatever the file names, holds and does on a line must be there.
    """
    return (
        any(name.startswith("@py") for name in (*code.co_varnames, *code.co_names))
        and {*code.co_names} >= {*plain.co_names}
        and {*_constants(code)} >= {*_constants(plain)}
        and {line for *_, line in code.co_lines()} >= {line for *_, line in plain.co_lines()}
    )


def _variables(code: Code) -> tuple[Any, ...]:
    local = [name for name in code.co_varnames if not name.startswith("@py")]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return counts, local, code.co_cellvars, code.co_freevars


def _constants(code: Code) -> list[str]:
    return [item.co_name if isinstance(item, Code) else repr(item) for item in code.co_consts]
