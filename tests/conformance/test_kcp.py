"""The recordings of a real kcp."""

import kcp
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(kcp.RECORDINGS))
def test_exactly_the_known_exchanges_with_kcp_differ(name: str) -> None:
    outcome, known = kcp.replay_fresh(name), kcp.known_differences(name)
    assert outcome.differing == known, outcome.text(outcome.differing - known)
