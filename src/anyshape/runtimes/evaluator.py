"""ONNX's reference evaluator: slow, and with every type of every operator, float64 convolutions among them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from anyshape.casts import types_of
from anyshape.runtimes.onnx_runtime import Array, RuntimeFailure, in_one_line, with_weights_inside

__all__ = ["Evaluator"]

# ONNX Runtime 1.31 loads these in float64 and refuses to run them.
ONLY_LOADED = frozenset(("RNN", "GRU", "LSTM"))


class Erf(OpRun):
    """The error function in the type that it is asked for: onnx 1.23 computes it in float32 whatever that is."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Any]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x) if x.size else x,)


class Evaluator:
    """A model on ONNX's own reference evaluator, which is numpy.

    >>> x = ir.val("x", ir.DataType.DOUBLE, ["n"])
    >>> node = ir.node("Erf", [x])
    >>> node.outputs[0].name, node.outputs[0].type = "y", x.type
    >>> model = ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}), ir_version=10)
    >>> Evaluator(model).run({"x": np.zeros(2)})
    [array([0., 0.])]
    """

    name = "ONNX's reference evaluator"
    note = "ONNX Runtime has no kernels for all of its float64 operators: it was run on ONNX's reference evaluator"

    def __init__(self, model: ir.Model) -> None:
        self.input_names = [value.name or "" for value in model.graph.inputs]
        self.output_names = [value.name or "" for value in model.graph.outputs]
        try:
            self._evaluator = ReferenceEvaluator(with_weights_inside(model), new_ops=[Erf])
        except Exception as error:  # an operator that it lacks, in whatever words
            raise RuntimeFailure(in_one_line(error)) from error

    @staticmethod
    def suits(model: ir.Model) -> bool:
        """Whether a model has float64 anywhere."""
        return ir.DataType.DOUBLE in types_of(model).values()

    @staticmethod
    def needed(model: ir.Model) -> bool:
        """Whether ONNX Runtime would load a model and then refuse to run it."""
        nodes = [node for node in model.graph.all_nodes() if node.op_type in ONLY_LOADED]
        types = types_of(model) if nodes else {}
        return any(types.get(node.outputs[0]) == ir.DataType.DOUBLE for node in nodes)

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        """The outputs for named inputs; `RuntimeFailure` where the evaluator raises."""
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(array) for array in self._evaluator.run(None, dict(feed))]
        except Exception as error:  # numpy's errors, and its own
            raise RuntimeFailure(in_one_line(error)) from error
