"""Models that run with their literals watched and overridden."""

from __future__ import annotations

import builtins
import functools
import gc
import importlib.util
import itertools
import os
import sys
import textwrap
import traceback
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyshape.errors import SourceLine
from anyshape.source.literals import Literal, Literals, instrumented
from anyshape.source.literals.marks import HOOK

LENGTH = 6
_names = itertools.count()

Import = Callable[[str], types.ModuleType]


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Import]:
    """``module(source)``: imported from a file, with torch and nn at hand."""
    made: list[str] = []

    def imported(source: str) -> types.ModuleType:
        name = f"net{next(_names)}"
        path = tmp_path / f"{name}.py"
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(source), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look there
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield imported
    for name in made:
        del sys.modules[name]


def texts(literals: Literals) -> dict[str, list[Any]]:
    return {literal.text: values for literal, values in literals.seen.items()}


def kinds(literals: Literals) -> dict[str, str]:
    return {literal.text: literal.kind for literal in literals.seen}


def literal(literals: Literals, text: str) -> Literal:
    (found,) = [literal for literal in literals.seen if literal.text == text]
    return found


def codes(*functions: Any) -> list[types.CodeType]:
    return [function.__code__ for function in functions]


class Positions(nn.Module):
    """Knows a batch of 4 and a length of 6 by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.seq = 6
        self.table = nn.Parameter(torch.arange(24.0).reshape(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = x.reshape(4, self.seq, 3)
        return y + self.table[:LENGTH]


# --- What is seen ---------------------------------------------------------------------------------------


def test_values_in_the_order_of_execution() -> None:
    model, x = Positions(), torch.ones(4, 6, 3)
    with instrumented(lambda: model(x)) as literals:
        assert literals.seen == {} and literals.order == []
        model(x)
        assert texts(literals) == {"4": [4], "self.seq": [6], "3": [3], "LENGTH": [6]}
        assert [literal.kind for literal in literals.order] == ["literal", "attribute", "literal", "global"]
        assert {literal.function for literal in literals.order} == {"Positions.forward"}


def test_two_runs_add_up_until_a_reset() -> None:
    class Net(nn.Module):
        width = 6

        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(-1, self.width)

    model, x = Net(), torch.ones(4, 6)
    with instrumented(lambda: model(x)) as literals:
        model(x), model(x)
        model.width = 8
        model(x)
        assert texts(literals) == {"self.width": [6, 8]}
        literals.reset()
        assert literals.seen == {}
        model(x)
    assert texts(literals) == {"self.width": [8]}  # and it stays readable


def test_a_literal_says_where_it_is(line_in) -> None:
    model, x = Positions(), torch.ones(4, 6, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
    found, line = literal(literals, "self.seq"), line_in(__file__, "y = x.reshape(4, self.seq, 3)")
    assert (found.file, found.line, found.end_line) == (os.path.abspath(__file__), line, line)
    assert (found.column, found.end_column) == (25, 33)
    assert found.at() == SourceLine("test_literals.py", line, "y = x.reshape(4, self.seq, 3)")


def test_rows_of_integers_and_nothing_else(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            row, many, size, mixed, none, flag, empty = (4, 6), [4, 6], torch.Size((4, 6)), (4, 0.5), None, True, ()

            def forward(self, x):
                x.view(self.row), x.view(self.many), x.view(self.size)
                return self.mixed, self.none, self.flag, self.empty
    """)
    model, x = net.Net(), torch.ones(24)
    with instrumented(lambda: model(x)) as literals:
        model(x)
        many = model.many
        many[0] = 0  # what was seen stays as it was
    assert texts(literals) == {"self.row": [(4, 6)], "self.many": [[4, 6]], "self.size": [torch.Size((4, 6))]}
    assert [type(values[0]) for values in literals.seen.values()] == [tuple, list, torch.Size]


# --- Other numbers --------------------------------------------------------------------------------------


def test_overriding_makes_a_model_run_at_other_sizes() -> None:
    model, x, longer = Positions(), torch.ones(4, 6, 3), torch.ones(5, 7, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
        given = {
            literal(literals, "4"): 5,
            literal(literals, "self.seq"): lambda value: value + 1,
            literal(literals, "LENGTH"): 7,
        }
        with literals.overriding(given):
            assert torch.equal(model(longer), longer + model.table[:7])
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            model(longer)
    assert texts(literals)["self.seq"] == [6]  # what it held, not what it was made to be


def test_overrides_nest_and_end_with_exceptions() -> None:
    model, x = Positions(), torch.ones(4, 6, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
        batch, length = literal(literals, "4"), literal(literals, "self.seq")
        with literals.overriding({batch: 2, length: 12}):
            with (
                literals.overriding({batch: 1, length: 24}),
                pytest.raises(RuntimeError, match="size of tensor"),
            ):
                model(x)
            with pytest.raises(RuntimeError, match=r"tensor a \(12\)"):
                model(x)
        assert model(x).shape == (4, 6, 3)


def test_rows_are_replaced_as_wholes_or_by_element(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            sizes = (4, 6)

            def forward(self, x):
                return x.reshape(self.sizes)
    """)
    model, x = net.Net(), torch.ones(24)
    with instrumented(lambda: model(x)) as literals:
        model(x)
        sizes = literal(literals, "self.sizes")
        with literals.overriding({sizes: (8, 3)}):
            assert model(x).shape == (8, 3)
        with literals.overriding({sizes: lambda row: [12 if size == 4 else 2 for size in row]}):
            assert model(x).shape == (12, 2)


def test_symbolic_sizes_can_be_given(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            def forward(self, x):
                return x.reshape(4, -1) * 2
    """)

    model, x = net.Net(), torch.ones(4, 2, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
        batch = literal(literals, "4")

        class Mended(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                with literals.overriding({batch: x.shape[0]}):
                    return model(x)

        program = torch.export.export(Mended(), (x,), dynamic_shapes=({0: torch.export.Dim("b", min=2)},))
    assert program.module()(torch.ones(7, 2, 3)).shape == (7, 6)


# --- Kinds of functions ---------------------------------------------------------------------------------


def test_globals_closures_and_defaults(module: Import) -> None:
    net = module("""
        SEQ, SIZES = 6, {"wide": 3}

        def helper(x, n=4, *, sizes=(2, 3)):
            return x.reshape(n, -1, *sizes[-1:])

        def make(length):
            def inner(x):
                return x.reshape(-1, length, SIZES["wide"])
            return inner

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.other = make(SEQ), make(12)

            def forward(self, x):
                return helper(self.inner(x)), self.other(x), helper(x, n=8)
    """)
    model, x = net.Net(), torch.ones(4, 6, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
        expected = {"length": [6, 12], 'SIZES["wide"]': [3], "4": [4], "(2, 3)": [(2, 3)], "8": [8]}
        assert texts(literals) == expected
        assert kinds(literals) == {
            "length": "closure",
            'SIZES["wide"]': "global",
            "4": "default",
            "(2, 3)": "default",
            "8": "literal",
        }
        with literals.overriding({literal(literals, "4"): 2}):
            first, _, given = model(x)
    assert first.shape == (2, 12, 3)
    assert given.shape == (8, 3, 3)  # an argument is not the default


def test_methods_of_every_kind(module: Import) -> None:
    net = module("""
        import dataclasses

        @dataclasses.dataclass
        class Config:
            n: int = 4

            def doubled(self):
                return self.n * 2

        class Base(nn.Module):
            def forward(self, x):
                return x + 11

        class Net(Base):
            def __init__(self):
                super().__init__()
                self.config, self.__secret = Config(), 12

            @property
            def size(self):
                return self.config.n * 13

            @staticmethod
            def fixed(x):
                return x * 14

            @classmethod
            def made(cls, x):
                return x * 15

            @torch.no_grad()
            def forward(self, x):
                x = super().forward(x)
                double = lambda x: x * 16
                total = sum(x[0, i % 17] for i in range(2)) + [y * 18 for y in x][0]
                return self.made(self.fixed(double(x))), self.size, self.config.doubled(), self.__secret, total
    """)
    model, x = net.Net(), torch.ones(4, 6)
    expected = model(x)
    with instrumented(lambda: model(x)) as literals:
        torch.testing.assert_close(model(x), expected)
    assert {str(number) for number in (2, *range(11, 12), *range(13, 19))} <= texts(literals).keys()
    assert texts(literals)["self.__secret"] == [12]
    assert texts(literals)["self.config.n"] == texts(literals)["self.n"] == [4]


def test_modules_in_modules_of_torch(module: Import) -> None:
    """Functions of PyTorch between them don't hide them, and are not watched."""
    net = module("""
        class Layer(nn.Module):
            def forward(self, x):
                return x * 21

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(Layer(), nn.Linear(3, 3), Layer())

            def forward(self, x):
                return self.layers(x)
    """)
    model, x = net.Net(), torch.ones(2, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
    assert texts(literals) == {"21": [21]}
    assert {os.path.dirname(literal.file) for literal in literals.seen} == {os.path.dirname(net.__file__)}


def test_asserts_that_pytest_rewrote_are_no_obstacle() -> None:
    def checked(x: Tensor) -> Tensor:
        assert x.shape[0] == 4, "not a batch of four"
        return x.reshape(8, -1)

    assert any(name.startswith("@py") for name in checked.__code__.co_names + checked.__code__.co_varnames)
    x = torch.ones(4, 6)
    with instrumented(lambda: checked(x)) as literals:
        checked(x)
    assert list(texts(literals)) == ["4", "8"]


def test_equal_lambdas_on_one_line(module: Import) -> None:
    net = module("""
        def run(x):
            first, second = (lambda y: y * 5), (lambda y: y * 5)
            rows = [y * 7 for y in x] + [y * 7 for y in x]
            run.kept = first, second
            return first(x) + second(x), rows
    """)
    x = torch.ones(2)
    with instrumented(lambda: net.run(x)) as literals:
        net.run(x)
        assert [literal.text for literal in literals.order] == ["7", "7", "5", "5"]
    assert [function(x).tolist() for function in net.run.kept] == [[5, 5], [5, 5]]


# --- As it was ------------------------------------------------------------------------------------------


def test_everything_is_put_back() -> None:
    model, x = Positions(), torch.ones(4, 6, 3)
    before = codes(Positions.forward)
    with instrumented(lambda: model(x)):
        assert Positions.forward.__code__ is not before[0]
        assert hasattr(builtins, HOOK)
    assert Positions.forward.__code__ is before[0]
    assert not hasattr(builtins, HOOK)


def test_everything_is_put_back_after_an_exception() -> None:
    model, x = Positions(), torch.ones(4, 6, 3)
    before = codes(Positions.forward)
    with pytest.raises(RuntimeError, match="invalid for input"), instrumented(lambda: model(x)):
        model(x[:3])
    assert Positions.forward.__code__ is before[0] and not hasattr(builtins, HOOK)


def test_a_first_run_that_fails_changes_nothing() -> None:
    model, before = Positions(), (Positions.forward.__code__, sys.getprofile())
    with pytest.raises(RuntimeError, match="invalid for input"), instrumented(lambda: model(torch.ones(1))):
        pass
    assert (Positions.forward.__code__, sys.getprofile()) == before and not hasattr(builtins, HOOK)


def test_a_closure_that_the_model_keeps_works_afterwards(module: Import) -> None:
    net = module("""
        class Net(nn.Module):
            def forward(self, x):
                self.later = lambda y: y.reshape(4, -1)
                return self.later(x)
    """)
    model, x = net.Net(), torch.ones(4, 6)
    with instrumented(lambda: model(x)):
        model(x)
    assert model.later(x).shape == (4, 6)


def test_nothing_is_kept_alive() -> None:
    model, x = Positions(), torch.ones(4, 6, 3)
    with instrumented(lambda: model(x)) as literals:
        model(x)
    kept = weakref.ref(literals)
    del literals
    gc.collect()
    assert kept() is None


def test_one_at_a_time() -> None:
    message = "instrumented already; leave that `with` block"
    with instrumented(lambda: None), pytest.raises(RuntimeError, match=message), instrumented(lambda: None):
        pass
    assert not hasattr(builtins, HOOK)


def test_tracebacks_name_the_same_lines(module: Import) -> None:
    net = module("""
        def outer(x):
            return inner(
                x,
                6,
            )

        def inner(x, n):
            y = x * 3
            return y.reshape(
                n, 7,
            )
    """)

    def lines(x: Tensor) -> list[tuple[int | None, str | None]]:
        with pytest.raises(RuntimeError) as info:
            net.outer(x)
        frames = traceback.extract_tb(info.value.__traceback__)
        return [(frame.lineno, frame.line) for frame in frames[1:]]

    before = lines(torch.ones(5))
    with instrumented(lambda: net.outer(torch.ones(42))):
        assert lines(torch.ones(5)) == before


# --- Files that can't be used ---------------------------------------------------------------------------


def test_a_file_that_is_gone_is_left_alone(module: Import) -> None:
    net = module("def run(x):\n    return x.reshape(4, -1)\n")
    os.remove(net.__file__)
    before = codes(net.run)
    with instrumented(lambda: net.run(torch.ones(4))) as literals:
        net.run(torch.ones(4))
        assert codes(net.run) == before and literals.seen == {}


@pytest.mark.parametrize(
    "text",
    [
        "def run(x):\n    return x.reshape(8, -1)\n",
        "def run(y):\n    return y.reshape(4, -1)\n",
        "def run(x):\n    return x.view(4, -1)\n",
        "def run(x):\n    return x.reshape(-1, 4)\n",
        "\ndef run(x):\n    return x.reshape(4, -1)\n",
        "def run(x: return",
        "def run(x):\n    return '\0'",
    ],
)
def test_a_file_that_has_changed_is_left_alone(module: Import, text: str) -> None:
    net = module("def run(x):\n    return x.reshape(4, -1)\n")
    path = Path(net.__file__ or "")
    source = path.read_text(encoding="utf-8")
    path.write_text(source[: source.index("def run")] + text, encoding="utf-8")
    before = codes(net.run)
    with instrumented(lambda: net.run(torch.ones(4))) as literals:
        net.run(torch.ones(4))
        assert codes(net.run) == before and literals.seen == {}


def test_a_change_in_a_function_inside_is_a_change(module: Import) -> None:
    net = module("def run(x):\n    return (lambda y: y.reshape(4, -1))(x)\n")
    path = Path(net.__file__ or "")
    path.write_text(path.read_text(encoding="utf-8").replace("4", "2"), encoding="utf-8")
    with instrumented(lambda: net.run(torch.ones(4))):
        assert net.run(torch.ones(4)).shape == (4, 1)


def test_code_without_a_file_is_left_alone() -> None:
    made: dict[str, Any] = {}
    exec("def run(x):\n    return x.reshape(4, -1)\n", made)
    with instrumented(lambda: made["run"](torch.ones(4))) as literals:
        made["run"](torch.ones(4))
    assert literals.seen == {}


def test_functions_of_python_itself_are_left_alone() -> None:
    before = codes(functools.partialmethod.__get__, textwrap.dedent)
    with instrumented(lambda: textwrap.dedent("    a")):
        assert codes(functools.partialmethod.__get__, textwrap.dedent) == before


# --- Tensors around a literal ------------------------------------------------------------------------------


def test_tensors_in_scope(module: Import) -> None:
    net = module("""
        def run(x, batch, *more, scale=2.0, bias, **others):
            total = x * scale
            state = {"hidden": total[0], "name": "state", 3: x, "it's": x}
            for row in range(2):
                total = total.reshape(4, -1)
                past = [None, total]
            return total
    """)

    x = torch.ones(4, 6)
    run = functools.partial(net.run, x, {"ids": x[:, :2]}, x[0], bias=x[:1], mask=x[:2])
    with instrumented(run) as literals:
        run()
        batch = literal(literals, "4")
        assert literals.locals_at(batch) == []
        with literals.looking_at([batch]):
            run()
        run()
    first, second = literals.locals_at(batch)
    parameters = [
        ("x", (4, 6), True),
        ('batch["ids"]', (4, 2), True),
        ("bias", (1, 6), True),
        ("more[0]", (6,), True),
        ('others["mask"]', (2, 6), True),
    ]
    state = [
        ('state["hidden"]', (6,), False),
        ("state[3]", (4, 6), False),
        ('state["it\'s"]', (4, 6), False),
    ]
    assert first == [*parameters, ("total", (4, 6), False), *state]
    assert second == [*first, ("past[1]", (4, 6), False)]
    assert first[0].text == "x" and first[0].shape == (4, 6) and first[0].parameter
    literals.reset()
    assert literals.locals_at(batch) == []


def test_tensors_around_comprehensions_and_in_closures(module: Import) -> None:
    net = module("""
        def run(x):
            y = x[:2]
            rows = [row.reshape(3, -1) for row in x]
            later = lambda z: (z.reshape(7, -1), y)
            return later(torch.ones(14))
    """)
    run = functools.partial(net.run, torch.ones(2, 6))
    with instrumented(run) as literals:
        run()
        rows, later = literal(literals, "3"), literal(literals, "7")
        with literals.looking_at({rows, later}):
            run()
    assert sorted(literals.locals_at(rows)[0]) == [
        ("row", (6,), False),
        ("x", (2, 6), True),
        ("y", (2, 6), False),
    ]
    assert literals.locals_at(rows)[0][0].text == "x" and len(literals.locals_at(rows)) == 2
    assert literals.locals_at(later) == [[("z", (14,), True), ("y", (2, 6), False)]]


def test_another_thread_runs_the_model_as_it_is_written() -> None:
    def rows(x: Tensor) -> Tensor:
        return x.reshape(4, -1)

    with instrumented(lambda: rows(torch.ones(8))) as literals:
        rows(torch.ones(8))
        four = next(literal for literal, values in literals.seen.items() if values == [4])
        with literals.overriding({four: 2}), ThreadPoolExecutor(1) as pool:
            assert rows(torch.ones(8)).shape == (2, 4)
            assert pool.submit(rows, torch.ones(8)).result().shape == (4, 2)
