"""A short script that shows how one operator, on its own, is exported wrongly."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from anyshape.capture.tape import Played, Value
from anyshape.capture.tape.steps import map_leaves
from anyshape.dims import Expr

__all__ = ["script_of", "written"]

MOST_WRITTEN = 24  # numbers of a tensor that are written out; a larger one is random, of the same range
SCRIPT = '''\
"""{target} as anyshape {version} with torch {torch} exports it, on ONNX Runtime and in PyTorch."""

{imports}import anyshape
import onnxruntime
import torch

torch.manual_seed(0)
{tensors}


class Operator(torch.nn.Module):
    def forward(self, {arguments}):
        return {call}


print("PyTorch:", Operator()({arguments}))
# ONNX Runtime gave: {gave}
try:
    made = anyshape.export(Operator(), ({arguments},){options})
except anyshape.Fault as fault:
    raise SystemExit(f"ONNX Runtime: {{fault}}")
session = onnxruntime.InferenceSession(made.model_proto.SerializeToString())
feed = dict(zip([item.name for item in session.get_inputs()], [{arrays}]))
print("ONNX Runtime:", session.run(None, feed))
'''


def script_of(
    played: Played, gave: str, constants: Collection[Value], opset: int | None = None, *, custom: bool = False
) -> str:
    """The script for a step as it was played, and what ONNX Runtime gave; empty if its arguments can't be written.

    Tensors are arguments of the operator, but for ``constants``; sizes are taken from the shapes of the arguments.
    """
    step = played.step
    names: dict[Value, str] = {}
    for value in step.inputs:
        names.setdefault(value, f"{'weight' if value in constants else 'x'}{len(names)}")
    given = [name for value, name in names.items() if value not in constants]
    if not isinstance(step.target, torch_operator) or not given:
        return ""
    tensors = dict(zip(step.inputs, played.inputs, strict=True))
    try:
        call = _call(played, names, [value for value in names if value not in constants])
        lines = [f"{name} = {_tensor(tensors[value])}" for value, name in names.items()]
    except _Unwritable:
        return ""
    options = f", opset_version={opset}" if opset is not None else ""
    if custom:
        table = "TABLE = {}  # the custom_translation_table of your export"
        lines, options = [table, *lines], f"{options}, custom_translation_table=TABLE"
    special = any(word in line for line in lines for word in ("inf", "nan"))
    return SCRIPT.format(
        imports="from math import inf, nan\n\n" if special else "",
        target=step.target,
        version=importlib.metadata.version("anyshape"),
        torch=torch.__version__,
        tensors="\n".join(lines),
        arguments=", ".join(given),
        call=call,
        gave=gave,
        options=options,
        arrays=", ".join(f"{name}.numpy()" for name in given),
    )


torch_operator = type(torch.ops.aten.add.Tensor)


class _Unwritable(Exception):
    """An argument that has no Python text."""


def _call(played: Played, names: Mapping[Value, str], given: Collection[Value]) -> str:
    step = played.step
    sizes = {
        size.name: f"{names[value]}.shape[{axis}]"
        for value in reversed(list(given))
        for axis, size in enumerate(value.shape)
        if isinstance(size, Expr) and size.name is not None
    }
    texts = map_leaves(lambda leaf: _Text(_argument(leaf, names, sizes, played.sizes)), step.args)
    named = map_leaves(lambda leaf: _Text(_argument(leaf, names, sizes, played.sizes)), dict(step.kwargs))
    arguments = [*map(repr, texts), *(f"{key}={text!r}" for key, text in named.items())]
    return f"torch.ops.{step.target}({', '.join(arguments)})"


class _Text(str):
    """A text that stands in a list as it is."""

    def __repr__(self) -> str:
        return str(self)


def _argument(
    leaf: Any, names: Mapping[Value, str], sizes: Mapping[str, str], known: Mapping[str, int]
) -> str:
    if isinstance(leaf, Value):
        return names[leaf]
    if isinstance(leaf, Expr) and leaf.names <= sizes.keys() and not _has_functions(leaf):
        return _over_shapes(leaf, sizes)
    if hasattr(leaf, "evaluate"):
        leaf = leaf.evaluate(known)
    if isinstance(leaf, torch.device):
        return f"torch.device({str(leaf)!r})"
    plain = (bool, int, float, str, type(None), torch.dtype, torch.layout, torch.memory_format)
    if not isinstance(leaf, plain):
        raise _Unwritable
    return repr(leaf)


def _has_functions(size: Expr) -> bool:
    return any(word in str(size) for word in ("isqrt", "log2"))


def _over_shapes(size: Expr, sizes: Mapping[str, str]) -> str:
    """An expression with the shapes of arguments in the place of dims."""
    # Two passes, as the name of a dim may be part of what another is replaced by.
    marked = size.substitute({name: Expr.of(f"_size{k}_") for k, name in enumerate(sorted(size.names))})
    text = str(marked)
    for k, name in enumerate(sorted(size.names)):
        text = text.replace(f"_size{k}_", sizes[name])
    return text


def _tensor(tensor: torch.Tensor) -> str:
    shape, dtype = list(tensor.shape), tensor.dtype
    if tensor.is_complex() or tensor.is_quantized:
        raise _Unwritable
    if tensor.numel() == 0:
        return f"torch.zeros({shape}, dtype={dtype})"
    if tensor.numel() <= MOST_WRITTEN:
        return f"torch.tensor({written(tensor)}, dtype={dtype})"
    if dtype == torch.bool:
        return f"torch.rand({shape}) > 0.5"
    if not dtype.is_floating_point:
        return f"torch.randint({int(tensor.min())}, {int(tensor.max()) + 1}, {shape}, dtype={dtype})"
    finite = tensor[torch.isfinite(tensor)].double()
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    return f"(torch.rand({shape}) * {high - low:.4g} + {low:.4g}).to({dtype})"


def written(tensor: torch.Tensor) -> str:
    """The numbers of a small tensor, the shape of a larger one."""
    if not 0 < tensor.numel() <= MOST_WRITTEN:
        return f"a tensor {list(tensor.shape)}"
    return str(map_leaves(_rounded, tensor.tolist()))


def _rounded(number: Any) -> Any:
    return float(f"{number:.6g}") if isinstance(number, float) and math.isfinite(number) else number
