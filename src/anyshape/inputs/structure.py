"""How leaves make up a value: a tree of plain containers, to JSON and back, and rebuilt around new leaves.

A file says which containers a value had, and never which code to run: tuples, lists and dicts come back as they are, a
named tuple or a dataclass as a small one made on the spot. Who wants classes of their own hands them over.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import unicodedata
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from anyshape.dims import Expr, parse_expr
from anyshape.errors import UsageError

__all__ = [
    "Kind",
    "Opened",
    "Structure",
    "are_field_names",
    "constant_json",
    "is_field_name",
    "key_json",
    "open_plain",
    "shown",
    "structure_from_json",
    "take_apart",
    "with_classes",
]

Kind: TypeAlias = Literal[
    "tensor", "constant", "list", "tuple", "dict", "namedtuple", "dataclass", "registered", "cache", "number"
]

KINDS: tuple[Kind, ...] = get_args(Kind)
NAMED = ("namedtuple", "dataclass", "dict", "registered", "cache")  # kinds that keep the name of their class
MOST_FIELDS = 256
NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # those that JSON lacks
LARGEST_INTEGER = 2**63  # larger ones are kept as text, like everything else that JSON lacks


@dataclass(frozen=True, slots=True)
class Structure:
    """One node of the tree. ``type`` is the class to rebuild, ``rebuild_with`` its own way to do so, if it has one."""

    kind: Kind
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    value: Any = None
    type: Any = None
    rebuild_with: Callable[[list[Any]], Any] | None = None

    def rebuild(self, tensors: Iterable[Any]) -> Any:
        """The value with ``tensors`` in the place of its tensor leaves, in order."""
        return self._build(iter(tensors))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind == "tensor":
            return next(leaves)
        if self.kind == "number":
            return next(leaves).item()  # what the model is given is Python's own
        if self.kind == "constant":
            return self.value
        parts = [child._build(leaves) for child in self.children]
        if self.rebuild_with is not None:
            return self.rebuild_with(parts)
        return _BUILDERS[self.kind](self, parts)

    def at(self, sizes: Mapping[str, int]) -> Structure:
        """The structure with the numbers that follow from sizes as they are at these."""
        if self.kind == "constant" and isinstance(self.value, Expr):
            return replace(self, value=self.value.evaluate(sizes))
        return replace(self, children=tuple(child.at(sizes) for child in self.children))

    def with_constants(self, values: Iterator[Any]) -> Structure:
        """The structure with other constants, in order."""
        if self.kind == "constant":
            return replace(self, value=next(values))
        return replace(self, children=tuple(child.with_constants(values) for child in self.children))

    def with_children(self, children: tuple[Structure, ...]) -> Structure:
        """The same container around other parts."""
        return replace(self, children=children)

    def constants(self) -> list[Any]:
        """The values of the constant leaves, in order."""
        if self.kind == "constant":
            return [self.value]
        return [value for child in self.children for value in child.constants()]

    @property
    def tensors(self) -> int:
        """How many leaves are tensors."""
        return 1 if self.kind in ("tensor", "number") else sum(child.tensors for child in self.children)

    @property
    def class_name(self) -> str:
        """The plain name of a class that is more than a tuple, a list or a dict; else empty."""
        if self.kind not in NAMED or self.type in (None, dict):
            return ""
        return str(self.type.__qualname__).rpartition(".")[2]

    def to_json(self) -> Any:
        """A JSON value that `structure_from_json` reads back; of a class its name is kept, and nothing of its code."""
        if self.kind == "tensor":
            return "tensor"
        if self.kind == "number":
            return {"number": self.value}
        if self.kind == "constant" and isinstance(self.value, Expr):
            return {"size": str(self.value)}
        if self.kind == "constant":
            return {"constant": constant_json(self.value)}
        kind, keys = self.kind, [key_json(key) for key in self.keys]
        if kind in ("namedtuple", "dataclass") and not are_field_names(keys):
            kind = (
                "tuple" if kind == "namedtuple" else "dict"
            )  # a field such as _0, which no class of ours can have
        node: dict[str, Any] = {"kind": kind, "children": [child.to_json() for child in self.children]}
        if kind in ("namedtuple", "dataclass", "dict", "cache"):
            node["keys"] = keys
        if kind in NAMED and is_field_name(self.class_name):
            node["name"] = self.class_name
        return node


def constant_json(value: Any) -> Any:
    """A plain value as JSON has it; a number that JSON lacks by its name, any other value as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(float(value))}
    if isinstance(value, (bool, str, type(None))):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return float(value)
    return shown(value) if _is_mute(value) else str(value)


def shown(value: Any) -> str:
    """A plain value as Python writes it; an object that says nothing of itself but its address, by its class."""
    return f"<{type(value).__qualname__}>" if _is_mute(value) else repr(value)


def _is_mute(value: Any) -> bool:
    return getattr(type(value), "__repr__", None) is object.__repr__


def key_json(key: Any) -> Any:
    """A key of a dict as JSON has it."""
    made = constant_json(key)
    return made if isinstance(made, (bool, int, float, str)) else str(key)


def structure_from_json(node: Any) -> Structure:
    """The structure that `Structure.to_json` wrote, as the contract's reader has checked it."""
    if node == "tensor":
        return Structure("tensor")
    if "number" in node:
        return Structure("number", value=node["number"])
    if "size" in node:
        return Structure("constant", value=parse_expr(node["size"]))
    if "constant" in node:
        value = node["constant"]
        return Structure("constant", value=NUMBERS[value["number"]] if isinstance(value, dict) else value)
    children = tuple(structure_from_json(child) for child in node["children"])
    kind: Kind = node["kind"]
    keys = tuple(node.get("keys", range(len(children))))
    return Structure(kind, keys, children, type=_made(kind, node.get("name", ""), keys))


def _made(kind: Kind, name: str, keys: Sequence[str]) -> Any:
    """A class made on the spot, with the name and the fields that the file says, both checked."""
    if kind == "dict" and name in _DICTS:
        return _DICTS[name]
    if kind not in NAMED:
        return None
    name = name or "Output"
    if not is_field_name(name) or (kind in ("namedtuple", "dataclass") and not are_field_names(keys)):
        raise UsageError(f"{name} is no class that can be made: a field has a name that Python does not take")
    if kind == "namedtuple":
        return namedtuple(name, keys)
    if kind == "dataclass":
        return dataclasses.make_dataclass(name, keys, frozen=True, eq=False)
    return type(name, (_Stand,), {})


_DICTS = {"": dict, "OrderedDict": OrderedDict}


class _Stand:
    """Stands for a class of which the file has only the name."""


def is_field_name(name: Any) -> bool:
    """Whether a class or a field may be called so: an identifier that does nothing else in Python.

    >>> [is_field_name(name) for name in ("logits", "class", "__init__", "a b", 3)]
    [True, False, False, False, False]
    """
    return (
        isinstance(name, str)
        and name.isidentifier()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and unicodedata.normalize("NFKC", name) == name  # Python takes letters for others of the same look
    )


def are_field_names(names: Sequence[Any]) -> bool:
    """Whether a class can be made with these fields."""
    return len(names) <= MOST_FIELDS and all(map(is_field_name, names)) and len(set(names)) == len(names)


# --- Rebuilding -----------------------------------------------------------------------------------------


def _build_dict(node: Structure, parts: list[Any]) -> Any:
    made, kind = dict(zip(node.keys, parts, strict=True)), node.type
    if kind in (None, dict) or issubclass(kind, _Stand):
        return made
    by_name = dataclasses.is_dataclass(kind)
    try:
        return kind(**made) if by_name else kind(made)
    except TypeError:
        return made


def _build_cache(node: Structure, parts: list[Any]) -> Any:
    if node.type is None or issubclass(node.type, _Stand):
        return dict(zip(node.keys, parts, strict=True))
    from anyshape.inputs.caches import built  # which opens what stands here

    return built(node.type, node.keys, parts)


def _build_dataclass(node: Structure, parts: list[Any]) -> Any:
    values = dict(zip(node.keys, parts, strict=True))
    initial = {f.name for f in dataclasses.fields(node.type) if f.init}
    made = node.type(**{k: v for k, v in values.items() if k in initial})
    for name in values.keys() - initial:
        object.__setattr__(made, name, values[name])
    return made


_BUILDERS: Mapping[str, Callable[[Structure, list[Any]], Any]] = {
    "list": lambda node, parts: parts,
    "tuple": lambda node, parts: tuple(parts),
    "dict": _build_dict,
    "namedtuple": lambda node, parts: node.type(*parts),
    "dataclass": _build_dataclass,
    "cache": _build_cache,
    "registered": lambda node, parts: tuple(parts),  # from a file: the class's own way is not stored there
}


def with_classes(structures: Sequence[Structure], classes: Sequence[Any]) -> list[Structure]:
    """The structures with the caller's own classes, matched by name and fields; `UsageError` for one that fits none."""
    by_name: dict[str, Any] = {}
    for given in classes:
        if not isinstance(given, type):
            raise UsageError(f"classes holds {given!r}, which is no class", hint="Give classes=[Output].")
        if by_name.setdefault(_plain_name(given), given) is not given:
            raise UsageError(f"classes holds two classes called {_plain_name(given)}")
    used: set[str] = set()
    made = [_with_classes(structure, by_name, used) for structure in structures]
    left = [name for name in by_name if name not in used]
    if left:
        named = sorted({node.class_name for each in structures for node in _nodes(each)} - {""})
        raise UsageError(
            f"the file has no class called {left[0]}",
            hint=f"Its classes are: {', '.join(named)}." if named else "It has none: leave classes out.",
        )
    return made


def _with_classes(node: Structure, classes: Mapping[str, Any], used: set[str]) -> Structure:
    children = tuple(_with_classes(child, classes, used) for child in node.children)
    given = classes.get(node.class_name)
    if given is None:
        return replace(node, children=children)
    used.add(node.class_name)
    _check_class(node, given)
    return replace(node, children=children, type=given)


def _check_class(node: Structure, given: Any) -> None:
    """Refuse a class that the node can't be rebuilt as."""
    name = node.class_name
    if node.kind == "cache":
        return  # it is filled as it fills itself
    if node.kind == "registered":
        raise UsageError(
            f"{name} is taken apart by functions that were registered with PyTorch, which no file can hold",
            hint="Leave it out of classes: it comes back as a tuple.",
        )
    kind, fields = _fields(given)
    if kind != node.kind:
        raise UsageError(f"{name} is {_ARTICLES[kind]}, but the file's {name} is {_ARTICLES[node.kind]}")
    same = fields is None or (
        set(node.keys) <= set(fields) if kind == "dict" else set(node.keys) == set(fields)
    )
    if not same:
        raise UsageError(
            f"{name} has the fields {', '.join(map(str, fields or ()))}, "
            f"but the file's {name} has {', '.join(map(str, node.keys))}"
        )


def _fields(given: Any) -> tuple[Kind | Literal["other"], tuple[str, ...] | None]:
    """What a class is, and its fields; a mapping takes any keys, unless it is a dataclass as well."""
    if issubclass(given, tuple) and hasattr(given, "_fields"):
        return "namedtuple", tuple(given._fields)
    declared = tuple(f.name for f in dataclasses.fields(given)) if dataclasses.is_dataclass(given) else None
    if issubclass(given, Mapping):
        return "dict", declared
    return ("other", None) if declared is None else ("dataclass", declared)


_ARTICLES = {
    "namedtuple": "a named tuple",
    "dataclass": "a dataclass",
    "dict": "a mapping",
    "other": "neither a dataclass, nor a named tuple, nor a mapping",
}


def _plain_name(given: Any) -> str:
    return str(given.__qualname__).rpartition(".")[2]


def _nodes(structure: Structure) -> Iterator[Structure]:
    yield structure
    for child in structure.children:
        yield from _nodes(child)


# --- Taking apart ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A container, opened. ``names`` are its keys as paths have them."""

    kind: Kind
    keys: list[Any]
    children: list[Any]
    rebuild_with: Callable[[list[Any]], Any] | None = None
    names: list[Any] | None = None


def open_plain(value: Any) -> Opened | None:
    """A tuple, list, dict, named tuple, mapping or dataclass, opened; None if it is none of them."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Opened("namedtuple", list(value._fields), list(value))
    if isinstance(value, tuple):
        return Opened("tuple", list(range(len(value))), list(value))
    if isinstance(value, list):
        return Opened("list", list(range(len(value))), value)
    if type(value) in (dict, OrderedDict) or isinstance(value, Mapping):
        return Opened("dict", list(value), list(value.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return Opened("dataclass", names, [getattr(value, name) for name in names])
    return None


def take_apart(
    value: Any,
    path: str,
    is_leaf: Callable[[Any], bool],
    opened: Callable[[Any], Opened | None] = open_plain,
) -> tuple[list[tuple[str, Any]], Structure]:
    """The leaves of ``value`` in order, each with its path, and the structure that holds them.

    >>> leaves, structure = take_apart({"a": 1.5, "b": ["x", 2.5]}, "", lambda value: isinstance(value, float))
    >>> leaves, structure.rebuild([0, 1])
    ([('a', 1.5), ('b.1', 2.5)], {'a': 0, 'b': ['x', 1]})
    """
    leaves: list[tuple[str, Any]] = []

    def walk(part: Any, at: str) -> Structure:
        if is_leaf(part):
            leaves.append((at, part))
            return Structure("tensor")
        box = opened(part)
        if box is None:
            return Structure("constant", value=part)
        names = box.keys if box.names is None else box.names
        nodes = tuple(
            walk(child, f"{at}.{name}" if at else str(name))
            for name, child in zip(names, box.children, strict=True)
        )
        return Structure(box.kind, tuple(box.keys), nodes, type=type(part), rebuild_with=box.rebuild_with)

    return leaves, walk(value, path)
