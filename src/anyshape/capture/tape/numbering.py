"""Number: a name for each value of a tape that is the same on every tape of the model."""

from __future__ import annotations

from typing import Any

from anyshape.capture.tape.steps import Tape, Value

__all__ = ["Numbering", "numbered"]


class Numbering:
    """The names of a tape's values: constants by their name, or in the order of their use; others by their step.

    Values are named step by step, as far as it is asked; a tape that is changed from some step on keeps the names of
    what comes before.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.ids: dict[Value, Any] = {value: ("input", k) for k, value in enumerate(tape.inputs)}
        self._order = list(self.ids)
        self._counts: list[int] = []  # how many values had a name before each step

    def up_to(self, end: int) -> dict[Value, Any]:
        """The names, at least of all that the steps before ``end`` use and make."""
        for number in range(len(self._counts), min(end, len(self.tape.steps))):
            self._counts.append(len(self._order))
            step = self.tape.steps[number]
            for value in step.inputs:
                if value not in self.ids:
                    self._add(value, ("constant", self.tape.names.get(value, (number, len(self.ids)))))
            for k, value in enumerate(step.outputs):
                self._add(value, ("step", number, k))
        return self.ids

    def all(self) -> dict[Value, Any]:
        """The names of all values, the outputs among them."""
        self.up_to(len(self.tape.steps))
        for value in self.tape.outputs:
            if value not in self.ids:
                self._add(value, ("constant", self.tape.names.get(value, "output")))
        return self.ids

    def changed(self, tape: Tape, kept: int) -> None:
        """Go over to another tape that has the first ``kept`` steps in common with this one."""
        self.tape = tape
        if kept < len(self._counts):
            for value in self._order[self._counts[kept] :]:
                del self.ids[value]
            del self._order[self._counts[kept] :], self._counts[kept:]

    def _add(self, value: Value, name: Any) -> None:
        if value not in self.ids:
            self._order.append(value)
        self.ids[value] = name


def numbered(tape: Tape) -> dict[Value, Any]:
    """The names of all values of a tape."""
    return Numbering(tape).all()
