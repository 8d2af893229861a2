"""Expressions of sizes as ONNX nodes: scalars of int64, each made once and read off the inputs' shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from anyshape.contract.contract import Contract
from anyshape.dims import Expr, Relation
from anyshape.dims.expr import Call
from anyshape.dims.formula import Formula, Part, as_expr, is_whole
from anyshape.dims.real import Real

__all__ = ["SizeNodes", "axis_sources"]

COMPARISONS = {"<=": "LessOrEqual", "<": "Less", "==": "Equal"}
FUNCTIONS = {"%": "Mod", "max": "Max", "min": "Min"}
COMPARED = {
    "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual", "==": "Equal", "!=": "NotEqual",
}  # fmt: skip
ROUNDED = {"int": "Cast", "floor": "Floor", "ceil": "Ceil", "round": "Round"}
OF_FLOATS = {
    "+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "**": "Pow", "neg": "Neg", "abs": "Abs", "min": "Min", "max": "Max",
    "sqrt": "Sqrt", "log": "Log", "exp": "Exp",
}  # fmt: skip
OF_INTEGERS = {
    "+": "Add", "-": "Sub", "*": "Mul", "%": "Mod", "**": "Pow", "neg": "Neg", "abs": "Abs", "min": "Min", "max": "Max",
    "&": "BitwiseAnd", "|": "BitwiseOr", "^": "BitwiseXor",
}  # fmt: skip
POWERS = [1 << power for power in range(63)]

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


def _is_bare(exact: Expr, part: Formula) -> bool:
    """Whether an expression is the formula itself, as an atom."""
    atom = exact.atom
    return isinstance(atom, Call) and atom.formula is not None and atom.text == part.text


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

    def real(self, real: Real | Formula) -> ir.Value:
        """A scalar over sizes, in double precision."""
        if isinstance(real, Formula):
            return self._as_double(real)
        top, bottom = self._double(self.size(real.numerator)), self._double(self.size(real.denominator))
        ratio = self.add("Div", [top, bottom], {})
        if real.kind != "ratio":
            ratio = self.add("Sqrt" if real.kind == "root" else "Log", [ratio], {})
        factor = self.add("Constant", [], {"value": ir.tensor(np.asarray(real.factor, np.float64))})
        return self.add("Mul", [ratio, factor], {})

    def truth(self, condition: Formula) -> ir.Value:
        """A boolean scalar: whether a comparison of numbers holds, as Python compares them."""
        made = self.add("Cast", [self._as_whole(condition)], {"to": ir.DataType.BOOL})
        made.dtype, made.shape = ir.DataType.BOOL, ir.Shape([])
        return made

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
        if isinstance(atom.formula, Formula):
            return self._as_whole(atom.formula)
        made = [self.size(argument) for argument in atom.arguments]
        if atom.function == "//":  # ONNX's Div cuts towards zero, and its Mod rounds down as Python's
            return self.add("Div", [self.add("Sub", [made[0], self.add("Mod", made, {})], {}), made[1]], {})
        if atom.function == "isqrt":
            return self._rounded(self.add("Sqrt", [self._double(made[0])], {}))
        if atom.function == "log2":
            two = self.add("Constant", [], {"value": ir.tensor(np.asarray(np.log(2.0)))})
            return self._rounded(self.add("Div", [self.add("Log", [self._double(made[0])], {}), two], {}))
        return self.add(FUNCTIONS[atom.function], made, {})

    def _as_double(self, part: Part) -> ir.Value:
        """A part of a formula as Python's float."""
        if isinstance(part, (int, float)):
            return self.add("Constant", [], {"value": ir.tensor(np.asarray(part, np.float64))})
        if is_whole(part):
            return self._double(self._as_whole(part))
        assert isinstance(part, Formula)
        if part.op == "log2" or part.op == "log10" or (part.op == "log" and len(part.args) == 2):
            base = {"log2": 2, "log10": 10}.get(part.op) or part.args[1]
            sides = [self._as_double(item) for item in (part.args[0], base)]
            ratio = self.add("Div", [self.add("Log", [side], {}) for side in sides], {})
            return ratio if part.op == "log" else self._exact_log(ratio, *sides)
        made = [self._as_double(item) for item in part.args]
        if part.op == "float":
            return made[0]
        if part.op in ("//", "%"):
            return self._divided(part.op, *made)
        if part.op in ("min", "max"):
            return self._extreme(part.op, made)
        return self.add(OF_FLOATS[part.op], made, {})

    def _divided(self, op: str, top: ir.Value, bottom: ir.Value) -> ir.Value:
        """Python's ``//`` and ``%`` of floats: by the exact rest, which has the sign of the divisor."""
        zero = self._as_double(0.0)
        rest = self.add("Mod", [top, bottom], {"fmod": 1})
        signs = [self.add("Less", [side, zero], {}) for side in (rest, bottom)]
        is_none = self.add("Equal", [rest, zero], {})
        apart = self.add("And", [self.add("Xor", signs, {}), self.add("Not", [is_none], {})], {})
        rest = self.add("Where", [apart, self.add("Add", [rest, bottom], {}), rest], {})
        if op == "%":
            return rest
        return self.add("Round", [self.add("Div", [self.add("Sub", [top, rest], {}), bottom], {})], {})

    def _extreme(self, op: str, values: Sequence[ir.Value]) -> ir.Value:
        """Python's min and max, which keep the first of equal numbers, and do not mind NaN."""
        best = values[0]
        for value in values[1:]:
            better = self.add("Less" if op == "min" else "Greater", [value, best], {})
            best = self.add("Where", [better, value, best], {})
        return best

    def _exact_log(self, made: ir.Value, number: ir.Value, base: ir.Value) -> ir.Value:
        """A logarithm that is a whole number where it should be, as Python's log10 and log2 are."""
        whole = self.add("Round", [made], {})
        is_power = self.add("Equal", [self.add("Pow", [base, whole], {}), number], {})
        return self.add("Where", [is_power, whole, made], {})

    def _as_whole(self, part: Part) -> ir.Value:
        """A part of a formula as an integer."""
        if isinstance(part, (int, float, Expr)):
            return self.size(Expr.of(part if isinstance(part, Expr) else int(part)))
        exact = as_expr(part)
        if exact is not None and not _is_bare(exact, part):
            return self.size(exact)
        if part.op in COMPARED:
            whole = all(map(is_whole, part.args))
            sides = [self._as_whole(side) if whole else self._as_double(side) for side in part.args]
            truth = self.add(COMPARED[part.op].removeprefix("Not"), sides, {})
            truth = self.add("Not", [truth], {}) if COMPARED[part.op].startswith("Not") else truth
            return self.add("Cast", [truth], {"to": ir.DataType.INT64})
        if part.op in ROUNDED:
            made = (
                self.add(ROUNDED[part.op], [self._as_double(part.args[0])], {}) if part.op != "int" else None
            )
            return self.add("Cast", [made or self._as_double(part.args[0])], {"to": ir.DataType.INT64})
        made_parts = [self._as_whole(item) for item in part.args]
        if part.op == "bit_length":
            size = self.add(
                "Abs", [made_parts[0]], {}
            )  # of a negative number, Python counts the bits without the sign
            reached = self.add("GreaterOrEqual", [size, self.constants(POWERS)], {})
            counts = self.add("Cast", [reached], {"to": ir.DataType.INT64})
            return self.add("ReduceSum", [counts], {"keepdims": 0})
        if part.op in ("<<", ">>"):
            power = self.add("Gather", [self.constants(POWERS), made_parts[1]], {"axis": 0})
            if part.op == "<<":
                return self.add("Mul", [made_parts[0], power], {})
            rest = self.add("Mod", [made_parts[0], power], {})
            return self.add("Div", [self.add("Sub", [made_parts[0], rest], {}), power], {})
        if part.op == "//":
            rest = self.add("Mod", made_parts, {})
            return self.add("Div", [self.add("Sub", [made_parts[0], rest], {}), made_parts[1]], {})
        return self.add(OF_INTEGERS[part.op], made_parts, {})

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
