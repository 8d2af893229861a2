"""Walk: every body inside a program, however deep: sides of a split, rounds of a loop, ways of a choice."""

from __future__ import annotations

from collections.abc import Iterator

from anyshape.capture.tape.steps import LoopBody, Split, Step, Tape, chosen, either, repeated, rolled

__all__ = ["Nested", "bodies", "steps_of"]

Nested = Tape | Split | LoopBody


def bodies(body: Nested) -> Iterator[Nested]:
    """A body, and all the bodies inside it, in order."""
    yield body
    if isinstance(body, Split):
        if isinstance(body.condition, Tape):
            yield from bodies(body.condition)
        yield from bodies(body.then)
        yield from bodies(body.otherwise)
        return
    for step in body.steps:
        if step.target in (rolled, chosen):
            yield from bodies(step.body)
        elif step.target in (either, repeated):
            for tape in step.body:
                yield from bodies(tape)


def steps_of(body: Nested) -> Iterator[Step]:
    """All steps of a program, also those inside its ways and loops."""
    for inner in bodies(body):
        if not isinstance(inner, Split):
            yield from inner.steps
