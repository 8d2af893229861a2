"""Custom: what a user gives for an operator: a translation, or a name under which it stays a node of its own.

A node takes the operator's tensors as inputs and everything else as attributes, both as the operator's schema has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from anyshape.capture.tape.steps import Step
from anyshape.errors import LowerFault, UsageError
from anyshape.torch_bridge import schemas, torchlib

__all__ = ["Kept", "kept_in", "missing", "nothing_to_hold_to", "translations_of"]

Table = Mapping[Any, Callable[..., Any]]
NAME = re.compile(r"([A-Za-z_][\w.]*)::([A-Za-z_]\w*)")
STANDARD = ("ai.onnx", "ai.onnx.ml", "com.microsoft")


@dataclass(frozen=True, slots=True)
class Kept:
    """An operator that is one node: of ``domain``, or of a function that goes into the file with it."""

    target: Any
    domain: str
    operator: str
    function: ir.Function | None = None

    @property
    def name(self) -> str:
        """``my.domain::MyOp``"""
        return f"{self.domain}::{self.operator}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The node's outputs for the operator's arguments, which are values of the graph and plain numbers."""
        given = dict(zip(schemas.argument_names(self.target), args, strict=False)) | kwargs
        inputs: list[Any] = []
        attributes: dict[str, Any] = {}
        for parameter in schemas.parameters(self.target):
            value = given.get(parameter.name, parameter.default)
            if parameter.is_tensor:
                inputs.append(self._input(parameter.name, value))
            elif parameter.is_list_of_tensors:
                inputs += [self._input(parameter.name, item) for item in value]
            elif value is not None and self._is_wanted(parameter, value):
                attributes[parameter.name] = self._attribute(parameter, value)
            elif parameter.default is not None and value is None:
                raise self._cannot(f"{parameter.name} is None, which no attribute can be")
        while inputs and inputs[-1] is None:
            inputs.pop()
        node = torchlib.recorded_node(
            self.domain, self.operator, inputs, attributes, schemas.returns(self.target), self.function
        )
        return node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)

    def _is_wanted(self, parameter: schemas.Parameter, value: Any) -> bool:
        """Whether an attribute is handed on: a function takes those that it has."""
        if self.function is None or parameter.name in self.function.attributes:
            return True
        if value == parameter.default:
            return False
        raise self._cannot(f"{parameter.name} is {value!r}, and the function has no such attribute")

    def _input(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, ir.Value):
            return value
        raise self._cannot(f"{name} is {value!r} here, not a tensor")

    def _attribute(self, parameter: schemas.Parameter, value: Any) -> Any:
        parts = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(part, ir.Value) for part in parts):
            raise self._cannot(
                f"{parameter.name} changes with the sizes, which no attribute can: make it a tensor"
            )
        if not parts or not all(type(part) in (bool, int, float, str) for part in parts):
            raise self._cannot(f"{parameter.name} is {value!r}, which no attribute can be")
        made = [_as_stored(part, parameter) for part in parts]
        return made if isinstance(value, (list, tuple)) else made[0]

    def _cannot(self, why: str) -> LowerFault:
        return LowerFault(
            f"{schemas.name_of(self.target)} can't be the node {self.name}: {why}",
            hint="Give a translation instead, which can compute: custom_translation_table={operator: function}.",
        )

    def check(self, step: Step, inside: bool) -> None:
        """`LowerFault` where this node could not be verified."""
        problem = ""
        if step.is_complex:
            problem = "it has complex tensors, which ONNX lacks"
        elif schemas.returns_a_list(self.target):
            problem = "it returns a list of tensors, and a node has as many outputs as it has"
        elif self._lists() > 1 or (self._lists() and self._tensors() > 1):
            problem = "it takes a list of tensors beside others, and nothing tells them apart"
        elif self.function is None and inside:
            problem = (
                "it stands in a choice or a loop, where no implementation but the runtime's own can run it"
            )
        if problem:
            raise self._cannot(problem)

    def _lists(self) -> int:
        return sum(parameter.is_list_of_tensors for parameter in schemas.parameters(self.target))

    def _tensors(self) -> int:
        kinds = schemas.parameters(self.target)
        return sum(parameter.is_tensor or parameter.is_list_of_tensors for parameter in kinds)


def _as_stored(value: Any, parameter: schemas.Parameter) -> Any:
    """A plain value as an attribute holds it: truths are integers, fractions have 32 bits."""
    if isinstance(value, float) or parameter.is_fraction:
        return float(np.float32(value))
    return int(value) if isinstance(value, bool) else value


def translations_of(table: Any) -> Table | None:
    """``custom_translation_table`` as one function for each operator; `UsageError` for what is none."""
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise UsageError(
            f"custom_translation_table is a {type(table).__name__}, not a dict",
            hint="Pass {operator: function}.",
        )
    made: dict[Any, Callable[..., Any]] = {}
    for key, value in table.items():
        operators = schemas.operators_of(key)
        if not operators:
            raise UsageError(
                f"custom_translation_table has a translation for {key!r}, which is no operator of PyTorch's",
                hint="Use torch.ops.<namespace>.<name>.default, or what torch.library.custom_op returned.",
            )
        for operator in operators:
            made[operator] = _translation(operator, value)
    _check_names(kept_in(made))
    return made


def _check_names(kept: Sequence[Kept]) -> None:
    named: dict[str, Kept] = {}
    for item in kept:
        other = named.setdefault(item.name, item)
        if other is not item:
            raise UsageError(
                f"{schemas.shown(other.target)} and {schemas.shown(item.target)} are both to be the node {item.name}",
                hint="Give each a name of its own: a runtime tells nodes apart by their names.",
            )


def _translation(operator: Any, value: Any) -> Callable[..., Any]:
    name = schemas.name_of(operator)
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise UsageError(
                f"custom_translation_table has {len(value)} translations for {name}",
                hint="Give one function; it may look at its arguments.",
            )
        value = value[0]
    if isinstance(value, onnx.FunctionProto):
        function = ir.serde.deserialize_function(value)
        return Kept(operator, function.domain, function.name or "", function)
    if isinstance(value, str):
        return _kept(operator, value)
    if callable(value):
        return torchlib.scripted(value)
    raise UsageError(
        f"custom_translation_table has {value!r} for {name}, which is no translation",
        hint='Give a function of ONNX values, an onnx.FunctionProto, or a name for a node: "my.domain::MyOp".',
    )


def _kept(operator: Any, text: str) -> Kept:
    found = NAME.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no name for a node of {schemas.name_of(operator)}",
            hint='Write a domain and a name: "my.domain::MyOp".',
        )
    if found[1] in STANDARD:
        raise UsageError(
            f"{text!r} is in a domain of ONNX's own, whose operators mean what their standard says",
            hint="Choose a domain of your own, or give a function that uses that operator.",
        )
    return Kept(operator, found[1], found[2])


def missing(step: Step) -> LowerFault:
    """What to say of an operator that nobody translates."""
    name, shown = schemas.name_of(step.target), schemas.shown(step.target)
    return LowerFault(
        f"ONNX has no translation for the operator {name}",
        where=step.where,
        hint=(
            f"Give one with custom_translation_table={{{shown}: function}}, keep it as a node that your runtime "
            f'implements with {{{shown}: "{name.replace("aten::", "my::")}"}}, or write the line without it.'
        ),
    )


def nothing_to_hold_to(step: Step) -> LowerFault | None:
    """torch.onnx.ops.symbolic stands for a node by zeros: there is nothing that such a node could be held to."""
    if not schemas.name_of(step.target).startswith("onnx_symbolic::"):
        return None
    given = dict(zip(schemas.argument_names(step.target), step.args, strict=False)) | dict(step.kwargs)
    domain, operator = given.get("domain") or "ai.onnx", given.get("op_type")
    return LowerFault(
        f"torch.onnx.ops.symbolic gives zeros for {domain}::{operator}: there is nothing to verify the file against",
        where=step.where,
        hint=(
            "Make it an operator with an implementation, torch.library.custom_op, and keep it as a node with "
            f'custom_translation_table={{operator: "{domain}::{operator}"}}.'
        ),
    )


def kept_in(table: Table | None) -> Sequence[Kept]:
    """The operators that stay nodes without a function."""
    values = (table or {}).values()
    return [value for value in values if isinstance(value, Kept) and value.function is None]
