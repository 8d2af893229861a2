"""Modules with a size of their example written into the source, each beside its mended twin (same weights).

A line that ends in ``<- blame`` is the one to blame; one that ends in ``<- also`` may be named instead. The mended twin
is the truth at other sizes: a repair is right when it agrees with it. What stands between two pairs belongs to the
second one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

functional = nn.functional

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
Sizes = dict[str, int]
Maker = Callable[..., Inputs]


@dataclass(frozen=True)
class Pair:
    """A broken module and its mended twin, with the sizes at which to try them.

    Not ``fixable``: the weights fix the size, and ``mended`` is ``broken`` itself. ``ambiguous``: ``other`` reads the
    literal as another dim, runs at the same sizes, and gives something else; nothing in the source says who is right.
    """

    name: str
    broken: type[nn.Module]
    mended: type[nn.Module]
    inputs: Maker
    example: Sizes
    held: list[Sizes]
    lines: tuple[int, ...]
    also: tuple[int, ...] = ()
    fixable: bool = True
    ambiguous: bool = False
    other: type[nn.Module] | None = None


_SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()
_found: list[Pair] = []


def _marked(mark: str, first: int, last: int) -> tuple[int, ...]:
    return tuple(line for line in range(first, last) if _SOURCE[line - 1].endswith(f"# <- {mark}"))


def pair(
    broken: type[nn.Module],
    mended: type[nn.Module],
    *,
    example: Sizes,
    held: list[Sizes],
    fixable: bool = True,
    other: type[nn.Module] | None = None,
) -> Callable[[Maker], Maker]:
    """Keep a pair under the name of the function that makes its inputs."""

    def keep(inputs: Maker) -> Maker:
        first = inspect.getsourcelines(_found[-1].inputs)[1] if _found else 1
        last = inspect.getsourcelines(inputs)[1]
        blamed, also = _marked("blame", first, last), _marked("also", first, last)
        ambiguous = other is not None
        name = inputs.__name__
        _found.append(
            Pair(name, broken, mended, inputs, example, held, blamed, also, fixable, ambiguous, other)
        )
        return inputs

    return keep


# --- view and reshape -----------------------------------------------------------------------------------


class PooledFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(16, 5)

    def forward(self, image: Tensor) -> Any:
        features = self.pool(self.conv(image).relu())
        return self.head(features.view(3, 16))  # <- blame


class PooledFeaturesMended(PooledFeatures):
    def forward(self, image: Tensor) -> Any:
        features = self.pool(self.conv(image).relu())
        return self.head(features.view(image.shape[0], 16))


@pair(
    PooledFeatures,
    PooledFeaturesMended,
    example={"b": 3, "h": 8, "w": 10},
    held=[{"b": 1, "h": 8, "w": 12}, {"b": 2, "h": 7, "w": 9}, {"b": 5, "h": 16, "w": 6}],
)
def view_batch_of_conv_features(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class SplitHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 20)
        self.out = nn.Linear(20, 20)

    def forward(self, hidden: Tensor) -> Any:
        batch = hidden.shape[0]
        query = self.query(hidden).view(batch, -1, 4, 5).transpose(1, 2)
        key = self.key(hidden).view(batch, -1, 4, 5).transpose(1, 2)
        value = self.value(hidden).view(batch, -1, 4, 5).transpose(1, 2)
        weights = (query @ key.transpose(2, 3) / math.sqrt(5)).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, 7, 20)  # <- blame
        return self.out(mixed) + hidden


class SplitHeadsMended(SplitHeads):
    def forward(self, hidden: Tensor) -> Any:
        batch = hidden.shape[0]
        query = self.query(hidden).view(batch, -1, 4, 5).transpose(1, 2)
        key = self.key(hidden).view(batch, -1, 4, 5).transpose(1, 2)
        value = self.value(hidden).view(batch, -1, 4, 5).transpose(1, 2)
        weights = (query @ key.transpose(2, 3) / math.sqrt(5)).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, hidden.shape[1], 20)
        return self.out(mixed) + hidden


@pair(
    SplitHeads,
    SplitHeadsMended,
    example={"b": 2, "s": 7},
    held=[{"b": 1, "s": 3}, {"b": 3, "s": 1}, {"b": 4, "s": 12}],
)
def reshape_sequence_after_heads(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 20),), {}


class FlatTokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.vocabulary = nn.LayerNorm(16), nn.Linear(16, 30)

    def forward(self, hidden: Tensor) -> Any:
        rows = self.norm(hidden).view(21, 16)  # <- blame
        return self.vocabulary(rows).log_softmax(-1)


class FlatTokensMended(FlatTokens):
    def forward(self, hidden: Tensor) -> Any:
        rows = self.norm(hidden).view(hidden.shape[0] * hidden.shape[1], 16)
        return self.vocabulary(rows).log_softmax(-1)


@pair(
    FlatTokens,
    FlatTokensMended,
    example={"b": 3, "s": 7},
    held=[{"b": 2, "s": 5}, {"b": 1, "s": 11}, {"b": 4, "s": 1}],
)
def view_product_of_batch_and_sequence(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 16),), {}


class Chunked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.GRU(6, 6, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:
        chunks = frames.reshape(6, 4, 6)  # <- blame
        mixed: Tensor = self.inside(chunks)[0]
        return mixed.reshape(frames.shape) + frames


class ChunkedMended(Chunked):
    def forward(self, frames: Tensor) -> Tensor:
        chunks = frames.reshape(frames.shape[0] * frames.shape[1] // 4, 4, 6)
        mixed: Tensor = self.inside(chunks)[0]
        return mixed.reshape(frames.shape) + frames


@pair(
    Chunked,
    ChunkedMended,
    example={"b": 2, "t": 12},
    held=[{"b": 1, "t": 8}, {"b": 3, "t": 16}, {"b": 5, "t": 4}],
)
def reshape_to_chunks_of_four(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 6),), {}


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(48, 12)

    def forward(self, image: Tensor) -> Any:
        grid = image.reshape(-1, 3, 3, 4, 5, 4)  # <- blame
        patches = grid.permute(0, 2, 4, 3, 5, 1).reshape(-1, 15, 48)  # <- blame
        return self.embed(patches)


class PatchesMended(Patches):
    def forward(self, image: Tensor) -> Any:
        down, across = image.shape[2] // 4, image.shape[3] // 4
        grid = image.reshape(-1, 3, down, 4, across, 4)
        patches = grid.permute(0, 2, 4, 3, 5, 1).reshape(-1, down * across, 48)
        return self.embed(patches)


@pair(
    Patches,
    PatchesMended,
    example={"b": 2, "h": 12, "w": 20},
    held=[{"b": 1, "h": 8, "w": 16}, {"b": 3, "h": 28, "w": 4}, {"b": 4, "h": 24, "w": 28}],
)
def reshape_image_to_patches(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class ShapeInList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(10, 16)

    def forward(self, x: Tensor) -> Any:
        shape = [4, 9, 2, 8]  # <- blame
        heads = self.proj(x).view(shape)
        return heads.transpose(1, 2).softmax(-1)


class ShapeInListMended(ShapeInList):
    def forward(self, x: Tensor) -> Any:
        shape = [x.shape[0], x.shape[1], 2, 8]
        heads = self.proj(x).view(shape)
        return heads.transpose(1, 2).softmax(-1)


@pair(
    ShapeInList,
    ShapeInListMended,
    example={"b": 4, "s": 9},
    held=[{"b": 2, "s": 5}, {"b": 1, "s": 13}, {"b": 7, "s": 3}],
)
def view_shape_from_a_list(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 10),), {}


class Windows(nn.Module):
    """Attention inside windows of 3 by 3, there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, features: Tensor) -> Any:
        split = features.view(2, 4, 3, 6, 3, 8).permute(0, 1, 3, 2, 4, 5)  # <- blame
        windows = split.flatten(0, 2).flatten(1, 2)
        weights = (windows @ windows.transpose(1, 2)).softmax(-1)
        mixed = self.mix(weights @ windows)
        joined = mixed.view(2, 4, 6, 3, 3, 8).permute(0, 1, 3, 2, 4, 5)  # <- blame
        return joined.reshape(features.shape) + features


class WindowsMended(Windows):
    def forward(self, features: Tensor) -> Any:
        batch, down, across = features.shape[0], features.shape[1] // 3, features.shape[2] // 3
        split = features.view(batch, down, 3, across, 3, 8).permute(0, 1, 3, 2, 4, 5)
        windows = split.flatten(0, 2).flatten(1, 2)
        weights = (windows @ windows.transpose(1, 2)).softmax(-1)
        mixed = self.mix(weights @ windows)
        joined = mixed.view(batch, down, across, 3, 3, 8).permute(0, 1, 3, 2, 4, 5)
        return joined.reshape(features.shape) + features


@pair(
    Windows,
    WindowsMended,
    example={"b": 2, "h": 12, "w": 18},
    held=[{"b": 1, "h": 6, "w": 9}, {"b": 3, "h": 3, "w": 15}, {"b": 4, "h": 9, "w": 24}],
)
def view_permute_chain_of_windows(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, h, w, 8),), {}


class UnflattenKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(12, 8)

    def forward(self, clips: Tensor, *, scale: Tensor) -> Any:
        encoded = self.encode(clips.flatten(end_dim=1))
        return encoded.unflatten(dim=0, sizes=(3, 5)) * scale  # <- blame


class UnflattenKeywordMended(UnflattenKeyword):
    def forward(self, clips: Tensor, *, scale: Tensor) -> Any:
        encoded = self.encode(clips.flatten(end_dim=1))
        return encoded.unflatten(dim=0, sizes=(clips.shape[0], clips.shape[1])) * scale


@pair(
    UnflattenKeyword,
    UnflattenKeywordMended,
    example={"b": 3, "t": 5},
    held=[{"b": 2, "t": 4}, {"b": 1, "t": 9}, {"b": 6, "t": 7}],
)
def unflatten_sizes_by_keyword(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 12),), {"scale": torch.rand(b, t, 1)}


class PairsOfFrames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(16, 8)

    def forward(self, mels: Tensor) -> Any:
        return self.down(mels.reshape(mels.shape[0], 5, 16)).relu()  # <- blame


class PairsOfFramesMended(PairsOfFrames):
    def forward(self, mels: Tensor) -> Any:
        return self.down(mels.reshape(mels.shape[0], mels.shape[1] // 2, 16)).relu()


@pair(
    PairsOfFrames,
    PairsOfFramesMended,
    example={"b": 3, "t": 10},
    held=[{"b": 1, "t": 4}, {"b": 2, "t": 14}, {"b": 5, "t": 2}],
)
def reshape_half_the_frames(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 8),), {}


class Upsampled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.stack([self.even(x), self.odd(x)], dim=2)
        return both.view(-1, 14, 6)  # <- blame


class UpsampledMended(Upsampled):
    def forward(self, x: Tensor) -> Tensor:
        both = torch.stack([self.even(x), self.odd(x)], dim=2)
        return both.view(-1, 2 * x.shape[1], 6)


@pair(
    Upsampled,
    UpsampledMended,
    example={"b": 3, "s": 7},
    held=[{"b": 2, "s": 5}, {"b": 1, "s": 4}, {"b": 5, "s": 9}],
)
def view_twice_the_sequence(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 6),), {}


# --- expand and repeat ----------------------------------------------------------------------------------


class ClassToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Any:
        patches = self.patch(image).flatten(2).transpose(1, 2)
        first = self.token.expand(4, -1, -1)  # <- blame
        hidden = torch.cat([first, patches], dim=1)
        weights = (hidden @ hidden.transpose(1, 2)).softmax(-1)
        return self.head((weights @ hidden)[:, 0])


class ClassTokenMended(ClassToken):
    def forward(self, image: Tensor) -> Any:
        patches = self.patch(image).flatten(2).transpose(1, 2)
        first = self.token.expand(image.shape[0], -1, -1)
        hidden = torch.cat([first, patches], dim=1)
        weights = (hidden @ hidden.transpose(1, 2)).softmax(-1)
        return self.head((weights @ hidden)[:, 0])


@pair(
    ClassToken,
    ClassTokenMended,
    example={"b": 4, "h": 8, "w": 12},
    held=[{"b": 1, "h": 12, "w": 8}, {"b": 3, "h": 16, "w": 4}, {"b": 6, "h": 9, "w": 20}],
)
def expand_class_token(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class LearnedQueries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(5, 16))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, memory: Tensor) -> Any:
        queries = self.queries.expand(3, 5, 16)  # <- blame
        return self.attention(queries, memory, memory, need_weights=False)[0]


class LearnedQueriesMended(LearnedQueries):
    def forward(self, memory: Tensor) -> Any:
        queries = self.queries.expand(memory.shape[0], 5, 16)
        return self.attention(queries, memory, memory, need_weights=False)[0]


@pair(
    LearnedQueries,
    LearnedQueriesMended,
    example={"b": 3, "s": 8},
    held=[{"b": 1, "s": 6}, {"b": 2, "s": 11}, {"b": 7, "s": 4}],
)
def expand_learned_queries(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 16),), {}


class ExpandedMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, hidden: Tensor, mask: Tensor) -> Any:
        keep = mask[:, None, :].expand(-1, 7, 7)  # <- blame
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        scores = scores + torch.where(keep, 0.0, -1e9)
        return scores.softmax(-1) @ hidden


class ExpandedMaskMended(ExpandedMask):
    def forward(self, hidden: Tensor, mask: Tensor) -> Any:
        keep = mask[:, None, :].expand(-1, mask.shape[1], mask.shape[1])
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        scores = scores + torch.where(keep, 0.0, -1e9)
        return scores.softmax(-1) @ hidden


@pair(
    ExpandedMask,
    ExpandedMaskMended,
    example={"b": 2, "s": 7},
    held=[{"b": 1, "s": 4}, {"b": 3, "s": 10}, {"b": 5, "s": 6}],
)
def expand_padding_mask_square(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 12), torch.rand(b, s) > 0.3), {}


class Speaker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.voices = nn.Embedding(10, 6)
        self.mix = nn.Linear(14, 8)

    def forward(self, mels: Tensor, speaker: Tensor) -> Any:
        voice = self.voices(speaker).unsqueeze(1).repeat(1, 11, 1)  # <- blame
        return self.mix(torch.cat([mels, voice], dim=-1))


class SpeakerMended(Speaker):
    def forward(self, mels: Tensor, speaker: Tensor) -> Any:
        voice = self.voices(speaker).unsqueeze(1).repeat(1, mels.shape[1], 1)
        return self.mix(torch.cat([mels, voice], dim=-1))


@pair(
    Speaker,
    SpeakerMended,
    example={"b": 2, "t": 11},
    held=[{"b": 3, "t": 5}, {"b": 1, "t": 17}, {"b": 4, "t": 1}],
)
def repeat_speaker_over_frames(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 8), torch.randint(0, 10, (b,))), {}


class RepeatedPositions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(40, 8), nn.Embedding(64, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(9).repeat(3, 1)  # <- blame
        embedded: Tensor = torch.cat([self.words(tokens), self.places(positions)], dim=-1)
        return embedded


class RepeatedPositionsMended(RepeatedPositions):
    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1]).repeat(tokens.shape[0], 1)
        embedded: Tensor = torch.cat([self.words(tokens), self.places(positions)], dim=-1)
        return embedded


@pair(
    RepeatedPositions,
    RepeatedPositionsMended,
    example={"b": 3, "s": 9},
    held=[{"b": 2, "s": 6}, {"b": 5, "s": 14}, {"b": 1, "s": 9}],
)
def repeat_arange_two_dims_on_one_line(b: int, s: int) -> Inputs:
    return (torch.randint(0, 40, (b, s)),), {}


class BroadcastQuery(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Bilinear(8, 8, 1)

    def forward(self, query: Tensor, documents: Tensor) -> Any:
        asked = torch.broadcast_to(query[:, None], (2, 6, 8))  # <- blame
        return self.score(asked.contiguous(), documents).squeeze(-1)


class BroadcastQueryMended(BroadcastQuery):
    def forward(self, query: Tensor, documents: Tensor) -> Any:
        asked = torch.broadcast_to(query[:, None], (documents.shape[0], documents.shape[1], 8))
        return self.score(asked.contiguous(), documents).squeeze(-1)


@pair(
    BroadcastQuery,
    BroadcastQueryMended,
    example={"b": 2, "n": 6},
    held=[{"b": 4, "n": 3}, {"b": 1, "n": 9}, {"b": 3, "n": 1}],
)
def broadcast_query_to_documents(b: int, n: int) -> Inputs:
    return (torch.randn(b, 8), torch.randn(b, n, 8)), {}


# --- arange and linspace --------------------------------------------------------------------------------


class Backwards(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 8)

    def forward(self, frames: Tensor) -> Any:
        order = torch.arange(6).flip(0)  # <- blame
        backwards = frames.index_select(1, order)
        return self.mix(torch.cat([frames, backwards], dim=-1))


class BackwardsMended(Backwards):
    def forward(self, frames: Tensor) -> Any:
        order = torch.arange(frames.shape[1]).flip(0)
        backwards = frames.index_select(1, order)
        return self.mix(torch.cat([frames, backwards], dim=-1))


@pair(
    Backwards,
    BackwardsMended,
    example={"b": 3, "t": 6},
    held=[{"b": 2, "t": 4}, {"b": 1, "t": 10}, {"b": 4, "t": 1}],
)
def index_select_arange(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 8),), {}


class PaddingMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 1)

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        weights = self.gate(hidden).squeeze(-1)
        valid = torch.arange(8)[None, :] < lengths[:, None]  # <- blame
        weights = weights.masked_fill(~valid, float("-inf")).softmax(-1)
        pooled: Tensor = (weights[..., None] * hidden).sum(1)
        return pooled


class PaddingMaskMended(PaddingMask):
    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        weights = self.gate(hidden).squeeze(-1)
        valid = torch.arange(hidden.shape[1])[None, :] < lengths[:, None]
        weights = weights.masked_fill(~valid, float("-inf")).softmax(-1)
        pooled: Tensor = (weights[..., None] * hidden).sum(1)
        return pooled


@pair(
    PaddingMask,
    PaddingMaskMended,
    example={"b": 3, "s": 8},
    held=[{"b": 2, "s": 5}, {"b": 1, "s": 12}, {"b": 4, "s": 3}],
)
def arange_padding_mask_from_lengths(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8), torch.randint(1, s + 1, (b,))), {}


class Envelope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Conv1d(1, 2, 5, padding=2)

    def forward(self, wave: Tensor) -> Tensor:
        fade = torch.linspace(-1, 1, 24).abs()  # <- blame
        shaped: Tensor = self.filter(wave[:, None]) * (1 - fade)
        return shaped


class EnvelopeMended(Envelope):
    def forward(self, wave: Tensor) -> Tensor:
        fade = torch.linspace(-1, 1, wave.shape[-1]).abs()
        shaped: Tensor = self.filter(wave[:, None]) * (1 - fade)
        return shaped


@pair(
    Envelope,
    EnvelopeMended,
    example={"b": 2, "n": 24},
    held=[{"b": 3, "n": 17}, {"b": 1, "n": 40}, {"b": 5, "n": 9}],
)
def linspace_envelope_of_a_wave(b: int, n: int) -> Inputs:
    return (torch.randn(b, n),), {}


class Coordinates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(5, 4, 3, padding=1)

    def forward(self, image: Tensor) -> Any:
        rows, columns = torch.meshgrid(torch.arange(6), torch.arange(10), indexing="ij")  # <- blame
        places = torch.stack([rows, columns]).to(image.dtype) / 16
        places = places[None].expand(image.shape[0], -1, -1, -1)
        return self.conv(torch.cat([image, places], dim=1))


class CoordinatesMended(Coordinates):
    def forward(self, image: Tensor) -> Any:
        height, width = image.shape[2:]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        places = torch.stack([rows, columns]).to(image.dtype) / 16
        places = places[None].expand(image.shape[0], -1, -1, -1)
        return self.conv(torch.cat([image, places], dim=1))


@pair(
    Coordinates,
    CoordinatesMended,
    example={"b": 2, "h": 6, "w": 10},
    held=[{"b": 1, "h": 9, "w": 5}, {"b": 3, "h": 1, "w": 12}, {"b": 4, "h": 8, "w": 7}],
)
def meshgrid_of_height_and_width(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class RelativeBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(9, 2)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        here = torch.arange(7)[:, None]  # <- blame
        there = torch.arange(7)[None, :]  # <- blame
        distance = (there - here).clamp(-4, 4) + 4
        scores = query @ key.transpose(-1, -2)
        biased: Tensor = scores + self.bias(distance).permute(2, 0, 1)
        return biased.softmax(-1)


class RelativeBiasMended(RelativeBias):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        here = torch.arange(query.shape[2])[:, None]
        there = torch.arange(key.shape[2])[None, :]
        distance = (there - here).clamp(-4, 4) + 4
        scores = query @ key.transpose(-1, -2)
        biased: Tensor = scores + self.bias(distance).permute(2, 0, 1)
        return biased.softmax(-1)


@pair(
    RelativeBias,
    RelativeBiasMended,
    example={"b": 3, "s": 7},
    held=[{"b": 2, "s": 5}, {"b": 1, "s": 11}, {"b": 4, "s": 9}],
)
def arange_relative_distance(b: int, s: int) -> Inputs:
    return (torch.randn(b, 2, s, 4), torch.randn(b, 2, s, 4)), {}


class ArangeKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.1))

    def forward(self, events: Tensor) -> Tensor:
        age = torch.arange(start=0, end=9, dtype=torch.float32)  # <- blame
        return torch.einsum("bsd,s->bd", events, torch.exp(-self.rate * age))


class ArangeKeywordMended(ArangeKeyword):
    def forward(self, events: Tensor) -> Tensor:
        age = torch.arange(start=0, end=events.shape[1], dtype=torch.float32)
        return torch.einsum("bsd,s->bd", events, torch.exp(-self.rate * age))


@pair(
    ArangeKeyword,
    ArangeKeywordMended,
    example={"b": 2, "s": 9},
    held=[{"b": 1, "s": 4}, {"b": 3, "s": 15}, {"b": 6, "s": 7}],
)
def arange_end_by_keyword(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 5),), {}


# --- zeros, ones, full and eye --------------------------------------------------------------------------


class Chosen(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        best = scores.argmax(1, keepdim=True)
        hot = torch.zeros(3, 5).scatter_(1, best, 1.0)  # <- blame
        return hot + scores.softmax(1) - scores.softmax(1).detach()


class ChosenMended(Chosen):
    def forward(self, scores: Tensor) -> Tensor:
        best = scores.argmax(1, keepdim=True)
        hot = torch.zeros(scores.shape[0], scores.shape[1]).scatter_(1, best, 1.0)
        return hot + scores.softmax(1) - scores.softmax(1).detach()


@pair(
    Chosen,
    ChosenMended,
    example={"b": 3, "n": 5},
    held=[{"b": 2, "n": 4}, {"b": 5, "n": 8}, {"b": 4, "n": 2}],
)
def zeros_for_scatter(b: int, n: int) -> Inputs:
    return (torch.randn(b, n),), {}


class Owners(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(8, 8)

    def forward(self, table: Tensor, owner: Tensor) -> Any:
        hot = functional.one_hot(owner, 5).to(table.dtype)  # <- blame
        return hot @ self.scale(table)


class OwnersMended(Owners):
    def forward(self, table: Tensor, owner: Tensor) -> Any:
        hot = functional.one_hot(owner, table.shape[0]).to(table.dtype)
        return hot @ self.scale(table)


@pair(
    Owners,
    OwnersMended,
    example={"n": 5, "m": 7},
    held=[{"n": 3, "m": 6}, {"n": 8, "m": 4}, {"n": 1, "m": 9}],
)
def one_hot_over_rows_of_a_table(n: int, m: int) -> Inputs:
    return (torch.randn(n, 8), torch.arange(m) % n), {}


class CausalOnes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(12, 36)
        self.out = nn.Linear(12, 12)

    def forward(self, hidden: Tensor) -> Any:
        blocked = torch.ones(6, 6, dtype=torch.bool).triu(1)  # <- blame
        query, key, value = (
            part.unflatten(-1, (2, 6)).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1)
        )
        scores = query @ key.transpose(2, 3)
        scores = scores.masked_fill(blocked, float("-inf"))
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class CausalOnesMended(CausalOnes):
    def forward(self, hidden: Tensor) -> Any:
        blocked = torch.ones(hidden.shape[1], hidden.shape[1], dtype=torch.bool).triu(1)
        query, key, value = (
            part.unflatten(-1, (2, 6)).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1)
        )
        scores = query @ key.transpose(2, 3)
        scores = scores.masked_fill(blocked, float("-inf"))
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


@pair(
    CausalOnes,
    CausalOnesMended,
    example={"b": 3, "s": 6},
    held=[{"b": 2, "s": 4}, {"b": 1, "s": 9}, {"b": 5, "s": 8}],
)
def causal_mask_made_long_before_it_breaks(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 12),), {}


class DecoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: Tensor) -> Any:
        x = self.words(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(7)  # <- blame
        mixed, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.norm(x + mixed)


class DecoderLayerMended(DecoderLayer):
    def forward(self, tokens: Tensor) -> Any:
        x = self.words(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        mixed, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.norm(x + mixed)


@pair(
    DecoderLayer,
    DecoderLayerMended,
    example={"b": 2, "s": 7},
    held=[{"b": 1, "s": 5}, {"b": 3, "s": 10}, {"b": 4, "s": 2}],
)
def square_subsequent_mask(b: int, s: int) -> Inputs:
    return (torch.randint(0, 30, (b, s)),), {}


class CrossMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, target: Tensor, source: Tensor) -> Any:
        scores = self.query(target) @ self.key(source).mT
        ahead = torch.full((5, 9), -1e4).triu(3)  # <- blame
        return (scores + ahead).softmax(-1) @ source


class CrossMaskMended(CrossMask):
    def forward(self, target: Tensor, source: Tensor) -> Any:
        scores = self.query(target) @ self.key(source).mT
        ahead = torch.full((target.shape[1], source.shape[1]), -1e4).triu(3)
        return (scores + ahead).softmax(-1) @ source


@pair(
    CrossMask,
    CrossMaskMended,
    example={"b": 2, "t": 5, "s": 9},
    held=[{"b": 3, "t": 4, "s": 6}, {"b": 1, "t": 7, "s": 12}, {"b": 4, "t": 2, "s": 5}],
)
def cross_attention_mask(b: int, t: int, s: int) -> Inputs:
    return (torch.randn(b, t, 8), torch.randn(b, s, 8)), {}


class StartToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6)

    def forward(self, tokens: Tensor) -> Any:
        start = torch.full((4, 1), 2)  # <- blame
        shifted = torch.cat([start, tokens[:, :-1]], dim=1)
        return self.words(shifted) * self.words(tokens)


class StartTokenMended(StartToken):
    def forward(self, tokens: Tensor) -> Any:
        start = torch.full((tokens.shape[0], 1), 2)
        shifted = torch.cat([start, tokens[:, :-1]], dim=1)
        return self.words(shifted) * self.words(tokens)


@pair(
    StartToken,
    StartTokenMended,
    example={"b": 4, "s": 6},
    held=[{"b": 2, "s": 9}, {"b": 1, "s": 5}, {"b": 7, "s": 3}],
)
def full_column_of_start_tokens(b: int, s: int) -> Inputs:
    return (torch.randint(0, 20, (b, s)),), {}


class TokenShift(nn.Module):
    """The first 8 is the sequence, the second 8 the width: only one of them varies."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        shifted = x.new_zeros(2, 8, 8)  # <- blame
        shifted[:, 1:] = x[:, :-1]
        mix = self.gate(x).sigmoid()
        return x * mix + shifted * (1 - mix)


class TokenShiftMended(TokenShift):
    def forward(self, x: Tensor) -> Any:
        shifted = x.new_zeros(x.shape[0], x.shape[1], 8)
        shifted[:, 1:] = x[:, :-1]
        mix = self.gate(x).sigmoid()
        return x * mix + shifted * (1 - mix)


@pair(
    TokenShift,
    TokenShiftMended,
    example={"b": 2, "s": 8},
    held=[{"b": 3, "s": 5}, {"b": 4, "s": 11}, {"b": 5, "s": 3}],
)
def zeros_with_a_width_of_the_same_size(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8),), {}


class SelfLoops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 4)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Any:
        linked = adjacency + torch.eye(5)  # <- blame
        scale = linked.sum(-1).rsqrt()
        return self.mix((scale[:, None] * linked * scale) @ nodes).relu()


class SelfLoopsMended(SelfLoops):
    def forward(self, nodes: Tensor, adjacency: Tensor) -> Any:
        linked = adjacency + torch.eye(adjacency.shape[0])
        scale = linked.sum(-1).rsqrt()
        return self.mix((scale[:, None] * linked * scale) @ nodes).relu()


@pair(SelfLoops, SelfLoopsMended, example={"n": 5}, held=[{"n": 3}, {"n": 8}, {"n": 11}])
def eye_of_self_loops(n: int) -> Inputs:
    return (torch.randn(n, 6), (torch.rand(n, n) > 0.5).float()), {}


class Differences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.tensor(0.9))

    def forward(self, prices: Tensor) -> Tensor:
        steps = prices[:, 1:] - prices[:, :-1]
        weights = (self.decay * torch.ones(6)).cumprod(0)  # <- blame
        return (steps * weights).sum(1)


class DifferencesMended(Differences):
    def forward(self, prices: Tensor) -> Tensor:
        steps = prices[:, 1:] - prices[:, :-1]
        weights = (self.decay * torch.ones(prices.shape[1] - 1)).cumprod(0)
        return (steps * weights).sum(1)


@pair(
    Differences,
    DifferencesMended,
    example={"b": 2, "s": 7},
    held=[{"b": 3, "s": 4}, {"b": 1, "s": 12}, {"b": 5, "s": 9}],
)
def ones_for_one_less_than_the_sequence(b: int, s: int) -> Inputs:
    return (torch.randn(b, s),), {}


class Interleaved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 6), nn.Linear(4, 6)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        woven = torch.empty(3, 10, 6)  # <- blame
        woven[:, 0::2] = self.left(states)
        woven[:, 1::2] = self.right(actions)
        return woven.cumsum(1)


class InterleavedMended(Interleaved):
    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        woven = torch.empty(states.shape[0], 2 * states.shape[1], 6)
        woven[:, 0::2] = self.left(states)
        woven[:, 1::2] = self.right(actions)
        return woven.cumsum(1)


@pair(
    Interleaved,
    InterleavedMended,
    example={"b": 3, "s": 5},
    held=[{"b": 2, "s": 4}, {"b": 4, "s": 7}, {"b": 5, "s": 2}],
)
def empty_for_two_interleaved_sequences(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 4), torch.randn(b, s, 4)), {}


# --- Images ---------------------------------------------------------------------------------------------


class SmoothMels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(8, 8, 1)

    def forward(self, mels: Tensor) -> Any:
        coarse = functional.avg_pool1d(mels, 2)
        smooth = functional.interpolate(coarse, size=20, mode="nearest")  # <- blame
        return self.mix(mels - smooth)


class SmoothMelsMended(SmoothMels):
    def forward(self, mels: Tensor) -> Any:
        coarse = functional.avg_pool1d(mels, 2)
        smooth = functional.interpolate(coarse, size=mels.shape[2], mode="nearest")
        return self.mix(mels - smooth)


@pair(
    SmoothMels,
    SmoothMelsMended,
    example={"b": 2, "t": 20},
    held=[{"b": 3, "t": 13}, {"b": 1, "t": 32}, {"b": 4, "t": 6}],
)
def interpolate_mels_back(b: int, t: int) -> Inputs:
    return (torch.randn(b, 8, t),), {}


class Guided(nn.Module):
    """The attention map comes in its own size and is brought to that of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image: Tensor, attention: Tensor) -> Tensor:
        wide = functional.interpolate(attention, size=(10, 14), mode="bilinear")  # <- blame
        guided: Tensor = self.conv(image) * wide.sigmoid()
        return guided


class GuidedMended(Guided):
    def forward(self, image: Tensor, attention: Tensor) -> Tensor:
        wide = functional.interpolate(attention, size=image.shape[2:], mode="bilinear")
        guided: Tensor = self.conv(image) * wide.sigmoid()
        return guided


@pair(
    Guided,
    GuidedMended,
    example={"b": 2, "h": 10, "w": 14, "p": 3, "q": 5},
    held=[
        {"b": 1, "h": 9, "w": 12, "p": 4, "q": 6},
        {"b": 3, "h": 16, "w": 7, "p": 5, "q": 2},
        {"b": 4, "h": 6, "w": 20, "p": 3, "q": 8},
    ],
)
def interpolate_map_to_the_other_input(b: int, h: int, w: int, p: int, q: int) -> Inputs:
    return (torch.randn(b, 3, h, w), torch.randn(b, 1, p, q)), {}


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 2, stride=2)
        self.merge = nn.Conv2d(7, 4, 1)

    def forward(self, image: Tensor) -> Any:
        features = self.stem(image)
        small = functional.interpolate(image, size=(6, 10))  # <- blame
        return self.merge(torch.cat([features, small], dim=1))


class PyramidMended(Pyramid):
    def forward(self, image: Tensor) -> Any:
        features = self.stem(image)
        small = functional.interpolate(image, size=(image.shape[2] // 2, image.shape[3] // 2))
        return self.merge(torch.cat([features, small], dim=1))


@pair(
    Pyramid,
    PyramidMended,
    example={"b": 3, "h": 12, "w": 20},
    held=[{"b": 1, "h": 8, "w": 14}, {"b": 2, "h": 17, "w": 10}, {"b": 4, "h": 24, "w": 9}],
)
def interpolate_to_half_the_image(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(12, 12)

    def forward(self, image: Tensor) -> Tensor:
        columns = functional.unfold(image, 2, stride=2).transpose(1, 2)
        mixed = self.mix(columns).transpose(1, 2)
        return functional.fold(mixed, (8, 12), kernel_size=2, stride=2)  # <- blame


class FoldedMended(Folded):
    def forward(self, image: Tensor) -> Tensor:
        columns = functional.unfold(image, 2, stride=2).transpose(1, 2)
        mixed = self.mix(columns).transpose(1, 2)
        size = (image.shape[2], image.shape[3])
        return functional.fold(mixed, size, kernel_size=2, stride=2)


@pair(
    Folded,
    FoldedMended,
    example={"b": 2, "h": 8, "w": 12},
    held=[{"b": 1, "h": 6, "w": 10}, {"b": 3, "h": 2, "w": 16}, {"b": 4, "h": 14, "w": 4}],
)
def fold_to_the_image(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class Warped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pose = nn.Linear(3, 6)

    def forward(self, image: Tensor) -> Tensor:
        pose = self.pose(image.mean((2, 3))).view(-1, 2, 3)
        grid = functional.affine_grid(pose, [2, 3, 8, 10], align_corners=False)  # <- blame
        return functional.grid_sample(image, grid, align_corners=False) - image


class WarpedMended(Warped):
    def forward(self, image: Tensor) -> Tensor:
        pose = self.pose(image.mean((2, 3))).view(-1, 2, 3)
        grid = functional.affine_grid(pose, list(image.shape), align_corners=False)
        return functional.grid_sample(image, grid, align_corners=False) - image


@pair(
    Warped,
    WarpedMended,
    example={"b": 2, "h": 8, "w": 10},
    held=[{"b": 1, "h": 6, "w": 9}, {"b": 3, "h": 12, "w": 7}, {"b": 4, "h": 8, "w": 11}],
)
def affine_grid_of_the_whole_shape(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class LayerWithSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, stride=2, padding=1)
        self.up = nn.Upsample(size=(12, 18))  # <- also

    def forward(self, image: Tensor) -> Tensor:
        low: Tensor = self.up(self.down(image))  # <- blame
        return image - low


class LayerWithSizeMended(LayerWithSize):
    def forward(self, image: Tensor) -> Tensor:
        low = functional.interpolate(self.down(image), size=image.shape[2:])
        return image - low


@pair(
    LayerWithSize,
    LayerWithSizeMended,
    example={"b": 2, "h": 12, "w": 18},
    held=[{"b": 1, "h": 9, "w": 14}, {"b": 3, "h": 20, "w": 11}, {"b": 4, "h": 12, "w": 25}],
)
def upsample_layer_with_a_size(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class SampleNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(self.mix(x), (6, 8))  # <- blame


class SampleNormMended(SampleNorm):
    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(self.mix(x), (x.shape[1], 8))


@pair(
    SampleNorm,
    SampleNormMended,
    example={"b": 3, "s": 6},
    held=[{"b": 2, "s": 4}, {"b": 1, "s": 9}, {"b": 5, "s": 1}],
)
def layer_norm_over_the_sequence(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8),), {}


# --- Positional tables ----------------------------------------------------------------------------------


class SlicedTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.places = nn.Parameter(torch.randn(1, 32, 8))

    def forward(self, tokens: Tensor) -> Any:
        return self.words(tokens) + self.places[:, :6]  # <- blame


class SlicedTableMended(SlicedTable):
    def forward(self, tokens: Tensor) -> Any:
        return self.words(tokens) + self.places[:, : tokens.shape[1]]


@pair(
    SlicedTable,
    SlicedTableMended,
    example={"b": 3, "s": 6},
    held=[{"b": 2, "s": 4}, {"b": 1, "s": 31}, {"b": 5, "s": 9}],
)
def slice_of_a_positional_table(b: int, s: int) -> Inputs:
    return (torch.randint(0, 50, (b, s)),), {}


def sinusoids(width: int) -> Tensor:
    places = torch.arange(10, dtype=torch.float32)[:, None]  # <- blame
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.cat([torch.sin(places * rates), torch.cos(places * rates)], dim=-1)


def sinusoids_of(length: int, width: int) -> Tensor:
    places = torch.arange(length, dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.cat([torch.sin(places * rates), torch.cos(places * rates)], dim=-1)


class Sinusoidal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)

    def forward(self, hidden: Tensor) -> Any:
        return self.norm(hidden + sinusoids(12))


class SinusoidalMended(Sinusoidal):
    def forward(self, hidden: Tensor) -> Any:
        return self.norm(hidden + sinusoids_of(hidden.shape[1], 12))


@pair(
    Sinusoidal,
    SinusoidalMended,
    example={"b": 2, "s": 10},
    held=[{"b": 3, "s": 7}, {"b": 1, "s": 15}, {"b": 4, "s": 5}],
)
def sinusoids_from_a_helper_function(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 12),), {}


def ramp(n: int = 6) -> Tensor:  # <- blame
    return torch.arange(n).float().log1p()


class DefaultArgument(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(1))

    def forward(self, scores: Tensor) -> Tensor:
        return (scores - self.slope * ramp()).softmax(-1)  # <- also


class DefaultArgumentMended(DefaultArgument):
    def forward(self, scores: Tensor) -> Tensor:
        return (scores - self.slope * ramp(scores.shape[-1])).softmax(-1)


@pair(
    DefaultArgument,
    DefaultArgumentMended,
    example={"b": 4, "s": 6},
    held=[{"b": 2, "s": 5}, {"b": 3, "s": 13}, {"b": 1, "s": 8}],
)
def default_argument_of_a_function(b: int, s: int) -> Inputs:
    return (torch.randn(b, s),), {}


class SetInInit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seq = 6  # <- also
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(40, 8)

    def forward(self, tokens: Tensor) -> Any:
        positions = torch.arange(self.seq, device=tokens.device)  # <- blame
        return self.words(tokens) + self.places(positions)


class SetInInitMended(SetInInit):
    def forward(self, tokens: Tensor) -> Any:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.words(tokens) + self.places(positions)


@pair(
    SetInInit,
    SetInInitMended,
    example={"b": 2, "s": 6},
    held=[{"b": 3, "s": 4}, {"b": 1, "s": 11}, {"b": 5, "s": 9}],
)
def attribute_set_in_init(b: int, s: int) -> Inputs:
    return (torch.randint(0, 20, (b, s)),), {}


FRAMES = 9  # <- also


class ModuleConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(8, 12)

    def forward(self, mels: Tensor) -> Any:
        lifted = self.lift(mels.transpose(1, 2))
        return lifted.reshape(-1, FRAMES, 3, 4).amax(2)  # <- blame


class ModuleConstantMended(ModuleConstant):
    def forward(self, mels: Tensor) -> Any:
        lifted = self.lift(mels.transpose(1, 2))
        return lifted.reshape(-1, mels.shape[2], 3, 4).amax(2)


@pair(
    ModuleConstant,
    ModuleConstantMended,
    example={"b": 2, "t": 9},
    held=[{"b": 1, "t": 5}, {"b": 4, "t": 7}, {"b": 3, "t": 16}],
)
def constant_of_the_module(b: int, t: int) -> Inputs:
    return (torch.randn(b, 8, t),), {}


class BufferedTable(nn.Module):
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids_of(11, 8), persistent=False)  # <- also

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * 2.0 + self.table  # <- blame


class BufferedTableMended(BufferedTable):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * 2.0 + sinusoids_of(hidden.shape[1], 8)


@pair(
    BufferedTable,
    BufferedTableMended,
    example={"b": 2, "s": 11},
    held=[{"b": 3, "s": 6}, {"b": 1, "s": 14}, {"b": 4, "s": 9}],
)
def buffer_computed_for_one_length(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8),), {}


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = 100.0

    def forward(self, x: Tensor) -> Tensor:
        rates = self.base ** (-torch.arange(0, 3) / 3)
        angles = torch.outer(torch.arange(7).float(), rates)  # <- blame
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class RotaryMended(Rotary):
    def forward(self, x: Tensor) -> Tensor:
        rates = self.base ** (-torch.arange(0, 3) / 3)
        angles = torch.outer(torch.arange(x.shape[-2]).float(), rates)
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class RotaryAttention(nn.Module):
    """One submodule, used for queries and for keys."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(8, 6)
        self.rotate = Rotary()

    def forward(self, hidden: Tensor) -> Any:
        query = self.rotate(self.query(hidden))
        key = self.rotate(self.key(hidden))
        return (query @ key.mT).softmax(-1) @ self.value(hidden)


class RotaryAttentionMended(RotaryAttention):
    def __init__(self) -> None:
        super().__init__()
        self.rotate = RotaryMended()


@pair(
    RotaryAttention,
    RotaryAttentionMended,
    example={"b": 3, "s": 7},
    held=[{"b": 2, "s": 4}, {"b": 1, "s": 10}, {"b": 5, "s": 9}],
)
def rotary_submodule_used_twice(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8),), {}


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 6)

    def forward(self, features: Tensor) -> Any:
        gate = self.gate(features.mean((2, 3))).sigmoid()
        return features * gate.view(4, 6, 1, 1)  # <- blame


class SqueezeMended(Squeeze):
    def forward(self, features: Tensor) -> Any:
        gate = self.gate(features.mean((2, 3))).sigmoid()
        return features * gate.view(features.shape[0], 6, 1, 1)


class Block(nn.Module):
    squeeze: type[Squeeze] = Squeeze

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), self.squeeze())

    def forward(self, x: Tensor) -> Any:
        return x + self.body(x)


class BlockMended(Block):
    squeeze = SqueezeMended


class DeepNetwork(nn.Module):
    block: type[Block] = Block

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.blocks = nn.ModuleList([self.block() for _ in range(2)])

    def forward(self, image: Tensor) -> Any:
        x = self.stem(image)
        for block in self.blocks:
            x = block(x)
        return x.mean((2, 3))


class DeepNetworkMended(DeepNetwork):
    block = BlockMended


@pair(
    DeepNetwork,
    DeepNetworkMended,
    example={"b": 4, "h": 5, "w": 7},
    held=[{"b": 1, "h": 6, "w": 8}, {"b": 2, "h": 9, "w": 3}, {"b": 7, "h": 5, "w": 10}],
)
def view_in_a_submodule_of_a_submodule(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


# --- Initial states and loops ---------------------------------------------------------------------------


class LongState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)

    def forward(self, frames: Tensor) -> Any:
        start = torch.zeros(2, 4, 8), torch.zeros(2, 4, 8)  # <- blame
        hidden, (last, _) = self.lstm(frames, start)
        return hidden, last


class LongStateMended(LongState):
    def forward(self, frames: Tensor) -> Any:
        batch = frames.shape[0]
        start = torch.zeros(2, batch, 8), torch.zeros(2, batch, 8)
        hidden, (last, _) = self.lstm(frames, start)
        return hidden, last


@pair(
    LongState,
    LongStateMended,
    example={"b": 4, "t": 7},
    held=[{"b": 2, "t": 5}, {"b": 1, "t": 9}, {"b": 6, "t": 3}],
)
def lstm_states_of_a_literal_batch(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 6),), {}


class NamedBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.forwards, self.backwards = nn.GRU(6, 4), nn.GRU(6, 4)

    def forward(self, frames: Tensor) -> Any:
        batch = 5  # <- blame
        ahead, _ = self.forwards(frames, torch.zeros(1, batch, 4))
        behind, _ = self.backwards(frames.flip(0), torch.zeros(1, batch, 4))
        return torch.cat([ahead, behind.flip(0)], dim=-1)


class NamedBatchMended(NamedBatch):
    def forward(self, frames: Tensor) -> Any:
        batch = frames.shape[1]
        ahead, _ = self.forwards(frames, torch.zeros(1, batch, 4))
        behind, _ = self.backwards(frames.flip(0), torch.zeros(1, batch, 4))
        return torch.cat([ahead, behind.flip(0)], dim=-1)


@pair(
    NamedBatch,
    NamedBatchMended,
    example={"t": 7, "b": 5},
    held=[{"t": 4, "b": 3}, {"t": 9, "b": 1}, {"t": 2, "b": 8}],
)
def gru_states_share_one_local_literal(t: int, b: int) -> Inputs:
    return (torch.randn(t, b, 6),), {}


class PermutedState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(5, 7, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        embedded = words.permute(1, 0, 2)
        start = words.new_zeros((2, 3, 7))  # <- blame
        hidden, _ = self.rnn(embedded, start)
        hidden = hidden.permute(1, 0, 2)
        valid = torch.arange(words.shape[1]) < lengths[:, None]
        total: Tensor = (hidden * valid[..., None]).sum(1)
        return total / lengths[:, None]


class PermutedStateMended(PermutedState):
    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        embedded = words.permute(1, 0, 2)
        start = words.new_zeros((2, words.shape[0], 7))
        hidden, _ = self.rnn(embedded, start)
        hidden = hidden.permute(1, 0, 2)
        valid = torch.arange(words.shape[1]) < lengths[:, None]
        total: Tensor = (hidden * valid[..., None]).sum(1)
        return total / lengths[:, None]


@pair(
    PermutedState,
    PermutedStateMended,
    example={"b": 3, "s": 6},
    held=[{"b": 2, "s": 8}, {"b": 1, "s": 4}, {"b": 5, "s": 9}],
)
def rnn_state_after_a_permute(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 5), torch.randint(1, s + 1, (b,))), {}


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)
        self.skip = nn.Linear(4, 6)

    def forward(self, signal: Tensor) -> Any:
        hidden = torch.zeros(3, 6)  # <- blame
        outputs = []
        for step in range(5):  # <- blame
            hidden = self.cell(signal[:, step], hidden)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1) + self.skip(signal)


class CellLoopMended(CellLoop):
    def forward(self, signal: Tensor) -> Any:
        hidden = torch.zeros(signal.shape[0], 6)
        outputs = []
        for step in range(signal.shape[1]):
            hidden = self.cell(signal[:, step], hidden)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1) + self.skip(signal)


@pair(
    CellLoop,
    CellLoopMended,
    example={"b": 3, "t": 5},
    held=[{"b": 2, "t": 4}, {"b": 1, "t": 8}, {"b": 5, "t": 7}],
)
def cell_in_a_loop_with_its_state(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 4),), {}


class Smoothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        level, levels = x[:, 0], []
        for step in range(6):  # <- blame
            level = self.rate * x[:, step] + (1 - self.rate) * level
            levels.append(level)
        return x - torch.stack(levels, dim=1)


class SmoothingMended(Smoothing):
    def forward(self, x: Tensor) -> Tensor:
        level, levels = x[:, 0], []
        for step in range(x.shape[1]):
            level = self.rate * x[:, step] + (1 - self.rate) * level
            levels.append(level)
        return x - torch.stack(levels, dim=1)


@pair(
    Smoothing,
    SmoothingMended,
    example={"b": 2, "s": 6},
    held=[{"b": 3, "s": 4}, {"b": 1, "s": 9}, {"b": 5, "s": 1}],
)
def range_of_steps_stacked(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 3),), {}


# --- Several inputs -------------------------------------------------------------------------------------


class SplitAgain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, text: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([text, audio], dim=1)
        weights = (joined @ joined.transpose(1, 2)).softmax(-1)
        mixed = self.mix(weights @ joined)
        first, second = mixed.split([3, 4], dim=1)  # <- blame
        return first + text, second + audio


class SplitAgainMended(SplitAgain):
    def forward(self, text: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([text, audio], dim=1)
        weights = (joined @ joined.transpose(1, 2)).softmax(-1)
        mixed = self.mix(weights @ joined)
        first, second = mixed.split([text.shape[1], audio.shape[1]], dim=1)
        return first + text, second + audio


@pair(
    SplitAgain,
    SplitAgainMended,
    example={"b": 2, "s": 3, "t": 4},
    held=[{"b": 1, "s": 5, "t": 2}, {"b": 3, "s": 7, "t": 6}, {"b": 4, "s": 1, "t": 9}],
)
def split_sizes_of_joined_sequences(b: int, s: int, t: int) -> Inputs:
    return (torch.randn(b, s, 8), torch.randn(b, t, 8)), {}


class Prompted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, prompt: Tensor, tokens: Tensor) -> Tensor:
        hidden = self.norm(torch.cat([prompt, tokens], dim=1)).cumsum(1)
        answer: Tensor = hidden.narrow(1, start=4, length=7)  # <- blame
        return answer * tokens


class PromptedMended(Prompted):
    def forward(self, prompt: Tensor, tokens: Tensor) -> Tensor:
        hidden = self.norm(torch.cat([prompt, tokens], dim=1)).cumsum(1)
        answer: Tensor = hidden.narrow(1, start=prompt.shape[1], length=tokens.shape[1])
        return answer * tokens


@pair(
    Prompted,
    PromptedMended,
    example={"b": 3, "p": 4, "s": 7},
    held=[{"b": 2, "p": 4, "s": 5}, {"b": 1, "p": 4, "s": 10}, {"b": 5, "p": 4, "s": 8}],
)
def narrow_by_keyword_behind_a_prompt(b: int, p: int, s: int) -> Inputs:
    return (torch.randn(b, p, 6), torch.randn(b, s, 6)), {}


class TwoTables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left_places = nn.Parameter(torch.randn(24, 8))
        self.right_places = nn.Parameter(torch.randn(24, 8))

    def forward(self, question: Tensor, passage: Tensor) -> Tensor:
        question = question + self.left_places[:5]  # <- blame
        passage = passage + self.right_places[:8]  # <- blame
        return torch.bmm(question, passage.transpose(1, 2)).softmax(-1)


class TwoTablesMended(TwoTables):
    def forward(self, question: Tensor, passage: Tensor) -> Tensor:
        question = question + self.left_places[: question.shape[1]]
        passage = passage + self.right_places[: passage.shape[1]]
        return torch.bmm(question, passage.transpose(1, 2)).softmax(-1)


@pair(
    TwoTables,
    TwoTablesMended,
    example={"b": 2, "q": 5, "p": 8},
    held=[{"b": 3, "q": 4, "p": 6}, {"b": 1, "q": 9, "p": 11}, {"b": 4, "q": 5, "p": 17}],
)
def two_tables_for_two_sequences(b: int, q: int, p: int) -> Inputs:
    return (torch.randn(b, q, 8), torch.randn(b, p, 8)), {}


class TextAndImage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(30, 8), nn.Embedding(2, 8)
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, text: Tensor, image: Tensor) -> Any:
        words = self.words(text)
        patches = self.patches(image).flatten(2).transpose(1, 2)
        words = words + self.kinds(torch.zeros(1, 7, dtype=torch.long))  # <- blame
        patches = patches + self.kinds(torch.ones(1, 6, dtype=torch.long))  # <- blame
        hidden = torch.cat([words, patches], dim=1)
        mixed, _ = self.attention(hidden, hidden, hidden)
        return self.head(mixed[:, 0])


class TextAndImageMended(TextAndImage):
    def forward(self, text: Tensor, image: Tensor) -> Any:
        words = self.words(text)
        patches = self.patches(image).flatten(2).transpose(1, 2)
        count = (image.shape[2] // 4) * (image.shape[3] // 4)
        words = words + self.kinds(torch.zeros(1, text.shape[1], dtype=torch.long))
        patches = patches + self.kinds(torch.ones(1, count, dtype=torch.long))
        hidden = torch.cat([words, patches], dim=1)
        mixed, _ = self.attention(hidden, hidden, hidden)
        return self.head(mixed[:, 0])


@pair(
    TextAndImage,
    TextAndImageMended,
    example={"b": 2, "s": 7, "h": 8, "w": 12},
    held=[
        {"b": 3, "s": 5, "h": 12, "w": 16},
        {"b": 1, "s": 9, "h": 20, "w": 4},
        {"b": 4, "s": 11, "h": 16, "w": 9},
    ],
)
def kinds_of_text_and_image(b: int, s: int, h: int, w: int) -> Inputs:
    return (torch.randint(0, 30, (b, s)), torch.randn(b, 3, h, w)), {}


class DictInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(25, 6), nn.Embedding(50, 6)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden = self.words(batch["tokens"]) + self.places.weight[:8]  # <- blame
        weights = batch["mask"].float()
        pooled = (hidden * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)
        return {"hidden": hidden, "pooled": pooled}


class DictInputMended(DictInput):
    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden = self.words(batch["tokens"]) + self.places.weight[: batch["tokens"].shape[1]]
        weights = batch["mask"].float()
        pooled = (hidden * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)
        return {"hidden": hidden, "pooled": pooled}


@pair(
    DictInput,
    DictInputMended,
    example={"b": 3, "s": 8},
    held=[{"b": 2, "s": 5}, {"b": 1, "s": 12}, {"b": 4, "s": 10}],
)
def slice_for_tokens_in_a_dict(b: int, s: int) -> Inputs:
    mask = torch.arange(s)[None, :] <= torch.randint(0, s, (b, 1))
    return ({"tokens": torch.randint(0, 25, (b, s)), "mask": mask},), {}


class PadToOther(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(5, 5)

    def forward(self, short: Tensor, long: Tensor) -> Tensor:
        missing = 9 - short.shape[1]  # <- blame
        padded = functional.pad(self.mix(short), (0, 0, 0, missing))
        return padded + long


class PadToOtherMended(PadToOther):
    def forward(self, short: Tensor, long: Tensor) -> Tensor:
        missing = long.shape[1] - short.shape[1]
        padded = functional.pad(self.mix(short), (0, 0, 0, missing))
        return padded + long


@pair(
    PadToOther,
    PadToOtherMended,
    example={"b": 2, "s": 4, "t": 9},
    held=[{"b": 3, "s": 5, "t": 7}, {"b": 1, "s": 2, "t": 12}, {"b": 4, "s": 1, "t": 6}],
)
def pad_to_the_length_of_the_other(b: int, s: int, t: int) -> Inputs:
    return (torch.randn(b, s, 5), torch.randn(b, t, 5)), {}


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.slope = nn.Parameter(torch.tensor(0.5))

    def forward(self, tokens: Tensor, past_keys: Tensor, past_values: Tensor) -> Any:
        keys = torch.cat([past_keys, self.key(tokens)], dim=1)
        values = torch.cat([past_values, self.value(tokens)], dim=1)
        there = torch.arange(7)  # <- blame
        here = there[-3:, None]  # <- blame
        distance = here - there
        scores = self.query(tokens) @ keys.transpose(1, 2) - self.slope * distance
        weights = scores.masked_fill(distance < 0, float("-inf")).softmax(-1)
        return weights @ values, keys, values


class CachedMended(Cached):
    def forward(self, tokens: Tensor, past_keys: Tensor, past_values: Tensor) -> Any:
        keys = torch.cat([past_keys, self.key(tokens)], dim=1)
        values = torch.cat([past_values, self.value(tokens)], dim=1)
        there = torch.arange(past_keys.shape[1] + tokens.shape[1])
        here = there[-tokens.shape[1] :, None]
        distance = here - there
        scores = self.query(tokens) @ keys.transpose(1, 2) - self.slope * distance
        weights = scores.masked_fill(distance < 0, float("-inf")).softmax(-1)
        return weights @ values, keys, values


@pair(
    Cached,
    CachedMended,
    example={"b": 2, "past": 4, "new": 3},
    held=[{"b": 3, "past": 6, "new": 2}, {"b": 1, "past": 9, "new": 5}, {"b": 4, "past": 7, "new": 1}],
)
def distances_in_a_cache(b: int, past: int, new: int) -> Inputs:
    return (torch.randn(b, new, 8), torch.randn(b, past, 8), torch.randn(b, past, 8)), {}


# --- Graphs ---------------------------------------------------------------------------------------------


class Messages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(8, 8), nn.Linear(16, 8)

    def forward(self, nodes: Tensor, edges: Tensor) -> Any:
        source, target = edges
        messages = self.message(nodes)[source].relu()
        inbox = torch.zeros(5, 8).index_add_(0, target, messages)  # <- blame
        return self.update(torch.cat([nodes, inbox], dim=-1))


class MessagesMended(Messages):
    def forward(self, nodes: Tensor, edges: Tensor) -> Any:
        source, target = edges
        messages = self.message(nodes)[source].relu()
        inbox = torch.zeros(nodes.shape[0], 8).index_add_(0, target, messages)
        return self.update(torch.cat([nodes, inbox], dim=-1))


@pair(
    Messages,
    MessagesMended,
    example={"n": 5, "e": 9},
    held=[{"n": 3, "e": 7}, {"n": 8, "e": 4}, {"n": 12, "e": 20}],
)
def inbox_of_graph_nodes(n: int, e: int) -> Inputs:
    return (torch.randn(n, 8), torch.randint(0, n, (2, e))), {}


class Degrees(nn.Module):
    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        degree = torch.zeros(6).scatter_add_(0, edges[1], torch.ones(10))  # <- blame
        return nodes / degree.clamp(min=1)[:, None]


class DegreesMended(Degrees):
    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        degree = torch.zeros(nodes.shape[0]).scatter_add_(0, edges[1], torch.ones(edges.shape[1]))
        return nodes / degree.clamp(min=1)[:, None]


@pair(
    Degrees,
    DegreesMended,
    example={"n": 6, "e": 10},
    held=[{"n": 4, "e": 13}, {"n": 9, "e": 7}, {"n": 6, "e": 15}],
)
def degrees_from_nodes_and_edges(n: int, e: int) -> Inputs:
    return (torch.randn(n, 4), torch.randint(0, n, (2, e))), {}


# --- Literals that two dims explain at the example, of which one is right ----------------------------------


class BatchLikeSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(16, 6)

    def forward(self, x: Tensor) -> Any:
        return x + self.places(torch.arange(4))  # <- blame


class BatchLikeSequenceMended(BatchLikeSequence):
    def forward(self, x: Tensor) -> Any:
        return x + self.places(torch.arange(x.shape[1]))


@pair(
    BatchLikeSequence,
    BatchLikeSequenceMended,
    example={"b": 4, "s": 4},
    held=[{"b": 2, "s": 3}, {"b": 3, "s": 7}, {"b": 5, "s": 9}],
)
def batch_like_sequence_at_the_example(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 6),), {}


class SquareImage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        height = torch.linspace(-1, 1, 6)[:, None]  # <- blame
        tilted: Tensor = self.conv(image) + height
        return tilted.relu()


class SquareImageMended(SquareImage):
    def forward(self, image: Tensor) -> Tensor:
        height = torch.linspace(-1, 1, image.shape[2])[:, None]
        tilted: Tensor = self.conv(image) + height
        return tilted.relu()


@pair(
    SquareImage,
    SquareImageMended,
    example={"b": 2, "h": 6, "w": 6},
    held=[{"b": 3, "h": 5, "w": 8}, {"b": 1, "h": 10, "w": 7}, {"b": 4, "h": 9, "w": 11}],
)
def square_image_at_the_example(b: int, h: int, w: int) -> Inputs:
    return (torch.randn(b, 3, h, w),), {}


class EqualLengths(nn.Module):
    """The same number twice, once for each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(6, 6, bias=False)

    def forward(self, target: Tensor, source: Tensor) -> Any:
        scores = self.query(target) @ source.mT
        near = torch.zeros(5, 5).fill_(-1e4).triu(2)  # <- blame
        return (scores + near).softmax(-1)


class EqualLengthsMended(EqualLengths):
    def forward(self, target: Tensor, source: Tensor) -> Any:
        scores = self.query(target) @ source.mT
        near = torch.zeros(target.shape[1], source.shape[1]).fill_(-1e4).triu(2)
        return (scores + near).softmax(-1)


@pair(
    EqualLengths,
    EqualLengthsMended,
    example={"b": 3, "t": 5, "s": 5},
    held=[{"b": 2, "t": 4, "s": 7}, {"b": 1, "t": 8, "s": 6}, {"b": 4, "t": 3, "s": 9}],
)
def equal_lengths_at_the_example(b: int, t: int, s: int) -> Inputs:
    return (torch.randn(b, t, 6), torch.randn(b, s, 6)), {}


class BatchLikeState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(5, 6)

    def forward(self, frames: Tensor) -> Any:
        start = torch.zeros(1, 3, 6)  # <- blame
        return self.gru(frames.transpose(0, 1), start)[0].transpose(0, 1)


class BatchLikeStateMended(BatchLikeState):
    def forward(self, frames: Tensor) -> Any:
        start = torch.zeros(1, frames.shape[0], 6)
        return self.gru(frames.transpose(0, 1), start)[0].transpose(0, 1)


@pair(
    BatchLikeState,
    BatchLikeStateMended,
    example={"b": 3, "t": 3},
    held=[{"b": 2, "t": 5}, {"b": 1, "t": 4}, {"b": 6, "t": 8}],
)
def state_where_batch_is_like_time(b: int, t: int) -> Inputs:
    return (torch.randn(b, t, 5),), {}


# --- Where nobody may guess -----------------------------------------------------------------------------


class LearnedBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.zeros(6, 8))  # <- also

    def forward(self, x: Tensor) -> Any:
        return self.proj(x) + self.bias  # <- blame


@pair(
    LearnedBias,
    LearnedBias,
    example={"b": 3, "s": 6},
    held=[{"b": 2, "s": 4}, {"b": 1, "s": 9}, {"b": 5, "s": 7}],
    fixable=False,
)
def learned_bias_cannot_grow(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8),), {}


class MixedTokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.across = nn.Linear(10, 10)  # <- also
        self.within = nn.Linear(8, 8)

    def forward(self, patches: Tensor) -> Any:
        mixed = self.across(self.norm(patches).transpose(1, 2)).transpose(1, 2)  # <- blame
        return self.within(patches + mixed)


@pair(
    MixedTokens,
    MixedTokens,
    example={"b": 2, "n": 10},
    held=[{"b": 1, "n": 6}, {"b": 3, "n": 15}, {"b": 4, "n": 9}],
    fixable=False,
)
def linear_layer_over_the_tokens_cannot_grow(b: int, n: int) -> Inputs:
    return (torch.randn(b, n, 8),), {}


class Regrouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Any:
        rows = self.mix(x).flatten(0, 1)
        return rows.view(4, -1, 6).cumsum(1)  # <- blame


class RegroupedByBatch(Regrouped):
    def forward(self, x: Tensor) -> Any:
        rows = self.mix(x).flatten(0, 1)
        return rows.view(x.shape[0], -1, 6).cumsum(1)


class RegroupedBySequence(Regrouped):
    def forward(self, x: Tensor) -> Any:
        rows = self.mix(x).flatten(0, 1)
        return rows.view(x.shape[1], -1, 6).cumsum(1)


@pair(
    Regrouped,
    RegroupedByBatch,
    example={"b": 4, "s": 4},
    held=[{"b": 2, "s": 7}, {"b": 3, "s": 5}, {"b": 1, "s": 6}],
    other=RegroupedBySequence,
)
def groups_by_batch_or_by_sequence(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 8),), {}


class Gathered(nn.Module):
    """What arrives at each place: as many places as senders, or as messages?"""

    def __init__(self) -> None:
        super().__init__()
        self.write = nn.Linear(5, 4)

    def forward(self, senders: Tensor, origin: Tensor, target: Tensor) -> Tensor:
        messages: Tensor = self.write(senders)[origin]
        return torch.zeros(6, 4).index_add_(0, target, messages)  # <- blame


class GatheredBySenders(Gathered):
    def forward(self, senders: Tensor, origin: Tensor, target: Tensor) -> Tensor:
        messages: Tensor = self.write(senders)[origin]
        return torch.zeros(senders.shape[0], 4).index_add_(0, target, messages)


class GatheredByMessages(Gathered):
    def forward(self, senders: Tensor, origin: Tensor, target: Tensor) -> Tensor:
        messages: Tensor = self.write(senders)[origin]
        return torch.zeros(target.shape[0], 4).index_add_(0, target, messages)


@pair(
    Gathered,
    GatheredBySenders,
    example={"n": 6, "e": 6},
    held=[{"n": 8, "e": 11}, {"n": 7, "e": 9}, {"n": 13, "e": 16}],
    other=GatheredByMessages,
)
def places_by_senders_or_by_messages(n: int, e: int) -> Inputs:
    return (torch.randn(n, 5), torch.randint(0, n, (e,)), torch.arange(e) % n), {}


class SquareScores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(x)
        return scores.transpose(0, 1).reshape(4, 4).log_softmax(1)  # <- blame


class SquareScoresBySequence(SquareScores):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(x)
        return scores.transpose(0, 1).reshape(x.shape[1], x.shape[0]).log_softmax(1)


class SquareScoresByBatch(SquareScores):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(x)
        return scores.transpose(0, 1).reshape(x.shape[0], x.shape[1]).log_softmax(1)


@pair(
    SquareScores,
    SquareScoresBySequence,
    example={"b": 4, "s": 4},
    held=[{"b": 2, "s": 5}, {"b": 3, "s": 7}, {"b": 5, "s": 6}],
    other=SquareScoresByBatch,
)
def square_of_scores_either_way(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 6),), {}


class MeanWeights(nn.Module):
    """The first 7 is the sequence, and the second may be: a mean, or a scale that someone chose."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        weights = torch.full((7,), 1 / 7)  # <- blame
        return self.head(torch.einsum("bsd,s->bd", x, weights))


class MeanWeightsMended(MeanWeights):
    def forward(self, x: Tensor) -> Any:
        weights = torch.full((x.shape[1],), 1 / x.shape[1])
        return self.head(torch.einsum("bsd,s->bd", x, weights))


class MeanWeightsScaled(MeanWeights):
    def forward(self, x: Tensor) -> Any:
        weights = torch.full((x.shape[1],), 1 / 7)
        return self.head(torch.einsum("bsd,s->bd", x, weights))


@pair(
    MeanWeights,
    MeanWeightsMended,
    example={"b": 3, "s": 7},
    held=[{"b": 2, "s": 4}, {"b": 1, "s": 9}, {"b": 5, "s": 12}],
    other=MeanWeightsScaled,
)
def weights_of_a_mean_or_of_a_scaled_sum(b: int, s: int) -> Inputs:
    return (torch.randn(b, s, 6),), {}


class CacheOffset(nn.Module):
    """The slice must grow with the tokens; it may begin behind the cache, or always at 4."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(8, 8)
        self.places = nn.Parameter(torch.randn(32, 8))

    def forward(self, tokens: Tensor, past: Tensor) -> Tensor:
        keys: Tensor = self.key(tokens + self.places[4:7])  # <- blame
        return torch.cat([past, keys], dim=1)


class CacheOffsetBehindPast(CacheOffset):
    def forward(self, tokens: Tensor, past: Tensor) -> Tensor:
        keys: Tensor = self.key(tokens + self.places[past.shape[1] : past.shape[1] + tokens.shape[1]])
        return torch.cat([past, keys], dim=1)


class CacheOffsetFixed(CacheOffset):
    def forward(self, tokens: Tensor, past: Tensor) -> Tensor:
        keys: Tensor = self.key(tokens + self.places[4 : 4 + tokens.shape[1]])
        return torch.cat([past, keys], dim=1)


@pair(
    CacheOffset,
    CacheOffsetBehindPast,
    example={"b": 2, "past": 4, "new": 3},
    held=[{"b": 3, "past": 6, "new": 2}, {"b": 1, "past": 9, "new": 5}, {"b": 4, "past": 2, "new": 7}],
    other=CacheOffsetFixed,
)
def offset_behind_a_cache_or_fixed(b: int, past: int, new: int) -> Inputs:
    return (torch.randn(b, new, 8), torch.randn(b, past, 8)), {}


PAIRS: tuple[Pair, ...] = tuple(_found)
