"""explain: the lines of a model that a plain trace would fix at its example's sizes, and what capture does there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anyshape.capture import Program, Split, Traces
from anyshape.capture.differential import first_rows
from anyshape.capture.looks.all_ways import AllWays, looks_on_all_ways
from anyshape.capture.looks.one_way import Look
from anyshape.capture.tape import Step, rolled
from anyshape.capture.tape.constants import index_tensor, sizes_tensor
from anyshape.capture.tape.walk import steps_of
from anyshape.contract.agree import Agreed, agree
from anyshape.contract.contract import Rung
from anyshape.dims import Expr, Relation
from anyshape.dims.names import is_reserved
from anyshape.errors import SourceLine
from anyshape.inputs.case import Case
from anyshape.ladder.rungs import Ground, first_program
from anyshape.lower.operators import translated
from anyshape.progress import Progress
from anyshape.source.blocks import head_of, loop_around
from anyshape.source.lines import is_library
from anyshape.understand import understand

__all__ = ["Explanation", "Finding", "explain"]

MOST_SHOWN = 2
LONGEST_TEXT = 44

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """A line to look at: what capture does there, and what a plain export at the example would keep."""

    where: SourceLine
    done: str
    plain: str
    kind: str  # number, loop, branch, value or tensor


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a model's Python does with sizes and values, one finding for each line and kind."""

    findings: tuple[Finding, ...]
    dims: tuple[str, ...]
    rung: Rung  # symbolic where there is nothing to do, else how far traces at concrete sizes had to go
    ended: SourceLine | None = None  # beyond it, what Python does with sizes was seen from outside only

    def __str__(self) -> str:
        remarks = [ENDED.format(self.ended.file, self.ended.line)] if self.ended is not None else []
        if not self.findings:
            return "\n".join(["Nothing to do: PyTorch's own trace follows every size.", *remarks])
        rows = [
            (f"{f.where.file}:{f.where.line}", _cut(f.where.text), f.done, f"plain: {f.plain}")
            for f in self.findings
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "   ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
            for row in rows
        ]
        places, them, they = (
            ("1 place", "it", "it is") if len(rows) == 1 else (f"{len(rows)} places", "them", "they are")
        )
        lines += ["", f"{places}. An export follows {them} as {they}; rewritten, a plain trace would, too."]
        return "\n".join(lines + remarks)


ENDED = "The trace with symbolic sizes ended at {}:{}: lines that come later may be missing here."


def explain(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: Any = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    examples: Sequence[Any] = (),
    make_inputs: Callable[[dict[str, int]], Any] | None = None,
    input_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    progress: Progress | None = None,
) -> Explanation:
    """List each line that a plain trace would fix at its example's sizes, or raise the `Fault` of an export.

    >>> print(explain(torch.nn.Linear(10, 5), torch.randn(3, 10)))
    Nothing to do: PyTorch's own trace follows every size.

    The arguments are those of `anyshape.export`. Nothing is written, and no ONNX model is made.
    """
    told = progress or Progress()
    with understand(
        model,
        args,
        kwargs,
        told,
        shapes=shapes,
        dims=dims,
        dynamic_axes=dynamic_axes,
        dynamic_shapes=dynamic_shapes,
        input_names=input_names,
        examples=examples,
        make_inputs=make_inputs,
    ) as known:
        with told.station("agree"):
            agreed = agree(known.case, known.declared, known.evidence)
        with told.station("capture"):
            made = _explained(known.case, agreed)
        told.done("capture", made.rung)
    return made


def _explained(case: Case, agreed: Agreed) -> Explanation:
    traces = Traces(case, agreed, translated())
    ways = looks_on_all_ways(traces)
    names = tuple(dim.name for dim in agreed.contract.dims)
    ended = ways.ended
    if not ways.by_line() and not ways.reads and ended is None:
        return Explanation((), names, "symbolic")
    program = first_program(Ground(traces))
    found: dict[tuple[SourceLine, str], Finding] = {}
    for finding in (*_of_program(program, ways), *_of_looks(program, ways), *_of_values(ways)):
        found[finding.where, finding.kind] = finding
    findings = sorted(found.values(), key=lambda f: (is_library(f.where), f.where.file, f.where.line, f.kind))
    return Explanation(tuple(findings), names, program.rung, None if ended is None else ended.where)


# What a trace with symbolic sizes tells: the very lines where Python takes a size as a plain value.


def _of_looks(program: Program, ways: AllWays) -> Iterator[Finding]:
    reached = ways.lines_of_example()
    for where, looks in ways.by_line().items():
        head = head_of(where)
        numbers = [look for look in looks if not look.is_branch]
        branches = [look for look in looks if look.is_branch]
        made = []
        if numbers:
            looped = head == "for" and _loops_over(program, numbers[0].names)
            made.append(_loop(numbers[0], ways) if looped else _number(numbers, ways))
        if branches and not where.text.startswith("assert") and (head or not numbers):
            looped = head == "while" and _loops_over(program, branches[0].names)
            made.append(_while(branches, ways) if looped else _branch(branches[0], program, ways))
        for finding in made:
            there = reached is None or where in reached
            yield finding if there else replace(finding, plain="left out, as at the example")


def _number(looks: Sequence[Look], ways: AllWays) -> Finding:
    rows = list(first_rows(ways.traces.agreed))
    values = {look.text(rows): look.at(ways.example) for look in looks}
    kept = [_short(values[text]) for text in values]
    return Finding(
        looks[0].where, f"kept as {_listed(list(values))}", f"{_listed(kept)}, as at the example", "number"
    )


def _loop(look: Look, ways: AllWays) -> Finding:
    text = look.text(list(first_rows(ways.traces.agreed)))
    return Finding(look.where, f"a loop over {text}", _rounds(look.at(ways.example)), "loop")


def _while(looks: Sequence[Look], ways: AllWays) -> Finding:
    asked = {str(look.condition): look for look in looks}  # each round asks for another size
    going = [bool(look.at(ways.example)) for look in asked.values()]
    rounds = going.index(False) if False in going else len(going)
    return Finding(looks[0].where, f"a loop while {_condition(looks[0])}", _rounds(rounds), "loop")


def _branch(look: Look, program: Program, ways: AllWays) -> Finding:
    split = next((split for split in program.splits if _decides(split, look, ways)), None)
    done = f"both ways, by {split.condition}" if split else f"one way for both sides of {_condition(look)}"
    return Finding(look.where, done, f"the way of {_sizes(ways.example, look.names)}", "branch")


def _decides(split: Split, look: Look, ways: AllWays) -> bool:
    """Whether a condition on sizes is the one that Python looked at, or its opposite."""
    condition = split.condition
    rows = [dict(key[:-1]) for key in ways.traces.known]
    return (
        isinstance(condition, Relation) and len({condition.holds(row) == look.at(row) for row in rows}) == 1
    )


# What the captured program tells: loops and ways that hang on numbers which Python took before.


def _of_program(program: Program, ways: AllWays) -> Iterator[Finding]:
    known: set[SourceLine | None] = {None, *ways.by_line()}
    looks = [look for found in ways.by_line().values() for look in found]
    for split in program.splits:
        told = any(_decides(split, look, ways) for look in looks if look.is_branch)
        if split.where is not None and not told and isinstance(split.condition, Relation):
            plain = f"the way of {_sizes(ways.example, split.condition.names)}"
            yield Finding(split.where, f"both ways, by {split.condition}", plain, "branch")
    loops = [look for look in looks if head_of(look.where) in ("for", "while")]
    for step in steps_of(program.body):
        if step.target is rolled and not any(_runs_over(step, look.names) for look in loops):
            yield from _loop_of(step)
        elif step.target in (sizes_tensor, index_tensor) and ways.ended and step.where not in known:
            assert step.where is not None
            yield Finding(step.where, "a tensor for every size", "the tensor of the example", "tensor")


def _loop_of(step: Step) -> Iterator[Finding]:
    lines = [inner.where for inner in step.body.steps if inner.where is not None]
    heads = [head for head in map(loop_around, lines) if head is not None]
    over = " and ".join(sorted(_names(step.args[0])))
    for where in (heads or lines)[:1]:
        yield Finding(where, f"a loop over {over}" if over else "a loop", "the rounds of the example", "loop")


def _loops_over(program: Program, names: frozenset[str]) -> bool:
    return any(step.target is rolled and _runs_over(step, names) for step in steps_of(program.body))


def _runs_over(step: Step, names: frozenset[str]) -> bool:
    """Whether a loop may be the one over these dims: two loops, one in the other, are often captured as one."""
    decided = _names(step.args[0])
    return not decided or bool(decided & names)


def _names(count: Any) -> frozenset[str]:
    """The dims that decide how often; not the number of a round of a loop around."""
    names = count.names if isinstance(count, Expr) else ()
    return frozenset(name for name in names if not is_reserved(name))


# What Python reads of the values of tensors.


def _of_values(ways: AllWays) -> Iterator[Finding]:
    for where, item in {item.where: item for item in reversed(ways.reads)}.items():
        if where is not None:
            text = ways.read_as(item)
            done = "one way, right for other values too" if text is None else f"kept as {text}"
            single = isinstance(item.seen, (bool, int, float))
            seen = _short(item.seen) if single else "the numbers"
            yield Finding(where, done, f"{seen}, as at the example", "value")


def _condition(look: Look) -> str:
    """A condition as a person writes it: the dim first."""
    text = look.text(())
    left, space, rest = text.partition(" ")
    op, _, right = rest.partition(" ")
    turned = {"<": ">", "<=": ">=", "==": "==", "!=": "!="}
    return f"{right} {turned[op]} {left}" if space and left.isdigit() and op in turned else text


def _listed(texts: Sequence[str]) -> str:
    shown = " and ".join(texts[:MOST_SHOWN])
    return shown if len(texts) <= MOST_SHOWN else f"{', '.join(texts[:MOST_SHOWN])}, ..."


def _rounds(count: Any) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _sizes(sizes: Sizes, names: frozenset[str]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items() if name in names)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."
