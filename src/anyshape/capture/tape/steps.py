"""A tape: the operators that a module ran at one set of sizes, in order. Sizes in it may become expressions later."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from anyshape.capture.watched import Watch
from anyshape.dims import Relation
from anyshape.dims.formula import Formula
from anyshape.errors import SourceLine
from anyshape.torch_bridge import schemas

__all__ = [
    "NUMBERS",
    "Body",
    "LoopBody",
    "Number",
    "Read",
    "Split",
    "Step",
    "Tape",
    "Value",
    "Way",
    "chosen",
    "compared",
    "either",
    "float_of",
    "leaves",
    "map_leaves",
    "number_of",
    "repeated",
    "rolled",
    "size_of",
    "with_inner",
]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor on the tape. Two values are the same only if they are the same object."""

    shape: tuple[Any, ...]  # int, or Expr once the tape stands for all sizes
    dtype: torch.dtype
    strides: tuple[Any, ...] | None = None
    traced: Any = None  # the tensor without data that a symbolic trace has in its place

    def __repr__(self) -> str:
        return f"<{str(self.dtype).removeprefix('torch.')}{list(self.shape)}>"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One call of an operator. Arguments nest lists; their leaves are values, numbers, dtypes and such."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Value, ...]
    where: SourceLine | None = None
    # Of a loop: `Body`, then `LoopBody` once it stands for all sizes. Of a choice: `Way`, then a tape or a `Split`.
    # Of control flow that the model tells PyTorch of: a tuple of tapes.
    body: Any = None

    inputs: tuple[Value, ...] = field(init=False, repr=False)
    sign: Any = field(init=False, repr=False, default=None)  # `signs.sign_of`, once it was asked for

    def __post_init__(self) -> None:
        found: list[Value] = []
        for tree in (self.args, self.kwargs) if self.kwargs else (self.args,):
            _add_values(tree, found)
        object.__setattr__(self, "inputs", tuple(found))  # read far more often than made

    @property
    def axes(self) -> tuple[Any, ...]:
        """The arguments that name axes: another axis is another operation, not another size."""
        places = _axis_places(self.target)
        given = [self.args[place] for place in places if place < len(self.args)]
        named = [value for key, value in self.kwargs.items() if key in AXES]
        return tuple(map(repr, (*given, *named)))

    @property
    def is_complex(self) -> bool:
        """Whether it computes with complex numbers: it is given some, or a real tensor meets a complex number."""
        if any(value.dtype.is_complex for value in self.inputs):
            return True
        packet = getattr(self.target, "overloadpacket", None)
        made = self.outputs[0] if self.outputs else None
        return packet in ARITHMETIC and made is not None and made.dtype.is_complex

    def argument(self, name: str) -> Any:
        """An argument by its name, its default if it was not given."""
        for place, (known, default) in enumerate(schemas.arguments_of(self.target)):
            if known == name:
                return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)
        raise KeyError(name)

    def mapped(self, change: Callable[[Any], Any]) -> Step:
        """The step with each leaf of its arguments changed; its outputs stay. Itself, if no leaf is another."""
        changed = False

        def noted(leaf: Any) -> Any:
            nonlocal changed
            made = change(leaf)
            changed = changed or made is not leaf
            return made

        args, kwargs = map_leaves(noted, self.args), map_leaves(noted, self.kwargs)
        return replace(self, args=args, kwargs=kwargs) if changed else self

    def __repr__(self) -> str:
        return f"{list(self.outputs)} = {self.target}{self.args}{dict(self.kwargs) or ''}"


aten = torch.ops.aten
ARITHMETIC = frozenset((aten.add, aten.sub, aten.rsub, aten.mul, aten.div))
AXES = frozenset(
    ("dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim", "axis", "source", "destination")
)


@functools.cache
def _axis_places(target: Any) -> tuple[int, ...]:
    return tuple(k for k, name in enumerate(schemas.argument_names(target)) if name in AXES)


def rolled(count: int, before: list[Any], outside: list[Any]) -> None:
    """Stands on a tape for a loop: how often, the carried values at first, and what it reads from outside."""
    raise NotImplementedError("a step on a tape, not a function")


def chosen(given: list[Any]) -> None:
    """Stands on a tape for steps that are others at other sizes: all that any of them reads from outside."""
    raise NotImplementedError("a step on a tape, not a function")


def number_of(value: Any, name: str) -> None:
    """Stands on a tape for a number that the model reads out of a tensor, and by which name sizes speak of it."""
    raise NotImplementedError("a step on a tape, not a function")


def float_of(value: Any, name: str) -> None:
    """Stands on a tape for a float that the model reads out of a tensor, and by which name formulas speak of it."""
    raise NotImplementedError("a step on a tape, not a function")


def size_of(value: Any, name: str, axis: int) -> None:
    """Stands on a tape for a size that values decide, and by which name formulas speak of it."""
    raise NotImplementedError("a step on a tape, not a function")


def compared(condition: Any) -> None:
    """Stands on a tape for the truth of a comparison of numbers, as a tensor."""
    raise NotImplementedError("a step on a tape, not a function")


NUMBERS = (number_of, float_of, size_of)  # sizes are known by them that others use without their tensors


class Number(float):
    """A float that hangs on what was read out of tensors: the formulas that it may be, in its own run."""

    formulas: tuple[Formula, ...]

    def __new__(cls, value: float, formulas: tuple[Formula, ...]) -> Number:
        made = super().__new__(cls, value)
        made.formulas = formulas
        return made


def either(test: Any, given: list[Any]) -> None:
    """Stands on a tape for torch.cond: two tapes, of what they are given; the first is run where the test is true."""
    raise NotImplementedError("a step on a tape, not a function")


def repeated(before: list[Any], rows: list[Any], given: list[Any]) -> None:
    """Stands on a tape for a loop of PyTorch's own: one round for each row of some tensors, or while a test is true.

    Its first tape is a round: of the carried values, a row of each tensor and what is given, to the carried values
    and what is kept of every round. Its second, if there are no rows, is the test: of the carried values and what is
    given. The results are the carried values at last, then all that was kept.
    """
    raise NotImplementedError("a step on a tape, not a function")


def with_inner(step: Step, change: Callable[[Tape], Tape]) -> Step:
    """The step with each tape of the model's own control flow changed; any other step as it is."""
    if step.target not in (either, repeated):
        return step
    return replace(step, body=tuple(change(tape) for tape in step.body))


@dataclass(frozen=True, slots=True)
class Body:
    """The rounds of a loop as they were run, how the values in them hang together, and which results are used."""

    blocks: tuple[tuple[Step, ...], ...]
    plan: Any
    wanted: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LoopBody:
    """One round of a loop at any size; ``index`` is the name of the round's number in its expressions."""

    index: str
    carried: tuple[Value, ...]
    steps: tuple[Step, ...]
    carried_on: tuple[Value, ...]
    collected: tuple[Value, ...]
    results: tuple[int, ...]  # which of the carried, then of the collected, each result of the loop is
    # A carried value, its axis and a size: the loop goes on while that axis is above the size.
    going: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """What was run at one set of sizes where others are run at other sizes, and which of the ways it is."""

    tape: Tape
    label: int
    context: Mapping[Any, tuple[Value, int]]  # axes of tensors near by


@dataclass(frozen=True, slots=True)
class Split:
    """Two ways to go on: one where the condition holds, another where it does not.

    The condition is one on sizes, or a tape of the same inputs that computes a truth of their values.
    """

    condition: Relation | Tape
    where: SourceLine | None
    then: Tape | Split
    otherwise: Tape | Split


@dataclass(frozen=True, slots=True)
class Read:
    """Python looked at the values of a tensor that depends on the inputs' values: what it saw, where, and of what."""

    seen: Any
    where: SourceLine | None
    value: Value | None = None
    turn: int = 0  # how often that line had looked before
    step: int = 0  # how many steps the tape had then

    @property
    def key(self) -> Any:
        """The same look in another run."""
        return self.where, self.turn

    @property
    def is_truth(self) -> bool:
        """Whether it was asked for a truth, of one tensor: a graph can choose by it."""
        return isinstance(self.seen, bool) and self.value is not None


@dataclass(slots=True)
class Tape:
    """Inputs, constant tensors by value, the steps, and the outputs."""

    inputs: list[Value]
    constants: dict[Value, torch.Tensor]
    steps: list[Step]
    outputs: list[Value]
    names: dict[Value, str] = field(default_factory=dict)  # of the constants that are the module's own
    reads: list[Read] = field(default_factory=list)
    watch: Watch | None = None  # what the run did with its sizes
    counted: dict[Any, int] = field(default_factory=dict)  # integers that values decide, by line and turn
    forgiven: list[SourceLine | None] = field(default_factory=list)  # operators that failed, and were caught
    lists: list[Any] = field(default_factory=list)  # lines that make a list of a tensor, and its shape
    sized: set[Value] = field(default_factory=set)  # whose sizes values decide, or may
    told: Any = None  # what is no tensor in the result

    def used_only(self) -> Tape:
        """The tape without what no output needs."""
        needed, kept = set(self.outputs), []
        for step in reversed(self.steps):
            if step.target in NUMBERS or needed.intersection(step.outputs):
                kept.append(step)
                needed.update(step.inputs)
        constants = {value: tensor for value, tensor in self.constants.items() if value in needed}
        return replace(self, steps=kept[::-1], constants=constants)


def _add_values(tree: Any, found: list[Value]) -> None:
    for item in tree.values() if isinstance(tree, Mapping) else tree:
        if type(item) is Value:
            found.append(item)
        elif type(item) not in PLAIN and isinstance(item, (list, tuple, Mapping)):
            _add_values(item, found)


PLAIN = frozenset((Value, int, float, bool, str, type(None), torch.Tensor))  # leaves, quick to tell


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of nested lists, tuples and dicts."""
    if type(tree) in PLAIN:
        yield tree
    elif isinstance(tree, (list, tuple)) and not isinstance(tree, torch.Size):
        for item in tree:
            if type(item) in PLAIN:
                yield item
            else:
                yield from leaves(item)
    elif isinstance(tree, Mapping):
        for item in tree.values():
            yield from leaves(item)
    else:
        yield tree


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same nesting with each leaf changed."""
    if type(tree) in PLAIN:
        return change(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)([map_leaves(change, item) for item in tree])
    if isinstance(tree, Mapping):
        return {key: map_leaves(change, item) for key, item in tree.items()}
    return change(tree)
