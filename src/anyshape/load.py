"""load: an exported file, called like the module it came from; inputs outside the contract are refused."""

from __future__ import annotations

import os
from typing import Any

import torch

from anyshape.artifact import contract_of, read_model
from anyshape.contract import Contract
from anyshape.errors import FileError, InputError
from anyshape.runtime import OnnxRuntime, RuntimeFailure, to_numpy, to_torch
from anyshape.tree import flatten, structure_from_json

__all__ = ["Loaded", "load"]


class Loaded:
    """A model on ONNX Runtime with the calling convention of the module that it was exported from."""

    def __init__(self, path: str, contract: Contract) -> None:
        self.path = path
        self.contract = contract
        self._runtime = OnnxRuntime.of_file(path)
        self._inputs = structure_from_json(contract.input_structure)
        self._outputs = structure_from_json(contract.output_structure)
        self._arguments: tuple[str, ...] = tuple(contract.arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for these inputs, in the module's own structure.

        A wrong size is an `InputError` in the contract's words, before the runtime sees it.
        """
        tensors = self._tensors(args, kwargs)
        self._check(tensors)
        feed = {
            item.name: to_numpy(tensor) for item, tensor in zip(self.contract.inputs, tensors, strict=True)
        }
        try:
            outputs = self._runtime.run(feed)
        except RuntimeFailure as failure:
            raise InputError(f"ONNX Runtime refuses these inputs: {failure}") from failure
        return self._outputs.rebuild([to_torch(output) for output in outputs])

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The tensors of a call in the file's order, however the call names its arguments."""
        positional, named = self._inputs.children
        names = [*self._arguments[: len(positional.children)], *map(str, named.keys)]
        given = dict(zip(names, args, strict=False))
        unknown = [name for name in kwargs if name not in names or name in given]
        if len(args) > len(names) or unknown:
            what = f"unexpected argument {unknown[0]}" if unknown else f"{len(args)} arguments, not {len(names)}"
            raise InputError(f"{what}", hint=f"The model takes: {', '.join(names)}.")
        given.update(kwargs)
        tensors: list[torch.Tensor] = []
        for name, structure in zip(names, (*positional.children, *named.children), strict=True):
            wanted = _count(structure)
            if name not in given:
                if wanted:
                    raise InputError(f"{name} is missing", hint=f"The model takes: {', '.join(names)}.")
                continue
            leaves = [tensor for _, tensor in flatten(given[name], name)[0]]
            if len(leaves) != wanted:
                raise InputError(f"{name} holds {len(leaves)} tensors, not {wanted}")
            tensors += leaves
        return tensors

    def _check(self, tensors: list[torch.Tensor]) -> None:
        for item, tensor in zip(self.contract.inputs, tensors, strict=True):
            dtype = str(tensor.dtype).removeprefix("torch.")
            if dtype != item.dtype:
                raise InputError(f"{item.name} is {dtype}, not {item.dtype}")
        self.contract.bind([tuple(tensor.shape) for tensor in tensors])

    def __repr__(self) -> str:
        return f"anyshape.load({self.path!r})\n{self.contract}"


def _count(structure: Any) -> int:
    if structure.kind == "tensor":
        return 1
    return sum(_count(child) for child in structure.children)


def load(path: str | os.PathLike[str]) -> Loaded:
    """An exported file, ready to be called like the module; `FileError` for a file that carries no contract."""
    name = os.fspath(path)
    contract = contract_of(read_model(name))
    if contract is None:
        raise FileError(
            f"{name} carries no contract: it was not exported by anyshape",
            hint="Export the model with anyshape, or run the file with onnxruntime.",
        )
    return Loaded(name, contract)
