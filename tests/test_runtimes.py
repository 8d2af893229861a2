from __future__ import annotations

import gc
import io
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import torch

from anyshape.errors import FileError
from anyshape.runtimes import onnx_runtime as runtime
from anyshape.runtimes import worker
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure, to_numpy, to_torch


def model_of(operator: str, *, inputs: int = 1, weight: bool = False) -> ir.Model:
    values = [ir.val(f"x{k}", ir.DataType.FLOAT, [f"n{k}"]) for k in range(inputs)]
    given = list(values)
    initializers = []
    if weight:
        initializers = [ir.Value(name="w", const_value=ir.tensor(np.arange(4, dtype=np.float32), name="w"))]
        given += initializers
    node = ir.node(operator, given)
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(values, node.outputs, nodes=[node], initializers=initializers, opset_imports={"": 20})
    return ir.Model(graph, ir_version=10)


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_a_model_in_memory_runs() -> None:
    made = OnnxRuntime.of_model(model_of("Add", inputs=2))
    assert made.input_names == ["x0", "x1"] and made.output_names == ["y"]
    (result,) = made.run({"x0": floats(3), "x1": floats(3)})
    np.testing.assert_array_equal(result, 2 * floats(3))


def test_a_refusal_is_one_line_of_the_runtimes_own() -> None:
    made = OnnxRuntime.of_model(model_of("Add", inputs=2))
    with pytest.raises(RuntimeFailure) as info:
        made.run({"x0": floats(3), "x1": floats(2)})
    assert len(str(info.value).splitlines()) == 1 and str(info.value)


def test_a_missing_input_is_a_refusal() -> None:
    with pytest.raises(RuntimeFailure, match="x1"):
        OnnxRuntime.of_model(model_of("Add", inputs=2)).run({"x0": floats(3)})


def test_a_model_that_does_not_load() -> None:
    with pytest.raises(RuntimeFailure, match="NoSuchOperator"):
        OnnxRuntime.of_model(model_of("NoSuchOperator"))


def test_a_file_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(FileError, match=r"ONNX Runtime can't load .*bad.onnx: "):
        OnnxRuntime.of_file(str(tmp_path / "bad.onnx"))


def test_empty_inputs_are_run_apart() -> None:
    made = OnnxRuntime.of_model(model_of("Neg"))
    (result,) = made.run({"x0": floats(0)})
    assert result.shape == (0,)
    (again,) = made.run({"x0": floats(0)})
    assert again.dtype == np.float32
    np.testing.assert_array_equal(made.run({"x0": floats(2)})[0], -floats(2))


def test_a_refusal_from_apart_is_the_runtimes_own() -> None:
    made = OnnxRuntime.of_model(model_of("Add", inputs=2))
    with pytest.raises(RuntimeFailure) as info:
        made.run({"x0": floats(0), "x1": floats(2)})
    assert "process dies" not in str(info.value)
    assert made.run({"x0": floats(0), "x1": floats(0)})[0].shape == (0,)


def test_a_process_that_dies_is_a_failure_and_the_next_run_works() -> None:
    made = OnnxRuntime.of_model(model_of("Neg"))
    made.run({"x0": floats(0)})
    assert made._worker is not None
    made._worker._process.kill()  # what an aborting kernel does
    made._worker._process.wait()
    made._worker._process.returncode = None  # we have not looked yet
    with pytest.raises(RuntimeFailure, match=r"its process dies \(exit code .*\) on empty inputs"):
        made._worker.run({"x0": floats(0)})
    assert made.run({"x0": floats(0)})[0].shape == (0,)


def test_a_large_weight_is_copied_for_a_process_of_its_own_only_and_goes_with_the_runtime(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runtime, "LARGE", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = model_of("Mul", weight=True)
    made = OnnxRuntime.of_model(model)
    np.testing.assert_array_equal(made.run({"x0": floats(4)})[0], np.arange(4))
    assert list(tmp_path.iterdir()) == [] and isinstance(model.graph.initializers["w"].const_value, ir.Tensor)
    np.testing.assert_array_equal(made._run_apart({"x0": floats(4)})[0], np.arange(4))
    assert len(list(tmp_path.iterdir())) == 1
    del made
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    ],
)
def test_tensors_to_arrays_and_back(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 3]]).to(dtype)
    back = to_torch(to_numpy(tensor))
    assert back.dtype == dtype and torch.equal(back, tensor)


def test_bfloat16_is_what_ml_dtypes_has() -> None:
    assert to_numpy(torch.tensor([1.5], dtype=torch.bfloat16)).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_bfloat16_goes_in_and_out(shape: tuple[int, ...]) -> None:
    x = ir.val("x", ir.DataType.BFLOAT16, ["n", 3])
    node = ir.node("Transpose", [x])
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.BFLOAT16)
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20})
    given = np.random.default_rng(0).random(shape).astype(ml_dtypes.bfloat16)
    (made,) = OnnxRuntime.of_model(ir.Model(graph, ir_version=10)).run({"x": given})
    assert made.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(made, given.T)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::2],
        np.array(2.5, np.float16),
        np.zeros((0, 4), bool),
        np.array(["a", "\x1bé"], dtype=object),
        np.ones((2, 2), ml_dtypes.float8_e4m3fn),
        np.array([1 + 2j]),
    ],
)
def test_arrays_between_two_processes(array: np.ndarray) -> None:
    pipe = io.BytesIO()
    worker.send(pipe, {"a": array, "b": np.ones(3)})
    worker.send(pipe, {}, "it refuses")
    pipe.seek(0)
    received = worker.receive(pipe)
    assert received is not None and received[1] == ""
    assert received[0]["a"].dtype == array.dtype and received[0]["a"].shape == array.shape
    np.testing.assert_array_equal(received[0]["a"], array)
    assert worker.receive(pipe) == ({}, "it refuses")
    assert worker.receive(pipe) is None


def test_a_message_that_ends_too_soon() -> None:
    pipe = io.BytesIO()
    worker.send(pipe, {"a": np.ones(3)})
    with pytest.raises(EOFError):
        worker.receive(io.BytesIO(pipe.getvalue()[:-1]))


def test_a_scalar_stays_a_scalar() -> None:
    assert to_torch(np.array(3.0)).shape == ()


def test_a_view_or_a_weight_becomes_a_plain_array() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 4))
    np.testing.assert_array_equal(to_numpy(weight.T), weight.detach().numpy().T)


def test_a_reversed_array_becomes_a_tensor() -> None:
    assert to_torch(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
