"""foreign: files of other exporters get the same verdict as ours, held to what they say of themselves."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from anyshape.artifact.signature import FileTensor, match_inputs
from anyshape.errors import FileError, VerifyFault
from anyshape.inputs.case import Input
from anyshape.judge import judge


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        if x.shape[1] > 8:
            x = x[:, :8]
        scores: Tensor = self.head(x)
        return scores


class Unused(nn.Module):
    def forward(self, first: Tensor, unused: Tensor, last: Tensor) -> Tensor:
        return first - last


class Baked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.shape[1])


def tokens() -> Tensor:
    return torch.randint(0, 20, (2, 6))


def torchscript(model: nn.Module, args: tuple[Any, ...], axes: dict[str, Any], **options: Any) -> str:
    """A file of torch's older exporter, which follows one path through the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), args, "file.onnx", dynamo=False, dynamic_axes=axes, **options)
    return "file.onnx"


def as_input(path: str, *shape: int, dtype: torch.dtype = torch.float32) -> Input:
    return Input(path, torch.zeros(shape, dtype=dtype))


def test_a_branch_that_was_baked_in_is_found_shrunk_and_blamed() -> None:
    model, axes = Branching(), {"tokens": {0: "batch", 1: "seq"}}
    path = torchscript(model, (tokens(),), axes, input_names=["tokens"], output_names=["logits"])
    found = judge(path, model, tokens())
    failure = found.failure
    assert failure is not None and not found.right
    assert str(failure.shrunk) == "seq = 9 (batch does not matter; right where seq ≤ 8)"
    assert failure.where is not None and failure.where.text == "if x.shape[1] > 8:"
    assert failure.story == "The file follows the branch of seq = 6 at every size"
    assert "expected [1, 8, 3]" in failure.row.why


def test_a_right_file_is_right_with_the_files_own_names() -> None:
    model = nn.Linear(4, 3)
    path = torchscript(model, (torch.randn(2, 4),), {"input": {0: "rows"}}, input_names=["input"])
    found = judge(path, model, torch.randn(5, 4))
    assert found.right and found.remarks == ()
    assert [dim.text() for dim in found.contract.dims] == ["rows ≥ 1"]
    assert len(found.verdict.tried) >= 5


def test_a_fixed_axis_is_a_remark_and_no_failure() -> None:
    model = nn.Linear(4, 3)
    path = torchscript(model, (torch.randn(2, 6, 4),), {"input": {0: "batch"}}, input_names=["input"])
    found = judge(path, model, torch.randn(3, 9, 4))  # another size than the file's
    assert found.right
    assert found.remarks == ("the file is fixed at 6 on axis 1 of input, PyTorch also accepts other sizes",)
    assert {row.sizes["seq"] for row in found.verdict.rows} == {6}


def test_a_fixed_axis_is_a_failure_where_that_dim_is_demanded() -> None:
    model = nn.Linear(4, 3)
    path = torchscript(model, (torch.randn(2, 6, 4),), {"input": {0: "batch"}}, input_names=["input"])
    found = judge(path, model, torch.randn(2, 6, 4), shapes={"input": "batch, seq, 4"})
    assert found.failure is not None and found.failure.row.outcome == "fails"
    assert found.failure.shrunk.sizes["seq"] != 6


def test_a_fixed_axis_that_pytorch_refuses_is_a_fault() -> None:
    path = torchscript(nn.Identity(), (torch.randn(2, 200),), {"input": {0: "batch"}}, input_names=["input"])

    class Short(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(16, 1)

        def forward(self, input: Tensor) -> Tensor:
            places: Tensor = self.places(torch.arange(input.shape[1])).squeeze(-1)
            return input + places

    with pytest.raises(VerifyFault, match="the file is fixed at 200 on axis 1 of input, but PyTorch has"):
        judge(path, Short(), torch.randn(2, 6))


def test_a_size_that_became_a_number_is_found() -> None:
    path = torchscript(Baked(), (torch.randn(2, 6),), {"x": {0: "batch", 1: "n"}}, input_names=["x"])
    found = judge(path, Baked(), torch.randn(2, 6))
    assert found.failure is not None and found.failure.row.outcome == "wrong"
    assert found.failure.shrunk.idle == ("batch",)


def test_inputs_that_the_exporter_dropped() -> None:
    given = (torch.randn(2, 4), torch.randn(2, 4), torch.randn(2, 4))
    path = torchscript(
        Unused(), given, {"a": {0: "n"}, "b": {0: "n"}, "c": {0: "n"}}, input_names=["a", "b", "c"]
    )
    if len(onnx.load(path).graph.input) == 3:
        pytest.skip("this exporter keeps unused inputs")
    assert judge(path, Unused(), given).right


def test_a_file_of_ours_is_tried_where_its_contract_says(two_inputs: SimpleNamespace) -> None:
    found = judge(two_inputs.path, two_inputs.model, two_inputs.inputs())
    assert found.right
    assert found.contract.ranges == two_inputs.export.contract.ranges


def test_a_file_of_ours_against_another_model_is_wrong(linear: SimpleNamespace) -> None:
    torch.manual_seed(7)
    found = judge(linear.path, nn.Linear(10, 5), torch.randn(3, 10))
    assert found.failure is not None
    assert found.failure.where is None and found.failure.story == ""
    assert "off by" in found.failure.row.why


def test_an_empty_input_is_a_remark_at_most() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(-1, 4) * 2

    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])
    shape = onnx.numpy_helper.from_array(np.array([-1, 4]), "shape")
    two = onnx.numpy_helper.from_array(np.float32(2), "two")
    first = onnx.numpy_helper.from_array(np.array([0]), "first")
    nodes = [
        onnx.helper.make_node("Gather", ["x", "first"], ["kept"]),  # there is no first row when it is empty
        onnx.helper.make_node("Sub", ["kept", "kept"], ["nothing"]),
        onnx.helper.make_node("Mul", ["x", "two"], ["twice"]),
        onnx.helper.make_node("Add", ["twice", "nothing"], ["sum"]),
        onnx.helper.make_node("Reshape", ["sum", "shape"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "twice", [x], [y], [shape, two, first])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10),
        "file.onnx",
    )
    found = judge("file.onnx", Twice(), torch.randn(3, 4))
    assert found.right and all(row.sizes["n"] >= 1 for row in found.verdict.rows)
    assert found.remarks[-1] == "it is wrong at n = 0, where PyTorch runs"


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (["b", "a"], ("a", "b")),  # by name, in any order
        (["x", "y"], ("x", "y")),  # by position
        (["b"], (None, "b")),  # one is dropped
    ],
)
def test_inputs_are_matched_by_name_then_by_position(
    theirs: list[str], expected: tuple[str | None, ...]
) -> None:
    ours = [as_input("a", 2, 3), as_input("b", 2, 3)]
    assert match_inputs(ours, [FileTensor(name, "float32", ("n", 3)) for name in theirs])[0] == expected


def test_inputs_are_matched_by_path_as_exporters_write_it() -> None:
    ours = [as_input("past.0.k", 2, 3), as_input("past.0.v", 2, 3)]
    theirs = [FileTensor("past_0_v", "float32", (2, 3)), FileTensor("past_0_k", "float32", (2, 3))]
    assert match_inputs(ours, theirs) == [("past_0_k", "past_0_v")]


def test_inputs_are_matched_by_dtype_and_rank() -> None:
    ours = [as_input("ids", 2, 3, dtype=torch.int64), as_input("unused", 2), as_input("x", 2, 3)]
    theirs = [FileTensor("input.1", "int64", (2, 3)), FileTensor("input.2", "float32", None)]
    assert match_inputs(ours, theirs) == [("input.1", "input.2", None), ("input.1", None, "input.2")]


def test_inputs_that_do_not_match_are_told_by_both_lists() -> None:
    ours, theirs = [as_input("x", 2, 3)], [FileTensor("ids", "int64", ("n", None))]
    with pytest.raises(FileError) as caught:
        match_inputs(ours, theirs)
    assert "the file takes:    ids int64 [n, ?]" in str(caught.value)
    assert "the module takes:  x float32 [2, 3]" in str(caught.value)
