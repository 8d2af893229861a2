"""Canaries: what torch_bridge believes of the private and version-bound parts of PyTorch, one test for each.

A new PyTorch says here what it changed, and which of our functions leans on it. The last tests read the source: a
private name that is used and has no canary is a failure too.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript
import pytest
import sympy
import torch
import torch.fx.experimental._config as fx_config
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.onnx._internal._lazy_import import onnxscript_apis  # type: ignore[attr-defined]
from torch.onnx._internal.exporter import _building, _constants, _core, _ir_passes, _registration, _tensors
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import anyshape.torch_bridge
from anyshape.torch_bridge.indexing import Indexed
from anyshape.torch_bridge.packed import is_packed
from anyshape.torch_bridge.process import patched
from anyshape.torch_bridge.rewriting import rewriting

FOLDER = pathlib.Path(anyshape.torch_bridge.__file__).parent
SYMBOLIC = "torch.fx.experimental.symbolic_shapes."
EXPORTER = "torch.onnx._internal.exporter."
aten = torch.ops.aten

USED_BY: dict[str, str] = {}
"""Each private or version-bound name, and the function of torch_bridge that leans on it."""


def canary(used_by: str, *names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A test of what ``used_by`` believes of these names; its failure says so."""
    USED_BY.update(dict.fromkeys(names, used_by))

    def guarded(test: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            try:
                test()
            except Exception as error:
                told = (
                    f"{', '.join(names)}: not as torch_bridge.{used_by} expects (torch {torch.__version__})"
                )
                raise AssertionError(told) from error

        return run

    return guarded


# --- memory ---------------------------------------------------------------------------------------------


@canary("memory.is_out_of_memory", "the words of an allocation that fails")
def test_an_allocation_that_fails() -> None:
    for size, words in ((2**52, "can't allocate memory"), (2**62, "Storage size calculation overflowed")):
        with pytest.raises(RuntimeError, match=words):
            torch.empty(size)


# --- tensors --------------------------------------------------------------------------------------------


@canary("tensors.mark", "._version")
def test_a_tensor_counts_the_writes_to_it() -> None:
    x = torch.ones(3)
    before = x._version
    x[:2].add_(1)
    assert x._version > before
    with torch.inference_mode():
        assert torch.ones(3).is_inference()


class Calls(torch.overrides.TorchFunctionMode):
    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@canary(
    "tensors.unseen",
    "torch.overrides._get_current_function_mode_stack",
    "torch.overrides._pop_mode_temporarily",
    "torch.utils._python_dispatch._disable_current_modes",
)
def test_modes_can_be_left_for_a_while() -> None:
    from anyshape.torch_bridge.tensors import mark, unseen

    x = torch.ones(3)
    with Calls() as outer, Calls() as inner, FakeTensorMode(allow_non_fake_inputs=True):
        with unseen():
            made = x + 1
            assert mark(made)[1] == made.data_ptr()
        assert (outer.count, inner.count) == (0, 0) and not isinstance(made, FakeTensor)
        fake = x + 1
    assert isinstance(fake, FakeTensor) and inner.count > 0 and mark(fake)[1] == 0


# --- pytrees --------------------------------------------------------------------------------------------


@canary("pytrees.open_registered", "torch.utils._pytree.SUPPORTED_NODES")
def test_pytrees_open_what_is_registered() -> None:
    node = _pytree.SUPPORTED_NODES[dict]
    children, context = node.flatten_fn({"a": 1, "b": 2})
    assert list(children) == [1, 2] and node.unflatten_fn([3, 4], context) == {"a": 3, "b": 4}
    assert node.flatten_with_keys_fn is not None
    assert [key.key for key, _ in node.flatten_with_keys_fn({"a": 1})[0]] == ["a"]
    assert object not in _pytree.SUPPORTED_NODES


# --- recorder -------------------------------------------------------------------------------------------


class Seen(SchemaCheckMode):  # type: ignore[no-untyped-call,misc]
    def __init__(self) -> None:
        super().__init__()
        self._dispatch_key = torch._C.DispatchKey.PreDispatch
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@canary(
    "recorder.every_operator",
    "torch._subclasses.schema_check_mode.SchemaCheckMode",
    "torch._C.DispatchKey.PreDispatch",
    "._dispatch_key",
    "torch._dispatch.python.enable_python_dispatcher",
)
def test_a_guest_sees_composite_operators_whole() -> None:
    x, weight = torch.ones(2, 3), torch.ones(4, 3)
    with enable_python_dispatcher(), Seen() as seen:
        torch.nn.functional.linear(x, weight)
    assert seen.names == ["aten.linear.default"]


@canary("recorder.every_operator", "torch._library.utils.handle_dispatch_mode")
def test_a_mode_is_handed_calls_by_one_function() -> None:
    handed, hand_on = [], torch._library.utils.handle_dispatch_mode

    def noted(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        handed.append(str(func))
        return hand_on(mode, func, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, enable_python_dispatcher(), Seen() as seen:
        patch.setattr(torch._library.utils, "handle_dispatch_mode", noted)
        torch.ones(2, 3).sum(dim=1)
    assert handed == seen.names == ["aten.ones.default", "aten.sum.dim_IntList"]


@canary("recorder.every_operator", "torch.backends.mha")
def test_a_whole_layer_is_one_operator_unless_told() -> None:
    layer, x = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), torch.randn(1, 2, 4)
    fast, names = torch.backends.mha.get_fastpath_enabled(), {}
    try:
        for enabled in (True, False):
            torch.backends.mha.set_fastpath_enabled(enabled)
            with torch.no_grad(), enable_python_dispatcher(), Seen() as seen:
                layer(x)
            names[enabled] = "aten._transformer_encoder_layer_fwd.default" in seen.names
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    assert names == {True: True, False: False}


@canary(
    "recorder.every_operator",
    "torch.utils._python_dispatch.TorchDispatchMode",
)
def test_a_mode_sees_whole_batches_where_vmap_shows_rows() -> None:
    rows, batches = [], []

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            batches.append([item for item in args if isinstance(item, torch.Tensor)])
            return func(*args, **(kwargs or {}))

    def row(x: torch.Tensor) -> torch.Tensor:
        rows.append((torch._C._functorch.is_batchedtensor(x), x.shape))
        return x.sin()

    x = torch.ones(2, 3)
    with Below():
        torch.vmap(row)(x)
    assert rows == [(True, (3,))] and not torch._C._functorch.is_batchedtensor(x)
    assert any(given[0] is x for given in batches if given)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@canary(
    "recorder._is_transformed",
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._functorch.TransformType.Vmap",
    ".key",
)
def test_a_transform_that_is_under_way_says_which_it_is() -> None:
    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        kind = torch._C._functorch.peek_interpreter_stack().key()
        seen.append((kind.name, torch._C._functorch.is_functorch_wrapped_tensor(x)))
        return x.sum()

    x = torch.ones(2, 3)
    torch.vmap(look)(x)
    torch.func.grad(look)(x)
    torch.func.jvp(look, (x,), (x,))
    assert seen == [("Vmap", True), ("Grad", True), ("Jvp", True)]
    assert torch._C._functorch.peek_interpreter_stack() is None


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@canary(
    "recorder._transforms",
    "torch._functorch.apis",
    "torch._functorch.apis.vmap_impl",
    "torch._functorch.eager_transforms",
    "torch._functorch.eager_transforms._autograd_grad",
    "torch._C._ExcludeDispatchKeyGuard",
    "torch._C.DispatchKeySet",
)
def test_transforms_go_through_names_that_can_be_replaced() -> None:
    from torch._functorch import apis, eager_transforms

    called = []
    backwards, at_once = eager_transforms._autograd_grad, apis.vmap_impl

    def gradients(*args: Any, **kwargs: Any) -> Any:
        called.append("gradients")
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.PreDispatch)):
            return backwards(*args, **kwargs)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        called.append(f"in pieces of {args[4]}")
        return at_once(*args, **kwargs)

    x = torch.ones(5, 3)
    with patched(eager_transforms, "_autograd_grad", gradients), patched(apis, "vmap_impl", mapped):
        torch.func.grad(lambda x: (x * 2).sum())(x)
        torch.func.vjp(lambda x: x * 2, x)[1](x)
        torch.vmap(lambda x: x * 2, chunk_size=2)(x)
    assert called == ["gradients", "gradients", "in pieces of 2"]


# --- torch.compile --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@canary(
    "compiled.inside",
    "torch._dynamo.eval_frame.OptimizedModule",
    "._compiled_call_impl",
    "._orig_mod",
)
def test_a_compiled_module_knows_what_is_inside() -> None:
    from torch._dynamo.eval_frame import OptimizedModule

    layer, whole = nn.Linear(2, 2), nn.Linear(2, 2)
    assert layer._compiled_call_impl is None
    layer.compile()
    assert layer._compiled_call_impl is not None
    made = torch.compile(whole)
    assert isinstance(made, OptimizedModule) and made._orig_mod is whole


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@canary("compiled.uncompiled", "torch._higher_order_ops.utils")
def test_what_is_compiled_can_be_run_as_it_is() -> None:
    import torch._dynamo

    def python(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.compiler.is_compiling())
        return x

    seen: list[bool] = []
    with torch.compiler.set_stance("force_eager"):
        torch.compile(python, backend="eager")(torch.ones(2))
    assert seen == [False]


# --- control flow ---------------------------------------------------------------------------------------


@canary(
    "control_flow.run_by",
    "torch._higher_order_ops.utils._hop_compile_and_call",
    "torch._higher_order_ops.cond.cond_op",
    "torch._higher_order_ops.while_loop.while_loop_op",
    "torch._higher_order_ops.scan.scan_op",
    "torch._higher_order_ops.map.map_impl",
    "torch._higher_order_ops.associative_scan.generic_associative_scan",
)
def test_control_flow_goes_through_names_that_can_be_replaced() -> None:
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.map import map as mapped
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    from anyshape.torch_bridge.control_flow import Plain, run_by

    called = []

    class Seen(Plain):
        def choose(self, *args: Any) -> Any:
            called.append("choose")
            return super().choose(*args)

        def repeat(self, *args: Any) -> Any:
            called.append("repeat")
            return super().repeat(*args)

        def over(self, *args: Any) -> Any:
            called.append("over")
            return super().over(*args)

    x = torch.arange(6.0).reshape(2, 3)
    with run_by(Seen()), Calls():  # under a mode, PyTorch's own way fails
        assert torch.cond(x.sum() > 0, lambda x: {"a": x + 1}, lambda x: {"a": x}, (x,))["a"].equal(x + 1)
        assert while_loop(lambda k: k < 9, lambda k: (k * 2,), (torch.ones(()),))[0] == 16
        last, all_rows = scan(lambda total, row: (total + row, total), torch.zeros(3), x)
        assert last.equal(x.sum(0)) and all_rows.equal(torch.stack([torch.zeros(3), x[0]]))
        assert mapped(lambda row, more: row + more, x, x[0]).equal(x + x[0])
        assert associative_scan(torch.add, x, 1, combine_mode="generic").equal(x.cumsum(1))
    assert called == ["choose", "repeat", "over", "over", "over"]


@canary(
    "control_flow.run_by",
    "torch.utils._pytree.tree_flatten",
    "torch.utils._pytree.tree_unflatten",
    "torch.utils._pytree.tree_leaves",
)
def test_a_tree_is_flattened_and_put_together_again() -> None:
    tree = {"a": (1, [2]), "b": 3}
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == _pytree.tree_leaves(tree) == [1, 2, 3]
    assert _pytree.tree_unflatten([4, 5, 6], spec) == {"a": (4, [5]), "b": 6}


@canary("control_flow.Plain", "torch._subclasses.fake_tensor.FakeTensor")
def test_a_tensor_without_data_is_of_its_own_class() -> None:
    with FakeTensorMode():
        assert isinstance(torch.ones(2), FakeTensor)
    assert not isinstance(torch.ones(2), FakeTensor)


# --- schemas --------------------------------------------------------------------------------------------


@canary("schemas.Operator", "torch._ops.OpOverload")
def test_an_operator_with_its_types_settled() -> None:
    assert isinstance(aten.add.Tensor, torch._ops.OpOverload)
    assert not isinstance(aten.add, torch._ops.OpOverload) and not isinstance(
        torch.add, torch._ops.OpOverload
    )


@canary("schemas.arguments_of, is_mutable, written_arguments, viewed_argument", "._schema")
def test_an_operator_has_a_schema() -> None:
    schema = aten.add_.Tensor._schema
    assert schema.name == "aten::add_" and schema.is_mutable
    assert (schema.arguments[0].name, str(schema.arguments[0].type)) == ("self", "Tensor")
    assert schema.arguments[0].alias_info.is_write and schema.arguments[1].alias_info is None
    assert schema.arguments[2].default_value == 1
    view = aten.transpose.int._schema
    assert not view.is_mutable and view.returns[0].alias_info and not view.arguments[0].alias_info.is_write


@canary(
    "schemas.operators_of",
    "torch._library.custom_ops.CustomOpDef",
    "torch._ops.OpOverloadPacket",
    "._opoverload",
)
def test_what_a_user_calls_an_operator() -> None:
    from torch._library.custom_ops import CustomOpDef

    @torch.library.custom_op("canary::same", mutates_args=())
    def same(x: torch.Tensor, k: int = 2, flags: list[bool] | None = None) -> torch.Tensor:
        return x.clone()

    assert isinstance(same, CustomOpDef) and same._opoverload is torch.ops.canary.same.default
    assert isinstance(torch.ops.canary.same, torch._ops.OpOverloadPacket)
    assert torch.ops.canary.same.overloads() == ["default"]
    kinds = [(item.name, str(item.type)) for item in torch.ops.canary.same.default._schema.arguments]
    assert kinds == [("x", "Tensor"), ("k", "int"), ("flags", "Optional[List[bool]]")]


@canary("schemas.returns_a_list", "torch.ListType")
def test_an_operator_that_returns_a_list() -> None:
    assert isinstance(aten.split.Tensor._schema.returns[0].type, torch.ListType)
    assert not isinstance(aten.add.Tensor._schema.returns[0].type, torch.ListType)


@canary("schemas.for_tensors, functional_twin", "._overloadname")
def test_an_overload_has_a_name() -> None:
    assert aten.mul.Scalar._overloadname == "Scalar" and aten.relu.default._overloadname == "default"
    assert aten.mul.Scalar.overloadpacket is aten.mul and "Tensor" in aten.mul.overloads()


@canary("schemas.decomposition", "._can_decompose")
def test_a_composite_operator_can_be_taken_apart() -> None:
    assert aten.linear.default._can_decompose() and not aten.add.Tensor._can_decompose()
    x, weight = torch.randn(2, 3), torch.randn(4, 3)
    torch.testing.assert_close(aten.linear.default.decompose(x, weight), x @ weight.T)


@canary("schemas.decomposition", "torch._decomp.decomposition_table")
def test_the_table_of_decompositions() -> None:
    x = torch.randn(3)
    torch.testing.assert_close(torch._decomp.decomposition_table[aten.silu.default](x), x * x.sigmoid())
    assert aten.addmm.default in torch._decomp.decomposition_table


@canary("schemas._variance", "torch.ops.prims.var")
def test_the_primitive_that_is_made_of_nothing_else() -> None:
    x = torch.randn(2, 4)
    torch.testing.assert_close(torch.ops.prims.var.default(x, [1], 1), x.var(1, correction=1))
    assert not torch.ops.prims.var.default._can_decompose()


@canary("schemas.is_view", "._is_view")
def test_a_view_says_so() -> None:
    x = torch.ones(2, 2)
    assert x[0]._is_view() and not x._is_view() and not x[0].clone()._is_view()


@canary("schemas.READS_A_VALUE", "torch.ops.aten._local_scalar_dense")
def test_a_tensor_that_becomes_a_number() -> None:
    with enable_python_dispatcher(), Seen() as seen:
        torch.ones(()).item()
    assert {"aten.item.default", "aten._local_scalar_dense.default"} & set(seen.names)


@canary(
    "schemas.ASSERTIONS",
    "torch.ops.aten._assert_async",
    "torch.ops.aten._assert_scalar",
    "torch.ops.aten._assert_tensor_metadata",
    "torch.ops.aten.sym_constrain_range",
)
def test_checks_that_a_trace_adds_return_nothing() -> None:
    found = (aten._assert_async.msg, aten._assert_scalar.default, aten._assert_tensor_metadata.default)
    others = (aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default)
    assert all(not each._schema.returns for each in (*found, *others))


# --- shape_env ------------------------------------------------------------------------------------------


def exported(function: Callable[[torch.Tensor], Any], *shape: int) -> torch.export.ExportedProgram:
    """A function as torch.export has it, with every size dynamic."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    sizes = dict.fromkeys(range(len(shape)), torch.export.Dim.DYNAMIC)
    return torch.export.export(Module(), (torch.zeros(shape),), dynamic_shapes={"x": sizes})


def first_input(program: torch.export.ExportedProgram) -> Any:
    return next(node for node in program.graph.nodes if node.op == "placeholder").meta["val"]


@canary("shape_env.trace_guards", "fake_mode.shape_env", "guard.sloc.maybe_user_loc", "guard.expr")
def test_a_trace_keeps_its_guards() -> None:
    program = exported(lambda x: x + 1 if x.shape[0] > 7 else x, 5)
    guards = first_input(program).fake_mode.shape_env.guards
    assert any(guard.expr.free_symbols for guard in guards)
    assert all(hasattr(guard.sloc, "maybe_user_loc") for guard in guards)
    assert any(isinstance(sympy.sympify(guard.expr), sympy.core.relational.Relational) for guard in guards)


@canary("shape_env.expression_of", ".node.expr")
def test_a_symbolic_number_has_an_expression() -> None:
    size = first_input(exported(lambda x: x + 1, 5)).shape[0]
    assert isinstance(size, torch.SymInt) and isinstance((2 * size).node.expr, sympy.Expr)
    assert (2 * size).node.expr == 2 * size.node.expr


@contextlib.contextmanager
def calls_of(name: str) -> Iterator[list[Any]]:
    """What a method of `ShapeEnv` was called with and what it returned."""
    original, seen = getattr(ShapeEnv, name), []

    def told(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        seen.append((self, args, original(self, *args, **kwargs)))
        return seen[-1][-1]

    with patched(ShapeEnv, name, told):
        yield seen


@canary("shape_env.guards_with_lines", SYMBOLIC + "ShapeEnv._get_sloc")
def test_a_guard_asks_for_its_place_in_the_source() -> None:
    with calls_of("_get_sloc") as seen:
        exported(lambda x: x + 1 if x.shape[0] > 7 else x, 5)
    place = seen[0][-1]
    assert dataclasses.replace(place, maybe_user_loc="here").maybe_user_loc == "here"


@canary("shape_env.patience, looked_at", SYMBOLIC + "ShapeEnv._maybe_evaluate_static")
def test_a_question_about_sizes_may_have_no_answer() -> None:
    with calls_of("_maybe_evaluate_static") as seen:
        exported(lambda x: x + 1 if x.shape[0] > 7 else x, 5)
    assert any(answer is None and isinstance(args[0], sympy.Basic) for _, args, answer in seen)
    assert any(answer is not None for _, _, answer in seen)


@canary("shape_env.looked_at", SYMBOLIC + "ShapeEnv.evaluate_expr", "environment.backed_var_to_val")
def test_every_size_that_python_asks_for_is_evaluated() -> None:
    with calls_of("evaluate_expr") as seen:
        exported(lambda x: x + 1 if x.shape[0] > 7 else x, 5)
    asked = [(env, args[0], answer) for env, args, answer in seen if "7" in str(args[0])]
    environment, expression, answer = asked[0]
    assert not answer and expression.xreplace(environment.backed_var_to_val) in (False, sympy.false)


@canary("shape_env.looked_at", SYMBOLIC + "ShapeEnv.guard_or_defer_runtime_assert")
def test_a_check_of_a_size_is_deferred() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.nonzero().shape[0] > 3)
        return x + 1

    with calls_of("guard_or_defer_runtime_assert") as seen:
        exported(checked, 5)
    assert any("3" in str(args[0]) and answer for _, args, answer in seen)


@canary("shape_env.looked_at", SYMBOLIC + "GuardOnDataDependentSymNode")
def test_a_question_about_values_is_refused() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()), pytest.raises(GuardOnDataDependentSymNode):  # type: ignore[no-untyped-call]
        bool(torch.ones(3).nonzero().shape[0] > 2)


@canary("shape_env._asked_by_python", "the frames between Python's question and evaluate_expr")
def test_who_asks_can_be_told_from_the_stack() -> None:
    files: list[str] = []

    def told(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.endswith(("sym_node.py", "symbolic_shapes.py")):
            frame = frame.f_back  # type: ignore[assignment]
        files.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        return original(self, *args, **kwargs)

    original = ShapeEnv.evaluate_expr
    with pytest.MonkeyPatch.context() as patch:  # not patched(), which has a frame of its own
        patch.setattr(ShapeEnv, "evaluate_expr", told)
        exported(lambda x: x + 1 if x.shape[0] > 7 else x, 5)
    assert f"{torch.__file__}:__bool__" in files


# --- torchlib -------------------------------------------------------------------------------------------


def recorded() -> tuple[Any, ir.Value]:
    """The recorder after torch.onnx's own translation of gelu has run under it, and its result."""
    opset = onnxscript.values.Opset("", _constants.TORCHLIB_OPSET)
    recorder: Any = _building.OpRecorder(opset, {})  # type: ignore[abstract]
    translation = _registration.ONNXRegistry.from_torchlib().get_decomps(aten.gelu.default)[0].onnx_function
    value = _tensors.SymbolicTensor(opset, name="x", type=ir.TensorType(ir.DataType.FLOAT))
    with onnxscript.evaluator.default_as(recorder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "current_tracer", recorder)
        return recorder, translation(value)


@canary(
    "torchlib.onnx_function",
    EXPORTER + "_registration.ONNXRegistry.from_torchlib",
    "registry.get_decomps",
)
def test_the_registry_of_translations() -> None:
    registry = _registration.ONNXRegistry.from_torchlib()
    found = registry.get_decomps(aten.add.Tensor)
    assert {item.is_complex for item in found} == {True, False}
    assert all(callable(item.onnx_function) for item in found)
    assert not list(registry.get_decomps(aten._assert_async.msg))


@canary(
    "torchlib.onnx_recorder, recording, onnx_input",
    EXPORTER + "_building.OpRecorder",
    EXPORTER + "_core.current_tracer",
    EXPORTER + "_tensors.SymbolicTensor",
    "onnxscript.evaluator.default_as",
    "onnxscript.values.Opset",
)
def test_a_translation_puts_its_nodes_into_the_recorder() -> None:
    recorder, result = recorded()
    assert isinstance(result, ir.Value) and result.producer() is recorder.nodes[-1]
    assert {node.op_type for node in recorder.nodes} >= {"Erf", "Mul"} and isinstance(
        recorder.functions, dict
    )
    assert hasattr(_core, "current_tracer")


@canary(
    "torchlib.onnx_opset, finished_model",
    EXPORTER + "_constants.TORCHLIB_OPSET",
    EXPORTER + "_constants.ONNX_IR_VERSION",
    EXPORTER + "_ir_passes.add_opset_imports",
)
def test_a_model_of_recorded_nodes() -> None:
    recorder, result = recorded()
    graph = ir.Graph([], [result], nodes=recorder.nodes, name="canary")
    model = ir.Model(graph, ir_version=_constants.ONNX_IR_VERSION)
    _ir_passes.add_opset_imports(model)
    assert model.opset_imports[""] >= 18 and isinstance(_constants.TORCHLIB_OPSET, int)


@canary("torchlib.onnx_tensor", EXPORTER + "_core.TorchTensor")
def test_a_weight_is_not_copied() -> None:
    weight = torch.ones(3)
    tensor = _core.TorchTensor(weight, name="weight")
    weight[0] = 5
    assert tensor.numpy().tolist() == [5, 1, 1] and tensor.name == "weight"


@canary("torchlib.onnx_dtype", EXPORTER + "_core.torch_dtype_to_onnx_dtype")
def test_types_have_their_onnx_names() -> None:
    assert _core.torch_dtype_to_onnx_dtype(torch.bfloat16) == ir.DataType.BFLOAT16


@canary("torchlib.at_opset", "torch.onnx._internal._lazy_import.onnxscript_apis.convert_version")
def test_a_model_at_another_opset() -> None:
    graph = ir.Graph([], [], nodes=[], name="canary", opset_imports={"": 18})
    assert onnxscript_apis.convert_version(ir.Model(graph, ir_version=10), 20).opset_imports[""] == 20


# --- rewriting ------------------------------------------------------------------------------------------


@canary("rewriting.rewriting", "onnxscript.rewriter._matcher", "onnxscript.rewriter._matcher.math")
def test_a_small_constant_is_taken_for_none_unless_it_is_forbidden() -> None:
    def folded() -> int:
        x, tiny = (
            ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT)),
            ir.tensor(np.float32(1e-9), name="c"),
        )
        x.shape = ir.Shape(["n"])
        constant = ir.node("Constant", [], {"value": tiny})
        added = ir.node("Add", [x, constant.outputs[0]])
        added.outputs[0].type, added.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["n"])
        made = ir.node("Abs", [added.outputs[0]])
        graph = ir.Graph([x], made.outputs, nodes=[constant, added, made], name="g", opset_imports={"": 18})
        model = ir.Model(graph, ir_version=10)
        onnxscript.optimizer.optimize(model)
        return len([node for node in model.graph if node.op_type == "Add"])

    assert folded() == 0
    with rewriting():
        assert folded() == 1


# --- tracing --------------------------------------------------------------------------------------------


@canary("tracing.fake_mode", "torch._subclasses.fake_tensor.FakeTensorMode")
def test_tensors_without_data_take_real_weights() -> None:
    weight = torch.ones(3, 4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = torch.empty(2, 3) @ weight
    assert isinstance(made, FakeTensor) and made.shape == (2, 4)


@canary(
    "tracing.needs_values",
    "torch._subclasses.fake_tensor.DataDependentOutputException",
    "torch._subclasses.fake_tensor.DynamicOutputShapeException",
    "torch._subclasses.fake_tensor.UnsupportedFakeTensorException",
    "torch._subclasses.fake_tensor.UnsupportedOperatorException",
)
def test_a_question_for_values_has_no_answer_without_data() -> None:
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        torch.empty(3).sum().item()
    with FakeTensorMode(), pytest.raises(DynamicOutputShapeException):
        torch.empty(3).nonzero()
    for kind in (UnsupportedFakeTensorException, UnsupportedOperatorException):
        assert issubclass(kind, RuntimeError)


@canary("tracing.size_oblivious", "torch.fx.experimental._config.patch")
def test_a_size_of_one_need_not_be_special() -> None:
    with fx_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        assert isinstance(first_input(exported(lambda x: x + 1, 1, 4)).shape[0], torch.SymInt)
    assert fx_config.backed_size_oblivious is False


@canary("tracing.traced_symbolically", "torch.fx.experimental.proxy_tensor.make_fx")
def test_operators_of_a_function_without_data() -> None:
    with FakeTensorMode():
        graph = make_fx(lambda x: x.relu() + 1, tracing_mode="real")(torch.empty(3)).graph
    calls = [node.target for node in graph.nodes if node.op == "call_function"]
    assert calls == [aten.relu.default, aten.add.Tensor]


# --- indexing -------------------------------------------------------------------------------------------


@canary("indexing.Indexed", "operators with an index among their arguments")
def test_operators_that_read_by_index() -> None:
    table, index = torch.zeros(9, 4), torch.tensor([2, 6])
    cases: list[tuple[int, Callable[[], Any]]] = [
        (2, lambda: nn.functional.embedding(index, table)),
        (2, lambda: nn.functional.embedding_bag(index[None], table)),
        (2, lambda: table[index]),
        (2, lambda: table.index_select(0, index)),
        (2, lambda: table.gather(0, index[:, None])),
        (29, lambda: table.take(index)),
        (2, lambda: table.index_add(0, index, torch.ones(2, 4))),
        (2, lambda: table.scatter(0, index[:, None], 1.0)),
        (2, lambda: table.index_put((index,), torch.tensor(1.0))),
    ]
    seen: list[int] = []

    def told(left: int) -> Callable[[], None]:
        seen.append(left)
        return lambda: None

    for left, run in cases:
        seen.clear()
        with torch.no_grad(), Indexed(told):
            run()
        assert seen == [left]


# --- work -----------------------------------------------------------------------------------------------


@canary("work.nominal_seconds", "torch.utils._python_dispatch.TorchDispatchMode")
def test_a_mode_sees_every_operator() -> None:
    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call,misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.overloadpacket)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    with Mode():  # type: ignore[no-untyped-call]
        torch.ones(2).relu()
    assert seen == [aten.ones, aten.relu]


@canary("work.nominal_seconds", "torch.utils.flop_counter.flop_registry")
def test_how_many_multiplications_an_operator_does() -> None:
    x, y = torch.ones(2, 3), torch.ones(3, 5)
    assert flop_registry[aten.mm](x, y, out_val=x @ y) == 2 * 2 * 3 * 5
    assert aten.relu not in flop_registry


@canary("work.LAYERS", "operators that are a whole layer")
def test_whole_layers_have_their_names() -> None:
    from anyshape.torch_bridge.work import LAYERS

    for name in {*LAYERS} - {"rnn"}:
        assert hasattr(aten, name), name
    assert hasattr(aten, "rnn_tanh")


# --- Every private name has a canary --------------------------------------------------------------------

VERSION_BOUND = ("torch.fx.experimental", "torch.utils.flop_counter")
FOREIGN = ("torch", "onnxscript", "onnx_ir", "onnx")


def is_private(dotted: str) -> bool:
    parts = dotted.split(".")
    hidden = any(re.match(r"_(?!_)\w", part) for part in parts)
    return hidden or dotted.startswith(VERSION_BOUND)


def aliases_of(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a foreign library stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
            found |= {alias.name: alias.name for alias in node.names if not alias.asname}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {name: full for name, full in found.items() if full.split(".")[0] in FOREIGN}


def dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """``torch._C._DisableAutocast``; of what is not imported, only the last part: ``._is_view``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in aliases:
        return ".".join([aliases[node.id], *reversed(parts)])
    return f".{parts[0]}" if parts else ""


def private_names(source: str) -> set[str]:
    """Every private or version-bound name of a foreign library that a module touches, also by a text."""
    tree = ast.parse(source)
    aliases = aliases_of(tree)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = set(aliases.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner and ast.unparse(node) != "sys._getframe":
            found.add(dotted(node, aliases))
        elif (
            isinstance(node, ast.Call) and len(node.args) > 1
        ):  # getattr(target, "_schema"), patched(owner, "_name")
            owner, name = node.args[:2]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
                known = dotted(owner, aliases) if isinstance(owner, (ast.Name, ast.Attribute)) else ""
                found.add(f"{known}.{name.value}" if known and known[0] != "." else f".{name.value}")
    return {name for name in found if is_private(name)}


def has_canary(name: str) -> bool:
    """A name is looked after if it is listed, or a part of it, or what it is imported from is used by a listed one."""
    return any(
        name == known or name.startswith(known + ".") or known.startswith(name + ".") or known.endswith(name)
        for known in USED_BY
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_private_name_has_a_canary(path: pathlib.Path) -> None:
    left = sorted(name for name in private_names(path.read_text()) if not has_canary(name))
    assert not left, f"{path.name} uses {left}: write a canary for each above"


def test_every_canary_is_of_a_name_that_is_used() -> None:
    source = "".join(path.read_text() for path in FOLDER.glob("*.py"))
    names = [name for name in USED_BY if " " not in name]
    left = [name for name in names if not re.search(rf"\b{re.escape(name.split('.')[-1])}\b", source)]
    assert not left, f"torch_bridge uses {left} no more: remove the canary"


def test_every_canary_says_who_uses_it() -> None:
    for used_by in USED_BY.values():
        module, _, functions = used_by.partition(".")
        source = (FOLDER / f"{module}.py").read_text()
        for function in functions.split(", "):
            assert re.search(rf"^(def |class |){function}\b", source, re.MULTILINE), used_by


def test_a_canary_says_who_leans_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.USED_BY", {})

    @canary("module.function", "torch._gone")
    def test_gone() -> None:
        torch._gone  # type: ignore[attr-defined]  # noqa: B018

    with pytest.raises(AssertionError, match=r"torch\._gone: not as torch_bridge\.module\.function expects"):
        test_gone()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch\ntorch._C._DisableAutocast()", {"torch._C._DisableAutocast"}),
        (
            "from torch.utils import _pytree as p\np.NODES.get(1)",
            {"torch.utils._pytree", "torch.utils._pytree.NODES.get"},
        ),
        ("getattr(target, '_schema', None)", {"._schema"}),
        ("x._is_view()", {"._is_view"}),
        ("import torch, sys\ntorch.__file__, torch.Tensor, sys._getframe", set()),
    ],
)
def test_private_names_are_found(source: str, names: set[str]) -> None:
    assert private_names(source) == names


# --- packed ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # torch.ao is on its way out
@canary("packed.is_packed", "torch.ScriptObject", "._all_weight_values")
def test_what_quantize_dynamic_makes_is_packed() -> None:
    for layer in (nn.Linear(4, 4), nn.LSTM(4, 4), nn.GRUCell(4, 4)):
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {type(layer)}, torch.qint8)
        assert any(map(is_packed, model.modules())) and not is_packed(layer)
