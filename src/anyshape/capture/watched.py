"""Sizes that watch themselves: in an ordinary run, every size that Python sees carries the formula that it came by.

``x.shape`` hands out integers that compute like any other and remember how. A comparison between them is a decision
of the model, with its exact condition however far away its turn lies, and its line. What C code does with such a number
(``range``, ``int``, numpy) is not seen: it gets a plain one.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import itertools
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from anyshape.dims import Expr
from anyshape.dims.formula import COMPUTE, Formula, Part, names_of
from anyshape.dims.names import read_number, seen_size
from anyshape.errors import SourceLine
from anyshape.source.lines import innermost_caller
from anyshape.torch_bridge.process import patched

__all__ = ["Decision", "Integer", "Real", "Symbols", "Watch", "plain_shape", "speaking", "watching"]

MOST_FORMULAS = 20_000
MOST_KEYS = 24
READ = -1  # in the place of an axis
SHAPE: Any = torch.Tensor.shape
SIZE = torch.Tensor.size
LEN = len
FABS, POW = math.fabs, math.pow


@dataclass(frozen=True, slots=True)
class Decision:
    """A comparison of sizes that the model made: its condition, what came of it, and its line."""

    condition: Formula
    truth: bool
    where: SourceLine | None
    step: int = 0  # how many steps the tape had then
    is_of_reads: bool = False  # of nothing but numbers that were read out of tensors

    @property
    def key(self) -> Any:
        """The same decision in another run. What was read goes by one name: a comparison of it has one answer."""
        return self.condition.text, None if self.is_of_reads else self.where


class Symbols:
    """A name for each size of a tensor in between, by the line that asks for it: the same in every run."""

    def __init__(self) -> None:
        self._known: dict[tuple[SourceLine | None, int, int], str] = {}

    def name(self, where: SourceLine | None, turn: int, axis: int) -> str:
        named = read_number if axis == READ else seen_size
        return self._known.setdefault((where, turn, axis), named(len(self._known)))


@dataclass(slots=True)
class Watch:
    """What one run did with its sizes."""

    symbols: Symbols
    inputs: dict[int, tuple[Any, tuple[Part, ...]]]  # tensors by identity, and what their sizes are
    answers: Mapping[Any, bool] = field(default_factory=dict)
    paused: bool = False  # within an operator: what it asks there, it asks for itself
    sizes: dict[str, int] = field(default_factory=dict)  # of tensors in between
    axes: dict[str, int] = field(default_factory=dict)  # which axis each of them is
    reads: dict[str, int] = field(default_factory=dict)  # integers that were read out of tensors
    listed: set[str] = field(default_factory=set)  # of those, the entries of lists
    places: dict[str, Any] = field(default_factory=dict)  # of those, where they were read
    floats: dict[str, float] = field(default_factory=dict)  # and floats
    # The tape's own value of a tensor, and its length: where a size of a tensor in between comes from, and when.
    value_of: Callable[[Any], Any] = lambda tensor: None
    length: Callable[[], int] = lambda: 0
    origins: dict[str, tuple[Any, int]] = field(default_factory=dict)  # values and axes, of sizes in between
    decisions: list[Decision] = field(default_factory=list)
    numbers: dict[Formula, float] = field(default_factory=dict)  # what was computed
    used: dict[Part, None] = field(default_factory=dict)  # what PyTorch's functions were given
    lost: dict[Formula, None] = field(default_factory=dict)  # what went on as a plain number
    leaked: dict[Part, SourceLine | None] = field(default_factory=dict)  # what went into a text, or numpy
    _asked: Any = field(default_factory=WeakIdKeyDictionary)  # tensors, and the sizes that they go by
    _turns: dict[SourceLine | None, int] = field(default_factory=dict)
    _hashed: tuple[Any, tuple[int, ...]] = (None, ())
    _decided: set[Any] = field(default_factory=set)

    def shape(self, tensor: torch.Tensor) -> torch.Size:
        """The tensor's shape, of sizes that watch themselves."""
        sizes = plain_shape(tensor)
        known = self.inputs.get(id(tensor))
        if known is not None and known[0] is tensor and len(known[1]) == len(sizes):
            return torch.Size([_watched(size, part) for size, part in zip(sizes, known[1], strict=True)])
        asked = self._asked.get(tensor)
        if asked is None or tuple(map(_plain, asked)) != sizes:
            where = innermost_caller()
            turn = self._turns[where] = self._turns.get(where, 0) + 1
            asked, value = [], self.value_of(tensor)
            for axis, size in enumerate(sizes):
                name = self.symbols.name(where, turn, axis)
                self.sizes[name], self.axes[name] = size, axis
                if value is not None:
                    self.origins[name] = value, axis
                asked.append(Size(size, Expr.of(name)))
            self._asked[tensor] = asked
        return torch.Size(asked)

    def read(self, value: int, of_values: bool = True) -> Size:
        """An integer that Python read out of a tensor, as a size of its own: ``of_values``, or of sizes alone."""
        where = innermost_caller()
        turn = self._turns[where] = self._turns.get(where, 0) + 1
        name = self.symbols.name(where, turn, READ)
        self.sizes[name] = value
        if of_values:
            self.reads[name] = value
        return Size(value, Expr.of(name))

    def read_float(self, value: float) -> tuple[str, Measure]:
        """A float that Python read out of a tensor, and its name: what it is compared with is a decision on values."""
        where = innermost_caller()
        turn = self._turns[where] = self._turns.get(where, 0) + 1
        name = self.symbols.name(where, turn, READ)
        self.floats[name] = value
        return name, Measure(value, Formula("float", (Expr.of(name),)))  # a name alone is an integer

    def hangs_on_values(self, part: Part) -> bool:
        """Whether something was read out of a tensor for it."""
        return any(name in self.reads or name in self.floats for name in names_of(part))

    def decide(self, condition: Formula, truth: bool) -> bool:
        """Notes a decision; what comes of it is what the numbers say, unless it is to be answered otherwise."""
        where = innermost_caller()
        is_of_reads = condition.names <= {*self.reads, *self.floats}
        key = condition.text, None if is_of_reads else where
        truth = self.answers.get(key, truth)
        if key not in self._decided:
            self._decided.add(key)
            self.decisions.append(Decision(condition, truth, where, self.length(), is_of_reads))
        return truth

    def hashed_before(self, frame: FrameType, value: int) -> tuple[int, ...]:
        """The numbers that one step of a function has hashed so far: those of a tuple, one by one."""
        step = frame, frame.f_lasti
        last, numbers = self._hashed
        before = numbers if last == step else ()
        self._hashed = step, (*before, value)
        return before

    def look_up(self, formula: Part, value: float, keys: Iterable[int]) -> None:
        """A number goes into a key or a name: each of those in sight that it could have been is a decision."""
        if isinstance(formula, (Expr, Formula)):
            for key in itertools.islice(keys, MOST_KEYS):
                if key != value:  # what a cache has just put in is not one of them
                    self.decide(Formula("==", (formula, key)), False)

    def leak(self, formula: Part, value: float, keys: Iterable[int]) -> None:
        """A number goes where nothing more is seen of it."""
        self.look_up(formula, value, keys)
        if isinstance(formula, (Expr, Formula)):
            self.leaked.setdefault(formula, innermost_caller())

    def use(self, item: Any) -> None:
        """A function of PyTorch's is given something: which of several equal numbers it is, is known by that."""
        if isinstance(item, (Size, Measure)):
            self.used.setdefault(item.formula)

    def note(self, formula: Formula, value: float) -> None:
        if len(self.numbers) < MOST_FORMULAS:
            self.numbers[formula] = value


_watch: Watch | None = None  # of the run that is going on


def _in_sight(frame: FrameType) -> Iterator[Any]:
    """What a function has, or names: its own variables and constants, globals, and attributes of modules."""
    own, names = list(frame.f_locals.values()), frame.f_code.co_names
    yield from own
    yield from frame.f_code.co_consts
    yield from (frame.f_globals.get(name) for name in names)
    for item in own:
        if isinstance(item, (torch.nn.Module, type)):
            yield from (inspect.getattr_static(item, name, None) for name in names)
        if isinstance(item, torch.nn.Module):
            yield from (child for name, child in item.named_children() if name in names)


def _keys_in_sight(frame: FrameType, before: tuple[int, ...]) -> list[int]:
    """The integers among the keys of dicts and sets in sight; those of a literal are constants of the function.

    Of a key that is a tuple, the one that comes next if all ``before`` it are alike.
    """
    place, keys = len(before), []
    for item in _in_sight(frame):
        found = item if isinstance(item, (dict, set, frozenset, tuple)) else (item,)
        if found is item or any(item is constant for constant in frame.f_code.co_consts):
            for key in found:
                if isinstance(key, tuple) and key[:place] == before and len(key) > place:
                    key = key[place]
                keys += [key] if type(key) is int else []
    return list(dict.fromkeys(keys))


def _numbers_in_names(frame: FrameType) -> list[int]:
    """The integers in the names of attributes and keys in sight: ``p400`` is chosen by ``f"p{n}"``."""
    names: dict[str, None] = {}
    for item in _in_sight(frame):
        if isinstance(item, (dict, set, frozenset, tuple, list)):
            names.update((key, None) for key in item if isinstance(key, str))
        if isinstance(item, torch.nn.Module):
            own = (
                item.named_children(),
                item.named_parameters(recurse=False),
                item.named_buffers(recurse=False),
            )
            names.update((key, None) for key in (*vars(item), *(name for pairs in own for name, _ in pairs)))
        if isinstance(item, str) and any(item is constant for constant in frame.f_code.co_consts):
            names[item] = None
    found = (number for name in names for number in re.findall(r"\d+", name))
    return list(dict.fromkeys(int(number) for number in found if len(number) < 8))


def _watched(size: int, part: Part) -> int:
    return Size(size, part) if isinstance(part, (Expr, Formula)) else size


class Size(int):
    """An integer with the formula that it came by."""

    formula: Part

    def __new__(cls, value: Any = 0, formula: Part | None = None) -> Size:
        if formula is None:  # type(n)(...), which is an ordinary number
            return int(value)  # type: ignore[return-value]
        made = super().__new__(cls, value)
        made.formula = formula
        return made

    def __reduce__(self) -> Any:
        return int, (int(self),)

    def __hash__(self) -> int:
        if _watch is not None and not _watch.paused:
            frame = sys._getframe(1)
            before = _watch.hashed_before(frame, _plain(self))
            _watch.look_up(self.formula, _plain(self), _keys_in_sight(frame, before))
        return int.__hash__(self)

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        if _watch is not None and not _watch.paused:
            _watch.leak(self.formula, _plain(self), _numbers_in_names(_user_frame(sys._getframe(1))))
        return format(_plain(self), spec)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _in_numpy(function, args, kwargs)

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return _in_numpy(getattr(function, method), args, kwargs)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def bit_length(self) -> int:
        return _made("bit_length", self)  # type: ignore[no-any-return]


def _is_between(filename: str) -> bool:
    return filename == __file__ or f"{os.sep}numpy{os.sep}" in filename or filename.startswith("<__array")


def _in_numpy(function: Any, args: Any, kwargs: Any) -> Any:
    """What numpy makes of watched numbers, which are plain numbers there."""

    def told(value: Any) -> Any:
        if isinstance(value, (Size, Measure)):
            if _watch is not None and not _watch.paused:
                keys = _keys_in_sight(_user_frame(sys._getframe(1)), ())
                _watch.leak(value.formula, _plain(value), keys)
            return _plain(value)
        if type(value) in (list, tuple):
            return type(value)(map(told, value))
        return value

    return function(*map(told, args), **{name: told(value) for name, value in kwargs.items()})


def _user_frame(frame: FrameType) -> FrameType:
    """The frame that asked, behind those of this file and of numpy's."""
    while _is_between(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


class Measure(float):
    """A float with the formula that it came by."""

    formula: Part

    def __new__(cls, value: Any = 0.0, formula: Part | None = None) -> Measure:
        if formula is None:
            return float(value)  # type: ignore[return-value]
        made = super().__new__(cls, value)
        made.formula = formula
        return made

    def __reduce__(self) -> Any:
        return float, (_lost(self),)

    def __hash__(self) -> int:
        return float.__hash__(_lost(self))

    def __str__(self) -> str:
        return format(self)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(_lost(self), spec)

    def __float__(self) -> float:
        return _lost(self)

    def hex(self) -> str:
        return _lost(self).hex()

    def as_integer_ratio(self) -> tuple[int, int]:
        return _lost(self).as_integer_ratio()

    __array_function__ = Size.__array_function__
    __array_ufunc__ = Size.__array_ufunc__

    def __bool__(self) -> bool:
        return bool(_made("!=", self, 0))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def is_integer(self) -> bool:
        return bool(self % 1 == 0)

    def __int__(self) -> int:
        made = _made("int", self)
        if _watch is not None and isinstance(made, Size) and isinstance(made.formula, Formula):
            _watch.lost.setdefault(made.formula)
        return _plain(made)  # type: ignore[no-any-return]

    def __trunc__(self) -> Any:
        return _made("int", self)


class _Kind(type):
    """A type of Python's as the model's own functions see it."""

    stands_for: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.stands_for)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, cls.stands_for)

    def __eq__(cls, other: Any) -> bool:
        return other is cls.stands_for or other is cls

    __hash__ = type.__hash__


class _KindOfInteger(_Kind):
    """What it makes of a watched number is watched."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            if isinstance(args[0], Size):
                return args[0]
            if isinstance(args[0], Measure):
                return _made("int", args[0])
            if isinstance(args[0], torch.Tensor):
                return args[0].__int__()  # an integer that was read goes on watched
        return int(*args, **kwargs)


class _KindOfFloat(_Kind):
    """What it makes of a watched number is watched."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            if isinstance(args[0], Measure):
                return args[0]
            if isinstance(args[0], Size):
                return _made("float", args[0])
            if isinstance(args[0], torch.Tensor):
                return args[0].__float__()  # a float that was read goes on watched
        return float(*args, **kwargs)


class Integer(int, metaclass=_KindOfInteger):
    """Stands for ``int``."""

    stands_for = int
    dtype = np.dtype(int)  # what numpy takes it for


class Real(float, metaclass=_KindOfFloat):
    """Stands for ``float``."""

    stands_for = float
    dtype = np.dtype(float)


def speaking(number: float) -> float:
    """A plain float that lets watched numbers have their say: ``0.3*n`` is then watched."""
    return Measure(number, number)


def _plain(value: Any) -> Any:
    """The number without its formula."""
    if isinstance(value, Size):
        return int.__add__(value, 0)
    return float.__add__(value, 0.0) if isinstance(value, Measure) else value


def _lost(value: Measure) -> float:
    """The number without its formula: what becomes of it is not seen."""
    number: float = _plain(value)
    if _watch is not None and not _watch.paused and _watch.hangs_on_values(value.formula):
        _watch.leak(value.formula, number, ())
    return number


def _part(value: Any) -> Part:
    return value.formula if isinstance(value, (Size, Measure)) else value


def _made(op: str, *values: Any) -> Any:
    """The result of an operation, watched in its turn; a comparison is a decision."""
    result = COMPUTE[op](*map(_plain, values))
    parts = tuple(map(_part, values))
    if not any(isinstance(part, (Expr, Formula)) for part in parts):
        return speaking(result) if type(result) is float else result  # of constants only
    if _watch is None or _watch.paused:
        return result
    formula = Formula(op, parts)
    if isinstance(result, bool):
        return _watch.decide(formula, result)
    _watch.note(formula, result)
    if type(result) is int:
        return Size(result, formula)
    return Measure(result, formula) if type(result) is float else result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and type(value).__module__ != "numpy"


def _binary(op: str, swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, *modulo: Any) -> Any:
        if modulo:  # pow(n, 5, 101)
            return pow(_plain(self), *map(_plain, (other, *modulo)))
        if not _is_number(other):
            if isinstance(other, torch.Tensor) or not hasattr(other, "__float__"):
                return NotImplemented
            return COMPUTE[op](other, _plain(self)) if swapped else COMPUTE[op](_plain(self), other)
        return _made(op, other, self) if swapped else _made(op, self, other)

    return method


def _unary(op: str) -> Callable[..., Any]:
    def method(self: Any, *more: Any) -> Any:
        return _made(op, self, *more)

    return method


BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
OF_INTEGERS = {"lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^"}
COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
UNARY = {"neg": "neg", "abs": "abs", "floor": "floor", "ceil": "ceil", "round": "round"}
for _kind in (Size, Measure):
    for _name, _op in {**BINARY, **(OF_INTEGERS if _kind is Size else {})}.items():
        setattr(_kind, f"__{_name}__", _binary(_op, swapped=False))
        setattr(_kind, f"__r{_name}__", _binary(_op, swapped=True))
    for _name, _op in COMPARED.items():
        setattr(_kind, f"__{_name}__", _binary(_op, swapped=False))
    for _name, _op in UNARY.items():
        setattr(_kind, f"__{_name}__", _unary(_op))


def plain_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's shape in plain numbers, also while sizes are watched."""
    if _watch is None or _watch.paused:
        return tuple(SHAPE.__get__(tensor))
    _watch.paused = True  # a mode that sees PyTorch's functions would ask again
    try:
        return tuple(SHAPE.__get__(tensor))
    finally:
        _watch.paused = False


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Within this context, what Python does with sizes is noted in ``watch``."""
    global _watch
    before = _watch
    with contextlib.ExitStack() as stack:
        stack.enter_context(patched(torch.Tensor, "shape", property(_shape)))
        for owner, name, replacement in _replacements():
            stack.enter_context(patched(owner, name, replacement))
        _watch = watch
        try:
            yield
        finally:
            _watch = before


def _shape(tensor: torch.Tensor) -> Any:
    return SHAPE.__get__(tensor) if _watch is None or _watch.paused else _watch.shape(tensor)


def _size(tensor: torch.Tensor, dim: Any = None) -> Any:
    if _watch is None or _watch.paused or isinstance(dim, str):
        return SIZE(tensor) if dim is None else SIZE(tensor, dim)
    shape = _watch.shape(tensor)
    if dim is None:
        return shape
    SIZE(tensor, dim)  # says in its own words what is wrong with it
    return shape[dim]


def _len(item: Any) -> int:
    """Python's own len() makes a plain number of whatever a tensor says."""
    length = LEN(item)
    if _watch is None or _watch.paused or not isinstance(item, torch.Tensor):
        return length
    return _watch.shape(item)[0]


def _numel(tensor: torch.Tensor) -> Any:
    return math.prod(_shape(tensor)) if tensor.dim() else 1


def _extreme(name: str) -> Callable[..., Any]:
    original = getattr(builtins, name)

    def chosen(*args: Any, **kwargs: Any) -> Any:
        values = list(args[0]) if len(args) == 1 and _is_iterable(args[0]) else list(args)
        watched = any(isinstance(value, (Size, Measure)) for value in values)
        if kwargs or not watched or not all(map(_is_number, values)) or len(values) < 2:
            return (
                original(values, **kwargs)
                if len(args) == 1 and _is_iterable(args[0])
                else original(*args, **kwargs)
            )
        if _watch is not None and any(_watch.hangs_on_values(_part(value)) for value in values):
            return _extreme_of_values(name, values)
        for value in values[1:]:
            _made("<=", values[0], value)  # which of them it is, is a decision
        return _made(name, *values)

    return chosen


def _extreme_of_values(name: str, values: Sequence[Any]) -> Any:
    """A graph computes it, and no decision is needed, unless it could be an integer or a float."""
    if len({isinstance(value, float) for value in values}) == 1:
        return _made(name, *values)
    best = values[0]
    for value in values[1:]:
        best = value if _made("<" if name == "min" else ">", value, best) else best
    return best


def _is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, torch.Tensor)


def _of_math(name: str) -> Callable[..., Any]:
    original = getattr(math, name)

    def function(*args: Any) -> Any:
        if any(isinstance(value, (Size, Measure)) for value in args) and all(map(_is_number, args)):
            return _made(name, *args)
        return original(*args)

    return function


def _unfollowed(name: str) -> Callable[..., Any]:
    """A function of math that has no formula: what it makes of a number is a plain one."""
    original = getattr(math, name)

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value))
        return _lost(value) if isinstance(value, Measure) else value

    return lambda *args, **kwargs: original(*map(plain, args), **kwargs)


def _kind_of_float(
    name: str, op: str, change: Callable[[Any], Any], other: float | None
) -> Callable[..., Any]:
    """``math.isnan`` and its like as a comparison: with itself, or with infinity."""
    original = getattr(math, name)

    def function(value: Any) -> bool:
        if not isinstance(value, Measure):
            return bool(original(value))
        return bool(_made(op, change(value), value if other is None else other))

    return function


def _power(base: Any, exponent: Any) -> float:
    if isinstance(base, Measure) or isinstance(exponent, Measure):
        return _made("**", base, exponent)  # type: ignore[no-any-return]
    return POW(base, exponent)


OF_MATH = ("sqrt", "log", "log2", "log10", "exp", "isqrt", "gcd")
KINDS: dict[str, tuple[str, Callable[[Any], Any], float | None]] = {
    "isnan": ("!=", lambda value: value, None),
    "isinf": ("==", abs, math.inf),
    "isfinite": ("<", abs, math.inf),
}
# These ask the number itself, or are functions of other things.
BY_ITSELF = (
    "floor",
    "ceil",
    "trunc",
    "prod",
    "factorial",
    "comb",
    "perm",
    "lcm",
    "fabs",
    "pow",
    *OF_MATH,
    *KINDS,
)
UNFOLLOWED = tuple(
    name for name, item in vars(math).items() if callable(item) and name[0] != "_" and name not in BY_ITSELF
)


def _replacements() -> Sequence[tuple[Any, str, Callable[..., Any]]]:
    return (
        (torch.Tensor, "size", _size),
        (torch.Tensor, "numel", _numel),
        (torch.Tensor, "nelement", _numel),
        (builtins, "len", _len),
        *((builtins, name, _extreme(name)) for name in ("min", "max")),
        *((math, name, _of_math(name)) for name in OF_MATH),
        *((math, name, _kind_of_float(name, *how)) for name, how in KINDS.items()),
        *((math, name, _unfollowed(name)) for name in UNFOLLOWED),
        (math, "fabs", lambda value: abs(value) if isinstance(value, Measure) else FABS(value)),
        (math, "pow", _power),
    )
