"""Models of timm, by name: its own size of images is the example's."""

from __future__ import annotations

import difflib
import os
from typing import Any

import torch

from anyshape.errors import FileError, UsageError
from anyshape.models.library import imported, quiet, seeded
from anyshape.models.wanted import Parts, Wanted
from anyshape.source.lines import first_line

__all__ = ["load"]

BATCH = 2


def load(name: str, wanted: Wanted) -> Parts:
    """The model of that name, and a batch of images of the size that it was trained with."""
    wanted.only(f"timm:{name}", "random", "download")
    timm = imported("timm", "timm")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name.partition(".")[0], timm.list_models(), 3, 0.5)
        hint = f"Close to it: {', '.join(close)}." if close else "timm.list_models() lists them."
        raise UsageError(f"timm {timm.__version__} has no model {name}", hint=hint)
    model = _built(timm, name, wanted).eval()
    size = model.default_cfg.get("input_size") or (3, 224, 224)
    images = torch.randn(BATCH, *size, generator=torch.Generator().manual_seed(0))
    return model, (images,), {}


def _built(timm: Any, name: str, wanted: Wanted) -> Any:
    if wanted.random:
        with quiet(), seeded():
            return timm.create_model(name, pretrained=False)
    known = timm.get_pretrained_cfg(name)
    overlay = {}
    if not wanted.download:
        file = None if known is None else _stored(known)
        if file is None:
            raise FileError(
                f"the weights of timm:{name} are not in the local cache",
                hint="Pass --download to fetch them, or --random for random ones.",
            )
        overlay = {"file": file}
    try:
        with quiet(), seeded():
            return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # of the network, of the file, of timm
        raise FileError(f"timm:{name} can't be loaded: {first_line(error)}") from error


def _stored(known: Any) -> str | None:
    """The file of weights in the caches of huggingface_hub or PyTorch, if it is there."""
    if known.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        for file in (known.hf_hub_filename, "model.safetensors", "pytorch_model.bin"):
            found = try_to_load_from_cache(known.hf_hub_id, file) if file else None
            if isinstance(found, str):
                return found
    if known.url:
        path = os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(known.url))
        return path if os.path.exists(path) else None
    return None
