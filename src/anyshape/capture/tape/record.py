"""Record: run a module once on real tensors and keep every operator it called, composite ones whole."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from anyshape.capture.padding import padding_left_out
from anyshape.capture.recurrent import recurrent_as_operators
from anyshape.capture.tape.counted import counted_axes, one_more
from anyshape.capture.tape.steps import (
    Number,
    Read,
    Step,
    Tape,
    Value,
    float_of,
    leaves,
    map_leaves,
    number_of,
)
from anyshape.capture.tape.told import Told
from anyshape.capture.watched import Measure, Size, Symbols, Watch, plain_shape, watching
from anyshape.dims.formula import Formula, Part, names_of
from anyshape.errors import SourceLine
from anyshape.source.lines import innermost_caller
from anyshape.torch_bridge import control_flow, process, recorder, schemas

__all__ = ["record"]


def record(
    function: Callable[..., Sequence[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
    names: Mapping[int, str],
    shapes: Sequence[Sequence[Part]] = (),
    symbols: Symbols | None = None,
    answers: Mapping[Any, bool] | None = None,
    more_at: Mapping[Any, float] | None = None,
) -> Tape:
    """The tape of one run of ``function``; ``names`` has the module's own tensors by identity.

    ``shapes`` says what each size of the inputs is, so that Python's decisions on sizes are known by it. Where Python
    asks for the truth of a tensor, it is given that of ``answers``, if they have one. At ``more_at``, places as
    `Tape.counted` has them, an operator that counts values gives one row more, and a number that is read so much more.
    """
    recording = _Recording(names, more_at or {})
    given = {id(tensor): (tensor, tuple(shape)) for tensor, shape in zip(tensors, shapes, strict=False)}
    watch = recording.tape.watch = Watch(symbols or Symbols(), given, answers or {})
    watch.value_of, watch.length = recording.known.get, lambda: len(recording.tape.steps)
    recording.tape.inputs.extend(recording.new(tensor) for tensor in tensors)
    recording.valued.update(recording.tape.inputs)
    with (
        process.quiet(),
        torch.no_grad(),
        recurrent_as_operators(),
        padding_left_out(),
        _Reads(recording, answers or {}),
        watching(recording.tape.watch),
        control_flow.run_by(Told(recording)),
        recorder.every_operator(recording.note),
    ):
        outputs = function(*tensors)
    recording.forgive()
    recording.tape.outputs.extend(recording.value(tensor) for tensor in outputs)
    return recording.tape


class _Recording:
    """A tape in the making, and which value each living tensor is."""

    def __init__(self, names: Mapping[int, str], more_at: Mapping[Any, float]) -> None:
        self.names, self.more_at, self.tape = names, more_at, Tape([], {}, [], [])
        self.turns: Counter[SourceLine | None] = Counter()
        self.running: tuple[SourceLine | None] | None = None  # the line of an operator that has not ended
        self.known = WeakIdKeyDictionary()
        self.valued: set[Value] = set()  # what depends on the values of the inputs, not on their sizes alone
        self.unheard = 0
        self.given: dict[
            str, tuple[Formula, ...]
        ] = {}  # floats of values, as the function at hand is given them

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Within this context, nothing is put on the tape."""
        self.unheard += 1
        try:
            yield
        finally:
            self.unheard -= 1

    def note(self, target: Any, args: Any, kwargs: Any) -> Callable[[Any], Any]:
        if self.unheard:
            return lambda result: result
        self.forgive()
        given = map_leaves(self.leaf, args), map_leaves(self.leaf, kwargs)
        where = innermost_caller()
        self.pause(True)
        self.running = (where,)

        def finish(result: Any) -> Any:
            result = self.count(target, args, given, result, where)
            self.pause(False)
            self.running = None
            if _hands_back(target, args, result):
                return result
            made = map_leaves(self.new, result)
            many = isinstance(made, (list, tuple))
            outputs = tuple(made) if many else () if made is None else (made,)
            step = Step(target, *given, outputs, where)
            self.tape.steps.append(step)
            if counted_axes(target, args) or self.tape.sized.intersection(step.inputs):
                self.tape.sized.update(value for value in outputs if value is not None)
            self.count_pieces(target, args, outputs)
            if target not in BY_SHAPE and self.valued.intersection(step.inputs):
                self.valued.update(value for value in outputs if value is not None)
            return result

        return finish

    def count(self, target: Any, args: Any, given: Any, result: Any, where: SourceLine | None) -> Any:
        """The result of an operator; where values decide its size that is noted, and one row more if that is asked."""
        axes = counted_axes(target, args)
        if not axes or not any(isinstance(leaf, Value) and leaf in self.valued for leaf in leaves(given)):
            return result
        place = where, self.turns[where]
        self.turns[where] += 1
        number, axis = next(iter(axes.items()))
        first = result[number] if isinstance(result, (list, tuple)) else result
        self.tape.counted[place] = plain_shape(first)[axis]
        if place not in self.more_at:
            return result
        with self.off():
            return one_more(result, axes)

    def forgive(self) -> None:
        """An operator that failed, and that the model went on without, did not say when it ended."""
        self.pause(False)
        if self.running is not None:
            self.tape.forgiven.append(*self.running)
            self.running = None

    def pause(self, paused: bool) -> None:
        if self.tape.watch is not None:
            self.tape.watch.paused = paused

    def count_pieces(self, target: Any, args: Sequence[Any], outputs: Sequence[Any]) -> None:
        """What an operator decides by itself: how many pieces there are, and which axes go. Compared, to be known."""
        watch = self.tape.watch
        if target not in PIECES or watch is None or not isinstance(args[0], torch.Tensor):
            return
        shape, count = watch.shape(args[0]), len(outputs)
        if target in SQUEEZES:
            axes = args[1:] and (args[1] if isinstance(args[1], (list, tuple)) else (args[1],))
            for size in [shape[axis] for axis in axes] if axes else shape:
                size == 1  # noqa: B015
            return
        size, piece = shape[args[2] if len(args) > 2 else 0], args[1]
        if target is aten.chunk.default:
            piece = -(-size // piece)
            -(-size // piece) == count if piece else None
        elif isinstance(piece, int) and piece > 0:
            (size <= count * piece, size > (count - 1) * piece)

    def with_slices(self, tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
        """The tensor with the slices of an index made, and what is left of the index.

        PyTorch leaves a slice out that takes all of an axis, so that it is on no tape, though it may not take all of it
        at other sizes.
        """
        watch = self.tape.watch
        if self.unheard or watch is None or watch.paused:
            return tensor, index
        sizes, items = plain_shape(tensor), list(index) if isinstance(index, tuple) else [index]
        for axis, place in _sliced(items, len(sizes)):
            start, stop = items[place].start, items[place].stop
            for bound in (start, stop):
                if type(bound) is int and 1 < abs(bound) < FARTHEST and sizes[axis]:
                    watch.shape(tensor)[axis] <= abs(bound)  # noqa: B015, where it starts to matter
            if stop is not None or type(start) is not int or start != 0:
                first, end = 0 if start is None else start, sys.maxsize if stop is None else stop
                tensor = aten.slice.Tensor(tensor, axis, first, end)
            items[place] = slice(None)
        return tensor, tuple(items) if isinstance(index, tuple) else items[0]

    def use(self, args: Sequence[Any]) -> None:
        if self.tape.watch is not None and not self.unheard and not self.tape.watch.paused:
            for leaf in leaves(args):
                for item in (leaf.start, leaf.stop) if isinstance(leaf, slice) else (leaf,):
                    self.tape.watch.use(item)

    def depends_on_values(self, item: Any) -> bool:
        if self.unheard or not isinstance(item, torch.Tensor):
            return False
        return self.known.get(item) in self.valued  # type: ignore[no-untyped-call]

    def leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.value(leaf)
        formulas = self.given.get(repr(leaf)) if type(leaf) is float else None
        return Number(leaf, formulas) if formulas else leaf

    @contextlib.contextmanager
    def giving(self, tree: Any) -> Iterator[None]:
        """Within this context a plain float is known by its digits for the one of values that a function was given."""
        found: dict[str, tuple[Formula, ...]] = {}
        watch = self.tape.watch
        for leaf in leaves(tree):
            part = leaf.formula if isinstance(leaf, Measure) else None
            if isinstance(part, Formula) and watch is not None and watch.hangs_on_values(part):
                before = found.get(repr(float.__float__(leaf)), ())
                found[repr(float.__float__(leaf))] = before if part in before else (*before, part)
        outer, self.given = self.given, {**self.given, **found}
        try:
            yield
        finally:
            self.given = outer

    def new(self, tensor: Any) -> Any:
        """A value for a tensor that was just made, or written to."""
        if not isinstance(tensor, torch.Tensor):
            return None
        made = Value(plain_shape(tensor), tensor.dtype, tensor.stride())
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


def _sliced(items: Sequence[Any], rank: int) -> list[tuple[int, int]]:
    """The axis and the place of each slice of an index that has bounds, and goes on by one."""
    used = [
        item.dim()
        if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8)
        else int(item is not None and not isinstance(item, bool))
        for item in items
    ]
    found, axis = [], 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            axis = rank - sum(used[place + 1 :])
            continue
        if isinstance(item, slice) and axis < rank and item.step in (None, 1):
            bounds = [bound for bound in (item.start, item.stop) if bound is not None]
            if bounds and all(isinstance(bound, int) for bound in bounds):
                found.append((axis, place))
        axis += used[place]
    return found


def _is_all(index: Any) -> bool:
    """Whether an index takes everything, as it is."""
    items = index if isinstance(index, tuple) else (index,)
    return all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in items)


def _hands_back(target: Any, args: Sequence[Any], result: Any) -> bool:
    """Whether an operator returned its own argument without its schema saying so: type_as, atleast_1d."""
    if schemas.is_mutable(target) or schemas.viewed_argument(target) is not None:
        return False
    return isinstance(result, torch.Tensor) and any(result is item for item in args)


class _Reads(TorchFunctionMode):
    """Notes where Python looks at the values of a tensor: what it does then is not on the tape.

    A truth may be answered otherwise than the values say. An integer goes on as a size of its own, which the tape has.
    """

    def __init__(self, recording: _Recording, answers: Mapping[Any, bool]) -> None:
        super().__init__()
        self.recording, self.answers = recording, answers
        self.turns: dict[Any, int] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.recording.use(args)
        with self.recording.giving((args, kwargs or {})):
            return self.seen(func, args, kwargs or {})

    def seen(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a function; of one that looks at values, as a number that remembers it."""
        if func is torch.Tensor.new_tensor and self.recording.given:
            return _tensor_of_numbers(*args[1:], **{"dtype": args[0].dtype, **kwargs})
        if func in MAKERS and self.recording.given:
            return _tensor_of_numbers(*args, **kwargs)
        if func is INDEXING[1] and self.recording.given and isinstance(args[2], Measure):
            args = (*args[:2], torch.full((), args[2], dtype=args[0].dtype))
        if func in INDEXING and isinstance(args[0], torch.Tensor):
            items = args[1] if isinstance(args[1], tuple) else (args[1],)
            read = tuple(map(self.with_bounds, items))
            index = read if items is args[1] else read[0]
            cut, index = self.recording.with_slices(args[0], index)
            if func is INDEXING[0] and cut is not args[0] and _is_all(index):
                return cut
            args = (cut, index, *args[2:])
        result = func(*args, **kwargs)
        if func is torch.Tensor.tolist and self.recording.depends_on_values(args[0]):
            return self.read_all(args[0], result)
        if func in READERS and any(self.recording.depends_on_values(item) for item in args):
            return self.read(func, args, result)
        watch = self.recording.tape.watch
        if func in OF_ONE and type(result) is int and watch is not None and not self.recording.unheard:
            return watch.read(result, of_values=False)  # it may hang on sizes
        return result

    def with_bounds(self, item: Any) -> Any:
        """A slice in an index, with bounds that are tensors read out."""
        if not isinstance(item, slice):
            return item
        bounds = (item.start, item.stop, item.step)
        return slice(*(self.bound(bound) if isinstance(bound, torch.Tensor) else bound for bound in bounds))

    def bound(self, tensor: torch.Tensor) -> Any:
        result = tensor.__index__()
        if not self.recording.depends_on_values(tensor):
            return result
        return self.read(torch.Tensor.__index__, (tensor,), result)

    def read(self, func: Any, args: Sequence[Any], result: Any) -> Any:
        tape, where = self.recording.tape, innermost_caller()
        turn = self.turns[where] = self.turns.get(where, -1) + 1
        value = self.recording.value(args[0]) if func in OF_ONE else None
        if isinstance(result, bool):
            result = self.answers.get((where, turn), result)
        if type(result) is int and value is not None:
            place = "read", where, turn
            tape.counted[place] = result
            result += self.recording.more_at.get(place, 0)
        is_float = type(result) is float and value is not None
        if is_float:
            place = "read", where, turn
            result += self.recording.more_at.get(place, 0)
        tape.reads.append(Read(result, where, value, turn, len(tape.steps)))
        assert tape.watch is not None
        if is_float:
            name, number = tape.watch.read_float(result)
            tape.watch.places[name] = place
            tape.steps.append(Step(float_of, (value, name), {}, (), where))
            return number
        if type(result) is not int or value is None:
            return result
        size = tape.watch.read(result)
        tape.watch.places[str(size.formula)] = place
        tape.steps.append(Step(number_of, (value, str(size.formula)), {}, (), where))
        return size

    def read_all(self, tensor: torch.Tensor, result: Any) -> Any:
        """The numbers of a tensor, each read by itself; a list of many, or of truths, is none that a graph has."""
        if (
            tensor.is_complex()
            or tensor.dtype == torch.bool
            or not 0 < math.prod(plain_shape(tensor)) <= MOST_READ
        ):
            return self.read(torch.Tensor.tolist, (tensor,), result)
        self.recording.tape.lists.append((innermost_caller(), tuple(plain_shape(tensor))))
        if tensor.dim() == 0:
            made = self.read(torch.Tensor.item, (tensor,), result)
            if self.recording.tape.watch is not None and isinstance(made, Size):
                self.recording.tape.watch.listed |= names_of(made.formula)
            return made
        return [self.read_all(tensor.select(0, k), item) for k, item in enumerate(result)]


def _tensor_of_numbers(
    data: Any, dtype: torch.dtype | None = None, device: Any = None, **options: Any
) -> Any:
    """What torch.tensor makes of numbers, by operators that are given them."""
    if isinstance(data, (list, tuple)):
        rows = [_tensor_of_numbers(item, dtype or torch.get_default_dtype()) for item in data]
        return torch.stack(rows) if rows else torch.tensor([], dtype=dtype)
    if isinstance(data, torch.Tensor):
        return data.to(dtype) if dtype is not None else data
    return torch.full((), data, dtype=dtype or torch.get_default_dtype())


MOST_READ = 256  # numbers of a list
MAKERS = (torch.tensor, torch.as_tensor, torch.scalar_tensor)
FARTHEST = 1 << 40  # beyond every tensor: "to the end", in PyTorch's own words

INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
OF_ONE = frozenset(
    (
        torch.Tensor.item,
        torch.Tensor.__bool__,
        torch.Tensor.__float__,
        torch.Tensor.__int__,
        torch.Tensor.__index__,
        torch.is_nonzero,
    )
)
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
SQUEEZES = frozenset((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims))
PIECES = SQUEEZES | {aten.split.Tensor, aten.chunk.default}
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
