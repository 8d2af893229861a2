"""Reductions of nothing: of a tensor without elements, ONNX Runtime gives back the shape as it is (1.31).

Where an axis may come out empty by the values of a tensor, or in some round of a loop, the graph asks first. Sizes of
the contract need none of this: what is wrong at 0 is left out of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from anyshape.capture.tape.steps import Step, Value
from anyshape.dims import Expr
from anyshape.dims.names import is_reserved

__all__ = ["ask_first", "mark"]

# What a reduction of no numbers gives, where PyTorch gives anything.
OF_NOTHING = {
    "ReduceSum": 0.0,
    "ReduceSumSquare": 0.0,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceProd": 1.0,
    "ReduceMean": math.nan,
    "ReduceLogSumExp": -math.inf,
    "ReduceLogSum": -math.inf,
    "ReduceMax": 0.0,  # any() of nothing; of numbers, PyTorch refuses
    "ReduceMin": 1.0,  # all() of nothing
    "ArgMax": 0.0,
    "ArgMin": 0.0,
}


MOST_BACK = 8
MARK = "anyshape.may_be_empty"  # among a node's properties, until the question is put


def mark(step: Step, nodes: Sequence[ir.Node]) -> None:
    """Remember which nodes compute with what may be empty."""
    if any(map(_may_be_empty, step.inputs)):
        for node in nodes:
            node.metadata_props[MARK] = "1"


def _may_be_empty(value: Value) -> bool:
    sizes = (size for size in value.shape if isinstance(size, Expr))
    return any(is_reserved(name) for size in sizes for name in size.names)


def ask_first(model: ir.Model) -> None:
    """Put a question around each reduction of what may be empty."""
    if any(MARK in node.metadata_props for node in model.graph.all_nodes()):
        common.InlinePass()(model)
        _ask_in(model.graph)


def _ask_in(graph: ir.Graph) -> None:
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _ask_in(attribute.as_graph())
        if node.metadata_props.pop(MARK, None) and node.op_type in OF_NOTHING and node.domain == "":
            _ask(graph, node)


def _ask(graph: ir.Graph, node: ir.Node) -> None:
    """Whether there is anything, and the reduction if so; as it was, where it can't be said what it reduces."""
    given, output = node.inputs[0], node.outputs[0]
    axes = _axes(node)
    dtype = ir.DataType.INT64 if node.op_type.startswith("Arg") else _dtype(node)
    rank = _rank(node)
    if given is None or rank is None or axes is None or dtype is None:
        return
    zero, count, shape = _constant(0), ir.node("Size", [given]), ir.node("Shape", [given])
    is_empty = ir.node("Equal", [count.outputs[0], zero.outputs[0]])
    reduced = {axis % rank for axis in axes} if axes else {*range(rank)}
    nothing = _nothing(node, shape.outputs[0], reduced, rank, dtype)
    inner = ir.Node("", node.op_type, list(node.inputs), list(node.attributes.values()), num_outputs=1)
    inner.outputs[0].dtype = dtype
    something = ir.Graph([], [inner.outputs[0]], nodes=[inner], name="something")
    sides = [ir.AttrGraph("then_branch", nothing), ir.AttrGraph("else_branch", something)]
    choice = ir.Node("", "If", [is_empty.outputs[0]], sides, num_outputs=1)
    made = choice.outputs[0]
    made.dtype, made.shape = dtype, output.shape
    for new in (zero, count, shape, is_empty, choice):
        new.meta.update(node.meta)
    inner.meta.update(node.meta)
    graph.insert_before(node, [zero, count, shape, is_empty, choice])
    output.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _nothing(node: ir.Node, shape: ir.Value, reduced: set[int], rank: int, dtype: ir.DataType) -> ir.Graph:
    """What the reduction of an empty tensor gives."""
    keeps = node.attributes.get_int("keepdims", 1)
    one = _constant([1])
    sizes = ir.node("Concat", [shape, one.outputs[0]], {"axis": 0})
    kept = [rank if axis in reduced else axis for axis in range(rank) if keeps or axis not in reduced]
    places = _constant(kept)
    wanted = ir.node("Gather", [sizes.outputs[0], places.outputs[0]], {"axis": 0})
    number = OF_NOTHING[node.op_type]
    if not dtype.is_floating_point():
        number = number if math.isfinite(number) else 0.0
    value = ir.tensor(np.asarray([number]).astype(dtype.numpy()), dtype=dtype)
    filled = ir.node("ConstantOfShape", [wanted.outputs[0]], {"value": value})
    filled.outputs[0].dtype = dtype
    return ir.Graph([], [filled.outputs[0]], nodes=[one, sizes, places, wanted, filled], name="nothing")


def _dtype(node: ir.Node) -> ir.DataType | None:
    output, given = node.outputs[0], node.inputs[0]
    if output.dtype is not None or given is None:
        return output.dtype
    cast = given.producer()
    if given.dtype is None and cast is not None and cast.op_type == "Cast":
        return ir.DataType(cast.attributes.get_int("to", 0))
    return given.dtype


def _rank(node: ir.Node) -> int | None:
    """How many axes there are: what is computed number by number has as many as what it is computed from."""
    value = node.inputs[0]
    for _ in range(MOST_BACK):
        if value is None:
            return None
        if value.shape is not None:
            return len(value.shape)
        producer = value.producer()
        if producer is None or producer.op_type not in (
            "Cast",
            "CastLike",
            "Abs",
            "Identity",
            "Mul",
            "Sub",
            "Not",
        ):
            return None
        value = producer.inputs[0]
    return None


def _axes(node: ir.Node) -> list[int] | None:
    """The axes that are reduced: none said means all; None if the graph computes them."""
    if node.op_type.startswith("Arg"):
        return [node.attributes.get_int("axis", 0)]
    if "axes" in node.attributes:
        return list(node.attributes.get_ints("axes"))
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return []
    value: ir.Value | None = node.inputs[1]
    for _ in range(MOST_BACK):
        known = None if value is None else ir.convenience.get_const_tensor(value)
        if known is not None:
            return [int(axis) for axis in known.numpy().reshape(-1)]
        producer = None if value is None else value.producer()
        if producer is None or producer.op_type not in ("Reshape", "Unsqueeze", "Cast", "Identity"):
            return None
        value = producer.inputs[0]
    return None


def _constant(numbers: int | Sequence[int]) -> ir.Node:
    return ir.node("Constant", [], {"value": ir.tensor(np.asarray(numbers, np.int64))})
