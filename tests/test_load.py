from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.artifact.read import CONTRACT_KEY
from anyshape.errors import FileError, InputError
from anyshape.runtimes.onnx_runtime import RuntimeFailure


@pytest.fixture(scope="module")
def text(two_inputs: SimpleNamespace) -> Any:
    return anyshape.load(two_inputs.path)


@pytest.fixture(scope="module")
def structured(nested: SimpleNamespace) -> Any:
    return anyshape.load(nested.path)


@pytest.mark.parametrize("sizes", [(2, 6), (1, 1), (5, 128), (7, 3)])
def test_a_loaded_model_is_called_like_the_module(
    two_inputs: SimpleNamespace, text: Any, sizes: tuple[int, int]
) -> None:
    inputs = two_inputs.inputs(*sizes)
    torch.testing.assert_close(text(*inputs), two_inputs.model(*inputs))


def test_arguments_by_name_in_any_order(two_inputs: SimpleNamespace, text: Any) -> None:
    tokens, mask = two_inputs.inputs(3, 4)
    expected = two_inputs.model(tokens, mask)
    torch.testing.assert_close(text(mask=mask, tokens=tokens), expected)
    torch.testing.assert_close(text(tokens, mask=mask), expected)


def test_the_modules_own_structure_comes_back(nested: SimpleNamespace, structured: Any) -> None:
    inputs, bias = nested.inputs(4, 7, 2), torch.randn(4, 7)
    got = structured(inputs, scale=2.0, bias=bias)
    expected = nested.model(inputs, 2.0, bias=bias)
    assert list(got) == ["text", "boxes", "kind", "none"]
    assert isinstance(got["text"], tuple) and isinstance(got["boxes"], list)
    assert got["kind"] == "nested" and got["none"] is None
    torch.testing.assert_close(got["text"], expected["text"])
    torch.testing.assert_close(got["boxes"], expected["boxes"])


def test_sizes_that_disagree(text: Any) -> None:
    tokens, mask = torch.zeros(2, 9, dtype=torch.long), torch.ones(2, 7, dtype=torch.bool)
    with pytest.raises(InputError, match=r"seq is 9 in tokens but 7 in mask") as info:
        text(tokens, mask)
    assert "tokens" in info.value.hint and "[batch, seq]" in info.value.hint


def test_a_size_outside_its_range(text: Any) -> None:
    tokens, mask = torch.zeros(2, 129, dtype=torch.long), torch.ones(2, 129, dtype=torch.bool)
    with pytest.raises(
        InputError, match=r"seq is 129, outside \d ≤ seq ≤ 128 \(IndexError above, .*conftest.py:\d+\)"
    ):
        text(tokens, mask)


def test_a_wrong_dtype(text: Any) -> None:
    with pytest.raises(InputError, match="tokens is int32, not int64"):
        text(torch.zeros(2, 4, dtype=torch.int32), torch.ones(2, 4, dtype=torch.bool))


def test_a_wrong_rank(text: Any) -> None:
    with pytest.raises(InputError, match=r"tokens has 1 axis, not 2: \[batch, seq\]"):
        text(torch.zeros(4, dtype=torch.long), torch.ones(2, 4, dtype=torch.bool))


def test_a_fixed_size_that_differs(linear: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="input axis 1 is 11, not 10"):
        anyshape.load(linear.path)(torch.randn(3, 11))


def test_a_missing_input(text: Any) -> None:
    with pytest.raises(InputError, match=r"mask is missing\nThe model takes: tokens, mask\."):
        text(torch.zeros(2, 4, dtype=torch.long))


def test_an_unknown_argument(text: Any) -> None:
    with pytest.raises(InputError, match=r"unexpected argument labels\nThe model takes: tokens, mask\."):
        text(torch.zeros(2, 4, dtype=torch.long), labels=torch.ones(2, 4))


def test_an_argument_given_twice(text: Any) -> None:
    tokens = torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(InputError, match="unexpected argument tokens"):
        text(tokens, tokens=tokens)


def test_too_many_arguments(text: Any) -> None:
    tokens = torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(InputError, match="3 arguments, not 2"):
        text(tokens, tokens, tokens)


def test_too_few_tensors_in_a_list(nested: SimpleNamespace, structured: Any) -> None:
    inputs = nested.inputs()
    del inputs["boxes"][1]
    with pytest.raises(InputError, match="batch holds 2 tensors, not 3"):
        structured(inputs, scale=2.0, bias=torch.randn(2, 5))


def test_a_dict_in_another_order_is_the_same_dict(nested: SimpleNamespace, structured: Any) -> None:
    inputs, bias = nested.inputs(), torch.randn(2, 5)
    turned = {"boxes": inputs["boxes"], "text": inputs["text"]}
    torch.testing.assert_close(
        structured(turned, scale=2.0, bias=bias)["text"], nested.model(inputs, 2.0, bias=bias)["text"]
    )


def test_another_constant_than_the_exported_one_is_refused(nested: SimpleNamespace, structured: Any) -> None:
    with pytest.raises(InputError, match=r"scale is 3\.0.*2\.0"):
        structured(nested.inputs(), scale=3.0, bias=torch.randn(2, 5))


def test_a_dict_with_another_key_is_refused(nested: SimpleNamespace, structured: Any) -> None:
    inputs = nested.inputs()
    inputs["words"] = inputs.pop("text")
    with pytest.raises(InputError, match="batch has words, not text or boxes"):
        structured(inputs, bias=torch.randn(2, 5))


def test_a_tensor_in_the_place_of_a_list_is_refused(nested: SimpleNamespace, structured: Any) -> None:
    boxes = torch.randn(3, 4)
    with pytest.raises(InputError, match=r"batch\.text is a list of 2, not a tensor"):
        structured({"text": [boxes, boxes], "boxes": boxes}, bias=torch.randn(2, 5))
    with pytest.raises(InputError, match=r"batch\.boxes is a tensor, not a list of 2"):
        structured({"boxes": boxes, "text": [boxes, boxes]}, bias=torch.randn(2, 5))


def test_constants_need_not_be_repeated(nested: SimpleNamespace, structured: Any) -> None:
    inputs, bias = nested.inputs(), torch.randn(2, 5)
    torch.testing.assert_close(
        structured(inputs, bias=bias)["text"], nested.model(inputs, 2.0, bias=bias)["text"]
    )


def test_what_is_no_tensor(text: Any) -> None:
    with pytest.raises(InputError, match="tokens holds 0 tensors, not 1"):
        text([1, 2, 3], torch.ones(1, 3, dtype=torch.bool))


def test_what_the_runtime_refuses_is_an_input_error(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(feed: Any) -> list[Any]:
        raise RuntimeFailure("Gather: indices out of range")

    monkeypatch.setattr(text._runtime, "run", refuse)
    with pytest.raises(InputError, match="ONNX Runtime refuses these inputs: Gather: indices out of range"):
        text(torch.zeros(2, 4, dtype=torch.long), torch.ones(2, 4, dtype=torch.bool))


def test_tokens_beyond_the_table_are_refused_by_the_runtime(text: Any) -> None:
    with pytest.raises(InputError, match="ONNX Runtime refuses these inputs"):
        text(torch.full((2, 4), 50), torch.ones(2, 4, dtype=torch.bool))


def test_a_file_without_a_contract(linear: SimpleNamespace, tmp_path: Path) -> None:
    model = ir.load(linear.path)
    del model.metadata_props[CONTRACT_KEY]
    ir.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(
        FileError, match=r"foreign.onnx carries no contract: it was not exported by anyshape\nExport"
    ):
        anyshape.load(tmp_path / "foreign.onnx")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no file"):
        anyshape.load(tmp_path / "none.onnx")


def test_a_contract_of_another_format(linear: SimpleNamespace, tmp_path: Path) -> None:
    model = onnx.load(linear.path)
    for item in model.metadata_props:
        if item.key == CONTRACT_KEY:
            item.value = item.value.replace('"format": 1', '"format": 99')
    onnx.save(model, tmp_path / "later.onnx")
    with pytest.raises(FileError, match="format 99"):
        anyshape.load(tmp_path / "later.onnx")


def test_a_loaded_model_shows_its_contract(text: Any, two_inputs: SimpleNamespace) -> None:
    assert repr(text) == f"anyshape.load({str(two_inputs.path)!r})\n{two_inputs.export.contract}"


def test_empty_inputs_where_the_contract_allows_them(linear: SimpleNamespace) -> None:
    got: Tensor = anyshape.load(linear.path)(torch.randn(0, 10))
    assert got.shape == (0, 5)
