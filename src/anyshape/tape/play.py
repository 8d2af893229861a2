"""Play: run a tape of concrete sizes on other values than those it was recorded with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anyshape.tape.steps import Tape, Value, map_leaves

__all__ = ["play"]


def play(tape: Tape, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of the tape's steps on these inputs."""
    known: dict[Value, Any] = {**tape.constants, **dict(zip(tape.inputs, tensors, strict=True))}

    def filled(leaf: Any) -> Any:
        return known[leaf] if isinstance(leaf, Value) else leaf

    with torch.no_grad():
        for step in tape.steps:
            result = step.target(*map_leaves(filled, step.args), **map_leaves(filled, step.kwargs))
            many = isinstance(result, (list, tuple))
            known.update(zip(step.outputs, result if many else [result], strict=False))
    return [known[value] for value in tape.outputs]
