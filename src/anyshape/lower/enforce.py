"""Conditions on sizes inside the file, so that a model which holds for some sizes only refuses the others.

Runtimes don't check ranges. Where a contract had to be narrowed, an input goes through a Reshape to its own shape,
which costs nothing, and whose target is made impossible when a condition does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from anyshape.contract.contract import Contract
from anyshape.dims import Expr, Relation
from anyshape.lower.sizes import SizeNodes, axis_sources

__all__ = ["enforce", "enforce_shapes"]

IMPOSSIBLE = 1 << 40


def enforce(model: ir.Model, contract: Contract, relations: Sequence[Relation]) -> None:
    """Make the model fail at run time where one of ``relations`` does not hold."""
    for relation in relations:
        prefix = f"requires_{len(model.graph)}"  # the graph grows with each, so no two are alike
        _Builder(model, contract, prefix).enforce(relation)


def enforce_shapes(model: ir.Model, contract: Contract) -> None:
    """Make the model fail where an axis is not what other axes say: ``2*h`` of an odd size, ``past + seq``."""
    for number, item in enumerate(contract.inputs):
        for axis, size in enumerate(item.shape):
            if size is not None and size.constant is None and size.name is None:
                prefix = f"requires_{len(model.graph)}"
                _Builder(model, contract, prefix).enforce_axis(number, axis, size)


class _Builder:
    def __init__(self, model: ir.Model, contract: Contract, prefix: str) -> None:
        self.model, self.contract, self.prefix = model, contract, prefix
        self.nodes: list[ir.Node] = []

    def enforce(self, relation: Relation) -> None:
        sizes = self._sizes()
        self._require(self._input_with(relation), sizes, sizes.holds(relation), f"requires {relation}")

    def enforce_axis(self, number: int, axis: int, size: Expr) -> None:
        sizes, value = self._sizes(), self.model.graph.inputs[number]
        found = self._add("Gather", [sizes.shape(value), sizes.constant(axis)], {"axis": 0})
        holds = self._add("Equal", [found, sizes.size(size)])
        self._require(
            value, sizes, holds, f"requires {size} at axis {axis} of {self.contract.inputs[number].name}"
        )

    def _sizes(self) -> SizeNodes:
        return SizeNodes(axis_sources(self.contract, self.model.graph.inputs), self._add)

    def _require(self, value: ir.Value, sizes: SizeNodes, holds: ir.Value, name: str) -> None:
        users = [(use.node, use.idx) for use in value.uses() if use.node not in self.nodes]
        bad = self._add("Cast", [self._add("Not", [holds])], {"to": ir.DataType.INT64})
        target = self._add("Sub", [sizes.shape(value), self._add("Mul", [bad, sizes.constant(IMPOSSIBLE)])])
        checked = self._add("Reshape", [value, target], {"allowzero": 1})
        checked.type, checked.shape = value.type, value.shape
        node = checked.producer()
        assert node is not None
        node.name = name
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

    def _add(
        self, operator: str, inputs: Sequence[ir.Value], attributes: Mapping[str, Any] | None = None
    ) -> ir.Value:
        node = ir.node(operator, inputs, attributes or {}, name=f"{self.prefix}_{len(self.nodes)}")
        node.outputs[0].name = node.name
        self.nodes.append(node)
        return node.outputs[0]
