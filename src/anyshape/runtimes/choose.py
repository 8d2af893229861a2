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

__all__ = ["only_evaluated", "runtime_of", "runtime_of_file"]


def runtime_of(model: ir.Model) -> Runtime:
    """A runtime for a model in memory; `RuntimeFailure` if there is none."""
    if only_evaluated(model):
        return Evaluator(model)
    try:
        return OnnxRuntime.of_model(model)
    except RuntimeFailure as failure:
        return _standing_in(model, failure)


def runtime_of_file(path: str, *, evaluated: bool = False) -> Runtime:
    """A runtime for a file; `FileError` if there is none. ``evaluated`` is what `only_evaluated` said of it.

    It is not given the model that the caller has read: that should be gone before the weights are read again.
    """
    real = os.path.realpath(path)  # weights apart lie beside the file, not beside the link
    try:
        if evaluated:
            return Evaluator(ir.load(real))
        try:
            return OnnxRuntime(real)
        except RuntimeFailure as failure:
            if not failure.lacks_a_kernel:
                raise
            return _standing_in(ir.load(real), failure)
    except RuntimeFailure as failure:
        raise FileError(f"ONNX Runtime can't load {path}: {failure}") from failure


def only_evaluated(model: ir.Model) -> bool:
    """Whether ONNX Runtime would load a model, and then refuse to run it."""
    return Evaluator.needed(model)


def _standing_in(model: ir.Model, failure: RuntimeFailure) -> Runtime:
    if failure.lacks_a_kernel:
        for kind in (Widened, Evaluator):
            if kind.suits(model):
                return kind(model)
    raise failure
