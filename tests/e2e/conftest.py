"""Real hubs for all tests of a worker, and each test once for every kubectl."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from audited_controllers import audit_options, check_administrators, check_controllers
from executable import Directory
from hub_process import HubProcess
from kubectl_runner import Kubectl, kubectls, minor_of
from seed_session import Session

HERE = Path(__file__).parent
NUMBERS = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs processes, so `make check` leaves all of them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@contextmanager
def running(hub: HubProcess) -> Iterator[HubProcess]:
    """Stops the hub at the end, and checks that it logged no problem."""
    try:
        yield hub
        assert hub.stop() == "farflung hub is stopping\n"
        assert hub.trouble() == []
    finally:
        hub.kill()


@contextmanager
def shared(hub: HubProcess) -> Iterator[None]:
    """One test's use of a hub."""
    known = len(hub.trouble())
    yield
    assert hub.process.poll() is None, "the hub has ended"
    assert hub.trouble()[known:] == []


@pytest.fixture(scope="session")
def session_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with running(HubProcess(tmp_path_factory.mktemp("hub") / "data")) as hub:
        yield hub


@pytest.fixture
def hub(session_hub: HubProcess) -> Iterator[HubProcess]:
    """The hub that the tests share.  No test makes it end or log a problem."""
    with shared(session_hub):
        yield session_hub


@pytest.fixture
def namespace(hub: HubProcess) -> str:
    name = f"test-{next(NUMBERS)}"
    with hub.client() as client:
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture(scope="session")
def session_workspaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    directory = tmp_path_factory.mktemp("workspaces") / "data"
    with running(HubProcess(directory, command="start", arguments=audit_options(directory))) as hub:
        yield hub
        check_controllers(hub)
        check_administrators(hub)


@pytest.fixture
def workspaces(session_workspaces: HubProcess) -> Iterator[HubProcess]:
    """A hub with workspaces, and its controllers, that the tests share.  No test makes it end or log a problem."""
    with shared(session_workspaces):
        yield session_workspaces


@pytest.fixture
def workspace(workspaces: HubProcess) -> str:
    """The path of a new one, which is an organization."""
    name = f"test-{next(NUMBERS)}"
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    with workspaces.client() as client:
        client.create("/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces", body)
    return f"root:{name}"


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
    return [pytest.param(newest), *(pytest.param(binary, marks=pytest.mark.long) for binary in older)]


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


def newest_and_oldest() -> list[Any]:
    every = every_kubectl()
    return every if len(every) < 3 else every[:2]


@pytest.fixture(params=newest_and_oldest(), ids=lambda binary: binary.name if binary else "no kubectl")
def seed_kubectl(request: pytest.FixtureRequest) -> Path:
    if request.param is None:
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    found: Path = request.param
    return found


@pytest.fixture
def start(seed_kubectl: Path, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Starts hubs with workspaces: `start("--bare", root_directory=".kcp")` is a session on a new one, whose files are
    in that directory of the user's home.  They run no controllers unless told so, and log no problem."""
    with ExitStack() as hubs:

        def one(*arguments: str, root_directory: str = ".farflung", ports: Mapping[str, str] | None = None) -> Session:
            directory = Directory(tmp_path, ports)
            place = directory.home / root_directory
            place.parent.mkdir(exist_ok=True)
            hub = HubProcess(place, command="start", arguments=["--no-controllers", *arguments])
            hubs.callback(hub.kill)
            hubs.callback(lambda: end(hub))
            session = Session(directory, seed_kubectl, hub)
            hubs.callback(session.kill)
            hubs.callback(session.interrupt)
            return session

        yield one


def end(hub: HubProcess) -> None:
    hub.stop()
    assert hub.trouble() == []
