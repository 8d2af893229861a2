"""Models in each type: what goes in comes out in the same type, and the contract says where it was verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.casts import in_other_types, types_of
from anyshape.errors import InputError, UsageError, VerifyFault
from anyshape.judge import judge
from anyshape.runtimes.choose import runtime_of
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure, to_numpy
from anyshape.runtimes.widened import Widened

EVALUATED, WIDENED = "ONNX's reference evaluator", "ONNX Runtime with bfloat16 operators computed as float32"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(8), nn.Linear(8, 24)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LeakyReLU())

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.mix(torch.softmax(q @ k.transpose(-1, -2) * 0.35, -1) @ v)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return made.mean((2, 3))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase] = nn.GRU) -> None:
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(20, 8), kind(8, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.out(self.layer(self.words(ids))[0])
        return made


def case(kind: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if kind == "attention":
        return Attention().to(dtype).eval(), torch.randn(2, 5, 8).to(dtype)
    if kind == "pooled":
        return Pooled().to(dtype).eval(), torch.randn(2, 3, 8, 10).to(dtype)
    return Recurrent().to(dtype).eval(), torch.randint(0, 20, (2, 5))


@pytest.mark.parametrize("kind", ["attention", "pooled", "recurrent"])
@pytest.mark.parametrize(
    ("dtype", "runtime"),
    [(torch.float16, "ONNX Runtime"), (torch.bfloat16, WIDENED), (torch.float64, EVALUATED)],
)
def test_a_float_type_is_kept(kind: str, dtype: torch.dtype, runtime: str, tmp_path: Path) -> None:
    model, x = case(kind, dtype)
    made = anyshape.export(model, x, tmp_path / "model.onnx")
    assert made.verdict.runtime == runtime
    assert any("ONNX Runtime has no kernels" in note for note in made.contract.notes) == (
        dtype != torch.float16
    )
    onnx.checker.check_model(made.model_proto, full_check=True)
    result = anyshape.load(tmp_path / "model.onnx")(x)
    assert result.dtype == dtype
    torch.testing.assert_close(
        result, model(x), atol=4 * torch.finfo(dtype).eps, rtol=4 * torch.finfo(dtype).eps
    )


def test_a_file_in_another_type_is_judged_where_it_runs(tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3).bfloat16(), torch.randn(2, 4).bfloat16()
    anyshape.export(model, x, tmp_path / "model.onnx")
    made = judge(tmp_path / "model.onnx", model, (x,))
    assert made.right and made.verdict.runtime == WIDENED


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            inner = self.norm(self.first(x))
        return inner, inner.float() * x


def test_an_autocast_region_keeps_its_types() -> None:
    made = anyshape.export(Autocast(), torch.randn(3, 8))
    assert [item.dtype for item in made.contract.outputs] == ["bfloat16", "float32"]
    assert [value.dtype for value in made.model.graph.outputs] == [ir.DataType.BFLOAT16, ir.DataType.FLOAT]


class Swapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1) @ torch.ones(8, 3, dtype=x.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_would_end_the_process_is_kept_apart(dtype: torch.dtype) -> None:
    assert anyshape.export(Swapped(), torch.randn(2, 5, 8).to(dtype)).verdict.right


class Overflows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 1000 / 1000


def test_float16_that_overflows_in_pytorch_only_is_refused() -> None:
    with pytest.raises(VerifyFault, match="NaN or infinity in different places"):
        anyshape.export(Overflows(), torch.tensor([[1.0, 2, 100], [3, 4, 5]]).half())


class Integers(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept = torch.where(x > 2, x, x + 1)
        return kept.amax(-1), nn.functional.pad(x, (1, 1)), x.clamp(1, 3) * 100


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_of_every_width(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.arange(15).reshape(3, 5).remainder(7).to(dtype)
    made = anyshape.export(Integers(), x, tmp_path / "model.onnx")
    assert made.verdict.runtime == "ONNX Runtime"
    for one, two in zip(anyshape.load(tmp_path / "model.onnx")(x), Integers()(x), strict=True):
        assert one.dtype == dtype and torch.equal(one, two)


class Widened16(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([x, x], 1), x.to(torch.float32) / 255


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_inputs(dtype: torch.dtype) -> None:
    made = anyshape.export(Widened16(), torch.arange(15).reshape(3, 5).to(dtype))
    assert made.contract.outputs[0].dtype == str(dtype).removeprefix("torch.")


class Truths(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + x[:1], x.amax(-1)


def test_truths_are_added_and_compared() -> None:
    assert anyshape.export(Truths(), torch.tensor([[True, False, True], [False, False, True]])).verdict.right


# --- Integer weights ------------------------------------------------------------------------------------


class ByRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("weight", (weight / self.scale).round().to(torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight.float() * self.scale)


class Whole(ByRow):
    def forward(self, x: Tensor) -> Tensor:
        return x @ (0.01 * self.weight.float()).t()


class Packed(nn.Module):
    """Two weights of four bits in each byte."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("packed", torch.arange(128).reshape(16, 8).to(torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.stack([self.packed & 15, self.packed >> 4], -1).reshape(16, 16)
        return x @ ((pairs.float() - 8) * 0.1)


@pytest.mark.parametrize(
    ("model", "operator"), [(ByRow(), "DequantizeLinear"), (Whole(), "DequantizeLinear"), (Packed(), "Cast")]
)
def test_integer_weights_stay_integers(model: nn.Module, operator: str) -> None:
    width = 16 if isinstance(model, Packed) else 8
    made = anyshape.export(model, torch.randn(3, width))
    weights = [value.const_value for value in made.model.graph.initializers.values()]
    large = [item for item in weights if item is not None and item.size >= 64]
    assert large and all(item.dtype in (ir.DataType.INT8, ir.DataType.UINT8) for item in large)
    assert operator in [node.op_type for node in made.model.graph]


@pytest.mark.filterwarnings("ignore")  # torch.ao is on its way out
@pytest.mark.parametrize(("kind", "name"), [(nn.Linear, "out"), (nn.LSTM, "layer")])
def test_a_packed_module_is_refused_by_its_name(kind: type[nn.Module], name: str) -> None:
    model = torch.ao.quantization.quantize_dynamic(Recurrent(nn.LSTM), {kind}, torch.qint8)
    with pytest.raises(UsageError, match=f"{name} is a quantised {kind.__name__} of torch.ao") as info:
        anyshape.export(model, torch.randint(0, 20, (2, 5)))
    assert "weight \\* scale" in info.value.hint.replace("*", "\\*")


# --- Runtimes that stand in -----------------------------------------------------------------------------


def bfloat16_model(operator: str, *, opset: int = 20) -> ir.Model:
    x = ir.val("x", ir.DataType.BFLOAT16, ["n", 4])
    node = ir.node(operator, [x])
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.BFLOAT16)
    return ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": opset}), ir_version=10)


def test_what_stands_in_for_a_kernel_hides_no_other_fault() -> None:
    assert runtime_of(bfloat16_model("Exp")).name == WIDENED
    with pytest.raises(RuntimeFailure, match="NoSuchOperator"):
        runtime_of(bfloat16_model("NoSuchOperator"))
    with pytest.raises(RuntimeFailure, match="Type 'tensor\\(bfloat16\\)'"):
        runtime_of(bfloat16_model("GlobalAveragePool"))  # which has no bfloat16 in ONNX before version 22


def test_each_result_is_rounded_to_its_type() -> None:
    """1 + 2**-9 is 1 in bfloat16; in float32 the difference would be there after the subtraction."""
    x = ir.val("x", ir.DataType.BFLOAT16, ["n"])
    small, one = (
        ir.Value(name=name, const_value=ir.tensor([number], dtype=ir.DataType.BFLOAT16, name=name))
        for name, number in (("small", 2.0**-9), ("one", 1.0))
    )
    add = ir.node("Add", [x, small])
    less = ir.node("Sub", [add.outputs[0], one])
    add.outputs[0].name = "sum"
    less.outputs[0].name, less.outputs[0].type = "y", x.type
    graph = ir.Graph([x], less.outputs, nodes=[add, less], initializers=[small, one], opset_imports={"": 20})
    (made,) = Widened(ir.Model(graph, ir_version=10)).run(
        {"x": to_numpy(torch.ones(3, dtype=torch.bfloat16))}
    )
    assert (made.astype(np.float32) == 0).all()


def test_a_node_computes_in_another_type_between_casts() -> None:
    model = bfloat16_model("Exp")
    node = model.graph[0]
    in_other_types(node, types_of(model), {ir.DataType.BFLOAT16: ir.DataType.FLOAT})
    assert [item.op_type for item in model.graph] == ["Cast", "Exp", "Cast"]
    assert model.graph.outputs[0].name == "y" and model.graph.outputs[0].dtype == ir.DataType.BFLOAT16


def test_a_stand_in_refuses_in_its_own_name(tmp_path: Path) -> None:
    model, x = case("recurrent", torch.float64)
    anyshape.export(model, x, tmp_path / "model.onnx")
    run = anyshape.load(tmp_path / "model.onnx")
    with pytest.raises(InputError, match=EVALUATED):
        run(torch.full((2, 5), 999))


def test_a_large_weight_is_shared_with_the_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("anyshape.runtimes.onnx_runtime.LARGE", 1)
    layer, x = nn.Linear(8, 4), torch.randn(3, 8)
    made = anyshape.export(layer, x, tmp_path / "model.onnx")  # a batch of 0 runs in a process of its own
    assert made.verdict.right and made.contract.dim("batch").range.minimum == 0
    runtime = OnnxRuntime.of_model(ir.load(tmp_path / "model.onnx"))
    np.testing.assert_allclose(
        runtime.run({"input": x.numpy()})[0], layer(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )
