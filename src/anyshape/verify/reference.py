"""Reference: the user's own module, in eager mode, on real tensors of any sizes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from anyshape.contract.agree import Agreed
from anyshape.errors import DeclarationError, InputError
from anyshape.inputs.case import Case, OutOfMemory, Outputs, Refusal, answered
from anyshape.inputs.made import made_by_user
from anyshape.inputs.tree import flatten
from anyshape.inputs.values import make_tensors
from anyshape.torch_bridge import process, work

__all__ = ["Expected", "Reference"]

MOST_PARAMETERS_IN_FLOAT64 = 200_000_000
RUNS = 3  # at each size: in float32, in float64, and on the runtime

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """Inputs, PyTorch's outputs, and the outputs in float64 if there are any."""

    tensors: list[torch.Tensor]
    outputs: Outputs
    exact: list[torch.Tensor] | None


Answer = Expected | Refusal | OutOfMemory


@dataclass
class Reference:
    """The user's module at any sizes, in eager mode; remembers what it answered."""

    case: Case
    agreed: Agreed
    known: dict[tuple[tuple[str, int], ...], Answer] = field(default_factory=dict)
    exact: _Exact | None = None

    def __post_init__(self) -> None:
        self.exact = self.exact or _Exact(self.case)

    def under(self, agreed: Agreed) -> Reference:
        """The same module under another agreement: one memory, and one copy in float64, for all."""
        return replace(self, agreed=agreed)

    def at(self, sizes: Sizes) -> Answer:
        """What PyTorch says at ``sizes``."""
        key = tuple(sorted(sizes.items()))
        if key not in self.known:
            self.known[key] = self._run_on(self.tensors(sizes))
        return self.known[key]

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
        """The nominal seconds that it takes to try these sizes."""
        tensors = self.tensors(sizes)
        with process.quiet():
            return RUNS * work.nominal_seconds(lambda: self.case.run(tensors))

    def output_shapes(self) -> Iterator[tuple[dict[str, int], list[tuple[int, ...]]]]:
        """The outputs' shapes at every size of the contract that PyTorch was run at."""
        for key, found in self.known.items():
            if isinstance(found, Expected) and self.agreed.contract.allows(dict(key)):
                yield dict(key), [tuple(tensor.shape) for tensor in found.outputs.tensors]

    def tensors(self, sizes: Sizes) -> list[torch.Tensor]:
        """Legal inputs of these sizes: the user's own function's, or made by the rules."""
        shapes = self.agreed.contract.shapes(sizes)
        if self.case.make_inputs is not None:
            return made_by_user(self.case, sizes, shapes)
        seed = sum(size * (number + 1) for number, size in enumerate(sizes.values()))
        return make_tensors(self.case, self.agreed.rules, shapes, dict(sizes), seed)

    def _run_on(self, tensors: list[torch.Tensor]) -> Answer:
        assert self.exact is not None
        with process.quiet():
            answer = self.case.run(tensors)
            if not isinstance(answer, Outputs):
                return answer
            return Expected(tensors, answer, self.exact.run(tensors))


class _Exact:
    """The module in float64, copied when it is first asked; none where it can't be, or insists on float32."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._module: torch.nn.Module | None = None
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
        doubled = [t.double() if t.is_floating_point() else t.clone() for t in tensors]
        args, kwargs = self._case.structure.rebuild(doubled)
        with torch.no_grad():
            return [tensor for _, tensor in flatten(self._module(*args, **kwargs))[0]]


def _may_be_copied(case: Case) -> bool:
    floats = [p for p in case.module.parameters() if p.is_floating_point()]
    wide = any(p.dtype == torch.float64 for p in floats)
    return not wide and case.parameters <= MOST_PARAMETERS_IN_FLOAT64
