"""Operators that are translated wrongly on purpose: each is named, with its node and the line that calls it."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import pytest
import torch
import typer
from onnxscript import opset18 as op
from torch import Tensor, nn

import anyshape
from anyshape.blame import operators as blame_numbers
from anyshape.blame.fault import fault_of
from anyshape.blame.operators import Lowering
from anyshape.blame.script import script_of
from anyshape.capture.choices import capture_choices
from anyshape.capture.tape import Played, Step, Tape, Value, chosen
from anyshape.capture.tape.constants import sizes_tensor
from anyshape.cli.screen import screen
from anyshape.contract.contract import Tensor as TensorOf
from anyshape.dims import Expr
from anyshape.errors import VerifyFault
from anyshape.ladder import attempt, rungs
from anyshape.lower.operators import TRANSLATIONS
from anyshape.lower.optimize import optimize
from anyshape.lower.sizes import SizeNodes
from anyshape.lower.translate import _Scope
from anyshape.runtimes.onnx_runtime import OnnxRuntime
from anyshape.verify.reference import Reference
from anyshape.verify.verify import verify

aten = torch.ops.aten
Table = Mapping[Any, Callable[..., Any]]


# --- Models, and translations that are wrong ---------------------------------------------------------------


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        x = x.cumsum(1)  # aten.cumsum.default
        return x.sin()


def cumsum(self: Any, dim: int, dtype: int = -1) -> Any:
    return op.CumSum(self, op.Constant(value_int=dim), reverse=1)


class Attended(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.transpose(1, 2)
        weights = scores.softmax(-1)  # aten.softmax.int
        return weights @ x


def softmax(self: Any, dim: int, dtype: int | None = None) -> Any:
    return op.Softmax(self, axis=1)


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        shift = x.shape[1] // 2
        return x.sin().roll(shift, 1) + x  # aten.roll.default


def roll(self: Any, shifts: Any, dims: Any = ()) -> Any:
    return TRANSLATIONS[aten.roll.default](self, [op.Add(shifts[0], op.Constant(value_int=1))], dims)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(x.relu(), 2, ceil_mode=True)  # aten.max_pool2d.default


def pool(
    self: Any, kernel: Any, stride: Any = (), padding: Any = (), dilation: Any = (), ceil: Any = 0
) -> Any:
    return op.MaxPool(self, kernel_shape=kernel, strides=list(stride) or kernel)


class Averaged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp().mean(1)  # aten.mean.dim


def mean(self: Any, dims: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """Right up to 8."""
    count = op.Gather(op.Shape(self), op.Constant(value_int=1))
    more = op.Cast(op.Greater(count, op.Constant(value_int=8)), to=ir.DataType.INT64)
    total = op.ReduceSum(self, op.Constant(value_ints=list(dims)), keepdims=int(keepdim))
    return op.Div(total, op.CastLike(op.Add(count, more), self))


class Normed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = x.exp().sum(1, keepdim=True)  # aten.sum.dim_IntList
        return x.exp() / total


def without_axis(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return op.ReduceSum(self, op.Constant(value_ints=list(dim)), keepdims=0)


class Flipped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin().flip(1) * 2  # aten.flip.default


def flip(self: Any, dims: Any) -> Any:
    return op.Reshape(self, op.Constant(value_ints=[7, 3]))


class Recurrent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        state = x[:, 0]
        for k in range(x.shape[1]):
            state = (state * 0.5 + x[:, k]).tanh()  # aten.tanh.default, in a loop
        return state.exp()


class OneSided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if float(int(x.shape[1])) > 8.5:  # Python's numbers: no symbolic trace follows
            return x.tanh()  # aten.tanh.default, on one side
        return x.cos() * 2  # the other


class Layers(nn.Module):
    """Decides twice: the ways are choices within one tape."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            if float(int(x.shape[1])) > 8.5:
                x = x.tanh() + x.mean()  # aten.tanh.default, in a choice
            x = x.cos()
        return x


def tanh(self: Any) -> Any:
    return op.Sin(self)


WRONG = [
    (Summed, (2, 6), aten.cumsum.default, cumsum, "CumSum", ""),
    (Attended, (2, 6, 4), aten.softmax.int, softmax, "Softmax", ""),
    (Rolled, (2, 6), aten.roll.default, roll, "Concat", ""),
    (Pooled, (2, 3, 8, 10), aten.max_pool2d.default, pool, "MaxPool", ""),
    (Averaged, (2, 6), aten.mean.dim, mean, "Div", ""),
    (Normed, (5, 6), aten.sum.dim_IntList, without_axis, "ReduceSum", ""),
    (Flipped, (5, 6), aten.flip.default, flip, "Reshape", ""),
    (Recurrent, (3, 6), aten.tanh.default, tanh, "Sin", ", in a loop"),
    (OneSided, (3, 6), aten.tanh.default, tanh, "Sin", ", on one side"),
    (Layers, (3, 6), aten.tanh.default, tanh, "Sin", ", in a choice"),
]


def fault(model: nn.Module, table: Table | None, *shape: int, **options: Any) -> VerifyFault:
    torch.manual_seed(0)
    with pytest.raises(VerifyFault) as info:
        anyshape.export(model.eval(), torch.randn(shape), custom_translation_table=table, **options)
    return info.value


def shown_by(script: str, table: Table | None = None) -> str:
    """What a script prints; with a table in the place that it leaves for one."""
    if table is not None:
        assert "TABLE = {}" in script
        script = script.replace("TABLE = {}", "TABLE = given")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        try:
            exec(script, {"given": table})
        except SystemExit as end:
            print(end)
            raise
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "shape", "operator", "wrong", "node", "mark"),
    WRONG,
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_the_operator_is_named_and_a_script_shows_it(
    kind: type[nn.Module],
    shape: tuple[int, ...],
    operator: Any,
    wrong: Callable[..., Any],
    node: str,
    mark: str,
    line_in: Callable[[str, str], int],
) -> None:
    found = fault(kind(), {operator: wrong}, *shape)
    assert f"{operator} is translated wrongly by custom_translation_table (node n" in found.hint
    assert f"_{node}): your model is not at fault." in found.hint
    assert found.where is not None and found.where.line == line_in(__file__, f"# {operator}{mark}")
    assert str(operator) in found.script and len(found.script.splitlines()) <= 30
    right, again = shown_by(found.script), shown_by(found.script, {operator: wrong})
    assert right.startswith("PyTorch: ") and "\nONNX Runtime: [array(" in right, (
        "the translation is not wrong"
    )
    assert f"{operator} is translated wrongly" in again


VERSIONS = f"{anyshape.__version__} with torch {torch.__version__}"

# --- What is said, word by word -----------------------------------------------------------------------------


def test_the_whole_message_of_a_wrong_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TRANSLATIONS[aten.roll.default]

    def one_too_far(self: Any, shifts: Any, dims: Any = ()) -> Any:
        return right(self, [op.Add(shifts[0], op.Constant(value_int=1))], dims)

    monkeypatch.setitem(TRANSLATIONS, aten.roll.default, one_too_far)
    found = fault(Rolled(), None, 2, 6, shapes={"x": "batch, seq"}, opset_version=18)
    assert found.where is not None
    assert str(found) == (
        "the exported model would be wrong at seq = 2 (batch does not matter; right where seq ≤ 1): "
        "output is off by 0.26 (0.0001 allowed)\n"
        f"  at {found.where.file}:{found.where.line}    return x.sin().roll(shift, 1) + x  # aten.roll.default\n"
        "aten.roll.default is translated wrongly (node n20_Concat): your model is not at fault. "
        "`anyshape export -v` prints a script that shows it, which is also the fault's `script`."
    )
    assert found.script == textwrap.dedent(f'''\
        """aten.roll.default as anyshape {VERSIONS} exports it, on ONNX Runtime and in PyTorch."""

        import anyshape
        import onnxruntime
        import torch

        torch.manual_seed(0)
        x0 = torch.tensor([[0.262724, 0.51799]], dtype=torch.float32)


        class Operator(torch.nn.Module):
            def forward(self, x0):
                return torch.ops.aten.roll.default(x0, [x0.shape[1]//2], [1])


        print("PyTorch:", Operator()(x0))
        # ONNX Runtime gave: [[0.262724, 0.51799]]
        try:
            made = anyshape.export(Operator(), (x0,), opset_version=18)
        except anyshape.Fault as fault:
            raise SystemExit(f"ONNX Runtime: {{fault}}")
        session = onnxruntime.InferenceSession(made.model_proto.SerializeToString())
        feed = dict(zip([item.name for item in session.get_inputs()], [x0.numpy()]))
        print("ONNX Runtime:", session.run(None, feed))
        ''')
    assert "aten.roll.default is translated wrongly (node" in shown_by(found.script)


def test_a_model_that_only_optimizing_makes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(model: ir.Model) -> ir.Model:
        made = optimize(model)
        for node in made.graph:
            node.op_type = "Cos" if node.op_type == "Sin" else node.op_type
        return made

    monkeypatch.setattr(attempt, "optimize", spoilt)
    found = fault(Summed(), None, 2, 6)
    assert found.where is None and found.script == ""
    assert found.hint == (
        "The model is right until it is optimized: your model is not at fault. Export with optimize=False."
    )


def test_no_program_is_captured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces at the sizes that were wrong would tell more; where they have been told already, nothing is done again."""
    asked: list[Any] = []
    right = rungs.capture_values

    def told(traces: Any, further: Any) -> Any:
        asked.append([*further])
        return right(traces, further)

    monkeypatch.setattr(rungs, "capture_values", told)
    assert "is translated wrongly" in fault(Summed(), {aten.cumsum.default: cumsum}, 2, 6).hint
    assert len(asked) > 1 and all(one != two for one, two in itertools.combinations(asked, 2))


def test_a_loop_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _Scope._loop

    def one_round_less(self: _Scope, step: Step, body: Any) -> Any:
        return right(self, replace(step, args=(step.args[0] - 1, *step.args[1:])), body)

    monkeypatch.setattr(_Scope, "_loop", one_round_less)
    found = fault(Recurrent(), None, 3, 6)
    assert re.fullmatch(
        r"The loop at this line is translated wrongly \(node n\d+_Loop\): your model is not at fault\.",
        found.hint,
    )
    assert found.where is not None and found.script == ""


def turned_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every condition is lowered as its contrary."""
    right = SizeNodes.holds
    monkeypatch.setattr(
        SizeNodes, "holds", lambda self, relation: self.add("Not", [right(self, relation)], {})
    )


def test_the_way_that_is_taken(monkeypatch: pytest.MonkeyPatch, line_in: Callable[[str, str], int]) -> None:
    turned_round(monkeypatch)
    found = fault(OneSided(), None, 3, 6)
    assert found.hint == "The choice at this line is translated wrongly: your model is not at fault."
    assert found.where is not None
    assert found.where.line == line_in(__file__, "# Python's numbers: no symbolic trace follows")


def chosen_fault(traces: Any, table: Table | None) -> VerifyFault:
    """The fault of a model whose layers choose, each for itself."""
    made = traces(Layers().forward)
    program = capture_choices(made)
    outputs = (TensorOf("y", "float32", program.outputs[0]),)
    lowering = Lowering(program, replace(made.agreed.contract, outputs=outputs), translations=table)
    runtime, reference = OnnxRuntime.of_model(lowering.model()), Reference(made.case, made.agreed)
    assert isinstance(program.body, Tape) and any(step.target is chosen for step in program.body.steps)
    return fault_of(verify(runtime, reference), runtime, reference, (), lowering)


def test_an_operator_in_a_choice(traces: Any, line_in: Callable[[str, str], int]) -> None:
    found = chosen_fault(traces, {aten.tanh.default: tanh})
    assert re.match(r"aten.tanh.default is translated wrongly .* \(node n\d+_[01]_\d+_Sin\)", found.hint)
    assert found.where is not None and found.where.line == line_in(
        __file__, "# aten.tanh.default, in a choice"
    )


def test_a_choice_as_a_whole(traces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    turned_round(monkeypatch)
    found = chosen_fault(traces, None)
    assert re.fullmatch(
        r"The choice at this line is translated wrongly \(node n\d+_If\): your model is not at fault\.",
        found.hint,
    )
    assert found.where is not None and found.script == ""


class Counted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = torch.tensor([float(int(x.shape[0])), float(int(x.shape[1]))])
        return x.sum() + sizes.exp()


def test_a_tensor_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TRANSLATIONS[sizes_tensor]
    monkeypatch.setitem(TRANSLATIONS, sizes_tensor, lambda *given: op.Neg(right(*given)))
    found = fault(Counted(), None, 3, 6)
    assert found.hint.startswith("The tensor of sizes at this line is translated wrongly (node n")
    assert found.where is not None and found.script == ""


# --- Which of several differences is to blame -------------------------------------------------------------


class Harmless(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        nothing = x.tanh() * 0
        return nothing + x.cumsum(1)  # to blame


def test_a_difference_without_effect_is_not_to_blame(line_in: Callable[[str, str], int]) -> None:
    found = fault(Harmless(), {aten.tanh.default: tanh, aten.cumsum.default: cumsum}, 2, 6)
    assert found.hint.startswith("aten.cumsum.default is translated wrongly")
    assert found.where is not None and found.where.line == line_in(__file__, "# to blame")


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x.tanh()  # the first
        return x.exp()


def test_the_first_of_two_that_are_wrong(line_in: Callable[[str, str], int]) -> None:
    found = fault(Twice(), {aten.tanh.default: tanh, aten.exp.default: tanh}, 2, 6)
    assert found.where is not None and found.where.line == line_in(__file__, "# the first")


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(
            torch.ones(2), torch.tensor([0.3, 0.7])
        )
        return torch.view_as_real(turned).flatten(-2).tanh()  # after complex numbers


def test_complex_numbers_on_the_way(line_in: Callable[[str, str], int]) -> None:
    found = fault(Complex(), {aten.tanh.default: tanh}, 3, 4)
    assert found.where is not None and found.where.line == line_in(__file__, "# after complex numbers")
    assert found.hint.startswith("aten.tanh.default")


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.norm(self.linear(tokens))  # type: ignore[no-any-return]


def negated(self: Any, weight: Any, bias: Any = None) -> Any:
    return op.Neg(op.Add(op.MatMul(self, op.Transpose(weight, perm=[1, 0])), bias))


def test_weights_are_constants_of_the_script() -> None:
    found = fault(Weighted(), {aten.linear.default: negated}, 3, 5, 8)
    assert "weight1 = (torch.rand([8, 8]) * " in found.script
    assert "torch.ops.aten.linear.default(x0, weight1, weight2)" in found.script
    assert "def forward(self, x0):" in found.script
    assert "ONNX Runtime: [array(" in shown_by(found.script)


def script_for(operator: Any, *tensors: Tensor) -> str:
    values = [Value(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    step = Step(operator, tuple(values), {}, (Value((), torch.float32),))
    return script_of(Played(step, {}, tensors, tensors, {}, ()), "nothing", ())


def test_values_in_a_script() -> None:
    assert "from math import inf, nan" in (
        script := script_for(aten.exp.default, torch.tensor([-math.inf, 1]))
    )
    assert "x0 = torch.tensor([-inf, 1.0], dtype=torch.float32)" in script
    assert "ONNX Runtime: [array([0." in shown_by(script)
    assert "torch.zeros([0, 2], dtype=torch.int64)" in script_for(aten.abs.default, torch.zeros(0, 2).long())
    large = torch.arange(3, 53)
    assert "torch.randint(3, 53, [50], dtype=torch.int64)" in script_for(aten.abs.default, large)
    assert "torch.rand([50]) > 0.5" in script_for(aten.logical_not.default, large > 9)
    assert "(torch.rand([50]) * 49 + 3).to(torch.float16)" in script_for(aten.exp.default, large.half())


def test_no_script_where_a_value_has_no_text() -> None:
    assert script_for(aten.abs.default, torch.ones(2, dtype=torch.complex64)) == ""
    assert script_for(sizes_tensor, torch.ones(2)) == ""


# --- A trace that is wrong ----------------------------------------------------------------------------------


def spoilt_trace(lowered: Any, model: nn.Module, change: Callable[[Tape], Tape]) -> VerifyFault:
    """The fault of a program whose tape is changed."""
    made = lowered(model.eval(), torch.randn(2, 6), shapes={"x": "batch, seq"}, dims={"seq": ">=1"})
    assert isinstance(made.program.body, Tape)
    program = replace(made.program, body=change(made.program.body))
    lowering = Lowering(program, made.contract)
    runtime, reference = OnnxRuntime.of_model(lowering.model()), Reference(made.case, made.agreed)
    return fault_of(verify(runtime, reference), runtime, reference, (), lowering)


def with_leaves(change: Callable[[Any], Any]) -> Callable[[Tape], Tape]:
    return lambda tape: replace(tape, steps=[step.mapped(change) for step in tape.steps])


def half_of_six(leaf: Any) -> Any:
    return 3 if leaf == Expr.of("seq") // 2 else leaf


def test_the_whole_message_of_a_wrong_trace(lowered: Any) -> None:
    found = spoilt_trace(lowered, Rolled(), with_leaves(half_of_six))
    assert found.where is not None and found.script == ""
    assert str(found) == (
        "the exported model would be wrong at seq = 3 (batch does not matter; right where seq ≤ 2): "
        "output.output is off by 0.78 (0.0003 allowed)\n"
        f"  at {found.where.file}:{found.where.line}    return x.sin().roll(shift, 1) + x  # aten.roll.default\n"
        "The trace has 3 at this line where the model has 1 (aten.roll.default): how it is computed could not be "
        "followed. Compute it from shapes, in simple steps, or declare a range of batch, seq where it is right."
    )


class Tabled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1).reshape(x.shape[0], x.shape[1]).exp()  # the table


def test_a_trace_that_pytorch_itself_refuses(lowered: Any, line_in: Callable[[str, str], int]) -> None:
    found = spoilt_trace(lowered, Tabled(), with_leaves(lambda leaf: 6 if leaf == Expr.of("seq") else leaf))
    assert found.where is not None and found.where.line == line_in(__file__, "# the table")
    assert "At these sizes the model runs aten." in found.hint and "which the trace lacks" in found.hint


class Shifted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + torch.tensor([0.5])).sin()  # shifted


def test_a_tensor_that_the_trace_has_otherwise(lowered: Any, line_in: Callable[[str, str], int]) -> None:
    def more(tape: Tape) -> Tape:
        return replace(tape, constants={value: tensor + 1 for value, tensor in tape.constants.items()})

    found = spoilt_trace(lowered, Shifted(), more)
    assert found.where is not None and found.where.line == line_in(__file__, "# shifted")
    assert found.hint.startswith("The trace has [1.5] at this line where the model has [0.5] (aten.")


def test_another_operator_than_the_models(lowered: Any, line_in: Callable[[str, str], int]) -> None:
    def cosine(tape: Tape) -> Tape:
        *others, last = tape.steps
        return replace(tape, steps=[*others, replace(last, target=aten.cos.default)])

    found = spoilt_trace(lowered, Shifted(), cosine)
    assert found.where is not None and found.where.line == line_in(__file__, "# shifted")
    assert found.hint == (
        "At these sizes the model runs aten.sin.default at this line, where the trace has aten.cos.default: what "
        "decides it could not be followed. Declare a range of sizes at which the model takes one way."
    )


def test_an_operator_that_the_model_does_not_run(lowered: Any) -> None:
    def twice(tape: Tape) -> Tape:
        last = tape.steps[-1]
        more = Step(aten.neg.default, last.outputs, {}, (replace(last.outputs[0]),), last.where)
        return replace(tape, steps=[*tape.steps, more], outputs=list(more.outputs))

    found = spoilt_trace(lowered, Shifted(), twice)
    assert found.hint.startswith("At these sizes the model does not run aten.neg.default at this line: what")


# --- Where nothing can be told, and where it is shown -------------------------------------------------------


def test_what_fails_while_blaming_does_not_take_the_place_of_the_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("the sky fell")

    monkeypatch.setattr(blame_numbers, "_cause", broken)
    found = fault(Summed(), {aten.cumsum.default: cumsum}, 2, 6)
    assert found.where is None and found.script == ""
    assert found.hint == "No line of the model is to blame: an operator is translated wrongly."


def test_verbose_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json, verbose in ((False, True), (False, False), (True, True)):
        with pytest.raises(typer.Exit), screen(as_json, verbose):
            raise VerifyFault("wrong at seq = 2", script="print('shown')\n")
        said = capsys.readouterr()
        assert ("print('shown')" in said.err.splitlines()) == (verbose and not as_json)
        assert ('"script": "print(' in said.out) == as_json
