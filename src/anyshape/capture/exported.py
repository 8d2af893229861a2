"""A symbolic trace as a tape: its sizes become expressions of the contract's dims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.symbols import Untranslatable, to_expr
from anyshape.capture.tape import Step, Tape, Value, expanded, functional, tape_of
from anyshape.capture.tape.steps import map_leaves
from anyshape.dims import Expr, names
from anyshape.errors import CaptureFault
from anyshape.torch_bridge import shape_env, tracing

__all__ = ["exported_tape"]


def exported_tape(
    exported: torch.export.ExportedProgram, meaning: Mapping[Any, Expr], own: Collection[Any]
) -> Tape:
    """The program's tape, of operators that have a translation; `CaptureFault` where a tape has no words for it."""
    sizes = _Sizes(meaning)
    names, tensors = _own_tensors(exported)
    tape = tape_of(exported.graph_module, names, tensors=tensors, number=sizes.number)
    return expanded(functional(tape).used_only(), own, sizes.parts).used_only()


def _own_tensors(exported: torch.export.ExportedProgram) -> tuple[dict[int, str], dict[str, torch.Tensor]]:
    """The program's weights by the names of their placeholders, and their names in the user's module."""
    signature = exported.graph_signature
    stored: dict[str, Any] = {**exported.state_dict, **exported.constants}
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names: dict[int, str] = {}
    tensors: dict[str, torch.Tensor] = {}
    for placeholder, name in {**named, **signature.inputs_to_lifted_tensor_constants}.items():
        tensor = stored[name]
        tensors[placeholder] = tensor
        if placeholder in named:
            names[id(tensor)] = name.removeprefix("module.")
    return names, tensors


class _Sizes:
    """Symbolic sizes as expressions, and back."""

    def __init__(self, meaning: Mapping[Any, Expr]) -> None:
        self.meaning = dict(meaning)
        self.symbolic: dict[Expr, Any] = {}

    def number(self, value: Any) -> Any:
        """A symbolic number as an expression; anything else as it is."""
        if not isinstance(value, torch.SymInt):
            return value
        expression = shape_env.expression_of(value)
        for symbol in expression.free_symbols:
            # A size that depends on values: the trace's own symbol for it becomes a name.
            if symbol not in self.meaning:
                self.meaning[symbol] = Expr.of(names.data(str(symbol)))
        try:
            made = to_expr(expression, self.meaning)
        except Untranslatable as error:
            raise CaptureFault(
                f"the trace has a size that no expression of the dims says: {error}"
            ) from error
        self.symbolic.setdefault(made, value)
        return made if made.constant is None else made.constant

    def parts(self, step: Step, function: Callable[..., Any], values: Sequence[Value]) -> Tape | None:
        """The tape of an operator's decomposition, on tensors of the trace's own symbolic sizes."""
        if any(value.traced is None for value in values):
            return None

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)

            def argument(leaf: Any) -> Any:
                if isinstance(leaf, Value):
                    return next(rest)
                return self.symbolic[leaf] if isinstance(leaf, Expr) else leaf

            args, kwargs = map_leaves(argument, (step.args, step.kwargs))
            return function(*args, **kwargs)

        try:
            traced = tracing.traced_symbolically(call, [value.traced for value in values])
            return functional(tape_of(traced, {}, number=self.number))
        except Exception:  # the decomposition is not for these arguments: the operator stays whole
            return None
