"""lower: a captured `Program` becomes an ONNX model through torch.onnx, with our translations where its own fail."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
import torch

from anyshape import torch_bridge
from anyshape.capture.program import Program
from anyshape.contract import Contract, Tensor
from anyshape.errors import LowerFault, SourceLine
from anyshape.lower.complex import TRANSLATIONS as COMPLEX
from anyshape.lower.operators import TRANSLATIONS as OPERATORS
from anyshape.recurrent import TRANSLATIONS as RECURRENT
from anyshape.source import first_line, innermost_line

__all__ = ["lower", "name_outputs"]


def lower(
    program: Program,
    contract: Contract,
    *,
    opset: int | None = None,
    translations: Mapping[Any, Callable[..., Any]] | None = None,
) -> ir.Model:
    """The program as an ONNX model with the contract's names on its inputs and outputs."""
    model = _translate(program, opset, {**OPERATORS, **RECURRENT, **(translations or {})})
    _name_weights(model)
    _separate_outputs(model)
    _name_inputs(model, contract)
    name_outputs(model, contract)
    _forget_inner_shapes(model, program)
    return model


def _translate(program: Program, opset: int | None, translations: Mapping[Any, Any]) -> ir.Model:
    try:
        with (
            torch_bridge.quiet(),
            torch_bridge.complex_translations(COMPLEX),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            made = torch.onnx.export(
                program.exported,
                dynamo=True,
                optimize=False,
                verify=False,
                verbose=False,
                opset_version=opset,
                custom_translation_table=dict(translations),
            )
    except Exception as error:
        raise _fault(error, program.exported) from error
    assert made is not None
    return made.model


def _fault(error: Exception, exported: torch.export.ExportedProgram) -> LowerFault:
    """torch.onnx's errors are chains; the operator is named somewhere in their texts."""
    texts = []
    last: BaseException = error
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        last, cause = cause, cause.__cause__
    text = "\n".join(texts)
    operator = re.search(
        r"No ONNX function found for <OpOverload\(op='([^']+)'(?:, overload='([^']+)')?", text
    )
    if operator:
        return LowerFault(
            f"ONNX has no translation for the operator {operator[1]}",
            where=_line_of_operator(exported, operator[1]),
            hint="Give one with custom_translation_table={torch.ops....: function}, or rewrite the line without it.",
        )
    failed = re.search(r"Error when translating node .*?target=torch\.ops\.([\w.]+)\]", text)
    if failed:
        name = failed[1].rpartition(".")[0]
        return LowerFault(
            f"torch.onnx fails on the operator {name}: {first_line(last)}",
            where=_line_of_operator(exported, name),
            hint="Give a translation with custom_translation_table={torch.ops....: function}.",
        )
    return LowerFault(
        f"torch.onnx can't translate the captured graph: {first_line(error)}", where=_line_in(text)
    )


def _line_of_operator(exported: torch.export.ExportedProgram, operator: str) -> SourceLine | None:
    """The line that calls an operator: in the captured graph, or in that graph taken apart as torch.onnx does it."""
    line = _line_in_graph(exported, operator)
    if line is not None:
        return line
    with contextlib.suppress(Exception), torch_bridge.quiet():
        return _line_in_graph(exported.run_decompositions(), operator)
    return None


def _line_in_graph(exported: torch.export.ExportedProgram, operator: str) -> SourceLine | None:
    calls = [
        node
        for node in exported.graph.nodes
        if str(node.target).startswith(f"{operator.replace('::', '.')}.")
    ]
    lines = [_line_in(node.meta.get("stack_trace") or "") for node in calls]
    return next((line for line in lines if line is not None), None)


def _line_in(stack: str) -> SourceLine | None:
    frames = re.findall(r'File "([^"]+)", line (\d+)', stack)
    return innermost_line([(file, int(line)) for file, line in frames])


def _name_weights(model: ir.Model) -> None:
    """Weights by the names they have in the user's module."""
    for name in list(model.graph.initializers):
        if name.startswith("module."):
            value = model.graph.initializers.pop(name)
            value.name = name.removeprefix("module.")
            model.graph.initializers[value.name] = value


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
    value.shape = ir.Shape([_onnx_size(size) for size in item.shape])


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
            elif not value.shape.is_static():
                value.shape = ir.Shape([size if isinstance(size, int) else None for size in value.shape])
