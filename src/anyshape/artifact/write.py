"""Write: the contract in the file, and files that appear whole or not at all.

A model with its weights apart is two files, and no file system replaces two at once. So a save goes like this, and
what is killed at any moment leaves the old model or the new one, each with its own weights:

1. stage     both files are written and flushed in a hidden folder beside the target
2. note      that folder notes the data file to come, and those of the model that will be replaced
3. place     the data file gets a name that no file has
4. replace   the model file is renamed over the old one: in this instant, and no other, the old model becomes the new
5. tidy      noted data files that no model in the folder refers to are removed, and last the hidden folder

A save that did not come to its end leaves its hidden folder; the next one into the same folder does step 5 for it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import mmap
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from anyshape.artifact.read import CONTRACT_KEY
from anyshape.artifact.safetensors import in_safetensors
from anyshape.contract.contract import Contract
from anyshape.errors import FileError, UsageError

if sys.platform != "win32":
    import fcntl

__all__ = ["attach", "check_external_data", "check_target", "check_writable", "files_of", "save", "write_to"]

PROTOBUF_LIMIT = 1_900_000_000
DATA, SAFETENSORS = ".data", "safetensors"
SUFFIXES = (DATA, f".{SAFETENSORS}")
STAGING = ".anyshape-"
NOTE = "note.json"
PATIENCE = 2.0  # seconds to wait for a save that puts its files in place, which takes far less


def attach(model: ir.Model, contract: Contract, versions: dict[str, str]) -> None:
    """Put the contract into the model's metadata; `UsageError` for one that nobody could read back."""
    text = contract.to_json()
    try:
        Contract.from_json(text)
    except FileError as error:
        raise UsageError(
            f"the file could not be read again: {error.what}",
            hint="Choose other names for inputs, outputs and keys.",
        ) from error
    model.metadata_props[CONTRACT_KEY] = text
    for name, version in versions.items():
        model.metadata_props[f"anyshape.{name}"] = version
    model.producer_name = "anyshape"
    model.producer_version = versions.get("version", "")


def check_external_data(external_data: Any) -> None:
    """`UsageError` for what says neither whether nor how weights go to a file of their own."""
    if external_data not in (None, True, False, SAFETENSORS):
        raise UsageError(
            f"external_data is {external_data!r}",
            hint=f"Give True, False or {SAFETENSORS!r}; None is for weights over 2 GB only.",
        )


def save(model: ir.Model, path: str | os.PathLike[str], *, external_data: bool | str | None = None) -> str:
    """Write the model to ``path``, whole or not at all; weights over 2 GB go to a file beside it. The path.

    With ``external_data="safetensors"`` that is a .safetensors file, ``model.onnx.safetensors``, whatever their size.

    The weights' file is ``model.onnx.data``; where a file has that name, ``model.onnx.<eight letters>.data``, and the
    one of the replaced model is removed at the end. So no data file is ever overwritten, and no model gets the weights
    of another: not after a crash, not in a runtime that is just opening the old file, not in a copy that was made of
    it. Putting ``model.onnx.data`` back in its place each time would look tidier and lose that.

    A symbolic link is followed: the file it points to is replaced, with its weights beside it. An existing file's
    permissions are kept. A model whose weights lie in the files that are replaced can be saved, and used afterwards.
    """
    check_external_data(external_data)
    given = os.fsdecode(path)
    check_writable(given)
    target = os.path.realpath(given)
    suffix = f".{SAFETENSORS}" if external_data == SAFETENSORS else DATA
    apart = bool(external_data) or _size(model) > PROTOBUF_LIMIT
    with _staging(given, os.path.dirname(target)) as staging:
        for name in _data_names(target, staging, suffix):
            files = _staged(model, staging, os.path.basename(target), name if apart else None)
            if _put_in_place(files, target, staging):
                return given
        raise FileExistsError(errno.EEXIST, f"there is a file {name} already")


def files_of(path: str | os.PathLike[str]) -> list[str]:
    """A saved model's files: its own and, where its weights are apart, theirs."""
    given = os.fsdecode(path)
    return [given, *_data_files(os.path.realpath(given))]


def check_target(f: Any) -> None:
    """Refuse what can't be written to before any work is done for it: a path, or a binary file that is open."""
    if f is None:
        return
    if isinstance(f, (str, os.PathLike)):
        name = os.fspath(f)
        if not isinstance(name, str) or "\0" in name:
            raise FileError(f"{name!r} is no path of a file", hint="Give the path as text.")
        check_writable(name)
        return
    try:
        open_ = callable(getattr(f, "write", None)) and not isinstance(f, io.TextIOBase) and f.writable()
    except (AttributeError, ValueError):  # one that does not say, or is closed
        open_ = callable(getattr(f, "write", None)) and not getattr(f, "closed", False)
    if not open_:
        raise FileError(
            f"can't write to a {type(f).__name__}: it is neither a path nor a binary file that is open for writing",
            hint="Give a path such as 'model.onnx', or open(path, 'wb').",
        )


def write_to(file: Any, data: bytes) -> None:
    """All of ``data`` to an open file: a raw one may take less than it is given."""
    rest = memoryview(data)
    while rest:
        taken = file.write(rest)
        if not taken:  # a file that does not say has taken all
            if taken is None:
                return
            raise FileError(f"a {type(file).__name__} takes no more data, {len(rest)} bytes before the end")
        rest = rest[taken:]


def check_writable(target: str) -> None:
    """Refuse a path that can't be written before any work is done for it."""
    real = os.path.realpath(target)
    parent = os.path.dirname(real)
    if os.path.isdir(real):
        raise FileError(f"can't write {target}: it is a folder", hint="Give the path of a file.")
    if os.path.exists(real) and not os.path.isfile(real):
        raise FileError(f"can't write {target}: it is a device or a pipe", hint="Give the path of a file.")
    if not os.path.isdir(parent):
        raise FileError(f"can't write {target}: the folder {parent} does not exist", hint="Make it first.")
    if not os.access(parent, os.W_OK):
        raise FileError(
            f"can't write {target}: the folder {parent} is read-only", hint="Choose another folder."
        )
    if os.path.exists(real) and not os.access(real, os.W_OK):
        raise FileError(f"can't write {target}: the file is read-only", hint="Choose another name.")


# --- Stage ----------------------------------------------------------------------------------------------


def _size(model: ir.Model) -> int:
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def _data_names(target: str, staging: str, suffix: str) -> Iterator[str]:
    """Names for the data file; the second one is for when another save takes the first meanwhile."""
    if not os.path.lexists(target + suffix):
        yield os.path.basename(target) + suffix
    yield f"{os.path.basename(target)}.{os.path.basename(staging).removeprefix(STAGING)}{suffix}"


def _staged(model: ir.Model, staging: str, name: str, data: str | None) -> list[str]:
    """The model's file and, if there is one, its data file, written and flushed in the hidden folder."""
    folder = os.path.join(staging, "files")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    with _referring_to_no_file(model):
        if data is not None and data.endswith(f".{SAFETENSORS}"):
            with in_safetensors(model, os.path.join(folder, data), data):
                ir.save(model, os.path.join(folder, name))
        else:
            ir.save(model, os.path.join(folder, name), external_data=data)
    made = [os.path.join(folder, each) for each in (name, data) if each is not None]
    # all weights may be small
    made = [file for file in made if file == made[0] or (os.path.exists(file) and os.path.getsize(file))]
    for file in made:
        _flush(file)
    return made


@contextlib.contextmanager
def _referring_to_no_file(model: ir.Model) -> Iterator[None]:
    """Within this context, what the model takes from other files is in memory: mapped, not copied.

    `ir.save` would write some references as they are, which then lead from the new file's folder to wherever the model
    came from. What is mapped once can still be read when its file has lost its name.
    """
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    weights = [(value, value.const_value) for value in values]
    attributes = list(_external_attributes(model))
    try:
        for value, tensor in weights:
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = _in_memory(tensor)
        for node, attribute in attributes:
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, _in_memory(attribute.value))
        yield
    finally:
        for value, tensor in weights:
            value.const_value = tensor
        for node, attribute in attributes:
            node.attributes[attribute.name] = attribute


def _external_attributes(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Attr]]:
    nodes = [model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values())]
    for node in itertools.chain.from_iterable(nodes):
        for attribute in node.attributes.values():
            if isinstance(attribute.value, ir.ExternalTensor):
                yield node, attribute


def _in_memory(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    try:
        return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(
            f"can't read the weight {tensor.name} from {tensor.path}: {reason}",
            hint="The model takes it from that file: load the model again.",
        ) from error


# --- Note, place, replace -------------------------------------------------------------------------------


def _put_in_place(files: Sequence[str], target: str, staging: str) -> bool:
    """The staged files under their own names; False, and nothing done, if the data file's name has been taken."""
    folder = os.path.dirname(target)
    model, *data = files
    places = [os.path.join(folder, os.path.basename(file)) for file in data]
    with _turn(folder):
        if any(map(os.path.lexists, places)):
            return False
        _note(staging, [os.path.basename(file) for file in (*places, *_data_files(target))])
        if os.path.exists(target):
            _protect(files, os.stat(target))
        for file, place in zip(data, places, strict=True):
            try:  # made by nobody else, and no link that leads elsewhere: then a rename over it harms nothing
                os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:  # there are file systems without locks
                return False
            os.replace(file, place)
        _flush(folder)
        os.replace(model, target)
        _flush(folder)
    return True


def _data_files(target: str) -> list[str]:
    """The files with names of our making that the model at ``target`` refers to: it may be someone else's model."""
    own = re.compile(re.escape(os.path.basename(target)) + r"(\.[a-z0-9_]{8})?\.(data|safetensors)")
    folder = os.path.dirname(target)
    names = sorted(filter(own.fullmatch, os.listdir(folder))) if os.path.exists(target) else []
    return [os.path.join(folder, name) for name in names if _refers(target, name)]


def _note(staging: str, names: list[str]) -> None:
    note = os.path.join(staging, NOTE)
    with open(note, "w", encoding="utf-8") as out:
        json.dump(names, out)
    _flush(note)
    _flush(staging)


def _protect(files: Sequence[str], like: os.stat_result) -> None:
    """Give the new files the old one's permissions, and its owner where we may."""
    for file in files:
        if sys.platform != "win32":
            with contextlib.suppress(PermissionError):
                os.chown(file, like.st_uid, like.st_gid)
        os.chmod(file, stat.S_IMODE(like.st_mode))


def _flush(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk: after a power cut, order is all there is."""
    folder = os.path.isdir(path)
    try:
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Not every file system can flush a folder; a disk that fails is another matter.
        if not folder or error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            raise


# --- Tidy -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _staging(given: str, folder: str) -> Iterator[str]:
    """A hidden folder beside the target, known to be in use while this process lives, and gone afterwards."""
    try:
        with contextlib.ExitStack() as stack:
            with _turn(folder):
                _sweep(folder)
                staging = tempfile.mkdtemp(prefix=STAGING, dir=folder)
                stack.callback(_tidy_in_turn, staging)
                stack.enter_context(_held(staging))
            yield staging
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"can't write {given}: {reason}", hint="Choose another folder.") from error


def _sweep(folder: str) -> None:
    """Tidy up after saves of this user whose process is gone."""
    with contextlib.suppress(OSError):
        for name in filter(lambda name: name.startswith(STAGING), os.listdir(folder)):
            staging = os.path.join(folder, name)
            with contextlib.suppress(OSError), _held(staging) as held:
                if held and os.lstat(staging).st_uid == os.geteuid():
                    _tidy(staging)


def _tidy_in_turn(staging: str) -> None:
    """Tidy up, or leave it to the next save if that can't be done now."""
    with _turn(os.path.dirname(staging)), contextlib.suppress(OSError):
        _tidy(staging)


def _tidy(staging: str) -> None:
    """Remove the noted data files that no model refers to, then the hidden folder.

    The same after success, where the old model's data file is one, after failure, where the new one is, and after a
    crash, whenever it came.
    """
    folder = os.path.dirname(staging)
    for name in _noted(staging):
        file = os.path.join(folder, name)
        if not os.path.islink(file) and os.path.isfile(file) and not _in_use(folder, name):
            os.unlink(file)
    shutil.rmtree(staging)


def _noted(staging: str) -> list[str]:
    """What a save noted, none if it did not come so far; only ever names in the folder itself."""
    try:
        with open(os.path.join(staging, NOTE), encoding="utf-8") as note:
            names = json.load(note)
    except (FileNotFoundError, ValueError):
        return []
    return [name for name in names if name == os.path.basename(name) and name.endswith(SUFFIXES)]


def _in_use(folder: str, name: str) -> bool:
    models = (other for other in os.listdir(folder) if not other.endswith(SUFFIXES))
    return any(_refers(os.path.join(folder, other), name) for other in models)


def _refers(model: str, name: str) -> bool:
    """Whether a file is a model that refers to a data file of this name; another user's private file may.

    The bytes are searched, as parsing a model of gigabytes takes as many more: in protobuf, a text follows its tag and
    length; in a path or in another notation, a separator or a quotation mark.
    """
    try:
        if not os.path.isfile(model):
            return False
        with open(model, "rb") as file:
            start = file.read(1)
            if not start or (start != b"\x08" and ".onnx" not in os.path.basename(model)):
                return False  # a model starts with the version of its format, unless it is written as text
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _mentions(content, os.fsencode(name))
    except FileNotFoundError:  # removed since it was listed
        return False
    except PermissionError:
        return True


def _mentions(content: mmap.mmap, name: bytes) -> bool:
    length = bytes([len(name)]) if len(name) < 128 else bytes([len(name) % 128 + 128, len(name) // 128])
    place = content.find(name)
    while place >= 0:
        if content[max(0, place - 3) : place].endswith((b"\x12" + length, b"/", b"\\", b'"')):
            return True
        place = content.find(name, place + 1)
    return False


# --- One at a time --------------------------------------------------------------------------------------


def _turn(folder: str) -> contextlib.AbstractContextManager[bool]:
    """One save at a time touches the names in a folder, where the file system has locks.

    The wait is bounded, as someone may hold the folder for good: `flock folder command` does. Without the lock, a
    save is still safe against crashes, and overwrites no data file.
    """
    return _held(folder, PATIENCE)


@contextlib.contextmanager
def _held(folder: str, patience: float = 0.0) -> Iterator[bool]:
    """Hold a folder, if nobody does; the system lets go of it when the process ends, however it ends."""
    if sys.platform == "win32":
        yield False
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield _locked(descriptor, time.monotonic() + patience)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, end: float) -> bool:
    while sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return False
    return False
