"""Tokens and a mask: embeddings, a table of 128 positions, attention under the mask, logits. The demo's model."""

import torch
import torch.nn.functional as F
from torch import nn


class Reader(nn.Module):
    """One attention layer over tokens; masked tokens are not looked at."""

    def __init__(self, words: int = 50, width: int = 32, heads: int = 4, positions: int = 128) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(words, width)
        self.position = nn.Embedding(positions, width)
        self.project = nn.Linear(width, 3 * width)
        self.logits = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, seq = tokens.shape
        x = self.embed(tokens) + self.position(torch.arange(seq))
        query, key, value = (
            part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)
        )
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        return self.logits(x + seen.transpose(1, 2).reshape(batch, seq, -1))


def build() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """The model, and one example of its inputs."""
    torch.manual_seed(0)  # the same weights at every call: a file can be verified against them
    tokens = torch.randint(0, 50, (2, 6))
    mask = torch.ones(2, 6, dtype=torch.bool)
    return Reader(), (tokens, mask)
