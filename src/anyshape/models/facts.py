"""What a config of transformers says of a model's inputs, and tensors that agree with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["BATCH", "DECODED", "PAST", "TOKENS", "Facts"]

# Unlike each other and unlike 1. The caller's contract says how far each of them goes.
BATCH, TOKENS, DECODED, PAST, CHOICES = 2, 7, 4, 5, 3
IMAGE = 64, 96  # for a model that has no size of its own
USUAL_IMAGE = 224
FRAMES = 11  # of sound, after its filters
SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class Facts:
    """Makes inputs by their names, from a config."""

    config: Any
    batch: int
    choices: bool = False
    generates: bool = False

    def made(self, name: str, names: Sequence[str]) -> list[Any]:
        """The ways in which an input may look, the likeliest first; none for an input that is not known."""
        makers = {
            "input_ids": lambda: [self.ids(TOKENS)],
            "decoder_input_ids": lambda: [self.ids(DECODED)],
            "attention_mask": lambda: self._mask(names),
            "token_type_ids": self._token_types,
            "bbox": self._boxes,
            "pixel_mask": lambda: [
                torch.ones(self.batch, *size, dtype=torch.long) for size in self._image_sizes()
            ],
            "pixel_values": self._images,
            "pixel_values_videos": self._videos,
            "input_features": self._features,
            "input_values": self._sounds,
            "past_values": self._series,
        }
        return makers[name]() if name in makers else []

    def ids(self, count: int) -> torch.Tensor:
        """Tokens of the vocabulary that have no other meaning; the last ends the text where it is only read."""
        text = self.config.get_text_config(decoder=self.generates)
        words = int(getattr(text, "vocab_size", None) or getattr(self.config, "vocab_size", None) or 2)
        special = {value for key, value in _plain(text).items() if key.endswith("token_id")}
        special |= {each for value in special if isinstance(value, tuple) for each in value}
        ordinary = [word for word in range(3, min(words, 1000)) if word not in special] or [0]
        shape = (self.batch, CHOICES, count) if self.choices else (self.batch, count)
        ids = torch.tensor(ordinary)[torch.randint(0, len(ordinary), shape, generator=_generator())]
        end = getattr(text, "eos_token_id", None)
        if isinstance(end, int) and 0 <= end < words and not self.generates:
            ids[..., -1] = end
        return ids

    def mask(self, count: int) -> torch.Tensor:
        """A mask of a text without padding."""
        shape = (self.batch, CHOICES, count) if self.choices else (self.batch, count)
        return torch.ones(shape, dtype=torch.long)

    def _mask(self, names: Sequence[str]) -> list[torch.Tensor]:
        if "input_ids" in names:
            return [self.mask(TOKENS)]
        if "input_values" in names and getattr(self.config, "feat_extract_norm", None) == "layer":
            return [torch.ones(sound.shape, dtype=torch.long) for sound in self._sounds()[:1]]
        return []

    def _token_types(self) -> list[torch.Tensor]:
        kinds = getattr(self.config, "type_vocab_size", None) or 0
        second = (torch.arange(TOKENS) > TOKENS // 2).long()  # a first sentence, and a second one
        return [second.expand(self.ids(TOKENS).shape).contiguous()] if kinds > 1 else []

    def _boxes(self) -> list[torch.Tensor]:
        most = int(getattr(self.config, "max_2d_position_embeddings", 1024)) // 2
        corner = torch.randint(0, most, (self.batch, TOKENS, 2), generator=_generator())
        return [torch.cat([corner, corner + most - 1], -1)]

    # --- Images and films -------------------------------------------------------------------------------------

    def _channels(self) -> int:
        return int(self._said("num_channels", "in_channels", "in_chans") or 3)

    def _said(self, *keys: str) -> Any:
        """What the config, or one of its parts, says of one of these."""
        parts = [part for part in vars(self.config).values() if hasattr(part, "model_type")]
        told = (getattr(holder, key, None) for holder in (self.config, *parts) for key in keys)
        return next((found for found in told if found is not None), None)

    def _image_sizes(self) -> list[tuple[int, int]]:
        said = self._said("image_size")
        if isinstance(said, dict):
            said = (said.get("height", USUAL_IMAGE), said.get("width", USUAL_IMAGE))
        if isinstance(said, (int, float)):
            said = (said, said)
        return [(int(said[0]), int(said[1]))] if said else [IMAGE, (USUAL_IMAGE, USUAL_IMAGE)]

    def _images(self) -> list[torch.Tensor]:
        shapes = [(self._channels(), *size) for size in self._image_sizes()]
        frames = self._said("num_frames")
        films = [(int(frames), *shape) for shape in shapes] if frames else []
        return [_noise(self.batch, *shape) for shape in (*films, *shapes)]

    def _videos(self) -> list[torch.Tensor]:
        frames = int(self._said("num_frames", "frames_per_clip") or 8)
        return [_noise(self.batch, frames, self._channels(), *size) for size in self._image_sizes()]

    # --- Sound and series -------------------------------------------------------------------------------------

    def _features(self) -> list[torch.Tensor]:
        """Filtered sound: filters before time where the length is fixed, time before filters elsewhere."""
        keys = (
            "num_mel_bins",
            "input_feat_per_channel",
            "feature_projection_input_dim",
            "input_dim",
            "feature_size",
        )
        bins = self._said(*keys)
        if bins is None:
            return []
        bins = int(bins)
        most = self._said("max_source_positions")
        fixed = [_noise(self.batch, bins, 2 * int(most))] if most else []
        return [*fixed, _noise(self.batch, 4 * FRAMES, bins), _noise(self.batch, bins, 4 * FRAMES)]

    def _sounds(self) -> list[torch.Tensor]:
        bins, longest = getattr(self.config, "num_mel_bins", None), getattr(self.config, "max_length", None)
        strides = self._said("conv_stride", "upsampling_ratios")
        if isinstance(strides, (list, tuple)):
            samples = math.prod(strides) * FRAMES + math.prod(strides) // 2
        else:
            samples = SAMPLES
        channels = int(self._said("audio_channels") or 1)
        filtered = [_noise(self.batch, int(longest), int(bins))] if bins and longest else []
        return [*filtered, _noise(self.batch, samples), _noise(self.batch, channels, samples)]

    def _series(self) -> list[torch.Tensor]:
        length = getattr(self.config, "context_length", None) or 32
        channels = getattr(self.config, "num_input_channels", None)
        plain = _noise(self.batch, int(length))
        return [_noise(self.batch, int(length), int(channels)), plain] if channels else [plain]


def _plain(config: Any) -> dict[str, Any]:
    """The config's ids, lists as tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in vars(config).items()
        if isinstance(value, (int, list))
        and not (isinstance(value, list) and value and isinstance(value[0], (list, dict)))
    }


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_generator())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
