"""Each parser reads its corpus, and damaged inputs of it, without a bug.  `make fuzz` searches for longer."""

from __future__ import annotations

import pytest
from examples import examples
from hostile import damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parsers import FUZZERS


@pytest.mark.parametrize("name", FUZZERS)
def test_no_input_of_the_corpus_shows_a_bug(name: str) -> None:
    assert FUZZERS[name].corpus
    for data in FUZZERS[name].corpus:
        FUZZERS[name].check(data)


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("name", FUZZERS)
@given(data=st.data())
def test_no_damaged_input_shows_a_bug(name: str, data: st.DataObject) -> None:
    FUZZERS[name].check(data.draw(damaged(data.draw(st.sampled_from(FUZZERS[name].corpus)))))
