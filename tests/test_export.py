"""The whole line: what a person does with one call, at sizes that the example did not have."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import anyshape
from anyshape.errors import ContractFault, DeclarationError, FileError, InputError, UsageError, VerifyFault
from anyshape.progress import Progress
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure, to_numpy


def ran(export: anyshape.Export, *inputs: Tensor) -> list[Tensor]:
    """The exported model's outputs, straight from ONNX Runtime."""
    runtime = OnnxRuntime.of_model(export.model)
    feed = {name: to_numpy(tensor) for name, tensor in zip(runtime.input_names, inputs, strict=True)}
    return [torch.from_numpy(np.asarray(array)) for array in runtime.run(feed)]


def shapes(export: anyshape.Export) -> dict[str, str]:
    return {
        item.name: item.shape_text()[1:-1] for item in (*export.contract.inputs, *export.contract.outputs)
    }


# The textbook models -----------------------------------------------------------------------------------------------


class LastState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(10, 20, batch_first=True)
        self.head = nn.Linear(20, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, hidden = self.rnn(x)
        return self.head(hidden[-1])


class Reshapes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, 2) + 1


TEXTBOOK = {
    "linear": (lambda: nn.Linear(10, 5), (3, 10), {0: "batch"}, [(1, 10), (64, 10)]),
    "rnn": (LastState, (2, 5, 10), {0: "batch", 1: "seq"}, [(1, 1, 10), (7, 33, 10)]),
    "reshape": (Reshapes, (2, 6), {0: "batch"}, [(1, 6), (9, 6)]),
}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_textbook_models_with_nothing_declared(name: str) -> None:
    make, example, axes, unseen = TEXTBOOK[name]
    model = make()  # type: ignore[no-untyped-call]
    export = anyshape.export(model, torch.randn(example))
    for shape in unseen:
        x = torch.randn(shape)
        torch.testing.assert_close(ran(export, x)[0], model(x))
    found = export.contract.inputs[0].shape
    assert all(found[axis].constant is None for axis in axes)


@pytest.mark.parametrize("name", TEXTBOOK)
def test_textbook_models_with_the_classic_arguments(name: str, tmp_path: Path) -> None:
    make, example, axes, unseen = TEXTBOOK[name]
    model, path = make(), str(tmp_path / "model.onnx")  # type: ignore[no-untyped-call]
    export = anyshape.export(
        model,
        torch.randn(example),
        path,
        export_params=True,
        opset_version=20,
        do_constant_folding=True,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": axes, "output": {0: "batch"}},
    )
    assert export.path == path and onnx.load(path).opset_import[0].version == 20
    session = onnxruntime.InferenceSession(path)
    assert [item.name for item in (*session.get_inputs(), *session.get_outputs())] == ["input", "output"]
    given = session.get_inputs()[0].shape
    assert [given[axis] for axis in axes] == list(axes.values())
    for shape in unseen:
        x = torch.randn(shape)
        (got,) = session.run(None, {"input": x.numpy()})
        np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


# Declaring ---------------------------------------------------------------------------------------------------------


class Pairs(nn.Module):
    def forward(self, x: Tensor, others: dict[str, list[Tensor]]) -> Tensor:
        y, z = others["pair"]
        return torch.cat([x, x], 1) * y + z


def pairs(batch: int = 2, n: int = 3) -> tuple[Any, ...]:
    return torch.randn(batch, n), {"pair": [torch.randn(batch, 2 * n), torch.randn(batch, 2 * n)]}


n = Dim("n", min=2, max=50)
batch = Dim("batch")


@pytest.mark.parametrize(
    ("declared", "expected", "ranges"),
    [
        (
            {"dynamic_shapes": ({0: batch, 1: n}, {"pair": [{0: batch, 1: 2 * n}, {0: batch, 1: 2 * n}]})},
            ["batch, n", "batch, 2*n", "batch, 2*n"],
            {"n": "2..50"},
        ),
        (
            {
                "dynamic_shapes": {
                    "x": {0: "rows", 1: Dim.AUTO},
                    "others": {"pair": [("rows", Dim.AUTO), ("rows", Dim.AUTO)]},
                }
            },
            ["rows, x_1", "rows, 2*x_1", "rows, 2*x_1"],
            {},
        ),
        (
            {
                "dynamic_shapes": (
                    (Dim.DYNAMIC, 3),
                    {"pair": [{0: Dim.DYNAMIC, 1: None}, (Dim.DYNAMIC, Dim.STATIC)]},
                )
            },
            ["batch, 3", "batch, 6", "batch, 6"],
            {},
        ),
        (
            {"shapes": {"x": "rows, n", "others.pair.*": "rows, 2*n"}, "dims": {"n": "2..50"}},
            ["rows, n", "rows, 2*n", "rows, 2*n"],
            {"n": "2..50"},
        ),
        ({"shapes": {"x": [None, 3]}}, ["batch, 3", "batch, 6", "batch, 6"], {}),
        (
            {"dynamic_axes": {"x": [0], "others.pair.0": [0], "others.pair.1": {0: "rows"}}},
            ["rows, 3", "rows, 6", "rows, 6"],
            {},
        ),
    ],
    ids=["Dims", "strings and AUTO", "hints and ints", "patterns", "None in a shape", "axes"],
)
def test_every_way_to_declare(declared: dict[str, Any], expected: list[str], ranges: dict[str, str]) -> None:
    export = anyshape.export(Pairs(), pairs(), **declared)
    assert list(shapes(export).values())[:3] == expected
    for name, text in ranges.items():
        assert export.contract.ranges[name].text() == text
    size = 4 if "n" in "".join(expected[0].split(", ")[1:]) or "x_1" in expected[0] else 3
    x, others = pairs(5, size)
    torch.testing.assert_close(ran(export, x, *others["pair"])[0], Pairs()(x, others))


def test_a_declared_size_that_pytorch_refuses_is_a_fault_and_no_static_dim() -> None:
    with pytest.raises(
        ContractFault, match="input axis 1 is declared features, but PyTorch runs only at 10 there"
    ):
        anyshape.export(nn.Linear(10, 5), torch.randn(3, 10), shapes={"input": "batch, features"})


def test_two_ways_at_once() -> None:
    with pytest.raises(DeclarationError, match="shapes and dynamic_axes are both given"):
        anyshape.export(
            nn.Linear(10, 5), torch.randn(3, 10), shapes={"input": "b, 10"}, dynamic_axes={"input": {0: "b"}}
        )


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 8:  # the branch
            return x[:, :8] * 2
        return x + 1


def test_a_branch_within_a_declared_range_is_right() -> None:
    export = anyshape.export(Branch(), torch.randn(2, 6), shapes={"x": "batch, seq"}, dims={"seq": "1..8"})
    x = torch.randn(4, 8)
    torch.testing.assert_close(ran(export, x)[0], Branch()(x))


# Models ------------------------------------------------------------------------------------------------------------


def test_an_exported_program_as_the_model() -> None:
    model = nn.Linear(10, 5).eval()
    program = torch.export.export(model, (torch.randn(3, 10),), dynamic_shapes=({0: Dim("rows")},))
    export = anyshape.export(program, (torch.randn(3, 10),))
    x = torch.randn(17, 10)
    torch.testing.assert_close(ran(export, x)[0], model(x))


class WritesInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        x[:, 0] = 0
        return x * 2


def test_a_model_that_writes_to_its_input() -> None:
    example = torch.randn(2, 4)
    before = example.clone()
    export = anyshape.export(WritesInput(), example)
    assert torch.equal(example, before)
    x = torch.randn(5, 4)
    torch.testing.assert_close(ran(export, x)[0], WritesInput()(x.clone()))


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.norm(x) + 1


@pytest.fixture(scope="module")
def remembers() -> SimpleNamespace:
    torch.manual_seed(0)
    model = Remembers().train()
    model.norm.eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return SimpleNamespace(model=model, state=state, export=anyshape.export(model, torch.randn(3, 4)))


def test_a_model_that_counts_its_calls_is_exported(
    remembers: SimpleNamespace,
) -> None:
    x = torch.randn(6, 4)
    (got,) = ran(remembers.export, x)
    torch.testing.assert_close(got, x / np.sqrt(1 + remembers.model.norm.eps) + 1)


def test_buffers_and_modes_are_as_before(remembers: SimpleNamespace) -> None:
    assert remembers.model.training and not remembers.model.norm.training
    assert all(
        torch.equal(value, remembers.state[name]) for name, value in remembers.model.state_dict().items()
    )


def test_dropout_is_off_in_the_file() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9)).train()
    export = anyshape.export(model, torch.randn(3, 4))
    assert model.training and model[1].training
    x = torch.randn(5, 4)
    torch.testing.assert_close(ran(export, x)[0], model.eval()(x))


class Odd(nn.Module):
    """Inputs that are unused, outputs that are inputs, and one output twice."""

    def forward(
        self, b: Tensor, a: dict[str, Tensor], *rest: Tensor, unused: Tensor, flag: bool = False
    ) -> Any:
        total = b + a["z"] + a["y"]
        return {"same": b, "twice": [total, total], "rest": rest[0] if flag else rest[1]}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("odd") / "odd.onnx"
    args = (torch.randn(3), {"z": torch.randn(3), "y": torch.randn(3)}, torch.randn(2), torch.randn(4))
    export = anyshape.export(Odd(), args, path, kwargs={"unused": torch.randn(5, 2), "flag": True})
    return SimpleNamespace(export=export, path=path)


def test_every_tensor_is_an_input_in_the_order_of_the_inputs(odd: SimpleNamespace) -> None:
    names = [value.name for value in odd.export.model.graph.inputs]
    assert names == ["b", "a.z", "a.y", "rest.0", "rest.1", "unused"]


def test_outputs_that_are_inputs_or_given_twice(odd: SimpleNamespace) -> None:
    names = [value.name for value in odd.export.model.graph.outputs]
    assert len(set(names)) == 4 and not set(names) & {"b"}
    args = (torch.randn(6), {"z": torch.randn(6), "y": torch.randn(6)}, torch.randn(1), torch.randn(7))
    unused = torch.randn(1, 2)
    got = anyshape.load(odd.path)(*args, unused=unused)
    expected = Odd()(*args, unused=unused, flag=True)
    torch.testing.assert_close(got, expected)


def test_constants_are_said_in_the_contract(odd: SimpleNamespace) -> None:
    assert odd.export.contract.constants == (("flag", "True"),)
    assert "flag = True (constant)" in str(odd.export.contract)


# The file ----------------------------------------------------------------------------------------------------------


def test_a_buffer_as_the_file(linear: SimpleNamespace) -> None:
    target = io.BytesIO()
    export = anyshape.export(linear.model, torch.randn(3, 10), target)
    assert export.path is None
    session = onnxruntime.InferenceSession(target.getvalue())
    assert session.run(None, {"input": np.ones((7, 10), np.float32)})[0].shape == (7, 5)


def test_weights_beside_the_file_and_a_report(tmp_path: Path) -> None:
    model = nn.Linear(100, 5)
    anyshape.export(
        model,
        torch.randn(3, 100),
        tmp_path / "m.onnx",
        external_data=True,
        report=True,
        artifacts_dir=tmp_path,
    )
    assert sorted(item.name for item in tmp_path.iterdir()) == ["anyshape_report.md", "m.onnx", "m.onnx.data"]
    assert "[batch, 100]" in (tmp_path / "anyshape_report.md").read_text(encoding="utf-8")
    x = torch.randn(7, 100)
    torch.testing.assert_close(anyshape.load(tmp_path / "m.onnx")(x), model(x))


def test_an_existing_file_is_untouched_by_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"precious")
    with pytest.raises(anyshape.Fault):
        anyshape.export(nn.Linear(10, 5), torch.randn(3, 10), path, shapes={"input": "batch, features"})
    assert path.read_bytes() == b"precious" and len(list(tmp_path.iterdir())) == 1


def test_a_path_that_cant_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    class Never(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            pytest.fail("the model was run")

    with pytest.raises(FileError, match="does not exist"):
        anyshape.export(Never(), torch.randn(3), tmp_path / "no" / "model.onnx")


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(UsageError, match=r"export\(\) has no argument 'dynamic_axis'"):
        anyshape.export(nn.Linear(10, 5), torch.randn(3, 10), dynamic_axis={})


# What comes back ---------------------------------------------------------------------------------------------------


def test_the_export_tells_what_it_did(two_inputs: SimpleNamespace) -> None:
    export = two_inputs.export
    assert export.path == str(two_inputs.path) and export.rung == "differential"
    assert export.verdict.right and len(export.verdict.tried) >= 30
    assert {"read", "probe", "agree", "capture", "lower", "optimize", "verify"} <= export.seconds.keys()
    assert all(seconds >= 0 for seconds in export.seconds.values())
    assert export.model_proto.graph.input[0].name == "tokens"


def test_a_proof_is_made_when_it_is_asked_for(two_inputs: SimpleNamespace) -> None:
    plain = two_inputs.export
    assert {dim.evidence for dim in plain.contract.dims} == {"sampled"} and plain.verdict.proved == ()
    proved = anyshape.export(two_inputs.model, two_inputs.inputs(2, 6), prove=True)
    assert proved.rung == proved.contract.rung == "symbolic"
    assert {dim.evidence for dim in proved.contract.dims} == {"proved"}
    assert [text for text in proved.verdict.proved if "holds at every size of the contract" in text]
    assert proved.verdict.right and shapes(proved) == shapes(plain)  # the numbers are compared all the same


def test_where_the_model_parts_a_proof_that_is_asked_for_is_none() -> None:
    class Parts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin() if x.shape[1] > 8 else x.cos()

    made = anyshape.export(Parts(), torch.randn(2, 6), prove=True)
    assert made.rung == "regions" and made.verdict.proved == ()
    assert {dim.evidence for dim in made.contract.dims} == {"sampled"}


def test_the_contract_of_the_text_model(two_inputs: SimpleNamespace) -> None:
    assert shapes(two_inputs.export) == {
        "tokens": "batch, seq",
        "mask": "batch, seq",
        "output": "batch, seq, 12",
    }
    assert two_inputs.export.contract.ranges["seq"].maximum == 128
    assert {0, 1, 128} & {sizes["seq"] for sizes in two_inputs.export.verdict.sizes} >= {1, 128}


def test_dims_are_named_on_inputs_and_outputs_of_the_file(two_inputs: SimpleNamespace) -> None:
    graph = onnx.load(two_inputs.path).graph
    named = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert named == {"tokens": ["batch", "seq"], "mask": ["batch", "seq"], "output": ["batch", "seq", 12]}


def test_progress_by_station(linear: SimpleNamespace) -> None:
    done: list[tuple[str, str]] = []
    told = Progress(done=lambda station, text: done.append((station, text)))
    anyshape.export(linear.model, torch.randn(3, 10), progress=told)
    stations = [station for station, _ in done]
    assert stations == ["read", "probe", "capture", "lower", "optimize", "verify"]
    assert dict(done)["read"] == "1 input, 1 output, 55 parameters"
    assert "sizes on ONNX Runtime" in dict(done)["verify"]


def test_verbose_prints_the_stations(linear: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    anyshape.export(linear.model, torch.randn(3, 10), verbose=True)
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == [
        "read", "probe", "capture", "lower", "optimize", "verify",
    ]  # fmt: skip


def test_without_optimization(linear: SimpleNamespace) -> None:
    done: list[str] = []
    told = Progress(done=lambda station, text: done.append(station))
    export = anyshape.export(linear.model, torch.randn(3, 10), optimize=False, progress=told)
    assert "optimize" not in done and export.verdict.right


def test_a_cache_in_a_list_of_tuples(tmp_path: Path) -> None:
    class Step(nn.Module):
        def forward(
            self, x: Tensor, past: list[tuple[Tensor, Tensor]]
        ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
            grown = [(torch.cat([k, x], 1), torch.cat([v, x], 1)) for k, v in past]
            return sum(k.sum(1) for k, _ in grown), grown  # type: ignore[return-value]

    def inputs(batch: int, seq: int, past: int) -> tuple[Any, ...]:
        layers = [(torch.randn(batch, past, 4), torch.randn(batch, past, 4)) for _ in range(2)]
        return torch.randn(batch, seq, 4), layers

    export = anyshape.export(Step(), inputs(2, 3, 5), tmp_path / "step.onnx")
    grown = shapes(export)["output.1.0.0"].split(", ")
    assert grown[0] == "batch" and "+" in grown[1]
    given = inputs(3, 1, 9)
    got = anyshape.load(tmp_path / "step.onnx")(*given)
    assert isinstance(got, tuple) and isinstance(got[1], list) and isinstance(got[1][0], tuple)
    torch.testing.assert_close(got, Step()(*given))


def test_a_graph_with_edges(tmp_path: Path) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            source, target = edge_index
            return torch.zeros_like(x).index_add(0, target, self.linear(x)[source])

    model = Graph()
    export = anyshape.export(model, (torch.randn(5, 6), torch.tensor([[0, 1, 2, 4], [1, 2, 3, 0]])))
    assert shapes(export) == {"x": "nodes, 6", "edge_index": "2, edges", "output": "nodes, 6"}
    x, edges = torch.randn(40, 6), torch.randint(0, 40, (2, 90))
    torch.testing.assert_close(ran(export, x, edges)[0], model(x, edges))


def test_the_tokens_of_a_grid_and_its_sides(tmp_path: Path) -> None:
    class OnGrid(nn.Module):
        def forward(self, tokens: Tensor, table: Tensor) -> Tensor:
            side = table.shape[0]
            return tokens.view(tokens.shape[0], side, side, 5) + table

    model = OnGrid()
    export = anyshape.export(model, (torch.randn(2, 16, 5), torch.randn(4, 4, 5)), tmp_path / "grid.onnx")
    assert shapes(export)["tokens"] == "batch, grid**2, 5" and shapes(export)["table"] == "grid, grid, 5"
    loaded = anyshape.load(tmp_path / "grid.onnx")
    given = torch.randn(3, 49, 5), torch.randn(7, 7, 5)
    torch.testing.assert_close(loaded(*given), model(*given))
    with pytest.raises(InputError, match=r"grid\*\*2 is 50 in tokens, but grid = 7 makes 49"):
        loaded(torch.randn(3, 50, 5), given[1])


# What goes wrong on the way ----------------------------------------------------------------------------------------


def test_a_wrong_translation_never_leaves_the_house(tmp_path: Path) -> None:
    from onnxscript import opset20 as op

    def negated(self: Any) -> Any:
        return op.Neg(self)

    table = {torch.ops.aten.relu.default: negated}
    with pytest.raises(VerifyFault, match="the exported model would be wrong at batch = 1") as info:
        anyshape.export(
            nn.ReLU(),
            torch.randn(4),
            tmp_path / "relu.onnx",
            opset_version=20,
            custom_translation_table=table,
            shapes={"input": "batch"},
        )
    assert info.value.hint.startswith(
        "aten.relu.default is translated wrongly by custom_translation_table (node "
    )
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_the_runtime_cant_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Any) -> OnnxRuntime:
        raise RuntimeFailure("NotImplemented: no kernel for Nonsense(20)")

    monkeypatch.setattr(OnnxRuntime, "of_model", refuse)
    with pytest.raises(
        VerifyFault, match="ONNX Runtime can't load the model: NotImplemented: no kernel for Nonsense"
    ):
        anyshape.export(nn.ReLU(), torch.randn(4))


def test_inputs_made_by_the_user() -> None:
    made: list[dict[str, int]] = []

    def make(sizes: dict[str, int]) -> tuple[Any, dict[str, Any]]:
        made.append(sizes)
        return (torch.arange(float(sizes["n"])),), {}

    export = anyshape.export(nn.ReLU(), torch.arange(6.0), shapes={"input": "n"}, make_inputs=make)
    assert export.verdict.right
    assert all(sizes in made for sizes in export.verdict.sizes)
