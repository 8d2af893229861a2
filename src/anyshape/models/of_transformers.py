"""Models of transformers: a folder with config.json, or a name from the local cache."""

from __future__ import annotations

import os
from typing import Any

import torch

from anyshape.errors import AnyshapeError, FileError, UsageError
from anyshape.models.example import example_of
from anyshape.models.library import config_of, imported, not_built, quiet, seeded
from anyshape.models.tasks import class_of
from anyshape.models.wanted import Parts, Wanted
from anyshape.source.lines import first_line

__all__ = ["load"]

FETCH = "Pass --download to fetch it, or name a folder that holds config.json."


def load(place: str, wanted: Wanted) -> Parts:
    """The model of a folder or a name, its class by its config or the task, and inputs made from its config."""
    library = imported("transformers", "hf")
    place = os.path.expanduser(place)
    config = _config(library, place, wanted)
    with quiet():
        kind = class_of(library, config, wanted.task)
    model = _model(kind, config, place, wanted)
    with quiet():
        return model, (), example_of(library, model, wanted)


def _config(library: Any, place: str, wanted: Wanted) -> Any:
    if os.path.isdir(place):
        _check_folder(place)
    elif os.path.exists(place):
        raise FileError(f"{place} is a file, not a folder", hint="Name the folder that holds config.json.")
    elif place.startswith((".", os.sep)) or place.count("/") > 1:
        raise FileError(f"there is no folder {place}", hint="Name a folder that holds config.json.")
    try:
        with quiet():
            return library.AutoConfig.from_pretrained(
                place, local_files_only=not wanted.download, trust_remote_code=False
            )
    except Exception as error:  # of the network, of the file, of transformers
        if os.path.isdir(place):
            raise FileError(f"{place}/config.json can't be read: {first_line(error)}") from error
        if wanted.download:
            raise FileError(f"{place} can't be downloaded: {first_line(error)}") from error
        what = f"there is no folder {place}, and no model of that name in the local cache"
        raise FileError(what, hint=FETCH) from error


def _check_folder(place: str) -> None:
    file = os.path.join(place, "config.json")
    if not os.path.exists(file):
        pipeline = os.path.exists(os.path.join(place, "model_index.json"))
        hint = f"It is a pipeline: name one of its parts, as diffusers:{place}/unet." if pipeline else ""
        raise FileError(f"{place} has no config.json", hint=hint)
    told = config_of(file)
    if "_class_name" in told and "model_type" not in told:
        raise FileError(f"{place} is a model of diffusers", hint=f"Write diffusers:{place}.")
    if "auto_map" in told:
        raise FileError(
            f"{place} comes with code of its own, which is not run from here",
            hint="Build the model in a function of yours: FILE.py:NAME.",
        )


def _model(kind: Any, config: Any, place: str, wanted: Wanted) -> Any:
    try:
        if wanted.random:
            with quiet(), seeded():
                return kind(config).float().eval()  # as stored weights are read
        if os.path.isdir(place) and not _has_weights(place):
            raise FileError(f"{place} has no weights", hint="Pass --random for random ones.")
        with quiet(), seeded():
            model, told = kind.from_pretrained(
                place,
                config=config,
                local_files_only=not wanted.download,
                output_loading_info=True,
                dtype=torch.float32,
            )
    except AnyshapeError:
        raise
    except Exception as error:  # of the network, of the file, of transformers
        raise not_built(kind, place, error, wanted.download) from error
    missing = sorted(told["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(
            f"the weights of {place} lack {missing[0]}{more} of {kind.__name__}",
            hint="Choose the --task that they were trained for, or pass --random for random weights.",
        )
    return model.eval()


def _has_weights(place: str) -> bool:
    return any(
        name.startswith(("model", "pytorch_model")) and name.endswith((".safetensors", ".bin"))
        for name in os.listdir(place)
    )
