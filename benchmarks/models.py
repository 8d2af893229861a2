"""Small models, each with one difficulty of inputs that vary in size.

A `Model` knows how to build itself, how to make inputs at given sizes, the sizes of the one example that an
exporter gets, and the sizes that are held out for the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Sizes = dict[str, int]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Model:
    """A module, its inputs at any sizes, the example's sizes and the held-out sizes."""

    name: str
    kind: str
    build: Callable[[], nn.Module]
    inputs: Callable[..., Inputs]
    example: Sizes
    held_out: tuple[Sizes, ...]


MODELS: dict[str, Model] = {}


def model(
    kind: str, inputs: Callable[..., Any], example: Sizes, *held_out: Sizes
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Enter a module class into the zoo; ``inputs`` gives positional inputs, or (args, kwargs)."""

    def enter(cls: type[nn.Module]) -> type[nn.Module]:
        def made(**sizes: int) -> Inputs:
            given = inputs(**sizes)
            return given if len(given) == 2 and isinstance(given[1], dict) else (given, {})

        name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
        MODELS[name] = Model(name, kind, cls, made, example, held_out)
        return cls

    return enter


def ids(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape)


# --- recurrent


@model(
    "recurrent",
    lambda batch, seq: (ids(40, batch, seq),),
    {"batch": 3, "seq": 6},
    {"batch": 1, "seq": 11},
    {"batch": 5, "seq": 1},
    {"batch": 2, "seq": 40},
)
class TaggerGru(nn.Module):
    """Two bidirectional layers, with the final states pooled into the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 12)
        self.gru = nn.GRU(12, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(20, 6)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        steps, last = self.gru(self.embed(tokens))
        return self.out(steps), last.mean(0)


@model(
    "recurrent",
    lambda batch, seq: (torch.randn(seq, batch, 8), (torch.randn(1, batch, 14), torch.randn(1, batch, 14))),
    {"batch": 2, "seq": 5},
    {"batch": 1, "seq": 1},
    {"batch": 7, "seq": 19},
)
class StreamLstm(nn.Module):
    """A step of a stream: sequence first, the state comes in and goes out."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 14)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> dict[str, Any]:
        y, state = self.lstm(x, state)
        return {"y": y, "state": state}


@model(
    "recurrent",
    lambda batch, seq: (torch.randn(batch, seq, 4),),
    {"batch": 2, "seq": 5},
    {"batch": 3, "seq": 9},
    {"batch": 1, "seq": 2},
)
class LeakyLoop(nn.Module):
    """A Python loop over time: its graph grows with the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = 0.9 * state + torch.tanh(self.mix(torch.cat([state, x[:, step]], dim=-1)))
        return state


# --- attention, masks and caches


class Attention(nn.Module):
    """Several heads, by hand: query from one sequence, key and value from another."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, other: Tensor, bias: Tensor | None = None) -> Tensor:
        query, key, value = (
            self.split(self.query(x)),
            self.split(self.key(other)),
            self.split(self.value(other)),
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(x.shape)


@model(
    "attention",
    lambda batch, seq: (ids(60, batch, seq), torch.ones(batch, seq, dtype=torch.long)),
    {"batch": 2, "seq": 7},
    {"batch": 1, "seq": 1},
    {"batch": 4, "seq": 33},
    {"batch": 3, "seq": 64},
)
class CausalReader(nn.Module):
    """A causal mask made from the sequence's length, and a padding mask; positions end at 64."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(60, 24), nn.Embedding(64, 24)
        self.attention = Attention()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        seq = tokens.shape[1]
        x = self.embed(tokens) + self.position.weight[:seq]
        later = torch.full((seq, seq), float("-inf")).triu(1)
        padding = (1.0 - mask[:, None, None, :].float()) * -1e4
        return self.attention(x, x, later + padding)


@model(
    "attention",
    lambda batch, source, target: (torch.randn(batch, source, 24), torch.randn(batch, target, 24)),
    {"batch": 2, "source": 6, "target": 6},
    {"batch": 3, "source": 9, "target": 4},
    {"batch": 1, "source": 1, "target": 13},
)
class CrossReader(nn.Module):
    """Two sequences whose lengths coincide in the example, and only there."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return target + self.attention(target, source)


@model(
    "cache",
    lambda batch, past, seq: (
        ids(60, batch, seq),
        [(torch.randn(batch, past, 24), torch.randn(batch, past, 24)) for _ in range(2)],
    ),
    {"batch": 1, "past": 5, "seq": 1},
    {"batch": 2, "past": 9, "seq": 1},
    {"batch": 3, "past": 1, "seq": 6},
    {"batch": 1, "past": 30, "seq": 4},
)
class CachedDecoder(nn.Module):
    """A step of decoding: two layers' past comes in as a list of pairs, and goes out longer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 24)
        self.layers = nn.ModuleList(nn.Linear(24, 72) for _ in range(2))

    def forward(
        self, tokens: Tensor, past: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        x, after = self.embed(tokens), []
        for layer, (keys, values) in zip(self.layers, past, strict=True):
            query, key, value = layer(x).chunk(3, -1)
            key, value = torch.cat([keys, key], 1), torch.cat([values, value], 1)
            x = x + (query @ key.transpose(1, 2) / 5).softmax(-1) @ value
            after.append((key, value))
        return x, after


@model(
    "attention",
    lambda batch, seq: (torch.randn(batch, seq, 16),),
    {"batch": 2, "seq": 10},
    {"batch": 3, "seq": 4},
    {"batch": 1, "seq": 23},
    {"batch": 2, "seq": 8},
)
class WindowedMixer(nn.Module):
    """Pads the sequence to whole windows of 4, mixes within each, and cuts back."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        padded = F.pad(x, (0, 0, 0, -seq % 4))
        windows = padded.reshape(batch, -1, 4 * width)
        return self.mix(windows).reshape(batch, -1, width)[:, :seq]


# --- vision at any size


@model(
    "vision",
    lambda batch, height, width: (torch.randn(batch, 3, height, width),),
    {"batch": 2, "height": 32, "width": 32},
    {"batch": 1, "height": 40, "width": 24},
    {"batch": 3, "height": 17, "width": 51},
)
class SmallNet(nn.Module):
    """Convolutions with norms, pooled over whatever is left."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
        )
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(image).mean((2, 3)))


@model(
    "vision",
    lambda batch, height, width: (torch.randn(batch, 3, 8 * height, 8 * width),),
    {"batch": 1, "height": 4, "width": 4},
    {"batch": 2, "height": 5, "width": 3},
    {"batch": 1, "height": 1, "width": 9},
)
class PatchNet(nn.Module):
    """Patches of 8 with a table of positions for 4 x 4 of them, resized to the image's own grid."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 8, stride=8)
        self.position = nn.Parameter(torch.randn(1, 24, 4, 4))
        self.attention = Attention()

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch(image)
        x = x + F.interpolate(self.position, size=x.shape[-2:], mode="bilinear", align_corners=False)
        x = x.flatten(2).transpose(1, 2)
        return self.attention(x, x).mean(1)


@model(
    "vision",
    lambda batch, height, width: (torch.randn(batch, 4, height, width),),
    {"batch": 1, "height": 24, "width": 24},
    {"batch": 2, "height": 13, "width": 30},
    {"batch": 1, "height": 36, "width": 11},
)
class PyramidPool(nn.Module):
    """Adaptive pools of 1, 2 and 3 cells, brought back to the image's size."""

    def forward(self, image: Tensor) -> Tensor:
        size = image.shape[-2:]
        pools = [F.interpolate(F.adaptive_avg_pool2d(image, n), size, mode="nearest") for n in (1, 2, 3)]
        return torch.cat([image, *pools], dim=1)


@model(
    "vision",
    lambda batch, height, width: (torch.randn(batch, 2, height, width),),
    {"batch": 1, "height": 16, "width": 16},
    {"batch": 2, "height": 21, "width": 10},
    {"batch": 1, "height": 9, "width": 31},
)
class CropNet(nn.Module):
    """The middle of an image, its sides computed with Python's int()."""

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        top, left = int(height * 0.25), int(width * 0.25)
        return image[..., top : height - top, left : width - left].amax((2, 3))


# --- audio


@model(
    "audio",
    lambda batch, samples: (torch.randn(batch, samples), torch.full((batch,), samples)),
    {"batch": 2, "samples": 200},
    {"batch": 1, "samples": 320},
    {"batch": 3, "samples": 147},
)
class SpeechFront(nn.Module):
    """Frames of 32 every 16 samples, and a mask from the lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 32, stride=16)

    def forward(self, wave: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        frames = self.conv(wave[:, None]).transpose(1, 2)
        counts = (lengths - 32) // 16 + 1
        mask = torch.arange(frames.shape[1])[None] < counts[:, None]
        return frames * mask[..., None], mask


# --- graphs


@model(
    "graph",
    lambda nodes, edges: (torch.randn(nodes, 6), ids(nodes, 2, edges)),
    {"nodes": 8, "edges": 20},
    {"nodes": 3, "edges": 11},
    {"nodes": 25, "edges": 4},
)
class MessageNet(nn.Module):
    """Messages along edges, summed where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(12, 6), nn.Linear(12, 6)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        messages = self.message(torch.cat([x[source], x[target]], -1)).relu()
        arrived = torch.zeros_like(x).index_add(0, target, messages)
        return self.update(torch.cat([x, arrived], -1))


# --- nested and optional inputs


@model(
    "nested",
    lambda batch, seq, regions: (
        (
            {
                "text": {"ids": ids(40, batch, seq), "mask": torch.ones(batch, seq)},
                "image": torch.randn(batch, regions, 12),
            },
        ),
        {"scale": 2.0},
    ),
    {"batch": 2, "seq": 5, "regions": 5},
    {"batch": 1, "seq": 9, "regions": 3},
    {"batch": 4, "seq": 2, "regions": 17},
)
class TwoModalities(nn.Module):
    """Text and image regions in nested dicts, and a plain number by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 12)

    def forward(self, batch: dict[str, Any], *, scale: float = 1.0) -> dict[str, Tensor]:
        text = self.embed(batch["text"]["ids"]) * batch["text"]["mask"][..., None]
        both = text @ batch["image"].transpose(1, 2) * scale
        return {"both": both, "best": both.amax(-1)}


@model(
    "nested",
    lambda batch, first, second: ([torch.randn(batch, first, 6), torch.randn(batch, second, 6)],),
    {"batch": 2, "first": 4, "second": 7},
    {"batch": 3, "first": 9, "second": 2},
    {"batch": 1, "first": 1, "second": 1},
)
class Levels(nn.Module):
    """A list of levels, each of a size of its own, joined and ranked."""

    def forward(self, levels: list[Tensor]) -> Tensor:
        joined = torch.cat(levels, dim=1)
        order = joined.sum(-1).argsort(dim=1, descending=True, stable=True)
        return joined.gather(1, order[..., None].expand_as(joined))


# --- coincidences and ones


@model(
    "coincidence",
    lambda batch, seq: (torch.randn(batch, seq, 8), torch.randn(batch, seq)),
    {"batch": 8, "seq": 8},
    {"batch": 3, "seq": 5},
    {"batch": 2, "seq": 8},
    {"batch": 8, "seq": 1},
)
class AllEights(nn.Module):
    """Batch, sequence and width are all 8 in the example."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return (self.linear(x) * weight.softmax(1)[..., None]).sum(1)


@model(
    "ones",
    lambda batch, seq: (torch.randn(batch, seq, 10), torch.randn(batch, 1, 10)),
    {"batch": 1, "seq": 1},
    {"batch": 4, "seq": 1},
    {"batch": 1, "seq": 6},
    {"batch": 3, "seq": 7},
)
class ManyOnes(nn.Module):
    """Both sizes are 1 in the example, and an axis that is always 1 broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(10)

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        return self.norm(x + shift).transpose(0, 1).flatten(1)


@model(
    "branch",
    lambda batch, seq: (torch.randn(batch, seq, 6),),
    {"batch": 2, "seq": 5},
    {"batch": 2, "seq": 12},
    {"batch": 1, "seq": 13},
    {"batch": 3, "seq": 30},
)
class LongOrShort(nn.Module):
    """Another path for sequences longer than 12."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 12:
            return x[:, ::2].mean(1)
        return x.mean(1)


# --- sizes that depend on values


@model(
    "data",
    lambda items: (torch.randn(items, 5),),
    {"items": 12},
    {"items": 30},
    {"items": 7},
)
class KeepPositive(nn.Module):
    """How many rows come out depends on the values."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = x[x.sum(1) > 0]
        return kept, kept.sum(0)


@model(
    "data",
    lambda batch, tokens: (torch.randn(batch, tokens, 8),),
    {"batch": 2, "tokens": 6},
    {"batch": 3, "tokens": 11},
    {"batch": 1, "tokens": 1},
)
class TwoExperts(nn.Module):
    """Each token goes to the expert that scores it highest."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 2)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, 8)
        chosen = self.gate(flat).argmax(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            out = out.index_copy(0, rows, expert(flat[rows]))
        return out.view(x.shape)


@model(
    "numbers",
    lambda batch, items: (torch.randn(batch, items),),
    {"batch": 2, "items": 9},
    {"batch": 1, "items": 30},
    {"batch": 3, "items": 4},
)
class TopThird(nn.Module):
    """The mean of the highest third, scaled by the square root of how many there are."""

    def forward(self, x: Tensor) -> Tensor:
        count = max(1, x.shape[1] // 3)
        return x.topk(count, dim=1).values.mean(1) / math.sqrt(x.shape[1])
