from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from anyshape.source.setters import line_that_sets


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Below(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = self.counted = self.made = 0
        self.only_here = 1
        self.held: Any = []
        self.table: Any = {}
        self.space: Any = None
        self.read = 3

    def helper(self) -> None:
        print(self.plain, self.held)
        self.plain = 1

    @decorated
    def more(self) -> None:
        self.counted += 1
        self.held.append(3)
        self.table[3] = 4
        self.space.inner.data.add_(1)
        del self.gone
        self.register_buffer("ramp", None)
        setattr(self, "named", 1)  # noqa: B010
        _, self.paired = 1, 2


class Above(Below):
    def forward(self) -> int:
        self.made: int = 3
        other: Any = self
        other.elsewhere = self.read
        return self.read


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", "self.plain = 1"),
        ("counted", "self.counted += 1"),
        ("held", "self.held.append(3)"),
        ("table", "self.table[3] = 4"),
        ("space", "self.space.inner.data.add_(1)"),
        ("gone", "del self.gone"),
        ("ramp", 'self.register_buffer("ramp", None)'),
        ("named", 'setattr(self, "named", 1)'),
        ("paired", "_, self.paired = 1, 2"),
        ("made", "self.made: int = 3"),
        ("elsewhere", "other.elsewhere = self.read"),
        ("read", "other.elsewhere = self.read"),
    ],
)
def test_the_line_that_sets_an_attribute(name: str, text: str) -> None:
    line = line_that_sets(Above, name)
    assert line is not None and line.text.startswith(text)


def test_what_is_set_nowhere_or_in_a_constructor_only() -> None:
    assert line_that_sets(Above, "nothing") is None
    assert line_that_sets(Above, "only_here") is None


def test_a_forward_from_elsewhere() -> None:
    def forward(self: Any, x: Any) -> Any:
        self.seen = x
        return x

    line = line_that_sets(type("Made", (nn.Module,), {"forward": forward}), "seen")
    assert line is not None and line.text == "self.seen = x"


def test_what_a_decorator_does() -> None:
    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(self: Any) -> None:
            self.calls += 1

        @functools.wraps(function)
        def call(self: Any) -> Any:
            count(self)
            return function(self)

        return call

    class Counted(nn.Module):
        @counting
        def forward(self) -> int:
            return 3

        @property
        def lazily(self) -> int:
            self.known = 3
            return self.known

    for name, text in (("calls", "self.calls += 1"), ("known", "self.known = 3")):
        line = line_that_sets(Counted, name)
        assert line is not None and line.text == text


def test_a_class_without_source() -> None:
    space: dict[str, Any] = {}
    exec("def forward(self):\n    self.seen = 1", space)
    assert line_that_sets(type("Made", (), {"forward": space["forward"]}), "seen") is None
