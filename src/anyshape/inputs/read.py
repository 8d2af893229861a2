"""read: a module and its example inputs become a `Case`: flat tensors with names, and how to call the module."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape.errors import ModelFault, UsageError
from anyshape.inputs.tree import Structure, flatten
from anyshape.source.lines import calls_the_model, line_of_exception

__all__ = ["Case", "Input", "Outputs", "Shapes", "as_module", "evaluation_mode", "read"]

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor input: its name by path and the user's example of it."""

    path: str
    example: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.example.shape)


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the module returned: its tensors in order, with their paths, and the structure around them."""

    tensors: tuple[torch.Tensor, ...]
    paths: tuple[str, ...]
    structure: Structure


@dataclass(frozen=True, slots=True)
class Case:
    """A module, its tensor inputs by name, and everything needed to call it with other tensors."""

    module: torch.nn.Module
    inputs: tuple[Input, ...]
    structure: Structure  # of (args, kwargs)
    constants: tuple[tuple[str, Any], ...]
    outputs: Outputs  # at the example
    argument_names: tuple[str, ...] = ()  # of the arguments, positional first
    more_examples: tuple[tuple[torch.Tensor, ...], ...] = ()
    make_inputs: Callable[[dict[str, int]], Any] | None = None
    notes: tuple[str, ...] = ()
    saved_buffers: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    @property
    def shapes(self) -> Shapes:
        """The example's shapes, input by input."""
        return tuple(item.shape for item in self.inputs)

    @property
    def parameters(self) -> int:
        """How many numbers the weights hold."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def on_meta(self) -> bool:
        """Whether the weights have shapes but no values."""
        return any(p.is_meta for p in self.module.parameters())

    @property
    def summary(self) -> str:
        """``2 inputs, 1 output, 4.4 M parameters``"""
        count, unit = self.parameters, ""
        for unit in ("", " k", " M", " G"):
            if count < 1000 or unit == " G":
                break
            count = count / 1000  # type: ignore[assignment]
        inputs, outputs = len(self.inputs), len(self.outputs.tensors)
        return (
            f"{inputs} input{'s' * (inputs != 1)}, {outputs} output{'s' * (outputs != 1)}, "
            f"{count:.3g}{unit} parameters"
        )

    def weight_sizes(self) -> frozenset[int]:
        """Every size of every weight: a dim that equals one of them by chance proves nothing."""
        weights = [*self.module.parameters(), *self.module.buffers()]
        return frozenset(size for weight in weights for size in weight.shape)

    @calls_the_model
    def call(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The module's own result for ``tensors`` in the place of the example's."""
        args, kwargs = self.structure.rebuild(tensors)
        return self.module(*args, **kwargs)

    def run(self, tensors: Sequence[torch.Tensor]) -> Outputs:
        """The module in eager mode on copies of ``tensors``; its buffers are as before afterwards."""
        with torch.no_grad():
            result = self.call([tensor.clone() for tensor in tensors])
        leaves, structure = flatten(result)
        self._restore_buffers()
        return Outputs(
            tuple(tensor.detach() for _, tensor in leaves),
            tuple(path or "output" for path, _ in leaves),
            structure,
        )

    def _restore_buffers(self) -> None:
        for buffer, saved in self.saved_buffers.values():
            if buffer.shape == saved.shape and not torch.equal(buffer, saved):
                buffer.copy_(saved)

    def tensors_of(self, args: Any, kwargs: Mapping[str, Any] | None) -> tuple[torch.Tensor, ...]:
        """The tensors of another input set, which must have the structure of the example."""
        leaves, _ = flatten((_as_args(args), dict(kwargs or {})))
        if len(leaves) != len(self.inputs):
            raise UsageError(
                f"an input set has {len(leaves)} tensors, the example has {len(self.inputs)}: "
                + ", ".join(item.path for item in self.inputs),
                hint="Give every input set the structure of the example.",
            )
        return tuple(tensor for _, tensor in leaves)


def read(
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    examples: Sequence[Any] = (),
    make_inputs: Callable[[dict[str, int]], Any] | None = None,
) -> Case:
    """The case of a model and one example of its inputs; the model has run once when this returns."""
    module, notes = as_module(model)
    positional, named = _as_args(args), dict(kwargs or {})
    if not positional and not named and make_inputs is None:
        raise UsageError("no example inputs were given", hint="Pass args=(tensor, ...) or kwargs={...}.")
    roots = _argument_names(module, positional, named)
    leaves, structure = flatten((positional, named))
    names = _renamed([path for path, _ in _paths(roots, positional, named)], input_names)
    inputs = tuple(Input(name, tensor.detach()) for name, (_, tensor) in zip(names, leaves, strict=True))
    if not inputs:
        raise UsageError("the inputs hold no tensor", hint="At least one input must be a torch.Tensor.")
    constants = tuple(_constants(roots, positional, named))
    case = Case(
        module,
        inputs,
        structure,
        constants,
        Outputs((), (), structure),
        argument_names=(*roots, *named),
        make_inputs=make_inputs,
        notes=tuple(notes),
        saved_buffers=_saved_buffers(module),
    )
    more = tuple(case.tensors_of(*_as_input_set(example)) for example in examples)
    return dataclasses.replace(case, more_examples=more, outputs=_first_run(case))


def as_module(model: Any) -> tuple[torch.nn.Module, list[str]]:
    """The module to run, and what should be said of it; `UsageError` for what can't be traced."""
    if isinstance(model, torch.export.ExportedProgram):
        return model.module(), ["the model is an ExportedProgram: its own module is the reference"]
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise UsageError(
            "the model is a TorchScript module, which anyshape can't trace",
            hint="Pass the nn.Module that it was made from.",
        )
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"the model is a {type(model).__name__}, not a torch.nn.Module",
            hint="Wrap a function in a module with a forward method.",
        )
    return model, []


def _as_args(args: Any) -> tuple[Any, ...]:
    if isinstance(args, torch.Tensor):
        return (args,)
    if isinstance(args, (tuple, list)):
        return tuple(args)
    raise UsageError(
        f"args is a {type(args).__name__}, not a tuple of inputs",
        hint="Pass args=(tensor, ...); inputs by name go to kwargs={...}.",
    )


def _as_input_set(example: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """An input set is (args, kwargs), a dict of named inputs, or args alone."""
    if isinstance(example, Mapping):
        return (), example
    if isinstance(example, tuple) and len(example) == 2:
        args, kwargs = example
        if isinstance(args, tuple) and isinstance(kwargs, Mapping):
            return args, kwargs
    return example, None


def _argument_names(module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> list[str]:
    """The name of each positional argument in the forward's signature."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return [f"input_{k}" for k in range(len(positional))]
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = len(positional) - len(names)
            names += [f"{parameter.name}.{k}" for k in range(rest)] if rest > 1 else [parameter.name] * rest
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names += [f"input_{k}" for k in range(len(names), len(positional))]
    return names[: len(positional)]


def _roots(roots: list[str], positional: tuple[Any, ...], named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from zip(roots, positional, strict=True)
    yield from named.items()


def _paths(
    roots: list[str], positional: tuple[Any, ...], named: dict[str, Any]
) -> list[tuple[str, torch.Tensor]]:
    return [leaf for root, value in _roots(roots, positional, named) for leaf in flatten(value, root)[0]]


def _constants(
    roots: list[str], positional: tuple[Any, ...], named: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Plain numbers, booleans and strings among the inputs: they become part of the graph."""
    for root, value in _roots(roots, positional, named):
        structure = flatten(value, root)[1]
        for path, constant in _constant_leaves(structure, root):
            if constant is not None:
                yield path, constant


def _constant_leaves(structure: Structure, path: str) -> Iterator[tuple[str, Any]]:
    if structure.kind == "constant":
        yield path, structure.value
    for key, child in zip(structure.keys, structure.children, strict=True):
        yield from _constant_leaves(child, f"{path}.{key}")


def _renamed(paths: list[str], input_names: Sequence[str] | None) -> list[str]:
    if input_names is None:
        return paths
    names = list(input_names)
    if len(names) > len(paths):
        raise UsageError(
            f"input_names has {len(names)} names, but there are {len(paths)} tensor inputs: {', '.join(paths)}",
            hint="Give one name for each tensor, in the order of the inputs.",
        )
    renamed = names + paths[len(names) :]
    if len(set(renamed)) != len(renamed):
        raise UsageError(
            f"input_names repeats a name: {', '.join(renamed)}", hint="Give each input a name of its own."
        )
    return renamed


def _saved_buffers(module: torch.nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Buffers with a copy of each, so that a model which writes to them is put back after every run."""
    return {
        name: (buffer, buffer.detach().clone())
        for name, buffer in module.named_buffers()
        if not buffer.is_meta
    }


def _first_run(case: Case) -> Outputs:
    """The model at its example: everything later leans on this, so it is tried before anything else."""
    if case.on_meta or any(item.example.is_meta for item in case.inputs):
        return Outputs((), (), case.structure)
    tensors = [item.example for item in case.inputs]
    try:
        first, second = case.run(tensors), case.run(tensors)
    except Exception as error:
        raise ModelFault(
            f"the model fails at its own example: {type(error).__name__}: {str(error).strip()}",
            where=line_of_exception(error),
            hint="Check that model(*args, **kwargs) runs before exporting it.",
        ) from error
    if not first.tensors:
        raise ModelFault(
            "the model returns no tensor", hint="An ONNX model needs at least one tensor output."
        )
    for path, a, b in zip(first.paths, first.tensors, second.tensors, strict=True):
        if not torch.allclose(_comparable(a), _comparable(b), equal_nan=True):
            raise ModelFault(
                f"the model is random: two runs on the same inputs give different values for {path}",
                hint="Seed it, or take the random part (dropout, noise, sampling) out of forward.",
            )
    return first


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_complex() else tensor.double()


@contextlib.contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[bool]:
    """The module in eval mode, every submodule as before afterwards; tells whether it was training."""
    before = [(part, part.training) for part in module.modules()]
    was_training = module.training
    try:
        with contextlib.suppress(NotImplementedError):  # the module of an ExportedProgram has no eval()
            module.eval()
        yield was_training
    finally:
        for part, training in before:
            part.training = training
