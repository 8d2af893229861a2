"""PyTorch's own control flow: torch.cond, while_loop, scan, map and associative_scan, run by a flow of ours.

PyTorch compiles them even in eager mode, which no mode of ours survives. Within `run_by`, each of them hands its
functions to a `Flow` instead, as functions of plain lists of tensors.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree

from anyshape.torch_bridge.process import patched

__all__ = ["Flow", "Plain", "Refused", "run_by"]

Tensors = Sequence[Any]  # leaves of what the model gives: tensors, where it keeps to the rules
Side = Callable[[], Tensors]
Round = Callable[[Tensors], Tensors]
RowRound = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]


class Flow(Protocol):
    """Runs control flow: a choice between two sides, a loop while a test holds, a loop over the rows of tensors."""

    def choose(self, test: Any, then: Side, otherwise: Side) -> Tensors: ...

    def repeat(self, test: Callable[[Tensors], Any], body: Round, carried: Tensors) -> Tensors: ...

    def over(self, body: RowRound, carried: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]: ...


class Plain:
    """Runs control flow as Python would; of tensors without data, whose truth is not known, the first way.

    The side of a choice that is not taken is run as well, as PyTorch does to compile it: what it objects to is refused.
    """

    def __init__(self) -> None:
        self.supposing = 0  # how deep in sides that are not taken: a loop there may never end

    def choose(self, test: Any, then: Side, otherwise: Side) -> Tensors:
        taken, other = (then, otherwise) if isinstance(test, FakeTensor) or test else (otherwise, then)
        made = taken()
        self.supposing += 1
        try:
            _check_alike(made, other())
        finally:
            self.supposing -= 1
        return made

    def repeat(self, test: Callable[[Tensors], Any], body: Round, carried: Tensors) -> Tensors:
        going = test(carried)
        if isinstance(going, FakeTensor):
            return body(carried)
        if not going or self.supposing:
            body(carried)  # all the same: it tells the structure of the result
            return carried
        while going:
            carried = body(carried)
            going = test(carried)
        return carried

    def over(self, body: RowRound, carried: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
        made = []
        count = rows[0].shape[0]
        if isinstance(rows[0], FakeTensor):  # one round tells the shapes of all
            carried, row = body(carried, [tensor.select(0, 0) for tensor in rows])
            return carried, [item.new_empty([count, *item.shape]) for item in row]
        for number in range(count):
            carried, row = body(carried, [tensor.select(0, number) for tensor in rows])
            made.append(row)
        return carried, [torch.stack(items) for items in zip(*made, strict=True)]


def _check_alike(one: Tensors, two: Tensors) -> None:
    """The sides of a choice give tensors of the same shapes, as a graph has one for each of them."""
    shapes = [
        [list(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)] for leaves in (one, two)
    ]
    if shapes[0] != shapes[1]:
        raise RuntimeError(f"the two sides of a torch.cond give unlike shapes: {shapes[0]} and {shapes[1]}")


class Refused:
    """Runs no control flow: raises what ``fault`` makes of its name."""

    def __init__(self, fault: Callable[[str], Exception]) -> None:
        self.fault = fault

    def choose(self, test: Any, then: Side, otherwise: Side) -> Tensors:
        raise self.fault("torch.cond")

    def repeat(self, test: Callable[[Tensors], Any], body: Round, carried: Tensors) -> Tensors:
        raise self.fault("a while_loop")

    def over(self, body: RowRound, carried: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
        raise self.fault("a scan or map")


@contextlib.contextmanager
def run_by(flow: Flow) -> Iterator[None]:
    """Within this context, the control flow of the models that this thread runs is run by ``flow``.

    Where it is run plainly already, to say so again costs nothing.
    """
    around: Flow | None = getattr(_HERE, "flow", None)
    if isinstance(flow, Plain) and isinstance(around, Plain):
        yield
        return
    with contextlib.ExitStack() as stack:
        for module, name, replacement in _replacements(flow):
            owner = importlib.import_module(f"torch._higher_order_ops.{module}")
            stack.enter_context(patched(owner, name, replacement))
        try:
            _HERE.flow = flow
            yield
        finally:
            _HERE.flow = around


_HERE = threading.local()  # what runs the control flow of this thread's models


def _replacements(flow: Flow) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """What each function calls once it has checked its arguments, and what it is to call instead."""

    def uncompiled(function: Any, args: Any, kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))

    def cond(test: Any, then: Any, otherwise: Any, operands: Any) -> Any:
        seen = _Structure()
        return seen.rebuilt(
            flow.choose(test, lambda: seen.leaves(then(*operands)), lambda: seen.leaves(otherwise(*operands)))
        )

    def while_loop(test: Any, body: Any, carried: Any, more: Any) -> Any:
        seen = _Structure()
        made = flow.repeat(
            lambda now: test(*now, *more), lambda now: seen.leaves(body(*now, *more)), list(carried)
        )
        return seen.rebuilt(made)

    def scan(combine: Any, init: Any, rows: Any, additional_inputs: Any = ()) -> Any:
        kept, made = _Structure(), _Structure()

        def body(carried: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
            after, result = combine(*carried, *row, *additional_inputs)
            return kept.leaves(after), made.leaves(result)

        last, stacked = flow.over(body, list(init), list(rows))
        return kept.rebuilt(last), made.rebuilt(stacked)

    def mapped(function: Any, rows: Any, more: Any) -> Any:
        seen = _Structure()
        made = flow.over(lambda _, row: ([], seen.leaves(function(*row, *more))), [], list(rows))
        return seen.rebuilt(made[1])

    def associative_scan(combine: Any, rows: Any, dim: int = 0, additional_inputs: Any = ()) -> Any:
        return _in_order(flow, lambda *pair: combine(*pair, *additional_inputs), list(rows))

    yield "utils", "_hop_compile_and_call", uncompiled
    yield "cond", "cond_op", cond
    yield "while_loop", "while_loop_op", while_loop
    yield "scan", "scan_op", scan
    yield "map", "map_impl", mapped
    yield "associative_scan", "generic_associative_scan", associative_scan


def _in_order(flow: Flow, combine: Callable[..., Any], rows: list[torch.Tensor]) -> list[Any]:
    """An associative scan from the first row to the last; PyTorch combines neighbours, whole halves at a time."""
    first = torch.arange(rows[0].shape[0]) == 0

    def body(carried: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
        *here, is_first = row
        pair = [tensor.unsqueeze(0) for tensor in (*carried, *here)]
        both = [tensor.squeeze(0) for tensor in _pytree.tree_leaves(combine(*pair))]
        made = [torch.where(is_first, one, two) for one, two in zip(here, both, strict=True)]
        return made, made

    return list(flow.over(body, [row.select(0, 0) for row in rows], [*rows, first])[1])


class _Structure:
    """The structure of what a function of the model returned last."""

    def __init__(self) -> None:
        self.spec: Any = None

    def leaves(self, tree: Any) -> list[Any]:
        found, self.spec = _pytree.tree_flatten(tree)
        return found

    def rebuilt(self, leaves: Tensors) -> Any:
        return _pytree.tree_unflatten(list(leaves), self.spec)
