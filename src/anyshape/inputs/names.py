"""Names of inputs and outputs: text that ONNX can hold, a terminal can show, and no other tensor has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anyshape.errors import UsageError, printable
from anyshape.inputs.case import Case
from anyshape.inputs.structure import Structure

__all__ = ["check_names", "check_output_names", "given_names", "present"]

LONGEST = 500


def given_names(what: str, names: object) -> list[str]:
    """The names that a user gave; `UsageError` for anything but a sequence of text."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise UsageError(f"{what} is {names!r}, not a list of names", hint=f"Write {what}=['x', 'y'].")
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise UsageError(f"{what} has {wrong[0]!r}, which is no text", hint=f"Write {what}=['x', 'y'].")
    return list(names)


def check_output_names(case: Case, names: Sequence[str]) -> None:
    """`UsageError` for output names that do not fit the outputs, or that an input has."""
    if len(names) > len(case.outputs.paths) > 0:
        raise UsageError(
            f"output_names has {len(names)} names, but there are {len(case.outputs.paths)} outputs",
            hint="Give one name for each tensor that the model returns.",
        )
    taken = {item.path for item in case.inputs}.intersection(names)
    if taken:
        raise UsageError(
            f"output_names has {sorted(taken)[0]}, which is an input",
            hint="Give each tensor a name of its own.",
        )
    check_names("output_names", names)


def check_names(what: str, names: Sequence[str]) -> None:
    """`UsageError` for a name that a file could not hold, or that two tensors would have."""
    for name in names:
        if not name:
            raise UsageError(f"{what} has an empty name", hint="Give it a name of its own.")
        if not name.isprintable() or len(name) > LONGEST:
            raise UsageError(
                f"{what} has a name that a file can't hold: {printable(name, 80)!r}",
                hint=f"Use printable text of at most {LONGEST} characters.",
            )
    if len(set(names)) != len(names):
        raise UsageError(
            f"{what} repeats a name: {', '.join(names)}",
            hint="Give each a name of its own with input_names=[...].",
        )


def present(structure: Structure, paths: Sequence[str]) -> list[str]:
    """The paths of a result's tensors, those of a cache as users of ONNX Runtime know them: ``present.0.key``.

    Of several caches, the first is called so, the others ``present.`` and where they are.
    """
    if not paths:
        return []  # of a model that was not run
    made = list(paths)
    for count, (node, start) in enumerate(_caches(structure, 0)):
        for number, key in enumerate(node.keys, start):
            before = paths[number].removesuffix(f".{key}")
            made[number] = f"present.{key}" if count == 0 else f"present.{before}.{key}"
    return made


def _caches(node: Structure, start: int) -> Iterator[tuple[Structure, int]]:
    """Each cache, and the number of its first tensor."""
    if node.kind == "cache":
        yield node, start
        return
    for child in node.children:
        yield from _caches(child, start)
        start += child.tensors
