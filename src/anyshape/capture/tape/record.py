"""Record: run a module once on real tensors and keep every operator it called, composite ones whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from anyshape.capture.recurrent import recurrent_as_operators
from anyshape.capture.tape.steps import Read, Step, Tape, Value, map_leaves
from anyshape.source.lines import innermost_caller
from anyshape.torch_bridge import process, recorder, schemas

__all__ = ["record"]


def record(
    function: Callable[..., Sequence[torch.Tensor]], tensors: Sequence[torch.Tensor], names: Mapping[int, str]
) -> Tape:
    """The tape of one run of ``function``; ``names`` has the module's own tensors by identity."""
    recording = _Recording(names)
    recording.tape.inputs.extend(recording.new(tensor) for tensor in tensors)
    recording.valued.update(recording.tape.inputs)
    with (
        process.quiet(),
        torch.no_grad(),
        recurrent_as_operators(),
        _Reads(recording),
        recorder.every_operator(recording.note),
    ):
        outputs = function(*tensors)
    recording.tape.outputs.extend(recording.value(tensor) for tensor in outputs)
    return recording.tape


class _Recording:
    """A tape in the making, and which value each living tensor is."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names, self.tape = names, Tape([], {}, [], [])
        self.known = WeakIdKeyDictionary()
        self.valued: set[Value] = set()  # what depends on the values of the inputs, not on their sizes alone

    def note(self, target: Any, args: Any, kwargs: Any) -> Callable[[Any], None]:
        given = map_leaves(self.leaf, args), map_leaves(self.leaf, kwargs)
        where = innermost_caller()

        def finish(result: Any) -> None:
            if _hands_back(target, args, result):
                return
            made = map_leaves(self.new, result)
            many = isinstance(made, (list, tuple))
            outputs = tuple(made) if many else () if made is None else (made,)
            step = Step(target, *given, outputs, where)
            self.tape.steps.append(step)
            if target not in BY_SHAPE and self.valued.intersection(step.inputs):
                self.valued.update(value for value in outputs if value is not None)

        return finish

    def depends_on_values(self, item: Any) -> bool:
        return isinstance(item, torch.Tensor) and self.known.get(item) in self.valued  # type: ignore[no-untyped-call]

    def leaf(self, leaf: Any) -> Any:
        return self.value(leaf) if isinstance(leaf, torch.Tensor) else leaf

    def new(self, tensor: Any) -> Any:
        """A value for a tensor that was just made, or written to."""
        if not isinstance(tensor, torch.Tensor):
            return None
        made = Value(tuple(tensor.shape), tensor.dtype, tensor.stride())
        self.known[tensor] = made
        return made

    def value(self, tensor: torch.Tensor) -> Value:
        """The value that a tensor is; one that no operator made is a constant."""
        found: Value | None = self.known.get(tensor)  # type: ignore[no-untyped-call]
        if found is None:
            found = self.new(tensor)
            assert found is not None
            own = self.names.get(id(tensor))
            if own is not None:
                self.tape.names[found] = own
            # The model may write to a tensor of its own making; to its weights it does not.
            self.tape.constants[found] = tensor.detach() if own is not None else tensor.detach().clone()
        return found


def _hands_back(target: Any, args: Sequence[Any], result: Any) -> bool:
    """Whether an operator returned its own argument without its schema saying so: type_as, atleast_1d."""
    if schemas.is_mutable(target) or schemas.viewed_argument(target) is not None:
        return False
    return isinstance(result, torch.Tensor) and any(result is item for item in args)


class _Reads(TorchFunctionMode):
    """Notes where Python looks at the values of a tensor: what it does then is not on the tape."""

    def __init__(self, recording: _Recording) -> None:
        super().__init__()
        self.recording = recording

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in READERS and any(self.recording.depends_on_values(item) for item in args):
            self.recording.tape.reads.append(Read(result, innermost_caller()))
        return result


READERS = frozenset(
    (
        torch.Tensor.item,
        torch.Tensor.tolist,
        torch.Tensor.numpy,
        torch.Tensor.__array__,
        torch.Tensor.__bool__,
        torch.Tensor.__int__,
        torch.Tensor.__float__,
        torch.Tensor.__index__,
        torch.equal,
        torch.allclose,
        torch.is_nonzero,
    )
)
aten = torch.ops.aten
BY_SHAPE = frozenset(
    (
        aten.zeros_like.default,
        aten.ones_like.default,
        aten.full_like.default,
        aten.empty_like.default,
        aten.new_zeros.default,
        aten.new_ones.default,
        aten.new_full.default,
        aten.new_empty.default,
    )
)
