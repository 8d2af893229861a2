"""Write: the contract in the file, and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

import onnx_ir as ir

from anyshape.artifact.read import CONTRACT_KEY
from anyshape.contract.contract import Contract
from anyshape.errors import FileError

__all__ = ["attach", "check_writable", "save"]

PROTOBUF_LIMIT = 1_900_000_000


def attach(model: ir.Model, contract: Contract, versions: dict[str, str]) -> None:
    """Put the contract into the model's metadata."""
    model.metadata_props[CONTRACT_KEY] = contract.to_json()
    for name, version in versions.items():
        model.metadata_props[f"anyshape.{name}"] = version
    model.producer_name = "anyshape"
    model.producer_version = versions.get("version", "")


def save(model: ir.Model, path: str | os.PathLike[str], *, external_data: bool | None = None) -> str:
    """Write the model to ``path`` through a temporary file; weights over 2 GB go to a file beside it.

    An existing file is replaced only when the new one is whole.
    """
    target = os.fspath(path)
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    apart = size > PROTOBUF_LIMIT or bool(external_data)
    with _staging(target) as folder:
        staged = os.path.join(folder, os.path.basename(target))
        data_name = os.path.basename(target) + ".data"
        if apart:
            ir.save(model, staged, external_data=data_name)
        else:
            ir.save(model, staged)
        if apart and os.path.exists(os.path.join(folder, data_name)):
            os.replace(os.path.join(folder, data_name), target + ".data")
        os.replace(staged, target)
    return target


@contextlib.contextmanager
def _staging(target: str) -> Iterator[str]:
    """A temporary folder beside the target, gone afterwards whatever happens."""
    parent = os.path.dirname(os.path.abspath(target))
    check_writable(target)
    try:
        folder = tempfile.mkdtemp(prefix=".anyshape-", dir=parent)
    except OSError as error:
        raise FileError(f"can't write {target}: {error.strerror}", hint="Choose another folder.") from error
    try:
        yield folder
    except OSError as error:
        raise FileError(
            f"can't write {target}: {error.strerror or error}", hint="Choose another folder."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_writable(target: str) -> None:
    """Refuse a path that can't be written before any work is done for it."""
    parent = os.path.dirname(os.path.abspath(target))
    if os.path.isdir(target):
        raise FileError(f"can't write {target}: it is a folder", hint="Give the path of a file.")
    if not os.path.isdir(parent):
        raise FileError(f"can't write {target}: the folder {parent} does not exist", hint="Make it first.")
    if not os.access(parent, os.W_OK):
        raise FileError(
            f"can't write {target}: the folder {parent} is read-only", hint="Choose another folder."
        )
