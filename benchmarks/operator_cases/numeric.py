"""Operators that compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Case, case

IMAGE, TOKENS, HEADS = "b 3 h w", "b t 8", "b 2 t 4"


class Experts(nn.Module):
    """Each token goes through the two experts that score highest: a loop over experts, not over tokens."""

    def __init__(self, dense: bool) -> None:
        super().__init__()
        self.gate, self.dense = nn.Linear(8, 4), dense
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2)
        taken = F.one_hot(chosen, 4).permute(2, 1, 0)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            if self.dense:
                share = (weights * (chosen == number)).sum(-1, keepdim=True)
                total = total + expert(x) * share
            else:
                place, token = torch.where(taken[number])
                total.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return total


class Rotary(nn.Module):
    """Rotary position embedding by complex multiplication."""

    def forward(self, x: Tensor) -> Tensor:
        t, d = x.shape[1], x.shape[-1]
        angles = torch.outer(torch.arange(t).float(), 1 / 100 ** (torch.arange(0, d, 2).float() / d))
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns[None, :, None]).flatten(3)


def attended(q: Tensor, k: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k, **options)


def masked_attention(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    first = torch.arange(k.shape[-2]) == 0  # every query sees something
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask | first)


class Heads(nn.Module):
    """nn.MultiheadAttention, which goes through multi_head_attention_forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, q: Tensor, k: Tensor) -> Any:
        return self.inner(q, k, k)


def activations(*functions: Callable[..., Any]) -> list[Case]:
    return [case(function.__name__.strip("_"), function, "b t") for function in functions]


def reductions(**functions: Callable[..., Any]) -> list[Case]:
    made = []
    for name, function in functions.items():
        made.append(case(f"{name}, axis 1", lambda x, f=function: f(x, 1), "b t 4"))
        made.append(case(f"{name}, last, kept", lambda x, f=function: f(x, -1, keepdim=True), "b t"))
    return made


def pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x)


GROUPS: dict[str, list[Case]] = {
    "Distances": [
        case("cdist", lambda x, y: torch.cdist(x, y), "b t 4", "b n 4"),
        case("cdist, 1", lambda x, y: torch.cdist(x, y, p=1.0), "b t 4", "b n 4"),
        case("cdist, inf", lambda x, y: torch.cdist(x, y, p=math.inf), "b t 4", "b n 4"),
        case("cdist, 3", lambda x, y: torch.cdist(x, y, p=3.0), "t 4", "n 4"),
        case("pdist", lambda x: F.pdist(x), "t 4", t=2),
        case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, -1), TOKENS, TOKENS),
        case(
            "cosine_similarity, pairs",
            lambda x, y: F.cosine_similarity(x[:, None], y[None], -1),
            "t 4",
            "n 4",
        ),
        case("pairwise_distance", lambda x, y: F.pairwise_distance(x, y), "t 8", "t 8"),
        case("dist", lambda x, y: torch.dist(x, y), "b t", "b t"),
        case("norm, 2", lambda x: torch.linalg.norm(x, dim=-1), TOKENS),
        case("norm, inf", lambda x: torch.linalg.vector_norm(x, math.inf, dim=1), TOKENS),
        case("norm, 1", lambda x: torch.norm(x, p=1, dim=1, keepdim=True), TOKENS),
        case("norm, fro", lambda x: torch.norm(x), TOKENS),
        case("matrix_norm", lambda x: torch.linalg.matrix_norm(x), "b t n"),
        case("normalize", lambda x: F.normalize(x, dim=1), TOKENS),
        case("renorm", lambda x: torch.renorm(x, 2, 0, 1.0), "t 8"),
    ],
    "Complex numbers": [
        case("polar", Rotary(), "b t 2 8"),
        case(
            "view_as_complex, product", lambda x, y: torch.view_as_real(pairs(x) * pairs(y)), "b t 2", "b t 2"
        ),
        case("view_as_complex, sum", lambda x, y: torch.view_as_real(pairs(x) + pairs(y)), "b t 2", "t 2"),
        case("complex", lambda x, y: torch.complex(x, y).abs(), "b t", "b t"),
        case("complex, angle", lambda x, y: torch.complex(x, y).angle(), "b t", "b t"),
        case("complex, conj", lambda x: torch.view_as_real(pairs(x).conj() * pairs(x)), "b t 2"),
        case("complex, matmul", lambda x: torch.view_as_real(pairs(x) @ pairs(x).mT), "b t 4 2"),
        case("complex, exp", lambda x: torch.exp(1j * x).real),
        case("complex, parts", lambda x: (pairs(x).real, pairs(x).imag), "b t 2"),
    ],
    "Routing": [
        case("experts, index_add", Experts(dense=False), "t 8"),
        case("experts, dense", Experts(dense=True), "t 8"),
        case(
            "experts, gathered", lambda x, w: torch.einsum("td,tde->te", x, w[x.argmax(-1)]), "t 4", "4 4 4"
        ),
    ],
    "Scans": [
        case("cumsum", lambda x: torch.cumsum(x, 1)),
        case("cumsum, mask", lambda m: torch.cumsum(m, 1), "bool: b t"),
        case("cumprod", lambda x: torch.cumprod(x.sigmoid() + 0.6, 1)),
        case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1)),
        case("cummax", lambda x: torch.cummax(x, 1)),
        case("cummin", lambda x: torch.cummin(x, 1).values),
        case("diff", lambda x: torch.diff(x, dim=1), t=2),
        case("trapezoid", lambda x: torch.trapezoid(x, dim=1)),
        case("trapezoid, x", lambda x, y: torch.trapezoid(y, x, dim=1), "b t", "b t"),
        case("cumulative_trapezoid", lambda x: torch.cumulative_trapezoid(x), t=2),
        case("gradient", lambda x: torch.gradient(x, dim=1)[0], t=2),
    ],
    "Matrices": [
        case("matmul", lambda x, y: x @ y, "b t 4", "b 4 n"),
        case("matmul, inner", lambda x, y: x @ y, "b t", "t n"),
        case("mv", lambda x, y: torch.mv(x, y), "b t", "t"),
        case("dot", lambda x, y: torch.dot(x, y), "t", "t"),
        case("bmm", lambda x, y: torch.bmm(x, y.mT), "b t 4", "b n 4"),
        case("addmm", lambda x, y: torch.addmm(x, x, y, beta=0.5, alpha=2), "b t", "t t"),
        case("baddbmm", lambda x, y, z: torch.baddbmm(z, x, y, beta=0.5), "b t 4", "b 4 n", "b t n"),
        case("addbmm", lambda x, y, z: torch.addbmm(z, x, y), "b t 4", "b 4 n", "t n"),
        case("linear", nn.Linear(8, 3), TOKENS),
        case("bilinear", nn.Bilinear(4, 3, 5), "b t 4", "b t 3"),
        case("einsum, attention", lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k), HEADS, "b 2 n 4"),
        case("einsum, outer", lambda x, y: torch.einsum("bi,bj->bij", x, y), "b t", "b n"),
        case("einsum, trace", lambda x: torch.einsum("bii->b", x), "b t t"),
        case("einsum, three", lambda x, y, z: torch.einsum("bi,ij,bj->b", x, y, z), "b t", "t n", "b n"),
        case("kron", lambda x, y: torch.kron(x, y), "b t", "n 3"),
        case("outer", lambda x, y: torch.outer(x, y), "t", "n"),
        case("tensordot", lambda x, y: torch.tensordot(x, y, dims=([1, 2], [0, 1])), "b t 4", "t 4 n"),
        case("inner", lambda x, y: torch.inner(x, y), "b t", "n t"),
        case("chain_matmul", lambda x, y: torch.linalg.multi_dot([x, y, x]), "b t", "t b"),
        case("matrix_power", lambda x: torch.linalg.matrix_power(x / 10, 3), "b t t"),
        case("trace", lambda x: torch.trace(x), "t t"),
        case("cross", lambda x, y: torch.linalg.cross(x, y), "b t 3", "b t 3"),
        case("vander", lambda x: torch.vander(x.sigmoid(), 4), "t"),
        case("cov", lambda x: torch.cov(x), "b t", b=2, t=2),
        case("corrcoef", lambda x: torch.corrcoef(x), "b t", b=2, t=2),
        case("det", lambda x: torch.linalg.det(x), "b 3 3"),
        case("inv", lambda x: torch.linalg.inv(x + 4 * torch.eye(3)), "b 3 3"),
        case("cholesky", lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), "b 3 3"),
        case("solve", lambda x, y: torch.linalg.solve(x + 4 * torch.eye(3), y), "b 3 3", "b 3 n"),
    ],
    "Normalization": [
        case("layer_norm", nn.LayerNorm(8), TOKENS),
        case("layer_norm, whole", lambda x: F.layer_norm(x, x.shape[1:]), TOKENS),
        case("rms_norm", lambda x: F.rms_norm(x, (8,), eps=1e-5), TOKENS),
        case("group_norm", nn.GroupNorm(2, 4), "b 4 h w"),
        case("group_norm, line", nn.GroupNorm(4, 4), "b 4 t", t=2),
        case("instance_norm", nn.InstanceNorm2d(3, affine=True), IMAGE, h=2, w=2),
        case("instance_norm, tracked", nn.InstanceNorm1d(3, track_running_stats=True), "b 3 t"),
        case("batch_norm", nn.BatchNorm2d(3), IMAGE),
        case("batch_norm, line", nn.BatchNorm1d(3), "b 3 t"),
        case("local_response_norm", lambda x: F.local_response_norm(x, 2), IMAGE),
        case("weight_norm", nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)), TOKENS),
    ],
    "Activations": [
        *activations(
            F.relu,
            F.relu6,
            F.elu,
            F.selu,
            F.celu,
            F.leaky_relu,
            F.rrelu,
            F.gelu,
            F.silu,
            F.mish,
            F.hardswish,
            F.hardsigmoid,
            F.hardtanh,
            F.softplus,
            F.softsign,
            F.softshrink,
            F.hardshrink,
            F.tanhshrink,
            F.logsigmoid,
            F.sigmoid,
            F.tanh,
        ),
        case("gelu, tanh", lambda x: F.gelu(x, approximate="tanh")),
        case("threshold", lambda x: F.threshold(x, 0.1, 20.0)),
        case("prelu", nn.PReLU(3), IMAGE),
        case("glu", lambda x: F.glu(x, 1), "b 2*t"),
        case("softmax", lambda x: F.softmax(x, 1), "b t 4"),
        case("softmin", lambda x: F.softmin(x, -1)),
        case("log_softmax", lambda x: F.log_softmax(x, 1), "b t 4"),
        case("dropout", nn.Dropout(0.5)),
    ],
    "Attention": [
        case("scaled_dot_product_attention", attended, HEADS, "b 2 n 4"),
        case("scaled_dot_product_attention, causal", lambda q: attended(q, q, is_causal=True), HEADS),
        case(
            "scaled_dot_product_attention, causal, other length",
            lambda q, k: attended(q, k, is_causal=True),
            HEADS,
            "b 2 n 4",
        ),
        case("scaled_dot_product_attention, scale", lambda q: attended(q, q, scale=0.3), HEADS),
        case("scaled_dot_product_attention, mask", masked_attention, HEADS, "b 2 n 4", "bool: b 1 t n"),
        case("scaled_dot_product_attention, bias", lambda q, m: attended(q, q, attn_mask=m), HEADS, "t t"),
        case(
            "scaled_dot_product_attention, gqa",
            lambda q, k: attended(q, k, enable_gqa=True),
            "b 4 t 4",
            "b 2 n 4",
        ),
        case("multi_head_attention_forward", Heads(), TOKENS, "b n 8"),
        case("TransformerEncoderLayer", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), TOKENS),
    ],
    "Losses": [
        case("cross_entropy", lambda x, y: F.cross_entropy(x, y), "b 5", "ids<5: b"),
        case(
            "cross_entropy, image",
            lambda x, y: F.cross_entropy(x, y, ignore_index=1, reduction="none"),
            "b 5 h w",
            "ids<5: b h w",
        ),
        case(
            "cross_entropy, ignored",
            lambda x, y: F.cross_entropy(x, y, ignore_index=0),
            "t 5",
            "ids<5: t",
            t=7,
        ),
        case(
            "cross_entropy, smoothed",
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
            "b 5",
            "ids<5: b",
        ),
        case("cross_entropy, probabilities", lambda x, y: F.cross_entropy(x, y), "b 5", "unit: b 5"),
        case("nll_loss", lambda x, y: F.nll_loss(x, y, reduction="sum"), "b 5", "ids<5: b"),
        case("mse_loss", lambda x, y: F.mse_loss(x, y), "b t", "b t"),
        case("l1_loss", lambda x, y: F.l1_loss(x, y, reduction="sum"), "b t", "b t"),
        case("smooth_l1_loss", lambda x, y: F.smooth_l1_loss(x, y), "b t", "b t"),
        case("huber_loss", lambda x, y: F.huber_loss(x, y), "b t", "b t"),
        case(
            "kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y, reduction="batchmean"), "b t", "unit: b t"
        ),
        case("binary_cross_entropy", lambda x, y: F.binary_cross_entropy(x, y), "unit: b t", "unit: b t"),
        case(
            "binary_cross_entropy_with_logits",
            lambda x, y: F.binary_cross_entropy_with_logits(x, y),
            "b t",
            "unit: b t",
        ),
        case("poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y), "b t", "positive: b t"),
        case(
            "gaussian_nll_loss", lambda x, y, v: F.gaussian_nll_loss(x, y, v), "b t", "b t", "positive: b t"
        ),
        case(
            "cosine_embedding_loss", lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(1)), "b 4", "b 4"
        ),
        case("margin_ranking_loss", lambda x, y: F.margin_ranking_loss(x, y, torch.ones(1)), "b", "b"),
        case("triplet_margin_loss", lambda x, y, z: F.triplet_margin_loss(x, y, z), "b 4", "b 4", "b 4"),
        case("hinge_embedding_loss", lambda x, y: F.hinge_embedding_loss(x, y.sign()), "b t", "b t"),
    ],
    "Reductions": [
        *reductions(
            sum=torch.sum,
            mean=torch.mean,
            prod=torch.prod,
            amax=torch.amax,
            amin=torch.amin,
            max=torch.max,
            min=torch.min,
            logsumexp=torch.logsumexp,
            nansum=torch.nansum,
            nanmean=torch.nanmean,
        ),
        case("aminmax", lambda x: torch.aminmax(x, dim=1)),
        case("all", lambda x: torch.all(x > 0, 1)),
        case("any", lambda x: torch.any(x > 1)),
        case("count_nonzero", lambda x: torch.count_nonzero(x > 0, 1)),
        case("var", lambda x: torch.var(x, 1), t=2),
        case("var, correction", lambda x: torch.var(x, dim=(1, 2), correction=0), TOKENS),
        case("std", lambda x: torch.std(x, 1, keepdim=True), t=2),
        case("std, all", lambda x: torch.std(x), t=2),
        case("var_mean", lambda x: torch.var_mean(x, 1, correction=0)),
        case("std_mean", lambda x: torch.std_mean(x, 1), t=2),
        case("sum, of two axes", lambda x: x.sum((0, 2)), TOKENS),
    ],
    "Elementwise": [
        case("clamp", lambda x: x.clamp(-1, 0.5)),
        case("clamp, tensors", lambda x, y: torch.clamp(x, y - 1, y), "b t", "t"),
        case("maximum", lambda x, y: torch.maximum(x, y), "b t", "t"),
        case("fmax", lambda x, y: torch.fmax(x, y), "b t", "t"),
        case("lerp", lambda x, y: torch.lerp(x, y, 0.3), "b t", "b t"),
        case("lerp, tensor", lambda x, y, w: torch.lerp(x, y, w), "b t", "b t", "t"),
        case("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), "b t", "b t", "t"),
        case("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), "b t", "b t", "positive: t"),
        case("remainder", lambda x: torch.remainder(x, 0.7)),
        case("remainder, integers", lambda i: torch.remainder(i - 5, 3), "ids<10: b t"),
        case("fmod", lambda x, y: torch.fmod(x, y), "b t", "positive: t"),
        case("floor_divide", lambda i: torch.floor_divide(i - 5, 3), "ids<10: b t"),
        case("div, floor", lambda x: torch.div(x, 0.3, rounding_mode="floor")),
        case("div, trunc", lambda i: torch.div(i - 5, 3, rounding_mode="trunc"), "ids<10: b t"),
        case("bitwise_and", lambda i, j: torch.bitwise_and(i, j), "ids<16: b t", "ids<16: t"),
        case("bitwise_xor", lambda i: (i ^ 5) | 2, "ids<16: b t"),
        case("bitwise_not", lambda i: ~i, "ids<16: b t"),
        case("shift", lambda i: (i << 2) + (i >> 1), "ids<16: b t"),
        case("logical_xor", lambda a, b: torch.logical_xor(a, b), "bool: b t", "bool: t"),
        case("isnan", lambda x: torch.isnan(torch.log(x))),
        case("isclose", lambda x, y: torch.isclose(x, y), "b t", "b t"),
        case("nan_to_num", lambda x: torch.nan_to_num(torch.log(x), nan=0.5)),
        case("pow", lambda x: x.abs() ** 1.5),
        case("float_power", lambda x: torch.float_power(x.abs(), 2)),
        case("exp", lambda x: x.exp().log1p().sqrt().rsqrt()),
        case("expm1", lambda x: torch.expm1(x)),
        case("log2", lambda x: torch.log2(x) + torch.log10(x), "positive: b t"),
        case("sin", lambda x: x.sin() + x.cos().tan() + x.atan().asinh()),
        case("atan2", lambda x, y: torch.atan2(x, y), "b t", "b t"),
        case("hypot", lambda x, y: torch.hypot(x, y), "b t", "t"),
        case("erf", lambda x: torch.erf(x) + torch.erfc(x)),
        case("lgamma", lambda x: torch.lgamma(x), "positive: b t"),
        case("sign", lambda x: x.sign() + x.abs().ceil() - x.frac() + x.trunc()),
        case("round, half", lambda x: torch.round(x * 2) + torch.round(x, decimals=1)),
        case("copysign", lambda x, y: torch.copysign(x, y), "b t", "b t"),
        case("heaviside", lambda x: torch.heaviside(x, torch.tensor(0.5))),
        case("xlogy", lambda x, y: torch.xlogy(x, y), "b t", "positive: b t"),
        case("logaddexp", lambda x, y: torch.logaddexp(x, y), "b t", "t"),
        case("sinc", lambda x: torch.sinc(x)),
        case("rsub", lambda x: torch.rsub(x, x.shape[1])),
        case("to, integers", lambda x: (x * 3).to(torch.int32) + x.long()),
        case("type_as", lambda i, x: i.type_as(x) * x, "ids<10: b t", "b t"),
    ],
}
