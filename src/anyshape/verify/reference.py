"""Reference: the user's own module, in eager mode, on real tensors of any sizes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from anyshape.contract.agree import Agreed
from anyshape.dims import Expr
from anyshape.errors import DeclarationError, InputError
from anyshape.inputs.case import Case, OutOfMemory, Outputs, Refusal, answered
from anyshape.inputs.made import made_by_user
from anyshape.inputs.state import State
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.inputs.variants import count_variants, variant_text, varied_tensors
from anyshape.source.numbers import integers_in
from anyshape.torch_bridge import process, work

__all__ = ["Expected", "Reference"]

MOST_PARAMETERS_IN_FLOAT64 = 200_000_000
NOTHING_COMES_OUT = "these values give nothing but NaN and infinity"
RUNS = 3  # at each size: in float32, in float64, and on the runtime

Sizes = Mapping[str, int]
_Key = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """Inputs, PyTorch's outputs, and the outputs in float64 if there are any."""

    tensors: list[torch.Tensor]
    outputs: Outputs
    exact: list[torch.Tensor] | None


Answer = Expected | Refusal | OutOfMemory


@dataclass
class Reference:
    """The user's module at any sizes, in eager mode; remembers what it answered.

    ``variant`` chooses the kind of values: 0 is what the rules make, see `anyshape.inputs.variants` for the others.
    """

    case: Case
    agreed: Agreed
    known: dict[tuple[_Key, int], Answer] = field(default_factory=dict)
    exact: _Exact | None = None
    numbers: tuple[Expr | None, ...] = ()  # plain values of the result that follow from the sizes
    literals: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self.exact = self.exact or _Exact(self.case)

    def integers(self) -> tuple[int, ...]:
        """The integers in the model's source: a size may be compared with one behind all that is watched."""
        if self.literals is None:
            example = [item.example for item in self.case.inputs]
            with process.quiet():
                self.literals = integers_in(lambda: self.case.run(example), self.case.module)
        return self.literals

    def under(self, agreed: Agreed) -> Reference:
        """The same module under another agreement: one memory, and one copy in float64, for all."""
        return replace(self, agreed=agreed)

    @property
    def variants(self) -> int:
        """How many kinds of values there are for this case: 1 where nothing varies, or the user makes the inputs."""
        return count_variants(self.case, self.agreed.rules)

    def values(self, variant: int) -> str:
        """What is particular about the values of a variant, in words; nothing of the first."""
        return variant_text(self.case, self.agreed.rules, variant) if variant else ""

    def at(self, sizes: Sizes, variant: int = 0) -> Answer:
        """What PyTorch says at ``sizes``; a variant that gives nothing but NaN and infinity is refused."""
        key = (_key(sizes), variant)
        if key not in self.known:
            answer = self._run_on(self.tensors(sizes, variant))
            if variant and isinstance(answer, Expected) and self._is_lost(answer, sizes):
                answer = Refusal(ValueError(NOTHING_COMES_OUT))
            self.known[key] = answer
        return self.known[key]

    def _is_lost(self, answer: Expected, sizes: Sizes) -> bool:
        """Whether values that are not the model's kind leave no number, where others do."""
        usual = self.at(sizes)
        return not _has_numbers(answer) and (not isinstance(usual, Expected) or _has_numbers(usual))

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
            self.known[_key(sizes), 0] = self._run_on(list(tensors))
            taken.append(sizes)
        return taken

    def seconds_at(self, sizes: Sizes) -> float:
        """The nominal seconds that it takes to try these sizes."""
        tensors = self.tensors(sizes)
        with process.quiet():
            return RUNS * work.nominal_seconds(lambda: self.case.run(tensors))

    def output_shapes(self) -> Iterator[tuple[dict[str, int], list[tuple[int, ...]]]]:
        """The outputs' shapes at every size of the contract that PyTorch was run at."""
        for (key, _), found in self.known.items():
            if isinstance(found, Expected) and self.agreed.contract.allows(dict(key)):
                yield dict(key), [tuple(tensor.shape) for tensor in found.outputs.tensors]

    def tensors(self, sizes: Sizes, variant: int = 0) -> list[torch.Tensor]:
        """Legal inputs of these sizes: the user's own function's, or made by the rules."""
        shapes = self.agreed.contract.shapes(sizes)
        if self.case.make_inputs is not None:
            return made_by_user(self.case, sizes, shapes)
        seed = sum(size * (number + 1) for number, size in enumerate(sizes.values()))
        if variant:
            return varied_tensors(self.case, self.agreed.rules, shapes, dict(sizes), seed, variant)
        return make_tensors(self.case, self.agreed.rules, shapes, dict(sizes), seed)

    def _run_on(self, tensors: list[torch.Tensor]) -> Answer:
        assert self.exact is not None
        with process.quiet():
            answer = self.case.run(tensors)
            if not isinstance(answer, Outputs):
                return answer
            return Expected(tensors, answer, self.exact.run(tensors))


def _key(sizes: Sizes) -> _Key:
    return tuple(sorted(sizes.items()))


def _has_numbers(answer: Expected) -> bool:
    """Whether any output has a number that is neither NaN nor infinite, or there are none to have one."""
    floats = [tensor for tensor in answer.outputs.tensors if tensor.is_floating_point() and tensor.numel()]
    return not floats or any(bool(torch.isfinite(tensor).any()) for tensor in floats)


class _Exact:
    """The module in float64, copied when it is first asked; none where it can't be, or insists on float32."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._module: torch.nn.Module | None = None
        self._state = case.state
        self._given_up = not _may_be_copied(case)

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """The outputs in float64; None where there is no such module: the fixed tolerance serves then."""
        made = None if self._given_up else answered(lambda: self._outputs(tensors))
        if isinstance(made, (Refusal, OutOfMemory)):
            self._given_up, self._module = True, None
            return None
        return made

    def _outputs(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._module is None:
            self._module = copy.deepcopy(self._case.module).double()
            self._state = State(self._module, dict(self._case.constants), weights=False)
        doubled = [t.double() if t.is_floating_point() else t.clone() for t in tensors]
        args, kwargs = self._case.structure.rebuild(doubled)
        with self._state.kept(), torch.no_grad():
            made = [tensor for _, tensor in flatten(self._module(*args, **kwargs))[0]]
            return [tensor.clone() for tensor in made] if self._state.changed() else made


def _may_be_copied(case: Case) -> bool:
    floats = [p for p in case.module.parameters() if p.is_floating_point()]
    wide = any(p.dtype == torch.float64 for p in floats)
    return not wide and case.parameters <= MOST_PARAMETERS_IN_FLOAT64
