"""Kept: an operator that stays a node of its own is verified with PyTorch's implementation of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch

from anyshape.lower.custom import Kept
from anyshape.runtimes.onnx_runtime import to_numpy, to_torch
from anyshape.runtimes.pieces import Implementation
from anyshape.torch_bridge import schemas

__all__ = ["by_pytorch", "note_of"]

Array = npt.NDArray[Any]


def by_pytorch(kept: Kept) -> Implementation:
    """The operator's own implementation, as one of its node."""

    def run(*arrays: Array | None, **attributes: Any) -> Sequence[Array]:
        tensors = [None if array is None else to_torch(array) for array in arrays]
        given: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in schemas.parameters(kept.target):
            if parameter.is_list_of_tensors:  # the only one, as an attribute has no place among the inputs
                value: Any = tensors
                tensors = []
            elif parameter.is_tensor:
                value = tensors.pop(0) if tensors else None
            else:
                value = _plain(parameter, attributes.get(parameter.name, parameter.default))
            if parameter.by_name:
                named[parameter.name] = value
            else:
                given.append(value)
        with torch.no_grad():
            made = kept.target(*given, **named)
        return [to_numpy(item) for item in (made if isinstance(made, (list, tuple)) else [made])]

    return run


def _plain(parameter: schemas.Parameter, value: Any) -> Any:
    """An attribute as PyTorch takes it: ONNX has integers for truths, and tuples for lists."""
    if parameter.is_truth and value is not None:
        return bool(value)
    if isinstance(value, (list, tuple)):
        return [bool(item) if parameter.is_list_of_truths else item for item in value]
    return value


def note_of(kept: Kept) -> str:
    """What a contract says of a node that was not run by the runtime."""
    name = schemas.name_of(kept.target)
    return f"{kept.name} is a node of its own, verified with PyTorch's {name}: a runtime needs an implementation of it"
