"""Sign: what a step is, whatever it is applied to. Tapes are compared by their signs, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from anyshape.capture.tape.steps import Step, Tape, Value, either, repeated, rolled

__all__ = ["Sign", "sign_of", "signs_of"]


class Sign:
    """Steps of one kind have the same one: it is quick to see whether two are the same object."""

    __slots__ = ("__weakref__", "target")

    def __init__(self, target: Any) -> None:
        self.target = target


_known: WeakValueDictionary[Any, Sign] = WeakValueDictionary()


def sign_of(step: Step) -> Sign:
    """The step's sign, which it keeps."""
    if step.sign is None:
        parts = _parts(step)
        found = _known.get(parts)
        if found is None:
            found = _known[parts] = Sign(step.target)
        object.__setattr__(step, "sign", found)
    sign: Sign = step.sign
    return sign


def signs_of(tape: Tape) -> list[Sign]:
    """The signs of all steps of a tape."""
    return [step.sign or sign_of(step) for step in tape.steps]


def _parts(step: Step) -> Any:
    kinds = tuple(None if value is None else (value.dtype, len(value.shape)) for value in step.outputs)
    return step.target, step.axes, _form(step.args), _form(step.kwargs), kinds, _inside(step)


def _form(tree: Any) -> Any:
    """Nested arguments with only the kind of each value and number, for which another one is no other operation."""
    kind = type(tree)
    if kind is Value or kind is int or kind is float:
        return kind
    if tree is None or kind is bool:
        return str(tree)
    if isinstance(tree, (list, tuple)):
        return kind, *map(_form, tree)
    if isinstance(tree, Mapping):
        return dict, *((key, _form(item)) for key, item in tree.items())
    return kind if isinstance(tree, (int, float)) else str(tree)


def _inside(step: Step) -> Any:
    if step.target is rolled:
        return step.body.plan.text
    if step.target in (either, repeated):
        return tuple(tuple(signs_of(tape)) for tape in step.body)
    return ""
