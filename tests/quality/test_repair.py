"""Sizes written into the source: the right line is blamed, repairs agree with the mended twin, none is a guess."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import anyshape
from anyshape.contract.declare import FREE, declare
from anyshape.errors import ContractFault
from anyshape.inputs.case import Case
from anyshape.inputs.read import evaluation_mode, read
from anyshape.probe import probe
from anyshape.repair import Found, axis_names, finding, fixed_axes, kept
from tests.quality.broken import PAIRS, Pair

# The size is in a module of PyTorch's own (`nn.Upsample(size=...)`), in a tensor that was made beforehand, in numbers
# that PyTorch takes other sizes with as well, or in so many that several of them would do.
OUT_OF_REACH = {
    "upsample_layer_with_a_size",
    "buffer_computed_for_one_length",
    "reshape_image_to_patches",
    "view_permute_chain_of_windows",
}
FIXABLE = [pair for pair in PAIRS if pair.fixable and not pair.ambiguous]
IN_REACH = [pair for pair in FIXABLE if pair.name not in OUT_OF_REACH]


def names(pairs: list[Pair]) -> Any:
    return pytest.mark.parametrize("pair", pairs, ids=[pair.name for pair in pairs])


def dynamic_shapes(pair: Pair, case: Case) -> Any:
    """Each axis that moves between the example and the other sizes as dynamic, without a name."""
    base, spec = pytree.tree_flatten(pair.inputs(**pair.example))
    axes: list[dict[int, Any]] = [{} for _ in base]
    for sizes in pair.held:
        for number, (one, two) in enumerate(zip(base, pytree.tree_leaves(pair.inputs(**sizes)), strict=True)):
            moved = [k for k in range(one.dim()) if one.shape[k] != two.shape[k]]
            axes[number].update(dict.fromkeys(moved, torch.export.Dim.DYNAMIC))
    args, kwargs = pytree.tree_unflatten([found or None for found in axes], spec)
    return {**dict(zip(case.argument_names, args, strict=False)), **kwargs} if kwargs else tuple(args)


@contextmanager
def found(pair: Pair) -> Iterator[tuple[Case, Found, Any]]:
    torch.manual_seed(0)
    model = pair.broken()
    args, kwargs = pair.inputs(**pair.example)
    with evaluation_mode(model):
        case = read(model, args, kwargs)
        declared = declare(case, dynamic_shapes=dynamic_shapes(pair, case))
        evidence = probe(case)
        fixed = fixed_axes(case, declared, evidence, repair=True)
        wanted = [axis for axis in fixed if declared.sizes[axis[0]][axis[1]] is FREE]
        with finding(case, evidence, wanted, wanted, axis_names(case, declared)) as (made, literals):
            yield case, made, literals


@names(IN_REACH)
def test_the_right_line_is_blamed_and_the_repair_agrees_with_the_mended_twin(pair: Pair) -> None:
    with found(pair) as (case, made, literals):
        lines = {repair.change.literal.line for repair in made.repairs}
        assert lines and lines <= {*pair.lines, *pair.also} and not made.ambiguous
        twin = pair.mended().eval()
        twin.load_state_dict(case.module.state_dict())
        with kept(case, literals, made.repairs), torch.no_grad():
            for sizes in (pair.example, *pair.held):
                args, kwargs = pair.inputs(**sizes)
                torch.testing.assert_close(
                    pytree.tree_leaves(case.module(*args, **kwargs)),
                    pytree.tree_leaves(twin(*args, **kwargs)),
                )


@names([pair for pair in PAIRS if pair not in IN_REACH])
def test_where_nobody_may_guess_nothing_is_repaired(pair: Pair) -> None:
    with found(pair) as (_, made, _):
        assert not made.repairs or made.ambiguous


def test_how_many_are_right() -> None:
    assert len(FIXABLE) >= 25
    assert len(FIXABLE) - len(OUT_OF_REACH) >= 23 / 25 * len(FIXABLE)


@names([pair for pair in IN_REACH if pair.name in ("cross_attention_mask", "lstm_states_of_a_literal_batch")])
def test_the_whole_line(pair: Pair, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = pair.broken().eval()
    args, kwargs = pair.inputs(**pair.example)
    case = read(model, args, kwargs)
    shapes = dynamic_shapes(pair, case)
    with pytest.raises(ContractFault) as blamed:
        anyshape.export(model, args, kwargs=kwargs, dynamic_shapes=shapes)
    assert blamed.value.where is not None and blamed.value.where.line in pair.lines
    path = tmp_path / "model.onnx"
    made = anyshape.export(model, args, path, kwargs=kwargs, dynamic_shapes=shapes, repair=True)
    assert any(
        text.startswith("repaired, agrees with the repaired source at ") for text in made.verdict.sampled
    )
    assert any(note.startswith("repaired: ") for note in made.contract.notes)
    run, twin = anyshape.load(path), pair.mended().eval()
    twin.load_state_dict(model.state_dict())
    for sizes in (pair.example, *pair.held):
        args, kwargs = pair.inputs(**sizes)
        with torch.no_grad():
            want = pytree.tree_leaves(twin(*args, **kwargs))
        got = [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(run(*args, **kwargs))]
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
