"""Which runtime a model is run on: ONNX Runtime, or where it has no kernels for the model's types, one that has.

A model that ONNX Runtime refuses for any other reason is refused: what stands in for a kernel must not hide a fault.
"""

from __future__ import annotations

import os

import onnx_ir as ir

from anyshape.errors import FileError
from anyshape.runtimes.evaluator import Evaluator
from anyshape.runtimes.onnx_runtime import OnnxRuntime, Runtime, RuntimeFailure
from anyshape.runtimes.widened import Widened

__all__ = ["runtime_of", "runtime_of_file"]

LARGE = 64_000_000  # bytes of weights that are worth sharing


def runtime_of(model: ir.Model) -> Runtime:
    """A runtime for a model in memory; `RuntimeFailure` if there is none."""
    if Evaluator.needed(model):
        return Evaluator(model)
    try:
        return OnnxRuntime.of_model(model)
    except RuntimeFailure as failure:
        return _standing_in(model, failure)


def runtime_of_file(path: str, model: ir.Model) -> Runtime:
    """A runtime for a file, of which ``model`` is what was read; `FileError` if there is none."""
    try:
        if Evaluator.needed(model):
            return Evaluator(model)
        try:
            if _weights_inside(model) > LARGE:
                return OnnxRuntime.of_model(model)  # which are not read a second time
            return OnnxRuntime(
                os.path.realpath(path)
            )  # weights apart lie beside the file, not beside the link
        except RuntimeFailure as failure:
            return _standing_in(model, failure)
    except RuntimeFailure as failure:
        raise FileError(f"ONNX Runtime can't load {path}: {failure}") from failure


def _weights_inside(model: ir.Model) -> int:
    """How many bytes of weights a model holds, and not a file beside it."""
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return sum(
        item.nbytes for item in tensors if item is not None and not isinstance(item, ir.ExternalTensor)
    )


def _standing_in(model: ir.Model, failure: RuntimeFailure) -> Runtime:
    if failure.lacks_a_kernel:
        for kind in (Widened, Evaluator):
            if kind.suits(model):
                return kind(model)
    raise failure
