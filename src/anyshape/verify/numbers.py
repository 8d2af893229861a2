"""Plain numbers in a result that follow from the sizes: a file can't compute them, but its contract can say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anyshape.contract.agree import Agreed
from anyshape.dims import Expr, Space, choose, fit
from anyshape.inputs.case import Case, Outputs
from anyshape.inputs.values import make_tensors
from anyshape.torch_bridge import process

__all__ = ["at_sizes", "numbers_of"]

ROWS = 24  # sizes that a number is explained by; verify tries it at many more
MOST_TIMES = 64  # the generic sizes' numbers: larger ones tell no more of a plain number

Sizes = Mapping[str, int]


def numbers_of(case: Case, agreed: Agreed) -> tuple[Expr | None, ...]:
    """For each plain value of the result what it is in dims, if it is a whole number that moves with them."""
    first = case.outputs.structure.constants()
    none: tuple[Expr | None, ...] = (None,) * len(first)
    if not any(map(_is_whole, first)) or case.make_inputs is not None:
        return none
    rows, found = [], []
    for sizes in _rows(agreed):
        values = _values_at(case, agreed, sizes)
        if values is not None and len(values) == len(first):
            rows.append(sizes)
            found.append(values)
    if not rows:
        return none
    columns = zip(*found, strict=True)
    return tuple(_explained(rows, column) for column in columns)


def at_sizes(constants: Sequence[Any], numbers: Sequence[Expr | None], sizes: Sizes) -> list[Any]:
    """The plain values of the example's result, at other sizes."""
    told = zip(constants, numbers or [None] * len(constants), strict=True)
    return [value if number is None else _at(number, sizes) for value, number in told]


def _at(number: Expr, sizes: Sizes) -> int | None:
    """None where it has no value, such as a quotient at 0: that is unlike whatever PyTorch gives."""
    try:
        return number.evaluate(sizes)
    except (ArithmeticError, ValueError):
        return None


def _rows(agreed: Agreed) -> list[dict[str, int]]:
    contract, generic = agreed.contract, dict(agreed.generic)
    most = MOST_TIMES * max(1, contract.elements(generic))
    space = Space(contract.ranges, contract.relations, typical=generic)
    return [generic, *(sizes for sizes in choose(space, ROWS) if contract.elements(sizes) <= most)]


def _values_at(case: Case, agreed: Agreed, sizes: Sizes) -> list[Any] | None:
    tensors = make_tensors(case, agreed.rules, agreed.contract.shapes(sizes), dict(sizes))
    with process.quiet():
        answer = case.run(tensors)
    return answer.structure.constants() if isinstance(answer, Outputs) else None


def _explained(rows: Sequence[Sizes], column: Sequence[Any]) -> Expr | None:
    if not all(map(_is_whole, column)) or len(set(column)) == 1:
        return None
    return fit(rows, column)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
