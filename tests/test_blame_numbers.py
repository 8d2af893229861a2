"""Operators that are translated wrongly on purpose: each is named, with its node and the line that calls it."""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import pytest
import torch
import typer
from onnxscript import opset18 as op
from torch import Tensor, nn

import anyshape
from anyshape import blame_numbers, climb
from anyshape.blame import fault_of
from anyshape.blame_numbers import Lowering, cause_of
from anyshape.cli.screen import screen
from anyshape.dims import Expr
from anyshape.errors import VerifyFault
from anyshape.lower.operators import TRANSLATIONS
from anyshape.optimize import optimize
from anyshape.runtime import OnnxRuntime
from anyshape.tape import Tape
from anyshape.verify import Reference, verify

aten = torch.ops.aten
Table = Mapping[Any, Callable[..., Any]]


# --- Models, and translations that are wrong ---------------------------------------------------------------


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        x = x.cumsum(1)  # aten.cumsum.default
        return x.sin()


def cumsum(self: Any, dim: int, dtype: int = -1) -> Any:
    return op.CumSum(self, op.Constant(value_int=dim), reverse=1)


class Attended(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.transpose(1, 2)
        weights = scores.softmax(-1)  # aten.softmax.int
        return weights @ x


def softmax(self: Any, dim: int, dtype: int | None = None) -> Any:
    return op.Softmax(self, axis=1)


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        shift = x.shape[1] // 2
        return x.sin().roll(shift, 1) + x  # aten.roll.default


def roll(self: Any, shifts: Any, dims: Any = ()) -> Any:
    return TRANSLATIONS[aten.roll.default](self, [op.Add(shifts[0], op.Constant(value_int=1))], dims)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool1d(x.relu(), 2, ceil_mode=True)  # aten.max_pool2d.default


def pool(
    self: Any, kernel: Any, stride: Any = (), padding: Any = (), dilation: Any = (), ceil: Any = 0
) -> Any:
    return op.MaxPool(self, kernel_shape=kernel, strides=list(stride) or kernel)


class Averaged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp().mean(1)  # aten.mean.dim


def mean(self: Any, dims: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """Right up to 8."""
    count = op.Gather(op.Shape(self), op.Constant(value_int=1))
    more = op.Cast(op.Greater(count, op.Constant(value_int=8)), to=ir.DataType.INT64)
    total = op.ReduceSum(self, op.Constant(value_ints=list(dims)), keepdims=int(keepdim))
    return op.Div(total, op.CastLike(op.Add(count, more), self))


class Normed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = x.exp().sum(1, keepdim=True)  # aten.sum.dim_IntList
        return x.exp() / total


def without_axis(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return op.ReduceSum(self, op.Constant(value_ints=list(dim)), keepdims=0)


class Flipped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin().flip(1) * 2  # aten.flip.default


def flip(self: Any, dims: Any) -> Any:
    return op.Reshape(self, op.Constant(value_ints=[7, 3]))


class Recurrent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        state = x[:, 0]
        for k in range(x.shape[1]):
            state = (state * 0.5 + x[:, k]).tanh()  # aten.tanh.default, in a loop
        return state.exp()


class OneSided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if float(int(x.shape[1])) > 8.5:  # Python's numbers: no symbolic trace follows
            return x.tanh()  # aten.tanh.default, on one side
        return x.cos() * 2


class Layers(nn.Module):
    """Decides twice: the ways are choices within one tape."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            if float(int(x.shape[1])) > 8.5:
                x = x.tanh() + x.mean()  # aten.tanh.default, in a choice
            x = x.cos()
        return x


def tanh(self: Any) -> Any:
    return op.Sin(self)


WRONG = [
    (Summed, (2, 6), aten.cumsum.default, cumsum, "CumSum", ""),
    (Attended, (2, 6, 4), aten.softmax.int, softmax, "Softmax", ""),
    (Rolled, (2, 6), aten.roll.default, roll, "Concat", ""),
    (Pooled, (2, 3, 8), aten.max_pool2d.default, pool, "MaxPool", ""),
    (Averaged, (2, 6), aten.mean.dim, mean, "Div", ""),
    (Normed, (5, 6), aten.sum.dim_IntList, without_axis, "ReduceSum", ""),
    (Flipped, (5, 6), aten.flip.default, flip, "Reshape", ""),
    (Recurrent, (3, 6), aten.tanh.default, tanh, "Sin", ", in a loop"),
    (OneSided, (3, 6), aten.tanh.default, tanh, "Sin", ", on one side"),
    (Layers, (3, 6), aten.tanh.default, tanh, "Sin", ", in a choice"),
]


def fault(model: nn.Module, table: Table | None, *shape: int, **options: Any) -> VerifyFault:
    torch.manual_seed(0)
    with pytest.raises(VerifyFault) as info:
        anyshape.export(model.eval(), torch.randn(shape), custom_translation_table=table, **options)
    return info.value


def shown_by(script: str, table: Table | None = None) -> str:
    """What a script prints; with a table in the place that it leaves for one."""
    if table is not None:
        assert "TABLE = {}" in script
        script = script.replace("TABLE = {}", "TABLE = given")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        try:
            exec(script, {"given": table})
        except SystemExit as end:
            print(end)
            raise
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "shape", "operator", "wrong", "node", "mark"),
    WRONG,
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_the_operator_is_named_and_a_script_shows_it(
    kind: type[nn.Module],
    shape: tuple[int, ...],
    operator: Any,
    wrong: Callable[..., Any],
    node: str,
    mark: str,
    line_in: Callable[[str, str], int],
) -> None:
    found = fault(kind(), {operator: wrong}, *shape)
    assert f"{operator} is translated wrongly by custom_translation_table (node n" in found.hint
    assert f"_{node}): your model is not at fault." in found.hint
    assert found.where is not None and found.where.line == line_in(__file__, f"# {operator}{mark}")
    assert str(operator) in found.script and len(found.script.splitlines()) <= 30
    right, again = shown_by(found.script), shown_by(found.script, {operator: wrong})
    assert right.startswith("PyTorch: ") and "\nONNX Runtime: [array(" in right, (
        "the translation is not wrong"
    )
    assert f"{operator} is translated wrongly" in again
