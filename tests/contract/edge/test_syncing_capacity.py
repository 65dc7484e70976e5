"""What a cluster has for work is counted with the rights of the manifest, and machines are given no more than that."""

from __future__ import annotations

import subprocess
from pathlib import Path

from asked_fleet import WORKSPACES
from asked_hub import BINDINGS, custom
from asked_machines import machine, named
from edge_contract import INVENTORY, PROVIDER, Link
from hub_process import FARFLUNG, PATIENCE

from farflung.apis.globalscheduler.names import CLUSTERS
from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.apis.names import NODES, PODS
from farflung.client.rest import Client
from farflung.machinery import quantity
from farflung.machinery.errors import Obj

PORTION = "portion"  #: a flavor: half of the processors of the cluster


async def shown(link: Link) -> Obj:
    """What the SyncTarget shows, as soon as that is what its syncer reports at that time, and not nothing."""
    assert await link.cluster.list(NODES), "the cluster has no Nodes, which this test counts: test with one that has"

    async def look() -> Obj | None:
        said = (await link.report())["allocatable"]
        status: Obj = (await link.inventory.get(SYNC_TARGETS, link.name))["status"]
        return status if status["allocatable"] == said and said["cpu"] != "0" else None

    found: Obj = await link.eventually(look, "the SyncTarget")
    return found


async def test_the_nodes_of_a_cluster_are_counted_and_its_target_shows_what_they_have(link: Link) -> None:
    await link.start()
    nodes = await link.cluster.list(NODES)
    status = await shown(link)
    for name in ("cpu", "memory", "pods"):
        amounts = [quantity.parse(node["status"]["capacity"][name]) for node in nodes]
        assert quantity.parse(status["capacity"][name]) == sum(amounts, quantity.ZERO)
        assert quantity.parse(status["allocatable"][name]) <= quantity.parse(status["capacity"][name])


async def machines(link: Link) -> Client:
    """A workspace that has them, and a Cluster with as many of the flavor as its SyncTarget has room for."""
    operator = link.inventory.workspace("root")
    workspace = custom(WORKSPACES, link.name, type={"name": "universal"})
    await operator.create(WORKSPACES, workspace)
    shop = operator.workspace(f"root:{link.name}")
    for export in ("kubernetes", "globalscheduler.com"):
        bound = custom(BINDINGS, export, reference={"export": {"path": "root:compute", "name": export}})
        await shop.create(BINDINGS, bound)
    cluster = named(
        CLUSTERS,
        "az1",
        region={"region": "region1", "availabilityzone": "az1"},
        flavors=[{"flavorid": PORTION, "totalcapacity": 1000}],
        synctarget={"workspace": INVENTORY, "name": link.name},
    )
    await link.eventually(lambda: shop.create(CLUSTERS, cluster, "default"))
    return shop


def configured(directory: Path, vcpus: int) -> Path:
    """Files of a scheduler that knows how large the flavor is."""
    sizes = f"{{id: {PORTION}, name: {PORTION}, vcpus: {vcpus}, ram: 1, disk: 0}}"
    directory.mkdir()
    (directory / "conf.yaml").write_text("scheduler_policy_file: policy.yaml\n")
    (directory / "policy.yaml").write_text("predicates: [{name: Flavor}]\npriorities: []\n")
    (directory / "flavor_config.yaml").write_text(f"flavor_number: 1\nflavors: {{flavor_0: {sizes}}}\n")
    return directory


async def test_machines_get_what_the_syncer_counted_and_the_next_one_waits(link: Link, tmp_path: Path) -> None:
    await link.start()
    vcpus = quantity.parse((await shown(link))["allocatable"]["cpu"]).nanos // quantity.ONE
    size = max(1, vcpus // 2)
    shop, conf = await machines(link), configured(tmp_path / "conf", size)
    words = ["--kubeconfig", str(link.grounds.hub.kubeconfig), "--provider-path", PROVIDER, "--conf", str(conf)]
    log = tmp_path / "scheduler.log"
    with log.open("wb") as file:
        scheduler = subprocess.Popen([FARFLUNG, "global-scheduler", *words], stdout=file, stderr=file)
    try:
        for number in range(vcpus // size + 1):
            name, fits = f"vm{number}", number < vcpus // size
            await shop.create(PODS, machine(name, flavor=PORTION), "default")

            async def decided(name: str = name) -> list[str]:
                assert scheduler.poll() is None, log.read_text()
                conditions = (await shop.get(PODS, name, "default"))["status"]["conditions"]
                return [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]

            said = await link.eventually(decided, f"a decision about {name}")
            assert said == ["" if fits else "0/1 clusters fit: 1 out of vcpus"]
    finally:
        scheduler.terminate()
        scheduler.wait(PATIENCE)
