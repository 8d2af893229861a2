"""Files with a cache: an empty one is begun, one of the caller's class comes back, and prompts are continued."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anyshape.contract.contract import Contract, Tensor
from anyshape.errors import InputError
from anyshape.inputs.caches import built
from anyshape.inputs.structure import Opened, Structure
from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy, to_torch

__all__ = ["as_given", "begun", "continued", "is_empty", "may_hold_more"]

Array = npt.NDArray[Any]
BESIDE = ("attention_mask", "position_ids")  # what generation gives beside the tokens and the cache
PAST, PRESENT = "past_key_values.", "present."


def may_hold_more(structure: Structure) -> bool:
    """Whether a call may give other than the tensors: a plain number, or a cache without any."""
    return structure.kind in ("cache", "number") or any(map(may_hold_more, structure.children))


def is_empty(given: Structure) -> bool:
    """Whether an argument is a cache that holds nothing yet, or stands for one."""
    return not given.tensors and (given.kind != "constant" or given.value is None)


def begun(given: Sequence[Any], inputs: Sequence[Tensor]) -> list[Any]:
    """The leaves of a call, with tensors without a past where a cache is empty."""
    if all(leaf is not None for leaf in given):
        return list(given)
    sizes: dict[str, int] = {}
    for item, leaf in zip(inputs, given, strict=True):
        for size, actual in zip(item.shape, () if leaf is None else leaf.shape, strict=False):
            if size is not None and size.constant is None and str(size) in size.names:
                sizes[str(size)] = int(actual)
    like = next((leaf for leaf in given if leaf is not None), None)
    return [
        _without_past(item, sizes, like) if leaf is None else leaf
        for item, leaf in zip(inputs, given, strict=True)
    ]


def _without_past(item: Tensor, sizes: dict[str, int], like: Any) -> Any:
    if ".encoder." in item.name:
        raise InputError(
            "the cache is empty, and what the encoder gave is a part of it: the file takes that as it is",
            hint="Give one that holds what the encoder gave, or export the first step without a cache.",
        )
    shape = [
        0 if size is None else size.evaluate(dict.fromkeys(size.names, 0) | sizes) for size in item.shape
    ]
    if 0 not in shape:
        raise InputError(
            f"the cache is empty, and {item.name} is {item.shape_text()} in this file",
            hint="Give a cache as the file takes it, or export the model with an empty one.",
        )
    if like is None or isinstance(like, np.ndarray):
        return np.zeros(shape, item.dtype)
    import torch  # whoever gives tensors has it

    return like.new_zeros(shape, dtype=getattr(torch, item.dtype))


def as_given(structure: Structure, caches: Sequence[tuple[Any, Opened]]) -> Structure:
    """The structure of the results, its caches of the class of those that the caller handed over."""
    if structure.kind != "cache":
        return replace(structure, children=tuple(as_given(child, caches) for child in structure.children))
    for value, box in caches:
        if type(value).__qualname__ == structure.class_name:
            alike = tuple(box.keys) == structure.keys
            fill = box.rebuild_with if alike else functools.partial(built, type(value), structure.keys)
            return replace(structure, rebuild_with=fill)
    return structure


# --- Greedy generation ----------------------------------------------------------------------------------


def continued(
    runtime: OnnxRuntime,
    contract: Contract,
    input_ids: Any,
    max_new_tokens: int,
    *,
    attention_mask: Any = None,
    eos_token_id: int | Sequence[int] | None = None,
) -> Any:
    """The prompts with the most likely tokens after them; the cache stays in the runtime between steps."""
    names = _checked(contract)
    ids = _integers(input_ids, "input_ids")
    mask = np.ones_like(ids) if attention_mask is None else _integers(attention_mask, "attention_mask")
    if mask.shape != ids.shape:
        raise InputError(f"attention_mask has shape {list(mask.shape)}, not {list(ids.shape)} as input_ids")
    if not mask.all() and not set(BESIDE) <= set(names):
        raise InputError(
            f"the prompts are padded, and the file does not take {' and '.join(sorted(set(BESIDE) - set(names)))}",
            hint="Give prompts of one length, or export the model with these inputs.",
        )
    ends = set(np.atleast_1d(eos_token_id).tolist()) if eos_token_id is not None else set()
    caches = {item.name: item for item in contract.inputs if item.name.startswith(PAST)}
    beside = {"input_ids": ids, "attention_mask": mask, "position_ids": mask}
    first = begun([beside.get(item.name) for item in contract.inputs], contract.inputs)
    contract.bind([leaf.shape for leaf in first])
    empty = dict(zip((item.name for item in contract.inputs), first, strict=True))
    past: dict[str, Any] = {name: empty[name] for name in caches}
    tokens, done = ids, np.zeros(len(ids), bool)
    for _ in range(max_new_tokens):
        feed = {
            "input_ids": tokens,
            "attention_mask": mask,
            "position_ids": _positions(mask, tokens.shape[1]),
        }
        outputs = runtime.step({**{name: feed[name] for name in names}, **past})
        last = outputs["logits"].numpy()[:, -1].argmax(-1).astype(ids.dtype)
        tokens = np.where(done, next(iter(ends), 0), last)[:, None]
        ids, mask = np.concatenate([ids, tokens], 1), np.concatenate([mask, np.ones_like(tokens)], 1)
        done = done | np.isin(tokens[:, 0], list(ends))
        if ends and done.all():
            break
        past = {name: outputs[PRESENT + name.removeprefix(PAST)] for name in caches}
    return ids if isinstance(input_ids, np.ndarray) else to_torch(ids)


def _checked(contract: Contract) -> list[str]:
    """The inputs beside the cache; `InputError` for a file that can't continue its own results."""
    names = [item.name for item in contract.inputs]
    caches = [name.removeprefix(PAST) for name in names if name.startswith(PAST)]
    outputs = {item.name for item in contract.outputs}
    if not caches or not {"logits", *(PRESENT + name for name in caches)} <= outputs:
        raise InputError(
            "this file does not take and give a cache: it can't continue its own results",
            hint="Export the model with past_key_values, a cache with a short past, among its inputs.",
        )
    beside = [name for name in names if not name.startswith(PAST)]
    unknown = [name for name in beside if name not in ("input_ids", *BESIDE)]
    if unknown or "input_ids" not in beside:
        raise InputError(f"generation knows no {unknown[0] if unknown else 'file without input_ids'}")
    return beside


def _positions(mask: Array, count: int) -> Array:
    """The place of each new token among those that are not padding."""
    places: Array = np.maximum(mask.cumsum(1) - 1, 0)[:, -count:].astype(mask.dtype)
    return places


def _integers(given: Any, name: str) -> Array:
    made = given if isinstance(given, np.ndarray) else to_numpy(given)
    if made.dtype != np.int64 or made.ndim != 2:
        raise InputError(f"{name} is {made.dtype} of {made.ndim} axes, not int64 of 2: [batch, seq]")
    return made
