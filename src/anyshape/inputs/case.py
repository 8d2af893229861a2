"""Case: a module with its example, called in one place, where it is decided what an exception of a model means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch

from anyshape.errors import AnyshapeError, HistoryFault, SourceLine, UsageError
from anyshape.inputs.numbers import leaves_like
from anyshape.inputs.parts import Attribute
from anyshape.inputs.state import State
from anyshape.inputs.tree import Structure, flatten
from anyshape.source.lines import calls_the_model, first_line, is_own_mistake, line_of_exception
from anyshape.torch_bridge import memory
from anyshape.torch_bridge.careful import Careful

__all__ = ["Case", "Input", "OutOfMemory", "Outputs", "Refusal", "Shapes", "answered", "as_args"]

Shapes = tuple[tuple[int, ...], ...]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Refusal:
    """PyTorch, or the model itself, refuses its inputs: the exception that it raised."""

    error: Exception

    @property
    def text(self) -> str:
        """``IndexError: index out of range in self``"""
        return first_line(self.error)

    @property
    def where(self) -> SourceLine | None:
        """The line of the model that raised it."""
        return self.error.where if isinstance(self.error, HistoryFault) else line_of_exception(self.error)


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """These inputs are too large for this machine, which says nothing of the model."""

    error: Exception

    @property
    def text(self) -> str:
        return "there is not enough memory here to run PyTorch at these sizes"


def answered(call: Callable[[], _Result]) -> _Result | Refusal | OutOfMemory:
    """What a call of the user's model comes to: a result, or why there is none. What is ours is raised as it is."""
    try:
        return call()
    except AnyshapeError:
        raise
    except SystemExit as error:  # a model that leaves Python must not take us with it
        return Refusal(RuntimeError(f"the model calls sys.exit({error.code!r})"))
    except Exception as error:  # a model may raise anything
        if is_own_mistake(error):
            raise
        return OutOfMemory(error) if memory.is_out_of_memory(error) else Refusal(error)


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor input: its name by path and the user's example of it."""

    path: str
    example: torch.Tensor
    is_number: bool = False  # a plain number of Python's, which the model gets as such

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.example.shape)


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the module returned: its tensors in order, with their paths, and the structure around them."""

    tensors: tuple[torch.Tensor, ...]
    paths: tuple[str, ...]
    structure: Structure

    def copied(self) -> Outputs:
        """The same, of which nothing is a part of the module."""
        return replace(self, tensors=tuple(tensor.clone() for tensor in self.tensors))


Look = Callable[["Case", frozenset[Attribute], Sequence[torch.Tensor], Outputs], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A module, its tensor inputs by name, and everything needed to call it with other tensors."""

    module: torch.nn.Module
    inputs: tuple[Input, ...]
    structure: Structure  # of (args, kwargs)
    constants: tuple[tuple[str, Any], ...]
    outputs: Outputs  # at the example
    state: State
    argument_names: tuple[str, ...] = ()  # of the arguments, positional first
    more_examples: tuple[tuple[torch.Tensor, ...], ...] = ()
    make_inputs: Callable[[dict[str, int]], Any] | None = None
    notes: tuple[str, ...] = ()
    look: Look = lambda case, changed, tensors, outputs: None  # at a run that left its mark on the module

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

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Whatever the module does within this, it is as before afterwards."""
        with self.state.kept():
            yield
        if self.state.lost:
            raise HistoryFault(
                f"the model writes to its own weights, which are too large to be put back: {self.state.lost[0]}",
                hint="Do it once, before the model is exported.",
            )

    def run(self, tensors: Sequence[torch.Tensor]) -> Outputs | Refusal | OutOfMemory:
        """The module in eager mode on copies of ``tensors``; it is as before afterwards."""
        with self.unchanged():
            answer = self.answer(tensors)
            changed = self.state.changed() if isinstance(answer, Outputs) else None
            if changed and isinstance(answer, Outputs):
                answer = answer.copied()  # it may hold what is put back
                try:
                    self.look(self, changed, tensors, answer)
                except HistoryFault as fault:
                    if not self._is_below(tensors):
                        raise
                    return Refusal(fault)  # a model that changes itself at small sizes is one of larger ones
        return answer

    def _is_below(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether some axis is smaller than in the example."""
        pairs = zip(tensors, self.inputs, strict=True)
        return any(a < b for tensor, item in pairs for a, b in zip(tensor.shape, item.shape, strict=True))

    def answer(self, tensors: Sequence[torch.Tensor]) -> Outputs | Refusal | OutOfMemory:
        """The module on copies of ``tensors``; what it changes in itself stays changed."""
        copies = [tensor.clone() for tensor in tensors]
        with torch.no_grad(), Careful():
            result = answered(partial(self.call, copies))
        if isinstance(result, (Refusal, OutOfMemory)):
            return result
        leaves, structure = flatten(result)
        return Outputs(
            tuple(tensor.detach() for _, tensor in leaves),
            tuple(path or "output" for path, _ in leaves),
            structure,
        )

    def tensors_of(self, args: Any, kwargs: Mapping[str, Any] | None) -> tuple[torch.Tensor, ...]:
        """The tensors of another input set, by position or by name, which must be like those of the example."""
        given = dict(zip(self.argument_names, as_args(args), strict=False)) | dict(kwargs or {})
        unknown = [name for name in given if name not in self.argument_names]
        if unknown or len(as_args(args)) > len(self.argument_names):
            raise UsageError(
                f"an input set has {unknown[0] if unknown else 'more arguments'}, which the example does not have",
                hint=f"The example has: {', '.join(self.argument_names)}.",
            )
        nodes = [node for part in self.structure.children for node in part.children]
        told = zip(self.argument_names, nodes, strict=True)
        leaves = [leaf for name, node in told if name in given for leaf in leaves_like(node, given[name])]
        if len(leaves) != len(self.inputs):
            raise UsageError(
                f"an input set has {len(leaves)} tensors, the example has {len(self.inputs)}: "
                + ", ".join(item.path for item in self.inputs),
                hint="Give every input set the structure of the example.",
            )
        for item, tensor in zip(self.inputs, leaves, strict=True):
            _check_like(item, tensor)
        return tuple(leaves)


def _check_like(item: Input, tensor: torch.Tensor) -> None:
    check_dense(item.path, tensor)
    for what, given, wanted in (
        ("type", tensor.dtype, item.example.dtype),
        ("number of axes", tensor.dim(), item.example.dim()),
    ):
        if given != wanted:
            raise UsageError(
                f"an input set has another {what} for {item.path} than the example: {given}, not {wanted}",
                hint="Give every input set the types and ranks of the example.",
            )


def check_dense(path: str, tensor: torch.Tensor) -> None:
    """`UsageError` for a tensor that ONNX has no type for: sparse, nested, or with quantised storage."""
    kind = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else ""
    kind = kind or ("" if tensor.layout == torch.strided else "sparse")
    if kind:
        raise UsageError(
            f"{path} is a {kind} tensor, which an ONNX model can't take",
            hint="Pass a dense tensor (to_dense()).",
        )


def as_args(args: Any) -> tuple[Any, ...]:
    """Positional inputs as a tuple: a tensor alone is one."""
    if isinstance(args, torch.Tensor):
        return (args,)
    if isinstance(args, (tuple, list)):
        return tuple(args)
    raise UsageError(
        f"args is a {type(args).__name__}, not a tuple of inputs",
        hint="Pass args=(tensor, ...); inputs by name go to kwargs={...}.",
    )
