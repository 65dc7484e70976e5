"""Machines on their way to mailboxes, with real processes: a hub and its controllers, which are killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asked_fleet import WORKSPACES
from asked_hub import BINDINGS, custom
from hub_process import Client, HubProcess, eventually
from machines import CLUSTERS, PODS, cluster_spec, machine

from farflung.controllers.edge_scheduler.controller import LOCATIONS, SYNC_TARGETS
from farflung.controllers.edge_scheduler.decide import PLACEMENTS

pytestmark = pytest.mark.slow

SHOP, IMW, ESPW = "/clusters/root:shop", "/clusters/root:imw", "/clusters/root:espw"
EXPORTS = (("root:compute", "kubernetes"), ("root:compute", "globalscheduler.com"), ("root:espw", "edge.kcp.io"))
MERGE = {"Content-Type": "application/merge-patch+json"}


class Shop:
    """A workspace with a Cluster and machines, and two SyncTargets to which no syncer belongs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hub = HubProcess(directory / ".farflung", command="start")

    def furnish(self) -> None:
        resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
        with self.hub.client() as client:
            for name in ("shop", "imw"):
                client.create(f"/clusters/root{WORKSPACES.path('')}", custom(WORKSPACES, name))
            for path, export in EXPORTS:
                reference = {"export": {"path": path, "name": export}}
                client.create(SHOP + BINDINGS.path(), custom(BINDINGS, export, reference=reference))
            served = (SHOP + PODS, SHOP + PLACEMENTS.path())
            eventually(lambda: all(client.request("GET", path).status == 200 for path in served), "the APIs")
            for name in ("edge1", "edge2"):
                client.create(IMW + SYNC_TARGETS.path(), custom(SYNC_TARGETS, name))
            client.create(IMW + LOCATIONS.path(), custom(LOCATIONS, "all", resource=resource))

    def crash(self) -> None:
        port = self.hub.port
        self.hub.kill()
        self.hub = HubProcess(self.directory / ".farflung", port=port, command="start")

    def names(self, target: str | None) -> None:
        """The Cluster, a SyncTarget, or none."""
        wanted = None if target is None else {"workspace": "root:imw", "name": target}
        with self.hub.client() as client:
            path = f"{SHOP}{CLUSTERS}/az1"
            assert client.request("PATCH", path, {"spec": {"synctarget": wanted}}, MERGE).status == 200

    def copies(self) -> dict[str, list[str]]:
        """Machines that are in the mailboxes and stay there, by SyncTarget."""
        with self.hub.client() as client:
            targets = {
                one["metadata"]["uid"]: one["metadata"]["name"]
                for one in client.get(IMW + SYNC_TARGETS.path())["items"]
            }
            found: dict[str, list[str]] = {}
            for workspace in client.get(ESPW + WORKSPACES.path())["items"]:
                cluster, name = workspace["spec"].get("cluster", ""), workspace["metadata"]["name"]
                answer = client.request("GET", f"/clusters/{cluster}{PODS}")
                pods = answer.json["items"] if cluster and answer.status == 200 else []
                target = next((target for uid, target in targets.items() if uid in name), "")
                if alive := [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]:
                    found[target] = sorted(pod["metadata"]["name"] for pod in alive)
            return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    found = Shop(tmp_path)
    try:
        found.furnish()
        yield found
    finally:
        found.hub.kill()


def is_bound(client: Client, name: str) -> bool:
    pod: Any = client.get(f"{SHOP}{PODS}/{name}")
    return bool(pod["spec"].get("nodeName") == "az1")


def test_machines_follow_their_cluster_to_the_mailboxes_whatever_is_killed(shop: Shop) -> None:
    with shop.hub.client() as client:
        made = {"apiVersion": "globalscheduler.com/v1", "kind": "Cluster", "metadata": {"name": "az1"}}
        client.create(SHOP + CLUSTERS, {**made, "spec": cluster_spec({"small": 9})})
        for name in ("a", "b"):
            client.create(SHOP + PODS, machine(name))
            eventually(lambda name=name: is_bound(client, name), f"{name} bound")
    assert shop.copies() == {}
    for target in ("edge1", "edge2", None, "edge1"):
        shop.names(target)
        shop.crash()
        wanted = {} if target is None else {target: ["a", "b"]}
        eventually(lambda wanted=wanted: shop.copies() == wanted, f"the machines at {target}")
