"""target: ``net.py:build`` or ``shop.nets:build`` becomes a model and its example inputs.

NAME is a module instance, an nn.Module class that needs no arguments, or a function that needs none and
returns a model, ``(model, args)`` or ``(model, args, kwargs)``.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import linecache
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape.dims import InputText, parse_input
from anyshape.errors import FileError, ParseError, SourceLine, UsageError
from anyshape.source.lines import first_line, line_of_exception

__all__ = ["Target", "load_target", "made_inputs", "make_tensor", "split_target"]

BELOW = 2  # integers without a limit are 0 or 1: legal as ids, as masks and as flags
FORM = "Write FILE.py:NAME or package.module:NAME, where NAME is a model or a function that returns one."
FORMS = f"{FORM[:-1]}; or FILE.pt2, hf:FOLDER, timm:NAME, torchvision:NAME, diffusers:FOLDER/unet."


@dataclass(frozen=True, slots=True)
class Target:
    """A model with its example inputs, and the shapes that the inputs on the command line declare."""

    text: str
    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)


def split_target(text: str) -> tuple[str, str]:
    """The file and the name in it.

    >>> split_target("models/net.py:build")
    ('models/net.py', 'build')
    """
    path, colon, name = text.rpartition(":")
    if not colon or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{text} does not say which model", hint=FORMS)
    return path, name


def load_target(text: str, inputs: Sequence[str] = ()) -> Target:
    """The model and example that ``text`` names; ``inputs`` make the example where the target gives none."""
    path, name = split_target(text)
    module = _by_name(path) if _is_module_name(path) else _imported(path)
    found = _named(module, path, name)
    model, args, kwargs = _parts(text, _built(text, name, found))
    if not isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        raise UsageError(f"{text} gives a {type(model).__name__}, not a torch.nn.Module", hint=FORM)
    made = [_parsed_input(item) for item in inputs]
    _check_arguments(text, model, args, kwargs, made)
    named = {**kwargs, **{item.path: make_tensor(item) for item in made}}
    if not args and not named:
        raise UsageError(f"{text} gives no example inputs", hint=_how_to_give(model))
    shapes = {item.path: _declared(item) for item in made if any(size_name for size_name, _ in item.dims)}
    return Target(text, model, args, named, shapes)


def made_inputs(inputs: Sequence[str]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors that inputs of the command line describe, by name, and the shapes that they declare."""
    made = [_parsed_input(item) for item in inputs]
    shapes = {item.path: _declared(item) for item in made if any(size_name for size_name, _ in item.dims)}
    return {item.path: make_tensor(item) for item in made}, shapes


def make_tensor(item: InputText) -> torch.Tensor:
    """The example that an input of the command line describes: integers below its limit, floats normal.

    >>> make_tensor(parse_input("tokens=int64[batch=2,seq=3]<1000")).shape
    torch.Size([2, 3])
    """
    dtype: torch.dtype = getattr(torch, item.dtype)
    shape = [size for _, size in item.dims]
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, item.below or BELOW, shape, generator=generator).to(dtype)


def _parsed_input(text: str) -> InputText:
    item = parse_input(text)
    if not isinstance(getattr(torch, item.dtype, None), torch.dtype):
        raise ParseError(
            text,
            text.index(item.dtype, text.index("=")),
            f"{item.dtype} is no dtype of PyTorch",
            hint="Write one such as float32, float16, int64, int32 or bool.",
        )
    return item


def _declared(item: InputText) -> str:
    return ", ".join(str(size) if name is None else name for name, size in item.dims)


def _is_module_name(path: str) -> bool:
    """Whether a text is a dotted name and no file; a folder is a package if Python takes it for one."""
    if os.path.isdir(path):
        return path.isidentifier() and os.path.exists(os.path.join(path, "__init__.py"))
    dotted = all(part.isidentifier() for part in path.split("."))
    return dotted and not os.path.exists(path) and not path.endswith(".py")


def _by_name(path: str) -> types.ModuleType:
    """The module of that name, found from the current folder as well as where Python looks."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{path}.".startswith(f"{error.name}."):
            raise FileError(f"there is no file {path} and no module {path}", hint=FORMS) from error
        return _call(f"{path} can't be imported", functools.partial(_raise, error))  # type: ignore[no-any-return]
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        return _call(f"{path} can't be imported", functools.partial(_raise, error))  # type: ignore[no-any-return]


def _raise(error: BaseException) -> None:
    raise error


def _imported(path: str) -> types.ModuleType:
    """The file as a module, with its folder on the path so that it finds its neighbours."""
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder, not a Python file", hint=FORM)
    if not os.path.exists(path):
        raise FileError(f"there is no file {path}")
    full = os.path.abspath(path)
    linecache.checkcache(full)
    name = _module_name(full)
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise FileError(f"{path} is not a Python file", hint=FORM)
    module = importlib.util.module_from_spec(spec)
    if os.path.dirname(full) not in sys.path:
        sys.path.insert(0, os.path.dirname(full))
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up there
    try:
        _call(f"{path} can't be imported", functools.partial(spec.loader.exec_module, module))
    except BaseException:  # an interruption too must leave what was imported before
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def _module_name(full: str) -> str:
    """The file's own name, unless another module has it already."""
    stem = os.path.splitext(os.path.basename(full))[0]
    loaded = sys.modules.get(stem)
    another = loaded is not None and getattr(loaded, "__file__", None) != full
    taken = another or stem in sys.stdlib_module_names
    return f"_anyshape_{stem}" if taken else stem


def _call(what: str, work: Callable[[], Any]) -> Any:
    """The result of the user's own code; what it raises becomes an error with its line."""
    try:
        return work()
    except SyntaxError as error:
        file = os.path.basename(error.filename or "")
        where: SourceLine | None = SourceLine(file, error.lineno or 0, (error.text or "").strip())
        raise FileError(f"{what}: {error.msg}", where=where) from error
    except SystemExit as error:
        hint = 'Put what is only for running it under `if __name__ == "__main__":`.'
        where = line_of_exception(error)
        raise FileError(f"{what}: it exits with {error.code!r}", where=where, hint=hint) from error
    except Exception as error:  # the user's own code may raise anything
        alone = isinstance(error, ImportError) and "relative import" in str(error)
        hint = "A file of a package is named as Python does: package.module:NAME." if alone else ""
        raise FileError(f"{what}: {first_line(error)}", where=line_of_exception(error), hint=hint) from error


def _named(module: types.ModuleType, path: str, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = ", ".join(_candidates(module)) or "no model and no function"
            raise FileError(f"{path} has no {name}", hint=f"It has: {there}.")
        found = getattr(found, part)
    return found


def _candidates(module: types.ModuleType) -> list[str]:
    """The names in a file that could be a model: its own functions and classes, and module instances."""
    own = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", module.__name__) == module.__name__
    }
    instances = [name for name, value in vars(module).items() if isinstance(value, torch.nn.Module)]
    classes = [n for n, v in own.items() if isinstance(v, type) and issubclass(v, torch.nn.Module)]
    functions = [name for name, value in own.items() if inspect.isfunction(value)]
    return list(dict.fromkeys([*instances, *functions, *classes]))


def _built(text: str, name: str, found: Any) -> Any:
    if isinstance(found, (torch.nn.Module, torch.export.ExportedProgram)) or not callable(found):
        return found
    needed = _required(found)
    if needed:
        raise UsageError(
            f"{name} needs arguments: {', '.join(needed)}",
            hint="Name a function without arguments that returns the model, or (model, args).",
        )
    return _call(f"{text} can't be built", found)


def _required(found: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return []
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in open_ended]


def _parts(text: str, result: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Model, args and kwargs of what a target gives; a dict in the place of args is meant by name."""
    if not isinstance(result, tuple):
        return result, (), {}
    if not 1 <= len(result) <= 3:
        hint = "Return model, (model, args) or (model, args, kwargs)."
        raise UsageError(f"{text} gives {len(result)} values", hint=hint)
    defaults: tuple[Any, ...] = (None, (), {})
    model, args, kwargs = (*result, *defaults[len(result) :])
    if len(result) == 2 and isinstance(args, Mapping):
        args, kwargs = (), args
    if not isinstance(kwargs, Mapping):
        hint = "Return (model, args, {'name': tensor})."
        raise UsageError(f"{text} gives a {type(kwargs).__name__} as kwargs, not a dict", hint=hint)
    return model, tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(kwargs)


def _arguments(model: Any) -> tuple[list[str], bool]:
    """The names of the model's arguments, and whether it takes any other."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return [], True
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _check_arguments(
    text: str, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Sequence[InputText]
) -> None:
    names, any_name = _arguments(model)
    given = {*names[: len(args)], *kwargs}
    for item in made:
        if item.path in given:
            hint = f"Leave out --input {item.path}=…."
            raise UsageError(f"{text} already gives an example of {item.path}", hint=hint)
        if item.path not in names and not any_name:
            hint = f"Its arguments are: {', '.join(names) or 'none'}."
            raise UsageError(f"the model has no argument {item.path}", hint=hint)


def _how_to_give(model: Any) -> str:
    names, _ = _arguments(model)
    name = names[0] if names else "tokens"
    return (
        f"Return (model, args) from a function, or give --input {name}=float32[batch=2,16] "
        f"(arguments: {', '.join(names) or 'unknown'})."
    )
