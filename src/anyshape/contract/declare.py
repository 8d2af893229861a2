"""What the user declared, in whichever of the four ways, as one `Declaration`.

``shapes`` and ``dims`` are anyshape's own; ``dynamic_axes`` and ``dynamic_shapes`` are torch.onnx.export's.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyshape.dims import Expr, Range, parse_expr, parse_range, parse_shape
from anyshape.dims.names import is_reserved
from anyshape.errors import DeclarationError
from anyshape.inputs.case import Case, Input
from anyshape.inputs.tree import Structure

__all__ = ["FOUND", "FREE", "STATIC", "UNLISTED", "Declaration", "Size", "declare", "matches"]


@dataclass(frozen=True, slots=True)
class Word:
    """What is declared of an axis, other than an expression."""

    text: str


FOUND = Word("found")  # nothing declared: as probe finds it
FREE = Word("dynamic")  # declared dynamic, without a name
STATIC = Word("static")  # declared static
UNLISTED = Word("not listed")  # static, unless a listed axis takes it along

Size = Expr | Word


@dataclass(frozen=True, slots=True)
class Declaration:
    """For each input, what is declared of each of its axes; and the ranges of named dims."""

    sizes: tuple[tuple[Size, ...], ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    labels: bool = False  # names are labels (dynamic_axes): two names for one size are no contradiction

    @property
    def names(self) -> list[str]:
        """Declared names in the order of their first use."""
        seen = [
            name for sizes in self.sizes for size in sizes if isinstance(size, Expr) for name in _names(size)
        ]
        return list(dict.fromkeys(seen))


def _names(size: Expr) -> list[str]:
    return sorted(size.names, key=str(size).find)


def declare(
    case: Case,
    *,
    shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Declaration:
    """One declaration from the user's words; `DeclarationError` where they don't fit the inputs."""
    for what, given_, form in (
        ("shapes", shapes, "{'x': 'batch, seq'}"),
        ("dims", dims, "{'seq': '1..512'}"),
        ("dynamic_axes", dynamic_axes, "{'x': {0: 'batch'}}"),
    ):
        if given_ is not None and not isinstance(given_, Mapping):
            raise DeclarationError(f"{what} is {given_!r}, not a dict", hint=f"Write {what}={form}.")
    ways = {"shapes": shapes, "dynamic_axes": dynamic_axes, "dynamic_shapes": dynamic_shapes}
    given = [name for name, value in ways.items() if value]
    if len(given) > 1:
        raise DeclarationError(f"{' and '.join(given)} are both given", hint="Declare the shapes in one way.")
    ranges = {_dim_name(name): _range(text) for name, text in (dims or {}).items()}
    if dynamic_axes:
        made = Declaration(_from_axes(case, dynamic_axes), ranges, labels=True)
    elif dynamic_shapes:
        sizes, more = _from_dynamic_shapes(case, dynamic_shapes)
        made = Declaration(sizes, {**more, **ranges})
    else:
        made = Declaration(_from_shapes(case, shapes or {}), ranges)
    _check_ranges_are_used(made, bool(given))
    return made


def _dim_name(name: Any) -> str:
    parsed = parse_expr(name) if isinstance(name, str) else None
    if parsed is None or parsed.name is None:
        raise DeclarationError(
            f"dims has {name!r}, which is no name of a dim", hint="Write dims={'seq': '1..512'}."
        )
    return parsed.name


def _range(text: Any) -> Range:
    if isinstance(text, Range):
        return text
    if isinstance(text, int):
        return Range(text, text)
    if isinstance(text, (tuple, list)) and len(text) == 2:
        return Range(*text)
    if isinstance(text, str):
        return parse_range(text)
    raise DeclarationError(f"a range is text such as '1..512' or '>=1', not {text!r}")


def _check_ranges_are_used(declaration: Declaration, shapes_given: bool) -> None:
    unused = [name for name in declaration.ranges if name not in declaration.names]
    if unused and shapes_given:
        known = ", ".join(declaration.names) or "none"
        raise DeclarationError(
            f"dims has {unused[0]}, which no declared shape uses", hint=f"The declared dims are: {known}."
        )


def _from_shapes(case: Case, shapes: Mapping[str, Any]) -> tuple[tuple[Size, ...], ...]:
    made: list[tuple[Size, ...]] = [(FOUND,) * len(item.shape) for item in case.inputs]
    for pattern, shape in shapes.items():
        if not isinstance(pattern, str):
            raise DeclarationError(f"shapes has {pattern!r}, which is no path of an input")
        matched = [k for k, item in enumerate(case.inputs) if matches(item.path, pattern)]
        if not matched:
            raise DeclarationError(
                f"shapes has {pattern!r}, but no input has that path",
                hint="The inputs are: " + ", ".join(item.path for item in case.inputs) + ".",
            )
        for number in matched:
            made[number] = _sizes(case.inputs[number], shape)
    return tuple(made)


def matches(path: str, pattern: str) -> bool:
    """Whether ``pattern`` means ``path``; a ``*`` stands for one list item or dict key."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _sizes(item: Input, shape: Any) -> tuple[Size, ...]:
    if not isinstance(shape, (str, list, tuple)):
        raise DeclarationError(
            f"the shape of {item.path} is {shape!r}, neither text nor a list of sizes",
            hint=f"Write shapes={{'{item.path}': 'batch, seq'}}.",
        )
    parsed = parse_shape(shape) if isinstance(shape, str) else tuple(_size(size) for size in shape)
    if len(parsed) != len(item.shape):
        raise DeclarationError(
            f"{item.path} is declared with {len(parsed)} axes, but its example has {len(item.shape)}: "
            f"{list(item.shape)}"
        )
    made = tuple(FREE if size is None else size for size in parsed)
    for axis, size in enumerate(made):
        if isinstance(size, Expr) and size.constant not in (None, item.shape[axis]):
            raise DeclarationError(
                f"{item.path} axis {axis} is declared {size}, but its example has {item.shape[axis]}"
            )
    return made


def _size(size: Any) -> Expr | None:
    if size is None:
        return None
    if isinstance(size, (int, Expr)):
        return Expr.of(size)
    if isinstance(size, str):
        return parse_expr(size)
    raise DeclarationError(f"a size is a name, a number or None, not {size!r}")


def _from_axes(case: Case, dynamic_axes: Mapping[str, Any]) -> tuple[tuple[Size, ...], ...]:
    """torch.onnx.export's dynamic_axes: {input: {axis: name}} or {input: [axis, …]}; outputs follow by themselves."""
    made: list[list[Size]] = [[UNLISTED] * len(item.shape) for item in case.inputs]
    listed = 0
    for number, item in enumerate(case.inputs):
        axes = dynamic_axes.get(item.path, {})
        listed += bool(axes)
        if not isinstance(axes, (Mapping, list, tuple, set)):
            raise DeclarationError(
                f"dynamic_axes has {axes!r} for {item.path}, not its axes",
                hint=f"Write dynamic_axes={{'{item.path}': {{0: 'batch'}}}}.",
            )
        pairs = axes.items() if isinstance(axes, Mapping) else ((axis, None) for axis in axes)
        for axis, name in pairs:
            if not isinstance(axis, int):
                raise DeclarationError(f"dynamic_axes names axis {axis!r} of {item.path}, which is no number")
            if not -len(item.shape) <= axis < len(item.shape):
                raise DeclarationError(
                    f"dynamic_axes names axis {axis} of {item.path}, which has {len(item.shape)} axes"
                )
            made[number][axis] = FREE if name is None else _label(item, axis, name)
    if not listed:
        raise DeclarationError(
            "dynamic_axes names no input: " + ", ".join(map(str, dynamic_axes)),
            hint=f"The inputs are: {', '.join(item.path for item in case.inputs)}. Name them with input_names=[...].",
        )
    return tuple(tuple(sizes) for sizes in made)


def _label(item: Input, axis: int, name: Any) -> Size:
    """The name of an axis; torch.onnx.export takes any text, one that is no name of ours just says: dynamic."""
    if not isinstance(name, str):
        raise DeclarationError(f"dynamic_axes calls axis {axis} of {item.path} {name!r}, which is no text")
    return Expr.of(name) if name.isidentifier() and not is_reserved(name) else FREE


def _from_dynamic_shapes(
    case: Case, dynamic_shapes: Any
) -> tuple[tuple[tuple[Size, ...], ...], dict[str, Range]]:
    """torch.export's dynamic_shapes: the structure of the inputs with a dict or sequence of sizes for each tensor."""
    args, kwargs = case.structure.children
    ranges: dict[str, Range] = {}
    specs = list(_specs(case, args, kwargs, dynamic_shapes))
    made = tuple(_declared(item, spec, ranges) for item, spec in zip(case.inputs, specs, strict=True))
    return made, ranges


def _specs(case: Case, args: Structure, kwargs: Structure, given: Any) -> Iterator[Any]:
    """The specification of each tensor, in the order of the inputs."""
    roots = list(zip(case.argument_names, (*args.children, *kwargs.children), strict=True))
    if isinstance(given, Mapping):
        named = _spread(given, case.argument_names)
        for name, structure in roots:
            yield from _walk(structure, named.get(name), name)
        return
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DeclarationError(
            f"dynamic_shapes is {given!r}, neither a dict nor a tuple",
            hint="See torch.export.export's dynamic_shapes.",
        )
    items = list(given)
    if (
        len(items) == 1
        and isinstance(items[0], (tuple, list))
        and len(roots) > 1
        and len(items[0]) == len(roots)
    ):
        items = list(items[0])  # a forward(*tensors): torch wants its tuple in one more tuple
    if len(items) > len(roots):
        raise DeclarationError(f"dynamic_shapes has {len(items)} items, but there are {len(roots)} inputs")
    for (name, structure), spec in zip(roots, items + [None] * (len(roots) - len(items)), strict=True):
        yield from _walk(structure, spec, name)


def _spread(given: Mapping[Any, Any], names: Sequence[str]) -> dict[Any, Any]:
    """The specification of each argument: a forward(*tensors) has one tuple for ``tensors.0``, ``tensors.1``, …"""
    made: dict[Any, Any] = {}
    for key, spec in given.items():
        items = [name for name in names if name.startswith(f"{key}.")]
        if key in names:
            made[key] = spec
        elif items:
            made.update(zip(items, spec, strict=False))
        else:
            raise DeclarationError(
                f"dynamic_shapes has {key!r}, but there is no argument of that name",
                hint=f"The arguments are: {', '.join(names)}.",
            )
    return made


def _walk(structure: Structure, spec: Any, path: str) -> Iterator[Any]:
    if structure.kind in ("tensor", "number"):
        yield spec if structure.kind == "tensor" else None
        return
    if structure.kind == "constant":
        return
    for number, (key, child) in enumerate(zip(structure.keys, structure.children, strict=True)):
        if spec is None:
            inner = None
        elif isinstance(spec, Mapping):
            inner = spec.get(key)
        elif isinstance(spec, Sequence) and not isinstance(spec, str) and number < len(spec):
            inner = spec[number]
        else:
            raise DeclarationError(f"dynamic_shapes for {path} does not have the structure of the input")
        yield from _walk(child, inner, f"{path}.{key}")


def _declared(item: Input, spec: Any, ranges: dict[str, Range]) -> tuple[Size, ...]:
    sizes: list[Size] = [STATIC] * len(item.shape)
    if spec is None:
        return tuple(sizes)
    if isinstance(spec, Sequence) and len(spec) == 1 and isinstance(spec[0], (Mapping, tuple, list)):
        spec = spec[0]  # the one tensor of a forward(*tensors)
    pairs = list(spec.items() if isinstance(spec, Mapping) else enumerate(spec))
    if not isinstance(spec, Mapping) and len(pairs) != len(sizes):
        raise DeclarationError(
            f"{item.path} is declared with {len(pairs)} axes, but its example has {len(sizes)}"
        )
    for axis, size in pairs:
        if not -len(sizes) <= axis < len(sizes):
            raise DeclarationError(
                f"dynamic_shapes names axis {axis} of {item.path}, which has {len(sizes)} axes"
            )
        sizes[axis] = _torch_size(item, axis, size, ranges)
    return tuple(sizes)


def _torch_size(item: Input, axis: int, size: Any, ranges: dict[str, Range]) -> Size:
    """One size as torch.export writes it: a name, a Dim, a Dim hint, an int or None."""
    if size is None or (isinstance(size, int) and size == item.shape[axis]):
        return STATIC
    if isinstance(size, int):
        raise DeclarationError(
            f"{item.path} axis {axis} is declared {size}, but its example has {item.shape[axis]}"
        )
    if isinstance(size, str):
        return parse_expr(size)
    hint = getattr(getattr(size, "type", None), "name", None)
    if hint in ("AUTO", "DYNAMIC", "STATIC"):
        return {"AUTO": FOUND, "DYNAMIC": FREE, "STATIC": STATIC}[hint]
    name = getattr(size, "__name__", None)
    if name is None:
        raise DeclarationError(
            f"{item.path} axis {axis}: {size!r} is no size", hint="Use a name, a Dim, an int or None."
        )
    root = getattr(size, "root", size)
    low, high = getattr(root, "min", 0), getattr(root, "max", None)
    top = int(high) if isinstance(high, int) else None
    if low or top is not None:
        ranges[root.__name__] = Range(int(low), top)
    return parse_expr(name)
