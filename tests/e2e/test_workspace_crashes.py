"""Trees of workspaces that go, and workspaces, exports and bindings that come, while the hub is killed."""

from __future__ import annotations

import asyncio
import http.client
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from apis_harness import widget_schema
from hub_process import Client, HubProcess, Json, eventually

from farflung.cli.settings import KEY_FILE
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.tenancy.paths import LOGICAL_CLUSTERS, WORKSPACES, logical_cluster_key
from farflung.lib.key_file import KeyFile
from farflung.store.sqlite.store import SqliteStore
from farflung.store.sqlite.store_encryption import StoreEncryption

TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
APIS = "/apis/apis.kcp.io/v1alpha1"
LOST = (OSError, http.client.HTTPException)  #: what a client sees of a hub that dies
TYPE = {"name": "universal", "path": "root"}
WRITERS = 4


def begin(directory: Path) -> HubProcess:
    return HubProcess(directory, arguments=["--bare"], command="start")


def stored(directory: Path) -> dict[str, Json]:
    """Everything that a hub which does not run has kept."""

    async def read() -> dict[str, Json]:
        path = directory / "workspaces.sqlite"
        encryption = StoreEncryption(KeyFile(directory / KEY_FILE)).ensure(path)
        store = await SqliteStore.open(path, encryption, stamp=objects.stamp, keep=3600)
        try:
            return {
                entry.key: objects.decode(entry)
                for home in store.storage_prefixes()
                for entry in store.list(home).entries
            }
        finally:
            await store.close()

    return asyncio.run(read())


def named(kind: str, group: str, name: str, **spec: object) -> Json:
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def workspace(name: str) -> Json:
    return named("Workspace", "tenancy.kcp.io", name, type=TYPE)


def make(client: Client, parent: str, name: str) -> str:
    made = client.create(f"/clusters/{parent}{TENANCY}/workspaces", workspace(name))
    cluster: str = made["spec"]["cluster"]
    return cluster


def provide(client: Client, cluster: str) -> None:
    """An API that a workspace exports."""
    at = f"/clusters/{cluster}{APIS}"
    schema = {**named("APIResourceSchema", "apis.kcp.io", ""), **widget_schema()}
    client.create(f"{at}/apiresourceschemas", schema)
    export = named("APIExport", "apis.kcp.io", "ex", latestResourceSchemas=["v1.widgets.ex.test"])
    client.create(f"{at}/apiexports", export)


def bind(client: Client, consumer: str, provider: str) -> None:
    """Such an API, and an object of it."""
    reference = {"export": {"path": provider, "name": "ex"}}
    client.create(
        f"/clusters/{consumer}{APIS}/apibindings", named("APIBinding", "apis.kcp.io", "b", reference=reference)
    )
    widget = {"apiVersion": "ex.test/v1", "kind": "Widget", "metadata": {"name": "w"}}
    client.create(f"/clusters/{consumer}/apis/ex.test/v1/widgets", widget)


def grow(hub: HubProcess, parent: str, count: int) -> None:
    """So many workspaces below one, in two layers."""
    branches = max(count // 20, 1)

    def branch(number: int) -> None:
        with hub.client() as client:
            cluster = make(client, parent, f"branch-{number}")
            for leaf in range(count // branches - 1):
                made = make(client, cluster, f"leaf-{leaf}")
                if not leaf % 5:
                    path = f"/clusters/{made}/api/v1/namespaces/default/configmaps"
                    client.create(path, {"metadata": {"name": "content"}})
                    provide(client, made)
                    bind(client, made, made)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(branch, range(branches)))


def remaining(client: Client) -> int:
    return len(client.get(f"/clusters/root{TENANCY}/workspaces?fieldSelector=metadata.name%3Dtree")["items"])


def revision(client: Client) -> int:
    """How many writes there were."""
    return int(client.get(f"/clusters/root{TENANCY}/workspaces?limit=1")["metadata"]["resourceVersion"])


def remove_and_kill(directory: Path, count: int, kills: int) -> None:
    chance = random.Random(count)
    hub = begin(directory)
    try:
        hub.stop()
        before = stored(directory).keys()
        hub = begin(directory)
        with hub.client() as client:
            tree = make(client, "root", "tree")
            grow(hub, tree, count)
            reply = client.request("DELETE", f"/clusters/root{TENANCY}/workspaces/tree")
            assert reply.status == 200, reply.body
        for _ in range(kills):
            wait_for_part(hub, chance.randrange(count))
            hub.kill()
            hub = begin(directory)
        with hub.client() as client:
            eventually(lambda: not remaining(client), "the end of the tree")
        hub.stop()
        assert hub.trouble() == []
        assert stored(directory).keys() - before == set()
    finally:
        hub.kill()


def wait_for_part(hub: HubProcess, writes: int) -> None:
    """Of a removal: so many writes, or all that there are."""
    with hub.client() as client:
        begun = revision(client)
        eventually(lambda: revision(client) >= begun + writes or not remaining(client), "the next part of the removal")


@pytest.mark.long
def test_a_thousand_workspaces_go_though_the_hub_is_killed(tmp_path: Path) -> None:
    remove_and_kill(tmp_path / "data", count=1000, kills=6)


@pytest.mark.long
def test_a_thousand_workspaces_go(tmp_path: Path) -> None:
    remove_and_kill(tmp_path / "data", count=1000, kills=0)


# --- creation -------------------------------------------------------------------------------------


class Founder(threading.Thread):
    """Makes workspaces that export and bind an API until the hub dies, and remembers what was acknowledged."""

    def __init__(self, hub: HubProcess, name: str) -> None:
        super().__init__(name=name)
        self._hub = hub
        self.acknowledged: list[str] = []  #: keys
        self.writes = 0
        self.unexpected: list[object] = []

    def run(self) -> None:
        with self._hub.client() as client:
            try:
                while True:
                    self._found(client, f"{self.name}-{self.writes}")
            except LOST:
                return
            except Exception as error:
                self.unexpected.append(error)

    def _found(self, client: Client, name: str) -> None:
        provider = make(client, "root", f"{name}-p")
        self.acknowledged += [f"{WORKSPACES}root/{name}-p", logical_cluster_key(provider)]
        provide(client, provider)
        self.acknowledged.append(f"/apis.kcp.io/apiexports/{provider}/ex")
        consumer = make(client, "root", f"{name}-c")
        bind(client, consumer, provider)
        self.acknowledged.append(f"/apis.kcp.io/apibindings/{consumer}/b")
        self.writes += 1


def found_and_kill(hub: HubProcess, delay: float, turn: int) -> Iterator[str]:
    founders = [Founder(hub, f"turn-{turn}-{number}") for number in range(WRITERS)]
    for founder in founders:
        founder.start()
    while sum(founder.writes for founder in founders) < WRITERS:
        assert any(founder.is_alive() for founder in founders), [founder.unexpected for founder in founders]
        time.sleep(0.001)
    time.sleep(delay)  # not waiting for anything: the moment of death is to be any
    hub.kill()
    for founder in founders:
        founder.join()
        assert founder.unexpected == []
        yield from founder.acknowledged


def check_whole(kept: dict[str, Json], usual: set[str]) -> None:
    """Nothing is half-made.  `usual`: what every workspace has, without its cluster."""
    owned = {key: obj["spec"]["cluster"] for key, obj in kept.items() if key.startswith(f"{WORKSPACES}root/turn-")}
    clusters = {cluster_in(key) for key, obj in kept.items() if key.startswith(LOGICAL_CLUSTERS) and owner(obj)}
    assert set(owned.values()) <= clusters
    inhabited = {
        cluster for cluster in map(cluster_in, kept) if len(cluster) == 16 and not cluster.startswith("system:")
    }
    assert inhabited == clusters, "there is a cluster that nobody has"
    for workspace, cluster in owned.items():
        assert kept[workspace]["status"]["phase"] == "Ready"
        has = {without_cluster(key, cluster) for key in kept if cluster_in(key) == cluster}
        assert usual <= has, workspace
    for key, obj in kept.items():
        if key.startswith("/apis.kcp.io/apiexports/"):
            assert obj["status"]["identityHash"], key
        if key.startswith("/apis.kcp.io/apibindings/"):
            assert obj["status"]["phase"] == "Bound", key


def owner(logical_cluster: Json) -> object:
    return logical_cluster["spec"].get("owner")


def without_cluster(key: str, cluster: str) -> str:
    """The names of default bindings are made of their cluster's."""
    shown = key.replace(cluster, "")
    return shown.rpartition("-")[0] if "/apibindings/" in shown and ".kcp.io-" in shown else shown


def create_and_kill(directory: Path, kills: int) -> None:
    chance = random.Random(kills)
    hub = begin(directory)
    try:
        with hub.client() as client:
            model = make(client, "root", "model")
        hub.stop()
        usual = {without_cluster(key, model) for key in stored(directory) if cluster_in(key) == model}
        assert len(usual) > 8
        expected: set[str] = set()
        for turn in range(kills):
            hub = begin(directory)
            expected |= set(found_and_kill(hub, chance.random() / 3, turn))
            hub = begin(directory)
            settle(hub)
            hub.stop()
            assert hub.trouble() == []
            kept = stored(directory)
            assert expected <= kept.keys()
            check_whole(kept, usual)
    finally:
        hub.kill()


def settle(hub: HubProcess) -> None:
    """Until the controllers write nothing any more: a second look finds what the first one found."""
    seen: list[int] = []

    with hub.client() as client:

        def is_quiet() -> bool:
            seen.append(revision(client))
            return len(seen) > 50 and seen[-50] == seen[-1]

        eventually(is_quiet, "quiet")


@pytest.mark.long
def test_what_was_being_made_is_whole_or_not_there_however_often_the_hub_is_killed(tmp_path: Path) -> None:
    create_and_kill(tmp_path / "data", 8)
