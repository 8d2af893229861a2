"""The exporters that are compared, each as a function of a module, its inputs and the axes that vary.

anyshape is given the module and one example. torch's two exporters are told which axes vary, and given a wrapper
with flat inputs where they need one, as a person who knows the model would do.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Axes = list[dict[int, str]]  # for each leaf of (args, kwargs), the axes that vary


class Flat(nn.Module):
    """A module from flat tensors to flat tensors; everything else is as in the example."""

    def __init__(self, module: nn.Module, leaves: Sequence[Any], tree: Any) -> None:
        super().__init__()
        self.module, self.leaves, self.tree = module, list(leaves), tree

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return tuple(
            out for out in pytree.tree_leaves(self.module(*args, **kwargs)) if isinstance(out, Tensor)
        )


def moving_axes(example: Any, others: Sequence[Any]) -> Axes:
    """For each leaf of the example, the axes whose size differs in one of the others."""
    leaves = pytree.tree_leaves(example)
    axes: Axes = [{} for _ in leaves]
    for other in others:
        for number, (one, two) in enumerate(zip(leaves, pytree.tree_leaves(other), strict=True)):
            if isinstance(one, Tensor):
                moved = [
                    axis
                    for axis, pair in enumerate(zip(one.shape, two.shape, strict=True))
                    if len(set(pair)) > 1
                ]
                axes[number].update({axis: f"size_{number}_{axis}" for axis in moved})
    return axes


def with_anyshape(module: nn.Module, args: Any, kwargs: dict[str, Any], path: str, axes: Axes) -> None:
    import anyshape

    anyshape.export(module, args, path, kwargs=kwargs)


def with_torch(module: nn.Module, args: Any, kwargs: dict[str, Any], path: str, axes: Axes) -> None:
    leaves, tree = pytree.tree_flatten((args, kwargs))
    shapes = [dict.fromkeys(moved, torch.export.Dim.DYNAMIC) or None for moved in axes]
    if kwargs:
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
        wanted = tuple(shape for leaf, shape in zip(leaves, shapes, strict=True) if isinstance(leaf, Tensor))
        torch.onnx.export(
            Flat(module, leaves, tree).eval(),
            tensors,
            path,
            dynamo=True,
            dynamic_shapes=(wanted,),
            verbose=False,
        )
        return
    nested, _ = pytree.tree_unflatten(shapes, tree)
    torch.onnx.export(module, args, path, dynamo=True, dynamic_shapes=tuple(nested), verbose=False)


def with_torchscript(module: nn.Module, args: Any, kwargs: dict[str, Any], path: str, axes: Axes) -> None:
    leaves, tree = pytree.tree_flatten((args, kwargs))
    pairs = [(leaf, moved) for leaf, moved in zip(leaves, axes, strict=True) if isinstance(leaf, Tensor)]
    names = [f"input_{number}" for number in range(len(pairs))]
    torch.onnx.export(
        Flat(module, leaves, tree).eval(),
        tuple(leaf for leaf, _ in pairs),
        path,
        dynamo=False,
        opset_version=18,
        input_names=names,
        dynamic_axes={name: moved for name, (_, moved) in zip(names, pairs, strict=True) if moved},
    )


Exporter = Callable[[nn.Module, Any, dict[str, Any], str, Axes], None]
EXPORTERS: dict[str, Exporter] = {
    "anyshape": with_anyshape,
    "torch": with_torch,
    "torchscript": with_torchscript,
}


@contextlib.contextmanager
def silence() -> Any:
    """Exporters talk: their words are not part of a table."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
