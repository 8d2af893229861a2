"""Inputs that the user's own function makes: what it raises, or gives amiss, is its own fault, not the model's."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from anyshape.errors import AnyshapeError, UsageError
from anyshape.inputs.case import Case
from anyshape.source.lines import first_line, line_of_exception

__all__ = ["made_by_user"]


def made_by_user(case: Case, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """The tensors that ``make_inputs`` gives for ``sizes``; `UsageError` where it fails."""
    assert case.make_inputs is not None
    at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    try:
        given = case.make_inputs(dict(sizes))
    except AnyshapeError:
        raise
    except Exception as error:  # the user's own code may raise anything
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
    return list(case.tensors_of(*given))
