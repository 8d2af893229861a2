from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxscript.optimizer
import pytest
import torch
from torch import Tensor, nn

from anyshape.lower.optimize import optimize
from anyshape.runtimes.onnx_runtime import OnnxRuntime


class Wasteful(nn.Module):
    """Two equal weights, a shape computed twice, and a product that nobody needs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.arange(2000.0).view(4, 500))
        self.register_buffer("two", torch.arange(2000.0).view(4, 500))

    def forward(self, x: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
        x @ x.mT
        return (x @ self.one) + (x @ self.two), x.reshape(x.shape[0] * x.shape[1])


@pytest.fixture(scope="module")
def wasteful(lowered: Callable[..., Any]) -> Any:
    return lowered(Wasteful(), (torch.randn(3, 4), torch.randn(2)), shapes={"x": "n, 4"})


@pytest.fixture(scope="module")
def optimized(wasteful: Any) -> Any:
    return optimize(wasteful.model.clone())


def count(model: Any) -> int:
    return sum(1 for _ in model.graph.all_nodes())


def test_there_are_fewer_nodes(wasteful: Any, optimized: Any) -> None:
    assert count(optimized) < count(wasteful.model)


def test_weights_are_stored_once(optimized: Any) -> None:
    large = [
        v
        for v in optimized.graph.initializers.values()
        if v.const_value is not None and v.const_value.size > 100
    ]
    assert len(large) == 1


def test_the_signature_is_as_before(wasteful: Any, optimized: Any) -> None:
    def signature(model: Any) -> list[tuple[str, str]]:
        return [(value.name, str(value.shape)) for value in (*model.graph.inputs, *model.graph.outputs)]

    assert signature(optimized) == signature(wasteful.model)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_the_results_are_as_before_at_every_size(wasteful: Any, optimized: Any, n: int) -> None:
    x, unused = np.random.default_rng(0).random((n, 4), np.float32), np.ones(2, np.float32)
    before = OnnxRuntime.of_model(wasteful.model).run({"x": x, "unused": unused})
    after = OnnxRuntime.of_model(optimized).run({"x": x, "unused": unused})
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_failing_optimizer_leaves_the_model_right(wasteful: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise ValueError("SplitToSequence")

    monkeypatch.setattr(onnxscript.optimizer, "optimize", fails)
    made = optimize(wasteful.model.clone())
    x = np.ones((5, 4), np.float32)
    assert OnnxRuntime.of_model(made).run({"x": x, "unused": np.ones(2, np.float32)})[1].shape == (20,)
