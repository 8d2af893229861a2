"""Read: an ONNX file, and the contract that it carries."""

from __future__ import annotations

import os

import onnx
import onnx_ir as ir

from anyshape.contract import Contract
from anyshape.errors import FileError

__all__ = ["CONTRACT_KEY", "contract_of", "read_model"]

CONTRACT_KEY = "anyshape.contract"


def contract_of(model: ir.Model) -> Contract | None:
    """The contract that a model carries; None if it is not ours."""
    text = model.metadata_props.get(CONTRACT_KEY)
    return None if text is None else Contract.from_json(text)


def read_model(path: str | os.PathLike[str]) -> ir.Model:
    """The ONNX model at ``path``; `FileError` if there is none or it is broken."""
    name = os.fspath(path)
    if not os.path.exists(name):
        raise FileError(f"there is no file {name}")
    if os.path.isdir(name):
        raise FileError(f"{name} is a folder, not an ONNX file")
    try:
        model = ir.load(name)
        _check(name)
    except Exception as error:
        lines = str(error).strip().splitlines() or ["it is empty"]
        raise FileError(f"{name} is not a whole ONNX file: {lines[0]}", hint="Export it again.") from error
    if not model.graph.outputs:
        raise FileError(f"{name} is not an ONNX model: it has no outputs", hint="Export it again.")
    return model


def _check(name: str) -> None:
    """ONNX's own checker, but for outputs without a shape: runtimes take them, and other exporters write them."""
    try:
        onnx.checker.check_model(name)
    except onnx.checker.ValidationError as error:
        if "Field 'shape' of 'type' is required" not in str(error):
            raise
