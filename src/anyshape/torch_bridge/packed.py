"""Packed modules: torch.ao's quantised layers, whose weights lie in objects of PyTorch's C++ code."""

from __future__ import annotations

import torch

__all__ = ["is_packed"]


def is_packed(part: torch.nn.Module) -> bool:
    """Whether a module keeps its weights in such an object, or makes tensors with quantised storage.

    >>> is_packed(torch.nn.Linear(2, 2))
    False
    """
    if isinstance(part, torch.jit.ScriptModule):
        return False  # all of it is such an object
    held = [*vars(part).values(), *getattr(part, "_all_weight_values", ())]
    objects = (getattr(item, "param", item) for item in held)
    storage = type(part).__module__.startswith("torch.ao.nn.quantized.")
    return storage or any(isinstance(item, torch.ScriptObject) for item in objects)
