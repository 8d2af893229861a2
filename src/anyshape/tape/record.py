"""Record: run a module once on real tensors and keep every operator it called, composite ones whole."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from anyshape import torch_bridge
from anyshape.dims import Expr
from anyshape.errors import CaptureFault, SourceLine
from anyshape.recurrent import recurrent_as_operators
from anyshape.source import innermost_caller, innermost_line
from anyshape.tape.steps import Read, Step, Tape, Value, map_leaves, number_of

__all__ = ["record", "tape_of"]


def record(
    function: Callable[..., Sequence[torch.Tensor]], tensors: Sequence[torch.Tensor], names: Mapping[int, str]
) -> Tape:
    """The tape of one run of ``function``; ``names`` has the module's own tensors by identity."""
    recording = _Recording(names)
    recording.tape.inputs.extend(recording.new(tensor) for tensor in tensors)
    recording.valued.update(recording.tape.inputs)
    with (
        torch_bridge.quiet(),
        torch.no_grad(),
        recurrent_as_operators(),
        _Reads(recording),
        torch_bridge.every_operator(recording.note),
    ):
        outputs = function(*tensors)
    recording.tape.outputs.extend(recording.value(tensor) for tensor in outputs)
    return recording.tape


class _Recording:
    """A tape in the making, and which value each living tensor is."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names, self.tape = names, Tape([], {}, [], [])
        self.known = WeakIdKeyDictionary()
        self.valued: set[Value] = set()  # what depends on the values of the inputs, not on their sizes alone

    def note(self, target: Any, args: Any, kwargs: Any) -> Callable[[Any], None]:
        given = map_leaves(self.leaf, args), map_leaves(self.leaf, kwargs)
        where = innermost_caller()

        def finish(result: Any) -> None:
            if _hands_back(target, args, result):
                return
            made = map_leaves(self.new, result)
            many = isinstance(made, (list, tuple))
            outputs = tuple(made) if many else () if made is None else (made,)
            step = Step(target, *given, outputs, where)
            self.tape.steps.append(step)
            if target not in BY_SHAPE and self.valued.intersection(step.inputs):
                self.valued.update(value for value in outputs if value is not None)

        return finish

    def depends_on_values(self, item: Any) -> bool:
        return isinstance(item, torch.Tensor) and self.known.get(item) in self.valued  # type: ignore[no-untyped-call]

    def leaf(self, leaf: Any) -> Any:
        return self.value(leaf) if isinstance(leaf, torch.Tensor) else leaf

    def new(self, tensor: Any) -> Any:
        """A value for a tensor that was just made, or written to."""
        if not isinstance(tensor, torch.Tensor):
            return None
        made = Value(tuple(tensor.shape), tensor.dtype, tensor.stride())
        self.known[tensor] = made
        return made

    def value(self, tensor: torch.Tensor) -> Value:
        """The value that a tensor is; one that no operator made is a constant."""
        found: Value | None = self.known.get(tensor)  # type: ignore[no-untyped-call]
        if found is None:
            found = self.new(tensor)
            assert found is not None
            own = self.names.get(id(tensor))
            if own is not None:
                self.tape.names[found] = own
            # The model may write to a tensor of its own making; to its weights it does not.
            self.tape.constants[found] = tensor.detach() if own is not None else tensor.detach().clone()
        return found


def _hands_back(target: Any, args: Sequence[Any], result: Any) -> bool:
    """Whether an operator returned its own argument without its schema saying so: type_as, atleast_1d."""
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable or torch_bridge.viewed_argument(target) is not None:
        return False
    return isinstance(result, torch.Tensor) and any(result is item for item in args)


class _Reads(TorchFunctionMode):
    """Notes where Python looks at the values of a tensor: what it does then is not on the tape."""

    def __init__(self, recording: _Recording) -> None:
        super().__init__()
        self.recording = recording

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in READERS and any(self.recording.depends_on_values(item) for item in args):
            self.recording.tape.reads.append(Read(result, innermost_caller()))
        return result


READERS = frozenset(
    (
        torch.Tensor.item,
        torch.Tensor.tolist,
        torch.Tensor.numpy,
        torch.Tensor.__array__,
        torch.Tensor.__bool__,
        torch.Tensor.__int__,
        torch.Tensor.__float__,
        torch.Tensor.__index__,
        torch.equal,
        torch.allclose,
        torch.is_nonzero,
    )
)
aten = torch.ops.aten
BY_SHAPE = frozenset(
    (
        aten.zeros_like.default,
        aten.ones_like.default,
        aten.full_like.default,
        aten.empty_like.default,
        aten.new_zeros.default,
        aten.new_ones.default,
        aten.new_full.default,
        aten.new_empty.default,
    )
)


def tape_of(
    traced: torch.fx.GraphModule,
    names: Mapping[int, str],
    *,
    tensors: Mapping[str, torch.Tensor] | None = None,
    number: Callable[[Any], Any] | None = None,
) -> Tape:
    """A traced graph as a tape; ``tensors`` are placeholders that are weights, ``number`` reads a symbolic size."""
    return _Reader(names, tensors or {}, number).read(traced)


@dataclass(frozen=True, slots=True)
class _Unsaid:
    """A symbolic number that is no size: it matters only if an operator takes it."""

    text: str


@dataclass(slots=True)
class _Reader:
    names: Mapping[int, str]
    tensors: Mapping[str, torch.Tensor]
    number: Callable[[Any], Any] | None
    tape: Tape = field(default_factory=lambda: Tape([], {}, [], []))
    known: dict[torch.fx.Node, Any] = field(default_factory=dict)
    made: dict[int, Value] = field(default_factory=dict)

    def read(self, traced: torch.fx.GraphModule) -> Tape:
        for node in traced.graph.nodes:
            if node.op == "placeholder" and node.name not in self.tensors:
                self.known[node] = self.value(node.meta["val"])
                self.tape.inputs.append(self.known[node])
            elif node.op in ("placeholder", "get_attr"):
                tensor = self.tensors.get(node.name)
                self.known[node] = self.constant(
                    getattr(traced, str(node.target)) if tensor is None else tensor, node
                )
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                returned = map_leaves(self.resolved, _plain(node.args[0]))
                self.tape.outputs.extend(returned if isinstance(returned, (list, tuple)) else [returned])
        return self.tape

    def call(self, node: torch.fx.Node) -> None:
        result = node.meta.get("val")
        if node.target is operator.getitem:
            source, place = node.args
            self.known[node] = self.known[source][place]  # type: ignore[index]
        elif isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.known[node] = self.read_number(node, result)
        elif node.target not in torch_bridge.ASSERTIONS:
            args = map_leaves(self.resolved, _plain(node.args))
            kwargs = map_leaves(self.resolved, _plain(dict(node.kwargs)))
            values = map_leaves(self.value, result)
            many = isinstance(values, (list, tuple))
            outputs = tuple(values) if many else () if values is None else (values,)
            self.tape.steps.append(Step(node.target, args, kwargs, outputs, _line(node)))
            self.known[node] = values

    def read_number(self, node: torch.fx.Node, result: Any) -> Any:
        """A size, or a number that the model read out of a tensor: the tape notes which tensor."""
        assert self.number is not None
        if not isinstance(result, torch.SymInt):
            return _Unsaid(str(result))
        made = self.number(result)
        source = node.args[0] if node.args else None
        if node.target in torch_bridge.READS_A_VALUE and isinstance(made, Expr) and made.name is not None:
            out = Value((), torch.int64)
            self.tape.steps.append(
                Step(number_of, (self.known[source], made.name), {}, (out,), _line(node))  # type: ignore[index]
            )
        return made

    def resolved(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.fx.Node):
            known = self.known[leaf]
            if isinstance(known, _Unsaid):
                raise CaptureFault(
                    f"the trace computes with {known.text}, which is no whole number", where=_line(leaf)
                )
            return known
        return self.number(leaf) if self.number is not None else leaf

    def constant(self, tensor: Any, node: torch.fx.Node) -> Any:
        if not isinstance(tensor, torch.Tensor):
            raise CaptureFault(
                f"the trace holds {type(tensor).__name__} where a tensor is expected", where=_line(node)
            )
        if id(tensor) not in self.made:
            value = self.value(node.meta.get("val") if self.number is not None else tensor)
            self.made[id(tensor)] = value = value if value is not None else self.value(tensor)
            self.tape.constants[value] = tensor.detach()
            if id(tensor) in self.names:
                self.tape.names[value] = self.names[id(tensor)]
        return self.made[id(tensor)]

    def value(self, meta: Any) -> Any:
        if not isinstance(meta, torch.Tensor):
            return None
        if self.number is None:
            return Value(tuple(meta.shape), meta.dtype, meta.stride())
        shape = tuple(self.number(size) for size in meta.shape)
        strides = tuple(stride if isinstance(stride, int) else str(stride) for stride in meta.stride())
        return Value(shape, meta.dtype, strides, meta)


def _plain(tree: Any) -> Any:
    """fx keeps immutable lists and dicts of its own."""
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if isinstance(tree, tuple):
        return tuple(_plain(item) for item in tree)
    if isinstance(tree, dict):
        return {key: _plain(item) for key, item in tree.items()}
    return tree


def _line(node: torch.fx.Node) -> SourceLine | None:
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return innermost_line([(file, int(line)) for file, line in frames])
