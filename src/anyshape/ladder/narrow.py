"""narrow: a contract without the sizes that failed, where nobody declared them. The contract says so.

Three things are left out this way: sizes of 0 and 1, where runtimes and PyTorch part ways most often; what lies
beyond a guard of the trace; and all sizes below the first that is right. The file itself then refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anyshape.capture.program import Guard, Limit, Program
from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Dim
from anyshape.dims import Expr, Range, Relation
from anyshape.dims.expr import Call
from anyshape.errors import CaptureFault
from anyshape.verify.verdict import Row, Verdict

__all__ = ["limited", "narrowed", "without_smallest"]

Narrowed = tuple[Agreed, list[Relation]]


def narrowed(agreed: Agreed, program: Program, verdict: Verdict) -> Narrowed | None:
    """The contract without the sizes that failed, and the relations that the file must enforce; None if it can't be."""
    return (
        _one_side(agreed, program, verdict)
        or without_smallest(agreed, verdict, 1)
        or _from_above(agreed, verdict)
    )


def limited(agreed: Agreed, limits: Sequence[Limit]) -> Narrowed:
    """The contract up to where a program was captured; `CaptureFault` if it must not end there."""
    contract = agreed.contract
    declared = {dim.name for dim in contract.dims if dim.origin == "declared"}
    relations: dict[Relation, None] = {}
    notes = []
    for limit in limits:
        if limit.relation in relations:
            continue
        if not limit.relation.holds(contract.example) or limit.relation.names & declared:
            raise CaptureFault(
                f"{limit.why}: {limit.relation}",
                where=limit.where,
                hint="Declare a smaller range for the dims that choose the way.",
            )
        where = f" ({limit.where.file}:{limit.where.line})" if limit.where else ""
        notes.append(f"narrowed to {limit.relation}{where}: {limit.why}")
        relations[limit.relation] = None
    # What no contract has words for, the file refuses all the same, and the note says where.
    spoken = (relation for relation in relations if not _has_formula(relation))
    made = replace(contract, relations=(*contract.relations, *spoken), notes=(*contract.notes, *notes))
    return replace(agreed, contract=made), list(relations)


def _has_formula(relation: Relation) -> bool:
    """Whether a relation says what no contract has words for."""
    atoms = (atom for side in (relation.left, relation.right) for term, _ in side.terms for atom, _ in term)
    return any(isinstance(atom, Call) and atom.formula is not None for atom in atoms)


def without_smallest(agreed: Agreed, verdict: Verdict, size: int) -> Narrowed | None:
    """Every failure has a dim at ``size``, its smallest: those dims start above it."""
    contract = agreed.contract
    able = {
        dim.name
        for dim in contract.dims
        if dim.range.minimum == size and dim.range.maximum != size and _may_lose(agreed, dim, size)
    }
    names: set[str] = set()
    # A failure with one dim at this size tells which dim it is: those first.
    for row in sorted(verdict.failures, key=lambda row: len(_at(row, size, able))):
        there = _at(row, size, able)
        if not there:
            return None
        if not names & set(there):
            names.add(there[0])
    dims = tuple(_above(dim, size) if dim.name in names else dim for dim in contract.dims)
    notes = [
        f"{name} = {size} is left out: PyTorch accepts it, the exported model does not"
        for name in sorted(names)
    ]
    made = replace(contract, dims=dims, notes=(*contract.notes, *notes))
    relations = [Relation(Expr.of(size + 1), "<=", Expr.of(name)) for name in sorted(names)]
    generic = {name: max(here, size + 1) if name in names else here for name, here in agreed.generic.items()}
    return replace(agreed, contract=made, generic=generic), relations


def _may_lose(agreed: Agreed, dim: Dim, size: int) -> bool:
    """0 may go unless the user's own range holds it; 1 only where the user did not declare the dim at all."""
    return dim.name not in agreed.explicit and (size == 0 or dim.origin != "declared")


def _at(row: Row, size: int, able: set[str]) -> list[str]:
    return [name for name, value in row.sizes.items() if value == size and name in able]


def _above(dim: Dim, size: int) -> Dim:
    return replace(dim, range=Range(size + 1, dim.range.maximum), example=max(size + 1, dim.example))


def _one_side(agreed: Agreed, program: Program, verdict: Verdict) -> Narrowed | None:
    """Every failure breaks one guard of undeclared dims, which the example keeps: it becomes part of the contract."""
    contract = agreed.contract
    declared = {dim.name for dim in contract.dims if dim.origin == "declared"}
    for item in program.open_guards:
        if item.names & declared or any(item.holds(row.sizes) for row in verdict.failures):
            continue
        relations = item.relations()
        if relations is None or not item.holds(contract.example) or not _leaves_room(agreed, item):
            continue
        where = f" ({item.where.file}:{item.where.line})" if item.where else ""
        note = f"narrowed to {item}{where}: the model takes another path beyond"
        made = replace(
            contract,
            relations=(*contract.relations, *relations),
            notes=(*contract.notes, note),
        )
        return replace(agreed, contract=made), relations
    return None


def _from_above(agreed: Agreed, verdict: Verdict) -> Narrowed | None:
    """Every failure has one dim below all sizes that are right: the dim starts at the smallest of those."""
    contract = agreed.contract
    right = [row for row in verdict.rows if row.outcome == "right"]
    for dim in contract.dims:
        highest = max(row.sizes[dim.name] for row in verdict.failures)
        above = [row.sizes[dim.name] for row in right if row.sizes[dim.name] > highest]
        start = min(above, default=None)
        if start is None or dim.origin == "declared" or start > min(dim.example, agreed.generic[dim.name]):
            continue
        if any(row.sizes[dim.name] <= highest for row in right if _others_typical(agreed, row, dim.name)):
            continue
        note = f"narrowed to {dim.name} ≥ {start}: the exported model is wrong at {dim.name} = {highest}"
        dims = tuple(
            replace(d, range=Range(start, d.range.maximum)) if d is dim else d for d in contract.dims
        )
        made = replace(contract, dims=dims, notes=(*contract.notes, note))
        return replace(agreed, contract=made), [Relation(Expr.of(start), "<=", Expr.of(dim.name))]
    return None


def _others_typical(agreed: Agreed, row: Row, name: str) -> bool:
    """Whether every other dim has its usual size: then it is this dim that the row tells about."""
    return all(size == agreed.generic[other] for other, size in row.sizes.items() if other != name)


def _leaves_room(agreed: Agreed, item: Guard) -> bool:
    """Whether more than a handful of sizes satisfy the guard: one that fixes a size is a fault, not a range."""
    if len(item.names) > 1:
        return True
    return all(
        sum(item.holds({**agreed.generic, name: size}) for size in range(1, 40)) >= 4 for name in item.names
    )
