"""Wording: a change in the user's words, and as a person would write it at its place in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anyshape.dims import Expr
from anyshape.repair.changes import Axis, Change, axis_name
from anyshape.repair.runs import Runs, Shapes, axis_sizes, moved
from anyshape.repair.search import Solution
from anyshape.source.literals import Local

__all__ = ["AT_EXAMPLE", "told", "written"]

AT_EXAMPLE = " at the example"


def told(change: Change, names: Mapping[Axis, str]) -> str:
    """``8 is seq at the example``"""
    said = str(change.size)
    for axis, name in sorted(names.items(), reverse=True):  # axis 12 before axis 1
        said = said.replace(axis_name(axis), name)
    return f"{change.value} is {said}{AT_EXAMPLE}"


def written(runs: Runs, changes: Sequence[Change], solutions: Sequence[Solution]) -> dict[Change, str]:
    """For each change its expression in terms of tensors that are in scope there, such as ``x.shape[0]``."""
    if not changes:
        return {}
    done = tuple(changes)
    rows: list[dict[str, int]] = []
    scopes: dict[Change, list[list[list[Local]]]] = {change: [] for change in changes}
    for shapes in _shapes(runs, solutions):
        tensors = runs.tensors(shapes)
        runs.literals.reset()
        with runs.literals.looking_at({change.literal for change in changes}):
            if isinstance(runs.of(done, tensors), str):
                continue
        rows.append(axis_sizes(tensors))
        for change in changes:
            scopes[change].append(runs.literals.locals_at(change.literal))
    texts = {}
    for change in changes:
        text = _written(change.size, rows, scopes[change])
        if text is not None:
            texts[change] = text
    return texts


def _shapes(runs: Runs, solutions: Sequence[Solution]) -> Iterator[Shapes]:
    """The example, each solution's axes moved alone, and all of them together."""
    yield runs.case.shapes
    together = runs.case.shapes
    for number, solution in enumerate(solutions):
        for size in solution.sizes:
            yield moved(runs.case.shapes, solution.axes, size)
        together = moved(together, solution.axes, solution.sizes[number % len(solution.sizes)])
    yield together


def _written(
    size: Expr, rows: Sequence[Mapping[str, int]], scopes: Sequence[list[list[Local]]]
) -> str | None:
    """The whole as one axis of a tensor if there is one, else each of its names as an axis."""
    wanted = [size.evaluate(row) for row in rows]
    whole = _axis(wanted, scopes)
    if whole is not None:
        return whole
    words = {}
    for name in size.names:
        axis = _axis([row[name] for row in rows], scopes)
        if axis is None:
            return None
        words[name] = axis
    if size.name is not None:
        return words[size.name]
    text = str(size)
    for name, word in words.items():
        text = text.replace(name, word)
    return text.replace("*", " * ").replace("//", " // ")


def _axis(wanted: Sequence[int], scopes: Sequence[list[list[Local]]]) -> str | None:
    """The first axis of a tensor in scope, parameters before others, that has the wanted size in every run."""
    if not scopes or any(not runs for runs in scopes):
        return None
    for local in scopes[0][0]:
        for axis in range(len(local.shape)):
            if all(
                _size(scope, local.text, axis) == size
                for size, executions in zip(wanted, scopes, strict=True)
                for scope in executions
            ):
                from_behind = len(local.shape) == 4 and axis >= 2  # images: height and width are the last
                return f"{local.text}.shape[{axis - 4 if from_behind else axis}]"
    return None


def _size(scope: Sequence[Local], text: str, axis: int) -> int | None:
    found = next((local for local in scope if local.text == text), None)
    return found.shape[axis] if found is not None and axis < len(found.shape) else None
