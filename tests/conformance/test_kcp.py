"""The recordings of a real kcp, where this clone has them beside it."""

import kcp
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", kcp.RECORDINGS)
def test_exactly_the_known_exchanges_with_kcp_differ(name: str) -> None:
    assert kcp.replay_fresh(name).differing == kcp.known_differences(name)
