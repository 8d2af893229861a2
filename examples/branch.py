"""A model that takes another path when the sequence is long: what exporters get wrong most quietly."""

import torch
from torch import nn


class Summary(nn.Module):
    """Long sequences are read from their last 8 steps only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 8:
            x = x[:, -8:]
        return self.linear(x)


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The model, and one example of its input."""
    torch.manual_seed(0)  # the same weights at every call: a file can be verified against them
    return Summary(), (torch.randn(2, 6, 16),)
