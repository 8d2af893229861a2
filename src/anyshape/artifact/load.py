"""load: an exported file, called like the module it came from; inputs outside the contract are refused.

PyTorch is not needed: arrays go in and come out. Tensors go in and come out where the caller has PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from anyshape.artifact.generate import as_given, begun, continued, is_empty, may_hold_more
from anyshape.artifact.read import contract_of, read_model
from anyshape.contract.contract import Contract
from anyshape.errors import FileError, InputError, UsageError, printable
from anyshape.inputs.caches import miscounted
from anyshape.inputs.structure import (
    Opened,
    Structure,
    key_json,
    open_plain,
    structure_from_json,
    take_apart,
    with_classes,
)
from anyshape.runtimes.choose import only_evaluated, runtime_of_file
from anyshape.runtimes.onnx_runtime import OnnxRuntime, Runtime, RuntimeFailure, to_numpy, to_torch
from anyshape.runtimes.pieces import Implementation, Pieces, check_kernels, foreign

__all__ = ["Loaded", "load"]


class Loaded:
    """A model on ONNX Runtime with the calling convention of the module that it was exported from."""

    def __init__(self, path: str, contract: Contract, runtime: Runtime, classes: Sequence[type] = ()) -> None:
        self.path = path
        self.contract = contract
        self._inputs = structure_from_json(contract.input_structure)
        made = structure_from_json(contract.output_structure)
        self._inputs, self._outputs = with_classes([self._inputs, made], classes)
        self._runtime = runtime
        self._check_names()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for these inputs, in the module's own structure; arrays for arrays, tensors for tensors.

        A wrong size is an `InputError` in the contract's words, before the runtime sees it.
        """
        caches: list[Any] = []
        given = begun(self._given(args, kwargs, caches), self.contract.inputs)
        sizes = self._check(given)
        feed = {item.name: _array(leaf) for item, leaf in zip(self.contract.inputs, given, strict=True)}
        try:
            outputs = self._runtime.run(feed)
        except RuntimeFailure as failure:
            raise InputError(f"{self._runtime.name} refuses these inputs: {failure}") from failure
        outputs = [
            _complex(array, item.dtype) for array, item in zip(outputs, self.contract.outputs, strict=True)
        ]
        tensors = any(not isinstance(leaf, np.ndarray) for leaf in given)
        structure = as_given(self._outputs, caches).at(sizes)
        return structure.rebuild([to_torch(output) for output in outputs] if tensors else outputs)

    def generate(self, input_ids: Any, *, max_new_tokens: int, **options: Any) -> Any:
        """The prompts, continued greedily: `generate` of a language model whose cache goes in and comes out.

        Options are ``attention_mask`` (0 for what a prompt is padded with on the left), and ``eos_token_id``.
        """
        if not isinstance(self._runtime, OnnxRuntime):
            raise InputError(
                f"generation runs on {OnnxRuntime.name}, and this file runs on {self._runtime.name}"
            )
        return continued(self._runtime, self.contract, input_ids, max_new_tokens, **options)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any], caches: list[Any]) -> list[Any]:
        """The arrays and tensors of a call in the file's order, however the call names its arguments.

        None stands for what an empty cache lacks; the caches among the arguments are told to ``caches``.
        """
        positional, named = self._inputs.children
        names = [*self.contract.arguments[: len(positional.children)], *map(str, named.keys)]
        given = dict(zip(names, args, strict=False))
        unknown = [name for name in kwargs if name not in names or name in given]
        if len(args) > len(names) or unknown:
            what = (
                f"unexpected argument {unknown[0]}" if unknown else f"{len(args)} arguments, not {len(names)}"
            )
            raise InputError(f"{what}", hint=f"The model takes: {', '.join(names)}.")
        given.update(kwargs)
        found: list[Any] = []
        for name, structure in zip(names, (*positional.children, *named.children), strict=True):
            if name in given:
                found += _leaves(given[name], structure, name, caches)
            elif structure.kind == "cache":
                found += [None] * structure.tensors
            elif structure.tensors:
                raise InputError(f"{name} is missing", hint=f"The model takes: {', '.join(names)}.")
        return found

    def _check(self, given: Sequence[Any]) -> dict[str, int]:
        """The sizes of the dims; `InputError` for what the contract does not hold."""
        for item, leaf in zip(self.contract.inputs, given, strict=True):
            dtype = (
                leaf.dtype.name if isinstance(leaf, np.ndarray) else str(leaf.dtype).removeprefix("torch.")
            )
            if dtype != item.dtype:
                raise InputError(f"{item.name} is {dtype}, not {item.dtype}")
        return self.contract.bind([tuple(leaf.shape) for leaf in given])

    def _check_names(self) -> None:
        """Refuse a contract that speaks of another graph."""
        inputs, outputs = self.contract.inputs, self.contract.outputs
        for kind, said, found in (
            ("inputs", sorted(item.name for item in inputs), sorted(self._runtime.input_names)),
            ("outputs", [item.name for item in outputs], self._runtime.output_names),
        ):
            if said != found:
                told = [printable(", ".join(names) or "none", 200) for names in (said, found)]
                raise FileError(
                    f"the contract in {self.path} has the {kind} {told[0]}, the graph has {told[1]}",
                    hint="Export the model again.",
                )

    def __repr__(self) -> str:
        return f"anyshape.load({self.path!r})\n{self.contract}"


def _array(leaf: Any) -> npt.NDArray[Any]:
    if not isinstance(leaf, np.ndarray):
        return to_numpy(leaf)
    made = np.asarray(leaf, dtype=leaf.dtype.newbyteorder("="), order="C")
    if made.dtype.kind != "c":
        return made
    return np.stack([made.real, made.imag], -1)  # pairs, as ONNX has no such numbers


def _complex(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Pairs of reals as the complex numbers that the contract says they are."""
    return np.ascontiguousarray(array).view(dtype)[..., 0] if dtype.startswith("complex") else array


# --- From a call's arguments to the file's inputs -------------------------------------------------------


def _leaves(value: Any, wanted: Structure, path: str, caches: list[Any]) -> list[Any]:
    """The leaves of an argument in the file's order, whatever order its dicts have; constants must be the file's."""
    is_leaf, opened = _how_to_open()

    def noted(part: Any) -> Opened | None:
        box = opened(part)
        if box is not None and box.kind == "cache":
            caches.append((part, box))
        return box

    leaves, structure = take_apart(value, path, is_leaf, noted)
    amiss = miscounted(value, opened)
    if amiss is not None:
        raise InputError(f"{path}{amiss}, and the file goes by what it holds")
    if len(leaves) != wanted.tensors and not may_hold_more(wanted):
        raise InputError(f"{path} holds {len(leaves)} tensors, not {wanted.tensors}")
    ordered: list[Any] = []
    _match(structure, wanted, path, iter([leaf for _, leaf in leaves]), ordered)
    return ordered


def _how_to_open() -> tuple[Callable[[Any], bool], Callable[[Any], Opened | None]]:
    """What counts as a leaf, and how containers are opened: PyTorch's too, if the caller has imported it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return lambda part: isinstance(part, np.ndarray), open_plain
    from anyshape.inputs.tree import open_any

    kinds = (np.ndarray, torch.Tensor)
    return lambda part: isinstance(part, kinds), open_any


def _match(given: Structure, wanted: Structure, path: str, leaves: Iterator[Any], ordered: list[Any]) -> None:
    if wanted.kind == "cache" and is_empty(given):
        ordered.extend([None] * wanted.tensors)
        return
    if wanted.kind == "number" and given.kind == "constant":
        ordered.append(_number(given.value, wanted.value, path))
        return
    if given.kind == "tensor":
        if wanted.kind not in ("tensor", "number"):
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
    made: dict[Any, list[Any]] = {}
    by_position = _has_positions(given) or _has_positions(wanted)
    by_key = dict(zip(_keys(wanted, by_position), wanted.children, strict=True))
    for key, child in zip(_keys(given, by_position), given.children, strict=True):
        if key not in by_key:
            raise InputError(f"{path} has {key[1]}, not {' or '.join(str(known) for _, known in by_key)}")
        _match(child, by_key[key], f"{path}.{key[1]}", leaves, made.setdefault(key, []))
    for key in by_key:
        ordered += made[key]


def _number(value: Any, kind: str, path: str) -> npt.NDArray[Any]:
    """A plain number as the file takes it: whole numbers may stand for others."""
    if not isinstance(value, KINDS_OF_NUMBERS[kind]):
        raise InputError(f"{path} is {printable(repr(value), 200)}, not a number of the type {kind}")
    return np.asarray(value, DTYPES_OF_NUMBERS[kind])


KINDS_OF_NUMBERS: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}
DTYPES_OF_NUMBERS = {"bool": "bool", "int": "int64", "float": "float64"}


def _has_positions(structure: Structure) -> bool:
    """Whether the parts have places and no names, or none in a file: a registered class's own are not kept there."""
    return structure.kind in ("registered", "list", "tuple")


def _keys(structure: Structure, by_position: bool) -> list[tuple[str, Any]]:
    """A container's keys as a file has them, each with its type: 1 and "1" are two keys of a dict."""
    keys = range(len(structure.children)) if by_position else structure.keys
    return [(type(made).__name__, made) for made in map(key_json, keys)]


def _described(structure: Structure) -> str:
    if structure.kind == "constant":
        return printable(repr(structure.value), 200)
    if structure.kind == "number":
        return f"a number of the type {structure.value}"
    return f"a {structure.kind}" + (f" of {len(structure.children)}" if structure.children else "")


def load(
    path: str | os.PathLike[str],
    *,
    classes: Sequence[type] = (),
    operators: Mapping[str, Implementation] | None = None,
) -> Loaded:
    """An exported file, ready to be called like the module; `FileError` for a file that carries no contract.

    Named tuples, dataclasses and mappings come back as plain ones of the same name, as nothing that a file names is
    imported. Give your own ``classes`` to get those: they are matched by name and fields. Nodes that ONNX Runtime has
    no kernel for are run by ``operators``: functions of arrays by name, ``{"my.domain::MyOp": function}``.

    >>> import numpy, torch, anyshape
    >>> _ = anyshape.export(torch.nn.Linear(10, 5), torch.randn(3, 10), "linear.onnx")
    >>> anyshape.load("linear.onnx")(numpy.zeros((64, 10), "float32")).shape
    (64, 5)
    """
    name = os.fspath(path)
    model = read_model(name)
    contract, evaluated = contract_of(model), only_evaluated(model)
    pieces = _in_pieces(model, name, operators or {}) if contract is not None else None
    del model  # its weights, before the runtime reads them again
    if contract is None:
        raise FileError(
            f"{name} carries no contract: it was not exported by anyshape",
            hint="Export the model with anyshape, or run the file with onnxruntime.",
        )
    if contract.input_structure is None or contract.output_structure is None:
        raise FileError(
            f"the contract in {name} does not say how the model is called", hint="Export the model again."
        )
    return Loaded(name, contract, pieces or runtime_of_file(name, evaluated=evaluated), classes)


def _in_pieces(model: ir.Model, name: str, operators: Mapping[str, Implementation]) -> Pieces | None:
    """What runs a model with nodes of its own, by the caller's functions; None for one without."""
    wanted = foreign(model)
    unknown = [key for key in operators if key not in wanted]
    if unknown:
        raise UsageError(
            f"{name} has no node {unknown[0]}",
            hint=f"Its own nodes are {', '.join(wanted)}." if wanted else "It has none but ONNX's.",
        )
    check_kernels(model, name, operators)
    try:
        return Pieces(model, operators) if wanted else None
    except RuntimeFailure as failure:
        raise FileError(f"ONNX Runtime can't load {name}: {failure}") from failure
