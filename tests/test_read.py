from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from anyshape.errors import ModelFault, UsageError
from anyshape.inputs.read import evaluation_mode, read


class Forward(nn.Module):
    """A module whose forward is a function given by the test."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Batch:
    image: torch.Tensor
    boxes: list[torch.Tensor]


x, y, z = torch.randn(2, 3), torch.randn(2, 3), torch.randn(2, 3)


def names(function: Any, args: Any = (), kwargs: Any = None, **options: Any) -> list[str]:
    return [item.path for item in read(Forward(function), args, kwargs, **options).inputs]


def test_inputs_have_the_forwards_names_in_pytree_order() -> None:
    assert names(lambda a, b, c: a + b + c, (x, y, z)) == ["a", "b", "c"]
    assert names(lambda a, b, c: a + b + c, (x,), {"c": z, "b": y}) == ["a", "c", "b"]
    assert names(lambda a: a, x) == ["a"]
    assert names(lambda a, b: a + b, [x, y]) == ["a", "b"]


def test_nested_inputs_have_names_by_path() -> None:
    assert names(lambda pair: pair.left, (Pair(x, y),)) == ["pair.left", "pair.right"]
    assert names(lambda batch: batch.image, (Batch(x, [y, z]),)) == [
        "batch.image",
        "batch.boxes.0",
        "batch.boxes.1",
    ]
    assert names(lambda d: d["k"][0], ({"k": [x, y]},)) == ["d.k.0", "d.k.1"]
    past = [(x, y), (z, x)]
    assert names(lambda past: past[0][0], (past,)) == ["past.0.0", "past.0.1", "past.1.0", "past.1.1"]


def test_star_args_and_kwargs() -> None:
    assert names(lambda a, *rest: a, (x, y, z)) == ["a", "rest.0", "rest.1"]
    assert names(lambda a, *rest: a, (x, y)) == ["a", "rest"]
    assert names(lambda a, **more: a + more["b"], (x,), {"b": y}) == ["a", "b"]


def test_unused_inputs_are_inputs_still() -> None:
    assert names(lambda a, b, c: a, (x, y, z)) == ["a", "b", "c"]


def test_constants_are_told_by_path_and_none_is_not_told() -> None:
    case = read(Forward(lambda a, n, b, flag=True: a * n), (x, 3, None), {"flag": False})
    assert dict(case.constants) == {"n": 3, "flag": False}
    case = read(Forward(lambda a: a[0] * a[1]), ((x, 2.5),))
    assert dict(case.constants) == {"a.1": 2.5}


def test_input_names_replace_paths_from_the_first_on() -> None:
    assert names(lambda a, b: a + b, (x, y), input_names=["left", "right"]) == ["left", "right"]
    assert names(lambda a, b: a + b, (x, y), input_names=["left"]) == ["left", "b"]


def test_call_rebuilds_what_the_model_was_called_with() -> None:
    case = read(Forward(lambda a, n, *, pair: a * n + pair.left - pair.right), (x, 3), {"pair": Pair(y, z)})
    assert torch.equal(case.call([y, z, x]), y * 3 + z - x)


def test_outputs_are_flat_with_paths_and_structure() -> None:
    case = read(Forward(lambda a: {"last": a, "all": (a + 1, [a * 2])}), x)
    assert case.outputs.paths == ("last", "all.0", "all.1.0")
    assert case.outputs.structure.rebuild([1, 2, 3]) == {"last": 1, "all": (2, [3])}
    assert read(Forward(lambda a: a), x).outputs.paths == ("output",)


def test_a_run_leaves_inputs_and_buffers_as_they_were() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return a.mul_(2)

    model, given = Counting(), x.clone()
    case = read(model, given)
    assert torch.equal(case.run([given]).tensors[0], case.run([given]).tensors[0])
    assert model.steps == 0
    assert torch.equal(given, x)


def test_the_summary_counts_in_words() -> None:
    assert read(nn.Linear(3, 3), x).summary == "1 input, 1 output, 12 parameters"
    case = read(Forward(lambda a, b: (a, b)), (x, y))
    assert case.summary == "2 inputs, 2 outputs, 0 parameters"
    assert read(nn.Linear(3, 1000), x).summary.endswith("4 k parameters")


def test_weight_sizes_hold_every_size_of_every_weight() -> None:
    assert read(nn.Linear(3, 7), x).weight_sizes() == {3, 7}


def test_an_exported_programs_own_module_is_the_reference() -> None:
    program = torch.export.export(nn.Linear(3, 4), (x,))
    case = read(program, x)
    assert case.outputs.tensors[0].shape == (2, 4)
    assert any("ExportedProgram" in note for note in case.notes)


def test_weights_on_the_meta_device_are_not_run() -> None:
    with torch.device("meta"):
        model = nn.Linear(3, 4)
    case = read(model, torch.empty(2, 3, device="meta"))
    assert case.on_meta and case.outputs.tensors == ()


@pytest.mark.parametrize(
    "example",
    [((y, z), {}), (y, z), [y, z], {"a": y, "b": z}, {"b": z, "a": y}, ((y,), {"b": z})],
)
def test_further_examples_come_in_many_forms(example: Any) -> None:
    case = read(Forward(lambda a, b: a + b), (x, y), examples=[example])
    assert [torch.equal(got, want) for got, want in zip(case.more_examples[0], (y, z), strict=True)] == [
        True,
        True,
    ]


def test_a_lone_tensor_is_an_example() -> None:
    (example,) = read(Forward(lambda a: a), x, examples=[y]).more_examples
    assert torch.equal(example[0], y)


def test_evaluation_mode_puts_every_part_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout())
    model.train()
    model[1].eval()
    with evaluation_mode(model) as was_training:
        assert was_training and not model[0].training
    assert model.training and model[0].training and not model[1].training
    with pytest.raises(KeyError), evaluation_mode(model):
        raise KeyError
    assert model.training


# Every refusal.


def refusal(kind: type[Exception], *args: Any, **options: Any) -> str:
    with pytest.raises(kind) as info:
        read(*args, **options)
    return str(info.value)


def test_no_inputs() -> None:
    assert "no example inputs" in refusal(UsageError, nn.Linear(3, 3))
    assert "kwargs={...}" in refusal(UsageError, nn.Linear(3, 3), ())


def test_inputs_without_a_tensor() -> None:
    assert "no tensor" in refusal(UsageError, Forward(lambda n: torch.ones(n)), (3,))


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_torchscript() -> None:
    scripted = torch.jit.trace(nn.Linear(3, 3), x)
    assert "TorchScript" in refusal(UsageError, scripted, x)


def test_a_function_is_no_module() -> None:
    text = refusal(UsageError, lambda a: a, x)
    assert "function" in text and "forward" in text


def test_args_must_be_a_tuple() -> None:
    text = refusal(UsageError, nn.Linear(3, 3), {"input": x})
    assert "args is a dict" in text and "kwargs" in text


def test_too_many_input_names() -> None:
    text = refusal(UsageError, Forward(lambda a: a), x, input_names=["one", "two"])
    assert "2 names" in text and "1 tensor inputs: a" in text


def test_input_names_that_repeat() -> None:
    assert "repeats a name: p, p" in refusal(
        UsageError, Forward(lambda a, b: a), (x, y), input_names=["p", "p"]
    )


def test_input_names_that_repeat_a_path() -> None:
    text = refusal(UsageError, Forward(lambda a, b: a), (x, y), input_names=["b"])
    assert "repeats a name: b, b" in text


def test_an_example_with_another_structure() -> None:
    text = refusal(UsageError, Forward(lambda a, b: a), (x, y), examples=[x])
    assert "1 tensors, the example has 2: a, b" in text


def test_a_model_that_fails_at_its_example() -> None:
    text = refusal(ModelFault, Forward(lambda a: a @ a), x)
    assert "fails at its own example: RuntimeError" in text and "test_read.py" in text and "a @ a" in text


def test_a_model_that_returns_no_tensor() -> None:
    assert "returns no tensor" in refusal(ModelFault, Forward(lambda a: a.shape[0]), x)


def test_a_model_that_is_random() -> None:
    text = refusal(ModelFault, Forward(lambda a: {"noise": a + torch.rand_like(a)}), x)
    assert "random" in text and "noise" in text and "dropout" in text


def test_a_model_with_nan_in_its_output_is_not_random() -> None:
    case = read(Forward(lambda a: a / 0 * 0), x)
    assert case.outputs.tensors[0].isnan().all()
