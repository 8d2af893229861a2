"""Numbers that are nearly nothing, and on the edge of a function: where a plausible translation is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import anyshape

ZERO, INFINITE = torch.zeros(2, 5), float("inf")
CASES: dict[str, tuple[Callable[[Tensor], Tensor], list[Tensor]]] = {
    "log of little": (lambda x: torch.log(x.abs() + 1e-10), [ZERO]),
    "a norm of nothing": (lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-10), [ZERO]),
    "less a little": (lambda x: 1 / (x.abs() - 1e-9), [ZERO]),
    "nearly one": (lambda x: x * 1.000005, [torch.full((2, 5), 1e6)]),
    "log1p": (torch.log1p, [torch.rand(2, 5) * k for k in (1e-4, 1e-6, 1e-8, 1e6)]),
    "expm1": (torch.expm1, [torch.randn(2, 5) * k for k in (1e-4, 1e-6, 1e-8, 30)]),
    "logsigmoid": (F.logsigmoid, [torch.randn(2, 5) * k for k in (1e-4, 100, 1000)]),
    "atan2": (
        lambda x: torch.atan2(x[:, 0], x[:, 1]),
        [torch.tensor([[0.0, -1], [-0.0, -1], [0, 1], [0, 0], [1, 0], [-1, 0], [-1, -1], [1, -1]])],
    ),
    "logcumsumexp": (
        lambda x: x.logcumsumexp(-1),
        [torch.tensor([[500.0, -500, 300], [-500, 0, 300]]), torch.full((1, 3), -INFINITE)],
    ),
    "logaddexp": (
        lambda x: torch.logaddexp(x, x.flip(-1)),
        [torch.randn(2, 5) * 300, torch.full((1, 3), -INFINITE), torch.full((1, 3), INFINITE)],
    ),
    "a rest": (
        lambda x: x % 0.7 + (-x) % 1.3,
        [torch.randn(2, 5) * 1e4, torch.tensor([[0.0, 0.7, -0.7, 7.0]])],
    ),
    "one step": (lambda x: x * torch.linspace(0, 1, x.shape[1]), [torch.randn(2, 1), torch.randn(2, 2)]),
}


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def close(function: Callable[[Tensor], Tensor], example: Tensor, others: list[Tensor], folder: Path) -> None:
    net: Any = Calls(function)
    anyshape.export(net, example, folder / "m.onnx")
    run = anyshape.load(folder / "m.onnx")
    for x in (example, *others):
        got = np.asarray(run(x))
        assert got.dtype == net(x).numpy().dtype
        np.testing.assert_allclose(got, net(x).numpy(), rtol=1e-4, atol=0, err_msg=str(x))


@pytest.mark.parametrize("name", CASES)
def test_nearly_nothing(name: str, tmp_path: Path) -> None:
    function, others = CASES[name]
    close(function, torch.rand(2, 5), others, tmp_path)


def test_bits_of_unsigned_numbers(tmp_path: Path) -> None:
    bits = torch.randint(0, 255, (3, 4))
    close(lambda x: x >> 1, bits.to(torch.uint8), [bits.to(torch.uint8)[:2]], tmp_path)
    close(lambda x: x >> 1, bits - 128, [bits[:2] - 128], tmp_path)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 12])
def test_pieces_of_a_short_axis(rows: int, tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cat([part.cumsum(0) for part in x.chunk(3, 0)], 0)

    close(function, torch.rand(12, 5), [torch.rand(rows, 5)], tmp_path)


def test_what_sizes_make_of_powers_and_factors(tmp_path: Path) -> None:
    def padded(x: Tensor) -> Tensor:
        return F.pad(x, (0, 2 ** math.ceil(math.log2(x.shape[1])) - x.shape[1]))

    def resized(x: Tensor) -> Tensor:
        factors = ((x.shape[2] // 4 + 0.1) / 4, (x.shape[3] // 4 + 0.1) / 4)
        return F.interpolate(torch.arange(16.0).view(1, 1, 4, 4), scale_factor=factors, mode="bicubic") + 50

    close(padded, torch.rand(2, 6), [torch.rand(2, n) for n in (1, 2, 3, 4, 5, 8, 9, 64, 65)], tmp_path)
    close(
        resized, torch.rand(1, 3, 32, 24), [torch.rand(1, 3, h, w) for h, w in ((16, 16), (40, 28))], tmp_path
    )
