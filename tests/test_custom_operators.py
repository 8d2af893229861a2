"""Operators of the user's own: translated, kept as nodes, or refused in words."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript
import pytest
import torch
from onnxscript import opset18 as op
from torch import Tensor, nn

import anyshape
from anyshape.artifact.read import read_model
from anyshape.errors import FileError, InputError, LowerFault, UsageError, VerifyFault
from anyshape.judge import judge
from anyshape.runtimes.onnx_runtime import RuntimeFailure
from anyshape.runtimes.pieces import Pieces, foreign


@torch.library.custom_op("tests_own::swish", mutates_args=())
def swish(x: Tensor, beta: float = 1.0) -> Tensor:
    return x * torch.sigmoid(beta * x)


@torch.library.custom_op("tests_own::parted", mutates_args=())
def parted(
    x: Tensor, weight: Tensor | None, dims: Sequence[int], turned: bool, mode: str = "a"
) -> tuple[Tensor, Tensor]:
    made = x.flip(list(dims)) if turned else x.clone()
    total = made.sum(1) if weight is None else made.sum(1) * weight
    return total + (mode == "b"), made[:, :1].long()


LIBRARY = torch.library.Library("tests_old", "DEF")
for schema, function in {
    "scale(Tensor x, SymInt k, float f=2.0) -> Tensor": lambda x, k, f=2.0: x * k * f,
    "many(Tensor x) -> Tensor[]": lambda x: [x * 1, x * 2],
    "made_of_others(Tensor x) -> Tensor": lambda x: x.sin() + 1,
    "joined(Tensor[] xs, int dim) -> Tensor": lambda xs, dim: torch.cat(xs, dim),
    "beside(Tensor x, Tensor[] xs) -> Tensor": lambda x, xs: x + sum(xs),
    "counted(Tensor x) -> Tensor": lambda x: x.nonzero(),
    "cast(Tensor x, ScalarType? dtype=None) -> Tensor": lambda x, dtype=None: x.to(dtype) if dtype else x * 1,
    "chosen(Tensor? a, Tensor b, *, bool[] flags, int? n=None) -> Tensor": (
        lambda a, b, *, flags, n=None: b * (1 if a is None else a) + int(flags[1]) + (n or 0)
    ),
    "alike(Tensor x) -> Tensor": lambda x: x * 7,
}.items():
    LIBRARY.define(schema)
    kind = "CompositeImplicitAutograd" if schema.startswith("made") else "CPU"
    LIBRARY.impl(schema.partition("(")[0], function, kind)
torch.library.register_fake("tests_old::alike", torch.empty_like)
old = torch.ops.tests_old


class Called(nn.Module):
    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function, self.row = function, nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def exported(
    function: Callable[[Any, Tensor], Any], table: Any, path: str | None = None, **options: Any
) -> Any:
    model = Called(function).eval()
    shapes = {"x": "batch, seq, 4"}
    return model, anyshape.export(
        model, torch.randn(3, 6, 4), path, shapes=shapes, custom_translation_table=table, **options
    )


def swished(self: Any, x: Tensor) -> Tensor:
    return swish(x * self.row, 1.5).softmax(-1)


# --- Translations -----------------------------------------------------------------------------------------


def plainly(x: Any, beta: float = 1.0) -> Any:
    return op.Mul(x, op.Sigmoid(op.Mul(x, op.CastLike(beta, x))))


@onnxscript.script(onnxscript.values.Opset("tests.functions", 1), default_opset=op)
def scripted(x, beta: float = 1.0):  # type: ignore[no-untyped-def]
    return op.Mul(x, op.Sigmoid(op.Mul(x, op.CastLike(op.Constant(value_float=beta), x))))


@pytest.mark.parametrize(
    ("key", "translation"),
    [
        (torch.ops.tests_own.swish.default, plainly),
        (torch.ops.tests_own.swish, [plainly]),
        (swish, scripted),
        (swish, scripted.to_function_proto()),
    ],
    ids=["plain", "listed", "script", "proto"],
)
def test_a_translation_is_taken_in_each_form(key: Any, translation: Any) -> None:
    model, made = exported(swished, {key: translation}, "model.onnx", optimize=key is not swish)
    assert not foreign(made.model) and not made.contract.notes
    run = anyshape.load("model.onnx")
    for shape in ((1, 9), (5, 2), (7, 1), (2, 30)):
        x = torch.randn(*shape, 4)
        torch.testing.assert_close(run(x), model(x).detach())


def test_a_wrong_translation_is_named() -> None:
    with pytest.raises(VerifyFault, match="is translated wrongly by custom_translation_table"):
        exported(swished, {swish: lambda x, beta: op.Mul(x, op.Sigmoid(x))})


def test_an_operator_that_is_made_of_others_needs_none() -> None:
    assert not exported(lambda self, x: old.made_of_others(x), None)[1].contract.notes


# --- Nodes of their own -----------------------------------------------------------------------------------


def in_many_places(self: Any, x: Tensor) -> Any:
    first = swish((x * self.row).relu(), 0.3)
    total, ends = parted(first, self.row, [1], True)
    other, _ = parted(first.exp() - x, None, [0, 1], False, "b")
    return swish(total + other).softmax(-1), ends, swish(self.row, 2.0)


def parted_with_numpy(x: Any, weight: Any = None, *, dims: Any, turned: int, mode: str) -> Any:
    made = np.flip(x, tuple(dims)) if turned else x
    total = made.sum(1) if weight is None else made.sum(1) * weight
    return total + np.float32(mode == "b"), made[:, :1].astype("int64")


@pytest.mark.parametrize("optimize", [True, False])
def test_operators_stay_nodes(optimize: bool) -> None:
    table = {swish: "own.ops::Swish", parted: "own.ops::Parted"}
    model, made = exported(in_many_places, table, "model.onnx", optimize=optimize)
    assert foreign(made.model) == ["own.ops::Swish", "own.ops::Parted"]
    assert made.model.opset_imports["own.ops"] == 1
    assert [note for note in made.contract.notes if "node" in note] == [
        f"own.ops::{name} is a node of its own, verified with PyTorch's tests_own::{name.lower()}: "
        "a runtime needs an implementation of it"
        for name in ("Swish", "Parted")
    ]
    assert made.verdict.runtime == "ONNX Runtime, but for own.ops::Swish, own.ops::Parted"
    operators = {
        "own.ops::Swish": lambda x, beta: x / (1 + np.exp(-beta * x)),
        "own.ops::Parted": parted_with_numpy,
    }
    run = anyshape.load("model.onnx", operators=operators)
    for shape in ((1, 9), (5, 2), (7, 1), (2, 30)):
        x = torch.randn(*shape, 4)
        with torch.no_grad():
            torch.testing.assert_close(run(x), model(x))


def test_a_node_has_the_schema_of_the_operator() -> None:
    _, made = exported(in_many_places, {swish: "own.ops::Swish", parted: "own.ops::Parted"}, "model.onnx")
    nodes = [node for node in onnx.load("model.onnx").graph.node if node.op_type == "Parted"]
    onnx.checker.check_model("model.onnx")
    given = [{item.name: onnx.helper.get_attribute_value(item) for item in node.attribute} for node in nodes]
    assert given == [
        {"dims": [1], "turned": 1, "mode": b"a"},
        {"dims": [0, 1], "turned": 0, "mode": b"b"},
    ]
    assert [len(node.input) for node in nodes] == [2, 1]
    shapes = [str(value.shape) for node in made.model.graph if node.domain for value in node.outputs]
    assert shapes == [
        "[batch,seq,4]",
        "[batch,4]",
        "[batch,None,4]",
        "[batch,4]",
        "[batch,1,4]",
        "[batch,4]",
        "[4]",
    ]


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (lambda self, x: old.scale(x, 3, 0.1) + 1, {old.scale: "own::Scale"}),
        (
            lambda self, x: old.joined([x, x.sum(1, keepdim=True), x * self.row], 1).sum(2),
            {old.joined: "own::Joined"},
        ),
        (lambda self, x: old.counted(x > 0).float() * 2, {old.counted: "own::Counted"}),
        (
            lambda self, x: (
                old.chosen(None, x, flags=[False, True]) - old.chosen(self.row, x, flags=[True, False], n=3)
            ),
            {old.chosen: "own::Chosen"},
        ),
        (
            lambda self, x: torch.special.bessel_j0(x),
            {torch.ops.aten.special_bessel_j0.default: "own::Bessel"},
        ),
        (lambda self, x: old.cast(x), {old.cast: "own::Cast"}),
    ],
    ids=["numbers", "a list", "values decide the size", "optional", "PyTorch's own", "no type"],
)
def test_what_a_node_may_take_and_give(function: Any, table: Any) -> None:
    _, made = exported(function, table, opset_version=20)
    assert foreign(made.model) == list(table.values())


def listed_line(self: Any, x: Tensor) -> Tensor:
    return old.many(x)[0]


def moving_line(self: Any, x: Tensor) -> Tensor:
    return old.scale(x, x.shape[1])


def inside_a_choice(self: Any, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: old.alike(x), lambda x: x + 1, (x,))


def symbolic(self: Any, x: Tensor) -> Tensor:
    return torch.onnx.ops.symbolic("own::Op", (x,), {"a": 1}, dtype=x.dtype, shape=x.shape) + 1


def symbolic_multi(self: Any, x: Tensor) -> Tensor:
    return torch.onnx.ops.symbolic_multi_out("own::Op", (x,), dtypes=[x.dtype], shapes=[x.shape])[0] + 1


@pytest.mark.parametrize(
    ("function", "table", "message", "hint"),
    [
        (
            lambda self, x: old.scale(x, 3),
            None,
            "ONNX has no translation for the operator tests_old::scale",
            'keep it as a node that your runtime implements with {torch.ops.tests_old.scale.default: "tests_old::',
        ),
        (listed_line, {old.many: "own::Many"}, "it returns a list of tensors", "Give a translation instead"),
        (moving_line, {old.scale: "own::Scale"}, "k changes with the sizes", "Give a translation instead"),
        (
            lambda self, x: old.beside(x, [x, x]),
            {old.beside: "own::Beside"},
            "it takes a list of tensors beside others",
            "Give a translation instead",
        ),
        (
            lambda self, x: old.cast(x, torch.float64),
            {old.cast: "own::Cast"},
            "dtype is DOUBLE, which no attribute can be",
            "Give a translation instead",
        ),
        (
            lambda self, x: old.alike(torch.view_as_complex(x.reshape(*x.shape[:2], 2, 2))).abs(),
            {old.alike: "own::Alike"},
            "ONNX has no translation for the operator tests_old::alike",
            "custom_translation_table",
        ),
        (
            inside_a_choice,
            {old.alike: "own::Alike"},
            "it stands in a choice or a loop",
            "Give a translation instead",
        ),
        (symbolic, None, "torch.onnx.ops.symbolic gives zeros for own::Op", "torch.library.custom_op"),
        (symbolic_multi, None, "torch.onnx.ops.symbolic gives zeros for own::Op", "torch.library.custom_op"),
    ],
)
def test_what_can_not_be_exported_is_refused_with_its_line(
    function: Any, table: Any, message: str, hint: str
) -> None:
    with pytest.raises(LowerFault) as fault:
        exported(function, table)
    assert message in fault.value.what and hint in fault.value.hint
    assert fault.value.where is not None and fault.value.where.file.endswith("test_custom_operators.py")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1], "custom_translation_table is a list, not a dict"),
        ({"scale": "own::Scale"}, "a translation for 'scale', which is no operator of PyTorch's"),
        ({old.scale: 3}, "has 3 for tests_old::scale, which is no translation"),
        ({old.scale: [abs, abs]}, "has 2 translations for tests_old::scale"),
        ({old.scale: "Scale"}, "'Scale' is no name for a node of tests_old::scale"),
        ({old.scale: "ai.onnx::Scale"}, "'ai.onnx::Scale' is in a domain of ONNX's own"),
        ({old.scale: "own::A", old.alike: "own::A"}, "alike.default are both to be the node own::A"),
    ],
)
def test_a_table_that_says_nothing_is_refused(table: Any, message: str) -> None:
    with pytest.raises(UsageError) as fault:
        exported(swished, table)
    assert message in fault.value.what and fault.value.hint


# --- Files with nodes of their own ------------------------------------------------------------------------


@pytest.fixture
def kept() -> nn.Module:
    model, _ = exported(lambda self, x: old.alike(x).sum(1), {old.alike: "own::Alike"}, "model.onnx")
    return model


@pytest.mark.parametrize(
    ("operators", "error", "message"),
    [
        (None, FileError, "model.onnx has the node own::Alike, which ONNX Runtime has no kernel for"),
        ({"own::Other": abs}, UsageError, "model.onnx has no node own::Other"),
    ],
)
def test_a_file_is_not_loaded_without_what_it_needs(
    kept: nn.Module, operators: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as fault:
        anyshape.load("model.onnx", operators=operators)
    assert message in str(fault.value)


@pytest.mark.parametrize(
    ("implementation", "message"),
    [
        (lambda x: (x, x), "own::Alike gives 2 results, the file has 1 for it"),
        (lambda x: x.astype("float64"), "own::Alike gives float64, the file has float32 for it"),
        (lambda x: x + 1 // 0, "own::Alike: ZeroDivisionError"),
    ],
)
def test_an_implementation_that_does_something_else_is_told(
    kept: nn.Module, implementation: Any, message: str
) -> None:
    run = anyshape.load("model.onnx", operators={"own::Alike": implementation})
    with pytest.raises(InputError) as fault:
        run(torch.randn(2, 3, 4))
    assert message in str(fault.value)


def test_such_a_file_can_not_be_judged_or_run_from_outside(kept: nn.Module) -> None:
    with pytest.raises(FileError) as fault:
        judge("model.onnx", kept, torch.randn(2, 3, 4))
    assert "own::Alike" in fault.value.what and "It was verified when it was exported" in fault.value.hint


def test_a_node_of_its_own_in_a_choice_is_not_run_in_pieces(kept: nn.Module) -> None:
    model = read_model("model.onnx")
    graph = model.graph
    inner = next(node for node in graph if node.domain)
    value, result = inner.inputs[0], inner.outputs[0]
    side = ir.Node("own", "Alike", [value], num_outputs=1)
    side.outputs[0].type = result.type
    sides = [
        ir.AttrGraph(name, ir.Graph([], [node.outputs[0]], nodes=[node], name=name))
        for name, node in (("then_branch", side), ("else_branch", ir.node("Identity", [value])))
    ]
    test = ir.node("Constant", [], {"value": ir.tensor(np.asarray(True))})
    choice = ir.Node("", "If", [test.outputs[0]], sides, num_outputs=1)
    result.replace_all_uses_with(choice.outputs[0])
    graph.insert_before(inner, [test, choice])
    graph.remove(inner, safe=True)
    with pytest.raises(RuntimeFailure, match="own::Alike stands in a choice or a loop"):
        Pieces(model, {"own::Alike": lambda x: x})


@pytest.mark.parametrize("name", ["custom_translation", "custom_node"])
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parent.parent / "examples" / f"{name}.py"
    runpy.run_path(str(path), run_name="__main__")
    assert "right: True" in capsys.readouterr().out
