"""Functional: a tape without writes. Each in-place step becomes its functional twin, and views follow their base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from anyshape.capture.tape.steps import Step, Tape, Value, map_leaves, with_inner
from anyshape.dims import Expr
from anyshape.errors import CaptureFault, SourceLine
from anyshape.torch_bridge import schemas

__all__ = ["functional"]

aten = torch.ops.aten


def functional(tape: Tape) -> Tape:
    """The same tape, where every step only makes new values."""
    return _functional(tape, frozenset())


def _functional(tape: Tape, given: frozenset[Value]) -> Tape:
    """The same tape, of which the values that are ``given`` from outside must not be written to."""
    tape = replace(tape, steps=[with_inner(step, _inner) for step in tape.steps])
    if not any(_writes(step) for step in tape.steps):
        return _without_idle(tape)
    state = _State(tape, given)
    for step in tape.steps:
        state.take(step)
    outputs = [state.now(value) for value in tape.outputs]
    return _without_idle(replace(tape, steps=state.steps, outputs=outputs))


def _inner(tape: Tape) -> Tape:
    return _functional(tape, frozenset(tape.inputs)).used_only()


def _without_idle(tape: Tape) -> Tape:
    """The tape without steps that matter to memory only: PyTorch runs them or not, depending on strides."""
    same: dict[Value, Value] = {}
    steps = []
    for step in tape.steps:
        mapped = step.mapped(lambda leaf: same.get(leaf, leaf) if isinstance(leaf, Value) else leaf)
        if step.target in IDLE and step.outputs[0].dtype == mapped.args[0].dtype:
            same[step.outputs[0]] = mapped.args[0]
        else:
            steps.append(mapped)
    return replace(tape, steps=steps, outputs=[same.get(value, value) for value in tape.outputs])


IDLE = frozenset(
    (
        aten.contiguous.default,
        aten.clone.default,
        aten.detach.default,
        aten.alias.default,
        aten.lift_fresh.default,
        aten.lift_fresh_copy.default,
    )
)


def _writes(step: Step) -> list[str]:
    return schemas.written_arguments(step.target)


@dataclass(slots=True)
class _Version:
    """What a value is at the moment; for a view, as of which write to its base."""

    value: Value
    writes: int = 0


@dataclass(slots=True)
class _State:
    tape: Tape
    given: frozenset[Value]
    steps: list[Step] = field(default_factory=list)
    views: dict[Value, tuple[Value, Step, int]] = field(
        default_factory=dict
    )  # view: base, by which step, output
    versions: dict[Value, _Version] = field(default_factory=dict)
    written: dict[Value, int] = field(default_factory=dict)  # how often a base was written to
    unsure: set[Value] = field(default_factory=set)  # tensors that may be, or have, a view

    def take(self, step: Step) -> None:
        if torch.Tag.inplace_view in getattr(step.target, "tags", ()):
            step = _as_view(step)
        names = _writes(step)
        if not names:
            self.steps.append(step.mapped(self.current))
            self.note_views(step)
        elif names == schemas.argument_names(step.target)[:1] and isinstance(step.args[0], Value):
            self.write_step(step)
        else:
            raise _cannot(step, "does not write to its first argument alone")

    def current(self, leaf: Any) -> Any:
        return self.now(leaf) if isinstance(leaf, Value) else leaf

    def now(self, value: Value) -> Value:
        """The value as it is after all writes so far; a view is taken again if its base has changed."""
        version = self.versions.get(value)
        if value not in self.views:
            return version.value if version else value
        base, step, number = self.views[value]
        writes = self.written.get(self.root(value), 0)
        if (version.writes if version else 0) == writes:
            return version.value if version else value
        parent = self.now(base)
        again = step.mapped(lambda leaf: parent if leaf is base else self.current(leaf))
        outputs = tuple(replace(item) for item in step.outputs)
        self.steps.append(replace(again, outputs=outputs))
        self.versions[value] = _Version(outputs[number], writes)
        return outputs[number]

    def root(self, value: Value) -> Value:
        while value in self.views:
            value = self.views[value][0]
        return value

    def note_views(self, step: Step) -> None:
        base = schemas.viewed_argument(step.target)
        if base is None or not isinstance(step.args[base], Value):
            return
        source: Value = step.args[base]
        shares = _shares_memory(step, source)
        if shares is None:
            self.unsure.update((self.root(source), *step.outputs))
        if not shares:
            return
        writes = self.written.get(self.root(source), 0)
        for number, output in enumerate(step.outputs):
            self.views[output] = (source, step, number)
            self.versions[output] = _Version(output, writes)

    def write_step(self, step: Step) -> None:
        target = step.args[0]
        twin = _twin(step)
        before = self.now(target)
        made = Value(target.shape, target.dtype, target.strides)
        called = replace(step.mapped(self.current), target=twin, outputs=(made,))
        if twin is aten.zeros_like.default:
            called = replace(called, args=(before,), kwargs={})
        dtype = _dtype_of(called)
        if dtype != made.dtype:  # a write keeps the type of what it writes to
            raw = Value(made.shape, dtype)
            self.steps.append(replace(called, outputs=(raw,)))
            called = Step(aten._to_copy.default, (raw,), {"dtype": made.dtype}, (made,), step.where)
        self.steps.append(called)
        self.write(target, made, step.where)
        for output in step.outputs:  # an in-place operator returns what it wrote to
            self.views[output] = (target, _same(output, target), 0)
            self.versions[output] = _Version(made, self.written[self.root(target)])

    def write(self, value: Value, new: Value, where: SourceLine | None) -> None:
        chain, root = [], value
        while root in self.views:
            base, step, number = self.views[root]
            chain.append((base, step, number, self.now(base)))
            root = base
        if root in self.unsure:
            raise CaptureFault(
                "the model writes to a tensor that may share its memory with another", where=where
            )
        if root in self.given:
            raise CaptureFault(
                "a function of the model's control flow writes to a tensor from outside of it",
                where=where,
                hint="Copy the tensor first (clone()), and return it.",
            )
        writes = self.written[root] = self.written.get(root, 0) + 1
        self.versions[value] = _Version(new, writes)
        for base, step, number, before in chain:
            new = self.put_back(step, number, before, new, where)
            self.versions[base] = _Version(new, writes)

    def put_back(self, step: Step, number: int, base: Value, new: Value, where: SourceLine | None) -> Value:
        """The base with one of its views replaced by ``new``."""
        put = _PUT_BACK.get(getattr(step.target, "overloadpacket", step.target))
        if put is None:
            raise _cannot(replace(step, where=where), f"writes to a tensor through {step.target}")
        target, args = put(step, number, base, new)
        if target is None:
            return new
        made = Value(base.shape, base.dtype, base.strides)
        self.steps.append(Step(target, args, {}, (made,), where))
        return made


def _cannot(step: Step, what: str) -> CaptureFault:
    return CaptureFault(
        f"{step.target} {what}, which has no functional form here",
        where=step.where,
        hint="Write it without the in-place operation.",
    )


def _twin(step: Step) -> Any:
    """The functional operator of an in-place one: `add_.Tensor` is `add.Tensor`."""
    if schemas.name_of(step.target) == "aten::zero_":
        return aten.zeros_like.default
    twin = schemas.functional_twin(step.target)
    if twin is None:
        raise _cannot(step, "has no functional twin")
    return twin


def _as_view(step: Step) -> Step:
    """`transpose_` and its like change how a tensor is looked at, not what is in it: they are views."""
    twin = schemas.functional_twin(step.target)
    return step if twin is None or schemas.viewed_argument(twin) is None else replace(step, target=twin)


def _dtype_of(step: Step) -> torch.dtype:
    """The type that a functional twin returns: `gt_` writes numbers, `gt` returns truth values."""
    if torch.Tag.pointwise not in step.target.tags:
        return step.outputs[0].dtype

    def argument(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return torch.empty([1] * len(leaf.shape), dtype=leaf.dtype, device="meta")
        return 1 if isinstance(leaf, Expr) else leaf

    args, kwargs = map_leaves(argument, (step.args, step.kwargs))
    made: torch.dtype = step.target(*args, **kwargs).dtype
    return made


def _same(output: Value, target: Value) -> Step:
    return Step(aten.alias.default, (target,), {}, (output,))


def _shares_memory(step: Step, source: Value) -> bool | None:
    """Operators such as reshape, contiguous and to return a view only where they can. None if it can't be told."""
    name = schemas.name_of(step.target)
    output = step.outputs[0] if step.outputs else None
    if output is None:
        return False
    if name in ("aten::contiguous", "aten::to", "aten::type_as"):
        return (output.dtype, output.strides, output.shape) == (source.dtype, source.strides, source.shape)
    if name in ("aten::reshape", "aten::flatten", "aten::reshape_as"):
        if not all(isinstance(item, int) for item in (*source.shape, *(source.strides or ()), *output.shape)):
            return None  # only a concrete trace can tell
        flat = torch.empty_strided(source.shape, source.strides or (), dtype=source.dtype, device="meta")
        return schemas.is_view(flat.reshape(output.shape))
    return True


Put = tuple[Any, tuple[Any, ...]]


def _reshaped(step: Step, number: int, base: Value, new: Value) -> Put:
    return aten.reshape.default, (new, list(base.shape))


def _identity(step: Step, number: int, base: Value, new: Value) -> Put:
    return None, ()


def _slice(step: Step, number: int, base: Value, new: Value) -> Put:
    return aten.slice_scatter.default, (
        base,
        new,
        *(step.argument(name) for name in ("dim", "start", "end", "step")),
    )


def _select(step: Step, number: int, base: Value, new: Value) -> Put:
    return aten.select_scatter.default, (base, new, step.args[1], step.args[2])


def _piece(step: Step, number: int, base: Value, new: Value) -> Put:
    axis = step.argument("dim")
    sizes = [output.shape[axis] for output in step.outputs]
    start = sum(sizes[:number])
    return aten.slice_scatter.default, (base, new, axis, start, start + sizes[number], 1)


def _unbound(step: Step, number: int, base: Value, new: Value) -> Put:
    return aten.select_scatter.default, (base, new, step.argument("dim"), number)


def _diagonal(step: Step, number: int, base: Value, new: Value) -> Put:
    return aten.diagonal_scatter.default, (
        base,
        new,
        *(step.argument(name) for name in ("offset", "dim1", "dim2")),
    )


def _narrowed(step: Step, number: int, base: Value, new: Value) -> Put:
    axis, start, length = step.args[1:4]
    return aten.slice_scatter.default, (base, new, axis, start, start + length, 1)


_PUT_BACK: dict[Any, Callable[[Step, int, Value, Value], Put]] = {
    **dict.fromkeys(
        (
            aten.view,
            aten._unsafe_view,
            aten.reshape,
            aten.reshape_as,
            aten.view_as,
            aten.flatten,
            aten.unflatten,
            aten.unsqueeze,
            aten.squeeze,
        ),
        _reshaped,
    ),
    **dict.fromkeys(
        (aten.alias, aten.detach, aten.detach_, aten.contiguous, aten.to, aten.type_as, aten.lift_fresh),
        _identity,
    ),
    aten.slice: _slice,
    aten.select: _select,
    aten.narrow: _narrowed,
    aten.diagonal: _diagonal,
    aten.unbind: _unbound,
    **dict.fromkeys((aten.split, aten.split_with_sizes, aten.chunk, aten.tensor_split), _piece),
    aten.transpose: lambda step, number, base, new: (aten.transpose.int, (new, *step.args[1:])),
    aten.t: lambda step, number, base, new: (aten.t.default, (new,)),
    aten.permute: lambda step, number, base, new: (aten.permute.default, (new, _inverse(step.args[1]))),
}


def _inverse(order: list[int]) -> list[int]:
    count = len(order)
    places = [axis % count for axis in order]
    return [places.index(axis) for axis in range(count)]
