"""Quantised weights stay integers in the file: what multiplies them by their scale becomes DequantizeLinear."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["dequantized", "keeps_integers"]

T = ir.DataType
INTEGERS = frozenset((T.INT8, T.UINT8))
FEWEST = 64  # numbers of a weight that is worth it


def keeps_integers(node: ir.Node) -> bool | None:
    """False for a node that makes floats of integer weights: no file should hold those. None for all others."""
    if node.op_type != "Cast" or not node.inputs or node.inputs[0] is None:
        return None
    return False if _integer_weight(node.inputs[0]) is not None else None


def _integer_weight(value: ir.Value | None) -> ir.TensorProtocol | None:
    tensor = None if value is None else value.const_value
    return tensor if tensor is not None and tensor.dtype in INTEGERS and tensor.size >= FEWEST else None


def dequantized(model: ir.Model) -> None:
    """Each product of a cast integer weight and a float32 scale is one DequantizeLinear: the numbers are the same."""
    for graph in model.graphs():
        for node in list(graph):
            if node.op_type == "Mul" and len(node.inputs) == 2:
                for weight, scale in (node.inputs, node.inputs[::-1]):
                    if _replaced(model, graph, node, weight, scale):
                        break


def _replaced(
    model: ir.Model,
    graph: ir.Graph | ir.Function,
    node: ir.Node,
    weight: ir.Value | None,
    scale: ir.Value | None,
) -> bool:
    cast = weight.producer() if weight is not None else None
    factor = None if scale is None else scale.const_value
    if cast is None or cast.op_type != "Cast" or factor is None or factor.dtype != T.FLOAT:
        return False
    integers, values = _integer_weight(cast.inputs[0]), cast.inputs[0]
    if integers is None or cast.attributes.get_int("to") != T.FLOAT or not isinstance(graph, ir.Graph):
        return False
    rank = len(integers.shape)
    sizes = [1] * (rank - len(factor.shape)) + list(factor.numpy().shape)
    axes = [axis for axis, size in enumerate(sizes) if size != 1]
    if len(sizes) != rank or len(axes) > 1 or any(sizes[axis] != integers.shape[axis] for axis in axes):
        return False
    flat = factor.numpy().reshape([-1] if axes else [])
    small = ir.Value(name=f"{node.name}_scale", const_value=ir.tensor(flat, name=f"{node.name}_scale"))
    small.type, small.shape = ir.TensorType(T.FLOAT), ir.Shape(flat.shape)
    model.graph.register_initializer(small)
    made = ir.node(
        "DequantizeLinear", [values, small], {"axis": axes[0]} if axes else {}, name=f"{node.name}_weight"
    )
    old, new = node.outputs[0], made.outputs[0]
    new.type, new.shape = old.type, old.shape
    graph.insert_after(node, made)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    name = old.name
    graph.remove(node, safe=True)
    new.name = name
    return True
