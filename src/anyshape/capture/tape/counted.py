"""Sizes that values decide: how many numbers a mask picks, how many are not zero.

Such a size may be the same in every run that is made, and is no number for that. So a run can be made with one row
more than there is wherever an operator counts: what then differs hangs on the count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["counted_axes", "one_more"]

aten = torch.ops.aten
ALONG_THE_FIRST = frozenset(
    (aten.nonzero.default, aten.masked_select.default, aten.repeat_interleave.Tensor, aten.bincount.default)
)
UNIQUE = {aten._unique2.default: 3, aten.unique_consecutive.default: 2}  # which argument asks for counts


def counted_axes(target: Any, args: Sequence[Any]) -> dict[int, int]:
    """The results of an operator that have a size which values decide, and the axis of it."""
    if target in ALONG_THE_FIRST:
        return {0: 0}
    if target in UNIQUE and not (target is aten.unique_consecutive.default and args[3:]):
        return {0: 0, 2: 0} if any(args[UNIQUE[target] :]) else {0: 0}
    if target is aten.index.Tensor:
        masks = [place for place, index in enumerate(args[1]) if _is_mask(index)]
        given = [place for place, index in enumerate(args[1]) if index is not None]
        if masks:
            return {0: given[0] if given == list(range(given[0], given[-1] + 1)) else 0}
    return {}


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def one_more(result: Any, axes: dict[int, int]) -> Any:
    """The result with the last row once more; where there is none, a row of zeros."""
    parts = list(result) if isinstance(result, (list, tuple)) else [result]
    made = [_longer(part, axes[number]) if number in axes else part for number, part in enumerate(parts)]
    return tuple(made) if isinstance(result, (list, tuple)) else made[0]


def _longer(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    size, shape = tensor.size(axis), list(tensor.size())
    shape[axis] = 1
    row = tensor.narrow(axis, size - 1, 1) if size else tensor.new_zeros(shape)
    return torch.cat([tensor, row], axis)
