"""Weights as a .safetensors file: an ONNX file may refer to any file by offset, and other tools read this one by name.

A header of eight bytes says how long the JSON after it is; that says where each tensor lies in what follows. The bytes
of a tensor are the same in both formats.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import IO

import onnx_ir as ir

__all__ = ["SMALLEST", "in_safetensors"]

SMALLEST = 256  # bytes: what is smaller stays in the model, sizes and the like, which runtimes look at
TYPES = {
    ir.DataType.FLOAT: "F32",
    ir.DataType.DOUBLE: "F64",
    ir.DataType.FLOAT16: "F16",
    ir.DataType.BFLOAT16: "BF16",
    ir.DataType.INT64: "I64",
    ir.DataType.INT32: "I32",
    ir.DataType.INT16: "I16",
    ir.DataType.INT8: "I8",
    ir.DataType.UINT64: "U64",
    ir.DataType.UINT32: "U32",
    ir.DataType.UINT16: "U16",
    ir.DataType.UINT8: "U8",
    ir.DataType.BOOL: "BOOL",
    ir.DataType.FLOAT8E4M3FN: "F8_E4M3",
    ir.DataType.FLOAT8E5M2: "F8_E5M2",
}


@contextlib.contextmanager
def in_safetensors(model: ir.Model, path: str, location: str) -> Iterator[bool]:
    """Writes the weights to ``path``; within this context the model refers to them as ``location``.

    False, and nothing is written, if all weights are small. One tensor after another is written from where it lies.
    """
    values = {name: value for name, value in model.graph.initializers.items() if _apart(value)}
    tensors = {name: value.const_value for name, value in values.items() if value.const_value is not None}
    # The widest types first, so that each tensor begins at a multiple of its own width.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.bitwidth, name))
    if not order:
        yield False
        return
    with open(path, "wb") as file:
        places = _write(file, {name: tensors[name] for name in order})
    try:
        for name, offset in places.items():
            tensor = tensors[name]
            values[name].const_value = ir.ExternalTensor(
                location, offset, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
            )
        yield True
    finally:
        for name, value in values.items():
            value.const_value = tensors[name]


def _apart(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.dtype in TYPES and tensor.nbytes >= SMALLEST


def _write(file: IO[bytes], tensors: Mapping[str, ir.TensorProtocol]) -> dict[str, int]:
    """The offset of each tensor in the file."""
    ends, total = {}, 0
    for name, tensor in tensors.items():
        ends[name] = (total, total + tensor.nbytes)
        total += tensor.nbytes
    rows = {
        name: {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": list(ends[name])}
        for name, tensor in tensors.items()
    }
    head = json.dumps({"__metadata__": {"format": "pt"}, **rows}).encode()
    head += b" " * (-(8 + len(head)) % 64)
    file.write(struct.pack("<Q", len(head)) + head)
    for tensor in tensors.values():
        if hasattr(tensor, "tofile"):
            tensor.tofile(file)
        else:
            file.write(tensor.tobytes())
    return {name: 8 + len(head) + start for name, (start, _) in ends.items()}
