"""What a tensor tells of writes to it, and work on tensors that no tracer or counter sees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack, _pop_mode_temporarily
from torch.utils import _pytree
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["leaves_of", "mark", "unseen"]

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def leaves_of(tree: Any) -> list[Any]:
    """What nested arguments hold, one by one."""
    return _pytree.tree_leaves(tree)


def mark(tensor: torch.Tensor) -> tuple[int, int]:
    """How often a tensor was written to, and where its numbers lie: another mark means other numbers, perhaps.

    A write through ``tensor.data`` or numpy leaves the mark as it is. A tensor that does not count has the number -1.
    """
    version = -1 if tensor.is_inference() else tensor._version
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
        return version, 0  # its numbers lie nowhere, or in several places
    return version, tensor.data_ptr()


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Within this, the modes that are at work here (counters, tracers, tensors without data) see nothing."""
    with contextlib.ExitStack() as stack:
        for _ in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(_disable_current_modes())
        yield
