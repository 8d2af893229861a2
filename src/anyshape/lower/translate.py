"""translate: a tape becomes an ONNX graph, operator by operator: our translation, else torch.onnx's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from anyshape.capture.tape.constants import index_tensor
from anyshape.capture.tape.steps import (
    LoopBody,
    Split,
    Step,
    Tape,
    Value,
    chosen,
    compared,
    either,
    float_of,
    leaves,
    map_leaves,
    number_of,
    repeated,
    rolled,
    size_of,
)
from anyshape.contract.contract import Contract
from anyshape.dims import Expr, Real, Relation, names
from anyshape.dims.formula import Formula
from anyshape.errors import LowerFault
from anyshape.lower.custom import Kept, missing, nothing_to_hold_to
from anyshape.lower.empty import ask_first, mark
from anyshape.lower.operators import COMPLEX
from anyshape.lower.promote import promoted, rounded
from anyshape.lower.sizes import SizeNodes, axis_sources
from anyshape.source.lines import first_line
from anyshape.torch_bridge import schemas, torchlib

__all__ = ["STEP", "translate", "translate_alone"]

Translations = Mapping[Any, Callable[..., Any]]
# What comes of a slice that is all of its tensor: the tensor, or what is written there.
SLICES = {torch.ops.aten.slice.Tensor: 0, torch.ops.aten.slice_scatter.default: 1}
STEP = "step"  # in a node's `meta`: the step that it was made for, which is not written to files


def translate(body: Tape | Split, contract: Contract, translations: Translations) -> ir.Model:
    """A tape, or several joined by conditions, as an ONNX model; names are provisional, weights are stored once."""
    inputs = [_graph_input(value, f"input_{number}") for number, value in enumerate(_first(body).inputs)]
    weights: dict[Any, ir.Value] = {}
    scope = _Scope(translations, {}, weights)
    scope.dims = frozenset(dim.name for dim in contract.dims)
    scope.sizes.sources.update(axis_sources(contract, inputs))
    outputs = scope.branch(body, inputs)
    _name_values(scope.recorder.nodes)
    graph = ir.Graph(
        inputs, outputs, nodes=scope.recorder.nodes, initializers=list(weights.values()), name="main_graph"
    )
    model = torchlib.finished_model(graph, scope.recorder)
    ask_first(model)
    return model


def translate_alone(
    step: Step, names: Sequence[str], translations: Translations
) -> tuple[ir.Model, list[int]]:
    """One step as a model of the tensors that it is given, and of the sizes with these names.

    Not every translation gives all outputs: with it comes which of the step's outputs the model has.
    """
    scope = _Scope(translations, {}, {})
    given = list(dict.fromkeys(step.inputs))
    inputs = [_graph_input(value, f"input_{number}") for number, value in enumerate(given)]
    sizes = [_graph_input(Value((), torch.int64), f"size_{name}") for name in names]
    scope.values.update(zip(given, inputs, strict=True))
    scope.sizes.made.update(zip(map(Expr.of, names), sizes, strict=True))
    scope.run([step])
    places = [k for k, value in enumerate(step.outputs) if value in scope.values]
    _name_values(scope.recorder.nodes)
    graph = ir.Graph(
        [*inputs, *sizes],
        [scope.values[step.outputs[k]] for k in places],
        nodes=scope.recorder.nodes,
        initializers=list(scope.weights.values()),
        name="main_graph",
    )
    return torchlib.finished_model(graph, scope.recorder), places


def _takes_all(step: Step) -> bool:
    """Whether a slice leaves its tensor as it is, at all sizes."""
    size = step.args[0].shape[step.argument("dim")]
    start, end = step.argument("start"), step.argument("end")
    return (
        start in (None, 0)
        and end is not None
        and Expr.of(end) == Expr.of(size)
        and step.argument("step") == 1
    )


def _first(body: Tape | Split) -> Tape:
    while isinstance(body, Split):
        body = body.then
    return body


class _Scope:
    """A graph in the making: what each value of the tape is in it."""

    def __init__(
        self, translations: Translations, values: dict[Value, ir.Value], weights: dict[Any, ir.Value]
    ) -> None:
        self.translations, self.values, self.weights = translations, values, weights
        self.inside = False  # of a choice or a loop
        self.dims: frozenset[str] = frozenset()  # names that a size in the file may have
        self.recorder = torchlib.onnx_recorder()
        self.sizes = SizeNodes({}, self._add)

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            before = len(self.recorder.nodes)
            try:
                self._step(step)
            except LowerFault as fault:
                if fault.where is not None:
                    raise
                raise LowerFault(fault.what, where=step.where, hint=fault.hint) from None
            except Exception as error:  # a translation, torch's or the user's, may raise anything
                if any(isinstance(leaf, Formula) for leaf in leaves((step.args, dict(step.kwargs)))):
                    raise LowerFault(
                        f"{schemas.name_of(step.target)} is given a number that is computed, and ONNX takes it as "
                        "a constant only",
                        where=step.where,
                        hint="Write what it does with plain arithmetic, or give it a number that stands in the source.",
                    ) from error
                raise LowerFault(
                    f"no ONNX form of {step.target} could be made: {first_line(_innermost(error))}",
                    where=step.where,
                    hint="Give a translation with custom_translation_table={torch.ops....: function}.",
                ) from error
            for node in self.recorder.nodes[before:]:
                node.meta[STEP] = step
            mark(step, self.recorder.nodes[before:])

    def branch(self, body: Tape | Split, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """The outputs of a tape, or of the side that a condition chooses."""
        if isinstance(body, Split):
            condition = self._condition(body.condition, inputs)
            return self._if(condition, body.then, body.otherwise, inputs)
        self.values.update(zip(body.inputs, inputs, strict=True))
        for value, tensor in body.constants.items():
            key = body.names.get(value, id(tensor))
            if key not in self.weights:
                self.weights[key] = _weight(
                    value, tensor, body.names.get(value, f"constant_{len(self.weights)}")
                )
            self.values[value] = self.weights[key]
        self.run(body.steps)
        return [self.values[value] for value in body.outputs]

    def _condition(self, condition: Relation | Tape, inputs: Sequence[ir.Value]) -> ir.Value:
        """A truth about sizes; or one about values, by steps whose own sizes nobody else must take for theirs."""
        if isinstance(condition, Relation):
            with torchlib.recording(self.recorder):
                return self.sizes.holds(condition)
        inner = self._beside()
        (made,) = inner.branch(condition, inputs)
        with torchlib.recording(self.recorder):
            return self._truth(made)

    def _if(
        self, condition: ir.Value, then: Tape | Split, otherwise: Tape | Split, inputs: Sequence[ir.Value]
    ) -> list[ir.Value]:
        graphs = {"then_branch": then, "else_branch": otherwise}
        sides = [ir.AttrGraph(name, self._side(side, inputs)) for name, side in graphs.items()]
        outputs = _first(then).outputs
        node = ir.Node("", "If", [condition], sides, num_outputs=len(outputs))
        for output, value in zip(node.outputs, outputs, strict=True):
            _describe(output, replace(value, shape=tuple(None for _ in value.shape)))
        self.recorder.nodes.append(node)
        return list(node.outputs)

    def _side(self, body: Tape | Split, inputs: Sequence[ir.Value]) -> ir.Graph:
        inner = self._within()
        kept = inner.branch(body, inputs)
        return ir.Graph([], inner._handed_on(kept), nodes=inner.recorder.nodes, name="side")

    def _within(self) -> _Scope:
        """The scope of a graph inside this one: it sees everything that is known here."""
        inner = _Scope(self.translations, dict(self.values), self.weights)
        inner.inside, inner.dims = True, self.dims
        inner.recorder.functions = self.recorder.functions
        inner.sizes.sources.update(self.sizes.sources)
        inner.sizes.made.update(self.sizes.made)
        inner.sizes.shapes.update(self.sizes.shapes)
        return inner

    def _beside(self) -> _Scope:
        """A scope whose nodes land here, but not the names of its sizes."""
        made = self._within()
        made.inside, made.recorder = self.inside, self.recorder
        return made

    def _handed_on(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """What an inner graph hands on must be made in it, each under a name of its own."""
        outputs = [self._add("Identity", [value], {}) for value in values]
        for output, value in zip(outputs, values, strict=True):
            output.type, output.shape = value.type, value.shape
        return outputs

    def _step(self, step: Step) -> None:
        with torchlib.recording(self.recorder):
            if step.target is rolled:
                self._keep(step, self._loop(step, step.body))
            elif step.target is chosen:
                self._keep(step, self.branch(step.body, [self.values[value] for value in step.args[0]]))
            elif step.target is either:
                test, given = step.args
                inputs = [self.values[value] for value in given]
                then, otherwise = step.body
                self._keep(step, self._if(self._truth(self.values[test]), then, otherwise, inputs))
            elif step.target is repeated:
                self._keep(step, self._told_loop(step.body, *step.args))
            elif step.target is index_tensor:
                self._keep(step, self._by_index(*step.args))
            elif step.target is size_of:
                shape = self._add("Shape", [self.values[step.args[0]]], {})
                axis = self.sizes.constant(step.args[2])
                self.sizes.made[Expr.of(step.args[1])] = self._add("Gather", [shape, axis], {"axis": 0})
            elif step.target is compared:
                self._keep(step, self.sizes.truth(step.args[0]))
            elif step.target is float_of:
                flat = self._add("Reshape", [self.values[step.args[0]], self.sizes.constants([])], {})
                self.sizes.made[Expr.of(step.args[1])] = self._add("Cast", [flat], {"to": ir.DataType.DOUBLE})
            elif step.target is number_of:
                flat = self._add("Reshape", [self.values[step.args[0]], self.sizes.constants([])], {})
                self.sizes.made[Expr.of(step.args[1])] = self._add("Cast", [flat], {"to": ir.DataType.INT64})
            elif step.target in SLICES and _takes_all(step):
                self._keep(step, self.values[step.args[SLICES[step.target]]])
            else:
                self._call(step, self._function(step))

    def _call(self, step: Step, function: Callable[..., Any]) -> None:
        if not isinstance(function, Kept):
            args, kwargs = promoted(step, self._argument)
            self._keep(step, rounded(step, function(*args, **kwargs)))
            return
        function.check(step, self.inside)
        args, kwargs = map_leaves(self._argument, (step.args, dict(step.kwargs)))
        self._keep(step, function(*args, **kwargs))
        for value in step.outputs:  # nothing but the trace knows the sizes of what such a node gives
            if value is not None:
                self.values[value].shape = ir.Shape([self._named(size) for size in value.shape])

    def _named(self, size: Any) -> int | str | None:
        if isinstance(size, Expr):
            return str(size) if size.names <= self.dims else None
        return int(size)

    def _function(self, step: Step) -> Callable[..., Any]:
        own = COMPLEX if step.is_complex else self.translations
        target = step.target
        if any(isinstance(leaf, (Expr, Real, Formula)) for leaf in step.args):
            target = schemas.for_tensors(target)  # a size comes as a tensor, not as a plain number
        function = own.get(target)
        fault = None if function is not None else nothing_to_hold_to(step)
        if fault is not None:
            raise fault
        function = function or torchlib.onnx_function(target, step.is_complex)
        if function is None:
            raise missing(step)
        return function

    def _loop(self, step: Step, body: LoopBody) -> list[ir.Value]:
        """An ONNX Loop; its body sees everything that is known outside of it."""
        inner = self._within()
        number, going = torchlib.onnx_input(body.index), torchlib.onnx_input("going")
        number.dtype, number.shape = ir.DataType.INT64, ir.Shape([])
        going.dtype, going.shape = ir.DataType.BOOL, ir.Shape([])
        inner.sizes.made[Expr.of(body.index)] = number
        carried = [_graph_input(value, f"carried_{k}") for k, value in enumerate(body.carried)]
        inner.values.update(zip(body.carried, carried, strict=True))
        for value, made in zip(body.carried, carried, strict=True):
            inner._know_sizes(value, made)
        inner.run(body.steps)
        kept = [inner.values[value] for value in (*body.carried_on, *body.collected)]
        goes_on = going
        if body.going is not None:
            number_of_value, axis, size = body.going
            goes_on = inner._above(kept[number_of_value], axis, size)
            goes_on.dtype = ir.DataType.BOOL
        outputs = inner._handed_on([goes_on, *kept])
        for output in outputs[1:]:
            output.shape = None  # it may change from round to round
        graph = ir.Graph([number, going, *carried], outputs, nodes=inner.recorder.nodes, name=body.index)
        count, before = step.args[0], [self.values[value] for value in step.args[1]]
        if body.going is not None:
            yes = self._above(before[body.going[0]], *body.going[1:])
        else:
            yes = self._add("Constant", [], {"value": ir.tensor(np.asarray(True))})
        node = ir.Node(
            "",
            "Loop",
            [self.sizes.size(Expr.of(count)), yes, *before],
            [ir.AttrGraph("body", graph)],
            num_outputs=len(kept),
        )
        self.recorder.nodes.append(node)
        return [node.outputs[place] for place in body.results]

    def _told_loop(
        self, tapes: Sequence[Tape], before: Sequence[Value], rows: Sequence[Value], given: Sequence[Value]
    ) -> list[ir.Value]:
        """An ONNX Loop of a loop of PyTorch's own: over the rows of tensors, or while its test is true."""
        body, *test = tapes
        inner, count = self._within(), len(before)
        number, going = torchlib.onnx_input("number"), torchlib.onnx_input("going")
        number.dtype, number.shape = ir.DataType.INT64, ir.Shape([])
        going.dtype, going.shape = ir.DataType.BOOL, ir.Shape([])
        carried = [_graph_input(value, f"carried_{k}") for k, value in enumerate(body.inputs[:count])]
        outside = [self.values[value] for value in given]
        along = [self.values[value] for value in rows]
        with torchlib.recording(inner.recorder):
            row = [inner._add("Gather", [tensor, number], {"axis": 0}) for tensor in along]
            for made, value in zip(row, body.inputs[count:], strict=False):
                _describe(made, value)
            kept = inner.branch(body, [*carried, *row, *outside])
            goes_on = going
            if test:
                goes_on = inner._truth(inner.branch(test[0], [*kept[:count], *outside])[0])
            outputs = inner._handed_on([goes_on, *kept])
        graph = ir.Graph([number, going, *carried], outputs, nodes=inner.recorder.nodes, name="rounds")
        start = [self.values[value] for value in before]
        if test:
            limit, yes = None, self._beside().branch(test[0], [*start, *outside])[0]
            yes = self._truth(yes)
        else:
            limit = self._add(
                "Gather", [self._add("Shape", [along[0]], {}), self.sizes.constant(0)], {"axis": 0}
            )
            yes = self._add("Constant", [], {"value": ir.tensor(np.asarray(True))})
        node = ir.Node("", "Loop", [limit, yes, *start], [ir.AttrGraph("body", graph)], num_outputs=len(kept))
        self.recorder.nodes.append(node)
        return list(node.outputs)

    def _truth(self, value: ir.Value) -> ir.Value:
        """A tensor with one number as the condition of an If or a Loop."""
        made = self._add("Cast", [value], {"to": ir.DataType.BOOL})
        made = self._add("Reshape", [made, self.sizes.constants([])], {})
        made.dtype, made.shape = ir.DataType.BOOL, ir.Shape([])
        return made

    def _argument(self, leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return self.values[leaf]
        if isinstance(leaf, Expr):
            made = self.sizes.size(leaf)
            made.dtype, made.shape = ir.DataType.INT64, ir.Shape([])
            return made
        if isinstance(leaf, (Real, Formula)):
            made = self.sizes.real(leaf)
            made.dtype, made.shape = ir.DataType.DOUBLE, ir.Shape([])
            return made
        return torchlib.onnx_argument(leaf)

    def _by_index(self, entry: Any, shape: Sequence[Any], dtype: torch.dtype) -> ir.Value:
        """A tensor whose entries are an expression of their indices: those are ranges, each along its own axis."""
        inner = SizeNodes(self.sizes.sources, self._add)
        inner.made.update(self.sizes.made)
        sizes = [self.sizes.size(Expr.of(size)) for size in shape]
        for axis, size in enumerate(sizes):
            index = self._add("Range", [inner.constant(0), size, inner.constant(1)], {})
            others = [k for k in range(len(shape)) if k != axis]
            inner.made[Expr.of(names.place(axis))] = self._add(
                "Unsqueeze", [index, inner.constants(others)], {}
            )
        if isinstance(entry, tuple):
            made = self._add("LessOrEqual", [inner.size(side) for side in entry], {})
        else:
            made = inner.real(entry) if isinstance(entry, (Real, Formula)) else inner.size(entry)
        full = self._add(
            "Concat", [self._add("Reshape", [s, inner.constants([1])], {}) for s in sizes], {"axis": 0}
        )
        cast = self._add("Cast", [made], {"to": torchlib.onnx_dtype(dtype)})
        return self._add("Expand", [cast, full], {})

    def _keep(self, step: Step, result: Any) -> None:
        """Note what the step's outputs are; ONNX sequences are taken apart."""
        if isinstance(result, ir.Value) and schemas.returns_a_list(step.target):
            result = [
                self._add("SequenceAt", [result, self.sizes.constant(k)], {})
                for k in range(len(step.outputs))
            ]
        made = result if isinstance(result, Sequence) else [result]
        for value, output in zip(step.outputs, made, strict=False):
            if value is not None and output is not None:
                _describe(output, value)
                self.values[value] = output
                self._know_sizes(value, output)

    def _know_sizes(self, value: Value, output: ir.Value) -> None:
        """A size that depends on values, or changes from round to round, is read off where it is first seen."""
        for axis, size in enumerate(value.shape):
            if isinstance(size, Expr) and size.name is not None:
                self.sizes.sources.setdefault(size.name, (output, axis, size))

    def _above(self, value: ir.Value, axis: int, size: int) -> ir.Value:
        read = self._add("Gather", [self._add("Shape", [value], {}), self.sizes.constant(axis)], {"axis": 0})
        return self._add("Greater", [read, self.sizes.constant(size)], {})

    def _add(self, operator: str, inputs: Sequence[ir.Value], attributes: Mapping[str, Any]) -> ir.Value:
        node = ir.node(operator, list(inputs), attributes)
        self.recorder.nodes.append(node)
        return node.outputs[0]


def _describe(output: ir.Value, value: Value) -> None:
    """Shape and type as the trace saw them; a complex tensor is pairs of reals in its last axis."""
    sizes: list[int | None] = [size if isinstance(size, int) else None for size in value.shape]
    real = value.dtype.to_real() if value.dtype.is_complex else value.dtype
    if output.dtype is None:
        output.dtype = torchlib.onnx_dtype(real)
    output.shape = ir.Shape([*sizes, 2] if value.dtype.is_complex else sizes)


def _graph_input(value: Value, name: str) -> ir.Value:
    made = torchlib.onnx_input(name)
    _describe(made, value)
    return made


def _weight(value: Value, tensor: torch.Tensor, name: str) -> ir.Value:
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    made = torchlib.onnx_input(name)
    made.const_value = torchlib.onnx_tensor(real, name)
    _describe(made, value)
    return made


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _name_values(nodes: Sequence[ir.Node], prefix: str = "") -> None:
    """Names that are unique in the whole model, loops and both sides of a condition included."""
    for number, node in enumerate(nodes):
        node.name = f"n{prefix}{number}_{node.op_type}"
        for place, output in enumerate(node.outputs):
            output.name = f"v{prefix}{number}_{place}"
        inner = [item for item in node.attributes.values() if item.type == ir.AttributeType.GRAPH]
        for side, attribute in enumerate(inner):
            graph = attribute.as_graph()
            for place, value in enumerate(graph.inputs):
                value.name = f"v{prefix}{number}_{side}_in{place}"
            _name_values(list(graph), f"{prefix}{number}_{side}_")
