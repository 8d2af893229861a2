from __future__ import annotations

from typing import Any

import pytest
import torch

from anyshape.errors import UsageError
from anyshape.inputs.options import REFUSED, check_torch_options


def refusal(**options: Any) -> str:
    with pytest.raises(UsageError) as info:
        check_torch_options(options)
    assert info.value.hint
    return str(info.value)


def test_the_values_that_change_nothing_are_taken() -> None:
    options = {name: harmless for name, (harmless, _, _) in REFUSED.items()}
    assert check_torch_options(options) == []
    assert check_torch_options({"dynamo": True, "training": torch.onnx.TrainingMode.EVAL}) == []
    assert check_torch_options({"operator_export_type": torch.onnx.OperatorExportTypes.ONNX}) == []


@pytest.mark.parametrize(
    ("option", "value", "instead"),
    [
        ("profile", True, "Export.seconds"),
        ("dump_exported_program", True, "torch.export.save"),
        ("verify", False, "Leave verify"),
        ("export_params", False, "export_params"),
        ("keep_initializers_as_inputs", True, "input of the model"),
        ("custom_opsets", {"mine": 1}, "custom_translation_table"),
        ("export_modules_as_functions", True, "module path"),
        ("autograd_inlining", False, "autograd_inlining"),
    ],
)
def test_each_refusal_names_the_option_its_value_and_what_to_use(
    option: str, value: Any, instead: str
) -> None:
    text = refusal(**{option: value})
    assert f"{option}={value!r} is not supported" in text and instead in text


def test_every_refused_option_is_tried_above() -> None:
    tried = test_each_refusal_names_the_option_its_value_and_what_to_use.pytestmark[0].args[1]
    assert {row[0] for row in tried} == set(REFUSED)


def test_dynamo_false_is_told_in_a_note() -> None:
    (note,) = check_torch_options({"dynamo": False})
    assert "dynamo=False is ignored" in note


def test_training_mode_is_refused() -> None:
    text = refusal(training=torch.onnx.TrainingMode.TRAINING)
    assert "training=" in text and "eval mode" in text


def test_other_operator_sets_are_refused() -> None:
    text = refusal(operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN)
    assert "operator_export_type=" in text and "custom_translation_table" in text


def test_an_unknown_argument_is_refused_by_name() -> None:
    assert "no argument 'dynamic_axis'" in refusal(dynamic_axis={})
