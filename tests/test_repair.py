"""Sizes in the source: what a person is told of them, and when nothing is guessed. The pairs of tests/quality are the
measure of what is found; here are the words, and the small parts."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dims import Expr
from anyshape.errors import ContractFault
from anyshape.repair.changes import Change, derived, plain
from anyshape.repair.edit import diff, edited, write
from anyshape.repair.wording import told
from anyshape.source.literals import Literal

Import = Callable[..., ModuleType]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """``module(source)``: the source as a file that was imported, in the folder at hand."""
    monkeypatch.chdir(tmp_path)
    made: list[str] = []

    def load(source: str, name: str = "net", folder: str = ".") -> ModuleType:
        path = tmp_path / folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import torch\nfrom torch import nn\n\n" + textwrap.dedent(source).lstrip("\n"))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        made.append(name)
        spec.loader.exec_module(loaded)
        return loaded

    yield load
    for name in made:
        sys.modules.pop(name, None)


def message(model: torch.nn.Module, *args: torch.Tensor, **declared: Any) -> str:
    with pytest.raises(ContractFault) as caught:
        anyshape.export(model, args, **declared)
    return str(caught.value)


# --- What a person is told ------------------------------------------------------------------------------


def test_the_line_that_made_the_mask_not_the_one_that_broke(module: Import) -> None:
    net = module("""
        class Attention(nn.Module):
            def forward(self, x):
                scores = x @ x.transpose(1, 2)
                causal = torch.full((7, 7), float("-inf")).triu(1)
                scores = scores / 4
                return (scores + causal).softmax(-1) @ x
    """)
    assert message(net.Attention(), torch.randn(2, 7, 16), shapes={"x": "batch, seq, 16"}) == textwrap.dedent("""\
        seq can't vary: the size is written into the model, so PyTorch itself runs at no other
          at net.py:7    causal = torch.full((7, 7), float("-inf")).triu(1)
                                              ^  ^
        7 is seq at the example: write x.shape[1] instead, or export with repair=True.""")


def test_two_lines_and_two_dims(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.gru = nn.GRU(8, 8, batch_first=True)

            def forward(self, x):
                start = torch.zeros(1, 4, 8)
                return self.gru(x + torch.arange(6)[:, None], start)[0]
    """)
    assert (
        message(net.Net(), torch.randn(4, 6, 8), shapes={"x": "batch, seq, 8"})
        == textwrap.dedent("""\
        batch and seq can't vary: the sizes are written into the model, so PyTorch itself runs at no other
          at net.py:10    start = torch.zeros(1, 4, 8)
                                                 ^
        4 is batch at the example: write x.shape[0] instead, or export with repair=True. Likewise at net.py:11.""")
    )


def test_in_a_library_both_lines_are_shown(module: Import) -> None:
    library = module(
        """
        def places(x):
            return x + torch.arange(6)
        """,
        name="lines",
        folder="site-packages/rulers",
    )
    net = module("""
        import lines

        class Net(nn.Module):
            def forward(self, x):
                return lines.places(x).cumsum(1)
    """)
    assert library.places(torch.zeros(6)).shape == (6,)
    assert message(net.Net(), torch.randn(2, 6), shapes={"x": "batch, seq"}) == textwrap.dedent("""\
        seq can't vary: the size is written into the model, so PyTorch itself runs at no other
          at rulers/lines.py:5    return x + torch.arange(6)
                                                          ^
          called from net.py:8    return lines.places(x).cumsum(1)
        6 is seq at the example: write x.shape[1] instead, or export with repair=True.""")


def test_several_readings_are_shown_not_guessed(module: Import) -> None:
    net = module("""
        class Mean(nn.Module):
            def forward(self, x):
                return x @ torch.full((7,), 1 / 7)
    """)
    for repair in (False, True):
        text = message(net.Mean(), torch.randn(3, 7), shapes={"x": "batch, seq"}, repair=repair)
        assert text == textwrap.dedent("""\
            seq can't vary: a size is written into the model, and it could be one of several numbers, \
which give different results:
              net.py:6, column 32: 7 is seq at the example
              net.py:6, column 32: 7 is seq at the example; net.py:6, column 41: 7 is seq at the example
              at net.py:6    return x @ torch.full((7,), 1 / 7)
                                                    ^
            Write the one that is meant as a size of the input.""")


def test_a_size_that_no_tensor_there_has(module: Import) -> None:
    net = module("""
        def table(width):
            return torch.ones(6, width)

        class Net(nn.Module):
            def forward(self, x):
                return x + table(8)
    """)
    text = message(net.Net(), torch.randn(2, 6, 8), shapes={"x": "batch, seq, 8"})
    assert "at net.py:5    return torch.ones(6, width)" in text
    assert "6 is seq at the example: take it from the input's shape instead" in text


def test_weights_are_not_in_the_source(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.bias = nn.Parameter(torch.zeros(6))

            def forward(self, x):
                return x + self.bias
    """)
    text = message(net.Net(), torch.randn(2, 6), shapes={"x": "batch, seq"}, repair=True)
    assert "x axis 1 is declared seq, but PyTorch runs only at 6 there" in text
    assert "at net.py:10    return x + self.bias" in text


def test_nothing_declared_and_nothing_to_repair() -> None:
    made = anyshape.export(torch.nn.Linear(4, 3), torch.randn(2, 4), repair=True)
    assert made.repairs == () and not any("repaired" in note for note in made.contract.notes)


def test_what_was_repaired_is_said_in_the_contract(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            def forward(self, x):
                return x.view(3, 2, 5).softmax(-1)
    """)
    made = anyshape.export(net.Net(), torch.randn(3, 10), repair=True)
    assert str(made.contract).startswith("x       float32  [batch, 10]")
    count = len(made.verdict.tried)
    assert made.contract.notes[-2:] == (
        "repaired: net.py:6    3 became x.shape[0]",
        f"repaired, agrees with the repaired source at {count} sizes: PyTorch's own runs at the example only",
    )
    assert made.verdict.sampled[-1] == made.contract.notes[-1]


# --- The small parts ------------------------------------------------------------------------------------


def literal(text: str, column: int = 0, file: str = "net.py", line: int = 1) -> Literal:
    return Literal(file, line, column, line, column + len(text), text, "Net.forward", "literal")


def test_candidates() -> None:
    seen = {literal("6"): [6], literal("12", 4): [12], literal("size", 8): [(3, 6)], literal("5", 16): [5]}
    assert [(c.literal.text, c.place) for c in plain(seen, (0, 1), 6)] == [("6", None), ("size", 1)]
    more = derived(seen, (0, 1), {(0, 0): 2, (0, 1): 6})
    assert {(c.value, str(c.size)) for c in more} >= {
        (12, "2*_a0_1"),
        (12, "_a0_0*_a0_1"),
        (3, "_a0_1//2"),
        (5, "_a0_1 - 1"),
    }


def test_a_change_applies_where_the_number_is_the_one_of_the_example() -> None:
    name = Expr.of("_a0_1")
    assert Change(literal("6"), 6, name).apply(6, {"_a0_1": 9}) == 9
    assert Change(literal("6"), 6, name).apply(8, {"_a0_1": 9}) == 8
    assert Change(literal("s"), 6, name, 1).apply((3, 6), {"_a0_1": 9}) == (3, 9)
    assert Change(literal("s"), 6, name, 1).apply([3, 6], {"_a0_1": 9}) == [3, 9]
    assert Change(literal("s"), 6, name, 1).apply((3, 7), {"_a0_1": 9}) == (3, 7)


def test_a_change_in_words() -> None:
    change = Change(literal("21"), 21, Expr.of("_a0_0") * Expr.of("_a0_1"))
    assert told(change, {(0, 0): "batch", (0, 1): "seq"}) == "21 is batch*seq at the example"


EDITS = {
    "x.view(3, 2, 5)  # rows": "x.view(x.shape[0], 2, 5)  # rows",
    "resize(x, size=( 32, 48 ), mode='é')": "resize(x, size=x.shape[-2:], mode='é')",
    "resize(x, [32,48])": "resize(x, x.shape[-2:])",
    "x.view(3, 32, 48)": "x.view(x.shape[0], x.shape[-2], x.shape[-1])",
}


@pytest.mark.parametrize(("before", "after"), EDITS.items())
def test_edits_keep_the_rest_of_the_line(before: str, after: str, tmp_path: Path) -> None:
    from anyshape.repair import Repair

    path = tmp_path / "net.py"
    path.write_bytes(f"\t{before}\r\nlast".encode())
    texts = {"3": "x.shape[0]", "32": "x.shape[-2]", "48": "x.shape[-1]"}
    repairs = [
        Repair(
            Change(literal(number, before.index(number) + 1, str(path)), int(number), Expr.of("a")),
            ((0, 0),),
            "",
            text,
        )
        for number, text in texts.items()
        if number in before.replace("32", "  " if number == "3" else "32")
    ]
    files = edited(repairs)
    write({file: text for file, (_, text) in files.items()})
    with path.open(newline="") as handle:
        assert handle.read() == f"\t{after}\r\nlast"
    assert f"+\t{after}" in diff(files)


def test_a_row_of_numbers_is_written_out() -> None:
    from anyshape.repair import Repair
    from anyshape.repair.edit import _text

    held = literal("self.size")
    one = Repair(Change(held, 32, Expr.of("a"), 0), ((0, 2),), "", "x.shape[2]")
    two = Repair(Change(held, 48, Expr.of("b"), 1), ((0, 3),), "", "x.shape[-1]")
    assert _text(held, [two]) == "(self.size[0], x.shape[-1])"
    assert _text(held, [one, two]) == "(x.shape[2], x.shape[-1])"
