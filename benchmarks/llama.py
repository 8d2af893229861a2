"""A decoder in the manner of Llama in plain torch: rotary positions, shared keys, gated MLPs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of features turned by their position's angle."""
    one, two = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class Block(nn.Module):
    """Attention and a gated MLP, each behind a norm."""

    def __init__(self, width: int, heads: int, shared: int, inner: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, shared * self.size, bias=False)
        self.value = nn.Linear(width, shared * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, angles: Tensor, mask: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        y = self.before(x)
        query = rotated(self.query(y).view(batch, seq, self.heads, self.size).transpose(1, 2), angles)
        key = rotated(self.key(y).view(batch, seq, self.shared, self.size).transpose(1, 2), angles)
        value = self.value(y).view(batch, seq, self.shared, self.size).transpose(1, 2)
        times = self.heads // self.shared
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, seq, -1))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Tokens and a padding mask to logits. The defaults have about a billion parameters."""

    def __init__(
        self,
        words: int = 32_000,
        width: int = 2048,
        layers: int = 18,
        heads: int = 32,
        shared: int = 8,
        inner: int = 7168,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, shared, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.logits = nn.Linear(width, words, bias=False)
        self.size = width // heads

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        seq = tokens.shape[1]
        x = self.embed(tokens)
        rates = 10_000.0 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(seq, device=x.device)[:, None] * rates
        causal = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
        allowed = causal & mask[:, None, None, :].bool()
        for block in self.blocks:
            x = block(x, angles, allowed)
        return self.logits(self.norm(x))
