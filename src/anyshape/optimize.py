"""optimize: fewer and faster nodes; dynamic dims untouched."""

from __future__ import annotations

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes import common

from anyshape import torch_bridge

__all__ = ["optimize"]


def optimize(model: ir.Model) -> ir.Model:
    """The model with constants folded, idle nodes dropped and weights stored once; its inputs and outputs are as before."""
    names = [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    with torch_bridge.quiet():
        onnxscript.optimizer.optimize(model, num_iterations=2)
        common.DeduplicateInitializersPass()(model)
        common.CommonSubexpressionEliminationPass()(model)
        common.RemoveUnusedNodesPass()(model)
    after = [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    assert names == after, f"optimize changed the signature: {names} became {after}"
    return model
