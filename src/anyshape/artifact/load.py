"""load: an exported file, called like the module it came from; inputs outside the contract are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from anyshape.artifact.read import contract_of, read_model
from anyshape.contract.contract import Contract
from anyshape.errors import FileError, InputError
from anyshape.inputs.tree import Structure, flatten, structure_from_json
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure, to_numpy, to_torch

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
            what = (
                f"unexpected argument {unknown[0]}" if unknown else f"{len(args)} arguments, not {len(names)}"
            )
            raise InputError(f"{what}", hint=f"The model takes: {', '.join(names)}.")
        given.update(kwargs)
        tensors: list[torch.Tensor] = []
        for name, structure in zip(names, (*positional.children, *named.children), strict=True):
            if name not in given:
                if _count(structure):
                    raise InputError(f"{name} is missing", hint=f"The model takes: {', '.join(names)}.")
                continue
            tensors += _leaves(given[name], structure, name)
        return tensors

    def _check(self, tensors: list[torch.Tensor]) -> None:
        for item, tensor in zip(self.contract.inputs, tensors, strict=True):
            dtype = str(tensor.dtype).removeprefix("torch.")
            if dtype != item.dtype:
                raise InputError(f"{item.name} is {dtype}, not {item.dtype}")
        self.contract.bind([tuple(tensor.shape) for tensor in tensors])

    def __repr__(self) -> str:
        return f"anyshape.load({self.path!r})\n{self.contract}"


def _leaves(value: Any, wanted: Structure, path: str) -> list[torch.Tensor]:
    """The tensors of an argument in the file's order, whatever order its dicts have; constants must be the file's."""
    leaves, structure = flatten(value, path)
    if len(leaves) != _count(wanted):
        raise InputError(f"{path} holds {len(leaves)} tensors, not {_count(wanted)}")
    ordered: list[torch.Tensor] = []
    _match(structure, wanted, path, iter([tensor for _, tensor in leaves]), ordered)
    return ordered


def _match(
    given: Structure,
    wanted: Structure,
    path: str,
    leaves: Iterator[torch.Tensor],
    ordered: list[torch.Tensor],
) -> None:
    if given.kind == "tensor":
        if wanted.kind != "tensor":
            raise InputError(f"{path} is a tensor, not {_described(wanted)}")
        ordered.append(next(leaves))
        return
    if wanted.kind == "tensor" or len(given.children) != len(wanted.children):
        raise InputError(f"{path} is {_described(given)}, not {_described(wanted)}")
    if wanted.kind == "constant":
        if given.kind != "constant" or given.to_json() != wanted.to_json():
            raise InputError(
                f"{path} is {_described(given)}, but the file was exported with {_described(wanted)}",
                hint="Plain values are part of the file: export again with another one.",
            )
        return
    made: dict[Any, list[torch.Tensor]] = {}
    by_key = dict(zip(_keys(wanted), wanted.children, strict=True))
    for key, child in zip(_keys(given), given.children, strict=True):
        if key not in by_key:
            raise InputError(f"{path} has {key}, not {' or '.join(by_key)}")
        _match(child, by_key[key], f"{path}.{key}", leaves, made.setdefault(key, []))
    for key in by_key:
        ordered += made[key]


def _keys(structure: Structure) -> list[str]:
    """A container's keys as text; a registered class is matched by position, as its keys are not in the file."""
    by_position = structure.kind in ("registered", "list", "tuple")
    return [str(key) for key in (range(len(structure.children)) if by_position else structure.keys)]


def _described(structure: Structure) -> str:
    if structure.kind == "constant":
        return repr(structure.value)
    return f"a {structure.kind}" + (f" of {len(structure.children)}" if structure.children else "")


def _count(structure: Structure) -> int:
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
