"""A program that torch.export.save wrote: its own inputs are the example."""

from __future__ import annotations

import os
import zipfile

import torch

from anyshape.errors import FileError
from anyshape.models.library import quiet
from anyshape.models.wanted import Parts
from anyshape.source.lines import first_line

__all__ = ["load"]


def load(path: str) -> Parts:
    """The program and the inputs that it was traced with."""
    if not os.path.exists(path):
        raise FileError(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise FileError(f"{path} is no file of torch.export.save")
    try:
        with quiet():
            program = torch.export.load(path)
    except Exception as error:  # a damaged file, or one of another version, raises anything
        raise FileError(
            f"{path} can't be loaded: {first_line(error)}",
            hint=f"Save it with the torch that is installed here, {torch.__version__}: torch.export.save.",
        ) from error
    if program.example_inputs is None:
        raise FileError(
            f"{path} holds no example inputs",
            hint="Load it yourself, and name a function that returns (torch.export.load(path), args).",
        )
    args, kwargs = program.example_inputs
    return program, tuple(args), dict(kwargs)
