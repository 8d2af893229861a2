"""ONNX Runtime for types that it has no kernels for: each operator computes in a wider type, its result is rounded.

The graph keeps its types: what lies between two operators has the bits that a kernel of its own would give it, up to
how that kernel adds up. So the numbers are those of the file, not those of a model in another type.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from anyshape.casts import in_other_types, types_in, types_of
from anyshape.runtimes.onnx_runtime import Array, OnnxRuntime

__all__ = ["WIDER", "Widened"]

WIDER = {ir.DataType.BFLOAT16: ir.DataType.FLOAT}


class Widened:
    """A model whose bfloat16 operators compute as float32, on ONNX Runtime; inputs and outputs are as they were.

    >>> x = ir.val("x", ir.DataType.BFLOAT16, ["n"])
    >>> node = ir.node("Neg", [x])
    >>> node.outputs[0].name, node.outputs[0].type = "y", x.type
    >>> model = ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}), ir_version=10)
    >>> import ml_dtypes, numpy
    >>> Widened(model).run({"x": numpy.ones(2, ml_dtypes.bfloat16)})
    [array([-1, -1], dtype=bfloat16)]
    """

    name = "ONNX Runtime with bfloat16 operators computed as float32"
    note = "ONNX Runtime has no kernels for all of its bfloat16 operators: they were computed as float32 and rounded"

    def __init__(self, model: ir.Model) -> None:
        wide = model.clone()
        types = types_of(wide)
        for node in list(wide.graph.all_nodes()):
            in_other_types(node, types, WIDER)
        self._runtime = OnnxRuntime.of_model(wide)
        self.input_names, self.output_names = self._runtime.input_names, self._runtime.output_names

    @staticmethod
    def suits(model: ir.Model) -> bool:
        """Whether there is anything in the model that this would compute in another type."""
        return not types_in(model).isdisjoint(WIDER)

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        """The outputs for named inputs; `RuntimeFailure` if ONNX Runtime refuses them."""
        return self._runtime.run(feed)
