"""torch.onnx's translations of operators, one at a time: it has no public way to ask for one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from torch.onnx._internal._lazy_import import onnxscript_apis  # type: ignore[attr-defined]
from torch.onnx._internal.exporter import (
    _building,
    _constants,
    _core,
    _ir_passes,
    _registration,
    _tensors,
)
from torch.onnx._internal.exporter._core import torch_dtype_to_onnx_dtype

from anyshape.torch_bridge.process import patched, quiet

__all__ = [
    "at_opset",
    "finished_model",
    "onnx_argument",
    "onnx_dtype",
    "onnx_function",
    "onnx_input",
    "onnx_opset",
    "onnx_recorder",
    "onnx_tensor",
    "recorded_node",
    "recording",
    "scripted",
]


@functools.cache
def _registry() -> Any:
    with quiet():  # it warns of libraries that are not installed
        return _registration.ONNXRegistry.from_torchlib()


def onnx_function(target: Any, is_complex: bool) -> Callable[..., Any] | None:
    """torch.onnx's translation of an operator, if it has one that is right for all arguments."""
    if target in NOT_TRUSTED:
        return None
    found = [item for item in _registry().get_decomps(target) if item.is_complex == is_complex]
    return found[0].onnx_function if found else None


NOT_TRUSTED = frozenset(
    (
        torch.ops.aten.cross_entropy_loss.default,  # leaves out label smoothing, and takes no probabilities
    )
)
"""Operators that torch.onnx translates wrongly for some arguments; what they are made of, it translates rightly."""


@functools.cache
def onnx_opset() -> Any:
    """The operators as onnxscript functions, at the version that torch.onnx's translations are written for."""
    return onnxscript.values.Opset("", _constants.TORCHLIB_OPSET)


def onnx_recorder() -> Any:
    """An evaluator that keeps the ONNX nodes which translations make."""
    return _building.OpRecorder(onnx_opset(), {})  # type: ignore[abstract]


def recorded_node(
    domain: str,
    operator: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    count: int,
    function: ir.Function | None,
) -> ir.Node:
    """A node among those that are recorded right now; with it the function that it calls, if there is one."""
    recorder: Any = onnxscript.evaluator.default()
    outputs = [onnx_input(f"{operator}_{number}") for number in range(count)]
    node = ir.Node(domain, operator, inputs, ir.convenience.convert_attributes(attributes), outputs=outputs)
    recorder.nodes.append(node)
    if function is not None:
        recorder.functions[function.identifier()] = function
    return node


def scripted(function: Any) -> Callable[..., Any]:
    """A function that @onnxscript.script made, as a translation; any other as it is.

    One that does not say what it returns would be recorded as a node without outputs (torch 2.13).
    """
    if not isinstance(function, onnxscript.OnnxFunction) or function.traceable:
        return function  # type: ignore[no-any-return]

    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if not isinstance(made, (list, tuple)) or made:
            return made
        recorder: Any = onnxscript.evaluator.default()
        node = recorder.nodes[-1]
        node.resize_outputs(len(function.function_ir.outputs))
        return node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)

    return call


@contextlib.contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """Within this context, translations put their nodes into ``recorder``."""
    with onnxscript.evaluator.default_as(recorder), patched(_core, "current_tracer", recorder):
        yield


def onnx_input(name: str) -> ir.Value:
    """A value that translations can compute with."""
    return _tensors.SymbolicTensor(onnx_opset(), name=name)


def onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    return torch_dtype_to_onnx_dtype(dtype)


def onnx_tensor(tensor: torch.Tensor, name: str) -> ir.TensorProtocol:
    """A weight, not copied."""
    made: ir.TensorProtocol = _core.TorchTensor(tensor, name=name)
    return made


def onnx_argument(leaf: Any) -> Any:
    """A plain argument of an operator as translations take it."""
    if isinstance(leaf, torch.dtype):
        return torch_dtype_to_onnx_dtype(leaf)
    if isinstance(leaf, (torch.device, torch.memory_format, torch.layout)):
        return str(leaf)
    return leaf


def finished_model(graph: ir.Graph, recorder: Any) -> ir.Model:
    """A model of a graph that ``recorder`` made, with the functions and operator sets it uses."""
    model = ir.Model(graph, ir_version=_constants.ONNX_IR_VERSION, producer_name="anyshape")
    for identifier, function in recorder.functions.items():
        if not isinstance(function, ir.Function):
            function = ir.serde.deserialize_function(function.to_function_proto())
        model.functions[identifier] = function
    _ir_passes.add_opset_imports(model)
    model.opset_imports.setdefault("", _constants.TORCHLIB_OPSET)  # a graph without nodes imports nothing
    return model


def at_opset(model: ir.Model, opset: int | None) -> ir.Model:
    """The model at another operator set, converted as torch.onnx does it."""
    return model if opset is None else onnxscript_apis.convert_version(model, opset)
