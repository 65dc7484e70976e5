"""One hub for all tests of a worker, and the cluster that $FARFLUNG_EDGE_KUBECONFIG names, or else an embedded one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from edge_contract import Grounds, Link, linked, mailbox_controller
from edge_runner import EdgeUser
from hub_process import PATIENCE, HubProcess

VARIABLE = "FARFLUNG_EDGE_KUBECONFIG"
EDGE = "contract"


@pytest.fixture(scope="session")
def edge_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if named := os.environ.get(VARIABLE):
        yield Path(named).expanduser()
        return
    user = EdgeUser(tmp_path_factory.mktemp("edge"))
    try:
        user.ok("create", EDGE, "--runtime", "process", "--no-kubeconfig")
        kubeconfig = user.home / "kubeconfig"
        kubeconfig.write_text(user.ok("kubeconfig", EDGE))
        yield kubeconfig
    finally:
        user.edge("delete", "--all")
    user.has_nothing()


@pytest.fixture(scope="session")
def grounds(edge_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    hub = HubProcess(tmp_path_factory.mktemp("hub") / "data", command="start", arguments=["--no-controllers"])
    try:
        controller = mailbox_controller(hub)
        try:
            yield Grounds(hub, edge_kubeconfig)
            assert controller.poll() is None, "the mailbox controller has ended"
        finally:
            controller.terminate()
            controller.wait(PATIENCE)
        hub.stop()
        assert hub.trouble() == []
    finally:
        hub.kill()


@pytest.fixture
async def link(grounds: Grounds, tmp_path: Path) -> AsyncIterator[Link]:
    async with linked(grounds, tmp_path) as one:
        yield one
