"""Constants that Python made from sizes: `torch.tensor([h, w])`, a numpy arange. Their entries become expressions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape.capture.tape.fitter import Fitter
from anyshape.capture.tape.steps import Step, Value
from anyshape.dims import Expr, names
from anyshape.dims.fit import fit, fit_real
from anyshape.errors import CaptureFault, SourceLine

__all__ = ["fitted_constant", "index_tensor", "sizes_tensor"]

MOST_ENTRIES = 256
ENTRIES_TO_FIT = 96


def sizes_tensor(entries: Sequence[Any], shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Stands on a tape for a small tensor of numbers that are expressions of sizes."""
    raise NotImplementedError("a step on a tape, not a function")


def index_tensor(entry: Any, shape: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """Stands on a tape for a tensor whose entries are an expression of their own indices and of sizes."""
    raise NotImplementedError("a step on a tape, not a function")


def fitted_constant(
    tensors: Sequence[torch.Tensor], value: Value, fitter: Fitter, where: SourceLine | None
) -> Step | None:
    """The step that makes the constant at any size; None where it is the same on every tape."""
    first = tensors[0]
    if all(tensor is first or _equal(tensor, first) for tensor in tensors):
        return None
    if all(tensor.shape == first.shape for tensor in tensors) and first.numel() <= MOST_ENTRIES:
        columns = zip(*(tensor.reshape(-1).tolist() for tensor in tensors), strict=True)
        entries = [fitter.leaf(column, (), where) for column in columns]
        return Step(sizes_tensor, (entries, list(first.shape), first.dtype), {}, (value,), where)
    return _by_index(tensors, value, fitter, where)


def _equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.shape == two.shape and one.dtype == two.dtype and torch.equal(one, two)


def _by_index(
    tensors: Sequence[torch.Tensor], value: Value, fitter: Fitter, where: SourceLine | None
) -> Step:
    """Entries as an expression of indices and sizes, fitted on some of them; verify sees the rest."""
    rank = tensors[0].dim()
    shape = tuple(fitter.axis([tensor.shape[axis] for tensor in tensors], ()) for axis in range(rank))
    rows, entries = [], []
    for row, tensor in zip(fitter.rows, tensors, strict=True):
        for place in _places(tensor.shape):
            index = {names.place(axis): at for axis, at in enumerate(place)}
            rows.append({**{name: row[name] for name in fitter.names}, **index})
            entries.append(tensor[place].item())
    made = _entry(rows, entries, rank)
    if made is None:
        raise CaptureFault(
            "the model makes a tensor in Python whose size follows the inputs' and whose entries are no simple "
            f"expression of their indices: {list(tensors[0].shape)} of {value.dtype}",
            where=where,
            hint="Make it with PyTorch's own functions (torch.arange, torch.tril, ...), so that it can be followed.",
        )
    return Step(index_tensor, (made, list(shape), value.dtype), {}, (replace(value, shape=shape),), where)


def _places(shape: Sequence[int]) -> list[tuple[int, ...]]:
    every = list(itertools.product(*(range(size) for size in shape)))
    stride = max(1, len(every) // ENTRIES_TO_FIT)
    return sorted({*every[::stride], *every[:3], *every[-3:]})


def _entry(rows: Sequence[dict[str, int]], entries: Sequence[Any], rank: int) -> Any:
    if all(isinstance(item, bool) for item in entries):
        return _comparison(rows, entries, rank)
    if all(isinstance(item, int) for item in entries):
        return fit(rows, entries)
    return fit_real(rows, entries)


def _comparison(rows: Sequence[dict[str, int]], entries: Sequence[bool], rank: int) -> Any:
    """Masks: whether one index is below another, plus a number; as (left, right) for left <= right."""
    for one, two in itertools.permutations(range(rank), 2):
        gaps = [row[names.place(two)] - row[names.place(one)] for row in rows]
        inside = [gap for gap, entry in zip(gaps, entries, strict=True) if entry]
        if inside and all((gap >= min(inside)) == entry for gap, entry in zip(gaps, entries, strict=True)):
            return (Expr.of(names.place(one)) + min(inside), Expr.of(names.place(two)))
    return None
