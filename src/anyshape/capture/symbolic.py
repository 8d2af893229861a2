"""Rung 1: torch.export with dynamic sizes, traced at sizes free of coincidences; its guards are read, not dropped."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sympy
import torch

from anyshape.capture.exported import exported_tape
from anyshape.capture.padding import padding_left_out
from anyshape.capture.program import Guard, Program, guard
from anyshape.capture.recurrent import recurrent_as_operators
from anyshape.capture.rewrite import sizes_kept
from anyshape.capture.symbols import Untranslatable, to_expr
from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Contract
from anyshape.dims import Expr
from anyshape.errors import CaptureFault
from anyshape.inputs.case import Case, OutOfMemory, Refusal, answered
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.source.lines import first_line, innermost_caller, innermost_line, line_of_exception
from anyshape.torch_bridge import control_flow, process, shape_env, tracing

__all__ = ["Flat", "NoTape", "capture_symbolic", "meanings", "traced"]


class Flat(torch.nn.Module):
    """The case as a module from flat tensors to flat tensors, so that any structure can be traced."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.module = case.module
        self.case = case

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor for _, tensor in flatten(self.case.call(tensors))[0])


class NoTape(CaptureFault):
    """The trace went through and its guards are known, but its graph has something that a tape has no words for."""

    def __init__(self, fault: CaptureFault, guards: tuple[Guard, ...]) -> None:
        super().__init__(fault.what, where=fault.where, hint=fault.hint)
        self.guards = guards


def capture_symbolic(case: Case, agreed: Agreed, own: Collection[Any]) -> Program:
    """The program of a symbolic trace; `CaptureFault` if the trace fails or fixes a size that should vary."""
    # Weights without values leave no other way: other rungs run the model.
    with shape_env.patience(limited=not case.on_meta):
        exported = traced(Flat(case), agreed, sizes_kept())
        sizes = _traced_sizes(exported)
        _check_nothing_is_fixed(agreed.contract, sizes, shape_env.trace_guards(exported))
        meaning, equations = meanings(agreed.contract, sizes)
        try:
            tape = exported_tape(exported, meaning, own)
        except CaptureFault as fault:
            raise NoTape(fault, _guards(exported, meaning, equations, agreed.contract)) from fault
        # Taking operators apart may have added guards.
        guards = _guards(exported, meaning, equations, agreed.contract)
    return Program(tape, "symbolic", tuple(_output_shapes(exported, meaning)), guards)


def _guards(
    exported: torch.export.ExportedProgram,
    meaning: Mapping[Any, Expr],
    equations: Sequence[tuple[Any, Expr]],
    contract: Contract,
) -> tuple[Guard, ...]:
    raw = shape_env.trace_guards(exported)
    guards = [_merged(condition, meaning, raw, contract) for condition in equations]
    guards += [
        guard(item.condition, meaning, item.where, contract)
        for item in raw
        if item.condition.free_symbols and item.condition.free_symbols <= meaning.keys()
    ]
    unique = {(str(item), item.where): item for item in guards}
    return tuple(unique.values())


def traced(
    flat: Flat, agreed: Agreed, within: contextlib.AbstractContextManager[Any]
) -> torch.export.ExportedProgram:
    """torch.export's own trace at the generic sizes, ``within`` a context; `CaptureFault` if it fails."""
    case, contract = flat.case, agreed.contract
    sizes = dict(agreed.generic)
    tensors = make_tensors(case, agreed.rules, contract.shapes(sizes), sizes)
    dynamic = torch.export.Dim.AUTO
    shapes = tuple(
        {axis: dynamic for axis, size in enumerate(item.shape) if size is not None and size.constant is None}
        or None
        for item in contract.inputs
    )
    with (
        case.unchanged(),
        process.quiet(),
        contextlib.redirect_stdout(io.StringIO()),  # torch prints the graph of a trace that it gives up
        contextlib.redirect_stderr(io.StringIO()),
        tracing.size_oblivious(),
        shape_env.guards_with_lines(innermost_line),
        recurrent_as_operators(),
        padding_left_out(),
        control_flow.run_by(control_flow.Refused(_elsewhere)),
        within,
        torch.no_grad(),
    ):
        made = answered(
            lambda: torch.export.export(flat, tuple(tensors), dynamic_shapes=(shapes,), strict=False)
        )
    if isinstance(made, (Refusal, OutOfMemory)):
        raise CaptureFault(
            f"torch.export can't trace the model with {_dims_text(contract)} dynamic: {first_line(made.error)}",
            where=line_of_exception(made.error),
            hint="Rewrite that line so that it does not turn a size or a value into a Python number.",
        ) from made.error
    return made


def _elsewhere(name: str) -> CaptureFault:
    return CaptureFault(
        f"the model has {name}, which is not traced with symbolic sizes", where=innermost_caller()
    )


def _dims_text(contract: Contract) -> str:
    return ", ".join(dim.name for dim in contract.dims) or "nothing"


def _traced_sizes(exported: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """The size of each axis of each input in the trace: an int, or a sympy expression."""
    wanted = set(exported.graph_signature.user_inputs)
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder" and n.name in wanted]
    return [tuple(shape_env.expression_of(size) for size in node.meta["val"].shape) for node in nodes]


def _check_nothing_is_fixed(
    contract: Contract,
    sizes: Sequence[tuple[Any, ...]],
    raw: Sequence[shape_env.TraceGuard],
) -> None:
    """A declared dim that the trace turned into a number is a fault: it would be wrong at every other size."""
    for item, traced in zip(contract.inputs, sizes, strict=True):
        for axis, (wanted, got) in enumerate(zip(item.shape, traced, strict=True)):
            if wanted is None or wanted.constant is not None or got.free_symbols:
                continue
            where = next((g.where for g in raw if _fixes(g.condition, int(got))), None)
            raise CaptureFault(
                f"{wanted} (axis {axis} of {item.name}) was turned into the number {int(got)} in the trace",
                where=where,
                hint="Something there uses the size as a plain Python number (int(), math, numpy, a loop or a list).",
            )


def _fixes(condition: Any, size: int) -> bool:
    return (
        isinstance(condition, sympy.Eq)
        and size in condition.args
        and any(a.is_Symbol for a in condition.args)
    )


def meanings(
    contract: Contract, sizes: Sequence[tuple[Any, ...]]
) -> tuple[dict[Any, Expr], list[tuple[Any, Expr]]]:
    """What each symbol of the trace means in dims, and the equations that say more than that."""
    pairs = [
        (got, wanted)
        for item, traced in zip(contract.inputs, sizes, strict=True)
        for wanted, got in zip(item.shape, traced, strict=True)
        if wanted is not None and got.free_symbols
    ]
    meaning: dict[Any, Expr] = {}
    for got, wanted in sorted(pairs, key=lambda pair: not pair[0].is_Symbol):
        unknown = [symbol for symbol in got.free_symbols if symbol not in meaning]
        if len(unknown) == 1:
            solved = _solved(got, unknown[0], wanted, meaning)
            if solved is not None:
                meaning[unknown[0]] = solved
    equations = []
    for got, wanted in pairs:
        try:
            if to_expr(got, meaning) != wanted:
                equations.append((got, wanted))
        except Untranslatable:
            continue
    return meaning, equations


def _solved(got: Any, symbol: Any, wanted: Expr, meaning: Mapping[Any, Expr]) -> Expr | None:
    """``symbol`` from ``got == wanted`` where got is affine in it with rate 1 (s + 1 is seq, so s is seq - 1)."""
    if got.is_Symbol:
        return wanted
    rate = got.coeff(symbol)
    rest = sympy.expand(got - rate * symbol)
    if rate.is_Integer and int(rate) > 0 and symbol not in rest.free_symbols:
        try:
            return (wanted - to_expr(rest, meaning)) // int(rate)
        except Untranslatable:
            return None
    return None


def _merged(
    equation: tuple[Any, Expr],
    meaning: Mapping[Any, Expr],
    raw: Sequence[shape_env.TraceGuard],
    contract: Contract,
) -> Guard:
    """Two dims of the contract became one in the trace: a guard that they are equal, with the line that asked."""
    got, wanted = equation
    stand_in = sympy.Symbol("wanted", integer=True)
    where = next(
        (g.where for g in raw if isinstance(g.condition, sympy.Eq) and got in g.condition.args), None
    )
    return guard(sympy.Eq(got, stand_in), {**meaning, stand_in: wanted}, where, contract)


def _output_shapes(
    exported: torch.export.ExportedProgram, meaning: Mapping[Any, Expr]
) -> list[tuple[Expr | None, ...]]:
    output = next(node for node in exported.graph.nodes if node.op == "output")
    wanted = set(exported.graph_signature.user_outputs)
    made: list[tuple[Expr | None, ...]] = []
    for node in output.args[0]:
        if node is not None and node.name in wanted:
            made.append(tuple(_known(size, meaning) for size in node.meta["val"].shape))
    return made


def _known(size: Any, meaning: Mapping[Any, Expr]) -> Expr | None:
    try:
        return to_expr(shape_env.expression_of(size), meaning)
    except Untranslatable:
        return None
