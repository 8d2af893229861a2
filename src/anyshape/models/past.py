"""The cache of a model of transformers as an input: the one that it makes itself when it first runs.

So a cache with windows, with states in the place of keys, or with one half for the encoder comes out as the model
makes it, and nothing here need know of its kind.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from anyshape.errors import UsageError
from anyshape.models.facts import DECODED, PAST, Facts
from anyshape.models.wanted import Wanted
from anyshape.source.lines import first_line, line_of_exception

__all__ = ["with_cache"]

NAMES = ("past_key_values", "cache_params")


def with_cache(model: Any, kwargs: dict[str, Any], facts: Facts, wanted: Wanted) -> dict[str, Any]:
    """The example with its cache as it is wanted: not at all, as a result, or as an input and a result."""
    parameters = inspect.signature(model.forward).parameters
    name = next((each for each in NAMES if each in parameters), None)
    mode, keeps = wanted.cache, name is not None and _cache(_run(model, kwargs), name) is not None
    writes = model.can_generate() and not model.config.is_encoder_decoder
    if mode is None:
        mode = "inout" if writes and name is not None and not set(NAMES) & set(wanted.given) else "none"
    if mode == "none" or set(NAMES) & set(kwargs):
        return {**kwargs, "use_cache": False} if keeps and not set(NAMES) & set(kwargs) else kwargs
    filled = {**kwargs, "use_cache": True}
    if name is None or not _takes(parameters, "use_cache") or _cache(_run(model, filled), name) is None:
        if wanted.cache is None:
            return kwargs
        raise UsageError(f"{type(model).__name__} keeps no cache", hint="Leave out --cache.")
    if mode == "out":
        return filled
    return _continued(model, kwargs if keeps else filled, name, facts, wanted)


def _continued(model: Any, kwargs: dict[str, Any], name: str, facts: Facts, wanted: Wanted) -> dict[str, Any]:
    """The call that comes after a first one: with the cache that it left."""
    first: Exception | None = None
    for start, then in _calls(model, kwargs, facts, wanted):
        try:
            cache = _cache(_run(model, {**start, "use_cache": True}), name)
            made = {**then, name: cache}
            if _cache(_run(model, made), name) is not None:
                return made
        except Exception as error:  # a stranger's model, of a call that it may not take
            first = first or error
    raise UsageError(
        f"{type(model).__name__} takes no cache that it made itself"
        + (f": {first_line(first)}" if first else ""),
        where=line_of_exception(first) if first else None,
        hint="Choose --cache out or --cache none.",
    )


def _calls(
    model: Any, kwargs: dict[str, Any], facts: Facts, wanted: Wanted
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """First calls, each with the one that follows on it, but for the cache."""
    name = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    start = {**kwargs, name: facts.ids(PAST)}
    then = kwargs
    if model.config.is_encoder_decoder:  # what was read is in the cache: it is not read again
        from transformers.modeling_outputs import BaseModelOutput

        told = _run(model, start).encoder_last_hidden_state
        rest = {key: value for key, value in kwargs.items() if key != model.main_input_name}
        then = {**rest, "encoder_outputs": BaseModelOutput(last_hidden_state=told)}
    masked = name == "input_ids" and "attention_mask" in kwargs and "attention_mask" not in wanted.given
    if masked:
        start["attention_mask"] = facts.mask(PAST)
    for ids in [wanted.given[name]] if name in wanted.given else [facts.ids(DECODED), facts.ids(1)]:
        count = ids.shape[-1]
        for tokens in (PAST + count, count) if masked else (None,):
            mask = {} if tokens is None else {"attention_mask": facts.mask(tokens)}
            yield start, {**then, name: ids, **mask}


def _run(model: Any, kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(**copy.deepcopy(kwargs))


def _cache(result: Any, name: str) -> Any:
    return getattr(result, name, None)


def _takes(parameters: Any, name: str) -> bool:
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
