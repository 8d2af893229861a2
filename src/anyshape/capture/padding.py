"""What nn.TransformerEncoder does with padding: its fast way, which no graph has, hands back zeros for padded places.

In evaluation, and where every row is padded at its end only, PyTorch packs the rows and leaves the padding out; what
comes back in its place is 0, before the last normalisation. The slow way, which is traced, computes something there.
So while a model is traced, the encoder is asked without its last normalisation, and zeros are put where they belong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from anyshape.torch_bridge.process import patched

__all__ = ["padding_left_out"]

FORWARD = nn.TransformerEncoder.forward


@contextlib.contextmanager
def padding_left_out() -> Iterator[None]:
    """Within this context an encoder gives zeros where PyTorch's fast way gives them."""
    with patched(nn.TransformerEncoder, "forward", _forward):
        yield


def _forward(
    self: nn.TransformerEncoder,
    src: torch.Tensor,
    mask: torch.Tensor | None = None,
    src_key_padding_mask: torch.Tensor | None = None,
    is_causal: bool | None = None,
) -> torch.Tensor:
    if src_key_padding_mask is None or not _packs(self, src, mask):
        return FORWARD(self, src, mask, src_key_padding_mask, is_causal)
    norm, self.norm = self.norm, None
    try:
        made = FORWARD(self, src, mask, src_key_padding_mask, is_causal)
    finally:
        self.norm = norm
    made = _without_padding(made, src_key_padding_mask, bool(getattr(self, "mask_check", True)))
    return made if norm is None else norm(made)


def _packs(encoder: Any, src: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether PyTorch would go the fast way, were the padding at the end of every row."""
    return (
        bool(getattr(encoder, "use_nested_tensor", False))
        and not encoder.layers[0].training
        and src.dim() == 3
        and mask is None
        and not torch.is_autocast_enabled()
    )


def _without_padding(made: torch.Tensor, padding: torch.Tensor, asks: bool) -> torch.Tensor:
    shown = ~padding if padding.dtype == torch.bool else padding == 0
    counts = shown.to(torch.int64)
    at_the_end = (counts.cumprod(1).sum(1) == counts.sum(1)).all() if asks else torch.tensor(True)
    return made.masked_fill((at_the_end & ~shown).unsqueeze(-1), 0.0)
