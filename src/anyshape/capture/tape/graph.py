"""A graph that PyTorch traced, as a tape: a symbolic trace, or an operator's own decomposition."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape.capture.tape.steps import Step, Tape, Value, map_leaves, number_of
from anyshape.dims import Expr
from anyshape.errors import CaptureFault, SourceLine
from anyshape.source.lines import innermost_line
from anyshape.torch_bridge import schemas

__all__ = ["tape_of"]


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
        elif node.target not in schemas.ASSERTIONS:
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
        if node.target in schemas.READS_A_VALUE and isinstance(made, Expr) and made.name is not None:
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
