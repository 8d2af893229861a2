from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from anyshape.errors import LowerFault
from anyshape.lower import lower
from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy

Lowering = Callable[..., Any]


def shape_of(value: ir.Value) -> list[int | str | None]:
    assert value.shape is not None
    return [size if isinstance(size, int) else size.value for size in value.shape]


class Several(nn.Module):
    """An input that is not used, an output that is an input, an output given twice, and a weight as an output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor, unused: Tensor, kept: Tensor) -> dict[str, Any]:
        y = self.inner(x)
        return {"kept": kept, "y": y, "again": y, "weight": self.inner.bias, "wide": torch.cat([y, y])}


@pytest.fixture(scope="module")
def several(lowered: Lowering) -> Any:
    return lowered(Several(), (torch.randn(4, 3), torch.randn(5), torch.randn(2)))


def test_inputs_are_named_by_path_in_order_used_or_not(several: Any) -> None:
    assert [value.name for value in several.model.graph.inputs] == ["x", "unused", "kept"]


def test_dims_are_named_as_in_the_contract(several: Any) -> None:
    values = (*several.model.graph.inputs, *several.model.graph.outputs)
    items = (*several.contract.inputs, *several.contract.outputs)
    for value, item in zip(values, items, strict=True):
        assert shape_of(value) == [
            size.constant if size.constant is not None else str(size) for size in item.shape
        ]
    assert shape_of(several.model.graph.outputs[4]) == ["2*batch", 3]


def test_weights_keep_the_modules_names(several: Any) -> None:
    assert {"inner.weight", "inner.bias"} <= set(several.model.graph.initializers)


def test_every_output_has_a_value_of_its_own(several: Any) -> None:
    outputs = several.model.graph.outputs
    assert len({id(value) for value in outputs}) == 5 and len({value.name for value in outputs}) == 5
    x, unused, kept = torch.randn(6, 3), torch.randn(1), torch.randn(3)
    feed = {"x": to_numpy(x), "unused": to_numpy(unused), "kept": to_numpy(kept)}
    got = OnnxRuntime.of_model(several.model).run(feed)
    for array, tensor in zip(got, several.case.module(x, unused, kept).values(), strict=True):
        np.testing.assert_allclose(array, to_numpy(tensor), rtol=1e-5, atol=1e-6)


def test_no_name_of_the_trace_is_left_inside(several: Any) -> None:
    signature = {id(value) for value in (*several.model.graph.inputs, *several.model.graph.outputs)}
    inner = [
        value
        for node in several.model.graph.all_nodes()
        for value in node.outputs
        if id(value) not in signature
    ]
    assert all(not isinstance(size, str) for value in inner if value.shape for size in shape_of(value))


def test_the_opset_is_the_one_asked_for(lowered: Lowering) -> None:
    made = lowered(nn.ReLU(), (torch.randn(4),), opset=20)
    assert made.model.opset_imports[""] == 20


class Refused(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvalsh(x @ x.mT)  # no such operator


def test_an_operator_without_a_translation_is_named_with_its_line(
    lowered: Lowering, line_in: Callable[[str, str], int]
) -> None:
    with pytest.raises(LowerFault, match=r"ONNX has no translation for the operator aten::\S*eigh") as info:
        lowered(Refused(), (torch.randn(4, 5),))
    assert "custom_translation_table" in info.value.hint
    assert info.value.where is not None
    assert info.value.where.line == line_in(__file__, "# no such operator")


def test_a_translation_of_ones_own(found: Callable[..., Any], lowered: Lowering) -> None:
    from onnxscript import opset20 as op

    made = lowered(nn.ReLU(), (torch.randn(4),), opset=20)

    def negated(self: Any) -> Any:
        return op.Neg(self)

    model = lower(made.program, made.contract, opset=20, translations={torch.ops.aten.relu.default: negated})
    assert [node.op_type for node in model.graph] == ["Neg"]
