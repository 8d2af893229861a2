"""Calls that end the process, one for each check: PyTorch's own are made in no test, as they would end it, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.nn.utils.rnn import pack_padded_sequence

import anyshape
from anyshape.torch_bridge.careful import Careful


def test_shared_heads_of_which_there_are_none() -> None:
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 0, 3, 8)
    with Careful(), pytest.raises(RuntimeError, match="needs at least one head of keys and values"):
        attention(q, k, k, enable_gqa=True)
    with Careful():
        assert attention(q, q[:, :2], q[:, :2], enable_gqa=True).shape == q.shape


@pytest.mark.parametrize(
    "layer", [nn.LSTM(4, 3), nn.GRU(4, 3), nn.RNN(4, 3)], ids=lambda layer: type(layer).__name__
)
def test_states_of_other_layers(layer: Any) -> None:
    packed = pack_padded_sequence(torch.randn(5, 2, 4), torch.tensor([5, 3]))

    def run(count: int) -> Any:
        state = torch.randn(count, 2, 3)
        return layer(packed, (state, state) if isinstance(layer, nn.LSTM) else state)

    with Careful(), pytest.raises(RuntimeError, match="Expected hidden"):
        run(2)
    with Careful():
        assert run(1)[0].data.shape == (8, 3)
        assert layer(torch.randn(5, 2, 4))[0].shape == (5, 2, 3)


@pytest.mark.parametrize("offsets", [[], [0, 9], [0, 3, 2], [-1, 2]])
def test_offsets_that_lead_nowhere(offsets: list[int]) -> None:
    bag, ids = nn.EmbeddingBag(10, 3), torch.tensor([1, 2, 3, 4])
    with Careful(), pytest.raises(RuntimeError, match="offsets must rise from 0 to the number of indices, 4"):
        bag(ids, torch.tensor(offsets, dtype=torch.int64))
    with Careful():
        assert bag(ids, torch.tensor([0, 2])).shape == (2, 3)


def test_an_export_outlives_them() -> None:
    class Shared(nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return attention(q, k, v, enable_gqa=True)

    made = anyshape.export(
        Shared(), (torch.randn(2, 4, 3, 8), torch.randn(2, 2, 3, 8), torch.randn(2, 2, 3, 8))
    )
    assert made.verdict.right
