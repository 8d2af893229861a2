from __future__ import annotations

import dataclasses
import json
import math
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch

from anyshape.errors import UsageError
from anyshape.inputs.structure import Structure, structure_from_json, with_classes
from anyshape.inputs.tree import flatten


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
        OrderedDict(z=a, y=b),
        (a, None, 3, "text", 2.5, True),
        [],
        (),
        {},
    ],
)
def test_json_and_back_rebuilds_the_same(value: Any) -> None:
    leaves, structure = flatten(value)
    again = structure_from_json(json.loads(json.dumps(structure.to_json())))
    made = again.rebuild([tensor for _, tensor in leaves])
    assert type(made) is type(value) and str(made) == str(value)


def again_of(value: Any) -> Structure:
    return structure_from_json(json.loads(json.dumps(flatten(value)[1].to_json(), allow_nan=False)))


def test_a_file_has_the_name_of_a_class_and_no_path_to_it() -> None:
    assert flatten(Pair(a, b))[1].to_json() == {
        "kind": "namedtuple",
        "children": ["tensor", "tensor"],
        "keys": ["left", "right"],
        "name": "Pair",
    }
    assert __name__ not in json.dumps(flatten([Pair(a, b), Batch(a, []), OwnMapping(a, b)])[1].to_json())


def test_a_named_tuple_from_a_file_is_one_made_on_the_spot() -> None:
    made = again_of(Pair(a, 3)).rebuild([1])
    assert (made.left, made.right) == (1, 3) == made
    assert type(made).__name__ == "Pair" and type(made) is not Pair


def test_a_dataclass_from_a_file_is_a_frozen_record() -> None:
    made = again_of(Batch(a, [b])).rebuild([1, 2])
    assert (made.image, made.boxes, made.scale, made.made) == (1, [2], 2.0, None)
    assert type(made).__name__ == "Batch" and type(made) is not Batch
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.image = 5


def test_a_mapping_from_a_file_is_a_dict() -> None:
    assert again_of(OwnMapping(a, b)).rebuild([1, 2]) == {"first": 1, "second": 2}


def test_fields_that_no_class_of_ours_can_have() -> None:
    renamed = namedtuple("renamed", ["x", "class"], rename=True)
    assert again_of(renamed(a, b)).rebuild([1, 2]) == (1, 2)
    hidden = dataclasses.make_dataclass("Hidden", ["_x", "y"])
    assert again_of(hidden(a, b)).rebuild([1, 2]) == {"_x": 1, "y": 2}


@pytest.mark.parametrize(
    "keys", [["a", "a"], ["class"], ["_a"], ["a b"], ["a=1"], [3], ["ﬁ"], [f"f{k}" for k in range(999)]]
)
@pytest.mark.parametrize("kind", ["namedtuple", "dataclass"])
def test_no_class_is_made_with_such_fields(kind: str, keys: list[Any]) -> None:
    with pytest.raises(UsageError, match="no class that can be made"):
        structure_from_json({"kind": kind, "keys": keys, "children": ["tensor"] * len(keys), "name": "Name"})


def test_numbers_that_json_lacks() -> None:
    assert again_of((math.inf, -math.inf)).rebuild([]) == (math.inf, -math.inf)
    assert math.isnan(again_of(math.nan).rebuild([]))
    assert flatten(2**70)[1].to_json() == {"constant": str(2**70)}


class Output(dict):  # type: ignore[type-arg]
    """As transformers has them: a dict that is registered, taken apart into its values."""


class Held:
    """Registered in a way that only its own functions know."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts


torch.utils._pytree.register_pytree_node(
    Output, lambda v: (list(v.values()), list(v)), lambda parts, keys: Output(zip(keys, parts, strict=True))
)
torch.utils._pytree.register_pytree_node(Held, lambda v: (v.parts, None), lambda parts, _: Held(list(parts)))


def test_a_registered_mapping_is_a_mapping_in_a_file() -> None:
    leaves, structure = flatten(Output(logits=a, hidden=(b, c)))
    assert [path for path, _ in leaves] == ["0", "1.0", "1.1"]  # as PyTorch names its parts
    assert type(structure.rebuild([1, 2, 3])) is Output
    assert again_of(Output(logits=a, hidden=(b, c))).rebuild([1, 2, 3]) == {"logits": 1, "hidden": (2, 3)}


@pytest.mark.parametrize("value", [Pair(a, b), Batch(a, [b]), Frozen(a), Output(x=a, y=b)])
def test_classes_that_are_handed_over_are_rebuilt(value: Any) -> None:
    (made,) = with_classes([again_of([value])], [type(value)])
    (rebuilt,) = made.rebuild([1, 2])
    assert type(rebuilt) is type(value)
    assert str(rebuilt) == str(flatten(value)[1].rebuild([1, 2]))


def test_a_class_by_another_name_fits_nothing() -> None:
    with pytest.raises(
        UsageError, match=r"the file has no class called Frozen\nIts classes are: Batch, Pair\."
    ):
        with_classes([again_of([Pair(a, b), Batch(a, [])])], [Pair, Frozen])
    with pytest.raises(UsageError, match=r"has no class called Pair\nIt has none: leave classes out\."):
        with_classes([again_of([a])], [Pair])


def test_a_class_with_other_fields_does_not_fit() -> None:
    other = namedtuple("Pair", ["left", "middle"])
    with pytest.raises(
        UsageError, match="Pair has the fields left, middle, but the file's Pair has left, right"
    ):
        with_classes([again_of(Pair(a, b))], [other])


def test_a_class_of_another_kind_does_not_fit() -> None:
    record = dataclasses.make_dataclass("Pair", ["left", "right"])
    with pytest.raises(UsageError, match="Pair is a dataclass, but the file's Pair is a named tuple"):
        with_classes([again_of(Pair(a, b))], [record])
    with pytest.raises(
        UsageError, match="Pair is neither a dataclass, nor a named tuple, nor a mapping, but"
    ):
        with_classes([again_of(Pair(a, b))], [type("Pair", (), {})])


def test_a_class_registered_in_its_own_way_cant_be_handed_over() -> None:
    assert again_of(Held([a, b])).rebuild([1, 2]) == (1, 2)
    with pytest.raises(UsageError, match=r"Held is taken apart by functions .*\nLeave it out of classes"):
        with_classes([again_of(Held([a, b]))], [Held])


def test_what_is_no_class_and_two_of_one_name() -> None:
    with pytest.raises(UsageError, match="classes holds 3, which is no class"):
        with_classes([again_of(a)], [3])
    with pytest.raises(UsageError, match="classes holds two classes called Pair"):
        with_classes([again_of(Pair(a, b))], [Pair, type("Pair", (), {})])


def test_a_constant_that_json_lacks_is_kept_as_text() -> None:
    assert flatten(torch.float16)[1].to_json() == {"constant": "torch.float16"}
