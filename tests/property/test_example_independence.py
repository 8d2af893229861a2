"""The example is only an example: whichever sizes and values it has, the graph and the contract are the same."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

import anyshape
from anyshape.contract.contract import Contract

Sizes = Mapping[str, int]
Ranges = Mapping[str, tuple[int, int]]


# --- Graphs up to names ---------------------------------------------------------------------------------


def written(model: onnx.ModelProto) -> Any:
    """A model as nested lists without a name in them: values by the order of their appearance, weights in full."""
    functions = {
        f"{function.domain}.{function.name}": _body(
            function.node, {name: ("in", k) for k, name in enumerate(function.input)}, function.output
        )
        for function in model.functions
    }
    versions = sorted((item.domain, item.version) for item in model.opset_import)
    return {"opsets": versions, "graph": _graph(model.graph, {}), "functions": functions}


def _graph(graph: onnx.GraphProto, outer: Mapping[str, Any]) -> Any:
    known = dict(outer)
    for tensor in graph.initializer:
        known[tensor.name] = _tensor(tensor)
    start = _count(outer, "in")
    for number, value in enumerate(graph.input):
        known[value.name] = ("in", start + number)
    types = [_type(value) for value in (*graph.input, *graph.output)]
    return [types, _body(graph.node, known, [value.name for value in graph.output])]


def _body(nodes: Sequence[onnx.NodeProto], known: dict[str, Any], outputs: Sequence[str]) -> Any:
    made = []
    numbers = itertools.count(_count(known, "value"))
    for node in nodes:
        inputs = [known.get(name) for name in node.input]
        attributes = {item.name: _attribute(item, known) for item in node.attribute}
        made.append([node.domain, node.op_type, inputs, attributes, [bool(name) for name in node.output]])
        known.update({name: ("value", next(numbers)) for name in node.output if name})
    return [made, [known[name] for name in outputs]]


def _count(known: Mapping[str, Any], kind: str) -> int:
    return sum(value[0] == kind for value in known.values())


def _attribute(item: onnx.AttributeProto, known: Mapping[str, Any]) -> Any:
    if item.ref_attr_name:
        return ("reference", item.ref_attr_name)
    if item.type == onnx.AttributeProto.GRAPH:
        return _graph(item.g, known)
    value = helper.get_attribute_value(item)
    return _tensor(value) if isinstance(value, onnx.TensorProto) else value


def _tensor(tensor: onnx.TensorProto) -> Any:
    return ("tensor", tensor.data_type, list(tensor.dims), numpy_helper.to_array(tensor).tobytes())


def _type(value: onnx.ValueInfoProto) -> Any:
    tensor = value.type.tensor_type
    return tensor.elem_type, [size.dim_param or size.dim_value for size in tensor.shape.dim]


def spoken(contract: Contract) -> Any:
    """What a contract promises: everything but the example's own sizes and values."""
    return {
        "dims": [[dim.name, dim.range.text(), dim.origin, dim.evidence, dim.reason] for dim in contract.dims],
        "inputs": [[item.name, item.dtype, item.shape_text()] for item in contract.inputs],
        "outputs": [[item.name, item.dtype, item.shape_text()] for item in contract.outputs],
        "relations": [str(relation) for relation in contract.relations],
        "notes": [_without_sizes(note) for note in contract.notes],
        "structure": [contract.arguments, contract.input_structure, contract.output_structure],
    }


def _without_sizes(note: str) -> str:
    """A note without PyTorch's own words, which name the sizes at which it was asked."""
    return re.sub(r"Error: .* \(", "Error: (", note)


def differences(one: Any, two: Any, place: str = "") -> Iterator[str]:
    """Where two such trees differ, each as a place and what stands there."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for key in one:
            yield from differences(one[key], two[key], f"{place}.{key}")
    elif isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)) and len(one) == len(two):
        for number, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from differences(a, b, f"{place}[{number}]")
    elif one != two:
        yield f"{place}: {str(one)[:200]} and {str(two)[:200]}"


# --- Modules of several kinds ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A module, the sizes that its example may have, and the example at some sizes."""

    build: Callable[[], nn.Module]
    ranges: Ranges
    inputs: Callable[..., tuple[Tensor, ...]]


KINDS: dict[str, Kind] = {}


def kind(
    ranges: Ranges, inputs: Callable[..., tuple[Tensor, ...]]
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    def enter(cls: type[nn.Module]) -> type[nn.Module]:
        KINDS["".join("_" + c.lower() if c.isupper() else c for c in cls.__name__)[1:]] = Kind(
            cls, ranges, inputs
        )
        return cls

    return enter


@kind({"b": (1, 9)}, lambda b: (torch.randn(b, 10),))
class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


@kind({"b": (1, 5), "h": (4, 14), "w": (4, 14)}, lambda b, h, w: (torch.randn(b, 3, h, w),))
class ConvolutionAndPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(self.conv(x).relu(), 2).mean((2, 3))


def tokens_and_mask(b: int, s: int) -> tuple[Tensor, ...]:
    mask = torch.rand(b, s) < 0.7
    mask[:, 0], mask[0, -1] = True, s == 1
    return torch.randn(b, s, 8), mask


@kind({"b": (1, 5), "s": (2, 9)}, tokens_and_mask)
class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).masked_fill(~mask[:, None, None], -1e4)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, 8)


@kind({"b": (1, 5), "s": (1, 7)}, lambda b, s: (torch.randn(b, s, 6),))
class LoopOverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        state, seen = x.new_zeros(x.shape[0], 6), []
        for step in range(x.shape[1]):
            state = torch.tanh(self.cell(x[:, step]) + state)
            seen.append(state)
        return torch.stack(seen, 1)


@kind({"b": (1, 5), "s": (2, 12)}, lambda b, s: (torch.randn(b, s, 6),))
class BranchOnASize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1) if x.shape[1] > 7 else x.flip(1) * 2


@kind({"n": (2, 8), "e": (1, 9)}, lambda n, e: (torch.randn(n, 6), torch.randint(0, n, (2, e))))
class IndexByAnotherInput(nn.Module):
    def forward(self, nodes: Tensor, edge_index: Tensor) -> Tensor:
        return torch.zeros_like(nodes).index_add(0, edge_index[1], nodes[edge_index[0]])


@kind({"b": (1, 5), "s": (1, 7)}, lambda b, s: (torch.randn(b, s, 6),))
class Reshape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], 2, 3).transpose(1, 2).reshape(x.shape[0] * 2, -1)


@kind({"b": (1, 4), "t": (1, 21)}, lambda b, t: (torch.randn(b, 3, t),))
class PadToAMultiple(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        count = math.ceil(x.shape[-1] / 8)
        return functional.pad(x, (0, count * 8 - x.shape[-1])).view(x.shape[0], 3, count, 8).mean(-1)


@kind({"b": (1, 5), "s": (1, 16)}, lambda b, s: (torch.randint(0, 20, (b, s)),))
class TableOfPositions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(16, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))


@kind({"b": (1, 4), "m": (1, 7), "n": (1, 7)}, lambda b, m, n: (torch.randn(b, m, 4), torch.randn(b, n, 4)))
class TwoLengths(nn.Module):
    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        return torch.einsum("bmd,bnd->bmn", one, two).log_softmax(-1)


@kind({"b": (1, 5), "n": (3, 14)}, lambda b, n: (torch.randn(b, n),))
class SomeOfASize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.topk(max(1, x.shape[1] // 3), dim=1).values


@kind({"b": (1, 4), "past": (1, 7)}, lambda b, past: (torch.randn(b, 1, 4), torch.randn(b, past, 4)))
class Cache(nn.Module):
    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([cache, x], 1)
        return (x @ keys.transpose(1, 2)).softmax(-1) @ keys, keys


@kind({"b": (1, 4), "s": (2, 7)}, lambda b, s: (torch.randn(b, s, 4), torch.randn(b, 2 * s, 4)))
class TwiceTheLength(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.repeat_interleave(2, 1) + y


# --- The property ---------------------------------------------------------------------------------------


@functools.cache
def module_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return KINDS[name].build().eval()


@functools.cache
def exported(name: str, sizes: tuple[tuple[str, int], ...], seed: int) -> Any:
    module = module_of(name)
    torch.manual_seed(seed)
    made = anyshape.export(module, KINDS[name].inputs(**dict(sizes)))
    return {"rung": made.rung, "contract": spoken(made.contract), "model": written(made.model_proto)}


def usual(ranges: Ranges) -> tuple[tuple[str, int], ...]:
    """A good example: sizes that are neither 1 nor alike."""
    return tuple(
        (name, min(high, max(low, 3) + 2 * at)) for at, (name, (low, high)) in enumerate(ranges.items())
    )


@pytest.mark.parametrize("name", KINDS)
def test_the_export_does_not_follow_the_example(name: str) -> None:
    """Each drawn example, with its ones, its sizes alike and its ends of tables, against one that is good."""
    ranges = KINDS[name].ranges
    good = exported(name, usual(ranges), 1)

    @settings(deadline=None, max_examples=3, derandomize=True, database=None)
    @given(
        st.fixed_dictionaries({key: st.integers(*ends) for key, ends in ranges.items()}), st.integers(2, 9)
    )
    def holds(sizes: dict[str, int], seed: int) -> None:
        assert list(differences(good, exported(name, tuple(sizes.items()), seed))) == []

    holds()


# --- The comparison itself ------------------------------------------------------------------------------

LOOP = """
    <ir_version: 8, opset_import: ["" : 18]>
    f (float[n, 4] x, bool c) => (float[n, 4] {out}) <float[1] {weight} = {{2.0}}> {{
        {out} = If (c) <
            then_branch = g () => (float[n, 4] {inner}) {{ {inner} = Mul (x, {weight}) }},
            else_branch = g () => (float[n, 4] b) {{ b = {op} <{attribute}> (x) }}
        >
    }}
"""
NAMES = {"out": "y", "weight": "w", "inner": "a", "op": "LeakyRelu", "attribute": "alpha = 0.5"}


def parsed(**other: str) -> Any:
    return written(onnx.parser.parse_model(LOOP.format(**{**NAMES, **other})))


def test_graphs_with_other_names_are_the_same() -> None:
    assert list(differences(parsed(), parsed(out="z", weight="w0", inner="v7"))) == []


@pytest.mark.parametrize(
    "other",
    [{"op": "Elu"}, {"attribute": "alpha = 0.25"}, {"weight": "x"}],
    ids=["operator", "attribute", "input"],
)
def test_graphs_that_differ_within_a_branch_are_not_the_same(other: dict[str, str]) -> None:
    assert len(list(differences(parsed(), parsed(**other)))) == 1
