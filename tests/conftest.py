"""What several test files share: exports that are made once, and short ways to run the first stations."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture import Program, Traces, capture_symbolic, capture_values
from anyshape.capture.tape import Fitter, Played, Tape, functional, merged, play, record, rolled_up
from anyshape.contract.agree import Agreed, agree
from anyshape.contract.contract import Contract
from anyshape.contract.contract import Tensor as TensorOf
from anyshape.contract.declare import declare
from anyshape.dims import Expr
from anyshape.errors import CaptureFault
from anyshape.inputs.case import Case
from anyshape.inputs.read import evaluation_mode, read
from anyshape.lower import lower
from anyshape.lower.operators import translated
from anyshape.probe import probe


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in every test, whichever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def library() -> Callable[[str], Any]:
    """``library("timm")``: the library, or a skipped test. A torchvision without operators gets those it imports."""
    operators: list[torch.library.Library] = []

    def imported(name: str) -> Any:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install 'anyshape[{EXTRAS.get(name, name)}]'")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if importlib.util.find_spec("torchvision") is not None and "torchvision" not in sys.modules:
                try:
                    importlib.import_module("torchvision")
                except RuntimeError:  # built for another PyTorch: its Python is all that is asked for here
                    operators.append(torch.library.Library("torchvision", "DEF"))
                    for operator in ("nms", "qnms"):
                        operators[0].define(
                            f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                        )
            return importlib.import_module(name)

    return imported


EXTRAS = {"transformers": "hf"}


@dataclass(frozen=True)
class Found:
    """A case after the first stations, with its contract in short."""

    case: Case
    agreed: Agreed

    @property
    def contract(self) -> Contract:
        return self.agreed.contract

    @property
    def shapes(self) -> dict[str, str]:
        """Each input's shape as the contract writes it, without the brackets."""
        return {item.name: item.shape_text()[1:-1] for item in self.contract.inputs}

    @property
    def ranges(self) -> dict[str, str]:
        return {dim.name: dim.range.text() for dim in self.contract.dims}


@pytest.fixture(scope="session")
def found() -> Callable[..., Found]:
    """``found(model, args, kwargs, **declared)``: read, probe, declare, agree."""

    def first_stations(
        model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **declared: Any
    ) -> Found:
        torch.manual_seed(0)
        with evaluation_mode(model):
            case = read(
                model,
                args,
                kwargs,
                input_names=declared.pop("input_names", None),
                examples=declared.pop("examples", ()),
            )
            return Found(case, agree(case, declare(case, **declared), probe(case)))

    return first_stations


@pytest.fixture(scope="session")
def line_in() -> Callable[[str, str], int]:
    """``line_in(__file__, text)``: the number of the first line of a file that holds a text."""

    def number_of_line(file: str, text: str) -> int:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)

    return number_of_line


class TwoInputs(nn.Module):
    """Tokens and a mask of one length, with a table of 128 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 12), nn.Embedding(128, 12)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = self.places(torch.arange(tokens.shape[1]))
        return (self.words(tokens) + places) * mask.unsqueeze(-1)


class Nested(nn.Module):
    """A dict of inputs that comes back as another structure."""

    def forward(
        self, batch: dict[str, Any], scale: float = 1.0, *, bias: Tensor | None = None
    ) -> dict[str, Any]:
        text, boxes = batch["text"], batch["boxes"]
        total = text * scale if bias is None else text * scale + bias
        return {
            "text": (total, text.sum(-1)),
            "boxes": [box + 1 for box in boxes],
            "kind": "nested",
            "none": None,
        }


def tokens_and_mask(batch: int = 2, seq: int = 6) -> tuple[Tensor, Tensor]:
    mask = torch.ones(batch, seq, dtype=torch.bool)
    mask[:, -2:] = False
    return torch.randint(0, 50, (batch, seq)), mask


def nested_inputs(batch: int = 2, seq: int = 5, boxes: int = 3) -> dict[str, Any]:
    return {"text": torch.randn(batch, seq), "boxes": [torch.randn(boxes, 4), torch.randn(boxes, 4)]}


@pytest.fixture(scope="session")
def two_inputs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The text model exported with nothing declared: model, export and path."""
    torch.manual_seed(0)
    model, path = TwoInputs(), tmp_path_factory.mktemp("two_inputs") / "model.onnx"
    made = anyshape.export(model, tokens_and_mask(), path)
    return SimpleNamespace(model=model, export=made, path=path, inputs=tokens_and_mask)


@pytest.fixture(scope="session")
def nested(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The model with nested inputs and outputs, exported with nothing declared."""
    torch.manual_seed(0)
    model, path = Nested(), tmp_path_factory.mktemp("nested") / "model.onnx"
    made = anyshape.export(model, (nested_inputs(),), path, kwargs={"scale": 2.0, "bias": torch.randn(2, 5)})
    return SimpleNamespace(model=model, export=made, path=path, inputs=nested_inputs)


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The smallest export."""
    torch.manual_seed(0)
    model, path = nn.Linear(10, 5), tmp_path_factory.mktemp("linear") / "model.onnx"
    made = anyshape.export(model, torch.randn(3, 10), path)
    return SimpleNamespace(model=model, export=made, path=Path(path))


@dataclass(frozen=True)
class Lowered:
    """A case after capture and lower, with the contract's outputs filled in."""

    case: Case
    agreed: Agreed
    program: Program
    contract: Contract
    model: ir.Model


@pytest.fixture(scope="session")
def lowered(found: Callable[..., Found]) -> Callable[..., Lowered]:
    """``lowered(model, args, **declared)``: the stations up to lower, on the first rung that goes."""

    def up_to_lower(model: nn.Module, *args: Any, opset: int | None = None, **declared: Any) -> Lowered:
        first = found(model, *args, **declared)
        with evaluation_mode(model):
            try:
                program = capture_symbolic(first.case, first.agreed, translated())
            except CaptureFault:
                program = capture_values(Traces(first.case, first.agreed, translated()))
        outputs = tuple(
            TensorOf(f"output.{path}", str(tensor.dtype)[len("torch.") :], shape)
            for path, tensor, shape in zip(
                first.case.outputs.paths, first.case.outputs.tensors, program.outputs, strict=True
            )
        )
        contract = replace(first.contract, outputs=outputs)
        return Lowered(first.case, first.agreed, program, contract, lower(program, contract, opset=opset))

    return up_to_lower


def _as_the_tape_says(played: Played) -> None:
    """Each output of a step has the shape that the tape says it has at these sizes."""
    for value, tensor in zip(played.step.outputs, played.outputs, strict=len(played.outputs) > 1):
        if value is not None:
            said = [Expr.of(size).evaluate(played.sizes) for size in value.shape]
            assert said == list(tensor.shape), f"{played.step}: {list(value.shape)} is {list(tensor.shape)}"


@pytest.fixture(scope="session")
def run_tape() -> Callable[..., list[Tensor]]:
    """``run_tape(tape, tensors, sizes)``: what the steps of a tape compute, by PyTorch itself."""

    def run(tape: Tape, tensors: Sequence[Tensor], sizes: Mapping[str, int] | None = None) -> list[Tensor]:
        return play(tape, tensors, sizes, _as_the_tape_says)

    return run


@dataclass(frozen=True)
class Lined:
    """The tapes of a function at several sizes, as the rungs that run a model line them up."""

    function: Callable[..., Any]
    make: Callable[..., tuple[Tensor, ...]]
    names: tuple[str, ...]
    rows: list[dict[str, int]]
    tapes: list[Tape]

    def outputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        made = self.function(*(tensor.clone() for tensor in tensors))
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def rolled(self) -> list[Tape]:
        """All of them with the same steps; each still does what the function does."""
        made = rolled_up(self.tapes)
        for tape, row in zip(made, self.rows, strict=True):
            self.check(tape, row)
        return made

    def merged(self) -> Tape:
        """One tape for all sizes, over the dims by which the inputs' shapes were given."""
        shapes = [tuple(map(_named, shape)) for shape in self.make.shapes]  # type: ignore[attr-defined]
        return merged(rolled_up(self.tapes), Fitter([dict(row) for row in self.rows], self.names), shapes)

    def check(self, tape: Tape, row: Mapping[str, int]) -> None:
        """The tape does at these sizes what the function does, on other values than the recorded ones."""
        torch.manual_seed(7)
        tensors = self.make(**row)
        torch.testing.assert_close(play(tape, tensors, row, _as_the_tape_says), self.outputs(tensors))


def _named(size: int | str) -> int | Expr:
    return Expr.of(size) if isinstance(size, str) else size


@pytest.fixture(scope="session")
def lined() -> Callable[..., Lined]:
    """``lined(function, "b n", {"b": 2, "n": 5}, ...)``: its tapes at these sizes, for inputs of these shapes."""

    def trace(function: Callable[..., Any], text: str, *rows: dict[str, int]) -> Lined:
        shapes = [[int(s) if s.isdigit() else s for s in one.split()] for one in text.split(",")]

        def make(**row: int) -> tuple[Tensor, ...]:
            return tuple(torch.randn([row[s] if isinstance(s, str) else s for s in one]) for one in shapes)

        make.shapes = shapes  # type: ignore[attr-defined]
        made = Lined(function, make, tuple(rows[0]), list(rows), [])
        torch.manual_seed(0)
        for row in rows:
            tape = functional(record(lambda *tensors: made.outputs(tensors), make(**row), {}))
            made.tapes.append(tape.used_only())
        return made

    return trace


class Called(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.fixture(scope="session")
def traces(found: Callable[..., Found]) -> Callable[..., Traces]:
    """``traces(function, "b n", example, dims=...)``: of a function of one tensor."""

    def first_stations(function: Any, text: str = "b, n", *example: int, **declared: Any) -> Traces:
        first = found(Called(function), (torch.randn(example or (3, 6)),), shapes={"x": text}, **declared)
        return Traces(first.case, first.agreed, translated())

    return first_stations
