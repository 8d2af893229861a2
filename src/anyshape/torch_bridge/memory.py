"""How PyTorch says that there is not enough memory: on the CPU, in the words of a plain RuntimeError."""

from __future__ import annotations

import torch

__all__ = ["is_out_of_memory"]

WORDS = ("can't allocate memory", "not enough memory", "alloc_cpu.cpp", "Storage size calculation overflowed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that this machine is too small, and nothing of the model."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)
