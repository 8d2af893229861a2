"""understand: the start of every line: read, declare, probe and, where a size is written into the source, repair.

Export, explain and judge begin alike; what they do with what is understood here is their own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.contract.declare import Declaration, declare
from anyshape.errors import UsageError, own_mistakes
from anyshape.inputs.case import Case, as_args
from anyshape.inputs.numbers import told_apart
from anyshape.inputs.read import as_module, check_history, evaluation_mode, read
from anyshape.probe import Evidence, probe
from anyshape.progress import Progress
from anyshape.repair import Repair, repairing
from anyshape.torch_bridge import compiled, process

__all__ = ["Understood", "understand"]

DEEPEST = 8  # levels of nesting that a report shows


@dataclass(frozen=True, slots=True)
class Understood:
    """A case, what was declared of it, what PyTorch accepts, and what had to be repaired for that."""

    case: Case
    declared: Declaration
    evidence: Evidence
    repairs: tuple[Repair, ...] = ()


@contextlib.contextmanager
def understand(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    told: Progress,
    *,
    shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    examples: Sequence[Any] = (),
    make_inputs: Callable[[dict[str, int]], Any] | None = None,
    repair: bool = False,
    look: Callable[[Case], None] = lambda case: None,
) -> Iterator[Understood]:
    """What is known of a model before it is captured; ``look`` may object to the case before any size is tried.

    Within this the model is in evaluation mode and runs with its repairs, and no other thread exports: what tracers
    replace in PyTorch is replaced for the whole process.
    """
    module, notes = as_module(model)
    numbers, sized = told_apart(shapes)

    def waiting() -> None:
        told.doing("read", "waiting for another export in this process")

    if getattr(_HERE, "busy", False):
        raise UsageError(
            "an export is under way in this thread: the model, or a hook of it, calls anyshape itself",
            hint="Export one model after the other.",
        )
    script = functools.partial(_script, module, args, kwargs or {})
    with (
        own_mistakes("at work on a model", script),
        process.alone(waiting),
        _busy(),
        compiled.uncompiled(),
        evaluation_mode(module),
        torch.random.fork_rng(devices=()),  # a seeded script goes on as if nothing had been drawn
    ):
        with told.station("read"):
            case = read(
                module,
                args,
                kwargs,
                input_names=input_names,
                examples=examples,
                make_inputs=make_inputs,
                notes=notes,
                numbers=numbers,
            )
            declared = declare(
                case, shapes=sized, dims=dims, dynamic_axes=dynamic_axes, dynamic_shapes=dynamic_shapes
            )
            look(case)
        told.done("read", case.summary)
        with told.station("probe"):
            evidence = probe(case, progress=lambda text: told.doing("probe", text))
        told.done("probe", evidence.summary)
        with repairing(case, declared, evidence, repair, told) as (evidence, repairs):
            yield Understood(case, declared, evidence, repairs)
        check_history(case)


_HERE = threading.local()


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    _HERE.busy = True
    try:
        yield
    finally:
        _HERE.busy = False


def _script(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> str:
    """How the model was called: shapes and types only, as its values are nobody else's."""
    kind = type(module)
    given = [*map(_example, as_args(args)), *(f"{name}={_example(value)}" for name, value in kwargs.items())]
    return f"model: {kind.__module__}.{kind.__qualname__}\ncall:  model({', '.join(given)})"


def _example(value: Any, depth: int = 0) -> str:
    if depth > DEEPEST:
        return "..."
    if isinstance(value, torch.Tensor) and not value.is_nested:
        return f"torch.zeros({tuple(value.shape)}, dtype={value.dtype})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_example(item, depth + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_example(item, depth + 1) for item in value) + "]"
    return repr(value) if isinstance(value, (bool, int, float, type(None))) else f"<{type(value).__name__}>"
