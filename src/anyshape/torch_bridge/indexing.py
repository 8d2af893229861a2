"""What a run reads and writes by index: how far each index is from the end of its table, and the work up to there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyshape.torch_bridge.work import Work

__all__ = ["Indexed"]

BY_DIM = ("index_select", "gather", "scatter", "scatter_add", "index_add", "index_copy", "index_fill")
"""Operators of a tensor, a dim and an index into it."""
TABLES = ("embedding", "_embedding_bag", "_embedding_bag_forward_only")
"""Operators of a table and an index of its rows."""


class Indexed(Work):  # type: ignore[no-untyped-call]
    """A run within this tells ``seen`` of each index: the rows that it leaves to the end; and then that it was legal.

    ``seen(left)`` is asked before the operator runs, which raises where nothing is left; what it returns is called
    when the operator has run.
    """

    def __init__(self, seen: Callable[[int], Callable[[], None]]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        legal = [self.seen(rows - 1 - int(index.max())) for rows, index in _indices(func, args)]
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for passed in legal:
            passed()
        return result


def _indices(func: Any, args: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """The indices that an operator is given, each with the number of rows that it may reach."""
    name = func.overloadpacket.__name__.rstrip("_")
    if name in TABLES:
        found = [(args[0].shape[0], args[1])]
    elif name in BY_DIM and args[0].dim():
        found = [(args[0].shape[args[1]], args[2])]
    elif name in ("index", "index_put"):
        found = list(zip(args[0].shape, args[1], strict=False))
    elif name == "take":
        found = [(args[0].numel(), args[1])]
    else:
        found = []
    for rows, index in found:
        if index is not None and index.dtype in (torch.int64, torch.int32) and index.numel():
            yield rows, index
