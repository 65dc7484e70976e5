"""The recordings of a real kcp, replayed on a hub with workspaces."""

from collections.abc import Iterator

import kcp
import pytest
from threaded_hub import ThreadedHub

WAITING = {"apis", "discovery", "inventory", "wildcard", "workspacetypes"}  #: recordings that wait for seconds
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in WAITING else ()) for name in kcp.RECORDINGS]


@pytest.fixture
def hub() -> Iterator[ThreadedHub]:
    hub = ThreadedHub.with_workspaces()
    yield hub
    hub.close()


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_known_exchanges_with_kcp_differ(hub: ThreadedHub, name: str) -> None:
    known = kcp.known_differences(name)
    with hub.client(kcp.ADMINISTRATOR) as server:
        outcome = kcp.replay_on(server, name, hub.tokens[kcp.FURTHER], known)
    assert outcome.differing == known, outcome.text(outcome.differing - known)
