"""target: FILE.py:NAME becomes a model and its example; every mistake on the way has its own message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from anyshape.dims import parse_input
from anyshape.errors import AnyshapeError, FileError, ParseError, UsageError
from anyshape.inputs.target import load_target, make_tensor, split_target

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.layer = nn.Linear(size, 2)

    def forward(self, x, scale=None):
        return self.layer(x) if scale is None else self.layer(x) * scale

class Sized(Net):
    def __init__(self, size):
        super().__init__(size)

model = Net()
number = 3
def only_model(): return Net()
def with_tensor(): return Net(), torch.ones(3, 4)
def with_args(): return Net(), (torch.ones(3, 4),)
def with_both(): return Net(), (torch.ones(3, 4),), {"scale": torch.ones(1)}
def with_names(): return Net(), {"x": torch.ones(3, 4)}
def with_bad_kwargs(): return Net(), (torch.ones(3, 4),), [1]
def with_four(): return Net(), (), {}, 1
def needs(size): return Net(size)
def broken(): raise ValueError("no weights here")
"""


@pytest.fixture(autouse=True)
def modules_as_before() -> Iterator[None]:
    """Loading a target puts its module and its folder where Python finds them: not beyond one test."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(text: str = NET, name: str = "net_of_target.py") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return written


def refused(kind: type[AnyshapeError], text: str, inputs: tuple[str, ...] = ()) -> AnyshapeError:
    with pytest.raises(kind) as caught:
        load_target(text, inputs)
    return caught.value


@pytest.mark.parametrize("name", ["with_tensor", "with_args", "with_both"])
def test_a_function_gives_model_and_example(write: Callable[..., str], name: str) -> None:
    target = load_target(f"{write()}:{name}")
    assert isinstance(target.model, torch.nn.Module)
    assert [tuple(tensor.shape) for tensor in target.args] == [(3, 4)]
    assert list(target.kwargs) == (["scale"] if name == "with_both" else [])


def test_a_dict_in_the_place_of_args_is_by_name(write: Callable[..., str]) -> None:
    target = load_target(f"{write()}:with_names")
    assert target.args == () and list(target.kwargs) == ["x"]


@pytest.mark.parametrize("name", ["model", "Net", "only_model"])
def test_inputs_make_the_example_where_there_is_none(write: Callable[..., str], name: str) -> None:
    target = load_target(f"{write()}:{name}", ["x=float32[batch=5,4]"])
    assert tuple(target.kwargs["x"].shape) == (5, 4)
    assert target.shapes == {"x": "batch, 4"}


def test_sizes_without_names_declare_nothing(write: Callable[..., str]) -> None:
    assert load_target(f"{write()}:Net", ["x=float32[5,4]"]).shapes == {}


def test_inputs_add_to_an_example(write: Callable[..., str]) -> None:
    target = load_target(f"{write()}:with_args", ["scale=float32[1]"])
    assert len(target.args) == 1 and list(target.kwargs) == ["scale"]


def test_a_file_finds_its_neighbours_and_its_own_classes(write: Callable[..., str]) -> None:
    write("width = 7", "neighbour_of_target.py")
    text = (
        "import dataclasses, torch, neighbour_of_target\n"
        "@dataclasses.dataclass\nclass Config:\n    width: int = neighbour_of_target.width\n"
        "def build(): return torch.nn.Linear(Config().width, 1), torch.ones(2, 7)\n"
    )
    assert load_target(f"{write(text)}:build").model.in_features == 7


@pytest.mark.parametrize("name", ["json.py", "torch.py"])
def test_a_file_named_like_a_library_does_not_replace_it(write: Callable[..., str], name: str) -> None:
    library = sys.modules[name.removesuffix(".py")]
    with_name = write(
        NET.replace("import torch\n", "", 1).replace("torch.", "nn.modules.module.torch."), name
    )
    load_target(f"{with_name}:only_model", ["x=float32[2,4]"])
    assert sys.modules[name.removesuffix(".py")] is library


def test_made_values() -> None:
    ids = make_tensor(parse_input("ids=int64[4,50]<9"))
    assert ids.dtype == torch.int64 and 0 <= int(ids.min()) < int(ids.max()) < 9
    assert set(make_tensor(parse_input("ids=int32[50]")).tolist()) == {0, 1}
    assert make_tensor(parse_input("mask=bool[3]")).all()
    assert make_tensor(parse_input("x=float16[2,3]")).dtype == torch.float16
    assert make_tensor(parse_input("step=int64[]")).shape == ()
    assert torch.equal(make_tensor(parse_input("x=float32[9]")), make_tensor(parse_input("x=float32[9]")))


@pytest.mark.parametrize("text", ["net.py", "net.py:", "net.py:two words", "C:\\net.py", ""])
def test_without_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="does not say which model"):
        split_target(text)


def test_no_such_file() -> None:
    assert "there is no file missing.py" in str(refused(FileError, "missing.py:build"))


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in str(refused(FileError, f"{tmp_path}:build"))


def test_not_python(write: Callable[..., str]) -> None:
    assert "is not a Python file" in str(refused(FileError, f"{write(name='net.txt')}:build"))


def test_no_such_name_lists_what_there_is(write: Callable[..., str]) -> None:
    error = refused(FileError, f"{write()}:biuld")
    assert "has no biuld" in error.what
    assert error.hint.startswith("It has: model, only_model, with_tensor") and "Net" in error.hint
    assert "number" not in error.hint and "torch" not in error.hint


def test_a_syntax_error_shows_its_line(write: Callable[..., str]) -> None:
    error = refused(FileError, f"{write('import torch' + chr(10) + 'def build(:' + chr(10))}:build")
    assert "can't be imported" in error.what
    assert error.where is not None
    assert (error.where.file, error.where.line, error.where.text) == ("net_of_target.py", 2, "def build(:")


def test_an_import_that_raises_shows_its_line(write: Callable[..., str]) -> None:
    path = write("import torch\nweights = {}\nmodel = weights['encoder']\n")
    error = refused(FileError, f"{path}:model")
    assert "KeyError" in error.what
    assert error.where is not None and error.where.line == 3 and "weights['encoder']" in error.where.text
    assert "net_of_target" not in sys.modules


def test_an_import_that_exits(write: Callable[..., str]) -> None:
    error = refused(FileError, f"{write('import sys' + chr(10) + 'sys.exit(3)' + chr(10))}:model")
    assert "it exits with 3" in error.what and "__main__" in error.hint
    assert error.where is not None and error.where.line == 2


def test_a_function_that_raises_shows_its_line(write: Callable[..., str]) -> None:
    error = refused(FileError, f"{write()}:broken")
    assert "ValueError: no weights here" in error.what
    assert error.where is not None and error.where.text.startswith("def broken()")


@pytest.mark.parametrize("name", ["needs", "Sized"])
def test_what_needs_arguments(write: Callable[..., str], name: str) -> None:
    error = refused(UsageError, f"{write()}:{name}")
    assert f"{name} needs arguments: size" in error.what


def test_what_is_no_model(write: Callable[..., str]) -> None:
    assert "gives a int, not a torch.nn.Module" in str(refused(UsageError, f"{write()}:number"))


def test_too_many_values(write: Callable[..., str]) -> None:
    assert "gives 4 values" in str(refused(UsageError, f"{write()}:with_four"))


def test_kwargs_that_are_no_dict(write: Callable[..., str]) -> None:
    assert "gives a list as kwargs, not a dict" in str(refused(UsageError, f"{write()}:with_bad_kwargs"))


def test_no_example_says_how_to_give_one(write: Callable[..., str]) -> None:
    error = refused(UsageError, f"{write()}:only_model")
    assert "gives no example inputs" in error.what and "--input x=float32" in error.hint


def test_an_input_that_the_model_does_not_have(write: Callable[..., str]) -> None:
    error = refused(UsageError, f"{write()}:Net", ("y=float32[2,4]",))
    assert "no argument y" in error.what and error.hint == "Its arguments are: x, scale."


def test_an_input_that_is_there_already(write: Callable[..., str]) -> None:
    error = refused(UsageError, f"{write()}:with_args", ("x=float32[2,4]",))
    assert "already gives an example of x" in error.what


def test_an_unknown_dtype_is_pointed_at(write: Callable[..., str]) -> None:
    error = refused(ParseError, f"{write()}:Net", ("x=float23[2,4]",))
    assert "float23 is no dtype" in error.what
    assert str(error).splitlines()[1:3] == ["  x=float23[2,4]", "    ^"]


def test_a_module_of_a_package_is_found_from_the_current_folder(
    write: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "shop_of_target" / "nets").mkdir(parents=True)
    write("from .nets.parts import Net\ndef here(): return Net(), 1\n", "shop_of_target/__init__.py")
    write("", "shop_of_target/nets/__init__.py")
    write(NET, "shop_of_target/nets/parts.py")
    write("from .parts import Net, with_args as build\n", "shop_of_target/nets/net.py")
    target = load_target("shop_of_target.nets.net:build")
    assert type(target.model).__module__ == "shop_of_target.nets.parts" and target.args[0].shape == (3, 4)
    assert type(load_target("shop_of_target:here").model).__name__ == "Net"
    assert refused(FileError, "shop_of_target.nets.net:x").what == "shop_of_target.nets.net has no x"
    alone = refused(FileError, "shop_of_target/nets/net.py:build")
    assert "relative import" in alone.what
    assert alone.hint == "A file of a package is named as Python does: package.module:NAME."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no_package.net:build", "there is no file no_package.net and no module no_package.net"),
        ("no_package:build", "there is no file no_package and no module no_package"),
        ("no_package.py:build", "there is no file no_package.py"),
        ("broken_of_target:build", "broken_of_target can't be imported: ValueError: closed today"),
        (
            "lacking_of_target:build",
            "lacking_of_target can't be imported: ModuleNotFoundError: No module named 'no_such'",
        ),
        ("wrong_of_target:build", "wrong_of_target can't be imported: invalid syntax"),
        ("leaving_of_target:build", "leaving_of_target can't be imported: it exits with 3"),
    ],
)
def test_a_module_that_is_none(write: Callable[..., str], text: str, told: str) -> None:
    write("raise ValueError('closed today')", "broken_of_target.py")
    write("import no_such", "lacking_of_target.py")
    write("1 +* 2", "wrong_of_target.py")
    write("import sys; sys.exit(3)", "leaving_of_target.py")
    assert refused(FileError, text).what == told
