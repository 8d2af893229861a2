"""Example inputs for a model of transformers: which ones, from its signature; how they look, from its config.

Several are tried where a config leaves open what a model takes; the first that it runs on is the example. None of it
goes by the name of a model.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from anyshape.errors import UsageError
from anyshape.models.facts import BATCH, Facts
from anyshape.models.past import with_cache
from anyshape.models.tasks import fits
from anyshape.models.wanted import Wanted
from anyshape.source.lines import first_line, line_of_exception

__all__ = ["example_of"]

# What a model is asked about; each is there where the signature has it.
CONTENT = (
    "input_ids",
    "pixel_values",
    "pixel_values_videos",
    "input_features",
    "input_values",
    "past_values",
)
# What comes along with it where the signature has it, and may be left out where the model refuses it.
BESIDE = ("attention_mask", "token_type_ids", "bbox", "pixel_mask")
# Of a model that takes images among its tokens, these take the tokens alone.
TEXT_ALONE = ("text-generation", "text2text-generation", "text-classification")


def example_of(library: Any, model: Any, wanted: Wanted) -> dict[str, Any]:
    """The keyword arguments of one call that the model runs on, its cache as it is wanted."""
    parameters = inspect.signature(model.forward).parameters
    _check_images_in_text(library, model, parameters, wanted)
    choices = fits(library, type(model), "multiple-choice")
    first: Exception | None = None
    for kwargs, facts in _tries(model, parameters, choices, wanted):
        try:
            with torch.no_grad():
                model(**copy.deepcopy(kwargs))
        except Exception as error:  # a stranger's model, of inputs that may not be what it takes
            first = first or error
            continue
        made = with_cache(model, kwargs, facts, wanted)
        order = [*parameters, *made]  # as the signature has them: so the file's inputs are in its order too
        return dict(sorted(made.items(), key=lambda pair: order.index(pair[0])))
    raise _no_example(model, parameters, first, wanted)


def _tries(
    model: Any, parameters: Any, choices: bool, wanted: Wanted
) -> Iterator[tuple[dict[str, Any], Facts]]:
    """Inputs that the model may take, the likeliest first; at last those that it has for itself."""
    for batch in (BATCH, 1):
        facts = Facts(model.config, batch, choices, model.can_generate())
        for names in _sets(model, parameters, wanted):
            for kwargs in _made(facts, names, wanted):
                yield kwargs, facts
    base: Any = next(each for each in type(model).__mro__ if each.__name__ == "PreTrainedModel")
    if type(model).dummy_inputs is not base.dummy_inputs:
        yield {**model.dummy_inputs, **wanted.given}, Facts(model.config, BATCH)


def _sets(model: Any, parameters: Any, wanted: Wanted) -> Iterator[list[str]]:
    """Names of inputs that go together, the fullest first."""
    content = [name for name in CONTENT if name in parameters]
    if _are_in_text(model, parameters):
        content = ["input_ids"]
    if model.main_input_name in parameters and model.main_input_name not in content:
        content.append(model.main_input_name)
    needed = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    names = list(dict.fromkeys([*content, *needed, *wanted.given]))
    for more in _decoded(model, parameters):
        yield from _fewer(
            [*names, *more], [name for name in BESIDE if name in parameters and name not in names]
        )


def _decoded(model: Any, parameters: Any) -> list[list[str]]:
    """What is written so far: one that only reads often makes it from what it reads."""
    if "decoder_input_ids" not in parameters or not getattr(model.config, "is_encoder_decoder", False):
        return [[]]
    return [["decoder_input_ids"]] if model.can_generate() else [[], ["decoder_input_ids"]]


def _fewer(names: list[str], beside: list[str]) -> Iterator[list[str]]:
    yield [*names, *beside]
    for name in reversed(beside):
        yield [*names, *(other for other in beside if other != name)]
    if len(beside) > 1:
        yield names


def _made(facts: Facts, names: list[str], wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Inputs of these names, in each way that the config allows; none where one of them can't be made."""
    ways: dict[str, list[Any]] = {}
    for name in names:
        ways[name] = [wanted.given[name]] if name in wanted.given else facts.made(name, names)
    ways = {name: values for name, values in ways.items() if values or name not in BESIDE}
    for values in itertools.product(*ways.values()):
        yield dict(zip(ways, values, strict=True))


def _are_in_text(model: Any, parameters: Any) -> bool:
    """Whether images or sounds have their place among the tokens."""
    marks = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index")
    marked = any(getattr(model.config, mark, None) is not None for mark in marks)
    return marked and "input_ids" in parameters and any(name in parameters for name in CONTENT[1:])


def _check_images_in_text(library: Any, model: Any, parameters: Any, wanted: Wanted) -> None:
    """How many tokens an image takes is known to the model's processor only; a task of text alone takes none."""
    if _are_in_text(model, parameters) and wanted.task not in TEXT_ALONE:
        media = [name for name in CONTENT[1:] if name in parameters]
        alone = [task for task in TEXT_ALONE if fits(library, type(model), task)][:1]
        raise UsageError(
            f"no example can be made for {type(model).__name__}: {media[0]} has its place among the tokens, "
            "which its processor gives it",
            hint="Write a function that returns (model, (), inputs of the processor): FILE.py:NAME."
            + "".join(f" For text alone, choose --task {task}." for task in alone),
        )


def _no_example(model: Any, parameters: Any, error: Exception | None, wanted: Wanted) -> UsageError:
    names = [name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD]
    why = f": {first_line(error)}" if error is not None else ""
    facts, asked = Facts(model.config, BATCH), next(_sets(model, parameters, wanted))
    unknown = [name for name in asked if name not in (*BESIDE, *wanted.given) and not facts.made(name, asked)]
    if unknown and error is None:
        why = f": nothing is known of {', '.join(unknown)}"
    return UsageError(
        f"no example that {type(model).__name__} takes could be made from its config{why}",
        where=line_of_exception(error) if error is not None else None,
        hint=f"Give --input NAME=DTYPE[SIZES] (arguments: {', '.join(names)}), or write a function: FILE.py:NAME.",
    )
