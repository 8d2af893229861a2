"""Numbers that Python reads out of tensors: they go on in the graph, and what Python decides by them is asked there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import CaptureFault, Fault, LowerFault

Tensors = tuple[Tensor, ...]
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def turned(example: Tensor) -> list[Tensor]:
    """Other sizes and values: large, small, negative, positive, zero, NaN, and none at all."""
    made = []
    for shape in ((1, 1), (2, 7), (5, 4), (0, 4)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
        kinds = (x, x * 100, x * 1e-3, -x.abs() - 0.1, x.abs(), torch.zeros(shape), x * math.nan)
        made += [
            kind.to(example.dtype)
            if example.dtype.is_floating_point
            else kind.nan_to_num().clamp(-50, 50).to(example.dtype)
            for kind in kinds
        ]
    return made


def agree(
    function: Callable[..., Any],
    example: Tensors,
    others: Sequence[Tensors],
    folder: Path,
    exact: float = 1e-5,
) -> int:
    """How often the model ran where it was held against the file."""
    net = Net(function).eval()
    anyshape.export(net, example, folder / "m.onnx")
    run, ran = anyshape.load(folder / "m.onnx"), 0
    for tensors in (example, *others):
        try:
            with torch.no_grad():
                wanted = net(*tensors)
        except (RuntimeError, ArithmeticError, ValueError, IndexError):
            continue  # there is nothing to agree with
        ran += 1
        got = torch.as_tensor(np.asarray(run(*tensors)))
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), tensors
        assert torch.allclose(got.double(), wanted.double(), 10 * exact, exact, equal_nan=True), tensors
    return ran


def spread(x: Tensor) -> Tensor:
    return (x - x.mean()).square().mean().sqrt()


def by_norm(x: Tensor) -> Tensor:
    norm = x.norm().item()
    if norm > 1:
        x = x / norm
    return x


def before_and_after(x: Tensor) -> Tensor:
    y = x * 2
    before = y.sum().item()
    y[:, :1] = before
    after = y.mean().item()
    y.add_(1)
    return y * after - before + y.sum().item()


def quantized(x: Tensor) -> Tensor:
    low, high = x.min().item(), x.max().item()
    scale = max((high - low) / 255, 1e-8)
    return ((x / scale).round() + round(-low / scale)).clamp(0, 255)


def in_a_loop(x: Tensor) -> Tensor:
    mean = x.abs().mean().item()
    for number in range(x.shape[1]):
        x = x * 0.5 + mean * number
    return x


def of_math(x: Tensor) -> Tensor:
    mean = x.abs().mean().item()
    return x * math.sqrt(mean) + math.exp(-mean) + math.log(mean + 1) - abs(-mean) + math.pow(mean, 2)


def whole(x: Tensor) -> Tensor:
    mean = x.mean().item()
    return x * math.floor(mean) + math.ceil(mean) + round(mean) + int(mean * 3) + mean // 0.1 + mean % -0.3


def as_tensors(x: Tensor) -> Tensor:
    low, high = torch.aminmax(x)
    entries = torch.tensor([low.item(), high.item(), 2, x.shape[0]])
    return x * entries.sum() + torch.tensor(low.item()) + x.new_tensor([high.item()])


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = x.min().item()
    y[:, -1] = torch.where(x[:, -1] > 0, x.max().item(), 0.0)
    return y


def as_size(x: Tensor) -> Tensor:
    return torch.ones(min(int(x.abs().max().item() * 2) + 1, 100)) * x.sum()


def of_a_list(x: Tensor) -> Tensor:
    low, high, mean = torch.stack([x.min(), x.max(), x.mean()]).tolist()
    return (x - low) / (high - low + 1) + mean + x.mean(1).tolist()[0]


USED: dict[str, Callable[[Tensor], Tensor]] = {
    "divided by": lambda x: x / x.max().item(),
    "used twice": lambda x: x * spread(x).item() + (spread(x).item() + 1e-5) ** 2 / 3,
    "filled in": lambda x: torch.full(x.shape, x.mean().item()) + torch.full_like(x, float(spread(x))),
    "bounds": lambda x: torch.clamp(x, -float(spread(x)), max=float(spread(x))),
    "a keyword": lambda x: torch.add(x, x, alpha=x.mean().item()).clip(min=x.min().item() / 2),
    "the right side": lambda x: x.mean().item() - 2.0 / (x.abs() + 1) ** abs(spread(x).item()),
    "compared": lambda x: (x > x.mean().item()) * 1.0,
    "the larger": lambda x: x / max(x.max().item(), abs(x.min().item()), 1e-3),
    "or an integer": lambda x: x / max(1, x.max().item()),
    "before and after a write": before_and_after,
    "quantized": quantized,
    "in a loop": in_a_loop,
    "of math": of_math,
    "whole": whole,
    "as tensors": as_tensors,
    "written": written,
    "as a size": as_size,
    "of a list": of_a_list,
    "in a lambda": lambda x: (lambda number: (lambda y: y * number)(x))(x.sum().item()),
}


@pytest.mark.parametrize("name", USED)
def test_a_float_that_was_read_is_a_number_of_the_graph(name: str, tmp_path: Path) -> None:
    assert agree(USED[name], (X,), [(x,) for x in turned(X)], tmp_path) > 14


def between(x: Tensor) -> Tensor:
    most = x.max().item()
    return x if 0 < most < 1 else x * most


def of_two(x: Tensor) -> Tensor:
    high, low = x.max().item(), x.min().item()
    if high > 2 and low < -1:
        return x * high
    if high > 2 or low < -2:
        return x * low
    return x + high - low


def against_a_size(x: Tensor) -> Tensor:
    return x * 2 if x.abs().sum().item() > 3 * x.shape[0] else x + 1


def unless_nan(x: Tensor) -> Tensor:
    total = x.sum().item()
    if math.isnan(total) or not math.isfinite(total):
        return torch.zeros_like(x)
    return x / total if total else x


def hits(x: Tensor) -> Tensor:
    places = (x > 0).nonzero()
    return x if places.shape[0] == 0 else x + 1


def many(x: Tensor) -> Tensor:
    chosen = x[x > 0]
    return x * 2 if 2 < chosen.numel() < 9 else x - 1


DECIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "by a norm": by_norm,
    "between": between,
    "of two": of_two,
    "against a size": against_a_size,
    "unless NaN": unless_nan,
    "in a tuple": lambda x: x * 3 if x.max().item() in (0.0, 2.5) else x,
    "sorted": lambda x: x * sorted([x.max().item(), x.mean().item() * 3])[0],
    "the size of what was found": hits,
    "how many": many,
    "odd": lambda x: x if len((x > 0).nonzero()) % 2 else x * 2,
    "an integer": lambda x: x / 2 if (x > 0).sum().item() > 2 else x,
    "two truths": lambda x: x * 2 if (x > 0.5).any() and (x < -0.5).any() else x - 1,
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_a_number_of_values_decides_is_asked_by_the_graph(name: str, tmp_path: Path) -> None:
    assert agree(DECIDED[name], (X,), [(x,) for x in (*turned(X), torch.full((2, 3), 2.5))], tmp_path) > 14


TYPES: dict[str, tuple[Callable[[Tensor], Tensor], torch.dtype, float]] = {
    "float64": (lambda x: x * (x.sum().item() / 3) + x.mean().item(), torch.float64, 1e-13),
    "float16": (lambda x: x * x.float().mean().item() + x.max().item(), torch.float16, 1e-2),
    "beyond float16": (lambda x: x / (x.float().norm().item() * 1e5 + 1), torch.float16, 1e-2),
    "integers": (lambda x: x // 2 + x.max().item(), torch.int64, 0),
    "integers and floats": (lambda x: x * (x.float().mean().item() / 3), torch.int64, 1e-5),
}


@pytest.mark.parametrize("name", TYPES)
def test_numbers_meet_tensors_in_their_types(name: str, tmp_path: Path) -> None:
    function, dtype, exact = TYPES[name]
    example = (X * 9).to(dtype)
    assert agree(function, (example,), [(x,) for x in turned(example)], tmp_path, exact) > 14


def test_a_number_that_is_an_input(tmp_path: Path) -> None:
    def function(x: Tensor, limit: Tensor) -> Tensor:
        return x.clamp(max=limit.item()) * 2 if limit.item() > 0 else x.clamp(min=(limit * 2).item())

    limits = [torch.tensor(limit) for limit in (0.0, -1.0, 0.3, math.inf, math.nan, 1e9)]
    agree(function, (X, torch.tensor(2.5)), [(X[:2] * 3, limit) for limit in limits], tmp_path)


def test_a_number_that_is_nearly_always_the_same(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return x + round(spread(x).nan_to_num().clamp(0.6, 2.4).item())

    agree(function, (X,), [(x,) for x in turned(X)], tmp_path)


def as_a_text(x: Tensor) -> Tensor:
    return x * {"3": 2.0}.get(f"{x.max().item():.0f}", 5.0)


def as_a_key(x: Tensor) -> Tensor:
    return x * {2.5: 3.0}.get(x.max().item(), 1.0)


def by_a_plain_function(x: Tensor) -> Tensor:
    return x * math.tanh(x.mean().item())


def by_numpy(x: Tensor) -> Tensor:
    return x * float(np.sign(x.mean().item()))


def as_a_sum_of_many(x: Tensor) -> Tensor:
    return x * sum(x.mean(1).tolist())


def in_the_result(x: Tensor) -> tuple[Tensor, float]:
    return x * 2, x.max().item()


def unseen(x: Tensor) -> Tensor:
    return x * int(np.float32([x.max().item()])[0] > 2.5)


REFUSED = [as_a_text, as_a_key, by_a_plain_function, by_numpy, as_a_sum_of_many, in_the_result, unseen]


@pytest.mark.parametrize("function", REFUSED)
def test_a_number_that_goes_where_it_is_not_seen_is_refused(function: Any) -> None:
    with pytest.raises(CaptureFault, match="Python looks at the values of a tensor") as caught:
        anyshape.export(Net(function).eval(), X)
    assert caught.value.where is not None and caught.value.where.file.endswith(Path(__file__).name)


def test_a_number_in_a_tensor_of_numpys_making_is_refused() -> None:
    with pytest.raises(Fault):
        anyshape.export(Net(lambda x: x + torch.from_numpy(np.float32([x.max().item()]))).eval(), X)


def test_a_number_that_no_graph_computes_is_refused_with_its_line() -> None:
    with pytest.raises(CaptureFault, match="computed in a way that a graph can't follow") as caught:
        anyshape.export(Net(lambda x: x * round(x.mean().item(), 1)).eval(), X)
    assert caught.value.where is not None
    assert caught.value.hint == "Compute it with tensors: what is not read out of them stays in the graph."


def test_an_operator_that_takes_constants_only_is_refused_in_words() -> None:
    with pytest.raises(LowerFault, match="aten::leaky_relu is given a number that is computed") as caught:
        anyshape.export(Net(lambda x: nn.functional.leaky_relu(x, x.abs().mean().item())).eval(), X)
    assert caught.value.hint.startswith("Write what it does with plain arithmetic")
