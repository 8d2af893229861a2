"""PyTorch's pytrees: which classes are registered, and how they are taken apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree

__all__ = ["open_registered"]


def open_registered(value: Any) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
    """Keys, children and rebuild function of a class registered with PyTorch's pytrees, else None.

    There is no public way to ask whether a class is registered.
    """
    node = _pytree.SUPPORTED_NODES.get(type(value))
    if node is None:
        return None
    children, context = node.flatten_fn(value)
    keys: list[Any] = list(range(len(children)))
    if node.flatten_with_keys_fn is not None:
        with contextlib.suppress(Exception):  # a stranger's function: without it, places serve as keys
            pairs, _ = node.flatten_with_keys_fn(value)
            keys = [_key_text(key) for key, _ in pairs]
    return keys, list(children), lambda parts: node.unflatten_fn(parts, context)


def _key_text(key: Any) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)
