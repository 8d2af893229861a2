"""optimize: fewer and faster nodes; dynamic dims untouched."""

from __future__ import annotations

import hashlib
from typing import Any

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes import common

from anyshape.lower.quantized import dequantized, keeps_integers
from anyshape.torch_bridge import process
from anyshape.torch_bridge.rewriting import rewriting

__all__ = ["optimize"]


def optimize(model: ir.Model) -> ir.Model:
    """The model with constants folded, idle nodes dropped and weights stored once; its signature is as before."""
    names = [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    with process.quiet():
        common.CommonSubexpressionEliminationPass()(model)  # what is there twice need not be folded twice
        made = _folded(model)
        for graph in made.graphs():
            _store_once(graph)
        common.CommonSubexpressionEliminationPass()(made)
        dequantized(made)
        common.RemoveUnusedNodesPass()(made)
    after = [value.name for value in (*made.graph.inputs, *made.graph.outputs)]
    assert names == after, f"optimize changed the signature: {names} became {after}"
    return made


def _folded(model: ir.Model) -> ir.Model:
    """The model through onnxscript's optimizer; as it was where that fails.

    Its constant folding fails on SplitToSequence with a dynamic split (onnxscript 0.7.2): looked for at each upgrade.
    """
    copy = model.clone()
    try:
        # No limit on inputs: the gates of recurrent weights are put in order once, here, whatever their size.
        with rewriting():
            onnxscript.optimizer.optimize_ir(
                copy, num_iterations=2, input_size_limit=2**62, should_fold=keeps_integers
            )
    except Exception:  # whatever it stumbles over, the model before it is right
        common.InlinePass()(model)
        return model
    return copy


def _store_once(graph: ir.Graph) -> None:
    """Keep one of several equal weights: each side of a condition transposes what it uses for itself.

    onnx_ir's passes compare small ones only, keep the bytes of all, or fail on types that numpy lacks (1.1).
    """
    kept: dict[Any, ir.Value] = {}
    for value in list(graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.dtype.is_string() or value.is_graph_input() or value.is_graph_output():
            continue
        key = (tensor.dtype, tuple(tensor.shape), hashlib.sha256(tensor.tobytes()).digest())
        first = kept.setdefault(key, value)
        if first is not value:
            value.replace_all_uses_with(first)
            assert value.name is not None
            graph.initializers.pop(value.name)
