"""Restarts of the node, and a hub that is unreachable."""

from __future__ import annotations

import asyncio
from pathlib import Path

from node_harness import PODS, NodeHarness, shell, state, status

FOREVER = "exec sleep 1000"


async def lines(path: Path, count: int) -> list[str]:
    """The lines of a file, as soon as it has so many."""
    async with asyncio.timeout(60):
        while not path.exists() or len(found := path.read_text().splitlines()) < count:
            await asyncio.sleep(0.01)
    return found


async def test_running_containers_are_restarted_after_a_restart_of_the_node(tmp_path: Path) -> None:
    edge = NodeHarness(tmp_path)
    await edge.create_defaults()
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    first = {
        "initContainers": [shell("echo once >> kept/init", "init", volumeMounts=mounts)],
        "containers": [shell("echo run >> kept/runs; exec sleep 1000", volumeMounts=mounts)],
        "volumes": [{"name": "kept", "emptyDir": {}}],
    }
    async with edge.node():
        build_container_spec = await edge.pod("one", **first)
        await edge.pod("never", restartPolicy="Never", containers=[shell(FOREVER)])
        await edge.pod("done", restartPolicy="Never", containers=[shell("true")])
        await edge.ready("one")
        await lines(edge.files(build_container_spec, "kept") / "runs", 1)
        await edge.ready("never")
        done = await edge.phase("done", "Succeeded")
    assert not list(tmp_path.glob("containers/*"))
    async with edge.node():
        pod = await edge.until("one", lambda pod: status(pod)["restartCount"] == 1 and status(pod)["ready"])
        assert status(pod)["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert status(pod, "init", "initContainerStatuses")["restartCount"] == 0
        assert (edge.files(build_container_spec, "kept") / "init").read_text() == "once\n"
        assert await lines(edge.files(build_container_spec, "kept") / "runs", 2) == ["run", "run"]
        failed = await edge.phase("never", "Failed")
        assert state(failed)["terminated"]["exitCode"] == 137
        assert (await edge.get("done"))["metadata"]["resourceVersion"] == done["metadata"]["resourceVersion"]  # type: ignore[index]


async def test_a_pod_that_was_deleted_meanwhile_is_not_started_again_and_leaves_nothing(tmp_path: Path) -> None:
    edge = NodeHarness(tmp_path)
    await edge.create_defaults()
    async with edge.node():
        await edge.pod("marked", containers=[shell(FOREVER)])
        await edge.pod("gone", containers=[shell(FOREVER)])
        await edge.ready("marked")
        await edge.ready("gone")
    await edge.hub.delete(f"{PODS}/marked")
    await edge.hub.delete(f"{PODS}/gone", {"gracePeriodSeconds": 0})
    assert list(tmp_path.glob("pods/*"))
    async with edge.node():
        await edge.gone("marked")
        await edge.pod("next", containers=[shell(FOREVER)])
        pod = await edge.ready("next")
        assert [path.name for path in tmp_path.glob("pods/*")] == [pod["metadata"]["uid"]]


async def test_pods_keep_running_without_the_hub_and_are_reported_later(tmp_path: Path) -> None:
    edge = NodeHarness(tmp_path)
    await edge.create_defaults()
    async with edge.node():
        build_container_spec = await edge.pod(
            "one", restartPolicy="Never", volumes=[{"name": "shared", "emptyDir": {}}],
            containers=[shell("until [ -e shared/end ]; do sleep 0.01; done; exit 4",
                              volumeMounts=[{"name": "shared", "mountPath": "/shared"}])],
        )  # fmt: skip
        await edge.ready("one")
        edge.transport.go_down()
        (edge.files(build_container_spec, "shared") / "end").touch()
        edge.transport.up = True
        assert state(await edge.phase("one", "Failed"))["terminated"]["exitCode"] == 4
