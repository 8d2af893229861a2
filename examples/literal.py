"""A model with two sizes of its example written into the source: PyTorch itself runs it at no other."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(128, 16)
        self.gru = nn.GRU(16, 16, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.tokens(ids) + self.places(torch.arange(6))
        start = torch.zeros(1, 2, 16)  # one layer
        states: Tensor = self.gru(hidden, start)[0]
        return states


def build() -> tuple[Decoder, Tensor]:
    torch.manual_seed(0)
    return Decoder(), torch.randint(0, 50, (2, 6))
