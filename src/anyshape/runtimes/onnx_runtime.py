"""Runtimes behind one narrow interface: load a model, run it on named arrays. ONNX Runtime is the first."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from anyshape.errors import FileError, printable
from anyshape.runtimes.worker import NUMPY_LACKS, receive, run, send

if TYPE_CHECKING:
    import torch

__all__ = [
    "Array",
    "OnnxRuntime",
    "Runtime",
    "RuntimeFailure",
    "in_one_line",
    "to_numpy",
    "to_torch",
    "with_weights_inside",
]

Array = npt.NDArray[Any]
LARGE = 1 << 20  # bytes of a weight that is not copied for the runtime
SHARED = frozenset(
    (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8)
)


class RuntimeFailure(Exception):
    """A runtime refused to load or to run the model; the message is the runtime's own, in one line."""

    lacks_a_kernel = False  # the model is in order, and has a type that an operator of the runtime does not


class Runtime(Protocol):
    """A loaded model: what verify and load need of any runtime."""

    name: str
    note: str  # for the contract: what is particular about this runtime; nothing of ONNX Runtime itself
    input_names: list[str]
    output_names: list[str]

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        """The outputs for named inputs; `RuntimeFailure` if the runtime refuses them."""
        ...


class OnnxRuntime:
    """ONNX Runtime on the CPU.

    Empty inputs are run in a process of their own: they abort some of its kernels, and the abort of a kernel is
    the end of its process.

    >>> import onnx_ir as ir
    >>> x = ir.val("x", ir.DataType.FLOAT, ["n"])
    >>> node = ir.node("Neg", [x])
    >>> model = ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}), ir_version=10)
    >>> OnnxRuntime.of_model(model).run({"x": np.ones(2, np.float32)})
    [array([-1., -1.], dtype=float32)]
    """

    name = "ONNX Runtime"
    note = ""

    def __init__(self, model: str | bytes, shared: Mapping[str, Array] | None = None) -> None:
        """A session for a file or for a model's bytes; ``shared`` weights are used where they lie."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Whatever its name, a file is what we have checked: not the runtime's own format.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        if shared:
            values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in shared.values()]
            options.add_external_initializers(list(shared), values)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            self.input_names = [item.name for item in self._session.get_inputs()]
            self.output_names = [item.name for item in self._session.get_outputs()]
        except Exception as error:  # the runtime's bindings raise what they like
            failure = RuntimeFailure(in_one_line(error))
            failure.lacks_a_kernel = isinstance(error, NotImplemented)
            raise failure from error
        self._model = model
        self._whole: ir.Model | None = None  # where the bytes leave out what is shared
        self._worker: _Worker | None = None

    @classmethod
    def of_model(cls, model: ir.Model) -> OnnxRuntime:
        """A session for a model in memory, which shares its weights where they are large."""
        shared = {
            name: tensor
            for name, value in model.graph.initializers.items()
            if (tensor := value.const_value) is not None
            and tensor.nbytes >= LARGE
            and tensor.dtype in SHARED
            and not value.is_graph_output()
        }
        with _elsewhere(model, shared):
            without = ir.to_proto(model).SerializeToString()
        if not shared:
            return cls(without)
        made = cls(without, {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in shared.items()})
        made._whole = model
        return made

    @classmethod
    def of_file(cls, path: str) -> OnnxRuntime:
        """A session for a file, or for the file that a link points to; `FileError` if the runtime can't load it."""
        try:
            return cls(os.path.realpath(path))  # weights apart lie beside the file, not beside the link
        except RuntimeFailure as failure:
            raise FileError(f"ONNX Runtime can't load {path}: {failure}") from failure

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        """The outputs for named inputs; `RuntimeFailure` if the runtime refuses them, or dies of them."""
        if any(array.size == 0 for array in feed.values()):
            return self._run_apart(feed)
        try:
            return run(self._session, feed)
        except Exception as error:  # the runtime's bindings raise what they like
            raise RuntimeFailure(in_one_line(error)) from error

    def step(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """One of many runs: the outputs by name, which stay the runtime's own and may go in again without a copy.

        What is empty is only a cache without a past, at which the file was tried when it was made.
        """
        given = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))
            if isinstance(value, np.ndarray)
            else value
            for name, value in feed.items()
        }
        try:
            made = self._session.run_with_ort_values(self.output_names, given)
        except Exception as error:  # the runtime's bindings raise what they like
            raise RuntimeFailure(in_one_line(error)) from error
        return dict(zip(self.output_names, made, strict=True))

    def _run_apart(self, feed: Mapping[str, Array]) -> list[Array]:
        if self._worker is None or not self._worker.alive:
            self._worker = _Worker(self._path())
        return self._worker.run(feed)

    def _path(self) -> str:
        if isinstance(self._model, str):
            return self._model
        folder = tempfile.mkdtemp(prefix="anyshape-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, "model.onnx")
        if self._whole is not None:
            ir.save(self._whole, path, external_data="model.onnx.data")
        else:
            with open(path, "wb") as out:
                out.write(self._model)
        self._model = path
        return path


def with_weights_inside(model: ir.Model) -> onnx.ModelProto:
    """A model as protobuf that refers to no file."""
    with _elsewhere(model, {}):
        return ir.to_proto(model)


@contextlib.contextmanager
def _elsewhere(model: ir.Model, shared: Mapping[str, ir.TensorProtocol]) -> Iterator[None]:
    """Within this context the model only refers to these weights, and holds those that lie in files."""
    before = {value: value.const_value for value in model.graph.initializers.values()}
    try:
        for value, tensor in before.items():
            if tensor is not None and value.name is not None and value.name in shared:
                value.const_value = ir.ExternalTensor(
                    "shared",
                    0,
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=value.name,
                )
            elif isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
        yield
    finally:
        for value, tensor in before.items():
            value.const_value = tensor


class _Worker:
    """A process that runs one model; it ends with this object, or when a kernel takes it down."""

    def __init__(self, path: str) -> None:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
        self._process = subprocess.Popen(
            [sys.executable, script, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, self._process)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, feed: Mapping[str, Array]) -> list[Array]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            send(self._process.stdin, feed)
            answer = receive(self._process.stdout)
            if answer is None:
                raise EOFError
        except (OSError, struct.error, EOFError, ValueError) as error:
            code = self._process.wait()
            raise RuntimeFailure(f"its process dies (exit code {code}) on empty inputs") from error
        outputs, problem = answer
        if problem:
            raise RuntimeFailure(printable(problem))
        return list(outputs.values())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was written to a dead process can't be flushed
                pipe.close()


def in_one_line(error: Exception) -> str:
    """A runtime's words in one line: what matters is often on its second. They may repeat names from the file."""
    return printable(" ".join(f"{type(error).__name__}: {error}".split()), 400)


def to_numpy(tensor: torch.Tensor) -> Array:
    """A tensor as an array that a runtime takes: bfloat16 and the like, which numpy lacks, as ml_dtypes has them.

    A complex tensor becomes pairs of reals, as ONNX has no such numbers.
    """
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    tensor = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in NUMPY_LACKS:
        return np.asarray(tensor.numpy())
    import ml_dtypes

    bits = torch.uint8 if tensor.itemsize == 1 else torch.int16
    return tensor.view(bits).numpy().view(getattr(ml_dtypes, name))


def to_torch(array: Array) -> torch.Tensor:
    """An array as a tensor."""
    import torch

    whole = np.asarray(array, order="C")
    if whole.dtype.name not in NUMPY_LACKS:
        return torch.from_numpy(whole)
    bits = np.uint8 if whole.itemsize == 1 else np.int16
    made: torch.Tensor = torch.from_numpy(whole.view(bits)).view(getattr(torch, whole.dtype.name))
    return made
