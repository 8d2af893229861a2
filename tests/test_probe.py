from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from anyshape.inputs.read import read
from anyshape.probe import probe

Found = Callable[..., Any]


class Calls(nn.Module):
    """A function of tensors as a module, with a few weights to coincide with."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.function = function
        self.forward = function  # its signature names the inputs


class Attention(nn.Module):
    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, size)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embed(tokens)
        scores = (x @ x.transpose(1, 2)).masked_fill(~mask[:, None, :], -1e9)
        return scores.softmax(-1) @ x


def bools(*shape: int) -> Tensor:
    mask = torch.ones(shape, dtype=torch.bool)
    mask[..., -1] = False
    return mask


# Equalities ------------------------------------------------------------------------------------------------------


def test_tokens_and_mask_agree(found: Found) -> None:
    made = found(Attention(), (torch.randint(0, 50, (2, 6)), bools(2, 6)))
    assert made.shapes == {"tokens": "batch, seq", "mask": "batch, seq"}


def test_an_all_ones_mask_is_still_a_mask(found: Found) -> None:
    made = found(Attention(), (torch.randint(0, 50, (2, 6)), torch.ones(2, 6, dtype=torch.bool)))
    assert made.shapes == {"tokens": "batch, seq", "mask": "batch, seq"}
    assert made.agreed.rules[1].kind == "mask"


def test_inputs_that_never_meet_vary_on_their_own(found: Found) -> None:
    made = found(Calls(lambda a, b: (a + 1, b * 2)), (torch.randn(3, 4), torch.randn(5, 4)))
    sizes = [part for shape in made.shapes.values() for part in shape.split(", ")]
    assert len(set(sizes)) == 4


def test_a_contracted_axis_is_one_dim(found: Found) -> None:
    made = found(Calls(lambda a, b: a @ b), (torch.randn(3, 4), torch.randn(4, 5))).shapes
    (rows, inner), (same, columns) = made["a"].split(", "), made["b"].split(", ")
    assert inner == same and len({rows, inner, columns}) == 3


# Affine relations -------------------------------------------------------------------------------------------------


def test_twice_the_size(found: Found) -> None:
    made = found(Calls(lambda x, y: torch.cat([x, x], 1) * y), (torch.randn(2, 5), torch.randn(2, 10)))
    x, y = (shape.split(", ") for shape in made.shapes.values())
    assert x[0] == y[0] and y[1] == f"2*{x[1]}"


def test_twice_the_size_when_the_larger_input_comes_first(found: Found) -> None:
    made = found(Calls(lambda y, x: torch.cat([x, x], 1) * y), (torch.randn(2, 10), torch.randn(2, 5)))
    y, x = (shape.split(", ") for shape in made.shapes.values())
    assert x[0] == y[0] and y[1] == f"2*{x[1]}"


def test_one_less(found: Found) -> None:
    made = found(Calls(lambda x, d: x[:, 1:] - x[:, :-1] + d), (torch.randn(2, 7), torch.randn(2, 6)))
    x, d = (shape.split(", ") for shape in made.shapes.values())
    assert d[1] == f"{x[1]} - 1" or x[1] == f"{d[1]} + 1"


def test_twice_the_size_less_one(found: Found) -> None:
    def forward(x: Tensor, relative: Tensor) -> Tensor:
        return x.sum() + torch.cat([x, x[1:]]) * relative

    made = found(Calls(forward), (torch.randn(5), torch.randn(9)), shapes={"x": "n"})
    assert made.shapes == {"x": "n", "relative": "2*n - 1"}


def test_three_times_plus_two(found: Found) -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return functional.pad(torch.cat([x, x, x], 1), (1, 1)) * y

    made = found(Calls(forward), (torch.randn(2, 4), torch.randn(2, 14)))
    x, y = (shape.split(", ") for shape in made.shapes.values())
    assert y[1] == f"3*{x[1]} + 2"


@pytest.mark.parametrize(
    ("rate", "offset", "size"), [(4, 1, 3), (5, -3, 4), (3, -4, 4), (16, 3, 5), (3, 7, 4)]
)
def test_many_times_and_an_offset_when_the_larger_input_comes_first(
    found: Found, rate: int, offset: int, size: int
) -> None:
    def forward(y: Tensor, x: Tensor) -> Tensor:
        return functional.pad(torch.cat([x] * rate, 1), (0, offset)) * y

    made = found(Calls(forward), (torch.randn(2, rate * size + offset), torch.randn(2, size)))
    y, x = (shape.split(", ") for shape in made.shapes.values())
    assert y[1] == f"{rate}*{x[1]} {'+' if offset > 0 else '-'} {abs(offset)}"


class Cached(nn.Module):
    """One step of attention over a cache: the mask covers past and present."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor, past: list[tuple[Tensor, Tensor]]) -> Any:
        grown = []
        for key, value in past:
            q = self.project(x).unflatten(-1, (2, 4)).transpose(1, 2)
            key, value = torch.cat([key, q], 2), torch.cat([value, q], 2)
            scores = q @ key.transpose(-1, -2) + mask[:, None, None, :]
            x = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
            grown.append((key, value))
        return x, grown


def cached_inputs(batch: int, seq: int, past: int) -> tuple[Any, ...]:
    layers = [(torch.randn(batch, 2, past, 4), torch.randn(batch, 2, past, 4)) for _ in range(3)]
    return torch.randn(batch, seq, 8), torch.randn(batch, past + seq), layers


@pytest.fixture(scope="module")
def cached(found: Found) -> Any:
    return found(Cached(), cached_inputs(2, 3, 5))


def test_mask_over_past_and_present(cached: Any) -> None:
    made = cached.shapes
    assert made["x"] == "batch, seq, 8"
    assert made["mask"] in ("batch, past + seq", "batch, seq + past")


def test_layers_of_a_cache_move_as_one(cached: Any) -> None:
    made = cached.shapes
    caches = {made[f"past.{layer}.{part}"] for layer in range(3) for part in range(2)}
    assert caches == {"batch, 2, past, 4"}


def test_an_empty_past_is_legal(cached: Any) -> None:
    assert cached.contract.dim("past").range.minimum == 0


@pytest.mark.parametrize("sizes", [(1, 1, 4), (4, 4, 4), (8, 2, 4), (1, 1, 1)])
def test_a_cache_whose_sizes_coincide(found: Found, sizes: tuple[int, int, int]) -> None:
    made = found(Cached(), cached_inputs(*sizes)).shapes
    assert made["x"] == "batch, seq, 8"
    assert made["mask"] in ("batch, past + seq", "batch, seq + past")
    assert made["past.2.1"] == "batch, 2, past, 4"


# Multiples ---------------------------------------------------------------------------------------------------------


def windows(image: Tensor) -> Tensor:
    b, c, h, w = image.shape
    return image.view(b, c, h // 8, 8, w // 8, 8).amax((3, 5))


def test_windows_of_eight(found: Found) -> None:
    made = found(Calls(windows), (torch.randn(2, 3, 16, 24),))
    assert made.shapes["image"].split(", ")[2:] == ["8*h", "8*w"]
    assert made.contract.example["h"] == 2 and made.contract.example["w"] == 3


def test_an_even_size(found: Found) -> None:
    made = found(Calls(lambda x: x.view(x.shape[0], -1, 2).sum(-1)), (torch.randn(3, 10),))
    assert made.shapes["x"].split(", ")[1].startswith("2*")


def test_a_multiple_shared_by_two_inputs(found: Found) -> None:
    def forward(image: Tensor, other: Tensor) -> Tensor:
        return windows(image + other)

    made = found(Calls(forward), (torch.randn(2, 3, 16, 24), torch.randn(2, 3, 16, 24))).shapes
    assert made["image"] == made["other"] and made["image"].endswith("8*h, 8*w")


# Ranges ------------------------------------------------------------------------------------------------------------


def test_a_convolution_needs_its_kernel(found: Found) -> None:
    made = found(nn.Conv1d(3, 4, 5), (torch.randn(2, 3, 20),))
    assert made.shapes == {"input": "batch, 3, time"}
    assert made.ranges["time"] == ">=5"


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 8), nn.Embedding(128, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        return self.words(tokens) + self.places(places)  # a table of 128


def test_a_position_table_ends_the_range_with_its_line(line_in: Callable[[str, str], int]) -> None:
    evidence = probe(read(Positions(), (torch.randint(0, 50, (2, 6)),)))
    _, seq = evidence.dims
    assert (seq.range.minimum, seq.range.maximum) == (0, 128)
    assert seq.above is not None and seq.above.file.endswith("test_probe.py")
    assert seq.above.line == line_in(__file__, "a table of 128")
    assert seq.above_error.startswith("IndexError")


@pytest.mark.parametrize("seq", [57, 63, 100, 120, 127, 128])
def test_a_position_table_from_an_example_near_its_end(found: Found, seq: int) -> None:
    made = found(Positions(), (torch.randint(0, 50, (2, seq)),))
    assert made.ranges == {"batch": ">=0", "seq": "0..128"}


@pytest.mark.parametrize("seq", [2, 6, 7, 9, 12])
def test_a_short_table_is_no_step(found: Found, seq: int) -> None:
    table = torch.randn(12, 8)
    made = found(Calls(lambda x: x + table[: x.shape[1]]), (torch.randn(2, seq, 8),))
    assert made.ranges["seq"] == "0..12"


def test_a_sliced_position_table(found: Found) -> None:
    table = nn.Parameter(torch.randn(40, 8))

    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, x: Tensor) -> Tensor:
            return x + self.table[: x.shape[1]]

    made = found(Sliced(), (torch.randn(2, 6, 8),))
    assert made.ranges["seq"] == "0..40"


def test_a_hand_written_limit(found: Found) -> None:
    def forward(x: Tensor) -> Tensor:
        if not 3 <= x.shape[0] <= 77:
            raise ValueError(f"{x.shape[0]} rows")
        return x * 2

    made = found(Calls(forward), (torch.randn(6, 4),))
    assert made.ranges["batch"] == "3..77"


def test_zero_is_legal_where_pytorch_accepts_it(found: Found) -> None:
    made = found(Calls(lambda x: x.sum(-1)), (torch.randn(3, 4),))
    assert {dim.range.minimum for dim in made.contract.dims} == {0}


def test_zero_is_not_legal_where_pytorch_refuses_it(found: Found) -> None:
    made = found(Calls(lambda x: x.max(-1).values), (torch.randn(3, 4),))
    assert [dim.range.minimum for dim in made.contract.dims] == [0, 1]


def test_one_is_not_legal_where_pytorch_refuses_it(found: Found) -> None:
    made = found(Calls(lambda x: torch.gradient(x, dim=1)[0]), (torch.randn(3, 6),))
    assert [dim.range.minimum for dim in made.contract.dims] == [0, 2]


# Coincidences ------------------------------------------------------------------------------------------------------


def test_batch_equals_seq(found: Found) -> None:
    made = found(Attention(), (torch.randint(0, 50, (4, 4)), bools(4, 4)))
    assert made.shapes == {"tokens": "batch, seq", "mask": "batch, seq"}


def test_seq_equals_hidden_size(found: Found) -> None:
    made = found(Attention(8), (torch.randint(0, 50, (2, 8)), bools(2, 8)))
    assert made.shapes == {"tokens": "batch, seq", "mask": "batch, seq"}


@pytest.mark.parametrize("sizes", [(1, 6), (6, 1), (1, 1)])
def test_sizes_of_one(found: Found, sizes: tuple[int, int]) -> None:
    made = found(Attention(), (torch.randint(0, 50, sizes), torch.ones(sizes, dtype=torch.bool)))
    assert made.shapes == {"tokens": "batch, seq", "mask": "batch, seq"}


@pytest.mark.parametrize("sizes", [(2, 5), (2, 2), (1, 2)])
def test_a_two_that_hides_a_one(found: Found, sizes: tuple[int, int]) -> None:
    batch, seq = sizes
    made = found(
        Calls(lambda x, d: x[:, 1:] * d), (torch.randn(batch, seq, 4), torch.randn(batch, seq - 1, 4))
    )
    assert made.shapes == {"x": "batch, seq, x_2", "d": "batch, seq - 1, x_2"}


def test_features_that_equal_the_batch_stay_fixed(found: Found) -> None:
    made = found(nn.Linear(4, 4), (torch.randn(4, 4),))
    assert made.shapes == {"input": "batch, 4"}


def test_two_inputs_whose_lengths_coincide_are_apart(found: Found) -> None:
    def forward(text: Tensor, audio: Tensor) -> Tensor:
        return text.mean(1) + audio.mean(1)

    made = found(Calls(forward), (torch.randn(2, 5, 8), torch.randn(2, 5, 8))).shapes
    text, audio = (shape.split(", ") for shape in made.values())
    assert text[0] == audio[0] and text[1] != audio[1] and text[2] == audio[2]


def test_features_that_equal_lengths_of_another_rate_are_apart(found: Found) -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x.repeat_interleave(2, 1) + y

    made = found(Calls(forward), (torch.randn(4, 4, 4), torch.randn(4, 8, 4))).shapes
    assert made == {"x": "batch, seq, x_2", "y": "batch, 2*seq, x_2"}


def test_a_square_image_has_two_sides(found: Found) -> None:
    made = found(nn.Conv2d(3, 3, 3), (torch.randn(3, 3, 9, 9),))
    assert made.shapes == {"input": "batch, 3, height, width"}
    assert made.ranges["height"] == made.ranges["width"] == ">=3"


def test_a_view_that_fits_by_luck_is_no_freedom(found: Found) -> None:
    # 60 features split into 4 heads of 15: near by, 5 rows of 60 can be seen as other heads, but never mean them.
    made = found(Calls(lambda x: x.view(x.shape[0], 4, 15)), (torch.randn(5, 60),))
    assert made.shapes["x"].endswith(", 60")


def test_a_square_matrix_stays_square(found: Found) -> None:
    made = found(Calls(lambda x: x + x.mT), (torch.randn(2, 5, 5),)).shapes["x"].split(", ")
    assert made[1] == made[2] != made[0]


# Broadcasting ------------------------------------------------------------------------------------------------------


def test_a_one_against_a_larger_size_stays_one(found: Found) -> None:
    made = found(Calls(lambda x, scale: x * scale), (torch.randn(4, 6), torch.randn(1, 6))).shapes
    assert made["scale"].split(", ")[0] == "1"
    assert made["x"].split(", ")[1] == made["scale"].split(", ")[1]


def test_a_one_channel_mask_stays_one(found: Found) -> None:
    made = found(
        Calls(lambda image, mask: image * mask), (torch.randn(2, 3, 5, 7), torch.randn(2, 1, 5, 7))
    ).shapes
    assert made["mask"].split(", ")[1] == "1"
    image, mask = made["image"].split(", "), made["mask"].split(", ")
    assert [image[axis] == mask[axis] for axis in range(4)] == [True, False, True, True]


# Values ------------------------------------------------------------------------------------------------------------


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        return torch.zeros_like(x).index_add(0, target, self.linear(x)[source])


@pytest.fixture(scope="module")
def graph(found: Found) -> Any:
    edges = torch.tensor([[0, 1, 2, 3, 4, 6, 5], [1, 2, 3, 4, 6, 5, 0]])
    return found(Graph(), (torch.randn(7, 6), edges))


def test_zeros_and_ones_may_be_edges(found: Found) -> None:
    made = found(Graph(), (torch.randn(2, 6), torch.tensor([[0, 1, 0], [1, 1, 0]])))
    assert made.shapes == {"x": "nodes, 6", "edge_index": "2, edges"}
    assert str(made.agreed.rules[1].limit) == "nodes - 1"


@pytest.mark.parametrize("nodes", [1, 5])
def test_zeros_may_be_edges(found: Found, nodes: int) -> None:
    made = found(Graph(), (torch.randn(nodes, 6), torch.zeros(2, 3, dtype=torch.long)))
    assert made.shapes == {"x": "nodes, 6", "edge_index": "2, edges"}
    assert str(made.agreed.rules[1].limit) == "nodes - 1"


def test_zeros_that_index_a_weight_are_no_indices_of_a_dim(found: Found) -> None:
    made = found(Positions(), (torch.zeros(2, 6, dtype=torch.long),))
    assert made.agreed.rules[0].kind == "constant"


def test_nodes_and_edges_vary_on_their_own(graph: Any) -> None:
    assert graph.shapes == {"x": "nodes, 6", "edge_index": "2, edges"}


def test_edges_stay_below_the_nodes(graph: Any) -> None:
    rule = graph.agreed.rules[1]
    assert rule.kind == "index" and str(rule.limit) == "nodes - 1"
    assert graph.contract.inputs[1].values["limit"] == "nodes - 1"


def test_fewer_nodes_than_the_example_are_legal(graph: Any) -> None:
    assert graph.contract.dim("nodes").range.minimum <= 1


class Lengths(nn.Module):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if (lengths > x.shape[1]).any():
            raise ValueError("a length beyond the sequence")
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        return x * mask


def test_lengths_go_up_to_the_sequence(found: Found) -> None:
    made = found(Lengths(), (torch.randn(3, 7), torch.tensor([7, 4, 2])))
    x, lengths = (shape.split(", ") for shape in made.shapes.values())
    assert lengths == [x[0]]
    assert made.agreed.rules[1].kind == "index" and str(made.agreed.rules[1].limit) == x[1]


def test_position_ids_below_a_table(found: Found) -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(50, 8), nn.Embedding(64, 8)

        def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
            return self.words(tokens) + self.places(positions)

    made = found(Placed(), (torch.randint(0, 50, (2, 6)), torch.arange(6).expand(2, 6).contiguous()))
    assert made.shapes == {"tokens": "batch, seq", "positions": "batch, seq"}
    assert made.agreed.rules[1].kind == "progression"
    assert made.ranges["seq"].endswith("..64")


# Structures --------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    ids: Tensor
    mask: Tensor


@dataclasses.dataclass
class Sample:
    image: Tensor
    sizes: list[Tensor]


def test_images_of_a_list_may_differ_though_they_are_alike_in_the_example(found: Found) -> None:
    def forward(images: list[Tensor]) -> Tensor:
        return torch.stack([image.mean((1, 2)) for image in images])

    made = found(Calls(forward), ([torch.randn(3, 9, 9), torch.randn(3, 9, 9)],)).shapes
    sides = [size for shape in made.values() for size in shape.split(", ")[1:]]
    assert len(set(sides)) == 4


def test_lists_whose_items_belong_together_in_pairs(found: Found) -> None:
    def forward(boxes: list[Tensor], scores: list[Tensor]) -> Tensor:
        return torch.cat([(b * s[:, None]).sum(0) for b, s in zip(boxes, scores, strict=True)])

    given = ([torch.randn(5, 4), torch.randn(5, 4)], [torch.randn(5), torch.randn(5)])
    made = {path: shape.split(", ")[0] for path, shape in found(Calls(forward), given).shapes.items()}
    assert made["boxes.0"] == made["scores.0"] != made["boxes.1"] == made["scores.1"]


def test_a_long_list_moves_as_one(found: Found) -> None:
    made = found(
        Calls(lambda parts: [part * 2 for part in parts]), ([torch.randn(4) for _ in range(9)],)
    ).shapes
    assert len(set(made.values())) == 1


def test_items_of_a_list_that_are_added_have_one_size(found: Found) -> None:
    made = found(Calls(lambda parts: parts[0] + parts[1]), ([torch.randn(1, 1), torch.randn(1, 1)],)).shapes
    assert made["parts.0"] == made["parts.1"]


def test_a_named_tuple(found: Found) -> None:
    pair = Pair(torch.randint(0, 9, (2, 5)), torch.ones(2, 5, dtype=torch.long))
    made = found(Calls(lambda pair: pair.ids * pair.mask), (pair,))
    assert made.shapes == {"pair.ids": "batch, seq", "pair.mask": "batch, seq"}


def test_a_dataclass_with_a_list(found: Found) -> None:
    made = found(
        Calls(lambda sample: [sample.image.mean() + size for size in sample.sizes]),
        (Sample(torch.randn(2, 3, 5, 7), [torch.randn(4), torch.randn(4)]),),
    )
    shapes = made.shapes
    assert list(shapes) == ["sample.image", "sample.sizes.0", "sample.sizes.1"]
    assert shapes["sample.sizes.0"] != shapes["sample.sizes.1"]


def test_a_dict_and_constants(found: Found) -> None:
    def forward(batch: dict[str, Tensor], flag: bool, count: int, nothing: None = None) -> Tensor:
        return batch["a"] * count + batch["b"] if flag else batch["a"]

    made = found(
        Calls(forward), ({"a": torch.randn(2, 5), "b": torch.randn(2, 5)}, True, 3), {"nothing": None}
    )
    shapes = made.shapes
    assert shapes["batch.a"] == shapes["batch.b"]
    assert dict(made.contract.constants) == {"flag": "True", "count": "3"}


def test_scalars_have_no_dims(found: Found) -> None:
    made = found(Calls(lambda x, t: x * t), (torch.randn(3, 5), torch.tensor(2.0)))
    assert made.shapes["t"] == ""
    assert len(made.contract.dims) == 2


def test_keyword_and_variable_arguments(found: Found) -> None:
    def forward(*tensors: Tensor, **named: Tensor) -> Tensor:
        return sum(tensors) + sum(named.values())  # type: ignore[return-value]

    x = torch.randn(2, 5)
    made = found(Calls(forward), (x, x + 1), {"left": x + 2, "right": x + 3}).shapes
    assert list(made) == ["tensors.0", "tensors.1", "left", "right"]
    assert len(set(made.values())) == 1


# What the evidence says of itself ----------------------------------------------------------------------------------


def test_nothing_varies() -> None:
    evidence = probe(read(Calls(lambda x: x.view(3, 4) + 1), (torch.randn(3, 4),)))
    assert evidence.dims == () and evidence.summary.startswith("no dims found")


def test_generic_sizes_are_free_of_coincidences() -> None:
    case = read(Attention(8), (torch.randint(0, 50, (8, 8)), bools(8, 8)))
    sizes = [dim.generic for dim in probe(case).dims]
    assert len(set(sizes)) == len(sizes) and not set(sizes) & case.weight_sizes()


def test_the_summary_counts_dims_and_runs() -> None:
    evidence = probe(read(nn.Linear(3, 3), (torch.randn(2, 3),)))
    assert evidence.summary == f"1 dim found from one example ({evidence.runs} sizes tried)"
    assert evidence.complete and not evidence.fake


def test_no_time_is_said() -> None:
    evidence = probe(read(nn.Linear(3, 3), (torch.randn(2, 3),)), budget=0.0)
    assert not evidence.complete


def test_weights_on_the_meta_device_are_probed_on_fake_tensors() -> None:
    with torch.device("meta"):
        model = Attention(8)
    evidence = probe(read(model, (torch.randint(0, 50, (2, 6)), bools(2, 6))))
    assert evidence.fake and "fake tensors" in evidence.summary
    (batch, seq), mask = evidence.shapes
    assert mask == (batch, seq) and batch != seq


def test_a_relation_of_another_kind_fixes_its_sizes(found: Found) -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        if y.shape[0] != x.shape[0] ** 3:
            raise ValueError("y has one row for each three rows of x")
        return x.sum() + y

    # A cube is beyond what is tried: both stay fixed rather than wrongly free.
    more = [(torch.randn(2, 2), torch.randn(8, 2))]
    made = found(Calls(forward), (torch.randn(3, 2), torch.randn(27, 2)), examples=more).shapes
    assert made["x"].split(", ")[0] == "3" and made["y"].split(", ")[0] == "27"
