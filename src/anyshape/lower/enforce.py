"""Conditions on sizes inside the file, so that a model which holds for some sizes only refuses the others.

Runtimes don't check ranges. Where a contract had to be narrowed, an input goes through a Reshape to its own shape,
which costs nothing, and whose target is made impossible when a condition does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anyshape.contract import Contract
from anyshape.dims import Expr, Relation
from anyshape.dims.expr import Call

__all__ = ["enforce"]

IMPOSSIBLE = 1 << 40
COMPARISONS = {"<=": "LessOrEqual", "<": "Less", "==": "Equal"}
FUNCTIONS = {"%": "Mod", "max": "Max", "min": "Min"}


def enforce(model: ir.Model, contract: Contract, relations: Sequence[Relation]) -> None:
    """Make the model fail at run time where one of ``relations`` does not hold."""
    for relation in relations:
        prefix = f"requires_{len(model.graph)}"  # the graph grows with each, so no two are alike
        _Builder(model, contract, prefix).enforce(relation)


class _Builder:
    def __init__(self, model: ir.Model, contract: Contract, prefix: str) -> None:
        self.model, self.contract, self.prefix = model, contract, prefix
        self.nodes: list[ir.Node] = []
        self.shapes: dict[str, ir.Value] = {}

    def enforce(self, relation: Relation) -> None:
        value = self._input_with(relation)
        users = [(use.node, use.idx) for use in value.uses()]
        holds = self._holds(relation)
        bad = self._add("Cast", [self._add("Not", [holds])], {"to": ir.DataType.INT64})
        target = self._add("Sub", [self._shape(value), self._add("Mul", [bad, self._constant(IMPOSSIBLE)])])
        checked = self._add("Reshape", [value, target], {"allowzero": 1})
        checked.type, checked.shape = value.type, value.shape
        node = checked.producer()
        assert node is not None
        node.name = f"requires {relation}"
        for user, index in users:
            user.replace_input_with(index, checked)
        for made in reversed(self.nodes):
            self.model.graph.insert_before(self.model.graph[0], made)

    def _input_with(self, relation: Relation) -> ir.Value:
        """An input that has axes, preferably one that the relation speaks of."""
        names = relation.names
        ranked = [
            (not any(size is not None and size.names & names for size in item.shape), number)
            for number, item in enumerate(self.contract.inputs)
            if item.shape
        ]
        return self.model.graph.inputs[min(ranked)[1]]

    def _holds(self, relation: Relation) -> ir.Value:
        sides = [self._size(relation.left), self._size(relation.right)]
        if relation.op == "!=":
            return self._add("Not", [self._add("Equal", sides)])
        return self._add(COMPARISONS[relation.op], sides)

    def _size(self, size: Expr) -> ir.Value:
        total: ir.Value | None = None
        for monomial, coefficient in size.terms:
            term = self._constant(coefficient)
            for atom, power in monomial:
                for _ in range(power):
                    term = self._add("Mul", [term, self._atom(atom)])
            total = term if total is None else self._add("Add", [total, term])
        return total if total is not None else self._constant(0)

    def _atom(self, atom: str | Call) -> ir.Value:
        if isinstance(atom, Call):
            made = [self._size(argument) for argument in atom.arguments]
            if atom.function == "//":  # ONNX's Div cuts towards zero, and its Mod rounds down as Python's
                return self._add("Div", [self._add("Sub", [made[0], self._add("Mod", made)]), made[1]])
            if atom.function == "isqrt":
                return self._square_root(made[0])
            return self._add(FUNCTIONS[atom.function], made)
        return self._read(atom)

    def _read(self, name: str) -> ir.Value:
        """A dim read off an axis whose size is a multiple of it plus an offset, or the square of such a size."""
        for number, item in enumerate(self.contract.inputs):
            for axis, expression in enumerate(item.shape):
                square = None if expression is None else expression.squared()
                root, more = (expression, 0) if square is None else square
                affine = None if root is None else root.affine()
                if affine is None or affine[0].keys() != {name}:
                    continue
                shape = self._shape(self.model.graph.inputs[number])
                size = self._add("Gather", [shape, self._constant(axis)])
                if square is not None:
                    size = self._square_root(self._less(size, more))
                size, rate = self._less(size, affine[1]), affine[0][name]
                return size if rate == 1 else self._add("Div", [size, self._constant(rate)])
        raise LookupError(f"no axis tells the size of {name}")

    def _less(self, size: ir.Value, offset: int) -> ir.Value:
        return self._add("Sub", [size, self._constant(offset)]) if offset else size

    def _square_root(self, size: ir.Value) -> ir.Value:
        """The floor of the root: in double precision it is exact for every size that fits in memory."""
        root = self._add("Sqrt", [self._add("Cast", [size], {"to": ir.DataType.DOUBLE})])
        return self._add("Cast", [root], {"to": ir.DataType.INT64})

    def _shape(self, value: ir.Value) -> ir.Value:
        name = value.name or ""
        if name not in self.shapes:
            self.shapes[name] = self._add("Shape", [value])
        return self.shapes[name]

    def _constant(self, number: int) -> ir.Value:
        tensor = ir.tensor(np.asarray(number, np.int64))
        return self._add("Constant", [], {"value": tensor})

    def _add(
        self, operator: str, inputs: list[ir.Value], attributes: dict[str, object] | None = None
    ) -> ir.Value:
        node = ir.node(operator, inputs, attributes or {}, name=f"{self.prefix}_{len(self.nodes)}")  # type: ignore[arg-type]
        node.outputs[0].name = node.name
        self.nodes.append(node)
        return node.outputs[0]
