"""Making legal input values at any size: the example's own values are the best guide.

Each input gets a `Rule`, read off its example:

constant      all values are the same                      → the same value
mask          only zeros and ones                          → the example stretched; all ones: some ends masked
progression   0, 1, 2, … along the last axis               → continued
cells         integers                                     → resampled from the example, whole cells at a time
stretched     where a model refuses what its rule makes    → the example stretched to the new size
spread        floats                                       → drawn from the example's own distribution
index         integers that index another input's dim      → drawn below that dim (probe finds these)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anyshape.dims import Expr, parse_expr
from anyshape.inputs.case import Case, Shapes

__all__ = ["Rule", "make_tensors", "rule_from_json", "rules_of"]

KEPT = 64  # values of an example that a rule remembers
LOWEST, HIGHEST = -(2**63), 2**63 - 1  # what numpy draws


@dataclass(frozen=True, slots=True)
class Rule:
    """How to make values for one input at any size. ``seen`` are values of the example: they stay in memory."""

    kind: str
    low: float = 0
    high: float = 0
    seen: tuple[float, ...] = ()
    limit: Expr | None = None  # index: values go from low to this size, inclusive

    def to_json(self) -> dict[str, Any]:
        """What a file keeps of the rule: of the example no values, but between which two they lie."""
        made: dict[str, Any] = {"kind": self.kind, "low": _to_json(self.low), "high": _to_json(self.high)}
        if self.limit is not None:
            made["limit"] = str(self.limit)
        return made


def rule_from_json(data: dict[str, Any]) -> Rule:
    """The rule that `Rule.to_json` wrote; without one, zeros."""
    if not data:
        return Rule("constant")
    limit = parse_expr(data["limit"]) if "limit" in data else None
    return Rule(data["kind"], float(data["low"]), float(data["high"]), limit=limit)


def _to_json(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)  # JSON has neither inf nor nan


def rules_of(case: Case) -> tuple[Rule, ...]:
    """A rule for each input, read off its examples."""
    pools = [[item.example] for item in case.inputs]
    for example in case.more_examples:
        for pool, tensor in zip(pools, example, strict=True):
            pool.append(tensor)
    return tuple(_rule(item.path, pool) for item, pool in zip(case.inputs, pools, strict=True))


def _rule(path: str, examples: Sequence[torch.Tensor]) -> Rule:
    if examples[0].is_meta or sum(e.numel() for e in examples) == 0 or examples[0].is_complex():
        floats = examples[0].is_floating_point()
        return Rule("spread", -1, 1, (-1.0, -0.3, 0.0, 0.3, 1.0)) if floats else Rule("constant")
    flat = torch.cat([e.detach().reshape(-1).cpu().to(torch.float64) for e in examples]).numpy()
    finite = flat[np.isfinite(flat)]
    if finite.size == 0:
        return Rule("constant", float(flat[0]), float(flat[0]))
    low, high = float(finite.min()), float(finite.max())
    if examples[0].dtype == torch.bool or (np.isin(flat, (0.0, 1.0)).all() and low != high):
        return Rule("mask", low, high)
    if low == high == 1 and (not examples[0].is_floating_point() or "mask" in path) and examples[0].dim():
        return Rule("mask", 0, 1)  # nothing masked in the example, but a mask nonetheless
    if low == high:
        return Rule("constant", low, high)
    if examples[0].is_floating_point():
        return Rule("spread", low, high, tuple(np.quantile(finite, np.linspace(0, 1, KEPT)).tolist()))
    if _is_progression(examples[0]):
        return Rule("progression", low, high)
    distinct = np.unique(finite)
    kept = (
        distinct if distinct.size <= KEPT else distinct[np.linspace(0, distinct.size - 1, KEPT).astype(int)]
    )
    return Rule("cells", low, high, tuple(kept.tolist()))


FEWEST_IN_ORDER = 3


def _is_progression(example: torch.Tensor) -> bool:
    """0, 1, 2, … along the last axis: position ids."""
    size = example.shape[-1] if example.dim() else 0
    if size < 3:
        return False
    whole = example.to(torch.int64)  # PyTorch promotes no unsigned types
    steps = torch.arange(size, device=example.device) + whole.select(-1, 0).unsqueeze(-1)
    return bool((whole == steps).all())


def make_tensors(
    case: Case,
    rules: Sequence[Rule],
    shapes: Shapes,
    sizes: dict[str, int],
    seed: int = 0,
    *,
    anew: bool = False,
    drawn: int | None = None,
) -> list[torch.Tensor]:
    """Tensors of ``shapes`` with legal values; the example itself where the shapes are its own, unless ``anew``.

    Of floats so many are ``drawn``, and repeated beyond: enough for who asks whether a model runs, not what it gives.
    """
    if shapes == case.shapes and not anew:
        return [item.example.clone() for item in case.inputs]
    generator = np.random.default_rng(seed)
    return [
        _in_order(
            make_tensor(rule, shape, item.example.dtype, sizes, generator, item.example, drawn), item.example
        )
        for item, rule, shape in zip(case.inputs, rules, shapes, strict=True)
    ]


def _in_order(made: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Sorted, if it is a row of integers and the example's are: lengths from the longest on, or offsets from 0."""
    if made.dim() != 1 or example.numel() < FEWEST_IN_ORDER or example.is_meta:
        return made
    if made.dtype == torch.bool or made.is_floating_point() or made.is_complex():
        return made
    steps = example[1:] - example[:-1]
    falls, rises = bool((steps <= 0).all()), bool((steps >= 0).all())
    if falls == rises:
        return made
    ordered = made.sort(descending=falls).values
    if rises and int(example[0]) == 0:
        ordered[:1] = 0
    return ordered


def make_tensor(
    rule: Rule,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    sizes: dict[str, int],
    generator: np.random.Generator,
    example: torch.Tensor | None = None,
    drawn: int | None = None,
) -> torch.Tensor:
    """One tensor by its rule; ``example`` lends masks their pattern and cells their company."""
    device = example.device if example is not None else torch.device("cpu")
    if device.type == "meta":
        return torch.empty(shape, dtype=dtype, device=device)
    if rule.kind == "index" and rule.limit is not None:
        high = max(0, rule.limit.evaluate(sizes))
        values: Any = generator.integers(min(int(rule.low), high), high + 1, size=shape)
        # The largest index is always there, first and last: whether it is legal must not hang on luck.
        values.reshape(-1)[[0, -1] if values.size else []] = high
    elif rule.kind == "spread":
        count = math.prod(shape)
        few = count if drawn is None else min(count, drawn)
        values = np.resize(_spread(rule.seen or (rule.low, rule.high), few, dtype, generator), shape)
    elif rule.kind == "progression":
        values = np.broadcast_to(int(rule.low) + np.arange(shape[-1]), shape).copy()
    elif rule.kind == "constant":
        values = np.full(shape, rule.low)
    elif rule.kind == "mask" and (example is None or bool((example == 1).all())):
        values = _tails_masked(shape)
    elif example is not None and example.numel() > 0 and len(shape) == example.dim():
        return _resized(example, shape, generator, stretch=rule.kind in ("mask", "stretched"))
    elif rule.seen:
        values = generator.choice(np.asarray(rule.seen), size=shape)
    else:
        values = _between(rule, shape, dtype, generator)
    return torch.as_tensor(np.asarray(values)).to(dtype).to(device)


def _spread(points: Sequence[float], count: int, dtype: torch.dtype, generator: np.random.Generator) -> Any:
    """Values from the distribution that has these points as its quantiles, which lie evenly.

    So each value's place among them is a product, where np.interp would search for it: inputs may be millions.
    """
    kind = np.float64 if dtype == torch.float64 else np.float32
    table = np.asarray([*points, points[-1]], kind)  # the last twice: a place may be rounded up to it
    place = generator.random(count, kind) * kind(len(points) - 1)
    left = place.astype(np.intp)
    place -= left.astype(kind)
    # A mean of both, not one plus a part of the way: the way from a mask's lowest to its highest may be too far.
    return table[left] * (1 - place) + table[left + 1] * place


def _between(rule: Rule, shape: tuple[int, ...], dtype: torch.dtype, generator: np.random.Generator) -> Any:
    """Values from low to high: all that is left of an example in a file."""
    if dtype.is_floating_point or dtype.is_complex:
        return rule.low + generator.random(shape) * (rule.high - rule.low)
    limits = torch.iinfo(torch.uint8 if dtype == torch.bool else dtype)
    low, high = (int(min(max(end, limits.min), limits.max)) for end in (rule.low, rule.high))
    low, high = max(low, LOWEST), min(high, HIGHEST)
    return generator.integers(low, high, size=shape, endpoint=True)


def _tails_masked(shape: tuple[int, ...]) -> Any:
    """A mask with the end of every other row masked: rows of different lengths, none of them empty."""
    values = np.ones(shape)
    if len(shape) and shape[-1] > 1:
        values.reshape(-1, shape[-1])[::2, (shape[-1] + 1) // 2 :] = 0
    return values


def _resized(
    example: torch.Tensor, shape: tuple[int, ...], generator: np.random.Generator, *, stretch: bool
) -> torch.Tensor:
    """The example at another shape: stretched, or with its cells drawn anew.

    A cell is what lies across the axes that keep their size (the four corners of a box), so that values
    which belong together stay together.
    """
    made = example
    moving = [axis for axis, size in enumerate(shape) if size != example.shape[axis]]
    if stretch or len(moving) < 2:
        for axis in moving:
            old, new = made.shape[axis], shape[axis]
            picks = np.arange(new) * old // max(new, 1) if stretch else generator.integers(0, old, size=new)
            made = made.index_select(axis, torch.as_tensor(picks, device=made.device))
        return made.clone()
    still = [axis for axis in range(len(shape)) if axis not in moving]
    cells = example.permute(*moving, *still).reshape(-1, *(shape[axis] for axis in still))
    count = int(np.prod([shape[axis] for axis in moving]))
    picks = generator.integers(0, cells.shape[0], size=count)
    drawn = cells[torch.as_tensor(picks, device=made.device)]
    drawn = drawn.reshape(*(shape[axis] for axis in moving), *(shape[axis] for axis in still))
    order = [*moving, *still]
    return drawn.permute(*(order.index(axis) for axis in range(len(shape)))).contiguous()
