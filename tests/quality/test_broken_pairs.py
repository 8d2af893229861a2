"""The pairs are what they say: broken away from the example, the same as the mended twin at it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from tests.quality.broken import PAIRS, Pair, Sizes

every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)


def twins(pair: Pair) -> list[nn.Module]:
    """The broken module, the mended one and where there is one the other reading, all with the same weights."""
    torch.manual_seed(0)
    broken = pair.broken().eval()
    kinds = [pair.mended] if pair.other is None else [pair.mended, pair.other]
    rest = [kind().eval() for kind in kinds]
    for module in rest:
        module.load_state_dict(broken.state_dict())
    return [broken, *rest]


def ran(module: nn.Module, pair: Pair, sizes: Sizes) -> list[Tensor]:
    """What it gives for the inputs of these sizes, which are the same for each module."""
    torch.manual_seed(1)
    args, kwargs = pair.inputs(**sizes)
    with torch.no_grad():
        made = module(*args, **kwargs)
    made = list(made.values()) if isinstance(made, dict) else made
    return [made] if isinstance(made, Tensor) else list(made)


def fails(module: nn.Module, pair: Pair, sizes: Sizes) -> bool:
    try:
        ran(module, pair, sizes)
    except (RuntimeError, IndexError, ValueError):
        return True
    return False


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


@every_pair
def test_all_are_the_same_at_the_example(pair: Pair) -> None:
    broken, *rest = twins(pair)
    expected = ran(broken, pair, pair.example)
    assert all(output.isfinite().all() for output in expected)
    assert all(same(ran(module, pair, pair.example), expected) for module in rest)


@every_pair
def test_the_broken_one_fails_elsewhere(pair: Pair) -> None:
    broken = twins(pair)[0]
    assert len(pair.held) == 3 and pair.example not in pair.held
    assert all(fails(broken, pair, sizes) for sizes in pair.held)


@every_pair
def test_the_mended_one_runs_elsewhere(pair: Pair) -> None:
    mended = twins(pair)[1]
    for sizes in pair.held:
        assert sizes.keys() == pair.example.keys()
        if pair.fixable:
            assert all(output.isfinite().all() for output in ran(mended, pair, sizes))
        else:
            assert fails(mended, pair, sizes)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.ambiguous], ids=lambda pair: pair.name)
def test_two_readings_run_and_differ(pair: Pair) -> None:
    _, mended, other = twins(pair)
    assert not any(same(ran(mended, pair, sizes), ran(other, pair, sizes)) for sizes in pair.held)


@every_pair
def test_one_or_two_lines_are_marked(pair: Pair) -> None:
    assert 1 <= len(pair.lines) <= 2 and len(pair.also) <= 1
    assert issubclass(pair.mended, pair.broken) and (pair.mended is pair.broken) != pair.fixable


def test_names_and_lines_belong_to_one_pair() -> None:
    assert len(PAIRS) >= 34
    seen = Counter([name for pair in PAIRS for name in (pair.name, pair.broken.__name__)])
    seen.update(str(line) for pair in PAIRS for line in (*pair.lines, *pair.also))
    assert max(seen.values()) == 1
