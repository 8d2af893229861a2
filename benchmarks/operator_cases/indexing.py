"""Operators that take tensors apart, put them together, and look places up."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Case, case

TOKENS = "b t 8"


def assigned(x: Tensor, v: Tensor) -> Tensor:
    made = x.clone()
    made[:, : v.shape[1]] = v
    return made


def bags(ids: Tensor) -> Tensor:
    return F.embedding_bag(ids, torch.arange(40.0).view(10, 4), torch.tensor([0, 2, 4]), mode="sum")


def ragged(x: Tensor, lengths: Tensor) -> Tensor:
    return x * (torch.arange(x.shape[1]) <= lengths[:, None])


def jagged(x: Tensor, m: Tensor) -> Tensor:
    """The valid tokens in a row, and back in their places."""
    tokens = x[m] * 2
    return torch.zeros_like(x).masked_scatter(m.unsqueeze(-1), tokens)


GROUPS: dict[str, list[Case]] = {
    "Pieces": [
        case("tensor_split, 3", lambda x: torch.tensor_split(x, 3, 1), TOKENS),
        case("tensor_split, indices", lambda x: torch.tensor_split(x, [2, 5], 1), TOKENS),
        case("chunk", lambda x: torch.chunk(x, 2, 1), TOKENS, t=2),
        case("chunk, 3", lambda x: torch.chunk(x, 3, 1)[0], TOKENS, t=7),
        case("split, half", lambda x: torch.split(x, (x.shape[1] + 1) // 2, 1), TOKENS, t=2),
        case("split, first", lambda x: torch.split(x, 4, 1)[0], TOKENS, t=4),
        case("split, sections", lambda x: torch.split(x, [2, x.shape[1] - 2], 1), TOKENS, t=2),
        case("split_with_sizes", lambda x: torch.split_with_sizes(x, [3, 5], 2), TOKENS),
        case("hsplit", lambda x: torch.hsplit(x, [3]), "b t"),
        case("unbind", lambda x: torch.stack(torch.unbind(x, 2), 0), "b t 3"),
        case("stack", lambda x, y: torch.stack([x, y], 1), "b t", "b t"),
        case("cat", lambda x, y: torch.cat([x, y, x], 1), "b t 4", "b n 4"),
        case("cat, broadcast", lambda x, y: torch.cat([y.expand(x.shape[0], -1, -1), x], 1), TOKENS, "1 1 8"),
        case("hstack", lambda x, y: torch.hstack([x, y]), "b t", "b n"),
        case("vstack", lambda x, y: torch.vstack([x, y]), "b 4", "t 4"),
        case("dstack", lambda x, y: torch.dstack([x, y]), "b t", "b t"),
        case("column_stack", lambda x, y: torch.column_stack([x, y]), "t", "t"),
        case("narrow", lambda x: torch.narrow(x, 1, 1, x.shape[1] - 2), TOKENS, t=2),
        case("select", lambda x: x.select(1, -1), TOKENS),
        case("slice, stride", lambda x: x[:, 1::2, ::3], TOKENS),
        case("slice, last half", lambda x: x[:, x.shape[1] // 2 :], TOKENS),
        case("slice, negative", lambda x: x[:, -4:-1], TOKENS),
        case("pad_sequence", lambda x, y: nn.utils.rnn.pad_sequence([x, y], True), "t 4", "n 4"),
        case("block_diag", lambda x, y: torch.block_diag(x, y), "b t", "n 3"),
    ],
    "Sizes": [
        case("arange", lambda x: x + torch.arange(x.shape[1])),
        case("arange, step", lambda x: torch.arange(1, 2 * x.shape[1], 2) * x),
        case("arange, float", lambda x: torch.arange(0, x.shape[1], 0.5)),
        case("arange, down", lambda x: torch.arange(x.shape[1] - 1, -1, -1) + x),
        case("linspace", lambda x: x * torch.linspace(0, 1, x.shape[1])),
        case("linspace, end", lambda x: torch.linspace(-1, x.shape[0], x.shape[1])),
        case("logspace", lambda x: x * torch.logspace(0, 2, x.shape[1])),
        case("round", lambda x: x[:, : round(x.shape[1] * 0.7)]),
        case("sqrt", lambda x: x / math.sqrt(x.shape[1])),
        case("sqrt, torch", lambda x: x / torch.sqrt(torch.tensor(x.shape[1]).float())),
        case("floor", lambda x: x[:, : math.floor(x.shape[1] / 3)]),
        case("ceil", lambda x: x[:, : math.ceil(x.shape[1] / 3)]),
        case("max", lambda x, y: x[:, : min(x.shape[1], y.shape[1])], "b t", "b n"),
        case("full", lambda x: torch.full((x.shape[1], x.shape[0]), 2.5) @ x),
        case("full, a size", lambda x: torch.full_like(x, x.shape[1])),
        case("zeros", lambda x: torch.cat([torch.zeros(x.shape[0], 2), x], 1)),
        case("ones_like", lambda x: torch.ones_like(x) + x),
        case("new_zeros", lambda x: x.new_zeros(x.shape[1], 3)),
        case("eye", lambda x: x + torch.eye(x.shape[1]), "b t t"),
        case("eye, wide", lambda x: torch.eye(x.shape[0], x.shape[1]) + x),
        case("tril", lambda x: torch.tril(x), "b t t"),
        case("triu, size", lambda x: torch.triu(x, x.shape[1] - 2), "b t n"),
        case("triu, 1", lambda x: torch.triu(torch.full((x.shape[1],) * 2, -math.inf), 1) + x, "b t t"),
        case("tril_indices", lambda x: x[torch.tril_indices(x.shape[0], x.shape[0]).unbind()], "t t"),
        case("hann_window", lambda x: x * torch.hann_window(x.shape[1])),
        case("numel", lambda x: x.sum() / x.numel()),
        case("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), "t", "n"),
        case(
            "meshgrid, xy",
            lambda x: torch.stack(
                torch.meshgrid(torch.arange(x.shape[-1]), torch.arange(x.shape[-2]), indexing="xy")
            ),
            "b h w",
        ),
        case("cartesian_prod", lambda x, y: torch.cartesian_prod(x, y), "t", "n"),
        case("combinations", lambda x: torch.combinations(x, 2), "t", t=2),
    ],
    "Indexing": [
        case("gather", lambda x, i: torch.gather(x, 1, i), "b t", "ids<t: b n"),
        case("take", lambda x, i: torch.take(x, i), "b t", "ids<b*t: n"),
        case("take_along_dim", lambda x: torch.take_along_dim(x, x.argsort(1), 1)),
        case("index_select", lambda x, i: torch.index_select(x, 1, i), TOKENS, "ids<t: n"),
        case("index, one", lambda x, i: x[i], "t 8", "ids<t: b n"),
        case("index, two", lambda x, i: x[torch.arange(x.shape[0]), i], TOKENS, "ids<t: b"),
        case("index, mask", lambda x, m: x[m], TOKENS, "bool: b t"),
        case("index_put", lambda x, i: x.index_put((i,), torch.zeros(())), "t 8", "ids<t: n"),
        case(
            "index_put, accumulate",
            lambda x, i, v: x.index_put((i,), v, accumulate=True),
            "t 4",
            "ids<t: n",
            "n 4",
        ),
        case(
            "index_put, mask",
            lambda x, m: x.masked_fill(m, -1.0).index_put((m,), torch.ones(())),
            "b t",
            "bool: b t",
        ),
        case("index_add", lambda x, i, v: torch.index_add(x, 0, i, v), "t 4", "ids<t: n", "n 4"),
        case("index_add, alpha", lambda x, i, v: x.index_add(1, i, v, alpha=2), "b t", "ids<t: n", "b n"),
        case("index_copy", lambda x, v: x.index_copy(0, x[:, 0].argsort(), v), "t 4", "t 4"),
        case("index_fill", lambda x, i: x.index_fill(1, i, 3.0), "b t", "ids<t: n"),
        case("index_reduce", lambda x, i, v: x.index_reduce(0, i, v, "amax"), "t 4", "ids<t: n", "n 4"),
        case("scatter", lambda x, v: torch.scatter(x, 1, v.argsort(1), v), "b t", "b t"),
        case("scatter, number", lambda x, i: torch.zeros_like(x).scatter(1, i, 1.0), "b t", "ids<t: b n"),
        case("scatter_add", lambda x, i, v: x.scatter_add(1, i, v), "b t", "ids<t: b n", "b n"),
        case("scatter_reduce, sum", lambda x, i, v: x.scatter_reduce(0, i, v, "sum"), "t", "ids<t: n", "n"),
        case("scatter_reduce, amax", lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), "t", "ids<t: n", "n"),
        case(
            "scatter_reduce, mean",
            lambda x, i, v: x.scatter_reduce(0, i, v, "mean", include_self=False),
            "t",
            "ids<t: n",
            "n",
        ),
        case("select_scatter", lambda x, v: x.select_scatter(v, 1, -1), "b t", "b"),
        case("slice_scatter", lambda x, v: x.slice_scatter(v, 1, x.shape[1] - v.shape[1]), "b t+n", "b n"),
        case("diagonal_scatter", lambda x, v: x.diagonal_scatter(v), "t t", "t"),
        case("masked_fill", lambda x, m: x.masked_fill(m, -math.inf), "b t", "bool: b t"),
        case("masked_select", lambda x, m: torch.masked_select(x, m), "b t", "bool: b t"),
        case("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), "b t", "bool: b t", "b*t"),
        case("nonzero", lambda m: torch.nonzero(m), "bool: b t"),
        case("argwhere", lambda m: torch.argwhere(m), "bool: b t"),
        case("where, three", lambda m, x, y: torch.where(m, x, y), "bool: b t", "b t", "t"),
        case("where, one", lambda m: torch.where(m), "bool: b t"),
        case("slice assignment", assigned, "b t+n", "b n"),
        case("embedding", nn.Embedding(10, 4), "ids<10: b t"),
        case("embedding_bag", nn.EmbeddingBag(10, 4, mode="sum"), "ids<10: b t"),
        case("embedding_bag, mean", nn.EmbeddingBag(10, 4, mode="mean"), "ids<10: b t"),
        case("embedding_bag, offsets", bags, "ids<10: t", t=5),
        case("one_hot", lambda i: F.one_hot(i, 10), "ids<10: b t"),
        case("one_hot, size", lambda i, x: F.one_hot(i, x.shape[0]), "ids<n: b t", "n 4"),
    ],
    "Counting and sorting": [
        case("bincount", lambda i: torch.bincount(i, minlength=10), "ids<10: t"),
        case("bincount, weights", lambda i, w: torch.bincount(i, w, minlength=10), "ids<10: t", "t"),
        case("histc", lambda x: torch.histc(x, 8, -2, 2), "t"),
        case("bucketize", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))),
        case("bucketize, given", lambda x, e: torch.bucketize(x, e.sort().values, right=True), "b t", "n"),
        case("searchsorted", lambda e, x: torch.searchsorted(e.sort(-1).values, x), "b t", "b n"),
        case("unique", lambda i: torch.unique(i), "ids<10: t"),
        case(
            "unique, inverse", lambda i: torch.unique(i, return_inverse=True, return_counts=True), "ids<10: t"
        ),
        case("unique_consecutive", lambda i: torch.unique_consecutive(i), "ids<3: t"),
        case("isin", lambda i, j: torch.isin(i, j), "ids<10: b t", "ids<10: n"),
        case("sort", lambda x: torch.sort(x, 1)),
        case("sort, descending", lambda x: torch.sort(x, 0, descending=True).values),
        case("argsort", lambda x: torch.argsort(x, dim=-1)),
        case("argsort, stable", lambda i: torch.argsort(i, stable=True), "ids<4: t"),
        case("msort", lambda x: torch.msort(x)),
        case("topk", lambda x: torch.topk(x, 3), t=3),
        case("topk, half", lambda x: torch.topk(x, x.shape[1] // 2), t=2),
        case("topk, at most", lambda x: torch.topk(x, min(5, x.shape[1])).values),
        case("topk, smallest", lambda x: torch.topk(x, 2, 0, largest=False).values, b=2),
        case("kthvalue", lambda x: torch.kthvalue(x, 2), t=2),
        case("kthvalue, middle", lambda x: torch.kthvalue(x, (x.shape[1] + 1) // 2).values),
        case("median", lambda x: torch.median(x, 1)),
        case("median, all", lambda x: torch.median(x)),
        case("nanmedian", lambda x: torch.nanmedian(x, 1).values),
        case("mode", lambda i: torch.mode(i, 1).values, "ids<3: b t"),
        case("quantile", lambda x: torch.quantile(x, 0.3, dim=1)),
        case("quantile, several", lambda x: torch.quantile(x, torch.tensor([0.1, 0.5, 0.9]), dim=1)),
        case("argmax", lambda x: x.argmax(1)),
        case("argmin, all", lambda x: x.argmin()),
    ],
    "Order and shape": [
        case("flip", lambda x: torch.flip(x, [1, 2]), "b t 4"),
        case("fliplr", lambda x: torch.fliplr(x)),
        case("rot90", lambda x: torch.rot90(x, 1, [2, 3]), "b 3 h w"),
        case("rot90, twice", lambda x: torch.rot90(x, 2, [1, 2]), "b h w"),
        case("roll", lambda x: torch.roll(x, 3, 1)),
        case("roll, half", lambda x: torch.roll(x, x.shape[1] // 2, 1)),
        case("roll, two axes", lambda x: torch.roll(x, (-2, 1), (1, 2)), "b h w"),
        case("roll, flat", lambda x: torch.roll(x, 5)),
        case("repeat_interleave, 3", lambda x: torch.repeat_interleave(x, 3, 1)),
        case("repeat_interleave, size", lambda x, y: x.repeat_interleave(y.shape[0], 0), "b t", "n 2"),
        case("repeat_interleave, tensor", lambda x, c: x.repeat_interleave(c, 0), "t 4", "ids<4: t"),
        case("repeat", lambda x: x.repeat(2, 1, 3), "b t 4"),
        case("repeat, size", lambda x, y: x.repeat(y.shape[0], 1), "b t", "n 2"),
        case("tile", lambda x: torch.tile(x, (2, 2))),
        case("expand", lambda x, y: x.expand(y.shape[0], -1, -1) + 1, "1 t 4", "n 2"),
        case("expand_as", lambda x, y: x[:, None].expand_as(y), "b 4", "b t 4"),
        case("broadcast_to", lambda x, y: torch.broadcast_to(x, y.shape), "t", "b t"),
        case("broadcast_tensors", lambda x, y: torch.broadcast_tensors(x[:, None], y), "b", "t"),
        case("atleast_3d", lambda x: torch.atleast_3d(x)),
        case("reshape", lambda x: x.reshape(x.shape[0], -1, 2, 4), "b t 8"),
        case("view", lambda x: x.view(x.shape[0] * x.shape[1], 8), "b t 8"),
        case("view, dtype", lambda x: x.view(torch.int32)),
        case("flatten", lambda x: x.flatten(1), "b t 8"),
        case("ravel", lambda x: torch.ravel(x)),
        case("unflatten", lambda x: x.unflatten(1, (-1, 2)), "b 2*t"),
        case("unflatten, size", lambda x: x.unflatten(0, (x.shape[0] // 3, 3)), "3*t 4"),
        case("permute", lambda x: x.permute(2, 0, 1), "b t 8"),
        case("transpose", lambda x: x.transpose(0, 1).contiguous(), "b t 8"),
        case("movedim", lambda x: torch.movedim(x, 0, -1), "b t 8"),
        case("swapaxes", lambda x: torch.swapaxes(x, 0, 2), "b t 8"),
        case("squeeze", lambda x: x.squeeze(1), "b 1 t"),
        case("squeeze, all", lambda x: x.squeeze(), "1 t 1 4", t=2),
        case("unsqueeze", lambda x: x.unsqueeze(-1)),
        case("diag", lambda x: torch.diag(x), "t"),
        case("diag, of a matrix", lambda x: torch.diag(x, 1), "t n", t=2, n=2),
        case("diagonal", lambda x: torch.diagonal(x, 0, 1, 2), "b t n"),
        case("diagonal, offset", lambda x: torch.diagonal(x, -1, -2, -1), "b t n", t=2),
        case("diag_embed", lambda x: torch.diag_embed(x)),
        case("diag_embed, offset", lambda x: torch.diag_embed(x, 1)),
        case(
            "window partition",
            lambda x: (
                x.view(x.shape[0], x.shape[1] // 4, 4, x.shape[2] // 4, 4, 3)
                .permute(0, 1, 3, 2, 4, 5)
                .flatten(0, 2)
            ),
            "b 4*h 4*w 3",
        ),
        case("ragged mask", ragged, "b t", "ids<t: b"),
        case("jagged tokens", jagged, "b t 4", "bool: b t"),
    ],
}
