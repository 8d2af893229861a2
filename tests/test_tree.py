from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch

from anyshape.inputs.tree import flatten, structure_from_json


class Pair(NamedTuple):
    left: torch.Tensor
    right: Any


@dataclass
class Batch:
    image: torch.Tensor
    boxes: list[torch.Tensor]
    scale: float = 2.0
    made: Any = field(init=False, default=None)


@dataclass(frozen=True)
class Frozen:
    value: torch.Tensor
    seen: torch.Tensor = field(init=False, default=torch.zeros(3))


class OwnMapping(Mapping[str, Any]):
    """A mapping that can't be made from a dict."""

    def __init__(self, first: Any, second: Any) -> None:
        self.parts = {"first": first, "second": second}

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]

    def __iter__(self) -> Any:
        return iter(self.parts)

    def __len__(self) -> int:
        return 2


def tensors(count: int) -> list[torch.Tensor]:
    return [torch.full((k + 1,), float(k)) for k in range(count)]


def paths(value: Any) -> list[str]:
    return [path for path, _ in flatten(value)[0]]


a, b, c = tensors(3)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (a, [""]),
        ((a, b), ["0", "1"]),
        ([a, (b, c)], ["0", "1.0", "1.1"]),
        ({"x": a, "y": {"z": b}}, ["x", "y.z"]),
        (OrderedDict(second=a, first=b), ["second", "first"]),
        (Pair(a, [b, c]), ["left", "right.0", "right.1"]),
        (Batch(a, [b, c]), ["image", "boxes.0", "boxes.1"]),
        ([None, 3, "text", True, 1.5, torch.float16, a], ["6"]),
        ({"x": None, "y": ()}, []),
        (OwnMapping(a, b), ["first", "second"]),
        ([a, a], ["0", "1"]),
    ],
)
def test_paths_follow_the_structure(value: Any, expected: list[str]) -> None:
    assert paths(value) == expected


def test_a_root_path_is_put_in_front() -> None:
    assert [path for path, _ in flatten([a, {"k": b}], "past")[0]] == ["past.0", "past.1.k"]


@pytest.mark.parametrize(
    "value",
    [
        a,
        (a, b, c),
        [a, (b, None, 7)],
        {"x": a, "y": [b, "text"]},
        OrderedDict(second=a, first=b),
        Pair(a, (b, c)),
        (),
        None,
    ],
)
def test_rebuilding_with_the_same_tensors_gives_the_value_back(value: Any) -> None:
    leaves, structure = flatten(value)
    again = structure.rebuild([tensor for _, tensor in leaves])
    assert type(again) is type(value)
    assert str(again) == str(value)


def test_a_dataclass_is_rebuilt_with_fields_that_init_does_not_take() -> None:
    batch = Batch(a, [b])
    batch.made = c
    leaves, structure = flatten(batch)
    assert [path for path, _ in leaves] == ["image", "boxes.0", "made"]
    again = structure.rebuild([b, c, a])
    assert isinstance(again, Batch) and again.scale == 2.0
    assert again.image is b and again.boxes == [c] and again.made is a


def test_a_frozen_dataclass_is_rebuilt() -> None:
    _, structure = flatten(Frozen(a))
    again = structure.rebuild([b, c])
    assert again.value is b and again.seen is c


def test_a_mapping_that_cant_be_made_from_a_dict_becomes_a_dict() -> None:
    _, structure = flatten(OwnMapping(a, b))
    assert structure.rebuild(["x", "y"]) == {"first": "x", "second": "y"}


def test_a_class_registered_with_torch_is_opened_and_rebuilt() -> None:
    class Registered:
        def __init__(self, parts: list[Any]) -> None:
            self.parts = parts

    torch.utils._pytree.register_pytree_node(
        Registered, lambda value: (value.parts, None), lambda parts, context: Registered(list(parts))
    )
    leaves, structure = flatten({"cache": Registered([a, b])})
    assert [path for path, _ in leaves] == ["cache.0", "cache.1"]
    again = structure.rebuild([b, a])["cache"]
    assert isinstance(again, Registered) and again.parts == [b, a]
    from_file = structure_from_json(json.loads(json.dumps(structure.to_json())))
    assert from_file.rebuild([1, 2]) == {"cache": (1, 2)}  # how to rebuild it is not in the file


def test_an_object_that_is_no_container_is_a_constant() -> None:
    leaves, structure = flatten([object, Pair, a])
    assert len(leaves) == 1
    assert structure.constants() == [object, Pair]


def test_constants_come_in_order() -> None:
    assert flatten({"x": 1, "y": [a, None, ("text", 2.5)]})[1].constants() == [1, None, "text", 2.5]


@pytest.mark.parametrize(
    "value",
    [
        a,
        (a, [b, c]),
        {"x": a, 3: [b]},
        Pair(a, b),
        OrderedDict(z=a, y=b),
        (a, None, 3, "text", 2.5, True),
        [],
    ],
)
def test_json_and_back_rebuilds_the_same(value: Any) -> None:
    leaves, structure = flatten(value)
    again = structure_from_json(json.loads(json.dumps(structure.to_json())))
    made = again.rebuild([tensor for _, tensor in leaves])
    assert type(made) is type(value) and str(made) == str(value)


def test_a_class_that_cant_be_imported_becomes_a_plain_one() -> None:
    node = {
        "kind": "namedtuple",
        "keys": ["left", "right"],
        "children": ["tensor", "tensor"],
        "type": "gone:Pair",
    }
    made = structure_from_json(node).rebuild([1, 2])
    assert (made.left, made.right) == (1, 2)
    node = {"kind": "dataclass", "keys": ["x"], "children": ["tensor"], "type": "os:NoSuchClass"}
    assert structure_from_json(node).rebuild([5]).x == 5
    node = {"kind": "dict", "keys": ["x"], "children": ["tensor"], "type": "gone.away:Dict"}
    assert structure_from_json(node).rebuild([5]) == {"x": 5}


def test_a_constant_that_json_lacks_is_kept_as_text() -> None:
    assert flatten(torch.float16)[1].to_json() == {"constant": "torch.float16"}
