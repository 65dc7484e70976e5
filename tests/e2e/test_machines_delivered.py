"""Machines on their way to mailboxes, with real processes: a hub and its controllers, which are killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from asked_fleet import WORKSPACES
from asked_hub import BINDINGS, custom
from hub_process import Client, HubProcess, eventually

from farflung.apis.edge.names import EDGE_PLACEMENTS, SYNCER_CONFIGS
from farflung.apis.kcp.names import LOCATIONS, SYNC_TARGETS
from farflung.machinery import times
from machines import CLUSTERS, PODS, cluster_spec, machine

pytestmark = pytest.mark.long

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
            served = (SHOP + PODS, SHOP + EDGE_PLACEMENTS.path())
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

    def mailboxes(self) -> dict[str, str]:
        """The logical clusters of mailboxes that are ready, by SyncTarget."""
        with self.hub.client() as client:
            targets = {
                one["metadata"]["uid"]: one["metadata"]["name"]
                for one in client.get(IMW + SYNC_TARGETS.path())["items"]
            }
            found = {}
            for workspace in client.get(ESPW + WORKSPACES.path())["items"]:
                cluster, name = workspace["spec"].get("cluster", ""), workspace["metadata"]["name"]
                target = next((target for uid, target in targets.items() if uid in name), "")
                if cluster and target and client.request("GET", f"/clusters/{cluster}{PODS}").status == 200:
                    found[target] = cluster
            return found

    def copies(self) -> dict[str, list[str]]:
        """Machines that are in the mailboxes and stay there, by SyncTarget."""
        found = {}
        for target, cluster in self.mailboxes().items():
            with self.hub.client() as client:
                answer = client.request("GET", f"/clusters/{cluster}{PODS}")
            pods = answer.json["items"] if answer.status == 200 else []  # the translator may just have unbound them
            if alive := [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]:
                found[target] = sorted(pod["metadata"]["name"] for pod in alive)
        return found

    def refuse(self, target: str, *names: str) -> None:
        """As a syncer would report it."""
        head = {"group": "", "resource": "pods", "namespace": "default", "direction": "down", "tries": 1}
        problems = [{**head, "name": name, "reason": "Forbidden", "message": "no room"} for name in names]
        path = f"/clusters/{self.mailboxes()[target]}{SYNCER_CONFIGS.path(name='the-one', subresource='status')}"
        beat = times.format_seconds(datetime.now(UTC))
        with self.hub.client() as client:
            status = {"problems": problems, "lastSyncerHeartbeatTime": beat}
            answer = client.request("PATCH", path, {"status": status}, MERGE)
        assert answer.status == 200, answer.body

    def condition(self, path: str, type: str) -> Any:
        with self.hub.client() as client:
            conditions = client.get(path).get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == type), {})


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


def make(shop: Shop, *names: str, **spec: Any) -> None:
    """A Cluster, and machines that are bound to it."""
    with shop.hub.client() as client:
        made = {"apiVersion": "globalscheduler.com/v1", "kind": "Cluster", "metadata": {"name": "az1"}}
        client.create(SHOP + CLUSTERS, {**made, "spec": cluster_spec({"small": 9}, **spec)})
        for name in names:
            client.create(SHOP + PODS, machine(name))
        for name in names:
            eventually(lambda name=name: is_bound(client, name), f"{name} bound")


def test_machines_follow_their_cluster_to_the_mailboxes_whatever_is_killed(shop: Shop) -> None:
    make(shop, "a", "b")
    assert shop.copies() == {}
    for target in ("edge1", "edge2", None, "edge1"):
        shop.names(target)
        shop.crash()
        wanted = {} if target is None else {target: ["a", "b"]}
        eventually(lambda wanted=wanted: shop.copies() == wanted, f"the machines at {target}")


def test_a_cluster_that_takes_no_machines_is_avoided_also_when_everything_was_killed(shop: Shop) -> None:
    make(shop, "a", "b", "c", synctarget={"workspace": "root:imw", "name": "edge1"})
    eventually(lambda: shop.copies() == {"edge1": ["a", "b", "c"]}, "the machines on their way")
    shop.refuse("edge1", "a", "b", "c")
    path = f"{SHOP}{CLUSTERS}/az1"
    eventually(lambda: shop.condition(path, "TakesMachines").get("reason") == "Refused", "that it takes none")
    shop.crash()
    shop.refuse("edge1")
    with shop.hub.client() as client:
        client.create(SHOP + PODS, machine("d"))
    why = "0/1 clusters fit: 1 refused the last machines"
    d = f"{SHOP}{PODS}/d"
    eventually(lambda: shop.condition(d, "PodScheduled").get("message") == why, "that d is kept away")
