"""Expressions of sizes as ONNX nodes: scalars of int64, each made once and read off the inputs' shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from anyshape.contract.contract import Contract
from anyshape.dims import Expr, Relation
from anyshape.dims.expr import Call
from anyshape.dims.real import Real

__all__ = ["SizeNodes", "axis_sources"]

COMPARISONS = {"<=": "LessOrEqual", "<": "Less", "==": "Equal"}
FUNCTIONS = {"%": "Mod", "max": "Max", "min": "Min"}

# How to read a dim: a value, one of its axes, and the expression of that axis in the dim alone.
Source = tuple[ir.Value, int, Expr]
Add = Callable[[str, Sequence[ir.Value], Mapping[str, Any]], ir.Value]


def axis_sources(contract: Contract, inputs: Sequence[ir.Value]) -> dict[str, Source]:
    """For each dim the axis that tells it most directly: the dim itself, then a multiple, then a square."""
    found: dict[str, Source] = {}
    for value, item in zip(inputs, contract.inputs, strict=True):
        for axis, size in enumerate(item.shape):
            if size is None or len(size.names) != 1:
                continue
            (name,) = size.names
            better = name not in found or (size.name is not None and found[name][2].name is None)
            if better and _reading(size, name) is not None:
                found[name] = (value, axis, size)
    return found


def _reading(size: Expr, name: str) -> tuple[int | None, int, int] | None:
    """How to get ``name`` from an axis of this size: take off a number and draw the root, take off, divide."""
    square = size.squared()
    root, more = (size, None) if square is None else square
    affine = root.affine()
    if affine is None or affine[0].keys() != {name}:
        return None
    return more, affine[1], affine[0][name]


class SizeNodes:
    """Makes nodes for expressions, through ``add`` so that they land where the caller wants them."""

    def __init__(self, sources: Mapping[str, Source], add: Add) -> None:
        self.sources, self.add = dict(sources), add
        self.made: dict[Expr, ir.Value] = {}
        self.shapes: dict[int, ir.Value] = {}

    def holds(self, relation: Relation) -> ir.Value:
        """A boolean scalar: whether the relation holds."""
        sides = [self.size(relation.left), self.size(relation.right)]
        if relation.op == "!=":
            return self.add("Not", [self.add("Equal", sides, {})], {})
        return self.add(COMPARISONS[relation.op], sides, {})

    def size(self, size: Expr) -> ir.Value:
        """The value of an expression."""
        if size not in self.made:
            self.made[size] = self._size(size)
        return self.made[size]

    def constant(self, number: int) -> ir.Value:
        return self.add("Constant", [], {"value": ir.tensor(np.asarray(number, np.int64))})

    def constants(self, numbers: Sequence[int]) -> ir.Value:
        return self.add("Constant", [], {"value": ir.tensor(np.asarray(numbers, np.int64))})

    def real(self, real: Real) -> ir.Value:
        """A float scalar over sizes, computed in double precision."""
        top, bottom = self._double(self.size(real.numerator)), self._double(self.size(real.denominator))
        ratio = self.add("Div", [top, bottom], {})
        if real.kind != "ratio":
            ratio = self.add("Sqrt" if real.kind == "root" else "Log", [ratio], {})
        factor = self.add("Constant", [], {"value": ir.tensor(np.asarray(real.factor, np.float64))})
        return self.add("Cast", [self.add("Mul", [ratio, factor], {})], {"to": ir.DataType.FLOAT})

    def _size(self, size: Expr) -> ir.Value:
        total: ir.Value | None = None
        for monomial, coefficient in size.terms:
            factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            if coefficient != 1 or not factors:
                factors.append(self.constant(coefficient))
            term = factors[0]
            for factor in factors[1:]:
                term = self.add("Mul", [term, factor], {})
            total = term if total is None else self.add("Add", [total, term], {})
        return total if total is not None else self.constant(0)

    def _atom(self, atom: str | Call) -> ir.Value:
        if isinstance(atom, str):
            alone = Expr.of(atom)
            if alone not in self.made:
                self.made[alone] = self._read(atom)
            return self.made[alone]
        made = [self.size(argument) for argument in atom.arguments]
        if atom.function == "//":  # ONNX's Div cuts towards zero, and its Mod rounds down as Python's
            return self.add("Div", [self.add("Sub", [made[0], self.add("Mod", made, {})], {}), made[1]], {})
        if atom.function == "isqrt":
            return self._rounded(self.add("Sqrt", [self._double(made[0])], {}))
        if atom.function == "log2":
            two = self.add("Constant", [], {"value": ir.tensor(np.asarray(np.log(2.0)))})
            return self._rounded(self.add("Div", [self.add("Log", [self._double(made[0])], {}), two], {}))
        return self.add(FUNCTIONS[atom.function], made, {})

    def _double(self, value: ir.Value) -> ir.Value:
        return self.add("Cast", [value], {"to": ir.DataType.DOUBLE})

    def _rounded(self, value: ir.Value) -> ir.Value:
        """Rounded down; what lies within rounding below an integer is that integer."""
        slack = self.add("Constant", [], {"value": ir.tensor(np.asarray(1e-9))})
        down = self.add("Floor", [self.add("Add", [value, slack], {})], {})
        return self.add("Cast", [down], {"to": ir.DataType.INT64})

    def _read(self, name: str) -> ir.Value:
        if name not in self.sources:
            raise LookupError(f"no axis tells the size of {name}")
        value, axis, size = self.sources[name]
        reading = _reading(size, name)
        assert reading is not None, f"{size} does not tell {name}"
        more, offset, rate = reading
        made = self.add("Gather", [self.shape(value), self.constant(axis)], {"axis": 0})
        if more is not None:
            made = self._rounded(self.add("Sqrt", [self._double(self._less(made, more))], {}))
        made = self._less(made, offset)
        return made if rate == 1 else self.add("Div", [made, self.constant(rate)], {})

    def _less(self, size: ir.Value, offset: int) -> ir.Value:
        return self.add("Sub", [size, self.constant(offset)], {}) if offset else size

    def shape(self, value: ir.Value) -> ir.Value:
        """The shape of a value."""
        if id(value) not in self.shapes:
            self.shapes[id(value)] = self.add("Shape", [value], {})
        return self.shapes[id(value)]
