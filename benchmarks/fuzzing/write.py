"""A program from a seed: statements are drawn, run at the example and in other worlds, and kept if they run."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fuzzing.program import HEADER, Input, Program, example_of, load, make_values
from fuzzing.rules import GROUPS, PLAIN, Rule
from fuzzing.slots import Slots, Unfit
from fuzzing.world import Worlds

__all__ = ["runs_at_its_example", "write"]

WIDTHS = ("4", "6")
OTHER_WORLDS = 3
TRIES = 8  # of rules, for one statement
TOUCHY = (*("decisions", "arithmetic") * 3, *("loops", "lists", "positions") * 2, "masks", "values", "state")


def write(seed: int) -> Program:
    """The program of a seed: always the same one, and it runs at its example."""
    for attempt in range(100):
        program = _written(seed, random.Random(f"{seed} {attempt}"))
        if program is not None and runs_at_its_example(program):
            return program
    raise AssertionError(f"no program for seed {seed}")


def runs_at_its_example(program: Program) -> bool:
    """Whether PyTorch runs it, twice with the same result, and something comes out."""
    try:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            first, second = (_outputs(program, Path(folder), seed) for seed in range(2))
    except Exception:  # a program may raise anything
        return False
    return bool(first) and all(
        one.shape == two.shape and torch.equal(one.nan_to_num(), two.nan_to_num())
        for one, two in zip(first, second, strict=True)
    )


def _outputs(program: Program, folder: Path, seed: int) -> list[Tensor]:
    """What comes out of a new module; its weights hang on the program alone, what it draws itself on the seed."""
    module = load(program, folder)
    torch.manual_seed(seed)
    result = module(*example_of(program))
    return [out for out in pytree.tree_leaves(result) if isinstance(out, Tensor)]


def _written(seed: int, chance: random.Random) -> Program | None:
    inputs, axes = _signature(chance)
    sizes = _example_sizes(chance, axes)
    blank = Program(seed, "", inputs, sizes)
    worlds = Worlds([_tensors(blank, made, chance) for made in [sizes, *_other_sizes(chance, axes)]])
    parts: list[str] = []
    lines = [text for text in _first_lines(chance, inputs) if worlds.try_lines([], [text])]
    statements = 0
    for number, group in enumerate(_plan(chance)):
        for _ in range(TRIES):
            slots = Slots(chance, worlds, number)
            added = _filled(chance.choice(group), slots)
            if added and worlds.try_lines(slots.parts, added):
                parts += slots.parts
                lines += added
                statements += 1
                break
    if statements < 3:
        return None
    lines += _result(chance, worlds, lines)
    return Program(seed, _source(inputs, parts, lines), inputs, sizes, _declared(chance, inputs, axes, sizes))


def _filled(rule: Rule, slots: Slots) -> list[str]:
    """The rule's lines, or none where it has nothing to work on."""
    try:
        return rule(slots).split("\n")
    except Unfit:
        return []


def _source(inputs: Sequence[Input], parts: Sequence[str], lines: Sequence[str]) -> str:
    arguments = ", ".join(["self", *(item.name for item in inputs)])
    made = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    made += [f"        {part}" for part in parts]
    made += ["", f"    def forward({arguments}):", *(f"        {line}" for line in lines)]
    return HEADER + "\n" + "\n".join(made) + "\n"


# --- Inputs ---------------------------------------------------------------------------------------------


def _signature(chance: random.Random) -> tuple[tuple[Input, ...], list[str]]:
    """One to three inputs over shared axes, and those axes."""
    width = chance.choice(WIDTHS)
    shape = chance.choice(
        (
            ("b", "n", width),
            ("b", "n", width),
            ("b", "n", width),
            ("b", width, "n"),
            ("b", "n"),
            ("n",),
            ("n", width),
            ("b", "2", "h", "w"),
            ("b", "2", "h", "w"),
            ("b", "h", "w", width),
        )
    )
    inputs = [Input("x", "floats", shape)]
    if "n" in shape:
        others = _others(chance, shape, width)
        inputs += chance.sample(others, min(len(others), chance.choice((0, 0, 1, 1, 2))))
    axes = [
        axis for axis in ("b", "n", "h", "w", "m") if any(axis in " ".join(item.shape) for item in inputs)
    ]
    return tuple(inputs), axes


def _others(chance: random.Random, shape: tuple[str, ...], width: str) -> list[Input]:
    """What may come beside x: more of the same, longer by a rule, masks, ids, lengths, a table."""
    at = shape.index("n")
    longer = chance.choice(("n", "n", "m", "m", "n + 1", "2 * n"))
    second = tuple(longer if axis == "n" else axis for axis in shape)
    made = [Input("y", "floats", second), Input("y", "floats", second), Input("scale", "floats", (width,))]
    if shape[0] == "b":
        made += [
            Input("mask", "mask", ("b", "n")),
            Input("mask", "mask", ("b", "n")),
            Input("ids", "ids", ("b", "n"), high=20),
            Input("lengths", "lengths", ("b",), of=("x", at)),
            Input("index", "index", ("b",), of=("x", at)),
        ]
    if shape == ("b", "n", width):
        made.append(Input("table", "floats", (chance.choice(("n", "n + 3", "50")), width)))
    return list({item.name: item for item in made}.values())


def _example_sizes(chance: random.Random, axes: Sequence[str]) -> dict[str, int]:
    sizes = {axis: chance.choice((2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24)) for axis in axes}
    if "b" in sizes:
        sizes["b"] = chance.choice((1, 2, 2, 3, 4))
    return sizes


def _other_sizes(chance: random.Random, axes: Sequence[str]) -> list[dict[str, int]]:
    """Sizes of the other worlds: unlike each other within a world, and between worlds."""
    drawn = chance.sample((3, 5, 7, 10, 11, 13, 14, 17, 19, 22, 23, 26, 29, 31, 41, 43, 47), 4 * OTHER_WORLDS)
    return [
        {axis: drawn[4 * number + place] for place, axis in enumerate(axes)} for number in range(OTHER_WORLDS)
    ]


def _tensors(blank: Program, sizes: dict[str, int], chance: random.Random) -> dict[str, Tensor]:
    if sizes == blank.sizes:
        made = example_of(blank)
    else:
        made = make_values(
            blank.inputs, blank.shapes(sizes), {"mask": "ragged", "scale": 1.0}, chance.randrange(99)
        )
    return {item.name: tensor for item, tensor in zip(blank.inputs, made, strict=True)}


def _declared(
    chance: random.Random, inputs: Sequence[Input], axes: Sequence[str], sizes: dict[str, int]
) -> dict[str, Any]:
    """Nothing, mostly; else all shapes, with a range for one axis now and then."""
    if chance.random() < 0.85:
        return {}
    made: dict[str, Any] = {"shapes": {item.name: ", ".join(item.shape) for item in inputs}}
    if chance.random() < 0.5:
        axis = chance.choice(axes)
        made["dims"] = {axis: f"{min(2, sizes[axis])}..{max(64, sizes[axis])}"}
    return made


# --- Statements -----------------------------------------------------------------------------------------


def _first_lines(chance: random.Random, inputs: Sequence[Input]) -> list[str]:
    """``b, n, _ = x.shape``, as most models begin; a few read each size where they need it."""
    made = []
    for item in inputs[: 1 + (chance.random() < 0.3)]:
        names = [axis if axis.isidentifier() else "_" for axis in item.shape]
        if item.kind == "floats" and chance.random() < 0.8:
            made.append(f"{', '.join(names)}{',' * (len(names) == 1)} = {item.name}.shape")
    return made


def _plan(chance: random.Random) -> list[Sequence[Rule]]:
    """From which rules each statement comes: a few that touch sizes, among plain ones."""
    made = [GROUPS[chance.choice(TOUCHY)] for _ in range(chance.choice((1, 1, 2, 2, 3)))]
    made += [chance.choice(PLAIN) for _ in range(chance.choice((2, 2, 3, 4, 6)))]
    return chance.sample(made, len(made))


def _result(chance: random.Random, worlds: Worlds, lines: Sequence[str]) -> list[str]:
    """The latest tensors that were made; now and then another way out before."""
    text = "\n".join(lines)
    names = [name for name in worlds.tensors(torch.float32, torch.int64, torch.bool) if f"{name} = " in text][
        -3:
    ]
    if len(names) > 1:
        told = ", ".join(names)
        return [
            f"return {told}" if chance.random() < 0.8 else f"return {{'first': {names[0]}, 'all': ({told},)}}"
        ]
    if chance.random() < 0.2:
        try:
            decision = Slots(chance, worlds, 0).cond
        except Unfit:
            return [f"return {names[-1]}"]
        return [f"if {decision}:", f"    return {names[-1]} * 2", f"return {names[-1]}"]
    return [f"return {names[-1]}"]
