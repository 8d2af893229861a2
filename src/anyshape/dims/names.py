"""Names of sizes that are ours alone: they begin with an underscore, which the parser refuses in a user's names.

``_d0``       a size that probe found, until agree names it
``_a0_1``     the size of axis 1 of input 0, in a repair
``_data_u0``  a size that depends on values
``_i0``       the place along axis 0 in a tensor that is made of places
``_n0``       a number that a line of the model reads out of a tensor, which may be negative, as no size is
``_s0``       a size of a tensor in between, as a line of the model sees it
``_t0``       the number of a round, in a loop at that depth
``_x0``       the size of axis 0 of a step's first input, in a formula that many steps share
"""

from __future__ import annotations

import re

__all__ = [
    "DATA",
    "axis_size",
    "data",
    "found",
    "input_size",
    "is_found",
    "is_reserved",
    "may_be_negative",
    "place",
    "read_number",
    "round_of",
    "seen_size",
]


DATA = "_data"


def is_reserved(name: str) -> bool:
    """Whether a name is ours.

    >>> is_reserved("_d0"), is_reserved("batch")
    (True, False)
    """
    return name.startswith("_")


def found(number: int) -> str:
    return f"_d{number}"


def is_found(name: str) -> bool:
    return name[:2] == "_d" and name[2:].isdigit()


def axis_size(item: int, axis: int) -> str:
    return f"_a{item}_{axis}"


def data(symbol: str) -> str:
    return f"{DATA}_" + re.sub(r"\W", "_", symbol)


def place(axis: int) -> str:
    return f"_i{axis}"


def round_of(depth: int) -> str:
    return f"_t{depth}"


def seen_size(number: int) -> str:
    return f"_s{number}"


def read_number(number: int) -> str:
    return f"_n{number}"


def may_be_negative(name: str) -> bool:
    """Whether a name stands for a number that was read out of a tensor."""
    return name[:2] == "_n" and name[2:].isdigit()


def input_size(axis: int) -> str:
    return f"_x{axis}"
