"""A real hub for all tests of a worker, and each test once for every kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hub_process import HubProcess
from kubectl_runner import Kubectl, kubectls, minor_of

NUMBERS = count(1)


@pytest.fixture(scope="session")
def session_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path_factory.mktemp("hub") / "data")
    try:
        yield hub
        assert hub.stop() == "farflung hub is stopping\n"
        assert hub.trouble() == []
    finally:
        hub.kill()


@pytest.fixture
def hub(session_hub: HubProcess) -> Iterator[HubProcess]:
    """The hub that the tests share.  Whatever a test does to it, it goes on and has nothing to complain about."""
    known = len(session_hub.trouble())
    yield session_hub
    assert session_hub.process.poll() is None, "the hub has ended"
    assert session_hub.trouble()[known:] == []


@pytest.fixture
def namespace(hub: HubProcess) -> str:
    name = f"test-{next(NUMBERS)}"
    with hub.client() as client:
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


OLDEST = 27  #: before 1.27, kubectl lacks flags that the tests of every version use


def every_kubectl() -> list[Any]:
    """The newest for every run of the tests, the others when there is time."""
    found = kubectls()
    if not found:
        return [None]
    modern = [binary for binary in found if minor_of(binary) >= OLDEST]
    if not modern:
        old = pytest.mark.skip(reason=f"needs kubectl 1.{OLDEST}; an older one has tests of its own")
        return [pytest.param(found[-1], marks=old)]
    *older, newest = modern
    return [pytest.param(newest), *(pytest.param(binary, marks=pytest.mark.slow) for binary in older)]


@pytest.fixture(params=every_kubectl(), ids=lambda binary: binary.name if binary else "no kubectl")
def kubectl(request: pytest.FixtureRequest, hub: HubProcess, namespace: str, tmp_path: Path) -> Kubectl:
    if request.param is None:
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    return Kubectl(request.param, hub, tmp_path, namespace)


@pytest.fixture
def oldest_kubectl(hub: HubProcess, namespace: str, tmp_path: Path) -> Kubectl:
    """Whatever a distribution has: Debian 12 has 1.20."""
    found = kubectls()
    if not found:
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    return Kubectl(found[0], hub, tmp_path, namespace)
