"""Pieces: a model with nodes that ONNX Runtime has no kernel for, run in pieces around them.

Such a node is run by an implementation that is handed in. What lies between is run by ONNX Runtime: each piece is all
that can be computed once the nodes before it have been.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from anyshape.errors import FileError, printable
from anyshape.runtimes.onnx_runtime import Array, OnnxRuntime, RuntimeFailure

__all__ = ["Implementation", "Pieces", "check_kernels", "foreign"]

Implementation = Callable[..., Any]
"""Takes a node's inputs as arrays, None for one that is left out, and its attributes by name; returns its outputs."""

KNOWN = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
MICROSOFT = ("com.microsoft", "com.ms.")


def foreign(model: ir.Model) -> list[str]:
    """The operators that are neither ONNX's, nor ONNX Runtime's, nor functions of the model: ``my.domain::MyOp``."""
    return list(dict.fromkeys(_name(node) for node in model.graph.all_nodes() if _is_foreign(node, model)))


def check_kernels(model: ir.Model, name: str, given: Collection[str] = (), hint: str = "") -> None:
    """`FileError` for a model with an operator that nobody can run."""
    lacking = [printable(key, 200) for key in foreign(model) if key not in given]
    if lacking:
        raise FileError(
            f"{name} has the node {lacking[0]}, which ONNX Runtime has no kernel for",
            hint=hint or f'anyshape.load(path, operators={{"{lacking[0]}": function of arrays}}) runs it.',
        )


def _is_foreign(node: ir.Node, model: ir.Model) -> bool:
    known = node.domain in KNOWN or node.domain.startswith(MICROSOFT)
    return not known and node.op_identifier() not in model.functions


def _name(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}"


@dataclass(frozen=True, slots=True)
class _Piece:
    """What can be run at one go, and the foreign nodes that can be run then: by output, inputs and attributes."""

    runtime: OnnxRuntime | None
    nodes: tuple[ir.Node, ...]


class Pieces:
    """A model whose foreign nodes are run by ``implementations``, all else by ONNX Runtime on the CPU."""

    note = ""  # which operators are whose, the exporter says

    def __init__(self, model: ir.Model, implementations: Mapping[str, Implementation]) -> None:
        self.name = f"{OnnxRuntime.name}, but for {', '.join(foreign(model))}"
        self.implementations = implementations
        whole = model.clone()
        common.ShapeInferencePass()(whole)
        whole.graph.sort()
        inside = [node for node in whole.graph.all_nodes() if node.graph is not whole.graph]
        for node in inside:
            if _is_foreign(node, whole):
                raise RuntimeFailure(
                    f"{_name(node)} stands in a choice or a loop, where only a runtime can run it"
                )
        self.input_names = [str(value.name) for value in whole.graph.inputs]
        self.output_names = [str(value.name) for value in whole.graph.outputs]
        self._weights = _weights_of_foreign(whole)
        self._pieces = list(_pieces(whole))

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        """The outputs for named inputs; `RuntimeFailure` if the runtime, or an implementation, refuses them."""
        known: dict[str, Array] = {**self._weights, **feed}
        for piece in self._pieces:
            if piece.runtime is not None:
                given = {name: known[name] for name in piece.runtime.input_names}
                known |= zip(piece.runtime.output_names, piece.runtime.run(given), strict=True)
            for node in piece.nodes:
                known |= self._run_node(node, known)
        return [known[name] for name in self.output_names]

    def _run_node(self, node: ir.Node, known: Mapping[str, Array]) -> dict[str, Array]:
        name = _name(node)
        inputs = [None if value is None else known[str(value.name)] for value in node.inputs]
        attributes = {key: item.value for key, item in node.attributes.items()}
        try:
            made = self.implementations[name](*inputs, **attributes)
        except Exception as error:  # whoever wrote it may raise anything
            raise RuntimeFailure(f"{name}: {type(error).__name__}: {error}") from error
        outputs = [np.asarray(item) for item in (made if isinstance(made, (list, tuple)) else [made])]
        if len(outputs) != len(node.outputs):
            raise RuntimeFailure(
                f"{name} gives {len(outputs)} results, the file has {len(node.outputs)} for it"
            )
        for value, array in zip(node.outputs, outputs, strict=True):
            if value.dtype is not None and value.dtype.numpy() != array.dtype:
                raise RuntimeFailure(f"{name} gives {array.dtype}, the file has {value.dtype.numpy()} for it")
        return {str(value.name): array for value, array in zip(node.outputs, outputs, strict=True)}


def _weights_of_foreign(model: ir.Model) -> dict[str, Array]:
    """The weights that foreign nodes take themselves."""
    taken = [
        value
        for node in model.graph
        if _is_foreign(node, model)
        for value in node.inputs
        if value is not None
    ]
    return {
        str(value.name): np.asarray(value.const_value.numpy())
        for value in taken
        if value.is_initializer() and value.const_value is not None
    }


def _pieces(model: ir.Model) -> Iterator[_Piece]:
    """The pieces, in their order: a node belongs to the first at which all that it takes is known."""
    nodes = list(model.graph)
    ready: dict[ir.Value, int] = {}  # at which piece a value is there
    places = []
    for node in nodes:
        place = max((ready.get(value, 0) for value in _taken(node)), default=0)
        places.append(place)
        ready.update((value, place + _is_foreign(node, model)) for value in node.outputs)
    last = set(model.graph.outputs)
    for number in range(max(places, default=0) + 1):
        own = [k for k, node in enumerate(nodes) if places[k] == number and not _is_foreign(node, model)]
        apart = [node for k, node in enumerate(nodes) if places[k] == number and _is_foreign(node, model)]
        made = {value for k in own for value in nodes[k].outputs}
        mine = {nodes[k] for k in own}
        wanted = last | {value for node in nodes if node not in mine for value in _taken(node)}
        outputs = [str(value.name) for k in own for value in nodes[k].outputs if value in wanted]
        given = [value for k in own for value in _taken(nodes[k])]
        outside = [value for value in given if value not in made and not value.is_initializer()]
        yield _Piece(_runtime(model, own, outside, outputs) if outputs else None, tuple(apart))


def _taken(node: ir.Node) -> Iterator[ir.Value]:
    """What a node takes from its graph, also deep within its own graphs."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                yield from (
                    value for value in inner.inputs if value is not None and value.graph is node.graph
                )


def _runtime(
    model: ir.Model, own: Sequence[int], outside: Sequence[ir.Value], outputs: Sequence[str]
) -> OnnxRuntime:
    """ONNX Runtime for some nodes of a model, which are given what they take from the others."""
    copy = model.clone()
    graph, nodes = copy.graph, list(copy.graph)
    named = {value.name: value for value in graph.inputs}
    named |= {value.name: value for node in nodes for value in node.outputs}
    inputs: dict[str, ir.Value] = {}
    for value in outside:
        old = named[value.name]
        if value.name not in inputs and old.producer() is not None:
            new = ir.Value(name=f"{value.name}.given", type=old.type, shape=old.shape)
            old.replace_all_uses_with(new, replace_graph_outputs=False)
            inputs[str(value.name)] = new
        inputs.setdefault(str(value.name), old)
    graph.outputs.clear()
    graph.outputs.extend(named[name] for name in outputs)
    kept = set(own)
    graph.remove([node for k, node in enumerate(nodes) if k not in kept], safe=True)
    graph.inputs.clear()
    for name, value in inputs.items():
        graph.inputs.append(value)
        value.name = name
    for name, value in list(graph.initializers.items()):
        if not value.uses():
            graph.initializers.pop(name)
    return OnnxRuntime.of_model(copy)
