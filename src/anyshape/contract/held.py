"""Held: an agreement restricted to what an ONNX file says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Contract, Dim
from anyshape.dims import Expr, Mismatch, Range, Relation, bind
from anyshape.errors import VerifyFault

__all__ = ["Held", "held_to_contract", "held_to_file"]

Shape = tuple[int | str | None, ...] | None  # as a file declares it; None is unknown


@dataclass(frozen=True, slots=True)
class Held:
    agreed: Agreed
    remarks: tuple[str, ...] = ()


def held_to_file(agreed: Agreed, shapes: Sequence[Shape], demanded: frozenset[str]) -> Held:
    """Axes at which the file has a number are tried at that number only."""
    held = Held(agreed)
    for item, shape in zip(agreed.contract.inputs, shapes, strict=True):
        if shape is None or len(shape) != len(item.shape):
            continue
        for axis, (size, expression) in enumerate(zip(shape, item.shape, strict=True)):
            if not isinstance(size, int) or expression is None or not expression.names - demanded:
                continue
            held = _fixed(held, expression, size, f"axis {axis} of {item.name}")
    return held


def _fixed(held: Held, expression: Expr, size: int, place: str) -> Held:
    contract = held.agreed.contract
    remarks = (*held.remarks, f"the file is fixed at {size} on {place}, PyTorch also accepts other sizes")
    if len(expression.names) > 1:
        relation = Relation(expression, "==", Expr.of(size))
        made = replace(contract, relations=(*contract.relations, relation))
        return Held(replace(held.agreed, contract=made), remarks)
    (name,) = expression.names
    dim = contract.dim(name)
    try:
        value = bind([(place, [expression], [size])])[name]
    except Mismatch:
        value = -1
    if not dim.range.contains(value):
        raise VerifyFault(
            f"the file is fixed at {size} on {place}, but PyTorch has {expression} there, {dim.text()}"
        )
    if dim.range.minimum == dim.range.maximum:
        return held
    fixed = replace(dim, range=Range(value, value), example=value, reason="the file is fixed there")
    return Held(_with_dim(held.agreed, fixed), remarks)


def _with_dim(agreed: Agreed, dim: Dim) -> Agreed:
    dims = tuple(dim if old.name == dim.name else old for old in agreed.contract.dims)
    size = agreed.generic[dim.name]
    generic = {**agreed.generic, dim.name: size if dim.range.contains(size) else dim.example}
    return replace(agreed, contract=replace(agreed.contract, dims=dims), generic=generic)


def held_to_contract(held: Held, contract: Contract | None, demanded: frozenset[str]) -> Held:
    """A file of ours is tried where its contract says; another's is not tried at 0, which few exporters mean."""
    agreed = held.agreed
    for dim in agreed.contract.dims:
        if dim.name in demanded:
            continue
        limits = contract.ranges.get(dim.name, Range(0)) if contract is not None else Range(1)
        met = dim.range.intersect(limits)
        if met is not None:
            example = dim.example if met.contains(dim.example) else met.minimum
            agreed = _with_dim(agreed, replace(dim, range=met, example=example))
    if contract is not None:
        known = {dim.name for dim in agreed.contract.dims}
        more = tuple(r for r in contract.relations if r.names <= known and r not in agreed.contract.relations)
        agreed = replace(
            agreed, contract=replace(agreed.contract, relations=(*agreed.contract.relations, *more))
        )
    return replace(held, agreed=agreed)
