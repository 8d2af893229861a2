"""lower: a captured `Program` becomes an ONNX model with the contract's names on its inputs and outputs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from anyshape.capture.program import Program
from anyshape.capture.tape.steps import Step
from anyshape.contract.contract import Contract, Tensor
from anyshape.errors import LowerFault
from anyshape.lower import operators
from anyshape.lower.translate import STEP, translate, translate_alone
from anyshape.lower.types import with_lawful_types
from anyshape.torch_bridge import process, torchlib

__all__ = ["STEP", "lower", "lower_alone", "name_outputs"]


def lower(
    program: Program,
    contract: Contract,
    *,
    opset: int | None = None,
    translations: Mapping[Any, Callable[..., Any]] | None = None,
) -> ir.Model:
    """The program as an ONNX model with the contract's names on its inputs and outputs."""
    table = {**operators.translations(), **(translations or {})}
    with process.quiet(), contextlib.redirect_stdout(io.StringIO()):
        model = torchlib.at_opset(translate(program.body, contract, table), opset)
    if opset is not None and model.opset_imports.get("") != opset:
        raise LowerFault(
            f"the model can't be written with version {opset} of ONNX's operators",
            hint="Leave opset_version out for the version that suits the model, or choose one nearby.",
        )
    _cast_outputs(model, contract)
    _separate_outputs(model)
    _name_inputs(model, contract)
    name_outputs(model, contract)
    _forget_inner_shapes(model, program)
    return model


def lower_alone(
    step: Step,
    names: Sequence[str],
    *,
    opset: int | None = None,
    translations: Mapping[Any, Callable[..., Any]] | None = None,
) -> tuple[ir.Model, list[int]]:
    """One step as a model, and which of the step's outputs it has.

    Its inputs are the step's tensors in order, each once, weights among them, then the sizes by name.
    """
    table = {**operators.translations(), **(translations or {})}
    with process.quiet(), contextlib.redirect_stdout(io.StringIO()):
        translated, places = translate_alone(step, names, table)
        model = torchlib.at_opset(translated, opset)
    with_lawful_types(model)
    _separate_outputs(model)
    for number, value in enumerate(model.graph.outputs):
        value.name, value.shape = f"output_{number}", None
    return model, places


def _cast_outputs(model: ir.Model, contract: Contract) -> None:
    """Give outputs in half precision their type: what a model computes under autocast, the graph has in float32."""
    for number, (value, item) in enumerate(zip(model.graph.outputs, contract.outputs, strict=True)):
        if item.dtype not in HALF or value.producer() is None:
            continue
        node = ir.node("Cast", [value], {"to": value.dtype})
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        value.type = None  # the trace has the type of the result, not of what is cast
        model.graph.append(node)
        model.graph.outputs[number] = node.outputs[0]


HALF = ("float16", "bfloat16")


def _separate_outputs(model: ir.Model) -> None:
    """Give each output a value of its own: one that is an input, a weight or another output gets an Identity."""
    graph = model.graph
    seen: set[int] = set()
    for number, value in enumerate(graph.outputs):
        taken = id(value) in seen or value.is_graph_input() or value.is_initializer()
        if taken:
            node = ir.node("Identity", [value])
            node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
            graph.append(node)
            graph.outputs[number] = node.outputs[0]
        seen.add(id(graph.outputs[number]))


def _name_inputs(model: ir.Model, contract: Contract) -> None:
    for value, item in zip(model.graph.inputs, contract.inputs, strict=True):
        _rename(model, value, item)


def name_outputs(model: ir.Model, contract: Contract) -> None:
    """Give the outputs the contract's names and sizes."""
    for value, item in zip(model.graph.outputs, contract.outputs, strict=True):
        _rename(model, value, item)


def _rename(model: ir.Model, value: ir.Value, item: Tensor) -> None:
    value.name = item.name
    pair = (
        [2] if item.dtype.startswith("complex") else []
    )  # real and imaginary part, as ONNX has no such numbers
    value.shape = ir.Shape([*(_onnx_size(size) for size in item.shape), *pair])


def _onnx_size(size: Any) -> int | str | None:
    if size is None:
        return None
    constant = size.constant
    return constant if constant is not None else str(size)


def _forget_inner_shapes(model: ir.Model, program: Program) -> None:
    """Drop sizes inside the graph that speak of the trace's symbols, and all of them where the trace took a branch."""
    kept = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if id(value) in kept or value.shape is None:
                continue
            if program.open_guards:
                value.shape = None
            elif not value.shape.is_static() and not node.domain:
                value.shape = ir.Shape([size if isinstance(size, int) else None for size in value.shape])
