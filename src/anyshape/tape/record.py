"""Record: run a module once on real tensors and keep every operator it called, composite ones whole."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape import torch_bridge
from anyshape.recurrent import recurrent_as_operators
from anyshape.source import innermost_line
from anyshape.tape.steps import Step, Tape, Value, map_leaves

__all__ = ["record", "tape_of"]


def record(
    function: Callable[..., Sequence[torch.Tensor]], tensors: Sequence[torch.Tensor], names: Mapping[int, str]
) -> Tape:
    """The tape of one run of ``function``; ``names`` has the module's own tensors by identity."""
    with torch_bridge.quiet(), torch.no_grad(), recurrent_as_operators():
        traced = torch_bridge.traced_on_real_tensors(function, tensors)
    return tape_of(traced, names)


def tape_of(traced: torch.fx.GraphModule, names: Mapping[int, str]) -> Tape:
    """A traced graph as a tape."""
    tape = Tape([], {}, [], [])
    known: dict[torch.fx.Node, Any] = {}
    made: dict[int, Value] = {}

    def resolve(leaf: Any) -> Any:
        return known[leaf] if isinstance(leaf, torch.fx.Node) else leaf

    for node in traced.graph.nodes:
        if node.op == "placeholder":
            known[node] = _value(node.meta["val"])
            tape.inputs.append(known[node])
        elif node.op == "get_attr":
            tensor = getattr(traced, str(node.target))
            if id(tensor) not in made:
                made[id(tensor)] = value = _value(tensor)
                tape.constants[value] = tensor.detach()
                if id(tensor) in names:
                    tape.names[value] = names[id(tensor)]
            known[node] = made[id(tensor)]
        elif node.target is operator.getitem:
            known[node] = known[node.args[0]][node.args[1]]
        elif node.op == "call_function":
            result = map_leaves(_value, node.meta.get("val"))
            args = map_leaves(resolve, _plain(node.args))
            kwargs = map_leaves(resolve, _plain(dict(node.kwargs)))
            many = isinstance(result, (list, tuple))
            outputs = tuple(result) if many else () if result is None else (result,)
            tape.steps.append(Step(node.target, args, kwargs, outputs, _line(node)))
            known[node] = result
        elif node.op == "output":
            returned = map_leaves(resolve, _plain(node.args[0]))
            tape.outputs.extend(returned if isinstance(returned, (list, tuple)) else [returned])
    return tape


def _plain(tree: Any) -> Any:
    """fx keeps immutable lists and dicts of its own."""
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if isinstance(tree, tuple):
        return tuple(_plain(item) for item in tree)
    if isinstance(tree, dict):
        return {key: _plain(item) for key, item in tree.items()}
    return tree


def _value(meta: Any) -> Any:
    if isinstance(meta, torch.Tensor):
        return Value(tuple(meta.shape), meta.dtype, meta.stride())
    return None


def _line(node: torch.fx.Node) -> Any:
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return innermost_line([(file, int(line)) for file, line in frames])
