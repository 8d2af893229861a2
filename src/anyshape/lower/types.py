"""Types: no operator is asked for a type that it does not have; it computes in a wider one, with casts around it.

ONNX gives each version of an operator its own list of types, and PyTorch's are more. What ONNX Runtime lacks beside
that is written around as well where nothing is lost by it: integers, and sums of half precision in place.
A float that it has no kernel for stays as it is: such a file is what the user asked for, and other runtimes have it.
"""

from __future__ import annotations

import onnx_ir as ir

from anyshape.casts import HALVES, Types, in_other_types, mixed, put_in_place, types_in, types_of, unlawful

__all__ = ["LACKING", "with_lawful_types"]

T = ir.DataType
USUAL = {T.FLOAT, T.INT64, T.INT32, T.BOOL}
SMALL = frozenset((T.INT16, T.UINT16))
# The types in which an operator may compute instead, first choice first; what does not fit wraps as in PyTorch.
WIDER: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    T.BFLOAT16: (T.FLOAT,),
    T.FLOAT16: (T.FLOAT,),
    T.BOOL: (T.UINT8, T.INT32),
    T.INT8: (T.INT32, T.INT64),
    T.INT16: (T.INT32, T.INT64),
    T.UINT8: (T.INT32, T.UINT32, T.INT64),
    T.UINT16: (T.INT32, T.UINT32, T.INT64),
    T.UINT32: (T.INT64, T.UINT64),
    T.UINT64: (T.INT64,),
    T.INT32: (T.INT64,),
}
# What ONNX Runtime 1.31 lacks on the CPU; tests/test_lower_types.py fails when one of these can go.
LACKING: dict[str, frozenset[ir.DataType]] = {
    "Where": SMALL | {T.BOOL, T.UINT64},
    "ArgMax": SMALL | {T.UINT32, T.UINT64},
    "ArgMin": SMALL | {T.UINT32, T.UINT64},
    "Max": SMALL,
    "Min": SMALL,
    "Clip": SMALL,
    "BitShift": frozenset((T.UINT16,)),
    "Pad": SMALL,
    "Trilu": SMALL | {T.INT8, T.UINT8, T.UINT32, T.UINT64},
    "Relu": frozenset((T.INT16, T.INT64)),
}
# Truths are added, multiplied and compared in PyTorch.
OF_TRUTHS = frozenset(("Where", "Add", "Mul", "Max", "Min", "ReduceMax", "ReduceMin"))
# These have no half precision where they add up what they write.
ADDS_UP = frozenset(("ScatterElements", "ScatterND"))


def with_lawful_types(model: ir.Model) -> ir.Model:
    """The same model, in which every operator has the types that it is used with."""
    if types_in(model) <= USUAL and not any(_of_truths(node) for node in model.graph.all_nodes()):
        return model
    types, opset = types_of(model), model.opset_imports.get("", 1)
    for node in list(model.graph.all_nodes()):
        _make_lawful(node, types, opset)
        if node.op_type == "Transpose" and types.get(node.outputs[0]) in HALVES:
            _keep_from_fusing(node, types)
    return model


def _of_truths(node: ir.Node) -> bool:
    return node.op_type in OF_TRUTHS and node.outputs[0].dtype == T.BOOL


def _make_lawful(node: ir.Node, types: Types, opset: int) -> None:
    own = _own_types(node, types)
    chosen = dict.fromkeys(mixed(node, own, opset), T.FLOAT)
    for dtype in unlawful(node, own, opset) | _lacking(node, own):
        for wider in WIDER.get(dtype, ()):
            swapped = {value: wider if was == dtype else was for value, was in own.items()}
            if not unlawful(node, swapped, opset) and not _lacking(node, swapped):
                chosen[dtype] = wider
                break
    if chosen:
        in_other_types(node, own, chosen)
        types.update(own)


def _own_types(node: ir.Node, types: Types) -> Types:
    """The types of what a node computes with: not of the truths that a Where chooses by, which keep theirs."""
    given = node.inputs[1:] if node.op_type == "Where" else node.inputs
    values = (value for value in (*given, *node.outputs) if value is not None)
    return {value: types[value] for value in values if value in types}


def _lacking(node: ir.Node, types: Types) -> set[ir.DataType]:
    """The types of a node that ONNX Runtime has no kernel for, of those that are written around."""
    if node.domain != "":
        return set()
    own = set(_own_types(node, types).values())
    found = own & LACKING.get(node.op_type, frozenset())
    if node.op_type in ADDS_UP and node.attributes.get_string("reduction", "none") != "none":
        found |= own & {T.FLOAT16}
    return found


def _keep_from_fusing(transpose: ir.Node, types: Types) -> None:
    """Put two operators that move no numbers between a transposition of half precision and what follows.

    Where the first axis becomes one of the last two, ONNX Runtime 1.31 fuses it with a MatMul that follows, and ends
    the process while it loads the model, with a Cast or a Reshape between them as well.
    """
    perm = transpose.attributes.get_ints("perm", ())
    rest = [axis for axis in perm if axis]
    if len(perm) < 3 or list(rest) != sorted(rest) or perm.index(0) < len(perm) - 2:
        return
    value, graph = transpose.outputs[0], transpose.graph
    assert graph is not None
    axis = ir.node("Constant", [], {"value": ir.tensor([0], dtype=T.INT64)}, name=f"{transpose.name}_axis")
    longer = ir.node("Unsqueeze", [value, axis.outputs[0]], name=f"{transpose.name}_longer")
    shorter = ir.node("Squeeze", [longer.outputs[0], axis.outputs[0]], name=f"{transpose.name}_shorter")
    kept = shorter.outputs[0]
    kept.type, kept.shape = value.type, value.shape
    types[kept] = types[value]
    put_in_place(graph, value, kept, longer)
    kept.name, value.name = value.name, f"{value.name}_before"
    longer.outputs[0].name, axis.outputs[0].name = f"{value.name}_longer", f"{value.name}_axis"
    graph.insert_after(transpose, [axis, longer, shorter])
