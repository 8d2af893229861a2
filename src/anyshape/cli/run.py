"""``anyshape run``: an exported file at given sizes, on inputs made by its own contract."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyshape.cli.options import Json, Verbose, read_sizes
from anyshape.cli.screen import Screen, screen
from anyshape.errors import Fault, FileError, UsageError, printable

if TYPE_CHECKING:
    from anyshape.contract.contract import Contract

__all__ = ["run"]

MOST_ELEMENTS = 2**28


def run(
    file: Annotated[str, typer.Argument(metavar="MODEL.onnx")],
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE,…", help="Sizes: batch=4,seq=9.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For the values of the inputs.")] = 0,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run an exported file at given sizes, on made-up inputs; sizes left out are the example's."""
    with screen(as_json, verbose) as out:
        given = read_sizes(size)
        contract = _contract(file)
        sizes = _all_sizes(contract, given)
        outputs = [_digest(name, array) for name, array in _outputs(file, contract, sizes, seed)]
        _tell(out, sizes, seed, outputs)
        out.result({"sizes": sizes, "seed": seed, "outputs": outputs})


def _contract(file: str) -> Contract:
    from anyshape.artifact.read import contract_of, read_model
    from anyshape.runtimes.pieces import check_kernels

    model = read_model(file)
    check_kernels(model, file)
    contract = contract_of(model)
    if contract is None:
        raise FileError(
            f"{file} carries no contract: it was not exported by anyshape, so no inputs can be made for it",
            hint="Export the model with anyshape first.",
        )
    return contract


def _all_sizes(contract: Contract, given: Mapping[str, int]) -> dict[str, int]:
    """The given sizes and the example's others, within the contract."""
    known = list(contract.example)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UsageError(f"there is no dim {unknown[0]}", hint=f"The dims are: {', '.join(known) or 'none'}.")
    sizes = {**contract.example, **given}
    for dim in contract.dims:
        if not dim.range.contains(sizes[dim.name]):
            reason = f" ({dim.reason})" if dim.reason else ""
            raise UsageError(f"{dim.name} is {sizes[dim.name]}, outside {dim.text()}{reason}")
    broken = contract.broken(sizes)
    if broken is not None:
        at = ", ".join(f"{name} = {sizes[name]}" for name in sorted(broken.names))
        raise UsageError(f"{broken} does not hold: {at}", hint="Sizes left out are the example's.")
    return sizes


def _outputs(file: str, contract: Contract, sizes: dict[str, int], seed: int) -> list[tuple[str, Any]]:
    import numpy as np
    import torch

    from anyshape.artifact.read import read_model
    from anyshape.inputs.values import make_tensor, rule_from_json
    from anyshape.runtimes.choose import only_evaluated, runtime_of_file
    from anyshape.runtimes.onnx_runtime import RuntimeFailure, to_numpy

    runtime = runtime_of_file(file, evaluated=only_evaluated(read_model(file)))
    generator = np.random.default_rng(seed)
    feed = {}
    for item, shape in zip(contract.inputs, _shapes(contract, sizes), strict=True):
        rule = rule_from_json(dict(item.values))
        feed[item.name] = to_numpy(make_tensor(rule, shape, getattr(torch, item.dtype), sizes, generator))
    try:
        return list(zip(runtime.output_names, runtime.run(feed), strict=True))
    except RuntimeFailure as failure:
        raise Fault(f"{runtime.name} fails at {_sizes(sizes)}: {failure}") from failure


def _shapes(contract: Contract, sizes: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """The inputs' shapes, if these sizes make any, and such as can be made here."""
    try:
        shapes = contract.shapes(sizes)
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f"the inputs have no shape at {_sizes(sizes)}: {error}") from None
    for item, shape in zip(contract.inputs, shapes, strict=True):
        if any(size < 0 for size in shape):
            raise UsageError(f"{item.name} would have the shape {list(shape)} at {_sizes(sizes)}")
        if math.prod(shape) > MOST_ELEMENTS:
            raise UsageError(
                f"{item.name} would have {math.prod(shape)} elements at {_sizes(sizes)}: too many to make up",
                hint="Give smaller sizes with --size.",
            )
    return shapes


def _digest(name: str, array: Any) -> dict[str, Any]:
    import numpy as np

    made: dict[str, Any] = {
        "name": printable(name, 200),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }
    if array.size and array.dtype.kind not in "OSU" and not np.iscomplexobj(array):
        values = array.astype(np.float64)
        made |= {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())}
    return made | {"sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]}


def _tell(out: Screen, sizes: Mapping[str, int], seed: int, outputs: list[dict[str, Any]]) -> None:
    out.line(f"{_sizes(sizes) or 'no dims'}, seed {seed}\n")
    rows = [(item["name"], item["dtype"], str(item["shape"]), _values(item)) for item in outputs]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        out.line("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _values(item: Mapping[str, Any]) -> str:
    numbers = [f"{key} {item[key]:.4g}" for key in ("mean", "min", "max") if key in item]
    return "  ".join([*numbers, f"sha256 {item['sha256']}"])


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
