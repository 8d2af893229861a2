"""name: a text such as ``hf:DIR``, ``timm:NAME`` or ``FILE.py:NAME`` becomes a model with its example inputs."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyshape.errors import UsageError
from anyshape.inputs.target import Target, load_target, made_inputs, split_target
from anyshape.models import of_diffusers, of_timm, of_torchvision, of_transformers, saved
from anyshape.models.wanted import Parts, Wanted

__all__ = ["from_name", "is_of_library", "load_name", "stem"]

_LIBRARIES: dict[str, Callable[[str, Wanted], Parts]] = {
    "hf": of_transformers.load,
    "timm": of_timm.load,
    "torchvision": of_torchvision.load,
    "diffusers": of_diffusers.load,
}


def from_name(
    name: str,
    *,
    task: str | None = None,
    cache: str | None = None,
    random: bool = False,
    download: bool = False,
) -> Parts:
    """The model that a name stands for, with example inputs that it takes: ``(module, args, kwargs)``.

    A name is what ``anyshape export`` takes: ``hf:FOLDER``, ``timm:NAME``, ``torchvision:NAME``,
    ``diffusers:FOLDER/unet``, ``FILE.pt2``, ``FILE.py:NAME`` or ``package.module:NAME``. ``task`` chooses among the
    classes of an hf: name, ``cache`` is "none", "out" or "inout", ``random`` takes random weights, always the same, and
    nothing is fetched without ``download``.

    >>> import torch, anyshape
    >>> program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
    >>> torch.export.save(program, "linear.pt2")
    >>> model, args, kwargs = anyshape.from_name("linear.pt2")
    >>> args[0].shape
    torch.Size([3, 4])
    """
    target = load_name(name, wanted=Wanted(task, cache, random, download))
    return target.model, target.args, dict(target.kwargs)


def load_name(text: str, inputs: Sequence[str] = (), wanted: Wanted | None = None) -> Target:
    """The model and example that ``text`` names; ``inputs`` as on the command line."""
    wanted = wanted or Wanted()
    library, place = _split(text)
    if library is None:
        found = load_target(text, inputs)
        wanted.only(text)
        return found
    if not place:
        raise UsageError(f"{text} names no model", hint="A name or a folder comes after the colon.")
    given, shapes = made_inputs(inputs)
    wanted = Wanted(wanted.task, wanted.cache, wanted.random, wanted.download, given)
    if library == "pt2":
        wanted.only(text)
        model, args, kwargs = saved.load(place)
    else:
        model, args, kwargs = _LIBRARIES[library](place, wanted)
    args, kwargs = _with_given(model, args, kwargs, given)
    return Target(text, model, args, kwargs, shapes)


def is_of_library(text: str) -> bool:
    """Whether the source of what a text names belongs to a library, or is no Python at all.

    >>> is_of_library("timm:resnet18"), is_of_library("net.py:build")
    (True, False)
    """
    return _split(text)[0] is not None


def stem(text: str) -> str:
    """What a file of that model is called.

    >>> stem("models/net.py:build"), stem("hf:models/tiny-llama/"), stem("timm:resnet18.a1_in1k"), stem("shop.nets:Net")
    ('net', 'tiny-llama', 'resnet18.a1_in1k', 'nets')
    """
    library, place = _split(text)
    if library is None:
        place, _ = split_target(text)
        if not place.endswith(".py") and os.sep not in place:
            return place.rpartition(".")[2]
    last = re.split(r"[/\\]", place.rstrip("/\\"))[-1]
    return last if library in _LIBRARIES else os.path.splitext(last)[0]


def _split(text: str) -> tuple[str | None, str]:
    """The library that a text names, and the rest; ``pt2`` for a saved program, None for a file or a module."""
    prefix, colon, rest = text.partition(":")
    if colon and prefix in _LIBRARIES:
        return prefix, rest
    return ("pt2", text) if text.endswith(".pt2") else (None, text)


def _with_given(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs with those that somebody gave in their place."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (AttributeError, TypeError, ValueError):
        return args, {**kwargs, **given}
    names = list(parameters)
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for name in given:
            if name not in names:
                hint = f"Its arguments are: {', '.join(names) or 'none'}."
                raise UsageError(f"the model has no argument {name}", hint=hint)
    placed = {name: place for place, name in enumerate(names[: len(args)])}
    made = list(args)
    for name in placed.keys() & given.keys():
        made[placed[name]] = given[name]
    return tuple(made), {**kwargs, **{name: each for name, each in given.items() if name not in placed}}
