"""A recurrent layer and a linear layer on its last step: batch and sequence may have any size."""

import torch
from torch import nn


class LastStep(nn.Module):
    """Reads a sequence, answers from its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(10, 20, batch_first=True)
        self.linear = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, _ = self.rnn(x)
        return self.linear(steps[:, -1])


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The model, and one example of its input."""
    torch.manual_seed(0)  # the same weights at every call: a file can be verified against them
    return LastStep(), (torch.randn(3, 7, 10),)
