"""verify: the ONNX model against the user's own module in eager mode, at many sizes, with legal values."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape.capture.program import Guard
from anyshape.contract.agree import Agreed
from anyshape.contract.contract import Contract
from anyshape.dims import Relation, Space, choose
from anyshape.errors import DeclarationError, InputError
from anyshape.inputs.read import Case, Outputs
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.runtimes.onnx_runtime import Runtime, RuntimeFailure, to_numpy
from anyshape.torch_bridge import process
from anyshape.verify.compare import compare

__all__ = ["Reference", "Row", "Verdict", "check", "sizes_to_try", "verify"]

COUNT = 36  # size assignments to try by default
FAILURES = 3  # enough to know that it is wrong
ROW_SECONDS = 1.0  # sizes at which one run would take longer than about this are not tried
SMALL = 500_000  # numbers in the inputs that any model is given
MOST_PARAMETERS_IN_FLOAT64 = 200_000_000

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """What happened at one assignment of sizes: right, wrong, fails (in the runtime) or refused (by PyTorch)."""

    sizes: dict[str, int]
    outcome: str
    error: float = 0.0
    allowed: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model is right: every size that was tried, and what is proved beyond them."""

    runtime: str
    rows: tuple[Row, ...]
    proved: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.outcome in ("wrong", "fails"))

    @property
    def right(self) -> bool:
        return not self.failures and bool(self.tried)

    @property
    def tried(self) -> tuple[Row, ...]:
        """The sizes at which PyTorch runs: only those say anything."""
        return tuple(row for row in self.rows if row.outcome != "refused")

    @property
    def sizes(self) -> list[dict[str, int]]:
        return [row.sizes for row in self.tried]

    @property
    def worst(self) -> Row:
        """The right row that came closest to what is allowed."""
        return max(self.tried, key=lambda row: row.error / row.allowed if row.allowed else 0.0)

    def __str__(self) -> str:
        if self.failures:
            bad = self.failures[0]
            return f"{bad.outcome} at {bad.sizes}: {bad.why}"
        count = f"{len(self.tried)} size{'s' if len(self.tried) != 1 else ''} on {self.runtime}"
        return f"{count}, worst error {self.worst.error:.1e} of {self.worst.allowed:.0e} allowed"

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "sizes": row.sizes,
                "outcome": row.outcome,
                "error": row.error,
                "allowed": row.allowed,
                "why": row.why,
            }
            for row in self.rows
        ]
        return {
            "runtime": self.runtime,
            "right": self.right,
            "rows": rows,
            "proved": list(self.proved),
            "sampled": list(self.sampled),
        }


@dataclass
class Reference:
    """The user's module at any sizes, in eager mode; remembers what it answered."""

    case: Case
    agreed: Agreed
    known: dict[tuple[tuple[str, int], ...], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._exact = _in_float64(self.case)

    def at(self, sizes: Sizes) -> tuple[list[torch.Tensor], Outputs, list[torch.Tensor] | None] | Exception:
        """Inputs, outputs and the outputs in float64 at ``sizes``; PyTorch's exception where it refuses them."""
        key = tuple(sorted(sizes.items()))
        if key not in self.known:
            self.known[key] = self._run(sizes)
        found: tuple[list[torch.Tensor], Outputs, list[torch.Tensor] | None] | Exception = self.known[key]
        return found

    def take_examples(self) -> list[dict[str, int]]:
        """The sizes of the user's further examples, at which their own values are used from here on."""
        taken = []
        for number, tensors in enumerate(self.case.more_examples):
            try:
                sizes = self.agreed.contract.bind([tuple(tensor.shape) for tensor in tensors])
            except InputError as error:
                raise DeclarationError(
                    f"example {number + 2} does not fit the contract: {error.what}",
                    hint=f"Declare the shapes with shapes={{...}}. What was found is:\n{self.agreed.contract}",
                ) from error
            self.known[tuple(sorted(sizes.items()))] = self._run_on(list(tensors))
            taken.append(sizes)
        return taken

    def seconds_at(self, sizes: Sizes) -> float:
        """How long a run takes at ``sizes``, warmed up."""
        self.at(sizes)
        start = time.monotonic()
        self._run(sizes)
        return time.monotonic() - start

    def output_shapes(self) -> Iterator[tuple[dict[str, int], list[tuple[int, ...]]]]:
        """The outputs' shapes at every size of the contract that PyTorch was run at."""
        for key, found in self.known.items():
            if not isinstance(found, Exception) and self.agreed.contract.allows(dict(key)):
                yield dict(key), [tuple(tensor.shape) for tensor in found[1].tensors]

    def _run(self, sizes: Sizes) -> Any:
        try:
            tensors = self.tensors(sizes)
        except Exception as error:
            return error
        return self._run_on(tensors)

    def _run_on(self, tensors: list[torch.Tensor]) -> Any:
        with process.quiet():
            try:
                outputs = self.case.run(tensors)
            except Exception as error:
                return error
            return tensors, outputs, self._run_exact(tensors)

    def tensors(self, sizes: Sizes) -> list[torch.Tensor]:
        """Legal inputs of these sizes: the user's own function's, or made by the rules."""
        if self.case.make_inputs is not None:
            args, kwargs = self.case.make_inputs(dict(sizes))
            return list(self.case.tensors_of(args, kwargs))
        shapes = self.agreed.contract.shapes(sizes)
        seed = sum(size * (number + 1) for number, size in enumerate(sizes.values()))
        return make_tensors(self.case, self.agreed.rules, shapes, dict(sizes), seed)

    def _run_exact(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        if self._exact is None:
            return None
        args, kwargs = self.case.structure.rebuild(
            [t.double() if t.is_floating_point() else t.clone() for t in tensors]
        )
        try:
            with torch.no_grad():
                return [tensor for _, tensor in flatten(self._exact(*args, **kwargs))[0]]
        except Exception:
            self._exact = None  # something in the model insists on float32: the fixed tolerance serves
            return None


def _in_float64(case: Case) -> torch.nn.Module | None:
    floats = [p for p in case.module.parameters() if p.is_floating_point()]
    if case.parameters > MOST_PARAMETERS_IN_FLOAT64 or any(p.dtype == torch.float64 for p in floats):
        return None
    try:
        return copy.deepcopy(case.module).double()
    except Exception:
        return None  # a module that can't be copied: the fixed tolerance serves


def check(
    runtime: Runtime, reference: Reference, sizes: Sizes, names: Sequence[str | None] | None = None
) -> Row:
    """One assignment of sizes: right, wrong, fails or refused.

    ``names`` are the model's names for the inputs in order, where they are not the contract's; None drops one.
    """
    expected = reference.at(sizes)
    at = dict(sizes)
    if isinstance(expected, Exception):
        return Row(at, "refused", why=f"{type(expected).__name__}: {expected}")
    tensors, outputs, exact = expected
    inputs = names if names is not None else [item.name for item in reference.agreed.contract.inputs]
    feed = {name: to_numpy(tensor) for name, tensor in zip(inputs, tensors, strict=True) if name}
    try:
        got = runtime.run(feed)
    except RuntimeFailure as failure:
        return Row(at, "fails", why=f"{runtime.name}: {failure}")
    return _judged(at, reference.case, runtime.output_names, outputs, exact, got)


def _judged(
    at: dict[str, int],
    case: Case,
    names: Sequence[str],
    outputs: Outputs,
    exact: list[torch.Tensor] | None,
    got: list[Any],
) -> Row:
    if len(got) != len(outputs.tensors):
        return Row(at, "wrong", why=f"{len(got)} outputs, expected {len(outputs.tensors)}")
    before, after = case.outputs.structure.constants(), outputs.structure.constants()
    if before != after:
        moved = next(
            (pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), (before, after)
        )
        why = f"the result holds a Python value that depends on the sizes: {moved[0]!r}, then {moved[1]!r}"
        return Row(at, "wrong", why=why)
    worst = Row(at, "right")
    for number, (name, tensor, array) in enumerate(zip(names, outputs.tensors, got, strict=True)):
        difference = compare(name, tensor, exact[number] if exact else None, array)
        if difference.why:
            return Row(at, "wrong", difference.error, difference.allowed, difference.why)
        if difference.error * (worst.allowed or 1) >= worst.error * (difference.allowed or 1):
            worst = Row(at, "right", difference.error, difference.allowed)
    return worst


def sizes_to_try(
    agreed: Agreed, guards: Sequence[Guard | Relation], seconds: float, count: int = COUNT
) -> list[dict[str, int]]:
    """Sizes that tell most: every boundary, both sides of every open guard, primes, pairs, larger than the example."""
    contract = agreed.contract
    growth, floor = (4, 64) if seconds < 0.01 else (2, 36) if seconds < 0.03 else (1.5, 8)
    largest = {
        dim.name: max(int(dim.example * growth), agreed.generic[dim.name], floor)
        for dim in contract.dims
        if dim.range.maximum is None or dim.range.maximum > 1024 or seconds > 0.05
    }
    space = Space(
        contract.ranges,
        contract.relations,
        interesting=_sides(contract, agreed.generic, guards, largest),
        # At the example's own 0 or 1, many a fault elsewhere does not show.
        typical=agreed.generic if contract.allows(agreed.generic) else contract.example,
        largest=largest,
    )
    most = max(SMALL, int(_elements(contract, space.typical) * min(64.0, ROW_SECONDS / max(seconds, 1e-6))))
    telling = len(choose(space, 1))  # these are tried even if they are more than were asked for
    wanted = [sizes for sizes in choose(space, 4 * count) if _elements(contract, sizes) <= most]
    return wanted[: max(count, telling)]


def _elements(contract: Contract, sizes: Sizes) -> int:
    """How many numbers the inputs hold: what a run costs grows with it."""
    return sum(math.prod(shape) for shape in contract.shapes(sizes))


def _sides(
    contract: Contract, generic: Sizes, guards: Sequence[Guard | Relation], largest: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """For each dim, the sizes on either side of where a guard turns, the other dims being generic."""
    made: dict[str, set[int]] = {}
    for item in guards:
        for name in item.names:
            range_ = contract.dim(name).range
            limit = item.right.constant if isinstance(item, Relation) else None
            end = min(range_.maximum or 10**9, max(largest.get(name, 64) * 2, 64, (limit or 0) + 1))
            beyond = limit + limit // 2 + 1 if limit is not None else None
            if beyond is not None and range_.contains(beyond):
                made.setdefault(name, set()).add(beyond)
            before: bool | None = None
            for size in range(range_.minimum, end + 1):
                now = item.holds({**generic, name: size})
                if before is not None and now != before:
                    made.setdefault(name, set()).update((size - 1, size))
                before = now
    return {name: tuple(sorted(sizes)[:16]) for name, sizes in made.items()}


def verify(
    runtime: Runtime,
    reference: Reference,
    guards: Sequence[Guard] = (),
    *,
    proved: bool = False,
    boundaries: Sequence[Relation] = (),
    names: Sequence[str | None] | None = None,
    budget: float = 30.0,
    count: int = COUNT,
    progress: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """The verdict on a model at many sizes; stops at a few failures, or when the time is up.

    ``proved`` says that the model's graph is the module's own wherever ``guards`` hold, and that they all do.
    ``boundaries`` are where the model takes another way: both sides of each are tried.
    """
    started = time.monotonic()
    agreed = reference.agreed
    example = (
        agreed.contract.example if agreed.contract.allows(agreed.contract.example) else dict(agreed.generic)
    )
    seconds = reference.seconds_at(example)
    open_guards = [item for item in guards if not item.proved]
    rows: list[Row] = []
    wanted = reference.take_examples()
    telling = sizes_to_try(agreed, (*open_guards, *boundaries), seconds, count)
    for sizes in (example, *telling):
        if sizes not in wanted:
            wanted.append(sizes)
    for number, sizes in enumerate(wanted):
        progress(f"{number + 1} of {len(wanted)} sizes")
        rows.append(check(runtime, reference, sizes, names))
        failed = sum(row.outcome in ("wrong", "fails") for row in rows)
        if failed >= FAILURES or (time.monotonic() - started > budget and number >= 8):
            break
    return Verdict(runtime.name, tuple(rows), *_statements(guards, rows, proved))


def _statements(
    guards: Sequence[Guard], rows: Sequence[Row], proved: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is proved and what is sampled, each in a sentence."""
    open_guards = [item for item in guards if not item.proved]
    everywhere = f"the captured graph holds at every size of the contract ({len(guards)} guards)"
    sampled = [f"right on both sides of {item}{_at_line(item)}" for item in open_guards]
    tried = sum(row.outcome != "refused" for row in rows)
    sampled.append(f"the outputs agree with PyTorch at {tried} sizes")
    return (everywhere,) if proved else (), tuple(sampled)


def _at_line(item: Guard) -> str:
    return f" ({item.where.file}:{item.where.line})" if item.where else ""
