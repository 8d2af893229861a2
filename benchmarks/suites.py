"""Which models are scored, and from which example: our own or those of a suite file, from a good or an awkward one.

A suite file has ``CASES[name] = dict(build=..., dims=..., held=[...])``: ``build()`` gives a module and a function from
sizes to ``(args, kwargs)``, ``dims`` are the example's sizes, ``held`` those that are held out.

An example is awkward where sizes hide what they mean: a batch of 1 fits everything, and of two dims of one size nobody
can tell which is which.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from models import MODELS, Model, Sizes
from torch import nn

AS_IT_IS = "own"
EXAMPLES = (AS_IT_IS, "one", "alike")
BATCHES = ("b", "batch")
OTHER_VALUES = (2, 3, 4, 6, 8, 16, 32)  # to set two dims to, where PyTorch refuses the sizes of both


def names_of(suite: str | None) -> list[str]:
    """The names of our own models, or of those of a suite file."""
    return list(MODELS if suite is None else _cases(suite))


def model_of(suite: str | None, name: str) -> Model:
    """One of them, by its name."""
    if suite is None:
        return MODELS[name]
    case = _cases(suite)[name]
    module, inputs = case["build"]()
    return Model(name, Path(suite).stem, lambda: module, inputs, case["dims"], tuple(case["held"]))


def _cases(suite: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(Path(suite).stem, suite)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{suite} is no Python file")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    cases: dict[str, Any] = loaded.CASES
    return cases


def inputs_at(item: Model, sizes: Sizes, seed: int = 1) -> Any:
    """The inputs of a model at some sizes, the same whenever they are asked for."""
    torch.manual_seed(seed)
    return item.inputs(**sizes)


def example_of(item: Model, module: nn.Module, how: str) -> tuple[Sizes, str]:
    """The sizes of the example to export from, and a remark where they are not what was asked for."""
    if how == AS_IT_IS:
        return item.example, ""
    choices = list((_with_a_one if how == "one" else _with_two_alike)(item.example))
    for sizes in choices:
        if _runs(item, module, sizes):
            return sizes, ""
    return (
        item.example,
        "own example: PyTorch refuses all others" if choices else "own example: it has one dim",
    )


def _with_a_one(example: Sizes) -> Iterator[Sizes]:
    """The batch at 1, or the first dim where none is called that; then each of the others."""
    batches = [name for name in example if name in BATCHES] or list(example)[:1]
    yield {**example, **dict.fromkeys(batches, 1)}
    for name in example:
        yield {**example, name: 1}


def _with_two_alike(example: Sizes) -> Iterator[Sizes]:
    """Two dims at one size: the pair whose sizes are closest first, at the smaller of them first."""
    pairs = list(itertools.combinations(example, 2))
    pairs.sort(
        key=lambda pair: max(example[name] for name in pair) / max(1, min(example[name] for name in pair))
    )
    own = [(pair, size) for pair in pairs for size in sorted(example[name] for name in pair)]
    for pair, size in (*own, *itertools.product(pairs, OTHER_VALUES)):
        yield {**example, **dict.fromkeys(pair, size)}


def _runs(item: Model, module: nn.Module, sizes: Sizes) -> bool:
    try:
        args, kwargs = inputs_at(item, sizes)
        with torch.no_grad():
            module(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    except Exception:
        return False
    return True
