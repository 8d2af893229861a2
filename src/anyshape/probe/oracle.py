"""Asking PyTorch whether it accepts a set of sizes: the ground truth that probe works from.

A trial runs the module in eager mode: on real tensors where a run is quick, else on fake ones (shapes without
data), which answer for a model of any size in about a second and need no memory.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from anyshape.inputs.case import Case, OutOfMemory, Outputs, Refusal, Shapes, answered
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import Rule, make_tensors, rules_of
from anyshape.source.lines import let_go
from anyshape.torch_bridge import control_flow, process, tracing, work
from anyshape.torch_bridge.tensors import leaves_of

__all__ = ["Axis", "Call", "Oracle", "Point", "Trial", "axis_name"]

Axis = tuple[int, int]  # (bundle, axis): sibling tensors of one shape, such as a cache's layers, move as one
Point = Mapping[Axis, int]  # the size of each axis; of an axis in `Oracle.squares`, the root of its size

SLOW_RUN = 0.5  # nominal seconds: a model slower than this is probed on fake tensors
A_FAKE_RUN = 0.1  # nominal seconds, at any size
LONGEST_FAKE_RUN = 30_000  # operators: a loop over a size makes fake runs as long as real ones
LARGE = 2  # times as large as the example: what a run takes is counted
MANY_PARAMETERS = 500_000_000
DRAWN = 65_521  # numbers of an input: a prime, so that its rows are unlike each other all the same


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a torch function in a run: the how manieth it is, and what its arguments say of sizes."""

    number: int
    function: Any
    sizes: tuple[Any, ...]

    @property
    def place(self) -> tuple[int, Any]:
        """Which call it is, whatever its sizes."""
        return self.number, self.function


@dataclass(frozen=True, slots=True)
class Trial:
    """What PyTorch said of one point: whether it ran, how far it came, and why it did not run."""

    ok: bool
    progress: int
    why: Refusal | OutOfMemory | None = None
    seconds: float = 0.0  # nominal
    other: str = ""  # how the result is of another form than the example's: no file can have both
    stopped: Call | None = None  # the torch function that raised it, unless that was Python

    @property
    def fits(self) -> bool:
        """Whether it ran, and gave a result of the example's form."""
        return self.ok and not self.other


class _Counter(TorchFunctionMode):
    """Counts the torch functions that ran: how far a failing run came, and at which of them it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._raised: Exception | None = None
        self._by: Call | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        number = self.count
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            if error is not self._raised:  # else a function within this one raised it
                self._raised, self._by = error, Call(number, func, _sizes((args, kwargs)))
            raise

    def stopped_by(self, error: Exception) -> Call | None:
        """The call that raised an exception; None if it was raised by Python."""
        return self._by if error is self._raised else None


def _sizes(given: Any) -> tuple[Any, ...]:
    """All that arguments say of sizes: shapes and numbers, in order."""
    leaves = leaves_of(given)
    return tuple(tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else str(leaf) for leaf in leaves)


def axis_name(axis: Axis) -> str:
    """The provisional name of an axis's size."""
    return f"axis_{axis[0]}_{axis[1]}"


@dataclass
class Oracle:
    """Answers trials, remembers them, and counts the work."""

    case: Case
    budget: float  # in nominal seconds
    progress: Callable[[str], None] = lambda text: None
    rules: tuple[Rule, ...] = ()
    bundles: tuple[tuple[int, ...], ...] = ()
    squares: Mapping[Axis, int] = field(default_factory=dict)  # sizes that are a square plus this number
    fake: bool = False
    runs: int = 0
    spent: float = 0.0
    known: dict[Any, Trial] = field(default_factory=dict)
    idle: dict[Any, set[Axis]] = field(default_factory=dict)  # by where runs fail: axes without a say there

    def __post_init__(self) -> None:
        self.rules = rules_of(self.case)
        self.bundles = _bundles(self.case)
        heavy = self.case.parameters > MANY_PARAMETERS
        self.fake = self.fake or heavy or not self.has_values
        self._on_fakes: list[Oracle] | None = None
        self._whole = 0  # functions that a run calls, at most
        self._first = 0  # operators that the first fake run called
        self._fake_weights: dict[str, torch.Tensor] | None = None
        self._mode = tracing.fake_mode() if self.fake else None
        self._cost = A_FAKE_RUN if self.fake else self.seconds_at(self.example)
        if not self.fake and self._cost > SLOW_RUN:
            self._use_fake_if_it_agrees()
        if not self.fake:
            self.rules = self._working_rules()

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        return self.spent >= self.budget

    @property
    def has_values(self) -> bool:
        """Whether the model and its inputs hold numbers, not only shapes."""
        return not self.case.on_meta and not any(item.example.is_meta for item in self.case.inputs)

    def on_fakes(self) -> Oracle | None:
        """The same questions asked on tensors without data; None if those can't follow the model."""
        if self.fake:
            return self
        if self._on_fakes is None:
            other = Oracle(self.case, self.budget, self.progress, fake=True)
            other.rules, other.bundles, other.squares = self.rules, self.bundles, self.squares
            self._on_fakes = [other] if other.trial(self.example).fits else []
        return next(iter(self._on_fakes), None)

    def growth(self, shapes: Sequence[tuple[int, ...]]) -> float:
        """How many times as large as the example's inputs others are; never less than once."""
        own = sum(math.prod(shape) for shape in self.case.shapes)
        return max(1.0, sum(math.prod(shape) for shape in shapes) / max(1, own))

    def seconds_at(self, point: Point) -> float:
        """The nominal seconds of a run at a point."""
        tensors = self.tensors(point)
        with process.quiet():
            return work.nominal_seconds(lambda: self.case.run(tensors))

    @property
    def example(self) -> dict[Axis, int]:
        return self.point_of(self.case.shapes)

    def point_of(self, shapes: Shapes) -> dict[Axis, int]:
        """The point that shapes make, each bundle by its first member."""
        return {
            axis: math.isqrt(size - self.squares[axis]) if axis in self.squares else size
            for axis, size in self._sizes_of(shapes).items()
        }

    def sizes(self, point: Point) -> dict[Axis, int]:
        """The size of each axis at a point: what the point says, or its square."""
        made = dict(point)
        for axis, more in self.squares.items():
            if point[axis] >= 0:  # else no size at all, which its square would hide
                made[axis] = point[axis] ** 2 + more
        return made

    def shapes(self, point: Point) -> Shapes:
        """The shapes of all inputs at a point."""
        sizes = self.sizes(point)
        made: list[tuple[int, ...]] = [()] * len(self.case.inputs)
        for number, members in enumerate(self.bundles):
            for member in members:
                rank = len(self.case.inputs[member].shape)
                made[member] = tuple(sizes[(number, axis)] for axis in range(rank))
        return tuple(made)

    def elements(self, point: Point) -> int:
        """How many numbers the inputs hold at a point."""
        return sum(math.prod(shape) for shape in self.shapes(point))

    def _sizes_of(self, shapes: Shapes) -> dict[Axis, int]:
        return {
            (number, axis): size
            for number, members in enumerate(self.bundles)
            for axis, size in enumerate(shapes[members[0]])
        }

    def trial(self, point: Point, rules: Sequence[Rule] | None = None) -> Trial:
        """Run the module at a point; the answer is remembered."""
        return self.trial_of_shapes(self.shapes(point), rules)

    def knows(self, point: Point) -> bool:
        """Whether this was asked before."""
        return (self.shapes(point), self.rules) in self.known

    def trial_of_shapes(self, shapes: Shapes, rules: Sequence[Rule] | None = None) -> Trial:
        used = tuple(rules or self.rules)
        key = (shapes, used)
        if key not in self.known:
            made = self.known[key] = self._run(shapes, used)
            if made.why is not None:
                let_go(made.why.error)  # it is remembered, and a model may be refused a thousand times
            self.runs += 1
            self.spent += made.seconds
            self.progress(f"{self.runs} sizes tried")
        return self.known[key]

    def _run(self, shapes: Shapes, rules: Sequence[Rule]) -> Trial:
        if any(size < 0 for shape in shapes for size in shape):
            return Trial(False, 0, Refusal(ValueError("a negative size")))
        counter = _Counter()
        # The fused attention kernels don't check that keys and values have one length; the plain one does.
        with (
            process.quiet(),
            sdpa_kernel(SDPBackend.MATH),
            torch.no_grad(),
            control_flow.run_by(control_flow.Plain()),
            self._fakes() as fakes,
        ):
            if fakes is None:
                tensors = self._tensors(shapes, rules)
                answer, seconds = self._counted(tensors, counter)
            else:
                answer, seconds = answered(lambda: self._run_fake(shapes, fakes, counter)), A_FAKE_RUN
        if isinstance(answer, Refusal) and self._is_no_objection(answer.error):
            answer = OutOfMemory(answer.error)
        if isinstance(answer, (Refusal, OutOfMemory)):
            return Trial(False, counter.count, answer, seconds, stopped=counter.stopped_by(answer.error))
        other = _other_form(self.case.outputs.tensors, answer) if self.has_values else ""
        return Trial(True, counter.count, None, seconds, other)

    def _longest(self) -> int:
        """How many operators a fake run may call: one that calls many more than the first is a loop over a size."""
        return min(LONGEST_FAKE_RUN, 200 + 2 * self._first) if self._first else LONGEST_FAKE_RUN

    def _is_no_objection(self, error: Exception) -> bool:
        """Whether a fake run stopped for want of data or of patience, once fake tensors followed the model so far."""
        return self.fake and (
            isinstance(error, work.TooLong) or (self.runs > 0 and tracing.needs_values(error))
        )

    def _counted(self, tensors: Sequence[torch.Tensor], counter: _Counter) -> tuple[Any, float]:
        """A run, and its nominal seconds: counted where the inputs are large, else by how far it came."""
        if self.growth([tuple(tensor.shape) for tensor in tensors]) > LARGE:
            counted = work.Work()
            with counted, counter:
                answer = self.case.run(tensors)
            return answer, counted.seconds
        with counter:
            answer = self.case.run(tensors)
        self._whole = max(self._whole, counter.count)
        return answer, self._cost * counter.count / max(1, self._whole)

    def tensors(self, point: Point) -> list[torch.Tensor]:
        """Inputs with legal values at a point."""
        return self._tensors(self.shapes(point), self.rules)

    def _tensors(self, shapes: Shapes, rules: Sequence[Rule]) -> list[torch.Tensor]:
        sizes = {axis_name(axis): size for axis, size in self._sizes_of(shapes).items()}
        return make_tensors(self.case, rules, shapes, sizes, drawn=DRAWN)

    @contextlib.contextmanager
    def _fakes(self) -> Iterator[dict[str, torch.Tensor] | None]:
        if self._mode is None:
            yield None
            return
        with self._mode:
            if self._fake_weights is None:
                named = [*self.case.module.named_parameters(), *self.case.module.named_buffers()]
                self._fake_weights = {
                    name: torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                    for name, tensor in named
                }
            yield self._fake_weights

    def _run_fake(
        self, shapes: Shapes, weights: dict[str, torch.Tensor], counter: _Counter
    ) -> tuple[torch.Tensor, ...]:
        tensors = [
            torch.empty(shape, dtype=item.example.dtype)
            for shape, item in zip(shapes, self.case.inputs, strict=True)
        ]
        args, kwargs = self.case.structure.rebuild(tensors)
        patience = work.Patience(self._longest())
        with self.case.unchanged(), counter, patience:
            result = torch.func.functional_call(self.case.module, weights, args, kwargs)
        self._first = self._first or patience.count
        return tuple(tensor for _, tensor in flatten(result)[0])

    def _working_rules(self) -> tuple[Rule, ...]:
        """The rules whose values the model accepts at the example's own sizes; else the example stretched."""
        kept = list(self.rules)
        for number in range(len(kept)):
            # One input anew at a time, the others as in the example.
            tensors = [item.example for item in self.case.inputs]
            tensors[number] = make_tensors(self.case, kept, self.case.shapes, {}, anew=True)[number]
            with process.quiet():
                answer = self.case.run(tensors)
            if not isinstance(answer, Outputs):
                kept[number] = Rule("stretched", kept[number].low, kept[number].high)
        return tuple(kept)

    def _use_fake_if_it_agrees(self) -> None:
        """A slow model moves to fake tensors unless they can't follow it (it looks at values)."""
        cost, self._cost = self._cost, A_FAKE_RUN
        self.fake, self._mode, self.known = True, tracing.fake_mode(), {}
        if not self.trial(self.example).ok:
            self.fake, self._mode, self.known, self._cost = False, None, {}, cost


def _other_form(expected: Sequence[torch.Tensor], given: Outputs | Sequence[torch.Tensor]) -> str:
    """How results differ from the example's in what a file can't vary: how many there are, and their axes."""
    tensors = given.tensors if isinstance(given, Outputs) else given
    if len(tensors) != len(expected):
        return f"the model returns {len(tensors)} tensors there, not {len(expected)}"
    for wanted, tensor in zip(expected, tensors, strict=True):
        if tensor.dim() != wanted.dim():
            return f"the model returns {tensor.dim()} axes there, not {wanted.dim()}"
    return ""


def _bundles(case: Case) -> tuple[tuple[int, ...], ...]:
    """Inputs grouped so that siblings in a list with one shape and dtype move as one."""
    groups: dict[Any, list[int]] = {}
    for number, item in enumerate(case.inputs):
        pattern = re.sub(r"\.\d+(?=\.|$)", ".*", item.path)
        key = (pattern, item.shape, item.example.dtype) if "*" in pattern else (item.path,)
        groups.setdefault(key, []).append(number)
    return tuple(tuple(members) for members in groups.values())
