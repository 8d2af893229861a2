"""What torch.compile made: exported, and compared with, as what is inside."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from anyshape.torch_bridge.process import patched

__all__ = ["inside", "uncompiled"]


def inside(model: torch.nn.Module) -> tuple[torch.nn.Module, bool]:
    """The module that was compiled, and whether it, or a part of it, was."""
    if "torch._dynamo" not in sys.modules:  # which nothing compiles without
        return model, False
    from torch._dynamo.eval_frame import OptimizedModule

    found = any(
        isinstance(part, OptimizedModule) or part._compiled_call_impl is not None for part in model.modules()
    )
    while isinstance(model, OptimizedModule):
        model = model._orig_mod
    return model, found


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Within this, compiled functions and modules run as if they were not; control flow is compiled as before."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    utils = importlib.import_module("torch._higher_order_ops.utils")
    compile_and_call = utils._hop_compile_and_call

    def compiled(function: Any, args: Any, kwargs: Any = None) -> Any:
        with torch.compiler.set_stance("default"):
            return compile_and_call(function, args, kwargs)

    with patched(utils, "_hop_compile_and_call", compiled), torch.compiler.set_stance("force_eager"):
        yield
