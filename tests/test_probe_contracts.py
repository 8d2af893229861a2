"""Contracts of small modules with several inputs: the widest that is right, and always with the example in it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from anyshape.dims import Expr, Range, Relation
from anyshape.errors import InputError
from anyshape.inputs.read import read
from anyshape.probe import probe
from anyshape.probe.evidence import Evidence, FoundDim, with_example

Found = Callable[..., Any]
f = torch.randn


class Calls(nn.Module):
    """A function of the module and its tensors, with what else the module needs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.forward = types.MethodType(function, self)


def only(accepts: Callable[[int], bool], then: Callable[..., Any]) -> Callable[..., Any]:
    """A module that refuses lengths, and then works."""

    def forward(self: Any, x: Tensor, *others: Tensor) -> Any:
        assert accepts(x.shape[1]), "another length, please"
        return then(x, *others)

    return forward


def two(accepts: Callable[[int], bool]) -> Callable[..., Any]:
    def forward(self: Any, x: Tensor, y: Tensor) -> Tensor:
        assert accepts(x.shape[1]), "another length, please"
        return torch.cat([x, x], 1) * y

    return forward


def late(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    masked = x * mask[:, :, None]
    if (x.shape[1] - 1) % 4:
        raise ValueError(f"{x.shape[1]} is not 4*k + 1")
    return masked


def frames(self: Any, x: Tensor) -> Tensor:
    blocks = x[:, :, 1:].unflatten(2, (-1, 4) if x.shape[2] > 1 else (0, 4))
    return torch.cat([x[:, :, :1], blocks.mean(3)], 2)


def relative(self: Any, x: Tensor, table: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])
    return x @ x.mT + table[places[:, None] - places + x.shape[1] - 1]


def pooled(factor: int) -> Callable[..., Any]:
    def forward(self: Any, x: Tensor) -> Tensor:
        small = functional.avg_pool2d(x, factor)
        return x + functional.interpolate(small, scale_factor=factor)

    return forward


CONTRACTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    # name: module, example, shapes and relations over the names that are found
    "a batch for two": (lambda self, x, y: x.sum(1) + y.sum(1), (f(3, 5), f(3, 7)), "b n | b m"),
    "past and present": (
        lambda self, x, y, z: torch.cat([x, y], 1) * z,
        (f(2, 5, 4), f(2, 3, 4), f(2, 8, 4)),
        "b n c | b m c | b n+m c",
    ),
    "a mask for each pair": (
        lambda self, x, mask: (x @ x.mT + mask).softmax(-1) @ x,
        (f(2, 6, 8), f(6, 6)),
        "b n c | n n",
    ),
    "two lengths that attend": (
        lambda self, q, k: (q @ k.mT).softmax(-1) @ k,
        (f(2, 7, 8), f(2, 7, 8)),
        "b n c | b m c",
    ),
    "heads that share keys": (
        lambda self, q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (f(2, 4, 5, 8), f(2, 2, 5, 8)),
        "b 2*h n c | b h m c",
    ),
    "a long table": (
        lambda self, x, table: x + table[: x.shape[1]],
        (f(2, 5, 4), f(48, 4)),
        "b n c | t c ; n<=t",
    ),
    "a table by index": (
        lambda self, x, table: x + table[torch.arange(x.shape[1])],
        (f(2, 5, 4), f(48, 4)),
        "b n c | t c ; n<=t",
    ),
    "a long mask": (
        lambda self, x, mask: x * mask[:, : x.shape[1], None],
        (f(2, 5, 4), f(2, 9)),
        "b n c | b t ; n<=t",
    ),
    "relative places": (relative, (f(2, 5, 4), f(48)), "b n c | t ; 2*n<=t+1"),
    "a kernel among the inputs": (
        lambda self, x, w: functional.conv1d(x, w),
        (f(2, 3, 20), f(4, 3, 5)),
        "b c n | o c k ; k<=n",
    ),
    "odd": (only(lambda n: n % 2 == 1, lambda x: x * 2), (f(2, 9, 4),), "b n c ; n%2==1"),
    "a remainder of two": (only(lambda n: n % 3 == 2, lambda x: x * 2), (f(2, 5, 4),), "b n c ; n%3==2"),
    "a multiple of four": (only(lambda n: n % 4 == 0, lambda x: x * 2), (f(2, 12, 4),), "b 4*n c"),
    "a remainder with a mask": (
        only(lambda n: n % 8 == 1, lambda x, mask: x * mask[:, :, None]),
        (f(2, 9, 4), f(2, 9)),
        "b n c | b n ; n%8==1",
    ),
    "a remainder after the mask": (late, (f(2, 5, 4), f(2, 5)), "b n c | b n ; n%4==1"),
    "a remainder and its double": (two(lambda n: n % 4 == 1), (f(2, 5), f(2, 10)), "b n | b 2*n ; n%4==1"),
    "odd and its half": (
        only(lambda n: n % 2 == 1, lambda x, y: x[:, : x.shape[1] // 2] + y),
        (f(2, 9, 4), f(2, 4, 4)),
        "b 2*n+1 c | b n c",
    ),
    "frames of a video": (frames, (f(1, 3, 9, 4, 4),), "b c n h w ; n%4==1"),
    "blocks of 4": (pooled(4), (f(1, 3, 8, 12),), "b c 4*h 4*w"),
    "blocks of 16": (pooled(16), (f(1, 3, 32, 48),), "b c 16*h 16*w"),
    "an axis that goes": (lambda self, x: (x * 2).squeeze(1), (f(2, 1, 4),), "b 1 c"),
    "a list as long as an axis": (lambda self, x: list(x.unbind(1)), (f(3, 4, 5),), "b 4 c"),
}


def as_written(contract: Any, wanted: str) -> str:
    """The contract in the names of ``wanted``, which come in the same order."""
    words = [size for part in wanted.partition(";")[0].split("|") for size in part.split()]
    sizes = [size for item in contract.inputs for size in item.shape]
    renamed: dict[str, str] = {}
    for word, size in zip(words, sizes, strict=True):
        letters = [letter for letter in word if letter.isalpha()]
        if len(size.names) == len(letters) == 1:
            renamed.setdefault(*size.names, letters[0])
    meaning: dict[str, Expr | int] = {name: Expr.of(letter) for name, letter in renamed.items()}

    def said(expression: Expr) -> str:
        return str(expression.substitute(meaning)).replace(" ", "")

    shapes = " | ".join(" ".join(map(said, item.shape)) for item in contract.inputs)
    relations = ", ".join(f"{said(r.left)}{r.op}{said(r.right)}" for r in contract.relations)
    return f"{shapes} ; {relations}" if relations else shapes


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_widest_contract_that_is_right(found: Found, name: str) -> None:
    function, args, wanted = CONTRACTS[name]
    contract = found(Calls(function), args).contract
    assert as_written(contract, wanted).replace("m+n", "n+m") == wanted
    assert contract.allows(contract.example)
    assert contract.shapes(contract.example) == tuple(tuple(tensor.shape) for tensor in args)


def test_what_leaves_another_remainder_is_refused(found: Found) -> None:
    contract = found(Calls(*CONTRACTS["odd"][:1]), (f(2, 9, 4),)).contract
    assert contract.bind([(2, 7, 4)])["seq"] == 7
    with pytest.raises(InputError, match=r"seq % 2 == 1 does not hold: seq = 8"):
        contract.bind([(2, 8, 4)])


def test_a_remainder_in_the_words_of_the_user(found: Found) -> None:
    model = Calls(only(lambda n: n % 2 == 1, lambda x: x * 2))
    declared = found(model, (f(2, 9, 4),), shapes={"x": "b, 2*k + 1, 4"}).contract
    assert [str(size) for size in declared.inputs[0].shape] == ["b", "2*k + 1", "4"]
    assert declared.relations == () and declared.dim("k").range == Range(0)


# How far ---------------------------------------------------------------------------------------------------------


class Deep(nn.Module):
    """Positions, and then so much work that nothing large can be run."""

    def __init__(self, read: Callable[..., Tensor], rows: int = 1024) -> None:
        super().__init__()
        self.places, self.read = nn.Embedding(rows, 512), read
        self.layers = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(6)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.read(self, x)
        for _ in range(8):
            y = self.layers(y)
        return y


def by_index(self: Any, x: Tensor) -> Tensor:
    return x + self.places(torch.arange(x.shape[1]))  # by index


def by_slice(self: Any, x: Tensor) -> Tensor:
    return x + self.places.weight[: x.shape[1]]  # by slice


@pytest.mark.parametrize(("read_by", "kind"), [(by_index, "IndexError"), (by_slice, "RuntimeError")])
def test_the_end_of_a_table_without_large_runs(
    read_by: Callable[..., Tensor], kind: str, line_in: Callable[[str, str], int]
) -> None:
    evidence = probe(read(Deep(read_by), (f(2, 7, 512),)))
    seq = evidence.dim("_d1")
    assert seq.range.maximum == 1024 and seq.above_error.startswith(kind)
    assert seq.above is not None
    assert seq.above.line == line_in(__file__, "# by index" if read_by is by_index else "# by slice")


@pytest.mark.parametrize("rows", [4096, 5000])
@pytest.mark.parametrize("read_by", [by_index, by_slice])
def test_a_table_longer_than_any_size_that_is_run(
    found: Found, rows: int, read_by: Callable[..., Tensor]
) -> None:
    model = Calls(read_by, places=nn.Embedding(rows, 8))
    assert found(model, (f(2, 7, 8),)).ranges["seq"] == f"0..{rows}"


def test_a_table_on_fake_tensors_ends_by_its_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyshape.probe.oracle.MANY_PARAMETERS", 10)
    evidence = probe(read(Calls(by_index, places=nn.Embedding(300, 8)), (f(2, 7, 8),)))
    assert evidence.fake and evidence.dim("_d1").range.maximum == 300


def test_buckets_that_saturate_are_no_end(found: Found) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return x + self.places(torch.arange(x.shape[1]).clamp(max=15))

    made = found(Calls(forward, places=nn.Embedding(16, 8)), (f(2, 7, 8),))
    assert made.ranges["seq"] == ">=0"


def test_past_and_present_share_a_table(found: Found) -> None:
    def forward(self: Any, x: Tensor, past: Tensor) -> Any:
        first = past.shape[1]
        return x + self.places(torch.arange(first, first + x.shape[1]))

    made = found(Calls(forward, places=nn.Embedding(64, 8)), (f(2, 3, 8), f(2, 4, 8)))
    assert [str(relation) for relation in made.contract.relations] == ["past_seq + seq <= 64"]
    assert made.ranges["seq"] == made.ranges["past_seq"] == "0..64"


def test_an_end_that_follows_no_line_is_left_to_pytorch(found: Found) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        if x.shape[0] * x.shape[1] > 400:
            raise ValueError("too many")
        return x * 2

    contract = found(Calls(forward), (f(3, 8),)).contract
    assert contract.allows(contract.example) and all(dim.range.maximum is None for dim in contract.dims)


# What is fixed ---------------------------------------------------------------------------------------------------


def notes(found: Found, function: Callable[..., Any], *args: Tensor, **declared: Any) -> tuple[str, ...]:
    contract = found(Calls(function), args, **declared).contract
    return tuple(note for note in contract.notes if note.startswith("fixed: "))


def refuses(self: Any, x: Tensor) -> Tensor:
    if x.shape[1] != 11:
        raise ValueError("eleven, please")  # refuses
    return x * 2


def test_a_fixed_size_says_why(found: Found, line_in: Callable[[str, str], int]) -> None:
    line = line_in(__file__, "# refuses")
    (note,) = notes(found, refuses, f(2, 11))
    assert note.startswith("fixed: x axis 1 at 11: ValueError: eleven, please (")
    assert note.endswith(f"test_probe_contracts.py:{line})")


def test_what_was_declared_fixed_is_not_explained(found: Found) -> None:
    assert notes(found, refuses, f(2, 11), shapes={"x": "b, 11"}) == ()


def test_features_that_a_weight_has_are_not_explained(found: Found) -> None:
    contract = found(nn.Linear(4, 4), (f(3, 4),)).contract
    assert contract.notes == ()


def test_results_of_another_form_are_said(found: Found) -> None:
    assert notes(found, lambda self, x: (x * 2).squeeze(1), f(2, 1, 4)) == (
        "fixed: x axis 1 at 1: the model returns 3 axes there, not 2",
    )
    assert notes(found, lambda self, x: list(x.unbind(1)), f(3, 4, 5)) == (
        "fixed: x axis 1 at 4: the model returns 5 tensors there, not 4",
    )


# The example -----------------------------------------------------------------------------------------------------


def evidence(*shape: Expr, dims: tuple[FoundDim, ...], relations: tuple[Relation, ...] = ()) -> Evidence:
    return Evidence(dims, (shape,), relations, (), 1, False, {}, True)


def test_a_size_that_does_not_give_the_example_is_fixed() -> None:
    blocks, rows = Expr.of("_d0"), Expr.of("_d1")
    dims = (FoundDim("_d0", Range(0), 0, 1, 9), FoundDim("_d1", Range(0), 5, 5, 9))
    wrong = evidence(13 * blocks, rows, dims=dims, relations=(Relation(blocks, "<=", rows),))
    made = with_example(wrong, ((4, 5),))
    assert made.shapes == ((Expr.of(4), rows),) and made.relations == ()
    assert [dim.name for dim in made.dims] == ["_d1"]


def test_a_range_reaches_the_example_and_a_relation_that_it_breaks_goes() -> None:
    rows = Expr.of("_d0")
    wrong = evidence(
        rows, dims=(FoundDim("_d0", Range(0, 2), 5, 2, 2),), relations=(Relation(rows, "<=", Expr.of(4)),)
    )
    made = with_example(wrong, ((5,),))
    assert made.dims[0].range == Range(0, 5) and made.relations == ()
