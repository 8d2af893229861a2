from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.artifact.read import CONTRACT_KEY
from anyshape.errors import FileError, InputError, UsageError
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
            item.value = item.value.replace('"format": 2', '"format": 99')
    onnx.save(model, tmp_path / "later.onnx")
    with pytest.raises(FileError, match="format 99"):
        anyshape.load(tmp_path / "later.onnx")


def test_a_loaded_model_shows_its_contract(text: Any, two_inputs: SimpleNamespace) -> None:
    assert repr(text) == f"anyshape.load({str(two_inputs.path)!r})\n{two_inputs.export.contract}"


def test_empty_inputs_where_the_contract_allows_them(linear: SimpleNamespace) -> None:
    got: Tensor = anyshape.load(linear.path)(torch.randn(0, 10))
    assert got.shape == (0, 5)


class Split(NamedTuple):
    first: Any
    rest: Any


@dataclass
class Made:
    sum: Any
    parts: Split
    label: str = "made"


class Sums(dict):  # type: ignore[type-arg]
    """As transformers has its outputs: a dict with a name."""


class Structured(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        return Made(x.sum(), Split(x[:1], x[1:])), Sums(total=x.sum(0))


@pytest.fixture(scope="module")
def classes_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classes") / "model.onnx"
    anyshape.export(Structured(), torch.randn(4, 3), path)
    return path


def test_without_classes_there_are_plain_ones_of_the_same_names(classes_file: Path) -> None:
    made, sums = anyshape.load(classes_file)(torch.ones(5, 3))
    assert (type(made).__name__, type(made.parts).__name__, type(sums)) == ("Made", "Split", dict)
    assert made.sum.shape == () and made.label == "made" and made.parts.rest.shape == (4, 3)
    assert not isinstance(made, Made) and not isinstance(made.parts, Split)


def test_classes_that_are_handed_over_come_back(classes_file: Path) -> None:
    made, sums = anyshape.load(classes_file, classes=[Made, Split, Sums])(torch.ones(5, 3))
    assert type(made) is Made and type(made.parts) is Split and type(sums) is Sums
    made, sums = anyshape.load(classes_file, classes=[Split])(torch.ones(5, 3))
    assert type(made) is not Made and type(made.parts) is Split and type(sums) is dict


def test_a_class_that_fits_nothing_is_refused(classes_file: Path) -> None:
    with pytest.raises(
        UsageError, match=r"the file has no class called Path\nIts classes are: Made, Split, Sums\."
    ):
        anyshape.load(classes_file, classes=[Path])


def test_arrays_go_in_and_come_out(two_inputs: SimpleNamespace, text: Any) -> None:
    tokens, mask = two_inputs.inputs(3, 4)
    made = text(tokens.numpy(), mask.numpy())
    assert type(made) is np.ndarray
    np.testing.assert_allclose(made, two_inputs.model(tokens, mask).detach().numpy(), rtol=1e-5)
    assert isinstance(text(tokens.numpy(), mask), Tensor)  # one tensor among the inputs: tensors come out


def test_arrays_in_any_layout(linear: SimpleNamespace) -> None:
    run = anyshape.load(linear.path)
    plain = np.random.default_rng(0).random((3, 10)).astype(np.float32)
    expected = run(plain)
    np.testing.assert_array_equal(run(np.asfortranarray(plain)), expected)
    np.testing.assert_array_equal(run(plain.astype(">f4")), expected)
    np.testing.assert_array_equal(run(np.repeat(plain, 2, axis=0)[::2]), expected)


def test_an_array_of_another_dtype(linear: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="input is float64, not float32"):
        anyshape.load(linear.path)(np.zeros((3, 10)))


def test_nested_arrays(nested: SimpleNamespace, structured: Any) -> None:
    inputs, bias = nested.inputs(), torch.randn(2, 5)
    arrays = {"text": inputs["text"].numpy(), "boxes": [box.numpy() for box in inputs["boxes"]]}
    made = structured(arrays, bias=bias.numpy())
    assert all(type(box) is np.ndarray for box in made["boxes"]) and type(made["text"]) is tuple
    np.testing.assert_allclose(made["text"][0], nested.model(inputs, 2.0, bias=bias)["text"][0], rtol=1e-5)


def test_bfloat16_as_ml_dtypes_has_it(tmp_path: Path) -> None:
    anyshape.export(Turned(), torch.ones(2, 3, dtype=torch.bfloat16), tmp_path / "half.onnx")
    run = anyshape.load(tmp_path / "half.onnx")
    made = run(np.full((4, 3), 1.5, ml_dtypes.bfloat16))
    assert made.dtype == ml_dtypes.bfloat16 and made.shape == (3, 4) and (made == 1.5).all()
    assert run(torch.ones(4, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert run(np.ones((0, 3), ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


class Turned(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)


def test_keys_that_differ_in_their_type_alone(tmp_path: Path) -> None:
    class Keys(torch.nn.Module):
        def forward(self, parts: dict[Any, Tensor]) -> Tensor:
            return parts[1] - parts["1"]

    left, right = torch.ones(2, 3), torch.zeros(2, 3)
    anyshape.export(Keys(), ({1: left, "1": right},), tmp_path / "keys.onnx", input_names=["a", "b"])
    assert anyshape.load(tmp_path / "keys.onnx")({"1": right, 1: left}).sum() == 6


class Cache:
    """Registered with PyTorch's pytrees in a way of its own, as caches are."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts


torch.utils._pytree.register_pytree_node(
    Cache, lambda value: (value.parts, None), lambda parts, _: Cache(list(parts))
)


class Cached(torch.nn.Module):
    def forward(self, x: Tensor, cache: Cache) -> Any:
        return x + cache.parts[0], Cache([cache.parts[1] * 2, x])


def test_registered_classes_go_in_and_come_out_as_tuples(tmp_path: Path) -> None:
    anyshape.export(
        Cached(), (torch.ones(2, 3), Cache([torch.ones(2, 3), torch.ones(4)])), tmp_path / "c.onnx"
    )
    run, cache = anyshape.load(tmp_path / "c.onnx"), Cache([torch.ones(5, 3), torch.ones(7)])
    total, (doubled, kept) = run(torch.ones(5, 3), cache)
    assert (total == 2).all() and (doubled == 2).all() and kept.shape == (5, 3)
    arrays = run(np.ones((5, 3), np.float32), (np.ones((5, 3), np.float32), np.ones(7, np.float32)))
    assert type(arrays[1][0]) is np.ndarray
    with pytest.raises(UsageError, match="Cache is taken apart by functions"):
        anyshape.load(tmp_path / "c.onnx", classes=[Cache])


class Rotated(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1j, x.abs()


def test_complex_numbers_are_pairs_in_the_file_and_complex_outside(tmp_path: Path) -> None:
    model, path = Rotated(), tmp_path / "m.onnx"
    made = anyshape.export(model, torch.randn(2, 3, dtype=torch.complex64), path)
    assert [item.dtype for item in (*made.contract.inputs, *made.contract.outputs)] == [
        "complex64",
        "complex64",
        "float32",
    ]
    onnx.checker.check_model(path, full_check=True)
    x = torch.randn(4, 5, dtype=torch.complex64)
    run = anyshape.load(path)
    for got, want in zip(run(x), model(x), strict=True):
        torch.testing.assert_close(got, want)
    assert run(x.numpy())[0].dtype == "complex64"
