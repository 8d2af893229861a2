"""Inputs that the user's own function makes: what it raises, or gives amiss, is its own fault, not the model's."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from anyshape.errors import AnyshapeError, UsageError
from anyshape.inputs.case import Case, Shapes
from anyshape.source.lines import first_line, line_of_exception

__all__ = ["made_by_user"]


def made_by_user(case: Case, sizes: Mapping[str, int], shapes: Shapes) -> list[torch.Tensor]:
    """The tensors that ``make_inputs`` gives for ``sizes``; `UsageError` where it fails, or gives other ``shapes``."""
    assert case.make_inputs is not None
    at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    try:
        given = case.make_inputs(dict(sizes))
    except AnyshapeError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise UsageError(
            f"make_inputs fails at {at}: {first_line(error)}",
            where=line_of_exception(error),
            hint="It has to make inputs at every size of the contract; declare dims={...} where there are none.",
        ) from error
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)):
        raise UsageError(
            f"make_inputs gives a {type(given).__name__} at {at}, not (args, kwargs)",
            hint="Return a tuple of positional inputs and a dict of named ones: return (x, y), {}.",
        )
    tensors = list(case.tensors_of(*given))
    for item, tensor, shape in zip(case.inputs, tensors, shapes, strict=True):
        if tuple(tensor.shape) != shape:
            raise UsageError(
                f"make_inputs gives {item.path} {list(tensor.shape)} at {at}, not {list(shape)}",
                hint="Make every input of the sizes that are asked for.",
            )
    return tensors
