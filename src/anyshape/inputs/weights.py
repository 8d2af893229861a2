"""Weights from a folder: a module on the meta device gets its numbers from files, mapped, not copied."""

from __future__ import annotations

import copy
import json
import math
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Any

import torch

from anyshape.errors import FileError, UsageError, printable

__all__ = ["with_weights"]

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
STATE_DICTS = (".bin", ".pt", ".pth")
LONGEST_HEADER = 100_000_000
SHOWN = 3  # names in a message


def with_weights(module: Any, folder: str | os.PathLike[str]) -> torch.nn.Module:
    """A module like this one, whose weights on the meta device are those of the same name in the folder's files.

    The module itself stays as it is. `UsageError` if one is missing, or is of another shape or type.
    """
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"weights are given for a {type(module).__name__}",
            hint="Pass a torch.nn.Module on the meta device.",
        )
    tensors = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    if not any(tensor.is_meta for _, tensor in tensors):
        raise UsageError(
            "weights are given, but the model has its own: none of them is on the meta device",
            hint="Build it under torch.device('meta'), or leave weights out.",
        )
    names: dict[int, list[str]] = {}
    for name, tensor in tensors:
        names.setdefault(id(tensor), []).append(name)
    found = _tensors_in(os.fspath(folder))
    kept, filled = set(module.state_dict()), {}
    missing: list[str] = []
    nowhere: list[str] = []
    for number, tensor in {id(tensor): tensor for _, tensor in tensors}.items():
        known = next((name for name in names[number] if name in found), None)
        if not tensor.is_meta:
            filled[number] = tensor  # not copied either
        elif known is not None:
            filled[number] = _alike(known, tensor, found[known])
        else:
            (missing if kept.intersection(names[number]) else nowhere).append(names[number][0])
    _check_all_there(missing, nowhere, os.fspath(folder))
    return copy.deepcopy(module, filled)


def _check_all_there(missing: list[str], nowhere: list[str], folder: str) -> None:
    if missing:
        raise UsageError(
            f"{_listed(missing)}: no such weights in {folder}",
            hint="The names must be those of the model's state_dict().",
        )
    if nowhere:
        raise UsageError(
            f"{_listed(nowhere)}: on the meta device, and no part of the model's state_dict()",
            hint="Give these buffers their values before the export, or register them with persistent=True.",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _alike(name: str, wanted: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    for what, mine, theirs in (
        ("shape", list(wanted.shape), list(given.shape)),
        ("type", wanted.dtype, given.dtype),
    ):
        if mine != theirs:
            raise UsageError(
                f"{name} has another {what} in the folder than in the model: {theirs}, not {mine}",
                hint="Build the model as it was when its weights were saved.",
            )
    return torch.nn.Parameter(given, requires_grad=False) if isinstance(wanted, torch.nn.Parameter) else given


def _tensors_in(folder: str) -> dict[str, torch.Tensor]:
    """Every tensor in the folder's files: .safetensors if there are any, else what torch.save wrote of state_dicts."""
    try:
        files = sorted(os.listdir(folder))
    except OSError as error:
        raise FileError(f"can't read the weights in {folder}: {error.strerror or error}") from error
    chosen = [name for name in files if name.endswith(".safetensors")]
    reading = _safetensors if chosen else _state_dict
    found: dict[str, torch.Tensor] = {}
    for name in chosen or [name for name in files if name.endswith(STATE_DICTS)]:
        path = os.path.join(folder, name)
        try:
            found.update(reading(path))
        except Exception as error:  # PyTorch's reader raises what it likes, and so does what is broken
            told = printable(" ".join(str(error).split()), 200)
            raise FileError(f"{path} can't be read as weights: {told}", hint="Save it again.") from error
    if not found:
        raise FileError(f"there are no weights in {folder}", hint="Put .safetensors or .pt files there.")
    return found


def _state_dict(path: str) -> Mapping[str, torch.Tensor]:
    made = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    return {name: tensor for name, tensor in made.items() if isinstance(tensor, torch.Tensor)}


def _safetensors(path: str) -> Mapping[str, torch.Tensor]:
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    (length,) = struct.unpack_from("<Q", mapped)
    if length > min(len(mapped) - 8, LONGEST_HEADER):
        raise ValueError("its header is longer than the file")
    rows = json.loads(mapped[8 : 8 + length])
    return {
        name: _tensor(mapped, 8 + length, name, row) for name, row in rows.items() if name != "__metadata__"
    }


def _tensor(mapped: mmap.mmap, start: int, name: str, row: Mapping[str, Any]) -> torch.Tensor:
    dtype, shape = TYPES[row["dtype"]], [int(size) for size in row["shape"]]
    first, last = row["data_offsets"]
    count = math.prod(shape)
    if first < 0 or last - first != count * dtype.itemsize or start + last > len(mapped):
        raise ValueError(f"{name} does not lie where its header says")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=start + first).reshape(shape)
