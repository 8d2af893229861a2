"""Casts: the types of a graph's values, and nodes that compute in another type than their graph has."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

__all__ = ["HALVES", "Types", "in_other_types", "mixed", "put_in_place", "types_in", "types_of", "unlawful"]

Types = dict[ir.Value, ir.DataType]

# Where an attribute says of which type the output is.
BY_ATTRIBUTE = {"Cast": "to", "ConstantOfShape": "value"}
HALVES = frozenset((ir.DataType.FLOAT16, ir.DataType.BFLOAT16))
# What only hands on what is inside of it, or has no type of its own.
HANDS_ON = frozenset(("If", "Loop", "Scan", "Constant", "Cast", "Optional", "OptionalGetElement"))


def types_in(model: ir.Model) -> set[ir.DataType]:
    """Every type that a model names: of its inputs, its weights, and what it casts to."""
    found = {value.dtype for value in model.graph.inputs}
    for graph in model.graphs():
        found |= {value.dtype for value in graph.initializers.values()}
        found |= {
            item.const_value.dtype for item in graph.initializers.values() if item.const_value is not None
        }
    for node in (*model.graph.all_nodes(), *_in_functions(model)):
        attribute = node.attributes.get("to") or node.attributes.get("value")
        if attribute is not None and attribute.type == ir.AttributeType.INT:
            found.add(ir.DataType(attribute.as_int()))
        elif attribute is not None and attribute.type == ir.AttributeType.TENSOR:
            found.add(attribute.as_tensor().dtype)
        found |= {output.dtype for output in node.outputs}
    return {item for item in found if item is not None}


def _in_functions(model: ir.Model) -> list[ir.Node]:
    return [node for function in model.functions.values() for node in function.all_nodes()]


def types_of(model: ir.Model) -> Types:
    """The type of every value of a model, those inside branches and loops included, as its operators make them.

    ONNX's own inference gives up at the first node whose types are not lawful, and those are what is looked for.
    """
    found: Types = {}
    _note_graph(model.graph, found, model.opset_imports.get("", 1))
    return found


def _note_graph(graph: ir.Graph, found: Types, opset: int) -> None:
    for value in graph.inputs:
        if value.dtype is not None:
            found.setdefault(value, value.dtype)
    for value in graph.initializers.values():
        dtype = value.const_value.dtype if value.const_value is not None else value.dtype
        if dtype is not None:
            found[value] = dtype
    for node in graph:
        for inner in _inner(node):
            carried = node.inputs if node.op_type == "Loop" else (None, None, *node.inputs)
            for given, value in zip(
                carried[2:], inner.inputs[2:] if node.op_type == "Loop" else inner.inputs, strict=False
            ):
                if given is not None and given in found:
                    found.setdefault(value, found[given])
            _note_graph(inner, found, opset)
        for place, value in enumerate(node.outputs):
            dtype = _made(node, place, found, opset) or value.dtype
            if dtype is not None:
                found[value] = dtype


def _inner(node: ir.Node) -> list[ir.Graph]:
    return [item.as_graph() for item in node.attributes.values() if item.type == ir.AttributeType.GRAPH]


def _made(node: ir.Node, place: int, types: Types, opset: int) -> ir.DataType | None:
    """The type of a node's output; None where it can't be told by its operator."""
    for inner in _inner(node):
        first = 1 if node.op_type == "Loop" else 0  # which says whether it goes on
        return types.get(inner.outputs[place + first])
    for name in ("to", "dtype", "output_dtype"):
        if node.attributes.get_int(name, 0):
            return ir.DataType(node.attributes.get_int(name))
    tensor = node.attributes.get("value")
    if tensor is not None and tensor.type == ir.AttributeType.TENSOR:
        return tensor.as_tensor().dtype
    if node.op_type == "ConstantOfShape":
        return ir.DataType.FLOAT
    if node.op_type == "CastLike":
        return types.get(node.inputs[1]) if node.inputs[1] is not None else None
    schema = _declared(node.op_type, "", opset) if node.domain == "" else None
    if schema is None or not schema.outputs:
        return None
    wanted = schema.outputs[min(place, len(schema.outputs) - 1)]
    if len(wanted.types) == 1:
        return next((dtype for dtype, text in TEXTS.items() if text in wanted.types), None)
    for number, value in enumerate(node.inputs):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if value in types and formal.type_str == wanted.type_str:
            return types[value]
    return None


def in_other_types(node: ir.Node, types: Types, wider: Mapping[ir.DataType, ir.DataType]) -> None:
    """Let a node take and give ``wider`` types in place of its own, with casts before and after it.

    The graph around it keeps its types, so each result is rounded to the type that it has there.
    """
    if node.op_type in HANDS_ON or node.op_type.startswith("Sequence"):
        return
    casts: dict[ir.Value, ir.Value] = {}
    for place, value in enumerate(node.inputs):
        to = None if value is None else wider.get(types.get(value, ir.DataType.UNDEFINED))
        if value is None or to is None:
            continue
        if value not in casts:
            cast = _cast(value, to, f"{node.name}_in{place}")
            node.graph.insert_before(node, cast)  # type: ignore[union-attr]
            casts[value] = cast.outputs[0]
        node.replace_input_with(place, casts[value])
    for place, value in enumerate(node.outputs):
        own = types.get(value, ir.DataType.UNDEFINED)
        if own in wider:
            types[_narrowed_output(node, place, own, wider[own])] = own
            types[value] = wider[own]
    attribute = node.attributes.get(BY_ATTRIBUTE.get(node.op_type, ""))
    if attribute is not None and attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.dtype in wider:
            wide = tensor.numpy().astype(wider[tensor.dtype].numpy())
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, ir.tensor(np.asarray(wide)))


def put_in_place(graph: ir.Graph, value: ir.Value, other: ir.Value, kept: ir.Node) -> None:
    """Whoever takes a value of a node takes another in its place; ``kept``, which makes the other of it, does not."""
    for user, at in list(value.uses()):
        if user is not kept:
            user.replace_input_with(at, other)
    for at, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[at] = other


def _narrowed_output(node: ir.Node, place: int, own: ir.DataType, to: ir.DataType) -> ir.Value:
    """The node gives a wider type under another name; under the old one, everybody gets what they did."""
    value = node.outputs[place]
    cast = ir.node("Cast", [value], {"to": own}, name=f"{node.name}_out{place}")
    narrow = cast.outputs[0]
    narrow.type, narrow.shape = ir.TensorType(own), value.shape
    graph = node.graph
    assert graph is not None
    put_in_place(graph, value, narrow, cast)
    narrow.name, value.name = value.name, f"{value.name}_wide"
    value.type = ir.TensorType(to)
    graph.insert_after(node, cast)
    return narrow


def _cast(value: ir.Value, to: ir.DataType, name: str) -> ir.Node:
    node = ir.node("Cast", [value], {"to": to}, name=name)
    made = node.outputs[0]
    made.name, made.type, made.shape = f"{name}_cast", ir.TensorType(to), value.shape
    return node


@functools.cache
def _declared(operator: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return None


def mixed(node: ir.Node, types: Types, opset: int) -> set[ir.DataType]:
    """The types of half precision that a node is given beside float32, where ONNX wants one type for both."""
    schema = (
        _declared(node.op_type, "", opset) if node.domain == "" and node.op_type not in HANDS_ON else None
    )
    together: dict[str, set[ir.DataType]] = {}
    for place, value in enumerate(node.inputs if schema is not None and schema.inputs else ()):
        if value is not None and value in types:
            formal = schema.inputs[min(place, len(schema.inputs) - 1)]  # type: ignore[union-attr]
            together.setdefault(formal.type_str, set()).add(types[value])
    both = [found for found in together.values() if ir.DataType.FLOAT in found]
    return {dtype for found in both for dtype in found & HALVES}


def unlawful(node: ir.Node, types: Types, opset: int) -> set[ir.DataType]:
    """The types among a node's inputs and outputs that ONNX's own operator does not have in this version."""
    schema = _declared(node.op_type, "", opset) if node.domain == "" else None
    if schema is None:
        return set()
    found: set[ir.DataType] = set()
    for values, formal in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for place, value in enumerate(values):
            dtype = None if value is None else types.get(value)
            if dtype is None or not formal:
                continue
            allowed = formal[min(place, len(formal) - 1)].types
            if TEXTS.get(dtype, "") not in allowed and any(text.startswith("tensor(") for text in allowed):
                found.add(dtype)
    return found


TEXTS: dict[ir.DataType, str] = {
    dtype: f"tensor({onnx.TensorProto.DataType.Name(int(dtype)).lower()})"
    for dtype in ir.DataType
    if dtype not in (ir.DataType.UNDEFINED,)
}
