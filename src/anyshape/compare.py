"""Comparing numbers: a runtime's with PyTorch's, by PyTorch's own error; PyTorch's with its own, but for rounding.

Each number has a tolerance of its own: so many times PyTorch's own error near it, and so many roundings of what numbers
near it typically are. Large numbers of another kind (pixels beside scores, the -1e9 of a mask) lend it nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Difference", "compare", "same", "usual"]

Array = npt.NDArray[Any]

OWN_ERROR = 20.0  # a number may be off by this many times PyTorch's own error against float64
ROUNDINGS = {2: 24.0, 4: 1500.0, 8: 1500.0}  # and by this many roundings of typical numbers, by item size
WITHOUT_OWN_ERROR = 2.5  # times as many roundings where PyTorch's own error is not known

FEW = 16  # fewer numbers don't say what is typical
FAR = 1e6  # among few, a number this many times as large as most is of another kind
TYPICAL = 0.75  # typical is a magnitude that this share of the numbers do not exceed
MOST_ERRORS = 0.95  # PyTorch's own error near a number is one that this share of them keeps
LOST = 0.01  # numbers that are off by this share of themselves have lost their scale
LEAST_ROUNDINGS = 2.0  # of what the output usually is: a runtime's sigmoid is no better than that near 0
SMALLEST = float(torch.finfo(torch.float32).tiny)  # below it a runtime may round to zero
REPEATED = 0.05  # a value that is this share of all was filled in: it says nothing of the others
UNKNOWN = 1.0  # the most that is taken for typical where all numbers are filled in
SAMPLE = 1024  # numbers of a slice that are looked at


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an output is off, and how far it may be. ``why`` is empty when they agree."""

    error: float
    allowed: float
    why: str = ""


def usual(example: torch.Tensor) -> float:
    """The typical magnitude of an output at the example; 0 where it has none."""
    if not example.is_floating_point() or example.numel() == 0:
        return 0.0
    magnitudes = np.abs(_drawn(_as_double(example).reshape(-1), 64 * SAMPLE))
    telling = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    return float(np.median(telling)) if telling.size else 0.0


def compare(
    name: str, expected: torch.Tensor, exact: torch.Tensor | None, got: Array, scale: float = 0.0
) -> Difference:
    """The difference of one output from PyTorch's ``expected``; ``exact`` is the same in float64, if it ran.

    Two roundings of the output's usual ``scale`` are always allowed.

    The error and what is allowed are those of the number that comes closest to its tolerance, or is furthest beyond.
    """
    shape = tuple(expected.shape)
    if expected.is_complex() and got.shape == (*shape, 2):
        expected = torch.view_as_real(expected)
        exact = torch.view_as_real(exact) if exact is not None and exact.is_complex() else None
        shape = tuple(expected.shape)
    if got.shape != shape:
        return Difference(np.inf, 0.0, f"{name} has shape {list(got.shape)}, expected {list(shape)}")
    if not expected.is_floating_point():
        same = bool(np.array_equal(got, expected.cpu().numpy()))
        return Difference(0.0, 0.0) if same else Difference(np.inf, 0.0, f"{name} has different integers")
    wanted = _as_double(expected)
    given = np.asarray(got, dtype=np.float64)
    if not _same_specials(wanted, given):
        return Difference(np.inf, 0.0, f"{name} has NaN or infinity in different places")
    finite = np.isfinite(wanted)
    if not finite.any():
        return Difference(0.0, 0.0)
    errors = np.abs(given[finite] - wanted[finite])
    least = LEAST_ROUNDINGS * torch.finfo(expected.dtype).eps * scale
    tolerances = np.maximum(_tolerances(expected, wanted, exact, finite)[finite], least)
    worst = int(np.argmax(_ratios(errors, tolerances)))
    error, allowed = float(errors[worst]), float(tolerances[worst])
    why = "" if error <= allowed else f"{name} is off by {error:.2g} ({allowed:.1g} allowed)"
    return Difference(error, allowed, why)


def _as_double(tensor: torch.Tensor) -> Array:
    made: Array = tensor.detach().to(torch.float64).cpu().numpy()
    return made


def _ratios(errors: Array, tolerances: Array) -> Array:
    """How much of its tolerance each error takes; without a tolerance, any error takes infinitely much."""
    nothing = np.where(errors > 0, np.inf, 0.0)
    return np.divide(errors, tolerances, out=nothing, where=tolerances > 0)


def _same_specials(wanted: Array, given: Array) -> bool:
    if not np.array_equal(np.isnan(wanted), np.isnan(given)):
        return False
    infinite = np.isinf(wanted)
    return np.array_equal(infinite, np.isinf(given)) and np.array_equal(wanted[infinite], given[infinite])


def _tolerances(expected: torch.Tensor, wanted: Array, exact: torch.Tensor | None, finite: Array) -> Array:
    """How far each number may be off."""
    own = _own_errors(wanted, exact, finite)
    rounding = torch.finfo(expected.dtype).eps
    magnitudes = np.abs(np.where(finite, wanted, 0.0))
    telling = finite & (magnitudes > 0) & ~_filled_in(wanted, finite)
    near = (
        _neighbours(magnitudes, own, telling, rounding)
        if telling.any()
        else _Near(*_of_fills(magnitudes, own))
    )
    roundings = ROUNDINGS[expected.element_size()] * (WITHOUT_OWN_ERROR if exact is None else 1.0)
    made: Array = OWN_ERROR * (own + near.error) + roundings * rounding * np.maximum(magnitudes, near.typical)
    return np.maximum(made, SMALLEST)


def _own_errors(wanted: Array, exact: torch.Tensor | None, finite: Array) -> Array:
    """PyTorch's own error at each number; 0 where it is not known."""
    if exact is None or tuple(exact.shape) != wanted.shape:
        return np.zeros_like(wanted)
    truth = _as_double(exact)
    both = finite & np.isfinite(truth)
    own: Array = np.abs(np.where(both, wanted, 0.0) - np.where(both, truth, 0.0))
    return own


@dataclass(frozen=True, slots=True)
class _Near:
    """What numbers near another one typically are, and PyTorch's own error with them."""

    typical: Array | float
    error: Array | float


def _neighbours(magnitudes: Array, own: Array, telling: Array, rounding: float) -> _Near:
    """What is near each number, by the ``telling`` ones.

    Near are all numbers with the same index along some axis: of its row, of its channel. The slice in which numbers are
    smallest counts, as numbers of another kind share only some of them.
    """
    overall, error = _of_all(magnitudes[telling], own[telling])
    typical, near = np.full(own.shape, overall), np.full(own.shape, error)
    for axis, size in enumerate(own.shape):
        if size < 2 or own.size // size < FEW:
            continue
        values, offs, tell = (_slices(array, axis) for array in (magnitudes, own, telling))
        along = tuple(-1 if number == axis else 1 for number in range(own.ndim))
        scales, errors = _of_slices(values, offs, tell, rounding * overall)
        typical, near = np.minimum(typical, scales.reshape(along)), np.minimum(near, errors.reshape(along))
    return _Near(typical, near)


def _filled_in(wanted: Array, finite: Array) -> Array:
    """Where a value stands that is in very many places, such as what a mask fills in."""
    values = _drawn(wanted[finite], 64 * SAMPLE)
    distinct, counts = np.unique(values, return_counts=True)
    return np.isin(wanted, distinct[(counts >= 3) & (counts >= REPEATED * values.size)])


def _of_fills(magnitudes: Array, own: Array) -> tuple[float, float]:
    """The same where every number is zero or filled in."""
    smallest = magnitudes.min(initial=UNKNOWN, where=magnitudes > 0)
    return float(smallest) if magnitudes.any() else 0.0, float(own.max())


def _of_all(magnitudes: Array, own: Array) -> tuple[float, float]:
    """The typical magnitude of all numbers together, and PyTorch's own error."""
    magnitudes, own = _drawn(magnitudes, 64 * SAMPLE), _drawn(own, 64 * SAMPLE)
    if magnitudes.size >= FEW:
        typical, error = float(np.quantile(magnitudes, TYPICAL)), float(np.quantile(own, MOST_ERRORS))
        return typical, error if error <= LOST * typical else float(own.max())
    alike = magnitudes <= FAR * np.sort(magnitudes)[(magnitudes.size - 1) // 2]
    return float(magnitudes[alike].max()), float(own[alike].max())


def _of_slices(magnitudes: Array, own: Array, telling: Array, least: float) -> tuple[Array, Array]:
    """The same for each slice, a row of these arrays; infinite where a slice can't tell.

    A slice where numbers are small by cancellation can't: its errors are large beside them, or ``least`` is.
    """
    counts = telling.sum(1)
    typical = _at_share(np.where(telling, magnitudes, np.inf), counts, TYPICAL)
    errors = _at_share(np.where(telling, own, np.inf), counts, MOST_ERRORS)
    tells = (counts >= FEW) & (np.maximum(errors, least) <= LOST * typical)
    return np.where(tells, typical, np.inf), np.where(tells, errors, np.inf)


def _at_share(rows: Array, counts: Array, share: float) -> Array:
    """Of each row, the number that this share of its first ``counts`` do not exceed, by size."""
    places = np.minimum((share * counts).astype(int), np.maximum(counts - 1, 0))
    found: Array = np.take_along_axis(np.sort(rows, 1), places[:, None], 1)[:, 0]
    return found


def _slices(array: Array, axis: int) -> Array:
    """A row for each index along an axis, with some of the numbers there if they are many."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    return _drawn(rows, SAMPLE)


def _drawn(array: Array, most: int) -> Array:
    """Some of the numbers along the last axis, always the same ones, if there are more than so many."""
    size = array.shape[-1]
    return array if size <= most else array[..., np.random.default_rng(0).integers(0, size, most)]


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
