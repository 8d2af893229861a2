"""Read: an ONNX file, and the contract that it carries.

A file may come from anyone. What could reach beyond it, or bring a library down, is looked for in the parsed message
before ONNX or a runtime gets to see the file: weights in other files, and functions that call themselves.
"""

from __future__ import annotations

import graphlib
import os
import stat
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

from anyshape.contract import Contract
from anyshape.errors import FileError, printable

__all__ = ["CONTRACT_KEY", "contract_of", "read_model"]

CONTRACT_KEY = "anyshape.contract"
PROTOBUF_LIMIT = 2**31 - 1
MOST_NODES = 5_000_000
LONGEST_LOCATION = 4096
# A place in memory where the runtime expects a file: it is how the runtime speaks to itself.
MEMORY_LOCATION = "_ORT_MEM_ADDR_"

_Function = tuple[str, str, str]


def contract_of(model: ir.Model) -> Contract | None:
    """The contract that a model carries; None if it is not ours."""
    text = model.metadata_props.get(CONTRACT_KEY)
    return None if text is None else Contract.from_json(text)


def read_model(path: str | os.PathLike[str]) -> ir.Model:
    """The ONNX model at ``path``; `FileError` if there is none, it is broken, or it reaches for other files.

    A symbolic link is followed to the model, and its weights are looked for beside the model itself.
    """
    name = os.fspath(path)
    real = os.path.realpath(name)
    _check_file(name)
    try:
        proto = _parsed(real)
        _check_metadata(proto)
        _check_functions(proto)
        for tensor in _tensors(proto):
            _check_external(tensor, os.path.dirname(real))
        _check(real)
        model = ir.from_proto(proto)
        ir.external_data.set_base_dir(model.graph, os.path.dirname(real))
    except _Refused as refused:
        raise FileError(f"{name} can't be used: {printable(str(refused), 400)}") from None
    except Exception as error:  # three libraries and their parsers: each has exceptions of its own
        lines = str(error).strip().splitlines() or ["it is empty"]
        raise FileError(
            f"{name} is not a whole ONNX file: {printable(lines[0], 400)}", hint="Export it again."
        ) from error
    if not model.graph.outputs:
        raise FileError(f"{name} is not an ONNX model: it has no outputs", hint="Export it again.")
    return model


class _Refused(Exception):
    """A file that is whole, but asks for what no file may."""


def _check_file(name: str) -> None:
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        raise FileError(f"there is no file {printable(name, 400)}") from None
    if stat.S_ISDIR(found.st_mode):
        raise FileError(f"{name} is a folder, not an ONNX file")
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{name} is a device or a pipe, not an ONNX file")
    if found.st_size > PROTOBUF_LIMIT:
        raise FileError(
            f"{name} has {found.st_size} bytes: an ONNX file has at most 2 GB", hint="Save its weights apart."
        )


def _parsed(real: str) -> onnx.ModelProto:
    with open(real, "rb") as file:
        made: onnx.ModelProto = onnx.ModelProto.FromString(file.read())
    return made


def _check(name: str) -> None:
    """ONNX's own checker, but for outputs without a shape: runtimes take them, and other exporters write them."""
    try:
        onnx.checker.check_model(name)
    except onnx.checker.ValidationError as error:
        if "Field 'shape' of 'type' is required" not in str(error):
            raise


def _check_metadata(proto: onnx.ModelProto) -> None:
    """Of two contracts in one file, different programs would read different ones."""
    if sum(item.key == CONTRACT_KEY for item in proto.metadata_props) > 1:
        raise _Refused("it carries two contracts")


# --- Functions ------------------------------------------------------------------------------------------


def _check_functions(proto: onnx.ModelProto) -> None:
    """Refuse functions that call themselves, and those that call each other so often that no memory would hold them."""
    calls: dict[_Function, list[_Function]] = {}
    for function in proto.functions:
        key = (function.domain, function.name, function.overload)
        if key in calls:
            raise _Refused(f"the function {function.name} is there twice")
        calls[key] = _called(function.node)
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        raise _Refused(f"the function {error.args[1][0][1]} calls itself") from None
    written_out: dict[_Function, int] = {}
    for function_key in order:
        written_out[function_key] = sum(written_out[called] for called in calls.get(function_key, ())) or 1
    if sum(written_out.get(called, 1) for called in _called(proto.graph.node)) > MOST_NODES:
        raise _Refused(f"with its functions written out it has more than {MOST_NODES} nodes")


def _called(nodes: Iterable[onnx.NodeProto]) -> list[_Function]:
    return [(node.domain, node.op_type, node.overload) for node in _nodes(nodes)]


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those inside them, in branches and loops."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


# --- Weights in other files -----------------------------------------------------------------------------


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that a model holds, wherever it may hold one."""
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _attribute_tensors(function.attribute_proto)
        for node in function.node:
            yield from _attribute_tensors(node.attribute)
    for training in proto.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _attribute_tensors(node.attribute)


def _attribute_tensors(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in attributes:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(graph)


def _check_external(tensor: onnx.TensorProto, folder: str) -> None:
    """Refuse a tensor whose values lie anywhere but in a plain file in the model's own folder, or outside that file."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL and not tensor.external_data:
        return
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries or entry.key not in ("location", "offset", "length", "checksum"):
            raise _Refused(
                f"{tensor.name} has an entry {entry.key!r} for its data, which nothing should have"
            )
        entries[entry.key] = entry.value
    location = entries.get("location", "")
    size = _size_of_file(folder, location, tensor.name)
    offset = _count(entries.get("offset", "0"), tensor.name)
    length = _count(entries.get("length", "0"), tensor.name)
    if offset + max(length, _bytes(tensor) if length == 0 else 0) > size:
        raise _Refused(f"{tensor.name} lies beyond the end of {location}, which has {size} bytes")


def _size_of_file(folder: str, location: str, tensor: str) -> int:
    """How large a file is that lies in the folder, or deeper, and is reached without a link."""
    parts = location.split("/")
    strange = not location.isprintable() or len(location) > LONGEST_LOCATION or MEMORY_LOCATION in location
    outside = os.path.isabs(location) or "\\" in location or ":" in parts[0] or ".." in parts
    if not location or strange or outside:
        raise _Refused(f"{tensor} has its data in {location!r}, which is not in the model's folder")
    reached = folder
    for part in parts:
        reached = os.path.join(reached, part)
        try:
            found = os.lstat(reached)
        except (OSError, ValueError):
            raise _Refused(f"{tensor} has its data in {location}, and there is no such file") from None
        if stat.S_ISLNK(found.st_mode):
            raise _Refused(f"{tensor} has its data in {location}, which is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise _Refused(f"{tensor} has its data in {location}, which is no file")
    return found.st_size


def _count(text: str, tensor: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _Refused(f"{tensor} has {text[:40]!r} for the place of its data, which is no number of bytes")
    return int(text)


def _bytes(tensor: onnx.TensorProto) -> int:
    """How many bytes a tensor takes: what is read where the file does not say how many."""
    count = 1
    for size in tensor.dims:
        if size < 0:
            raise _Refused(f"{tensor.name} has an axis of {size}")
        count *= size
    try:
        return count * ir.DataType(tensor.data_type).bitwidth // 8
    except (TypeError, ValueError):
        raise _Refused(
            f"{tensor.name} has its data in another file, and no type that could lie there"
        ) from None
