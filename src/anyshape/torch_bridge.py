"""Everything that touches PyTorch's private parts, each with its reason.

What is here may change with a new PyTorch; nothing else in the package reaches below the public API.
Written against 2.13; looked at up to 2.15.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx.experimental._config as fx_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.utils import _pytree

from anyshape.errors import SourceLine
from anyshape.source import innermost_line

__all__ = [
    "TraceGuard",
    "complex_translations",
    "fake_mode",
    "guards_with_lines",
    "open_registered",
    "quiet",
    "size_oblivious",
    "trace_guards",
]


def open_registered(value: Any) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
    """Keys, children and rebuild function of a class registered with PyTorch's pytrees, else None.

    There is no public way to ask whether a class is registered.
    """
    node = _pytree.SUPPORTED_NODES.get(type(value))
    if node is None:
        return None
    children, context = node.flatten_fn(value)
    keys: list[Any] = list(range(len(children)))
    if node.flatten_with_keys_fn is not None:
        with contextlib.suppress(Exception):
            pairs, _ = node.flatten_with_keys_fn(value)
            keys = [_key_text(key) for key, _ in pairs]
    return keys, list(children), lambda parts: node.unflatten_fn(parts, context)


def _key_text(key: Any) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)


def fake_mode() -> FakeTensorMode:
    """A mode in which tensors have shapes but no data; real weights are taken in as they come."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def size_oblivious() -> contextlib.AbstractContextManager[Any]:
    """Trace without treating sizes 0 and 1 as special: torch.export has no public switch for it."""
    made: contextlib.AbstractContextManager[Any] = fx_config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return made


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the logs and warnings of the libraries below from the user's terminal: what matters becomes our error."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnx_ir", "onnxscript")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def complex_translations(table: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Add translations for complex inputs: torch.onnx.export's own table takes those for real inputs only."""
    original = ONNXRegistry.from_torchlib

    def with_ours(cls: type[ONNXRegistry], *args: Any, **kwargs: Any) -> ONNXRegistry:
        registry = original(*args, **kwargs)
        for operator, translation in table.items():
            registry.register_op(operator, translation, is_complex=True)
        return registry

    ONNXRegistry.from_torchlib = classmethod(with_ours)  # type: ignore[assignment]
    try:
        yield
    finally:
        ONNXRegistry.from_torchlib = original  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class TraceGuard:
    """A condition on sizes that a symbolic trace relied on, and the line of source that asked for it."""

    condition: Any  # a sympy expression over the trace's symbols
    where: SourceLine | None


def trace_guards(program: torch.export.ExportedProgram) -> list[TraceGuard]:
    """The guards of a trace: torch.export evaluates them at its example only and then drops them."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            environment = value.fake_mode.shape_env
            if environment is not None:
                guards = environment.guards
                lines = [getattr(guard.sloc.maybe_user_loc, "line", None) for guard in guards]
                return [
                    TraceGuard(sympy.sympify(g.expr), line) for g, line in zip(guards, lines, strict=True)
                ]
    return []


@contextlib.contextmanager
def guards_with_lines() -> Iterator[None]:
    """Trace so that each guard knows the user's line: torch keeps the innermost frame only, often its own."""
    original = ShapeEnv._get_sloc

    def with_user_line(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        location = original(self, *args, **kwargs)
        frame, stack = sys._getframe(1), []
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]
        line = innermost_line(stack[::-1])
        return (
            location if line is None else dataclasses.replace(location, maybe_user_loc=_LinedLocation(line))
        )

    ShapeEnv._get_sloc = with_user_line  # type: ignore[method-assign]
    try:
        yield
    finally:
        ShapeEnv._get_sloc = original  # type: ignore[method-assign]


class _LinedLocation(str):
    """A location as torch prints it, which still knows its line."""

    line: SourceLine

    def __new__(cls, line: SourceLine) -> _LinedLocation:
        made = super().__new__(cls, str(line))
        made.line = line
        return made
