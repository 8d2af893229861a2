"""read: a module and its example inputs become a `Case`: flat tensors with names, and how to call the module."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from anyshape.compare import same
from anyshape.errors import HistoryFault, ModelFault, UsageError
from anyshape.inputs.caches import miscounted, open_cache, without_past
from anyshape.inputs.case import Case, Input, OutOfMemory, Outputs, answered, as_args, check_dense
from anyshape.inputs.history import HINT, History, agree
from anyshape.inputs.names import check_names, given_names
from anyshape.inputs.numbers import changing, places, with_numbers
from anyshape.inputs.opaque import HOW_TO_REGISTER, constants_of, tensor_inside
from anyshape.inputs.state import State
from anyshape.inputs.tree import Structure, flatten, open_any
from anyshape.source.lines import words_of
from anyshape.torch_bridge import compiled
from anyshape.torch_bridge.packed import is_packed

__all__ = ["as_module", "check_history", "evaluation_mode", "read"]


def read(
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    examples: Sequence[Any] = (),
    make_inputs: Callable[[dict[str, int]], Any] | None = None,
    notes: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Case:
    """The case of a model and one example of its inputs; the model has run once when this returns.

    ``numbers`` are the plain numbers that are to be inputs of the file; so are those that change among ``examples``.
    """
    module, remarks = as_module(model)
    positional, named = as_args(args), dict(kwargs or {})
    if not positional and not named and make_inputs is None:
        raise UsageError("no example inputs were given", hint="Pass args=(tensor, ...) or kwargs={...}.")
    positional, named = _with_room(module, positional, named)
    roots = _argument_names(module, positional, named)
    _check_examples(examples)
    here = dict(_roots(roots, positional, named))
    wanted = {*numbers, *(path for example in examples for path in changing(here, _by_name(roots, example)))}
    found = [place for root, value in _roots(roots, positional, named) for place in places(root, value)]
    structure, leaves = with_numbers(flatten((positional, named))[1], found, wanted)
    names = _renamed([path for path, _ in leaves], input_names)
    constants = tuple(item for item in _constants(roots, positional, named) if item[0] not in wanted)
    if not leaves:
        raise UsageError("the inputs hold no tensor", hint="At least one input must be a torch.Tensor.")
    for name, (_, tensor) in zip(names, leaves, strict=True):
        check_dense(name, tensor)
    for root, value in _roots(roots, positional, named):
        _check_cache(root, value)
    inputs = tuple(
        Input(name, tensor.detach(), path in wanted)
        for name, (path, tensor) in zip(names, leaves, strict=True)
    )
    _make_lazy_weights(module, structure, inputs)
    case = Case(
        module,
        inputs,
        structure,
        constants,
        Outputs((), (), structure),
        State(module, dict(constants)),
        argument_names=(*roots, *named),
        make_inputs=make_inputs,
        notes=tuple(dict.fromkeys((*notes, *remarks))),
        look=History().look,
    )
    more = tuple(case.tensors_of(*_as_input_set(example)) for example in examples)
    return dataclasses.replace(case, more_examples=more, outputs=_first_run(case))


def _check_examples(examples: Any) -> None:
    if isinstance(examples, (str, torch.Tensor)) or not isinstance(examples, Sequence):
        raise UsageError(
            f"examples is a {type(examples).__name__}, not a list of input sets",
            hint="Pass examples=[(x, y), ...], each like args.",
        )


def _by_name(roots: Sequence[str], example: Any) -> dict[str, Any]:
    """The arguments of another input set by name; as far as it can be told before it is looked at."""
    args, kwargs = _as_input_set(example)
    given = args if isinstance(args, (tuple, list)) else (args,)
    return dict(zip(roots, given, strict=False)) | dict(kwargs or {})


def _with_room(
    module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with each empty cache as one without a past: what the model fills it with says of which tensors."""
    boxes = {key: open_cache(value) for key, value in (*enumerate(positional), *named.items())}
    empty = [key for key, box in boxes.items() if box is not None and not box.children]
    if not empty:
        return positional, named
    args, kwargs = copy.deepcopy((positional, named))
    with State(module, {}).kept(), torch.no_grad():
        answered(lambda: module(*args, **kwargs))  # what it raises, it raises again in the first run
    given: dict[Any, Any] = {**dict(enumerate(positional)), **named}
    filled: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    given.update({key: made for key in empty if (made := without_past(filled[key])) is not None})
    return tuple(given[number] for number in range(len(positional))), {name: given[name] for name in named}


def _check_cache(path: str, value: Any) -> None:
    """`UsageError` for a cache that has seen more than it holds: made at other sizes, it would count wrongly."""
    amiss = miscounted(value, open_any)
    if amiss is not None:
        raise UsageError(
            f"{path}{amiss}, and no shape tells the difference",
            hint="Give an example whose past is shorter than the window.",
        )


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
    module, was_compiled = compiled.inside(model)
    packed = next((item for item in module.named_modules() if is_packed(item[1])), None)
    if packed is not None:
        name, part = packed
        raise UsageError(
            f"{name or 'the model'} is a quantised {type(part).__name__} of torch.ao: its weights are packed for "
            "kernels of PyTorch's own, which ONNX has no words for",
            hint="Export the model before it is quantised and quantise the file (onnxruntime.quantization), or keep "
            "int8 weights in a buffer and write weight * scale in forward.",
        )
    return module, [COMPILED] if was_compiled else []


COMPILED = "torch.compile is left out: what is inside is exported, and is the reference"


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
        for path, constant in constants_of(flatten(value, root)[1], root):
            if isinstance(constant, np.ndarray):
                raise UsageError(
                    f"{path} is a numpy array, not a tensor", hint="Pass torch.from_numpy(...) of it."
                )
            inside = tensor_inside(constant)
            if inside is not None:
                kind = type(constant).__name__
                raise UsageError(
                    f"{path} is a {kind}, which PyTorch's pytrees do not know, and it holds tensors: {path}{inside}",
                    hint=HOW_TO_REGISTER.format(kind),
                )
            if constant is not None:
                yield path, constant


def _check_result(outputs: Outputs) -> None:
    for path, constant in constants_of(outputs.structure):
        inside = tensor_inside(constant)
        if inside is not None:
            kind, place = type(constant).__name__, f"{path or 'it'}{inside}"
            raise ModelFault(
                f"the result holds a {kind}, which PyTorch's pytrees do not know, and in it tensors: {place}",
                hint=HOW_TO_REGISTER.format(kind).replace("Pass", "Return", 1),
            )


def _renamed(paths: list[str], input_names: Sequence[str] | None) -> list[str]:
    names = [] if input_names is None else given_names("input_names", input_names)
    if len(names) > len(paths):
        raise UsageError(
            f"input_names has {len(names)} names, but there are {len(paths)} tensor inputs: {', '.join(paths)}",
            hint="Give one name for each tensor, in the order of the inputs.",
        )
    renamed = names + paths[len(names) :]
    check_names("input_names" if names else "the inputs", renamed)
    return renamed


def _make_lazy_weights(module: torch.nn.Module, structure: Structure, inputs: Sequence[Input]) -> None:
    """Weights that get their shapes in the first call (LazyLinear) get them now: they are no part of a run."""
    if any(torch.nn.parameter.is_lazy(weight) for weight in (*module.parameters(), *module.buffers())):
        args, kwargs = structure.rebuild([item.example.clone() for item in inputs])
        with torch.no_grad():
            answered(lambda: module(*args, **kwargs))  # what it raises, it raises again in the first run


def _first_run(case: Case) -> Outputs:
    """The model at its example: everything later leans on this, so it is tried before anything else."""
    if case.on_meta or any(item.example.is_meta for item in case.inputs):
        return Outputs((), (), case.structure)
    first, second = _ran(case), _ran(case)
    _check_result(first)
    if not first.tensors:
        raise ModelFault(
            "the model returns no tensor", hint="An ONNX model needs at least one tensor output."
        )
    for path, a, b in zip(first.paths, first.tensors, second.tensors, strict=True):
        if not same(a, b):
            raise _random(case, path)
    return first


def _random(case: Case, path: str) -> ModelFault:
    """Why two runs differ, although the module was the same and the inputs were."""
    seeded = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            seeded.append(_ran(case))
    if agree(*seeded):
        return ModelFault(
            f"the model is random: two runs on the same inputs give different values for {path}",
            hint="Seed it, or take the random part (dropout, noise, sampling) out of forward.",
        )
    return ModelFault(
        f"two runs on the same inputs give different values for {path}: the model draws random numbers that are "
        "not PyTorch's, or keeps what it has seen outside its attributes",
        hint="Look for the random numbers of Python or NumPy, globals, closures and iterators in forward.",
    )


def check_history(case: Case) -> None:
    """`HistoryFault` if the model, after all its runs, has another result at its example than at first."""
    if case.on_meta or not case.outputs.tensors:
        return
    last = case.run([item.example for item in case.inputs])
    if not agree(case.outputs, last) and agree(case.run([item.example for item in case.inputs]), last):
        raise HistoryFault(
            "the model's result depends on what it has seen before, which it keeps outside its attributes: "
            "at its example it is another after runs at other sizes",
            hint=f"Look for globals, closures and iterators in forward. {HINT}",
        )


def _ran(case: Case) -> Outputs:
    answer = case.run([item.example for item in case.inputs])
    if isinstance(answer, Outputs):
        return answer
    if isinstance(answer, OutOfMemory):
        raise ModelFault(
            f"the model's own example is too large: {answer.text}", hint="Give a smaller example."
        ) from answer.error
    raise ModelFault(
        f"the model fails at its own example: {_whole(answer.error)}",
        where=answer.where,
        hint="Check that model(*args, **kwargs) runs before exporting it.",
    ) from answer.error


def _whole(error: Exception) -> str:
    said = words_of(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


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
