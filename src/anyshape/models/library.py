"""Libraries that models come from: imported when they are asked for, and quiet while they load."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from anyshape.errors import FileError
from anyshape.source.lines import first_line

__all__ = ["config_of", "imported", "not_built", "quiet", "seeded"]


def imported(library: str, extra: str) -> types.ModuleType:
    """The library, or a `FileError` that says what to install."""
    try:
        with quiet():
            return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == library:
            raise FileError(f"{library} is not installed", hint=_install(library, extra)) from error
        missing = f"{library} can't be imported: {error.name} is not installed"
        raise FileError(missing, hint=_install(library, extra)) from error
    except Exception as error:  # a library that was built for another PyTorch raises anything
        raise FileError(
            f"{library} can't be imported: {first_line(error)}",
            hint=f"Install the {library} that goes with torch {torch.__version__}.",
        ) from error


def _install(library: str, extra: str) -> str:
    plain = f"Install it: pip install 'anyshape[{extra}]'"
    if library in ("torchvision", "timm"):
        return f"{plain}, or pip install --no-deps {library}, which leaves your torch as it is."
    return plain + "."


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what a library warns of, logs and prints while it builds a model."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """The same random weights each time, and PyTorch's own generator as it was before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def config_of(file: str) -> dict[str, Any]:
    """What a model's config says; `FileError` where it can't be read, or says nothing."""
    try:
        with open(file, encoding="utf-8") as stream:
            told = json.load(stream)
    except (OSError, ValueError) as error:
        raise FileError(f"{file} can't be read: {first_line(error)}") from error
    if not isinstance(told, dict):
        raise FileError(f"{file} holds no config")
    return told


def not_built(kind: type, place: str, error: Exception, download: bool) -> FileError:
    """Why a library's model could not be made from a folder or a name: of the network, of the file, of the library."""
    if isinstance(error, OSError) and not os.path.isdir(place) and not download:
        return FileError(
            f"the weights of {place} are not in the local cache",
            hint="Pass --download to fetch them, or --random for random ones.",
        )
    return FileError(f"{kind.__name__} can't be built from {place}: {first_line(error)}")
