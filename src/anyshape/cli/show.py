"""``anyshape show``: what an ONNX file promises, and what is in it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyshape.cli.options import Json, Verbose
from anyshape.cli.screen import Screen, bytes_text, contract_json, screen
from anyshape.errors import printable

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["show"]

MOST_OPERATORS = 8
LONGEST_NAME = 200  # a name is anything that the file says
NO_CONTRACT = "There is no contract in this file: it was not exported by anyshape."


def show(
    file: Annotated[str, typer.Argument(metavar="MODEL.onnx")],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the contract of an ONNX file, its weights and its operators."""
    with screen(as_json, verbose) as out:
        from anyshape.artifact.read import contract_of, read_model

        model = read_model(file)
        facts = _facts(file, model)
        contract = contract_of(model)
        if contract is not None:
            out.line(f"{contract}\n")
            out.dim(contract.notes)
            out.dim([f"{dim.name}: {dim.origin}, {dim.evidence}" for dim in contract.dims] if verbose else [])
            if contract.notes or (verbose and contract.dims):
                out.line()
            facts["contract"] = contract_json(contract)
        else:
            facts.update(_what_onnx_says(out, model), contract=None)
        _tell(out, facts, MOST_OPERATORS if not verbose else None)
        out.result(facts)


def _facts(file: str, model: ir.Model) -> dict[str, Any]:
    from anyshape.artifact.write import files_of

    weights = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    nodes = [
        *model.graph.all_nodes(),
        *(node for function in model.functions.values() for node in function.all_nodes()),
    ]
    operators = Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes)
    ours = "anyshape."
    versions = {
        k.removeprefix(ours): v
        for k, v in model.metadata_props.items()
        if k.startswith(ours) and "version" in k
    }
    return {
        "path": file,
        "bytes": sum(map(os.path.getsize, files_of(file))),
        "opset": dict(model.opset_imports),
        "ir_version": model.ir_version,
        "producer": " ".join(part for part in (model.producer_name, model.producer_version) if part),
        "versions": versions,
        "weights": {"count": len(weights), "bytes": sum(weight.nbytes for weight in weights)},
        "nodes": {"count": len(nodes), "operators": dict(operators.most_common())},
    }


def _what_onnx_says(out: Screen, model: ir.Model) -> dict[str, Any]:
    from anyshape.artifact.signature import tensors_of

    inputs, outputs = tensors_of(model)
    rows = [
        (printable(item.name, LONGEST_NAME), item.dtype, printable(item.shape_text(), LONGEST_NAME))
        for item in (*inputs, *outputs)
    ]
    width, kind = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, dtype, shape in rows:
        out.line(f"{name:<{width}}  {dtype:<{kind}}  {shape}")
    out.line(f"\n{NO_CONTRACT}\n")
    tensors = {"inputs": inputs, "outputs": outputs}
    return {
        key: [{"name": item.name, "dtype": item.dtype, "shape": item.shape} for item in items]
        for key, items in tensors.items()
    }


def _tell(out: Screen, facts: dict[str, Any], most: int | None) -> None:
    weights, nodes = facts["weights"], facts["nodes"]
    opsets = ", ".join(
        f"{printable(domain, LONGEST_NAME)} {version}" if domain else str(version)
        for domain, version in facts["opset"].items()
    )
    shown = list(nodes["operators"].items())[:most]
    operators = ", ".join(f"{printable(name, LONGEST_NAME)} {count}" for name, count in shown)
    more = len(nodes["operators"]) - len(shown)
    out.line(f"file      {facts['path']}, {bytes_text(facts['bytes'])}")
    out.line(f"opset     {opsets}")
    out.line(f"weights   {weights['count']}, {bytes_text(weights['bytes'])}")
    out.line(f"nodes     {nodes['count']}: {operators}" + (f" and {more} more" if more else ""))
    if facts["versions"]:
        named = {"version": "anyshape"}
        made = (
            f"{named.get(key, key.removesuffix('_version'))} {value}"
            for key, value in facts["versions"].items()
        )
        out.line("made by   " + printable(", ".join(made), LONGEST_NAME))
    elif facts["producer"]:
        out.line(f"made by   {printable(facts['producer'], LONGEST_NAME)}")
