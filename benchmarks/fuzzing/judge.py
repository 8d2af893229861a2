"""Judge: what an exporter makes of a program, in one word.

right          agrees with PyTorch at every draw
narrowed       right, but PyTorch accepts drawn sizes that the contract leaves out
refused        the exporter says why there is no file
fails          the file raises, inside its contract, where PyTorch runs
wrong outside  another result and no error, at sizes outside the contract that PyTorch accepts
wrong          another result and no error, inside the contract
internal       the exporter itself made a mistake, or its process ended
slow           not done in time: said by the harness, which has the clock
"""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import anyshape
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure, to_numpy
from fuzzing.draws import Draw, draws_of
from fuzzing.program import Program, example_of, load, make_values

__all__ = ["FAULTS", "OUTCOMES", "Row", "judge"]

OUTCOMES = ("right", "narrowed", "refused", "fails", "wrong outside", "wrong", "internal", "slow")
FAULTS = ("fails", "wrong outside", "wrong", "internal")
DRAWS = 30  # from the contract; half as many from the program's axes
LOADED = 4  # each fourth draw goes through anyshape.load as well, unless it is empty

Exporter = Callable[[nn.Module, Any, str, dict[str, Any]], Any]  # hands on what has a contract
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """A program's outcome, why, and at which draw."""

    seed: int
    outcome: str
    why: str = ""
    at: str = ""
    tried: int = 0  # draws at which both ran
    seconds: float = 0.0  # of the processor

    @property
    def cause(self) -> str:
        """Why, without numbers and names: rows of one cause read alike."""
        text = re.sub(r"'[^']*'|\b[\w/.]*module_\w+\.py:\d+|\bt?\d[\w.]*|/\S+", "_", self.why.split("\n")[0])
        return f"{self.outcome}: {text[:120]}"


def with_anyshape(module: nn.Module, args: Any, path: str, declared: dict[str, Any]) -> Any:
    return anyshape.export(module, args, path, **declared)


def judge(program: Program, export: Exporter = with_anyshape, tell: Tell = lambda stage: None) -> Row:
    """Export a program and try the file at many sizes and values; the worst that happened."""
    with tempfile.TemporaryDirectory() as folder:
        module = load(program, Path(folder))
        fresh = copy.deepcopy(module)
        path = str(Path(folder) / "model.onnx")
        tell("export")
        try:
            made = export(module, tuple(example_of(program)), path, dict(program.declared))
        except anyshape.InternalError as error:
            return Row(program.seed, "internal", _line(error))
        except anyshape.AnyshapeError as error:
            return Row(program.seed, "refused", f"{type(error).__name__}: {error}")
        except Exception as error:  # anything else is a mistake of the exporter's
            return Row(program.seed, "internal", _line(error))
        return _tried(program, fresh, made.contract, path, tell)


def _tried(program: Program, fresh: nn.Module, contract: Any, path: str, tell: Tell) -> Row:
    runtime = OnnxRuntime.of_file(path)
    loaded = anyshape.load(path)
    worst, tried = Row(program.seed, "right"), 0
    for number, draw in enumerate(draws_of(program, contract, DRAWS)):
        tell(f"at {draw.told}")
        tensors = make_values(program.inputs, draw.shapes, draw.kinds, draw.seed)
        wanted = _eager(fresh, tensors)
        if wanted is None:
            continue
        tried += 1
        inside = _is_inside(contract, draw)
        also = loaded if number % LOADED == 0 and all(tensor.numel() for tensor in tensors) else None
        outcome, why = _outcome(runtime, also, fresh, tensors, wanted, inside)
        if OUTCOMES.index(outcome) > OUTCOMES.index(worst.outcome):
            worst = Row(program.seed, outcome, why, draw.told)
    return Row(worst.seed, worst.outcome, worst.why, worst.at, tried)


def _outcome(
    runtime: OnnxRuntime,
    loaded: Any,
    fresh: nn.Module,
    tensors: list[Tensor],
    wanted: list[Tensor],
    inside: bool,
) -> tuple[str, str]:
    """One draw's outcome, of the bare file and, if given, of the file as it is loaded."""
    feed = dict(zip((name for name in _names(fresh)), map(to_numpy, tensors), strict=True))
    try:
        got = runtime.run({name: feed[name] for name in runtime.input_names})
    except RuntimeFailure as failure:
        return ("fails", str(failure)) if inside else ("narrowed", "the contract leaves out sizes")
    why = _difference(got, wanted, fresh, tensors)
    if not inside:
        return ("wrong outside", why) if why else ("narrowed", "the contract leaves out sizes")
    if why:
        return "wrong", why
    return _outcome_of_loaded(loaded, fresh, tensors, wanted) if loaded is not None else ("right", "")


def _outcome_of_loaded(
    loaded: Any, fresh: nn.Module, tensors: list[Tensor], wanted: list[Tensor]
) -> tuple[str, str]:
    try:
        got = [to_numpy(out) for out in pytree.tree_leaves(loaded(*tensors))]
    except anyshape.InputError as error:
        return "fails", f"load refuses: {error.what}"
    except Exception as error:  # whatever it is, a caller gets it
        return "internal", f"load: {_line(error)}"
    why = _difference(got, wanted, fresh, tensors)
    return ("wrong", f"through load: {why}") if why else ("right", "")


def _names(module: nn.Module) -> tuple[str, ...]:
    code = type(module).forward.__code__
    return code.co_varnames[1 : code.co_argcount]


def _is_inside(contract: Any, draw: Draw) -> bool:
    try:
        contract.bind(draw.shapes)
    except anyshape.InputError:
        return False
    return True


def _eager(
    fresh: nn.Module, tensors: Sequence[Tensor], dtype: torch.dtype = torch.float32
) -> list[Tensor] | None:
    """PyTorch's result on a module that was never called, or None where it raises."""
    given = [tensor.to(dtype) if tensor.is_floating_point() else tensor.clone() for tensor in tensors]
    try:
        with torch.no_grad():
            result = copy.deepcopy(fresh).to(dtype)(*given)
    except Exception:  # a model may raise anything: these inputs are not for it
        return None
    return [torch.as_tensor(out) for out in pytree.tree_leaves(result)]


# --- Two results ----------------------------------------------------------------------------------------


def _difference(
    got: Sequence[Any], wanted: Sequence[Tensor], fresh: nn.Module, tensors: Sequence[Tensor]
) -> str:
    """Why these are other results, or nothing; nor where PyTorch's own result hangs on a rounding."""
    exact = _eager(fresh, tensors, torch.float64)
    why = _compared(got, wanted, exact)
    if not why or _is_shaky(wanted, fresh, tensors):
        return ""
    return why


def _compared(got: Sequence[Any], wanted: Sequence[Tensor], exact: Sequence[Tensor] | None) -> str:
    if len(got) != len(wanted):
        return f"{len(got)} outputs, not {len(wanted)}"
    for place, (one, two) in enumerate(zip(got, wanted, strict=True)):
        if tuple(one.shape) != tuple(two.shape):
            return f"shape {list(one.shape)}, not {list(two.shape)}"
        truth = exact[place] if exact is not None and exact[place].shape == two.shape else two
        if not _is_close(one, to_numpy(two), to_numpy(truth)):
            return "other numbers"
    return ""


def _is_close(one: Any, two: Any, truth: Any) -> bool:
    """Equal but for rounding, by the numbers beside it and not by the largest of all."""
    if two.dtype.kind != "f":
        return bool(np.array_equal(one, two))
    one, two, truth = (np.asarray(part, np.float64) for part in (one, two, truth))
    finite = np.isfinite(two)
    if not np.array_equal(one[~finite], two[~finite], equal_nan=True) or not finite.any():
        return bool(np.array_equal(one[~finite], two[~finite], equal_nan=True))
    one, two, truth = one[finite], two[finite], truth[finite]
    own = np.nan_to_num(np.abs(two - truth), posinf=0.0)
    usual = float(np.quantile(np.abs(two), 0.9)) + 20 * float(np.median(own)) / 1e-4
    return bool((np.abs(one - two) <= 1e-3 * np.abs(two) + 1e-4 * usual + 20 * own + 1e-6).all())


def _is_shaky(wanted: Sequence[Tensor], fresh: nn.Module, tensors: Sequence[Tensor]) -> bool:
    """Whether a change in the last digits of the inputs is another result in PyTorch, too."""
    drawn = torch.Generator().manual_seed(0)
    for _ in range(4):
        moved = [
            tensor * (1 + 1e-6 * torch.randn(tensor.shape, generator=drawn))
            + 1e-7 * torch.randn(tensor.shape, generator=drawn)
            if tensor.is_floating_point()
            else tensor
            for tensor in tensors
        ]
        other = _eager(fresh, moved)
        if other is None or _compared([to_numpy(out) for out in other], wanted, None):
            return True
    return False


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
