"""What `lower/types.py` writes around is what ONNX Runtime lacks: an entry that it has by now can go."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from anyshape.casts import TEXTS
from anyshape.lower.types import LACKING


@pytest.mark.parametrize("operator", sorted(LACKING))
def test_onnx_runtime_lacks_these(operator: str) -> None:
    if not hasattr(state, "get_all_opkernel_def"):
        pytest.skip("this build of ONNX Runtime does not list its kernels")
    kernels = [
        item.type_constraints
        for item in state.get_all_opkernel_def()
        if item.op_name == operator and item.domain == "" and item.provider == "CPUExecutionProvider"
    ]
    assert kernels
    there = {text for item in kernels for name in ("T", "T1") for text in item.get(name, ())}
    assert not [dtype for dtype in LACKING[operator] if TEXTS[dtype] in there]


def test_every_type_has_its_name_in_onnx() -> None:
    assert TEXTS[ir.DataType.BFLOAT16] == "tensor(bfloat16)" and TEXTS[ir.DataType.FLOAT] == "tensor(float)"
