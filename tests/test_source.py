from __future__ import annotations

import gc
import os
import weakref

import pytest
import torch

from anyshape.errors import ModelFault, SourceLine
from anyshape.inputs.case import Case
from anyshape.inputs.read import read
from anyshape.source.lines import (
    TORCH_FOLDER,
    first_line,
    innermost_line,
    is_library,
    let_go,
    line_at,
    line_of_exception,
    path_of,
)


def test_the_line_is_the_users_and_not_torchs(line_in) -> None:
    def multiply() -> None:
        torch.nn.functional.linear(torch.ones(2), torch.ones(3, 3))

    with pytest.raises(RuntimeError) as info:
        multiply()
    where = line_of_exception(info.value)
    assert where is not None
    assert os.path.basename(where.file) == "test_source.py"
    assert where.text == "torch.nn.functional.linear(torch.ones(2), torch.ones(3, 3))"
    assert where.line == line_in(__file__, "torch.nn.functional.linear")


def test_inside_a_model_the_innermost_line_of_the_user_counts() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(7, 11)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    with pytest.raises(ModelFault) as info:
        read(Outer(), torch.ones(3))
    assert info.value.where is not None and info.value.where.text == "return x.reshape(7, 11)"


def test_a_layer_of_torch_without_user_code_has_no_line() -> None:
    with pytest.raises(ModelFault) as info:
        read(torch.nn.Linear(3, 3), torch.ones(4))
    assert info.value.where is None


def test_frames_outside_the_model_are_not_the_model() -> None:
    user, code = os.path.abspath(__file__), Case.call.__code__
    ours = (code.co_filename, code.co_firstlineno + 3)
    assert innermost_line([(user, 1), ours, (TORCH_FOLDER + "nn.py", 3)]) is None
    inside = innermost_line([(user, 1), ours, (user, 3), (TORCH_FOLDER + "nn.py", 3)])
    assert inside is not None and inside.line == 3


def test_generated_code_and_context_managers_are_passed_over() -> None:
    user = os.path.abspath(__file__)
    frames = [(user, 5), ("<string>", 1), ("/usr/lib/python3/contextlib.py", 8)]
    where = innermost_line(frames)
    assert where is not None and where.line == 5
    assert innermost_line([("<eval>", 1)]) is None
    assert innermost_line([]) is None


def test_files_are_named_as_a_person_would(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net").mkdir()

    def file_of(path: str) -> str:
        where = innermost_line([(path, 1)])
        assert where is not None
        return where.file

    assert file_of(str(tmp_path / "net" / "model.py")) == os.path.join("net", "model.py")
    assert file_of("/elsewhere/deep/model.py") == "model.py"
    assert file_of("/venv/lib/python3/site-packages/transformers/bert.py") == "transformers/bert.py"


def test_an_exception_in_one_line() -> None:
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(KeyError()) == "KeyError"


def test_an_exception_that_lets_go_still_knows_its_lines(line_in) -> None:
    class Large:
        pass

    def inner(held: Large) -> None:
        raise ValueError("one")  # the inner line

    def outer() -> BaseException:
        held = Large()
        seen.append(weakref.ref(held))
        try:
            inner(held)
        except ValueError as error:
            return error
        raise AssertionError

    seen: list[weakref.ref[Large]] = []
    error = outer()
    let_go(error)
    gc.collect()
    where = line_of_exception(error)
    assert seen[0]() is None and where is not None and where.line == line_in(__file__, "# the inner line")
    let_go(None)


def test_a_source_line_prints_as_an_editor_finds_it() -> None:
    assert str(SourceLine("net.py", 41, "if x > 8:")) == "net.py:41    if x > 8:"
    assert str(SourceLine("net.py", 41)) == "net.py:41"


def test_the_path_of_a_line_and_whether_it_is_a_librarys(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "site-packages" / "lib" / "layer.py"
    path.parent.mkdir(parents=True)
    path.write_text("x = 1\n")
    where = line_at(str(path), 1)
    assert (where.file, path_of(where)) == ("lib/layer.py", str(path))
    assert is_library(where)
    assert is_library(line_at(os.__file__, 1))
    assert not is_library(line_at(__file__, 1))
    assert path_of(SourceLine("nowhere.py", 1)) == "nowhere.py"
