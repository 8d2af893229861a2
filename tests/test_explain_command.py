"""explain: each kind of finding at its line, the clean model, a library's line, --json, and what goes wrong."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import anyshape
from anyshape.cli import app
from anyshape.errors import CaptureFault, ModelFault, SourceLine
from anyshape.explain import Explanation, Finding

LineIn = Callable[[str, str], int]


class Called(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def explained(function: Callable[[Tensor], Any], batch: int = 2, seq: int = 6, **given: Any) -> Explanation:
    return anyshape.explain(Called(function), (torch.randn(batch, seq),), shapes={"x": "batch, seq"}, **given)


def half(x: Tensor) -> Tensor:
    kept = int(x.shape[1] * 0.5)
    return x[:, :kept]


def root(x: Tensor) -> Tensor:
    return x[:, : int(float(x.shape[1] ** 0.5) * 2) // 2]


def corner(x: Tensor) -> Tensor:
    rows, columns = int(x.shape[0]), int(x.shape[1])
    return x.new_zeros(rows, columns) + x


def leaky(x: Tensor) -> Tensor:
    state = x[:, 0] * 0
    for step in range(x.shape[1]):
        state = state * 0.5 + x[:, step]
    return state


def two_ways(x: Tensor) -> Tensor:
    if x.shape[1] > 8:
        return x.cumsum(1)
    return x * 2


def last_eight(x: Tensor) -> Tensor:
    if x.shape[1] > 8:
        x = x[:, -8:]
    return x * 2


def halved(x: Tensor) -> Tensor:
    while x.shape[1] > 4:
        x = x[:, ::2] + 1
    return x


def beyond(x: Tensor) -> Tensor:
    if x.shape[1] > 8:
        return x[:, : int(x.shape[1] * 0.25)].cumsum(1)
    return x * 2


def counted_first(x: Tensor) -> Tensor:
    count = int(x.shape[1])
    state = x[:, 0] * 0
    for step in range(count):
        state = state * 0.5 + x[:, step]
    return state


def counted_before(x: Tensor) -> Tensor:
    count = int(x.shape[1])
    if count > 8:
        return x.cumsum(1)
    return x * 2


def places(x: Tensor) -> Tensor:
    return x + torch.from_numpy(np.arange(x.shape[1])).float()


def ends_early(x: Tensor) -> Tensor:
    x = x * float(x.detach().numpy().size)
    return x + torch.from_numpy(np.array([x.shape[1]])).float()


def entries(x: Tensor) -> Tensor:
    total = int((x == x).sum())
    return x.reshape(total)


def unless_nothing(x: Tensor) -> Tensor:
    if bool((x == 0).all()):
        return x
    scale = int(x.shape[1] * 0.5)
    return x * scale


def by_values(x: Tensor) -> Tensor:
    if round(x.sum().item(), 1) > 0.5:
        return x.cumsum(1)
    return x * int(x.shape[1] * 0.5)


def many(x: Tensor) -> Tensor:
    kept = [int(x.shape[1] * part) for part in (0.25, 0.5, 0.75)]
    return torch.cat([x[:, :count] for count in kept], 1)


def counted_on_the_way(x: Tensor) -> Tensor:
    count = (x > 0).sum().item()
    return torch.zeros(count) + 1


def nested(x: Tensor) -> Tensor:
    total = x[0, 0] * 0
    for row in range(x.shape[0]):
        for place in range(x.shape[1]):
            total = total * 0.5 + x[row, place]
    return total


def followed(x: Tensor) -> Tensor:
    assert x.shape[1] < 1000
    return x[:, : x.shape[1] // 2].softmax(-1) * math.pi


KINDS: list[tuple[Callable[[Tensor], Tensor], str, str, str, str, str]] = [
    (
        half,
        "kept = int(x.shape[1] * 0.5)",
        "number",
        "kept as seq//2",
        "3, as at the example",
        "differential",
    ),
    (
        corner,
        "rows, columns",
        "number",
        "kept as batch and seq",
        "2 and 6, as at the example",
        "differential",
    ),
    (leaky, "for step in range(x.shape[1]):", "loop", "a loop over seq", "6 rounds", "rolled loop"),
    (two_ways, "if x.shape[1] > 8:", "branch", "both ways, by seq <= 8", "the way of seq = 6", "regions"),
    (halved, "while x.shape[1] > 4:", "loop", "a loop while seq > 4", "1 round", "regions"),
    (
        entries,
        "total = int((x == x).sum())",
        "value",
        "kept as batch*seq",
        "12, as at the example",
        "differential",
    ),
]


@pytest.mark.parametrize(
    ("function", "text", "kind", "done", "plain", "rung"), KINDS, ids=[f.__name__ for f, *_ in KINDS]
)
def test_each_kind_at_its_line(
    function: Callable[[Tensor], Tensor],
    text: str,
    kind: str,
    done: str,
    plain: str,
    rung: str,
    line_in: LineIn,
) -> None:
    made = explained(function)
    (found,) = made.findings
    assert (found.kind, found.done, found.plain) == (kind, done, plain)
    assert found.where.line == line_in(__file__, text)
    assert found.where.text.startswith(text)
    assert (made.rung, made.dims, made.ended) == (rung, ("batch", "seq"), None)


def lines(made: Explanation) -> list[tuple[int, str, str]]:
    return [(found.where.line, found.done, found.plain) for found in made.findings]


def test_the_rounds_of_a_while_loop() -> None:
    for seq, rounds in ((5, "1 round"), (9, "2 rounds"), (40, "4 rounds")):
        assert explained(halved, seq=seq).findings[0].plain == rounds


def test_one_way_that_serves_both_sides() -> None:
    (found,) = explained(last_eight).findings
    assert (found.done, found.plain) == ("one way for both sides of seq > 8", "the way of seq = 6")
    (found,) = explained(last_eight, seq=11).findings
    assert found.plain == "the way of seq = 11"


def test_a_line_that_the_example_does_not_reach(line_in: LineIn) -> None:
    head = line_in(__file__, "def beyond") + 1
    assert lines(explained(beyond)) == [
        (head, "both ways, by seq <= 8", "the way of seq = 6"),
        (head + 1, "kept as seq//4", "left out, as at the example"),
    ]
    assert lines(explained(beyond, seq=12))[1] == (head + 1, "kept as seq//4", "3, as at the example")


def test_loops_and_branches_on_numbers_that_python_took_before(line_in: LineIn) -> None:
    first = line_in(__file__, "def counted_first") + 1
    assert lines(explained(counted_first)) == [
        (first, "kept as seq", "6, as at the example"),
        (first + 2, "a loop over seq", "the rounds of the example"),
    ]
    first = line_in(__file__, "def counted_before") + 1
    assert lines(explained(counted_before)) == [
        (first, "kept as seq", "6, as at the example"),
        (first + 1, "both ways, by seq <= 8", "the way of seq = 6"),
    ]


def test_a_number_that_is_no_whole_number() -> None:
    (found,) = explained(root).findings
    assert (found.done, found.plain) == ("kept as sqrt(seq)", "2.449, as at the example")


def test_a_line_with_many_numbers() -> None:
    (found,) = explained(many, seq=8).findings
    assert (found.done, found.plain) == ("kept as seq//4, seq//2, ...", "2, 4, ..., as at the example")


def test_numpy_ends_the_trace_and_the_text_says_so(line_in: LineIn) -> None:
    made = explained(places)
    (found,) = made.findings
    assert (found.done, found.plain) == ("kept as seq", "6, as at the example")
    assert made.ended is not None and made.ended.line == line_in(__file__, "np.arange")
    assert f"ended at {made.ended.file}:{made.ended.line}: lines that come later may be missing" in str(made)


def test_tensors_made_in_python_beyond_the_end(line_in: LineIn) -> None:
    first = line_in(__file__, "def ends_early") + 1
    assert lines(explained(ends_early)) == [
        (first, "one way, right for other values too", "the numbers, as at the example"),
        (first + 1, "a tensor for every size", "the tensor of the example"),
    ]


def test_values_that_do_not_matter_do_not_end_the_trace(line_in: LineIn) -> None:
    made = explained(unless_nothing)
    first = line_in(__file__, "def unless_nothing") + 1
    assert lines(made) == [
        (first, "one way, right for other values too", "False, as at the example"),
        (first + 2, "kept as seq//2", "3, as at the example"),
    ]
    assert made.ended is None


def test_a_model_that_can_not_be_exported_raises_what_export_raises(line_in: LineIn) -> None:
    with pytest.raises(
        CaptureFault, match="a number that depends on the values of a tensor is computed"
    ) as caught:
        explained(by_values)
    assert caught.value.where is not None
    assert caught.value.where.line == line_in(__file__, "def by_values") + 1


def test_a_loop_in_a_loop(line_in: LineIn) -> None:
    first = line_in(__file__, "for row in")
    assert lines(explained(nested)) == [
        (first, "a loop over batch", "2 rounds"),
        (first + 1, "a loop over seq", "6 rounds"),
    ]


@pytest.mark.parametrize("function", [followed, counted_on_the_way])
def test_nothing_to_do(function: Callable[[Tensor], Tensor]) -> None:
    made = explained(function)
    assert str(made) == "Nothing to do: PyTorch's own trace follows every size."
    assert (made.findings, made.rung) == ((), "symbolic")


def test_declared_dims_give_their_names() -> None:
    made = anyshape.explain(
        Called(half), (torch.randn(2, 6),), dynamic_shapes={"x": {1: torch.export.Dim("time", min=2)}}
    )
    assert (made.dims, made.findings[0].done) == (("time",), "kept as time//2")


def test_the_text_has_columns() -> None:
    where = SourceLine("net.py", 7, "half = int(x.shape[1] * 0.5)")
    long = SourceLine("net.py", 12, "for " + "x" * 60)
    made = Explanation(
        (
            Finding(where, "kept as seq//2", "3, as at the example", "number"),
            Finding(long, "a loop over seq", "6 rounds", "loop"),
        ),
        ("seq",),
        "rolled loop",
    )
    assert str(made).splitlines() == [
        "net.py:7    half = int(x.shape[1] * 0.5)                   kept as seq//2    plain: 3, as at the example",
        "net.py:12   for xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...   a loop over seq   plain: 6 rounds",
        "",
        "2 places. An export follows them as they are; rewritten, a plain trace would, too.",
    ]
    assert "1 place. An export follows it as it is;" in str(
        Explanation(made.findings[:1], ("seq",), "differential")
    )


NET = """import torch
from torch import nn

from explain_library.pool import pooled


class Net(nn.Module):
    def forward(self, tokens):
        print("forward")
        x = pooled(tokens)
        if tokens.shape[1] > 8:
            return x.cumsum(1)
        return x * 2


class Crashing(nn.Module):
    def forward(self, tokens):
        raise ValueError("no such luck")


class Clean(nn.Module):
    def forward(self, tokens):
        return tokens.float().softmax(1)


def build():
    return Net(), torch.randint(0, 20, (2, 6))


def crashing():
    return Crashing(), torch.randint(0, 20, (2, 6))


def clean():
    return Clean(), torch.randint(0, 20, (2, 6))
"""
POOL = """def pooled(x):
    width = int(x.shape[1] * 0.5)
    return x[:, :width] * 2.0
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with models, and a library that one of them uses."""
    (tmp_path / "explain_net.py").write_text(NET)
    library = tmp_path / "site-packages" / "explain_library"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("")
    (library / "pool.py").write_text(POOL)
    monkeypatch.setattr(sys, "path", [*sys.path, str(library.parent)])
    yield tmp_path
    for name in ("explain_net", "explain_library", "explain_library.pool"):
        sys.modules.pop(name, None)


def run(*words: Any) -> Result:
    return CliRunner().invoke(app, ["explain", *map(str, words)])


def test_the_command_lists_own_lines_before_those_of_libraries(shop: Path) -> None:
    result = run("explain_net.py:build")
    assert result.exit_code == 0, result.output
    shown = [re.sub(r" {2,}", "  ", line.strip()) for line in result.stdout.splitlines() if line.strip()]
    assert shown[-3:] == [
        "explain_net.py:11  if tokens.shape[1] > 8:  both ways, by seq <= 8  plain: the way of seq = 6",
        "explain_library/pool.py:2  width = int(x.shape[1] * 0.5)  kept as seq//2  plain: 3, as at the example",
        "2 places. An export follows them as they are; rewritten, a plain trace would, too.",
    ]
    assert [line.split()[0] for line in shown[:-3]] == ["read", "probe", "capture"]


def test_json(shop: Path) -> None:
    result = run("explain_net.py:build", "--json")
    assert result.exit_code == 0
    made = json.loads(result.stdout)
    assert list(made) == ["dims", "rung", "ended", "findings"]
    assert (made["dims"], made["rung"], made["ended"]) == (["batch", "seq"], "regions", None)
    assert made["findings"][0] == {
        "where": {"file": "explain_net.py", "line": 11, "text": "if tokens.shape[1] > 8:"},
        "kind": "branch",
        "done": "both ways, by seq <= 8",
        "plain": "the way of seq = 6",
    }


def test_the_clean_model(shop: Path) -> None:
    result = run("explain_net.py:clean", "--shape", "tokens=rows, columns")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "  Nothing to do: PyTorch's own trace follows every size."
    made = json.loads(run("explain_net.py:clean", "--shape", "tokens=rows, columns", "--json").stdout)
    assert made == {"dims": ["rows", "columns"], "rung": "symbolic", "ended": None, "findings": []}


def test_what_goes_wrong(shop: Path) -> None:
    missing = run("nowhere.py:build")
    assert (missing.exit_code, missing.stderr.strip()) == (2, "there is no file nowhere.py")
    crashed = run("explain_net.py:crashing")
    assert crashed.exit_code == 1
    assert "no such luck" in crashed.stderr and "explain_net.py:18" in crashed.stderr
    wrong = run("explain_net.py:build", "--dim", "seq=oops", "--json")
    assert wrong.exit_code == 2
    assert json.loads(wrong.stdout)["error"]["kind"] == "ParseError"


def test_a_model_that_crashes() -> None:
    def crash(x: Tensor) -> Tensor:
        raise ValueError("no such luck")

    with pytest.raises(ModelFault, match="no such luck"):
        explained(crash)
