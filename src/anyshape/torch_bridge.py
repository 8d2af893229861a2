"""Everything that touches PyTorch's private parts, each with its reason.

What is here may change with a new PyTorch; nothing else in the package reaches below the public API.
Written against 2.13; looked at up to 2.15.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import onnxscript
import sympy
import torch
import torch.fx.experimental._config as fx_config
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.onnx._internal._lazy_import import onnxscript_apis  # type: ignore[attr-defined]
from torch.onnx._internal.exporter import (
    _building,
    _constants,
    _core,
    _ir_passes,
    _registration,
    _tensors,
)
from torch.onnx._internal.exporter._core import torch_dtype_to_onnx_dtype
from torch.utils import _pytree

from anyshape.errors import SourceLine
from anyshape.source import TORCH_FOLDER, innermost_line

__all__ = [
    "TraceGuard",
    "every_operator",
    "fake_mode",
    "guards_with_lines",
    "looked_at",
    "open_registered",
    "patience",
    "quiet",
    "size_oblivious",
    "trace_guards",
    "traced_symbolically",
    "traced_without_data",
    "viewed_argument",
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


@contextlib.contextmanager
def looked_at(note: Callable[[Any, Any, bool], None], answer: Callable[[], Any]) -> Iterator[None]:
    """Trace so that no size is ever fixed: ``note`` is told each expression that is asked for as a plain value.

    It is also told the value, and whether Python itself asks, outside of PyTorch. What only the values of a tensor
    would tell is asked of ``answer``, which may have none. A trace of PyTorch's own fixes the size at the first of
    these places, and does not see the others.
    """
    evaluate, defer = ShapeEnv.evaluate_expr, ShapeEnv.guard_or_defer_runtime_assert

    def told(self: ShapeEnv, expression: Any, *args: Any, **kwargs: Any) -> Any:
        known = _at_hints(self, expression)
        if known is None:
            try:
                return evaluate(self, expression, *args, **kwargs)
            except GuardOnDataDependentSymNode:
                given = answer()
                if given is None:
                    raise
                return sympy.sympify(given)
        if expression.free_symbols and self._maybe_evaluate_static(expression) is None:
            fallback = kwargs.get("fallback_value")
            if fallback is not None:
                return sympy.sympify(fallback)
            note(expression, known, _asked_by_python())
        return known

    def assumed(self: ShapeEnv, expression: Any, *args: Any, **kwargs: Any) -> bool:
        known = _at_hints(self, expression)
        return defer(self, expression, *args, **kwargs) if known is None else bool(known)

    ShapeEnv.evaluate_expr = told  # type: ignore[method-assign, assignment]
    ShapeEnv.guard_or_defer_runtime_assert = assumed  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv.evaluate_expr = evaluate  # type: ignore[method-assign]
        ShapeEnv.guard_or_defer_runtime_assert = defer  # type: ignore[method-assign]


def _at_hints(environment: ShapeEnv, expression: Any) -> Any:
    """The value of an expression at the sizes of the trace; None if it depends on values."""
    expression = sympy.sympify(expression)
    if not expression.free_symbols <= environment.backed_var_to_val.keys():
        return None
    return expression.xreplace(environment.backed_var_to_val)


def _asked_by_python() -> bool:
    """Whether the model's own Python asks, by a method such as SymBool.__bool__, and not an operator."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(("sym_node.py", "symbolic_shapes.py")):
        frame = frame.f_back
    asked = False
    while frame is not None and frame.f_code.co_filename == torch.__file__:
        asked = frame.f_code.co_name.startswith("__")
        frame = frame.f_back
    return asked and frame is not None and not frame.f_code.co_filename.startswith(TORCH_FOLDER)


class OutOfPatience(RuntimeError):
    """A symbolic trace takes longer than it is worth."""


@contextlib.contextmanager
def patience(seconds: float | None) -> Iterator[None]:
    """Give up a symbolic trace after so much processor time: its algebra may take hours over nested divisions.

    torch.export has no limit of its own; every question about sizes goes through this method.
    """
    original = ShapeEnv._maybe_evaluate_static
    end = time.process_time() + seconds if seconds is not None else math.inf

    def limited(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        if time.process_time() > end:
            raise OutOfPatience(f"gave up after {seconds:g} s of algebra on sizes")
        return original(self, *args, **kwargs)

    # The original remembers its answers, and is told to forget.
    for attribute in ("cache_clear", "cache_info"):
        setattr(limited, attribute, getattr(original, attribute, lambda: None))
    ShapeEnv._maybe_evaluate_static = limited  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv._maybe_evaluate_static = original  # type: ignore[method-assign]


class _LinedLocation(str):
    """A location as torch prints it, which still knows its line."""

    line: SourceLine

    def __new__(cls, line: SourceLine) -> _LinedLocation:
        made = super().__new__(cls, str(line))
        made.line = line
        return made


Note = Callable[[Any, Any, Any], Callable[[Any], None]]


class _Recorder(SchemaCheckMode):  # type: ignore[no-untyped-call]
    """Sees every operator before PyTorch takes composite ones apart.

    Only modes of PyTorch's own classes are let in there; this one has room for a single guest. make_fx would do the
    same, ten times slower, since it makes a graph and tensors without data beside the real ones.
    """

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._dispatch_key = torch._C.DispatchKey.PreDispatch
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        finish = self.note(func, args, kwargs or {})  # before it runs: it may write to its arguments
        result = func(*args, **(kwargs or {}))
        finish(result)
        return result


@contextlib.contextmanager
def every_operator(note: Note) -> Iterator[None]:
    """Within this context, ``note`` is told of every operator that is called, composite ones whole."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer, which nothing translates
    try:
        with enable_python_dispatcher(), _Recorder(note), torch._C._DisableAutocast():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def traced_symbolically(function: Callable[..., Any], tensors: Sequence[Any]) -> torch.fx.GraphModule:
    """The operators that ``function`` calls on tensors without data that belong to a symbolic trace."""
    with size_oblivious(), tensors[0].fake_mode:
        return make_fx(_plain_result(function), tracing_mode="real")(*tensors)


def _plain_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """A named tuple as a plain one: a trace would hold a call of its class."""

    def call(*tensors: Any) -> Any:
        made = function(*tensors)
        return tuple(made) if isinstance(made, tuple) else made

    return call


ASSERTIONS = frozenset(
    (
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_tensor_metadata.default,
    )
)
"""Checks that a trace adds: the contract and verify say more."""

READS_A_VALUE = frozenset((torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default))
"""Operators that turn a tensor into a Python number."""


def viewed_argument(target: Any) -> int | None:
    """The position of the argument that an operator's result is a view of, by its schema."""
    schema = getattr(target, "_schema", None)
    if schema is None or not any(item.alias_info for item in schema.returns):
        return None
    for position, item in enumerate(schema.arguments):
        if item.alias_info is not None and not item.alias_info.is_write:
            return position
    return None


# --- ONNX translations: torch.onnx has no public way to translate one operator --------------------------


@functools.cache
def _registry() -> Any:
    with quiet():  # it warns of libraries that are not installed
        return _registration.ONNXRegistry.from_torchlib()


def onnx_function(target: Any, is_complex: bool) -> Callable[..., Any] | None:
    """torch.onnx's translation of an operator, if it has one."""
    found = [item for item in _registry().get_decomps(target) if item.is_complex == is_complex]
    return found[0].onnx_function if found else None


@functools.cache
def onnx_opset() -> Any:
    """The operators as onnxscript functions, at the version that torch.onnx's translations are written for."""
    return onnxscript.values.Opset("", _constants.TORCHLIB_OPSET)


def onnx_recorder() -> Any:
    """An evaluator that keeps the ONNX nodes which translations make."""
    return _building.OpRecorder(onnx_opset(), {})  # type: ignore[abstract]


@contextlib.contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """Within this context, translations put their nodes into ``recorder``."""
    before = _core.current_tracer
    with onnxscript.evaluator.default_as(recorder):
        _core.current_tracer = recorder
        try:
            yield
        finally:
            _core.current_tracer = before


def onnx_input(name: str) -> ir.Value:
    """A value that translations can compute with."""
    return _tensors.SymbolicTensor(onnx_opset(), name=name)


def onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    return torch_dtype_to_onnx_dtype(dtype)


def onnx_tensor(tensor: torch.Tensor, name: str) -> ir.TensorProtocol:
    """A weight, not copied."""
    made: ir.TensorProtocol = _core.TorchTensor(tensor, name=name)
    return made


def onnx_argument(leaf: Any) -> Any:
    """A plain argument of an operator as translations take it."""
    if isinstance(leaf, torch.dtype):
        return torch_dtype_to_onnx_dtype(leaf)
    if isinstance(leaf, (torch.device, torch.memory_format, torch.layout)):
        return str(leaf)
    return leaf


def for_tensors(target: Any) -> Any:
    """The overload that takes tensors where this one takes a plain number: `mul.Tensor` for `mul.Scalar`."""
    if getattr(target, "_overloadname", "") == "Scalar" and hasattr(target.overloadpacket, "Tensor"):
        return target.overloadpacket.Tensor
    return target


@functools.cache
def tensor_arguments(target: Any) -> frozenset[int]:
    """The places of an operator's arguments that are tensors by its schema, though a number may be given."""
    schema = getattr(target, "_schema", None)
    arguments = schema.arguments if schema is not None else ()
    return frozenset(k for k, item in enumerate(arguments) if str(item.type) == "Tensor")


def returns_a_list(target: Any) -> bool:
    """Whether an operator returns a list of tensors, by its schema."""
    schema = getattr(target, "_schema", None)
    return (
        schema is not None and len(schema.returns) == 1 and isinstance(schema.returns[0].type, torch.ListType)
    )


def finished_model(graph: ir.Graph, recorder: Any) -> ir.Model:
    """A model of a graph that ``recorder`` made, with the functions and operator sets it uses."""
    model = ir.Model(graph, ir_version=_constants.ONNX_IR_VERSION, producer_name="anyshape")
    for identifier, function in recorder.functions.items():
        if not isinstance(function, ir.Function):
            function = ir.serde.deserialize_function(function.to_function_proto())
        model.functions[identifier] = function
    _ir_passes.add_opset_imports(model)
    model.opset_imports.setdefault("", _constants.TORCHLIB_OPSET)  # a graph without nodes imports nothing
    return model


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions().items())  # type: ignore[no-untyped-call]
    return {**torch._decomp.decomposition_table, **table, torch.ops.prims.var.default: _variance}


def _variance(x: torch.Tensor, dims: list[int] | None, correction: float | None = 1) -> Any:
    """std_mean is made of a primitive that is made of nothing else, though aten has its like."""
    return torch.ops.aten.var.correction(x, dims, correction=correction)


def decomposition(target: Any) -> Callable[..., Any] | None:
    """What an operator is made of, as a function of the same arguments; None if it is not made of others."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    found = _decompositions().get(target)
    if found is None and target._can_decompose():
        found = target.decompose
    return found


def traced_without_data(function: Callable[..., Any], values: Sequence[Any]) -> torch.fx.GraphModule:
    """The operators that ``function`` calls on tensors of the shapes, strides and types of ``values``."""
    with FakeTensorMode():
        tensors = [
            torch.empty_strided(value.shape, value.strides, dtype=value.dtype)
            if value.strides is not None
            else torch.empty(value.shape, dtype=value.dtype)
            for value in values
        ]
        return make_fx(_plain_result(function))(*tensors)


def at_opset(model: ir.Model, opset: int | None) -> ir.Model:
    """The model at another operator set, converted as torch.onnx does it."""
    return model if opset is None else onnxscript_apis.convert_version(model, opset)
