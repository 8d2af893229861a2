from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from anyshape.artifact import write
from anyshape.artifact.read import CONTRACT_KEY, contract_of, read_model
from anyshape.artifact.write import check_writable, files_of, save
from anyshape.contract.contract import Contract, Dim
from anyshape.dims import Range
from anyshape.errors import FileError, UsageError

SIZE = 100


def adding(number: float) -> ir.Model:
    """x + weight + small: a large weight and a small one, which stays in the model's own file."""
    weights = {"weight": np.full(SIZE, number, np.float32), "small": np.full(1, number, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "weight"], ["sum"]),
            helper.make_node("Add", ["sum", "small"], ["y"]),
        ],
        "adding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    return ir.from_proto(helper.make_model(graph, ir_version=10, opset_imports=opset))


def number_of(path: Path) -> float:
    """The number that the model at ``path`` adds twice, once from each weight."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (made,) = session.run(None, {"x": np.zeros(SIZE, np.float32)})
    return float(made[0]) / 2


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


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


def test_a_model_saved_again_and_again(tmp_path: Path) -> None:
    model, seen = tmp_path / "model.onnx", []
    for number in (1.0, 2.0, 3.0):
        save(adding(number), model, external_data=True)
        assert number_of(model) == number
        assert files_of(model) == [str(tmp_path / name) for name in names_in(tmp_path)]
        seen.append(names_in(tmp_path)[1])
    assert seen[0] == seen[2] == "model.onnx.data"
    assert seen[1] not in seen[::2] and seen[1].startswith("model.onnx.") and seen[1].endswith(".data")


def test_weights_that_come_back_inside(tmp_path: Path) -> None:
    save(adding(1), tmp_path / "model.onnx", external_data=True)
    save(adding(2), tmp_path / "model.onnx")
    assert names_in(tmp_path) == ["model.onnx"] and number_of(tmp_path / "model.onnx") == 2


def test_no_large_weights_no_data_file(tmp_path: Path) -> None:
    model = adding(1)
    model.graph.initializers["weight"].const_value = ir.tensor([1.0], name="weight")
    save(model, tmp_path / "model.onnx", external_data=True)
    assert names_in(tmp_path) == ["model.onnx"] and number_of(tmp_path / "model.onnx") == 1


def test_a_copy_keeps_its_weights(tmp_path: Path) -> None:
    """Also one that was moved: the new model's data file gets another name."""
    save(adding(1), tmp_path / "model.onnx", external_data=True)
    shutil.copy(tmp_path / "model.onnx", tmp_path / "copy")
    save(adding(2), tmp_path / "model.onnx", external_data=True)
    os.rename(tmp_path / "model.onnx", tmp_path / "moved.onnx")
    save(adding(3), tmp_path / "model.onnx", external_data=True)
    assert [number_of(tmp_path / name) for name in ("copy", "moved.onnx", "model.onnx")] == [1, 2, 3]


def test_a_name_that_ends_like_ours_is_another(tmp_path: Path) -> None:
    """The data of encoder.onnx is removed though text_encoder.onnx refers to text_encoder.onnx.data."""
    for name in ("encoder.onnx", "text_encoder.onnx", "encoder.onnx"):
        save(adding(1), tmp_path / name, external_data=True)
    assert "encoder.onnx.data" not in names_in(tmp_path) and len(names_in(tmp_path)) == 4
    assert number_of(tmp_path / "text_encoder.onnx") == 1


def test_a_long_name(tmp_path: Path) -> None:
    name = "long" * 40 + ".onnx"
    for number in (1.0, 2.0):
        save(adding(number), tmp_path / name, external_data=True)
    assert len(names_in(tmp_path)) == 2 and number_of(tmp_path / name) == 2


@pytest.mark.parametrize("external_data", [True, None])
def test_a_model_saved_over_its_own_weights(tmp_path: Path, external_data: bool | None) -> None:
    save(adding(1), tmp_path / "model.onnx", external_data=True)
    model = ir.load(tmp_path / "model.onnx")
    save(model, tmp_path / "model.onnx", external_data=external_data)
    assert number_of(tmp_path / "model.onnx") == 1
    assert [float(v.const_value.numpy()[0]) for v in model.graph.initializers.values()] == [1, 1]  # type: ignore[union-attr]
    save(model, tmp_path / "model.onnx", external_data=external_data)
    assert number_of(tmp_path / "model.onnx") == 1


def test_small_weights_in_a_file_that_is_replaced(tmp_path: Path) -> None:
    ir.save(adding(1), tmp_path / "model.onnx", external_data="model.onnx.data", size_threshold_bytes=0)
    model = ir.load(tmp_path / "model.onnx")
    save(model, tmp_path / "model.onnx", external_data=True)
    assert number_of(tmp_path / "model.onnx") == 1 and len(names_in(tmp_path)) == 2
    assert [float(v.const_value.numpy()[0]) for v in model.graph.initializers.values()] == [1, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("external_data", [True, None])
def test_nothing_leads_out_of_the_folder(tmp_path: Path, external_data: bool | None) -> None:
    """A tensor of a node may lie in a file too, which ONNX IR leaves where it is."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    model = adding(1)
    np.full(SIZE, 5, np.float32).tofile(tmp_path / "there" / "constant")
    tensor = ir.ExternalTensor(
        "constant",
        0,
        4 * SIZE,
        ir.DataType.FLOAT,
        shape=ir.Shape([SIZE]),
        name="c",
        base_dir=tmp_path / "there",
    )
    constant = ir.node("Constant", [], {"value": ir.AttrTensor("value", tensor)})
    model.graph.insert_before(model.graph[0], constant)
    model.graph[1].replace_input_with(1, constant.outputs[0])
    save(model, tmp_path / "here" / "model.onnx", external_data=external_data)
    shutil.rmtree(tmp_path / "there")
    assert number_of(tmp_path / "here" / "model.onnx") == (5 + 1) / 2
    assert constant.attributes["value"].value is tensor


def test_weights_whose_file_is_gone(tmp_path: Path) -> None:
    save(adding(1), tmp_path / "model.onnx", external_data=True)
    model = ir.load(tmp_path / "model.onnx")
    os.unlink(tmp_path / "model.onnx.data")
    with pytest.raises(FileError, match=r"can't read the weight weight from .*model.onnx.data: No such file"):
        save(model, tmp_path / "again.onnx")
    assert names_in(tmp_path) == ["model.onnx"]
    assert isinstance(model.graph.initializers["weight"].const_value, ir.ExternalTensor)


def test_a_model_that_is_too_large_for_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "PROTOBUF_LIMIT", 4 * SIZE)
    for external_data in (None, False):
        save(adding(1), tmp_path / "model.onnx", external_data=external_data)
        assert len(names_in(tmp_path)) == 2 and number_of(tmp_path / "model.onnx") == 1


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "link.onnx", tmp_path / "real" / "model.onnx"
    link.symlink_to("real/model.onnx")  # to nothing, at first
    for number in (1.0, 2.0):
        assert save(adding(number), link, external_data=True) == str(link)
        assert link.is_symlink() and number_of(real) == number
    assert names_in(tmp_path) == ["link.onnx", "real"] and len(names_in(tmp_path / "real")) == 2


def test_a_link_at_the_data_files_name_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "model.onnx.data").symlink_to("precious")
    for number in (1.0, 2.0):
        save(adding(number), tmp_path / "model.onnx", external_data=True)
        assert number_of(tmp_path / "model.onnx") == number
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "model.onnx.data").is_symlink() and len(names_in(tmp_path)) == 4


def test_a_file_of_someone_elses_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "model.onnx.data").write_bytes(b"precious")
    for number in (1.0, 2.0):
        save(adding(number), tmp_path / "model.onnx", external_data=True)
    assert (tmp_path / "model.onnx.data").read_bytes() == b"precious" and len(names_in(tmp_path)) == 3


def test_permissions_are_kept(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save(adding(1), tmp_path / "model.onnx", external_data=True)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(os.stat(file).st_mode) for file in files_of(tmp_path / "model.onnx")]
    assert modes == [0o644, 0o644]
    os.chmod(tmp_path / "model.onnx", 0o640)
    save(adding(2), tmp_path / "model.onnx", external_data=True)
    modes = [stat.S_IMODE(os.stat(file).st_mode) for file in files_of(tmp_path / "model.onnx")]
    assert modes == [0o640, 0o640]


def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(adding(1), tmp_path / "model.onnx", external_data=True)
    replace = os.replace

    def interrupted(source: str, target: str) -> None:
        if target == str(tmp_path / "model.onnx"):  # the data file is in its place already
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(adding(2), tmp_path / "model.onnx", external_data=True)
    assert names_in(tmp_path) == ["model.onnx", "model.onnx.data"] and number_of(tmp_path / "model.onnx") == 1


def left_behind(folder: Path, *names: str) -> Path:
    """The hidden folder of a save that was killed after it noted these names."""
    staging = folder / ".anyshape-deadbeef"
    staging.mkdir()
    (staging / "note.json").write_text(json.dumps(names))
    return staging


def test_what_a_killed_save_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "other.onnx.data").touch()
    (tmp_path / "unrelated.data").touch()
    left_behind(tmp_path, "other.onnx.data", "gone.data")
    save(adding(1), tmp_path / "model.onnx")
    assert names_in(tmp_path) == ["model.onnx", "unrelated.data"]


def test_what_a_killed_save_noted_may_be_in_use(tmp_path: Path) -> None:
    save(adding(1), tmp_path / "other.onnx", external_data=True)
    left_behind(tmp_path, "other.onnx.data")
    save(adding(1), tmp_path / "model.onnx")
    assert names_in(tmp_path) == ["model.onnx", "other.onnx", "other.onnx.data"]


def test_a_note_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "precious.data").touch()
    (tmp_path / "inner" / "model.py").touch()
    left_behind(tmp_path / "inner", "../precious.data", str(tmp_path / "precious.data"), "model.py")
    save(adding(1), tmp_path / "inner" / "model.onnx")
    assert names_in(tmp_path) == ["inner", "precious.data"]
    assert names_in(tmp_path / "inner") == ["model.onnx", "model.py"]


def test_a_link_that_is_called_like_our_folders_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / ".anyshape-elsewhere").symlink_to("precious")
    save(adding(1), tmp_path / "model.onnx")
    assert names_in(tmp_path) == [".anyshape-elsewhere", "model.onnx", "precious"]


def test_a_save_that_is_still_at_work_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "other.onnx.data").touch()
    staging = left_behind(tmp_path, "other.onnx.data")
    with write._held(str(staging)) as held:
        save(adding(1), tmp_path / "model.onnx")
    assert held and names_in(tmp_path) == [staging.name, "model.onnx", "other.onnx.data"]


def test_a_folder_that_someone_holds_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `flock folder command` does: it is waited for, but not for ever."""
    monkeypatch.setattr(write, "PATIENCE", 0.02)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        for number in (1.0, 2.0):
            save(adding(number), tmp_path / "model.onnx", external_data=True)
    finally:
        os.close(descriptor)
    assert number_of(tmp_path / "model.onnx") == 2 and len(names_in(tmp_path)) == 2


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    (tmp_path / ".anyshape-deadbeef").mkdir()  # nobody can tell whether it is in use
    save(adding(1), tmp_path / "model.onnx", external_data=True)
    assert names_in(tmp_path) == [".anyshape-deadbeef", "model.onnx", "model.onnx.data"]
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # as if another one took the name right after
    save(adding(2), tmp_path / "model.onnx", external_data=True)
    assert number_of(tmp_path / "model.onnx") == 2 and len(names_in(tmp_path)) == 3


def test_saves_at_the_same_time(tmp_path: Path) -> None:
    """Each is whole: whoever opens the model meanwhile gets one of them, or misses a file, and never a mixture."""
    numbers = (1.0, 10.0, 100.0)
    model = tmp_path / "model.onnx"
    failures: list[BaseException] = []

    def often(number: float) -> None:
        try:
            for _ in range(8):
                save(adding(number), model, external_data=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=often, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with contextlib.suppress(Exception):
            assert number_of(model) in numbers or failures.append(AssertionError("a mixture"))  # type: ignore[func-returns-value]
    assert not failures
    assert number_of(model) in numbers and len(names_in(tmp_path)) == 2


def test_another_save_takes_the_name_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ir.save

    def slow(*args: object, **kwargs: object) -> None:
        real(*args, **kwargs)  # type: ignore[arg-type]
        monkeypatch.setattr(ir, "save", real)
        save(adding(1), tmp_path / "model.onnx", external_data=True)

    monkeypatch.setattr(ir, "save", slow)
    save(adding(2), tmp_path / "model.onnx", external_data=True)
    assert number_of(tmp_path / "model.onnx") == 2
    assert len(names_in(tmp_path)) == 2 and "model.onnx.data" not in names_in(tmp_path)


def test_a_device_is_no_target() -> None:
    with pytest.raises(FileError, match=r"/dev/null: it is a device or a pipe\nGive the path of a file"):
        check_writable("/dev/null")


def test_a_read_only_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").touch()
    monkeypatch.setattr(
        os, "access", lambda path, mode: not path.endswith("model.onnx")
    )  # as for anyone but root
    with pytest.raises(FileError, match=r"model.onnx: the file is read-only\nChoose another name"):
        check_writable(str(tmp_path / "model.onnx"))


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


def test_a_contract_that_could_not_be_read_back_is_refused() -> None:
    model = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    contract = Contract((Dim("_b", Range(1), 2),), ())
    with pytest.raises(UsageError) as info:
        write.attach(model, contract, {})
    assert "the file could not be read again" in info.value.what and "other names" in info.value.hint
