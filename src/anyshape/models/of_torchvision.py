"""Models of torchvision, by name: images, two frames, a clip or a list of images, as the model's family takes them."""

from __future__ import annotations

import difflib
import inspect
import os
from typing import Any

import torch

from anyshape.errors import FileError, UsageError
from anyshape.models.library import imported, quiet, seeded
from anyshape.models.wanted import Parts, Wanted
from anyshape.source.lines import first_line

__all__ = ["load"]

BATCH = 2
SIZE = 224
FRAMES = 16
CLIP = 112
FLOW = 128, 136  # the smallest that optical flow takes: 16 cells of 8 pixels


def load(name: str, wanted: Wanted) -> Parts:
    """The model of that name, and inputs as its family takes them."""
    wanted.only(f"torchvision:{name}", "random", "download")
    models = imported("torchvision", "torchvision").models
    if name not in models.list_models():
        close = difflib.get_close_matches(name, models.list_models(), 3, 0.5)
        hint = (
            f"Close to it: {', '.join(close)}." if close else "torchvision.models.list_models() lists them."
        )
        raise UsageError(f"torchvision has no model {name}", hint=hint)
    weights = models.get_model_weights(name)
    best = getattr(weights, "DEFAULT", None)
    model = _built(models, name, best, wanted).eval()
    return model, _example(models.get_model_builder(name).__module__, best), {}


def _built(models: Any, name: str, weights: Any, wanted: Wanted) -> Any:
    if wanted.random:
        bare = {"weights_backbone": None} if _has_backbone(models, name) else {}
        with quiet(), seeded():
            return models.get_model(name, weights=None, **bare)
    if weights is None:
        raise FileError(f"torchvision has no weights for {name}", hint="Pass --random for random ones.")
    path = os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(weights.url))
    if not wanted.download and not os.path.exists(path):
        raise FileError(
            f"the weights of torchvision:{name} are not in the local cache",
            hint="Pass --download to fetch them, or --random for random ones.",
        )
    try:
        with quiet(), seeded():
            return models.get_model(name, weights=weights)
    except Exception as error:  # of the network, of the file
        raise FileError(f"torchvision:{name} can't be loaded: {first_line(error)}") from error


def _has_backbone(models: Any, name: str) -> bool:
    """Whether the model is built on another, whose weights would be fetched."""
    return "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters


def _example(family: str, weights: Any) -> tuple[Any, ...]:
    """Inputs as the family takes them: it is told by the module that the builder lives in."""
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    if ".detection" in family:  # images of different size, in a list
        return ([noise(3, 64, 96), noise(3, 96, 80)],)
    if ".optical_flow" in family:
        return noise(1, 3, *FLOW), noise(1, 3, *FLOW)
    if ".video" in family:
        return (noise(BATCH, 3, FRAMES, CLIP, CLIP),)
    crop = getattr(weights.transforms(), "crop_size", None) if weights is not None else None
    height, width = (SIZE, SIZE) if not crop else (crop[0], crop[-1])
    return (noise(BATCH, 3, height, width),)
