"""Each rung of the ladder: models that need exactly it, right at sizes that no trace saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import CaptureFault

pad = nn.functional.pad

# --- Symbolic: PyTorch's own trace says it all ----------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.attention(x, x, x)[0]
        return mixed


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.pool(self.conv(x).relu())
        return pooled


# --- Differential: sizes that went through Python's or numpy's numbers ----------------------------------


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float(1 / np.sqrt(np.asarray(x.shape)[1]))


class Half(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, int(math.fabs(float(x.shape[1])) * 0.5) :].cumsum(1)


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        size = float(np.asarray(x.shape)[1])
        return pad(x, (0, int(math.ceil(size / 4) * 4 - size)))


class Grid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        side = int(np.sqrt(np.asarray(x.shape)[1]))
        mixed: Tensor = self.conv(x.transpose(1, 2).reshape(x.shape[0], 3, side, side))
        return mixed


class Positions(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.from_numpy(np.arange(x.shape[1], dtype=np.float32))
        return x + places, x * torch.tensor([3 * place + 1 for place in range(x.shape[1])])


class Corner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        return x.flatten(2).amax(2) * torch.from_numpy(np.asarray([width - 1, height - 1], np.float32))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(8, 2, 1, 1, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(
            x.shape[1]
        )  # the layers ask whether it is causal
        mixed: Tensor = self.layers(x, x, src_mask=mask, tgt_mask=mask)
        return mixed


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        pack, unpack = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
        return unpack(
            self.layer(pack(x, lengths, batch_first=True, enforce_sorted=False))[0], batch_first=True
        )[0]


# --- Rolled loop: a step for each item ------------------------------------------------------------------


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 4)
        for item in range(x.shape[1]):
            state = self.cell(x[:, item], state)
        return state


class TwoStates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = cell = x.new_zeros(x.shape[0], 4)
        made = []
        for item in range(x.shape[1]):
            hidden, cell = self.cell(x[:, item], (hidden, cell))
            made.append(hidden)
        return torch.stack(made, 1), cell


class ThereAndBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.GRUCell(3, 4), nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        state, there, back = x.new_zeros(x.shape[0], 4), [], []
        for item in x.unbind(1):
            state = self.there(item, state)
            there.append(state)
        state = x.new_zeros(x.shape[0], 4)
        for item in reversed(there):
            state = self.back(item, state)
            back.append(state)
        return torch.stack(back[::-1], 1)


class Unbound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 3)
        for item in x.unbind(1):
            state = torch.tanh(self.layer(state) + item)
        return state


class Written(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        made, total = torch.zeros_like(x), x[:, 0]
        for item in range(x.shape[1]):
            total = total * 0.5 + x[:, item]
            made[:, item] = total
        return made


class RowsAndColumns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for row in range(x.shape[1]):
            total = x[:, row, 0]
            for column in range(x.shape[2]):
                total = total * 0.5 + x[:, row, column]
            rows.append(total)
        return torch.stack(rows, 1)


class FromTheSecond(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        states = [x[:, 0]]
        for item in range(1, x.shape[1]):
            states.append(0.5 * states[-1] + x[:, item])
        return torch.stack(states, 1)


class Concatenated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total, parts = x[:, :1] * 0, []
        for item in range(x.shape[1]):
            total = total * 0.5 + x[:, item : item + 1]
            parts.append(torch.cat([total, -total], 1))
        return torch.cat(parts, 1)


# --- Regions: another path at other sizes ---------------------------------------------------------------


class OtherLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.long, self.short = nn.Linear(192, 192), nn.Linear(192, 192)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.long(x).relu() if x.shape[1] > 8 else self.short(x)
        return made


class OneLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 192)


class Parity(OneLayer):
    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x).relu() if x.shape[1] % 2 else self.layer(x).tanh()
        return made


class OneRow(OneLayer):
    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x).sin() if x.shape[0] == 1 else self.layer(x)
        return made


class TwoBoundaries(OneLayer):
    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.layer(x)
        if x.shape[1] > 12:
            return mixed.relu()
        return mixed.tanh() if x.shape[1] > 5 else mixed.sin()


# --- Each of them ---------------------------------------------------------------------------------------


def plain(*shape: int | None) -> Callable[..., tuple[Tensor, ...]]:
    """Makes one tensor: ``None`` in the shape is a size to be given."""

    def make(*sizes: int) -> tuple[Tensor, ...]:
        rest = iter(sizes)
        return (torch.randn([next(rest) if size is None else size for size in shape]),)

    return make


def squares(batch: int, side: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, side * side, 3),)


def sequences(batch: int, longest: int) -> tuple[Tensor, ...]:
    lengths = torch.arange(batch) * 5 % longest + 1
    return torch.randn(batch, longest, 3), lengths.masked_fill(torch.arange(batch) == batch // 2, longest)


@dataclass(frozen=True)
class Sample:
    """A model, what it needs, and the sizes to try: the first is the example."""

    rung: str
    model: Callable[[], nn.Module]
    inputs: Callable[..., tuple[Tensor, ...]]
    sizes: tuple[tuple[int, ...], ...]
    proved: bool = False


FLAT, ITEMS, WIDE = plain(None, None), plain(None, None, 3), plain(None, None, 192)
TWO = ((2, 6), (1, 1), (3, 2), (2, 7), (5, 16), (1, 41))

SAMPLES = {
    "linear": Sample(
        "symbolic", lambda: nn.Linear(4, 3), plain(None, 4), ((3,), (1,), (2,), (7,), (50,)), True
    ),
    "attention": Sample("symbolic", Attention, plain(None, None, 8), TWO),
    "conv and pooling": Sample(
        "symbolic",
        Pooled,
        plain(None, 1, None, None),
        ((2, 8, 10), (1, 2, 2), (1, 3, 5), (3, 9, 4), (1, 40, 33)),
        True,
    ),
    "numpy on a shape": Sample("differential", Scaled, FLAT, TWO),
    "half of a size": Sample("differential", Half, FLAT, TWO),
    "ceil through floats": Sample("differential", Padded, FLAT, (*TWO, (2, 8), (2, 9))),
    "square grid": Sample("differential", Grid, squares, ((2, 4), (1, 1), (3, 2), (1, 7), (2, 12))),
    "arange and list": Sample("differential", Positions, FLAT, TWO),
    "tensor of sizes": Sample(
        "differential",
        Corner,
        plain(None, 2, None, None),
        ((2, 6, 7), (1, 1, 1), (3, 2, 5), (1, 30, 9), (4, 8, 8)),
    ),
    "generated mask": Sample(
        "differential", Masked, plain(None, None, 8), ((2, 6), (1, 1), (3, 2), (1, 9), (2, 30))
    ),
    "packed sequences": Sample("differential", Packed, sequences, ((3, 6), (1, 1), (2, 3), (5, 9), (4, 31))),
    "cell": Sample("rolled loop", Gated, ITEMS, TWO),
    "cell with two states": Sample("rolled loop", TwoStates, ITEMS, TWO),
    "two cells, one in reverse": Sample("rolled loop", ThereAndBack, ITEMS, TWO),
    "unbind": Sample("rolled loop", Unbound, ITEMS, TWO),
    "write into a slice": Sample("rolled loop", Written, FLAT, TWO),
    "nested loops": Sample(
        "rolled loop",
        RowsAndColumns,
        plain(None, None, None),
        ((2, 4, 5), (1, 1, 1), (3, 2, 7), (1, 9, 2), (2, 17, 20)),
    ),
    "from the second on": Sample("rolled loop", FromTheSecond, FLAT, TWO),
    "concatenated": Sample("rolled loop", Concatenated, FLAT, TWO),
    "other layers": Sample("regions", OtherLayers, WIDE, (*TWO, (2, 8), (2, 9))),
    "parity": Sample("regions", Parity, WIDE, TWO),
    "fast path for one row": Sample("regions", OneRow, plain(None, 192), ((3,), (1,), (2,), (7,), (30,))),
    "two boundaries": Sample("regions", TwoBoundaries, WIDE, (*TWO, (2, 5), (2, 12), (2, 13))),
}


@dataclass(frozen=True)
class Made:
    sample: Sample
    model: nn.Module
    export: anyshape.Export
    path: Path


@pytest.fixture(scope="module", params=SAMPLES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    torch.manual_seed(0)
    sample = SAMPLES[request.param]
    model, path = sample.model().eval(), tmp_path_factory.mktemp("rungs") / "model.onnx"
    prove = sample.rung == "symbolic"
    export = anyshape.export(model, sample.inputs(*sample.sizes[0]), path, prove=prove)
    return Made(sample, model, export, path)


def tensors(output: Any) -> list[Tensor]:
    return list(output) if isinstance(output, tuple) else [output]


def test_the_first_rung_that_can_do_it_is_taken(made: Made) -> None:
    assert made.export.rung == made.sample.rung


@torch.no_grad()
def test_it_is_right_at_sizes_that_no_trace_saw(made: Made) -> None:
    loaded = anyshape.load(made.path)
    for sizes in made.sample.sizes:
        inputs = made.sample.inputs(*sizes)
        expected, found = tensors(made.model(*inputs)), tensors(loaded(*inputs))
        assert [tuple(item.shape) for item in found] == [tuple(item.shape) for item in expected], sizes
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_only_a_symbolic_trace_without_open_guards_is_a_proof(made: Made) -> None:
    evidence = {dim.evidence for dim in made.export.contract.dims}
    assert evidence == {"proved" if made.sample.proved else "sampled"}
    assert bool(made.export.verdict.proved) == made.sample.proved


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.rung == "symbolic"])
def test_unless_a_proof_is_asked_for_ordinary_runs_come_first(name: str) -> None:
    sample = SAMPLES[name]
    export = anyshape.export(sample.model().eval(), sample.inputs(*sample.sizes[0]))
    assert export.rung == export.contract.rung == "differential"
    assert {dim.evidence for dim in export.contract.dims} == {"sampled"}
    assert export.verdict.proved == ()
    assert all(row.outcome == "right" for row in export.verdict.rows)


def graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and those inside it: the sides of an If, the body of a Loop."""
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from graphs(attribute.as_graph())


def test_weights_are_stored_once(made: Made) -> None:
    weights = [item.numel() for item in made.model.parameters() if item.numel() > 64]
    main, *inner = graphs(ir.load(made.path).graph)
    assert not [name for graph in inner for name in graph.initializers]
    tensors = [value.const_value for value in main.initializers.values()]
    assert sum(item.size for item in tensors if item is not None and item.size > 64) == sum(weights)
    if made.sample.rung == "regions":
        assert made.path.stat().st_size < 1.1 * 4 * sum(weights)


# --- Too many paths -------------------------------------------------------------------------------------

FUNCTIONS = (
    torch.sin,
    torch.cos,
    torch.tanh,
    torch.relu,
    torch.exp,
    torch.abs,
    torch.sigmoid,
    torch.neg,
    torch.erf,
    torch.sinh,
    torch.cosh,
    torch.atan,
    torch.asinh,
)


class ManyWays(nn.Module):
    """Another function for every three sizes, chosen by numpy so that no symbolic trace gets through."""

    def forward(self, x: Tensor) -> Tensor:
        number = int(np.asarray(x.shape)[1]) // 3
        return FUNCTIONS[number](x) if number < len(FUNCTIONS) else x * 2  # one of many


def test_too_many_ways_is_a_fault_that_says_so(line_in: Callable[[str, str], int]) -> None:
    with pytest.raises(CaptureFault, match="more than 12 ways, depending on its sizes") as caught:
        anyshape.export(ManyWays(), torch.randn(2, 7))
    assert "those at x_1 <= 38 are not the last" in caught.value.what  # three sizes a way
    assert caught.value.where is not None and caught.value.where.file.endswith("test_rungs.py")
    assert caught.value.where.line == line_in(__file__, "# one of many")
    assert caught.value.hint == "Declare a smaller range for the dim that chooses them."
