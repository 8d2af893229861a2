"""Parts of a pipeline of diffusers: the folder of one model, with inputs made from its config and its signature."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable
from typing import Any

import torch

from anyshape.errors import AnyshapeError, FileError, UsageError
from anyshape.models import of_transformers
from anyshape.models.library import config_of, imported, not_built, quiet, seeded
from anyshape.models.wanted import Parts, Wanted
from anyshape.source.lines import first_line, line_of_exception

__all__ = ["load"]

BATCH, TOKENS = 2, 7
CELLS = 2, 3  # of the coarsest grid, upwards and across
PATCHES = 6  # of a picture that comes as a list of patches
STEPS = 1000


def load(place: str, wanted: Wanted) -> Parts:
    """The model of a folder, or of NAME/PART in the local cache."""
    wanted.only(f"diffusers:{place}", "random", "download", "task", "cache")
    library = imported("diffusers", "diffusers")
    place = os.path.expanduser(place).rstrip("/")
    told = _config(library, place, wanted)
    if "_class_name" not in told and "model_type" in told and os.path.isdir(place):
        return of_transformers.load(place, wanted)  # a pipeline's text encoder is a model of transformers
    wanted.only(f"diffusers:{place}", "random", "download")
    kind = getattr(library, str(told.get("_class_name")), None)
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        named = told.get("_class_name") or "nothing"
        raise FileError(f"the config of {place} names {named}, which is no model of diffusers")
    model = _model(kind, told, place, wanted)
    with quiet():
        return model, (), _example(model, wanted)


def _config(library: Any, place: str, wanted: Wanted) -> dict[str, Any]:
    if os.path.isdir(place):
        file = os.path.join(place, "config.json")
        if not os.path.exists(file):
            raise FileError(f"{place} has no config.json", hint=_parts_of(place))
        return config_of(file)
    name, _, part = place.rpartition("/")
    if place.startswith((".", os.sep)) or not name:
        raise FileError(
            f"there is no folder {place}", hint="Name a part of a saved pipeline: diffusers:DIR/unet."
        )
    try:
        with quiet():
            found = library.ConfigMixin.load_config(
                name, subfolder=part, local_files_only=not wanted.download, return_unused_kwargs=False
            )
    except Exception as error:  # of the network, of the file
        if wanted.download:
            raise FileError(f"{place} can't be downloaded: {first_line(error)}") from error
        raise FileError(
            f"there is no folder {place}, and no {part} of {name} in the local cache",
            hint="Pass --download to fetch it, or name a folder: diffusers:DIR/unet.",
        ) from error
    return dict(found)


def _parts_of(place: str) -> str:
    parts = [
        name for name in sorted(os.listdir(place)) if os.path.exists(os.path.join(place, name, "config.json"))
    ]
    return (
        f"Name one of its parts: {', '.join(f'diffusers:{place}/{part}' for part in parts)}." if parts else ""
    )


def _model(kind: Any, told: dict[str, Any], place: str, wanted: Wanted) -> Any:
    try:
        if wanted.random:
            with quiet(), seeded():
                return kind.from_config(told).eval()
        local = os.path.isdir(place)
        if local and not any(name.endswith((".safetensors", ".bin")) for name in os.listdir(place)):
            raise FileError(f"{place} has no weights", hint="Pass --random for random ones.")
        name, part = (place, None) if local else tuple(place.rsplit("/", 1))
        with quiet(), seeded():
            return kind.from_pretrained(
                name, subfolder=part, local_files_only=not wanted.download, low_cpu_mem_usage=False
            ).eval()
    except AnyshapeError:
        raise
    except Exception as error:  # of the network, of the file, of diffusers
        raise not_built(kind, place, error, wanted.download) from error


# --- Inputs ------------------------------------------------------------------------------------------------


def _example(model: Any, wanted: Wanted) -> dict[str, Any]:
    """The keyword arguments of one call that the model runs on."""
    parameters = inspect.signature(model.forward).parameters
    names = [
        name
        for name, each in parameters.items()
        if name in wanted.given
        or (
            each.kind is each.POSITIONAL_OR_KEYWORD
            and (each.default is each.empty or _asked_for(model, name))
        )
    ]
    ways = {name: [wanted.given[name]] if name in wanted.given else _ways(model, name) for name in names}
    first: Exception | None = None
    for values in itertools.product(*ways.values()):
        kwargs = {name: value for name, value in zip(ways, values, strict=True) if value is not None}
        try:
            with torch.no_grad():
                result = _first(model(**kwargs))
        except Exception as error:  # a stranger's model, of inputs that may not be what it takes
            first = first or error
            continue
        if result is None or result.shape[:1] == (BATCH,):  # patches of a wrong size come out as other rows
            return kwargs
    unknown = [name for name, values in ways.items() if not values]
    why = f": {unknown[0]} is not known" if unknown else (f": {first_line(first)}" if first else "")
    raise UsageError(
        f"no example that {type(model).__name__} takes could be made from its config{why}",
        where=line_of_exception(first) if first else None,
        hint=f"Give --input NAME=DTYPE[SIZES] (arguments: {', '.join(parameters)}), or write a function: FILE.py:NAME.",
    )


def _first(result: Any) -> torch.Tensor | None:
    """The first tensor of a result."""
    if isinstance(result, torch.Tensor):
        return result
    parts = (
        result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else ()
    )
    return next((found for part in parts if (found := _first(part)) is not None), None)


def _asked_for(model: Any, name: str) -> bool:
    """Whether the config makes an argument necessary that the signature leaves open."""
    config = model.config
    asked = {
        "encoder_hidden_states": ("joint_attention_dim", "caption_channels", "cross_attention_dim"),
        "pooled_projections": ("pooled_projection_dim",),
        "timestep": ("num_attention_heads", "joint_attention_dim"),
        "img_ids": ("axes_dims_rope",),
        "txt_ids": ("axes_dims_rope",),
        "guidance": ("guidance_embeds",),
        "class_labels": ("class_embed_type", "num_class_embeds", "num_embeds_ada_norm"),
        "timestep_cond": ("time_cond_proj_dim",),
        "added_cond_kwargs": ("addition_embed_type", "use_additional_conditions"),
    }
    return any(config.get(key) for key in asked.get(name, ()))


def _ways(model: Any, name: str) -> list[Any]:
    """The ways in which an argument may look, the likeliest first; none for one that is not known."""
    config = model.config
    makers: dict[str, Callable[[], list[Any]]] = {
        "sample": lambda: _pictures(config, "in_channels"),
        "x": lambda: _pictures(config, "in_channels"),
        "hidden_states": lambda: _hidden(config),
        "timestep": lambda: _times(config),
        "encoder_hidden_states": lambda: _rows(
            config, TOKENS, "cross_attention_dim", "joint_attention_dim", "caption_channels"
        ),
        "encoder_attention_mask": lambda: [torch.ones(BATCH, TOKENS)],
        "pooled_projections": lambda: _vectors(config, "pooled_projection_dim"),
        "class_labels": lambda: _labels(config),
        "timestep_cond": lambda: _vectors(config, "time_cond_proj_dim"),
        "controlnet_cond": lambda: _hints(config),
        "conditioning_scale": lambda: [1.0],
        "img_ids": lambda: [torch.zeros(PATCHES, len(config["axes_dims_rope"]))],
        "txt_ids": lambda: [torch.zeros(TOKENS, len(config["axes_dims_rope"]))],
        "guidance": lambda: [torch.full((BATCH,), 3.5)],
        "added_cond_kwargs": lambda: _added(config),
    }
    return makers[name]() if name in makers else []


def _grid(config: Any) -> tuple[int, int]:
    """A small height and width: a few cells of the coarsest grid that the model makes."""
    blocks = config.get("block_out_channels") or ()
    step = 2 ** max(len(blocks) - 1, 0) * int(config.get("patch_size") or 1)
    return CELLS[0] * step, CELLS[1] * step


def _pictures(config: Any, key: str) -> list[torch.Tensor]:
    """Pictures: small ones first, then those of the size that the config names."""
    channels = int(config.get(key) or 3)
    size = config.get("sample_size")
    sizes = [_grid(config)]
    if size:
        sizes.append((int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[1])))
    return [_noise(BATCH, channels, *each) for each in sizes]


def _hidden(config: Any) -> list[torch.Tensor]:
    """Pictures, or a list of patches where positions are handed in."""
    patches = [_noise(BATCH, PATCHES, int(config.get("in_channels") or 1))]
    return patches if config.get("axes_dims_rope") else _pictures(config, "in_channels") + patches


def _times(config: Any) -> list[torch.Tensor]:
    """Steps of a schedule, or how far the flow has come where a model learns that."""
    steps, shares = torch.arange(1, BATCH + 1) * (STEPS // 3), torch.linspace(0.2, 0.7, BATCH)
    return [shares, steps] if config.get("joint_attention_dim") else [steps, shares]


def _hints(config: Any) -> list[torch.Tensor]:
    """The picture that a ControlNet follows: as much larger than the sample as its own layers make it smaller."""
    step = 2 ** (len(config.get("conditioning_embedding_out_channels") or (0, 0, 0, 0)) - 1)
    height, width = _grid(config)
    return [_noise(BATCH, int(config.get("conditioning_channels") or 3), step * height, step * width)]


def _rows(config: Any, count: int, *keys: str) -> list[torch.Tensor]:
    widths = [config.get(key) for key in keys]
    widths = [width[0] if isinstance(width, (list, tuple)) else width for width in widths if width]
    return [_noise(BATCH, count, int(width)) for width in widths]


def _vectors(config: Any, key: str) -> list[torch.Tensor]:
    return [_noise(BATCH, int(config[key]))] if config.get(key) else []


def _labels(config: Any) -> list[torch.Tensor]:
    classes = config.get("num_class_embeds") or config.get("num_embeds_ada_norm")
    if classes:
        return [torch.arange(BATCH) % int(classes)]
    return _vectors(config, "projection_class_embeddings_input_dim")


def _added(config: Any) -> list[dict[str, torch.Tensor]]:
    """What SDXL's way of conditioning takes beside the text: its pooled row, and six numbers on the picture."""
    if config.get("addition_embed_type") != "text_time":
        return []
    width = int(config["projection_class_embeddings_input_dim"]) - 6 * int(config["addition_time_embed_dim"])
    return [
        {"text_embeds": _noise(BATCH, width), "time_ids": torch.tensor([[64.0, 96, 0, 0, 64, 96]] * BATCH)}
    ]


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))
