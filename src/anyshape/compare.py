"""Comparing numbers: a runtime's with PyTorch's, by PyTorch's own error; PyTorch's with its own, but for rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Difference", "compare", "same"]

Array = npt.NDArray[Any]

OWN_ERROR = 20.0  # an output may be off by this many times float32 PyTorch's own error against float64
ROUNDINGS = {
    2: 16.0,
    4: 200.0,
    8: 200.0,
}  # and by this many units of rounding of the largest value, by item size


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an output is off, and how far it may be. ``why`` is empty when they agree."""

    error: float
    allowed: float
    why: str = ""


def compare(name: str, expected: torch.Tensor, exact: torch.Tensor | None, got: Array) -> Difference:
    """The difference of one output from PyTorch's ``expected``; ``exact`` is the same in float64, if it ran."""
    shape = tuple(expected.shape)
    if expected.is_complex() and got.shape == (*shape, 2):
        expected, exact = torch.view_as_real(expected), None
        shape = tuple(expected.shape)
    if got.shape != shape:
        return Difference(np.inf, 0.0, f"{name} has shape {list(got.shape)}, expected {list(shape)}")
    if not expected.is_floating_point():
        same = bool(np.array_equal(got, expected.cpu().numpy()))
        return Difference(0.0, 0.0) if same else Difference(np.inf, 0.0, f"{name} has different integers")
    wanted = expected.detach().to(torch.float64).cpu().numpy()
    given = np.asarray(got, dtype=np.float64)
    if not _same_specials(wanted, given):
        return Difference(np.inf, 0.0, f"{name} has NaN or infinity in different places")
    finite = np.isfinite(wanted)
    if not finite.any():
        return Difference(0.0, 0.0)
    error = float(np.abs(given[finite] - wanted[finite]).max())
    allowed = _allowed(expected, wanted, exact, finite)
    why = "" if error <= allowed else f"{name} is off by {error:.2g} ({allowed:.1g} allowed)"
    return Difference(error, allowed, why)


def _same_specials(wanted: Array, given: Array) -> bool:
    if not np.array_equal(np.isnan(wanted), np.isnan(given)):
        return False
    infinite = np.isinf(wanted)
    return np.array_equal(infinite, np.isinf(given)) and np.array_equal(wanted[infinite], given[infinite])


def _allowed(expected: torch.Tensor, wanted: Array, exact: torch.Tensor | None, finite: Array) -> float:
    scale = float(np.abs(wanted[finite]).max())
    allowed = ROUNDINGS[expected.element_size()] * torch.finfo(expected.dtype).eps * scale
    if exact is not None and tuple(exact.shape) == tuple(expected.shape):
        truth = exact.detach().to(torch.float64).cpu().numpy()
        both = finite & np.isfinite(truth)
        own = np.abs(wanted[both] - truth[both])
        allowed += OWN_ERROR * float(own.max(initial=0.0))
    return allowed


def same(one: torch.Tensor, two: torch.Tensor, relative: float = 1e-5, absolute: float = 1e-6) -> bool:
    """Whether two results of PyTorch's are the same, but for rounding; NaN is like NaN.

    >>> same(torch.tensor([1.0, torch.nan]), torch.tensor([1.0 + 1e-7, torch.nan]))
    True
    """
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if not one.is_floating_point() and not one.is_complex():
        return torch.equal(one, two)
    wide = torch.complex128 if one.is_complex() else torch.float64
    return torch.allclose(one.to(wide), two.to(wide), relative, absolute, equal_nan=True)
