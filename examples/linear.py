"""A linear layer: the batch may have any size."""

import torch
from torch import nn


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The model, and one example of its input."""
    torch.manual_seed(0)  # the same weights at every call: a file can be verified against them
    return nn.Linear(10, 5), (torch.randn(3, 10),)
