"""An operator made with kopf, in a process of its own, which is killed and started again, and the hub too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hub_process import PATIENCE, HubProcess, Json, eventually

OPERATOR = str(Path(__file__).with_name("operator") / "shop_operator.py")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"Content-Type": "application/merge-patch+json"}

SPEC = {
    "type": "object",
    "required": ["shelves"],
    "properties": {
        "shelves": {"type": "integer", "minimum": 0},
        "room": {"type": "string", "default": "front"},
    },
}
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "shops.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList", "shortNames": ["sh"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": SPEC,
                            "status": {
                                "type": "object",
                                "properties": {"shelves": {"type": "integer"}, "phase": {"type": "string"}},
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def shop(name: str, shelves: int) -> Json:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Shop",
        "metadata": {"name": name},
        "spec": {"shelves": shelves},
    }


class Town:
    """A namespace of a hub, and the operator of its shops."""

    def __init__(self, hub: HubProcess, directory: Path, namespace: str) -> None:
        self.hub = hub
        self.directory = directory
        self.namespace = namespace
        self.maps_path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.shops_path = f"/apis/example.com/v1/namespaces/{namespace}/shops"

    def kill_hub(self) -> None:
        port = self.hub.port
        self.hub.kill()
        self.hub = HubProcess(self.hub.directory, port=port)

    @contextmanager
    def operator(self) -> Iterator[subprocess.Popen[bytes]]:
        """Runs to the end of the block; then it is killed if it has not ended."""
        kopf = str(Path(sys.executable).with_name("kopf"))
        command = [kopf, "run", "--standalone", "--namespace", self.namespace, OPERATOR]
        environment = {**os.environ, "KUBECONFIG": str(self.hub.kubeconfig)}
        with (self.directory / "operator.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait(timeout=PATIENCE)

    def log(self) -> str:
        return (self.directory / "operator.log").read_text()

    def create(self, name: str, shelves: int) -> None:
        with self.hub.client() as client:
            client.create(self.shops_path, shop(name, shelves))

    def patch(self, path: str, body: Json) -> None:
        with self.hub.client() as client:
            answer = client.request("PATCH", path, body, MERGE)
        assert answer.status == 200, answer.body

    def delete(self, path: str) -> None:
        with self.hub.client() as client:
            assert client.request("DELETE", path).status == 200

    def maps(self) -> set[str]:
        with self.hub.client() as client:
            listed = client.get(self.maps_path)["items"]
        return {one["metadata"]["name"] for one in listed} - {"kube-root-ca.crt"}

    def get(self, name: str) -> Json | None:
        with self.hub.client() as client:
            answer = client.request("GET", f"{self.shops_path}/{name}")
        return answer.json if answer.status == 200 else None

    def settled(self, name: str, shelves: int) -> Callable[[], bool]:
        def has_settled() -> bool:
            found = self.get(name)
            status = (found or {}).get("status", {})
            wanted = {f"{name}-shelf-{number}" for number in range(shelves)}
            present = {one for one in self.maps() if one.startswith(f"{name}-shelf-")}
            return status.get("shelves") == shelves and status.get("phase") == "Open" and present == wanted

        return has_settled


@contextmanager
def defined(hub: HubProcess) -> Iterator[None]:
    """With the definition of shops, which is deleted at the end."""
    with hub.client() as client:
        client.create(DEFINITIONS, DEFINITION)
    yield
    with hub.client() as client:
        client.request("DELETE", f"{DEFINITIONS}/shops.example.com")
        gone = lambda: client.request("GET", f"{DEFINITIONS}/shops.example.com").status == 404  # noqa: E731
        eventually(gone, "the end of the definition")


def test_an_operator_reconciles_and_what_it_made_ends_with_its_owner(
    hub: HubProcess, namespace: str, tmp_path: Path
) -> None:
    town = Town(hub, tmp_path, namespace)
    with defined(hub), town.operator():
        town.create("a", 2)
        eventually(town.settled("a", 2), "the shelves of the new shop")
        found = town.get("a")
        assert found is not None
        assert found["metadata"]["finalizers"] == ["example.com/shop-operator"]
        assert found["spec"] == {"shelves": 2, "room": "front"}
        with town.hub.client() as client:
            shelf = client.get(f"{town.maps_path}/a-shelf-0")
        [owner] = shelf["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], shelf["data"]) == ("Shop", found["metadata"]["uid"], {"room": "front"})
        town.patch(f"{town.shops_path}/a", {"spec": {"shelves": 1}})
        eventually(town.settled("a", 1), "fewer shelves")
        town.delete(f"{town.shops_path}/a")
        eventually(lambda: town.get("a") is None, "the end of the shop")
        eventually(lambda: town.maps() == {"a-closed"}, "the end of its shelves")


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """With a hub of its own, which may be killed."""
    town = Town(HubProcess(tmp_path / "hub"), tmp_path, "default")
    try:
        with town.hub.client() as client:
            client.create(DEFINITIONS, DEFINITION)
        yield town
        town.hub.stop()
        assert town.hub.trouble() == []
    finally:
        town.hub.kill()


@pytest.mark.long
def test_operator_and_hub_are_killed_at_any_time_and_all_ends_well(town: Town) -> None:
    with town.operator() as operator:
        town.create("a", 2)
        eventually(town.settled("a", 2), "the shelves of the new shop")
        operator.kill()
    town.patch(f"{town.shops_path}/a", {"spec": {"shelves": 4}})
    town.delete(f"{town.maps_path}/a-shelf-0")
    town.create("b", 1)
    with town.operator() as operator:
        eventually(town.settled("a", 4), "what changed while the operator was away")
        eventually(town.settled("b", 1), "what was created while the operator was away")
        town.kill_hub()
        town.patch(f"{town.shops_path}/a", {"spec": {"shelves": 1}})
        town.create("c", 3)
        eventually(town.settled("a", 1), "what changed after the hub was away")
        eventually(town.settled("c", 3), "what was created after the hub was away")
        operator.terminate()
        assert operator.wait(timeout=PATIENCE) == 0, town.log()
    town.delete(f"{town.shops_path}/a")
    town.kill_hub()
    waiting = town.get("a")
    assert waiting is not None
    assert "deletionTimestamp" in waiting["metadata"]
    with town.operator():
        eventually(lambda: town.get("a") is None, "the end of the shop")
        shelves = {"b-shelf-0", *(f"c-shelf-{number}" for number in range(3))}
        eventually(lambda: town.maps() == {"a-closed", *shelves}, "the end of its shelves")
        town.delete(f"{DEFINITIONS}/shops.example.com")
        eventually(lambda: town.maps() == {"a-closed", "b-closed", "c-closed"}, "the end of all shops")
    with town.hub.client() as client:
        eventually(lambda: client.request("GET", town.shops_path).status == 404, "the end of the definition")
