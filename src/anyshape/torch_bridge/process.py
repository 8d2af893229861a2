"""What a whole process shares: attributes of libraries that are replaced for a while, log levels, warnings.

PyTorch's tracers, its flags and Python's warnings belong to the process, not to a thread. So exports take turns: one
lock, taken here and nowhere else. A function that is replaced is so for the thread that replaced it only; another
thread, at work on something else, gets the original.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["alone", "patched", "quiet"]

_LOCK = threading.RLock()
_depth = 0  # of the thread that holds the lock
_is_quiet = False  # for that thread


@contextlib.contextmanager
def alone(waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """The only thread at work with what the process shares; ``waiting`` is called if another one is."""
    global _depth
    if not _LOCK.acquire(blocking=False):
        waiting()
        _LOCK.acquire()
    before = _state() if _depth == 0 else None
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if before is not None:
            _put_back(before)
        _LOCK.release()


LOGGERS = tuple(logging.getLogger(name) for name in ("torch", "onnx_ir", "onnxscript"))
FLAGS: tuple[tuple[Callable[[], bool], Callable[[bool], None]], ...] = (
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
)
_State = tuple[list[int], list[Any], list[bool]]


def _state() -> _State:
    """Levels, filters and flags. Each change is undone where it is made; an interruption may come just then."""
    return [logger.level for logger in LOGGERS], list(warnings.filters), [asked() for asked, _ in FLAGS]


def _put_back(before: _State) -> None:
    levels, filters, flags = before
    for logger, level in zip(LOGGERS, levels, strict=True):
        if logger.level != level:
            logger.setLevel(level)
    if list(warnings.filters) != filters:
        warnings.filters[:] = filters  # type: ignore[index]
    for (asked, change), flag in zip(FLAGS, flags, strict=True):
        if asked() != flag:
            change(flag)


@contextlib.contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """``owner.name`` replaced within this context, and put back whatever happens.

    >>> import math
    >>> with patched(math, "tau", 6):
    ...     math.tau
    6
    """
    with alone():
        here = vars(owner).get(name, _MISSING)  # as it stands there: not bound, not inherited
        function = isinstance(replacement, types.FunctionType)
        made = _in_this_thread(replacement, getattr(owner, name)) if function else replacement
        setattr(owner, name, made)
        try:
            yield
        finally:
            delattr(owner, name) if here is _MISSING else setattr(owner, name, here)


_MISSING = object()


def _in_this_thread(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    current = threading.get_ident
    thread = current()

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(*args, **kwargs) if current() == thread else original(*args, **kwargs)

    # A function that remembers its answers is told to forget by these.
    for attribute in ("cache_clear", "cache_info"):
        if hasattr(original, attribute):
            setattr(call, attribute, getattr(original, attribute))
    return call


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the logs and warnings of the libraries below from the user's terminal: what matters becomes our error.

    Within another, it costs nothing: a level that is set makes all loggers of the process forget what they know.
    """
    global _is_quiet
    with alone():
        if _is_quiet:
            yield
            return
        before = [logger.level for logger in LOGGERS]
        for logger in LOGGERS:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            _is_quiet = True
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            _is_quiet = False
            for logger, level in zip(LOGGERS, before, strict=True):
                logger.setLevel(level)
