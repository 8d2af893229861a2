from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import onnx
import onnx_ir as ir
import pytest

from anyshape.artifact.read import CONTRACT_KEY, contract_of, read_model
from anyshape.artifact.write import check_writable, save
from anyshape.contract.contract import Contract
from anyshape.errors import FileError


def test_the_file_carries_its_contract(two_inputs: SimpleNamespace) -> None:
    model = onnx.load(two_inputs.path)
    properties = {item.key: item.value for item in model.metadata_props}
    assert Contract.from_json(properties[CONTRACT_KEY]) == two_inputs.export.contract
    assert contract_of(read_model(two_inputs.path)) == two_inputs.export.contract


def test_the_file_says_who_made_it(two_inputs: SimpleNamespace) -> None:
    model = onnx.load(two_inputs.path)
    keys = {item.key for item in model.metadata_props}
    assert model.producer_name == "anyshape" and model.producer_version
    assert {"anyshape.version", "anyshape.torch_version", "anyshape.onnxscript_version"} <= keys


def test_another_exporters_file_has_no_contract(two_inputs: SimpleNamespace) -> None:
    model = ir.load(two_inputs.path)
    del model.metadata_props[CONTRACT_KEY]
    assert contract_of(model) is None


def test_saving_leaves_nothing_else_behind(two_inputs: SimpleNamespace, tmp_path: Path) -> None:
    assert save(two_inputs.export.model, tmp_path / "again.onnx") == str(tmp_path / "again.onnx")
    assert os.listdir(tmp_path) == ["again.onnx"]


def test_weights_apart(two_inputs: SimpleNamespace, tmp_path: Path) -> None:
    two_inputs.export.save(tmp_path / "apart.onnx", external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["apart.onnx", "apart.onnx.data"]
    whole = two_inputs.path.stat().st_size
    assert (tmp_path / "apart.onnx").stat().st_size < whole
    assert contract_of(read_model(tmp_path / "apart.onnx")) == two_inputs.export.contract


def test_an_existing_file_survives_a_failure(
    two_inputs: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model.onnx"
    target.write_bytes(b"precious")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ir, "save", full)
    with pytest.raises(FileError, match=r"can't write .*model.onnx: No space left on device"):
        save(two_inputs.export.model, target)
    assert target.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_no_room_for_the_temporary_folder(
    two_inputs: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **kwargs: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    with pytest.raises(
        FileError, match=r"can't write .*model.onnx: Permission denied\nChoose another folder"
    ):
        save(two_inputs.export.model, tmp_path / "model.onnx")


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"it is a folder\nGive the path of a file"):
        check_writable(str(tmp_path))


def test_a_target_in_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"the folder .*nowhere does not exist\nMake it first"):
        check_writable(str(tmp_path / "nowhere" / "model.onnx"))


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for anyone but root
    with pytest.raises(FileError, match=r"is read-only\nChoose another folder"):
        check_writable(str(tmp_path / "model.onnx"))


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"there is no file .*none.onnx"):
        read_model(tmp_path / "none.onnx")


def test_reading_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder, not an ONNX file"):
        read_model(tmp_path)


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_reading_a_truncated_file(two_inputs: SimpleNamespace, tmp_path: Path, kept: float) -> None:
    whole = two_inputs.path.read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: int(kept if kept > 1 else kept * len(whole))])
    with pytest.raises(FileError, match=r"cut.onnx is not .*\nExport it again") as info:
        read_model(tmp_path / "cut.onnx")
    assert len(str(info.value).splitlines()) <= 3


def test_reading_a_model_without_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = onnx.helper.make_graph([], "empty", [], [])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "empty.onnx")
    with pytest.raises(FileError, match="it has no outputs"):
        read_model(tmp_path / "empty.onnx")
