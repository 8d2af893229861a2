"""A mode that sees every operator before PyTorch takes composite ones apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.schema_check_mode import SchemaCheckMode

from anyshape.torch_bridge.process import alone

__all__ = ["every_operator"]


Note = Callable[[Any, Any, Any], Callable[[Any], None]]


class _Recorder(SchemaCheckMode):  # type: ignore[no-untyped-call]
    """Sees every operator before PyTorch takes composite ones apart.

    Only modes of PyTorch's own classes are let in there; this one has room for a single guest. make_fx would do the
    same, ten times slower, since it makes a graph and tensors without data beside the real ones.
    """

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._dispatch_key = torch._C.DispatchKey.PreDispatch
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        finish = self.note(func, args, kwargs or {})  # before it runs: it may write to its arguments
        result = func(*args, **(kwargs or {}))
        finish(result)
        return result


@contextlib.contextmanager
def every_operator(note: Note) -> Iterator[None]:
    """Within this context, ``note`` is told of every operator that is called, composite ones whole."""
    with alone():
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(
            False
        )  # one operator for a whole layer, which nothing translates
        try:
            with enable_python_dispatcher(), _Recorder(note), torch._C._DisableAutocast():
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
