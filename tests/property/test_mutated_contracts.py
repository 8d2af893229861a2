"""A contract's text with anything changed in it is refused with a `FileError`, or is a contract that works."""

from __future__ import annotations

import random
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anyshape.artifact.read import CONTRACT_KEY
from benchmarks.robustness import REFUSED, WORKS, mutated_contract, outcome_of_contract

# The files are made once and only read.
relaxed = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@relaxed
@given(chance=st.randoms(use_true_random=False), which=st.integers(0, 2))
def test_a_mutated_contract_is_refused_or_works(
    two_inputs: SimpleNamespace,
    nested: SimpleNamespace,
    linear: SimpleNamespace,
    chance: random.Random,
    which: int,
) -> None:
    text = (two_inputs, nested, linear)[which].export.model.metadata_props[CONTRACT_KEY]
    mutated = mutated_contract(text, chance)
    assert outcome_of_contract(mutated) in (REFUSED, WORKS), mutated


@settings(relaxed, max_examples=100)
@given(text=st.text(max_size=50))
def test_any_other_text_is_refused(text: str) -> None:
    assert outcome_of_contract(text) == REFUSED


def test_contracts_as_they_are_work(two_inputs: SimpleNamespace, nested: SimpleNamespace) -> None:
    for made in (two_inputs, nested):
        assert outcome_of_contract(made.export.model.metadata_props[CONTRACT_KEY]) == WORKS
