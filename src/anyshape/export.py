"""export: the line from a module and one example to a verified ONNX file."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import torch

from anyshape.artifact import write as artifact
from anyshape.artifact.report import write_report
from anyshape.contract.agree import agree
from anyshape.contract.contract import Contract, Rung
from anyshape.inputs.names import check_output_names, given_names
from anyshape.inputs.options import check_opset, check_torch_options
from anyshape.inputs.weights import with_weights
from anyshape.ladder.attempt import Settings, repaired
from anyshape.ladder.climb import climb
from anyshape.lower.custom import translations_of
from anyshape.progress import Progress
from anyshape.repair import Repair
from anyshape.understand import understand
from anyshape.verify.verdict import Verdict

__all__ = ["Export", "export"]


@dataclass(frozen=True, slots=True)
class Export:
    """A verified ONNX model: its contract, the verdict, and the file if one was written."""

    model: ir.Model
    contract: Contract
    verdict: Verdict
    rung: Rung
    path: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)  # for each station
    repairs: tuple[Repair, ...] = ()  # numbers in the source that were taken from the inputs instead

    def save(self, path: str | os.PathLike[str], *, external_data: bool | str | None = None) -> str:
        """Write the model to a file, whole or not at all; the path."""
        return artifact.save(self.model, path, external_data=external_data)

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model as protobuf."""
        return ir.to_proto(self.model)


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: Any = (),
    f: str | os.PathLike[str] | Any | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    examples: Sequence[Any] = (),
    make_inputs: Callable[[dict[str, int]], Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    external_data: bool | str | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    repair: bool = False,
    prove: bool = False,
    report: bool = False,
    optimize: bool = True,
    do_constant_folding: bool = True,
    artifacts_dir: str | os.PathLike[str] = ".",
    progress: Progress | None = None,
    **torch_options: Any,
) -> Export:
    """Turn a module into an ONNX model that is right at every size PyTorch accepts, or raise a `Fault`.

    >>> import torch
    >>> made = export(torch.nn.Linear(10, 5), torch.randn(3, 10))
    >>> print(made.contract)
    input   float32  [batch, 10]  batch ≥ 0
    output  float32  [batch, 5]

    ``shapes`` and ``dims`` declare what would else be found; ``examples`` and ``make_inputs`` help where one example
    is not enough. ``weights`` is a folder with those of a model on the meta device, by the names of its state_dict.
    With ``repair``, sizes that are written into the source are taken from the inputs instead; with
    ``prove``, PyTorch traces the model with symbolic sizes first, and what follows from its guards is proved. The other
    arguments are torch.onnx.export's; there is no way to leave verification out, as the promise rests on it.
    """
    notes = check_torch_options(torch_options)
    told = progress or _printing(verbose)
    artifact.check_target(f)
    artifact.check_external_data(external_data)
    if weights is not None:
        model = with_weights(model, weights)
    names = given_names("output_names", output_names) if output_names is not None else []
    settings = Settings(
        tuple(names),
        check_opset(opset_version),
        translations_of(custom_translation_table),
        optimize and do_constant_folding,
        prove,
    )
    with understand(
        model,
        args,
        kwargs,
        told,
        shapes=shapes,
        dims=dims,
        dynamic_axes=dynamic_axes,
        dynamic_shapes=dynamic_shapes,
        input_names=input_names,
        examples=examples,
        make_inputs=make_inputs,
        repair=repair,
        look=lambda case: check_output_names(case, names),
    ) as known:
        with told.station("agree"):
            agreed = agree(known.case, known.declared, known.evidence, notes)
        made = repaired(climb(known.case, agreed, settings, told), known.repairs)
    told.done("verify", str(made.verdict))
    artifact.attach(made.model, made.contract, _versions())
    exported = Export(
        made.model,
        made.contract,
        made.verdict,
        made.program.rung,
        _written(made.model, f, external_data),
        told.seconds,
        known.repairs,
    )
    if report:
        write_report(exported, artifacts_dir)
    return exported


def _written(model: ir.Model, f: Any, external_data: bool | str | None) -> str | None:
    if f is None:
        return None
    if hasattr(f, "write"):
        artifact.write_to(f, ir.to_proto(model).SerializeToString())
        return None
    return artifact.save(model, f, external_data=external_data)


def _versions() -> dict[str, str]:
    names = {"version": "anyshape", "torch_version": "torch", "onnxscript_version": "onnxscript"}
    return {key: importlib.metadata.version(name) for key, name in names.items()}


def _printing(verbose: bool | None) -> Progress:
    if not verbose:
        return Progress()
    return Progress(done=lambda station, text: print(f"  {station:<9} {text}"))
