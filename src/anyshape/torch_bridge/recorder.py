"""A mode that sees every operator before PyTorch takes composite ones apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import _library
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.utils._python_dispatch import TorchDispatchMode

from anyshape.torch_bridge.process import alone, patched

__all__ = ["every_operator"]


Note = Callable[[Any, Any, Any], Callable[[Any], Any]]


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
        if _is_batched((args, kwargs)):
            with _Below(self.note):
                return func(*args, **(kwargs or {}))
        return _noted(self.note, func, args, kwargs or {})


class _Below(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operators that torch.vmap makes of one: they are of whole batches."""

    def __init__(self, note: Note) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _noted(self.note, func, args, kwargs or {})


def _noted(note: Note, func: Any, args: Any, kwargs: Any) -> Any:
    finish = note(func, args, kwargs)  # before it runs: it may write to its arguments
    return finish(func(*args, **kwargs))


def _is_batched(tree: Any) -> bool:
    """Whether an operator is given what torch.vmap makes of a tensor, which stands for one row of it."""
    if isinstance(tree, torch.Tensor):
        return torch._C._functorch.is_batchedtensor(tree)
    if isinstance(tree, (list, tuple)):
        return any(map(_is_batched, tree))
    return isinstance(tree, dict) and any(map(_is_batched, tree.values()))


def _handed_on(mode: Any, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call handed to a mode: ours does not ask which kinds of tensors are in it, which takes long to find out."""
    if type(mode) is _Recorder:
        return mode.__torch_dispatch__(func, (), args, kwargs)
    return HAND_ON(mode, func, *args, **kwargs)  # type: ignore[no-untyped-call]


HAND_ON = _library.utils.handle_dispatch_mode


@contextlib.contextmanager
def every_operator(note: Note) -> Iterator[None]:
    """Within this context, ``note`` is told of every operator that is called, composite ones whole.

    What it returns is told of the result, and returns what the model is given as such.
    """
    with alone():
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(
            False
        )  # one operator for a whole layer, which nothing translates
        try:
            with (
                patched(_library.utils, "handle_dispatch_mode", _handed_on),
                enable_python_dispatcher(),
                _Recorder(note),
                torch._C._DisableAutocast(),
            ):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
