"""ONNX Runtime in a process of its own, for inputs that may bring it down. Run as a script by `onnx_runtime`.

Empty inputs abort some kernels of ONNX Runtime (LSTM, GRU and Einsum in 1.31), and an abort can't be caught.
Reads named arrays from standard input and writes the outputs, or why there are none, to standard output.

A message is the length of its head, the head as JSON (name, dtype and shape of each array), and the arrays' bytes one
after another: nothing in it is ever executed.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

__all__ = ["NUMPY_LACKS", "receive", "run", "send"]

Array = npt.NDArray[Any]

# Types that numpy knows through ml_dtypes only: ONNX's name and number for each, and the type of its bits.
NUMPY_LACKS = {
    "bfloat16": ("tensor(bfloat16)", 16, np.uint16),
    "float8_e4m3fn": ("tensor(float8e4m3fn)", 17, np.uint8),
    "float8_e4m3fnuz": ("tensor(float8e4m3fnuz)", 18, np.uint8),
    "float8_e5m2": ("tensor(float8e5m2)", 19, np.uint8),
    "float8_e5m2fnuz": ("tensor(float8e5m2fnuz)", 20, np.uint8),
    "float8_e8m0fnu": ("tensor(float8e8m0)", 24, np.uint8),
}
_BY_TYPE = {told: name for name, (told, _, _) in NUMPY_LACKS.items()}


def run(session: Any, feed: Mapping[str, Array]) -> list[Array]:
    """The outputs of a session. Its own ``run`` takes and gives no bfloat16 (1.31): such arrays go as their bits."""
    odd = any(array.dtype.name in NUMPY_LACKS for array in feed.values())
    if not odd and not any(item.type in _BY_TYPE for item in session.get_outputs()):
        return list(session.run(None, dict(feed)))
    values = {name: _value(array) for name, array in feed.items()}
    return [_numpy(value) for value in session.run_with_ort_values(None, values)]


def _value(array: Array) -> Any:
    import onnxruntime

    if array.dtype.name not in NUMPY_LACKS:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    _, number, bits = NUMPY_LACKS[array.dtype.name]
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(bits), number)


def _numpy(value: Any) -> Array:
    name = _BY_TYPE.get(value.data_type())
    if name is None:
        return np.asarray(value.numpy())
    made = np.empty(value.shape(), _dtype(name))
    if made.nbytes:
        ctypes.memmove(made.ctypes.data, value.data_ptr(), made.nbytes)
    return made


def _dtype(name: str) -> Any:
    if name not in NUMPY_LACKS:
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def send(target: IO[bytes], arrays: Mapping[str, Array], problem: str = "") -> None:
    """Write one message: named arrays, or a problem in words."""
    items = [(name, np.asarray(array, order="C")) for name, array in arrays.items()]
    rows = [[name, array.dtype.name, list(array.shape), _strings(array)] for name, array in items]
    head = json.dumps([problem, rows]).encode()
    target.write(struct.pack("<q", len(head)) + head)
    for _, array in items:
        if array.dtype != object:
            target.write(array.view(np.uint8).data if array.ndim and array.size else array.tobytes())
    target.flush()


def _strings(array: Array) -> list[str] | None:
    """A text has no fixed number of bytes: an array of them goes into the head."""
    return [str(item) for item in array.reshape(-1)] if array.dtype == object else None


def receive(source: IO[bytes]) -> tuple[dict[str, Array], str] | None:
    """Read one message; None where there are no more."""
    start = source.read(8)
    if not start:
        return None
    problem, rows = json.loads(_exactly(source, struct.unpack("<q", start)[0]))
    return {name: _array(source, dtype, shape, strings) for name, dtype, shape, strings in rows}, problem


def _array(source: IO[bytes], dtype: str, shape: list[int], strings: list[str] | None) -> Array:
    if strings is not None:
        return np.array(strings, dtype=object).reshape(shape)
    made = np.empty(shape, _dtype(dtype))
    made.reshape(-1).view(np.uint8)[:] = np.frombuffer(_exactly(source, made.nbytes), np.uint8)
    return made


def _exactly(source: IO[bytes], count: int) -> bytes:
    data = source.read(count)
    if len(data) != count:
        raise EOFError(f"{len(data)} bytes, not {count}")
    return data


def main() -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while (message := receive(source)) is not None:
        try:
            arrays = {
                str(number): np.asarray(output) for number, output in enumerate(run(session, message[0]))
            }
        except Exception as error:  # whatever it is goes back as words
            send(target, {}, " ".join(f"{type(error).__name__}: {error}".split())[:400])
        else:
            send(target, arrays)


if __name__ == "__main__":
    main()
