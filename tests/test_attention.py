"""Attention with masks that leave a query nothing to look at: zeros, as in PyTorch, at any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import anyshape

LEAST = torch.finfo(torch.float32).min


def causal(mask: Tensor) -> Tensor:
    """Each position sees what the mask shows up to itself: none, if that was padded on the left."""
    size = mask.shape[1]
    return mask[:, None, None, :] & torch.ones(size, size).tril().bool()


def added(mask: Tensor, hidden: float) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, hidden)


class Attends(nn.Module):
    def __init__(self, seen: Callable[[Tensor], Tensor], heads: bool = True) -> None:
        super().__init__()
        self.seen, self.heads = seen, heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x if self.heads else x[:, 0]
        return F.scaled_dot_product_attention(x, x.flip(-2), x * 2, self.seen(mask))


MODELS = {
    "booleans": Attends(causal),
    "minus infinity": Attends(lambda mask: added(causal(mask), -torch.inf)),
    "the least number": Attends(lambda mask: added(causal(mask), LEAST)),
    "keys alone": Attends(lambda mask: mask[:, None, None, :]),
    "no axis of heads": Attends(lambda mask: causal(mask)[:, 0], heads=False),
}


def inputs(batch: int, size: int, padded: int = 0) -> tuple[Tensor, Tensor]:
    mask = torch.ones(batch, size).bool()
    mask[0, :padded] = False
    return torch.randn(batch, 2, size, 8), mask


@pytest.mark.parametrize("name", MODELS)
def test_a_query_that_sees_nothing(name: str, tmp_path: Path) -> None:
    model, path = MODELS[name].eval(), tmp_path / "model.onnx"
    anyshape.export(model, inputs(2, 5), path)
    loaded = anyshape.load(path)
    for batch, size, padded in [(2, 6, 0), (2, 6, 2), (3, 7, 7), (1, 1, 1), (1, 9, 8)]:
        tensors = inputs(batch, size, padded)
        got = torch.as_tensor(loaded(*(tensor.numpy() for tensor in tensors)))
        torch.testing.assert_close(got, model(*tensors))


def test_nan_stays_nan(tmp_path: Path) -> None:
    model, path = MODELS["booleans"].eval(), tmp_path / "model.onnx"
    anyshape.export(model, inputs(2, 5), path)
    x, mask = inputs(2, 6)
    x[1, 0, 3, 0] = torch.nan
    got = torch.as_tensor(anyshape.load(path)(x.numpy(), mask.numpy()))
    assert torch.equal(got.isnan(), model(x, mask).isnan()) and got.isnan().any()
