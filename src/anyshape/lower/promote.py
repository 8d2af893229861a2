"""promote: ONNX operators take arguments of one type, PyTorch's promote them. The casts that PyTorch does silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from anyshape.capture.tape.steps import Step, Value, map_leaves
from anyshape.dims import Expr, Real
from anyshape.dims.formula import Formula
from anyshape.torch_bridge import schemas, torchlib

__all__ = ["promoted", "rounded"]

aten = torch.ops.aten
# These take their arguments in the type of their result, though they are not element by element.
AS_RESULT = {
    aten.cat,
    aten.stack,
    aten.concat,
    aten.hstack,
    aten.vstack,
    aten.sum,
    aten.prod,
    aten.cumsum,
    aten.cumprod,
    aten.mean,
    aten.where,
    aten.copy,
}
# These compare, though not element by element.
COMPARES = {aten.isin}
# Their first argument is a mask, or has the type of the result already.
SELECTS = {aten.where: 1, aten.masked_fill: 2}


def promoted(step: Step, convert: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
    """The step's arguments in ONNX, cast to the type in which PyTorch computes."""
    wanted = _computed_in(step)
    packet = getattr(step.target, "overloadpacket", None)
    first = SELECTS.get(packet, 0) if packet is not None else 0

    plain = _of_plain_numbers(step)

    def alone(leaf: Any) -> Any:
        made = convert(leaf)
        return _cast(made, plain, ir.Shape([])) if isinstance(leaf, (Real, Formula)) else made

    def cast(leaf: Any) -> Any:
        if wanted is None:
            return alone(leaf)
        made = convert(leaf)
        if wanted.is_complex:
            return (
                _paired(made, leaf, wanted) if isinstance(leaf, Value) and not leaf.dtype.is_complex else made
            )
        if isinstance(leaf, Value) and leaf.dtype != wanted and not leaf.dtype.is_complex:
            return _cast(made, wanted, made.shape)
        if isinstance(leaf, (Expr, Real, Formula)):  # a size among tensors
            return _cast(made, wanted, ir.Shape([]))
        if packet in SELECTS and type(leaf) is int and wanted.is_floating_point:
            return float(leaf)  # with a fraction as its alternative, no tensor tells the type
        return made

    args = [map_leaves(cast if k >= first else alone, item) for k, item in enumerate(step.args)]
    if wanted is not None and wanted.is_complex:
        places = schemas.tensor_arguments(step.target)
        args = [
            _number(item, wanted) if k in places and isinstance(item, (int, float, complex)) else item
            for k, item in enumerate(args)
        ]
    kwargs = {}
    for key, item in step.kwargs.items():
        made = map_leaves(alone, item)
        kwargs[key] = -1 if key == "dtype" and made is None else made
    return args, kwargs


def _cast(value: ir.Value, wanted: torch.dtype, shape: ir.Shape | None) -> ir.Value:
    made: ir.Value = torchlib.onnx_opset().Cast(value, to=torchlib.onnx_dtype(wanted))
    made.dtype, made.shape = torchlib.onnx_dtype(wanted), shape
    return made


def _number(number: complex, wanted: torch.dtype) -> ir.Value:
    """A plain number as a complex tensor."""
    pair = torch.view_as_real(torch.tensor(number, dtype=wanted))
    made: ir.Value = torchlib.onnx_opset().Constant(value=ir.tensor(pair.numpy()))
    made.dtype, made.shape = torchlib.onnx_dtype(wanted.to_real()), ir.Shape([2])
    return made


def _paired(value: ir.Value, leaf: Value, wanted: torch.dtype) -> ir.Value:
    """A real tensor as a complex one: pairs of itself and zero."""
    op = torchlib.onnx_opset()
    real = op.Unsqueeze(
        op.Cast(value, to=torchlib.onnx_dtype(wanted.to_real())), op.Constant(value_ints=[-1])
    )
    made: ir.Value = op.Concat(real, op.Sub(real, real), axis=-1)
    sizes = [size if isinstance(size, int) else None for size in leaf.shape]
    made.dtype, made.shape = torchlib.onnx_dtype(wanted.to_real()), ir.Shape([*sizes, 2])
    return made


def _of_plain_numbers(step: Step) -> torch.dtype:
    """The type of a number that is not brought to that of tensors: as exact as the result can tell."""
    narrow = not step.outputs or step.outputs[0] is None or step.outputs[0].dtype in (torch.float32, *HALVES)
    return torch.float32 if narrow else torch.float64


HALVES = (torch.float16, torch.bfloat16)


def rounded(step: Step, result: Any) -> Any:
    """The result of a step in its own type, where it was computed in a wider one."""
    return _cast(result, step.outputs[0].dtype, None) if _is_widened(step) else result


def _is_widened(step: Step) -> bool:
    """Whether half numbers meet one that Python computed, which may be beyond theirs: PyTorch computes in float."""
    if not step.outputs or step.outputs[0] is None or step.outputs[0].dtype not in HALVES:
        return False
    pointwise = torch.Tag.pointwise in getattr(step.target, "tags", ())
    return pointwise and any(isinstance(leaf, Formula) for leaf in step.args)


def _computed_in(step: Step) -> torch.dtype | None:
    """The type that tensors are brought to first, None if each keeps its own."""
    return torch.float32 if _is_widened(step) else _brought_to(step)


def _brought_to(step: Step) -> torch.dtype | None:
    target, tensors = step.target, step.inputs
    packet = getattr(target, "overloadpacket", None)
    if not tensors or not step.outputs or step.outputs[0] is None:
        return None
    result = step.outputs[0].dtype
    if packet in AS_RESULT:
        return result
    if packet in COMPARES:
        return _common(step)
    if torch.Tag.pointwise not in getattr(target, "tags", ()):
        return None
    if result != torch.bool:
        return result
    return _common(step)


def _common(step: Step) -> torch.dtype | None:
    """The type in which a comparison is made."""
    arguments = [
        _stand_in(leaf) for leaf in step.args if isinstance(leaf, (Value, int, float, Expr, Real, Formula))
    ]
    if len(arguments) != 2:
        return None
    return torch.result_type(*arguments)


def _stand_in(leaf: Any) -> Any:
    """Something of the same type, by which PyTorch tells how it would promote."""
    if isinstance(leaf, Value):
        return torch.empty([1] * min(len(leaf.shape), 1), dtype=leaf.dtype)
    return 1 if isinstance(leaf, Expr) else 1.0 if isinstance(leaf, (Real, Formula)) else leaf
