"""A mode that sees every operator before PyTorch takes composite ones apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import _library
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch import apis, eager_transforms
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
        self._dispatch_key = DispatchKey.PreDispatch
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _is_transformed((args, kwargs)) or torch.is_autocast_enabled("cpu"):
            with _Below(self.note):
                return func(*args, **(kwargs or {}))
        return _noted(self.note, func, args, kwargs or {})


class _Below(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operators that torch.func's transforms make of one, which are of plain tensors, and autocast's casts."""

    def __init__(self, note: Note) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _noted(self.note, func, args, kwargs or {})


def _noted(note: Note, func: Any, args: Any, kwargs: Any) -> Any:
    finish = note(func, args, kwargs)  # before it runs: it may write to its arguments
    return finish(func(*args, **kwargs))


def _is_transformed(tree: Any) -> bool:
    """Whether an operator runs for torch.vmap, grad, jvp or their like: what it is given or makes stands for more.

    A tensor of torch.vmap stands for one row of it, one of torch.func.grad for its gradient as well.
    """
    top = torch._C._functorch.peek_interpreter_stack()
    # All but torch.vmap wrap whatever is made within them.
    return top is not None and (top.key() != torch._C._functorch.TransformType.Vmap or _is_wrapped(tree))


def _is_wrapped(tree: Any) -> bool:
    if isinstance(tree, torch.Tensor):
        return bool(torch._C._functorch.is_functorch_wrapped_tensor(tree))
    if isinstance(tree, (list, tuple)):
        return any(map(_is_wrapped, tree))
    return isinstance(tree, dict) and any(map(_is_wrapped, tree.values()))


def _handed_on(mode: Any, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call handed to a mode: ours does not ask which kinds of tensors are in it, which takes long to find out."""
    if type(mode) is _Recorder:
        return mode.__torch_dispatch__(func, (), args, kwargs)
    return HAND_ON(mode, func, *args, **kwargs)


HAND_ON: Any = _library.utils.handle_dispatch_mode


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
                _transforms(note),
                patched(_library.utils, "handle_dispatch_mode", _handed_on),
                enable_python_dispatcher(),
                _Recorder(note),
                torch.autocast("cpu", enabled=False),
            ):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def _transforms(note: Note) -> Iterator[None]:
    """Within this, what torch.func's transforms do can be recorded.

    Gradients run with operators as they are at the bottom: one with a plain number keeps it as a tensor of a kind that
    can't be handed to Python. And a vmap runs at once, not in pieces, which only saves memory.
    """
    backwards, at_once = eager_transforms._autograd_grad, apis.vmap_impl  # type: ignore[attr-defined]

    def gradients(*args: Any, **kwargs: Any) -> Any:
        with _ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.PreDispatch)), _Below(note):
            return backwards(*args, **kwargs)

    def mapped(
        func: Any, in_dims: Any, out_dims: Any, randomness: str, chunk_size: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return at_once(func, in_dims, out_dims, randomness, None, *args, **kwargs)

    with patched(eager_transforms, "_autograd_grad", gradients), patched(apis, "vmap_impl", mapped):
        yield
