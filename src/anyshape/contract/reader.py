"""Reader: the JSON text of a contract becomes a `Contract`, or a `FileError` that says where the text is wrong.

The text comes from a file, and a file may come from anyone. Nothing in it is taken on trust: every type, name, number,
length, count and depth is checked, names that stand for something must stand for something in the text, and what this
reader does not know is refused. Nothing is imported, evaluated or made by a name in the text.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

from anyshape.contract.contract import FORMAT, LONGEST_TEXT, Contract, Dim, Evidence, Origin, Rung, Tensor
from anyshape.dims import Expr, Range, Relation, parse_expr, parse_range
from anyshape.dims.names import is_reserved
from anyshape.errors import FileError, UsageError, printable
from anyshape.inputs.structure import (
    KINDS,
    LARGEST_INTEGER,
    MOST_FIELDS,
    NUMBERS,
    are_field_names,
    is_field_name,
)

__all__ = ["DTYPES", "RULES", "read_contract"]

MOST_TEXT = 8_000_000
MOST_DIMS = 1_000
MOST_TENSORS = 10_000
MOST_AXES = 64
MOST_RELATIONS = 10_000
MOST_NOTES = 10_000
MOST_NODES = 100_000
DEEPEST = 64
LONGEST_NAME = 500
LONGEST_EXPRESSION = 20_000
LONGEST_CONSTANT = 1_000_000
LARGEST_SIZE = 2**53

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
RULES = ("constant", "mask", "progression", "cells", "stretched", "spread", "index")
OPERATORS = ("<=", "<", "==", "!=")
# They write nothing, but move the cursor, turn the direction, or break the line.
UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))

_Value = TypeVar("_Value")


class _Amiss(Exception):
    """What is wrong, and where in the JSON."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)


def read_contract(text: str) -> Contract:
    """The contract that the text says; `FileError` if anything in it is amiss."""
    try:
        data = _parsed(text)
        _check_format(data)
        return _contract(data)
    except _Amiss as amiss:
        raise FileError(
            f"the contract in the file can't be read: {printable(str(amiss), 400)}",
            hint="Export the model again.",
        ) from None


# --- JSON -----------------------------------------------------------------------------------------------


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > MOST_TEXT:
        raise _Amiss("", f"it is longer than {MOST_TEXT} characters")
    try:
        data = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_float
        )
    except RecursionError:
        raise _Amiss("", "it is nested too deep") from None
    except ValueError as error:
        raise _Amiss("", f"it is no JSON: {error}") from None
    return _of(data, dict, "", "an object")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Amiss("", f"the key {key!r} stands twice in one object")
        made[key] = value
    return made


def _integer(text: str) -> int:
    if len(text) > 20:
        raise _Amiss("", f"the number {text[:20]}... is too large")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Amiss("", f"{text[:20]} is no finite number")
    return value


def _check_format(data: Mapping[str, Any]) -> None:
    version = data.get("format")
    if isinstance(version, bool) or not isinstance(version, int):
        raise _Amiss("format", "expected a whole number")
    if version != FORMAT:
        raise FileError(
            f"the contract has format {version}, this anyshape reads format {FORMAT}",
            hint="Export the model again, or install the anyshape that exported it.",
        )


# --- Pieces ---------------------------------------------------------------------------------------------


def _of(value: Any, kind: type[_Value], where: str, expected: str) -> _Value:
    """The value, if it is of this type; a boolean is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _Amiss(where, f"expected {expected}, found {_found(value)}")
    return value


def _found(value: Any) -> str:
    """A value in a message: what it is, and the value itself where it is short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _keys(value: Any, where: str, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """An object with these keys and no others."""
    made = _of(value, dict, where, "an object")
    for key in required:
        if key not in made:
            raise _Amiss(where, f"{key!r} is missing")
    for key in made:
        if key not in required and key not in optional:
            raise _Amiss(where, f"unknown key {_found(key)}")
    return made


def _list(value: Any, where: str, most: int) -> list[Any]:
    made = _of(value, list, where, "a list")
    if len(made) > most:
        raise _Amiss(where, f"{len(made)} items, more than {most}")
    return made


def _each(value: Any, where: str, most: int, read: Callable[[Any, str], _Value]) -> tuple[_Value, ...]:
    """The items of a list, each read with its place in the text."""
    return tuple(read(item, f"{where}[{number}]") for number, item in enumerate(_list(value, where, most)))


def _text(value: Any, where: str, longest: int, *, allowed: str = "") -> str:
    """A text without control characters, but for those that are ``allowed``."""
    made = _of(value, str, where, "a text")
    if len(made) > longest:
        raise _Amiss(where, f"a text of {len(made)} characters, more than {longest}")
    if not (made.isascii() and made.isprintable()):
        for letter in made:
            if letter not in allowed and unicodedata.category(letter) in UNSEEN:
                raise _Amiss(where, f"the control character U+{ord(letter):04X} in a text")
    return made


def _name(value: Any, where: str) -> str:
    made = _text(value, where, LONGEST_NAME)
    if not made:
        raise _Amiss(where, "the name is empty")
    return made


def _prose(value: Any, where: str) -> str:
    return _text(value, where, LONGEST_TEXT, allowed="\n\t")


def _size(value: Any, where: str) -> int:
    made = _of(value, int, where, "a whole number")
    if not 0 <= made <= LARGEST_SIZE:
        raise _Amiss(where, f"expected a size between 0 and {LARGEST_SIZE}, found {made}")
    return made


def _one_of(value: Any, where: str, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise _Amiss(where, f"expected one of {', '.join(map(repr, sorted(known)))}, found {_found(value)}")
    return value


def _distinct(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            raise _Amiss(f"{where}[{number}]", f"{name} is there already")
        seen.add(name)


# --- The contract ---------------------------------------------------------------------------------------


def _contract(data: Mapping[str, Any]) -> Contract:
    parts = ("dims", "inputs", "outputs", "relations", "constants", "notes", "arguments")
    _keys(data, "", ("format", *parts, "input_structure", "output_structure", "rung"))
    dims = _each(data["dims"], "dims", MOST_DIMS, _dim)
    _distinct([dim.name for dim in dims], "dims")
    scope = _Scope(frozenset(dim.name for dim in dims))
    inputs = _each(data["inputs"], "inputs", MOST_TENSORS, scope.input)
    outputs = _each(data["outputs"], "outputs", MOST_TENSORS, scope.output)
    _distinct([item.name for item in inputs], "inputs")
    _distinct([item.name for item in outputs], "outputs")
    arguments = _each(data["arguments"], "arguments", MOST_TENSORS, _name)
    _distinct(arguments, "arguments")
    return Contract(
        dims,
        inputs,
        outputs,
        _each(data["relations"], "relations", MOST_RELATIONS, scope.relation),
        _each(data["constants"], "constants", MOST_NOTES, _constant),
        _each(data["notes"], "notes", MOST_NOTES, _prose),
        arguments,
        _call_structure(data["input_structure"], "input_structure", len(inputs), arguments),
        _structure(data["output_structure"], "output_structure", len(outputs), scope.expression),
        cast(Rung, _one_of(data["rung"], "rung", get_args(Rung))),
    )


def _dim(value: Any, where: str) -> Dim:
    data = _keys(value, where, ("name", "range", "example", "origin", "evidence", "reason", "tried"))
    return Dim(
        _dim_name(data["name"], f"{where}.name"),
        _range(data["range"], f"{where}.range"),
        _size(data["example"], f"{where}.example"),
        cast(Origin, _one_of(data["origin"], f"{where}.origin", get_args(Origin))),
        cast(Evidence, _one_of(data["evidence"], f"{where}.evidence", get_args(Evidence))),
        _prose(data["reason"], f"{where}.reason"),
        None if data["tried"] is None else _size(data["tried"], f"{where}.tried"),
    )


def _dim_name(value: Any, where: str) -> str:
    name = _name(value, where)
    if not (name.isascii() and name.isidentifier()) or is_reserved(name):
        raise _Amiss(where, f"{name!r} is no name for a dim")
    return name


def _range(value: Any, where: str) -> Range:
    text = _text(value, where, 100)
    try:
        made = parse_range(text)
    except UsageError as error:
        raise _Amiss(where, _first_line(error)) from None
    for limit in (made.minimum, made.maximum):
        if limit is not None:
            _size(limit, where)
    return made


def _first_line(error: UsageError) -> str:
    return error.what.partition("\n")[0]


def _constant(value: Any, where: str) -> tuple[str, str]:
    pair = _list(value, where, 2)
    if len(pair) != 2:
        raise _Amiss(where, f"expected a path and a value, found {len(pair)} items")
    return _name(pair[0], f"{where}[0]"), _prose(pair[1], f"{where}[1]")


class _Scope:
    """What is written over the dims of one contract, and over no others."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self._known: dict[str, Expr] = {}

    def input(self, value: Any, where: str) -> Tensor:
        return self._tensor(value, where, self.expression)

    def output(self, value: Any, where: str) -> Tensor:
        return self._tensor(value, where, self._maybe_expression)

    def _tensor(self, value: Any, where: str, size: Callable[[Any, str], Expr | None]) -> Tensor:
        data = _keys(value, where, ("name", "dtype", "shape", "values"))
        dtype = _one_of(data["dtype"], f"{where}.dtype", DTYPES)
        return Tensor(
            _name(data["name"], f"{where}.name"),
            dtype,
            _each(data["shape"], f"{where}.shape", MOST_AXES, size),
            self._values(data["values"], f"{where}.values", dtype),
        )

    def _maybe_expression(self, value: Any, where: str) -> Expr | None:
        return None if value is None else self.expression(value, where)

    def expression(self, value: Any, where: str) -> Expr:
        """An expression over declared dims; the same text is parsed once."""
        text = _text(value, where, LONGEST_EXPRESSION)
        if text not in self._known:
            try:
                made = parse_expr(text)
            except UsageError as error:
                raise _Amiss(where, f"{_first_line(error)}: {text[:100]}") from None
            unknown = sorted(made.names - self.names)
            if unknown:
                raise _Amiss(where, f"{unknown[0]} is no dim of this contract")
            self._known[text] = made
        return self._known[text]

    def relation(self, value: Any, where: str) -> Relation:
        parts = _list(value, where, 3)
        if len(parts) != 3:
            raise _Amiss(
                where, f"expected two expressions and what is between them, found {len(parts)} items"
            )
        left, right = self.expression(parts[0], f"{where}[0]"), self.expression(parts[2], f"{where}[2]")
        return Relation(left, _one_of(parts[1], f"{where}[1]", OPERATORS), right)

    def _values(self, value: Any, where: str, dtype: str) -> dict[str, Any]:
        """How to make values for an input; outputs have none."""
        if value == {}:
            return {}
        data = _keys(value, where, ("kind", "low", "high"), ("limit",))
        _one_of(data["kind"], f"{where}.kind", RULES)
        low, high = (_number(data[end], f"{where}.{end}", dtype) for end in ("low", "high"))
        if low > high:
            raise _Amiss(where, f"low is {low}, above high, {high}")
        if "limit" in data:
            self.expression(data["limit"], f"{where}.limit")
        return data


def _number(value: Any, where: str, dtype: str) -> float:
    """A limit of an input's values; of integers, one that integers have."""
    if isinstance(value, str):
        return NUMBERS[_one_of(value, where, tuple(NUMBERS))]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Amiss(where, f"expected a number, found {_found(value)}")
    if "int" in dtype and abs(value) > 2**64:
        raise _Amiss(where, f"expected a number that {dtype} has, found {_found(value)}")
    return float(value)


# --- Structures -----------------------------------------------------------------------------------------


def _call_structure(value: Any, where: str, tensors: int, arguments: Sequence[str]) -> Any:
    """The structure of a call: a tuple of its positional arguments and a dict of its named ones."""
    if _structure(value, where, tensors) is None:
        return None
    parts: list[Any] = value.get("children", []) if isinstance(value, dict) else []
    kinds = [part.get("kind") if isinstance(part, dict) else None for part in parts]
    if kinds != ["tuple", "dict"] or value["kind"] != "tuple":
        raise _Amiss(where, "expected a tuple of a tuple and a dict: the arguments of a call")
    positional, named = (part["children"] for part in parts)
    if (
        len(arguments) != len(positional) + len(named)
        or list(arguments[len(positional) :]) != parts[1]["keys"]
    ):
        raise _Amiss("arguments", f"expected the names of the arguments in {where}, and no others")
    return value


def _structure(value: Any, where: str, tensors: int, size: Callable[[Any, str], Any] | None = None) -> Any:
    """A structure with as many tensors as there are inputs or outputs; null where none is known.

    ``size`` reads an expression: a plain number among the results may follow from the sizes.
    """
    if value is None:
        return None
    count = 0
    for number, leaf in enumerate(_nodes(value, where, size)):
        if number >= MOST_NODES:
            raise _Amiss(where, f"more than {MOST_NODES} nodes")
        count += leaf
    if count != tensors:
        raise _Amiss(where, f"{count} tensors, but {tensors} are listed")
    return value


def _nodes(value: Any, where: str, size: Callable[[Any, str], Any] | None, depth: int = 0) -> Iterator[bool]:
    """Each checked node of a structure, as whether it is a tensor."""
    if depth > DEEPEST:
        raise _Amiss(where[:80], f"nested more than {DEEPEST} deep")
    if value == "tensor":
        yield True
        return
    data = _of(value, dict, where, 'an object or "tensor"')
    if "number" in data:
        _one_of(_keys(data, where, ("number",))["number"], f"{where}.number", ("bool", "int", "float"))
        yield True
        return
    yield False
    if "size" in data and size is not None:
        size(_keys(data, where, ("size",))["size"], f"{where}.size")
        return
    if "constant" in data:
        _plain(_keys(data, where, ("constant",))["constant"], f"{where}.constant")
        return
    _keys(data, where, ("kind", "children"), ("keys", "name"))
    kind = _one_of(
        data["kind"],
        f"{where}.kind",
        [known for known in KINDS if known not in ("tensor", "constant", "number")],
    )
    children = _list(data["children"], f"{where}.children", MOST_NODES)
    _check_keys(data, where, kind, len(children))
    if "name" in data and (
        kind in ("list", "tuple") or not is_field_name(_name(data["name"], f"{where}.name"))
    ):
        raise _Amiss(f"{where}.name", f"{_found(data['name'])} is no name for a class of the kind {kind}")
    for number, child in enumerate(children):
        yield from _nodes(child, f"{where}.children[{number}]", size, depth + 1)


def _check_keys(data: Mapping[str, Any], where: str, kind: str, count: int) -> None:
    if kind in ("list", "tuple", "registered"):
        if "keys" in data:
            raise _Amiss(f"{where}.keys", f"a {kind} has none")
        return
    if "keys" not in data:
        raise _Amiss(where, "'keys' is missing")
    keys = _each(data["keys"], f"{where}.keys", MOST_NODES, _key)
    if len(keys) != count:
        raise _Amiss(f"{where}.keys", f"{len(keys)} keys for {count} children")
    if len({(type(key), key) for key in keys}) != len(keys) or len(set(keys)) != len(keys):
        raise _Amiss(f"{where}.keys", "a key is there twice")
    if kind in ("namedtuple", "dataclass") and not are_field_names(keys):
        raise _Amiss(
            f"{where}.keys",
            f"expected at most {MOST_FIELDS} names of fields: identifiers without an underscore first",
        )


def _key(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return _text(value, where, LONGEST_NAME)
    if not isinstance(value, (bool, int, float)):
        raise _Amiss(where, f"expected a key, found {_found(value)}")
    return value


def _plain(value: Any, where: str) -> None:
    """A constant: a plain value, or a number that JSON lacks, by its name."""
    if isinstance(value, dict):
        _one_of(_keys(value, where, ("number",))["number"], f"{where}.number", tuple(NUMBERS))
    elif isinstance(value, str):
        if len(value) > LONGEST_CONSTANT:
            raise _Amiss(where, f"a text of {len(value)} characters, more than {LONGEST_CONSTANT}")
        if any(0xD800 <= ord(letter) < 0xE000 for letter in value):
            raise _Amiss(where, "half of a character in a text")
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise _Amiss(where, f"the number {value} is too large")
    elif not isinstance(value, (bool, int, float, type(None))):
        raise _Amiss(where, f"expected a plain value, found {_found(value)}")
