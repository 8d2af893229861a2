"""What an operator says of itself: its schema, its overloads, what it is made of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

__all__ = [
    "ASSERTIONS",
    "READS_A_VALUE",
    "Operator",
    "Parameter",
    "argument_names",
    "arguments_of",
    "decomposition",
    "for_tensors",
    "functional_twin",
    "is_mutable",
    "is_view",
    "name_of",
    "operators_of",
    "parameters",
    "returns",
    "returns_a_list",
    "shown",
    "tensor_arguments",
    "viewed_argument",
    "written_arguments",
]

Operator = torch._ops.OpOverload
"""An operator with its types settled; PyTorch has no public name for its class."""


def _schema(target: Any) -> Any:
    """The schema of an operator, None for a plain function: PyTorch has no public way to ask."""
    return getattr(target, "_schema", None)


def name_of(target: Any) -> str:
    """``aten::add_``; a plain function as Python prints it."""
    schema = _schema(target)
    return str(target if schema is None else schema.name)


def arguments_of(target: Any) -> list[tuple[str, Any]]:
    """The name and the default of each argument; of a plain function, none."""
    schema = _schema(target)
    return [] if schema is None else [(item.name, item.default_value) for item in schema.arguments]


def argument_names(target: Any) -> list[str]:
    """The names of an operator's arguments, in order."""
    return [name for name, _ in arguments_of(target)]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument by an operator's schema: ``Tensor?``, ``Tensor[]``, ``SymInt`` ..."""

    name: str
    kind: str
    default: Any
    by_name: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.kind in ("Tensor", "Optional[Tensor]")

    @property
    def is_list_of_tensors(self) -> bool:
        return self.kind in ("List[Tensor]", "List[Optional[Tensor]]")

    @property
    def is_fraction(self) -> bool:
        return self.kind in ("float", "Optional[float]", "List[float]", "Optional[List[float]]")

    @property
    def is_truth(self) -> bool:
        return self.kind in ("bool", "Optional[bool]")

    @property
    def is_list_of_truths(self) -> bool:
        return self.kind in ("List[bool]", "Optional[List[bool]]")


def parameters(target: Any) -> list[Parameter]:
    """The arguments of an operator, in order."""
    return [
        Parameter(item.name, str(item.type), item.default_value, item.kwarg_only)
        for item in _schema(target).arguments
    ]


def returns(target: Any) -> int:
    """How many tensors an operator returns, by its schema."""
    return len(_schema(target).returns)


def operators_of(key: Any) -> list[Any]:
    """The operators that a user means: one, all of a name, or the one that torch.library.custom_op made."""
    if isinstance(key, Operator):
        return [key]
    if isinstance(key, torch._ops.OpOverloadPacket):
        return [getattr(key, name) for name in key.overloads()]  # type: ignore[no-untyped-call]
    if isinstance(key, CustomOpDef):
        return [key._opoverload]
    return []


def shown(target: Any) -> str:
    """``torch.ops.my.op.default``; a plain function as Python prints it."""
    return f"torch.ops.{target}" if isinstance(target, Operator) else str(target)


def is_mutable(target: Any) -> bool:
    """Whether an operator writes to an argument, by its schema."""
    schema = _schema(target)
    return schema is not None and bool(schema.is_mutable)


def written_arguments(target: Any) -> list[str]:
    """The names of the arguments that an operator writes to."""
    if not is_mutable(target):
        return []
    arguments = _schema(target).arguments
    return [item.name for item in arguments if item.alias_info is not None and item.alias_info.is_write]


def functional_twin(target: Any) -> Any:
    """The functional operator of an in-place one, `add.Tensor` of `add_.Tensor`; None if there is none."""
    space, _, base = _schema(target).name.partition("::")
    packet = getattr(getattr(torch.ops, space), base.removesuffix("_"), None)
    wanted = [str(item.type) for item in _schema(target).arguments]
    overloads = packet.overloads() if packet is not None and base.endswith("_") else []
    for other in sorted(overloads, key=lambda other: other != (target._overloadname or "default")):
        found = getattr(packet, other)
        if [str(item.type) for item in _schema(found).arguments][: len(wanted)] == wanted:
            return found
    return None


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor shares its memory with the one it was made of."""
    return bool(tensor._is_view())


ASSERTIONS = frozenset(
    (
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_tensor_metadata.default,
    )
)
"""Checks that a trace adds: the contract and verify say more."""


READS_A_VALUE = frozenset((torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default))
"""Operators that turn a tensor into a Python number."""


@functools.cache
def viewed_argument(target: Any) -> int | None:
    """The position of the argument that an operator's result is a view of, by its schema."""
    schema = _schema(target)
    if schema is None or not any(item.alias_info for item in schema.returns):
        return None
    for position, item in enumerate(schema.arguments):
        if item.alias_info is not None and not item.alias_info.is_write:
            return position
    return None


def for_tensors(target: Any) -> Any:
    """The overload that takes tensors where this one takes a plain number: `mul.Tensor` for `mul.Scalar`."""
    name = getattr(target, "_overloadname", "")
    if name == "default":  # of other operators it may mean other things
        return CLAMPS.get(target, target)
    wanted = {"Scalar": "Tensor", "Tensor_Scalar": "Tensor_Tensor"}.get(name, "")
    return getattr(target.overloadpacket, wanted) if wanted in target.overloadpacket.overloads() else target


CLAMPS = {
    packet.default: packet.Tensor
    for packet in (torch.ops.aten.clamp, torch.ops.aten.clamp_min, torch.ops.aten.clamp_max)
}


@functools.cache
def tensor_arguments(target: Any) -> frozenset[int]:
    """The places of an operator's arguments that are tensors by its schema, though a number may be given."""
    schema = _schema(target)
    arguments = schema.arguments if schema is not None else ()
    return frozenset(k for k, item in enumerate(arguments) if str(item.type) == "Tensor")


def returns_a_list(target: Any) -> bool:
    """Whether an operator returns a list of tensors, by its schema."""
    schema = _schema(target)
    return (
        schema is not None and len(schema.returns) == 1 and isinstance(schema.returns[0].type, torch.ListType)
    )


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions().items())  # type: ignore[no-untyped-call]
    return {**torch._decomp.decomposition_table, **table, torch.ops.prims.var.default: _variance}


def _variance(x: torch.Tensor, dims: list[int] | None, correction: float | None = 1) -> Any:
    """std_mean is made of a primitive that is made of nothing else, though aten has its like."""
    return torch.ops.aten.var.correction(x, dims, correction=correction)


def decomposition(target: Any) -> Callable[..., Any] | None:
    """What an operator is made of, as a function of the same arguments; None if it is not made of others."""
    if not isinstance(target, Operator):
        return None
    found = _decompositions().get(target)
    if found is None and target._can_decompose():
        found = target.decompose
    return found
