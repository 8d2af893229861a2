"""Calls that end the process: PyTorch does not look at what they are given, and divides by zero or reads beyond it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Careful"]


class Careful(TorchFunctionMode):
    """Within this, such a call raises as others do. Whoever tries sizes that nobody promised to work has to.

    Each line below names the version of PyTorch that it was seen in: looked for at each upgrade.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        check = CHECKS.get(getattr(func, "__name__", ""))
        if check is not None:
            check(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(query: Any, key: Any, value: Any, *rest: Any, enable_gqa: bool = False, **more: Any) -> None:
    """Shared heads of which there are none: a division by zero (2.13)."""
    if enable_gqa and any(item.dim() > 2 and item.size(-3) == 0 for item in (key, value)):
        raise RuntimeError("attention with shared heads needs at least one head of keys and values")


def _packed(data: Any, sizes: Any, hidden: Any, *rest: Any) -> None:
    """A packed sequence with states of other layers or another batch: read beyond their end (2.13)."""
    if not isinstance(sizes, torch.Tensor) or sizes.dim() != 1 or sizes.is_floating_point() or len(rest) < 6:
        return
    _, _, layers, _, _, both = rest[:6]
    expected = layers * (2 if both else 1), int(sizes[0]) if sizes.numel() else 0
    for part in hidden if isinstance(hidden, (tuple, list)) else (hidden,):
        found = tuple(part.size())[:2]
        if found != expected:
            raise RuntimeError(
                f"Expected hidden size [{expected[0]}, {expected[1]}, …], got {list(part.size())}"
            )


def _bags(one: Any, two: Any, offsets: Any = None, *rest: Any, **more: Any) -> None:
    """Offsets of which there are none, that fall, or lie beyond the indices: read beyond their end (2.13)."""
    indices = (
        two if one.is_floating_point() else one
    )  # torch's and torch.nn's functions have them in another order
    if not isinstance(offsets, torch.Tensor) or offsets.dim() != 1 or indices.dim() != 1:
        return
    ends = [0, *offsets.tolist(), indices.numel()]
    if offsets.numel() == 0 or any(one > two for one, two in itertools.pairwise(ends)):
        raise RuntimeError(f"offsets must rise from 0 to the number of indices, {indices.numel()}")


CHECKS: dict[str, Callable[..., None]] = {
    "scaled_dot_product_attention": _attention,
    "embedding_bag": _bags,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _packed),
}
