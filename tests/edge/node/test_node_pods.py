"""Pods on a node with real processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from node_harness import PODS, FakePublisher, NodeHarness, condition, shell, state, status

from farflung.edge.runtimes.base import Address
from farflung.machinery.errors import Obj

FOREVER = "echo up; exec sleep 1000"
ASKED = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.01; done"


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[NodeHarness]:
    build_container_spec = NodeHarness(tmp_path)
    await build_container_spec.create_defaults()
    async with build_container_spec.node():
        yield build_container_spec


async def printed(edge: NodeHarness, pod: Obj, count: int = 1, container: str = "main", attempt: int = 0) -> list[str]:
    """The log, as soon as it has so many lines."""
    async with asyncio.timeout(60):
        while len(lines := edge.log(pod, container, attempt)) < count:
            await asyncio.sleep(0.01)
    return lines


async def test_a_pod_runs_and_becomes_ready(edge: NodeHarness) -> None:
    await edge.pod("one", containers=[shell(FOREVER)])
    pod = await edge.ready("one")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["hostIP"] == pod["status"]["podIP"] == "127.0.0.1"
    assert pod["status"]["qosClass"] == "BestEffort"
    container = status(pod)
    assert container["ready"]
    assert container["started"]
    assert container["restartCount"] == 0
    assert container["containerID"].startswith("process://")
    for type in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"):
        assert condition(pod, type)["status"] == "True", type
    said = "busybox is not run: its command runs on this machine, without isolation."
    assert condition(pod, "farflung.io/StandIn")["message"] == said
    assert await edge.event("one", "StandIn") == said
    assert await edge.event("one", "Started") == "Started container main"
    assert await edge.event("one", "Created") == "Created container: main"
    assert await printed(edge, pod) == ["up"]


async def test_nothing_is_written_while_nothing_changes(edge: NodeHarness) -> None:
    await edge.pod("one", containers=[shell(FOREVER)])
    pod = await edge.ready("one")
    before = len([request for request in edge.transport.writes if "/pods/" in request.target])
    await edge.hub.config_map("unrelated", a="b")
    await edge.pod("two", containers=[shell(FOREVER)])
    await edge.ready("two")
    writes = [request.target for request in edge.transport.writes if "/pods/one/" in request.target]
    assert len(writes) == before
    assert (await edge.get("one"))["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]  # type: ignore[index]


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy, code, phase", [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")]
)
async def test_a_finished_pod_reports_its_exit(edge: NodeHarness, policy: str, code: int, phase: str) -> None:
    await edge.pod("one", restartPolicy=policy, containers=[shell(f"echo -n bye > dev/termination-log; exit {code}")])
    pod = await edge.phase("one", phase)
    ended = state(pod)["terminated"]
    assert ended["exitCode"] == code
    assert ended["reason"] == ("Completed" if code == 0 else "Error")
    assert ended["message"] == "bye"
    assert condition(pod, "Ready")["reason"] == ("PodCompleted" if code == 0 else "PodFailed")
    assert status(pod)["restartCount"] == 0


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
async def test_a_container_that_crashes_is_started_again_with_pauses(edge: NodeHarness, policy: str) -> None:
    await edge.pod("one", restartPolicy=policy, containers=[shell("echo again; exit 7")])
    pod = await edge.until("one", lambda pod: "waiting" in state(pod) and status(pod)["restartCount"] >= 2)
    assert state(pod)["waiting"]["reason"] == "CrashLoopBackOff"
    assert state(pod)["waiting"]["message"].startswith("back-off 20s restarting failed container=main pod=one_default(")
    assert status(pod)["lastState"]["terminated"]["exitCode"] == 7
    assert pod["status"]["phase"] == "Running"
    assert condition(pod, "Ready")["reason"] == "ContainersNotReady"
    assert "Back-off restarting failed container main" in await edge.event("one", "BackOff")
    assert edge.log(pod, attempt=2) == ["again"]
    assert edge.log(pod, attempt=1) == ["again"]
    assert edge.log(pod, attempt=0) == []


async def test_a_deleted_pod_gets_sigterm_and_leaves_nothing(edge: NodeHarness) -> None:
    await edge.hub.create("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    await edge.pod(
        "one",
        containers=[shell(ASKED, volumeMounts=[{"name": "v", "mountPath": "/v"}])],
        volumes=[{"name": "v", "secret": {"secretName": "s"}}],
        terminationGracePeriodSeconds=30,
    )
    pod = await edge.ready("one")
    await printed(edge, pod)
    watch = await edge.hub.watch(PODS, {"resourceVersion": pod["metadata"]["resourceVersion"]})
    await edge.hub.delete(f"{PODS}/one")
    await edge.gone("one")
    last = watch.events[-1]["object"]
    assert state(last)["terminated"]["exitCode"] == 0
    assert last["status"]["phase"] == "Succeeded"
    assert not (edge.directory / "pods" / pod["metadata"]["uid"]).exists()
    assert await edge.event("one", "Killing") == "Stopping container main"


async def test_a_pod_that_does_not_listen_is_ended_after_its_grace(edge: NodeHarness) -> None:
    await edge.pod(
        "one", terminationGracePeriodSeconds=1,
        containers=[shell("trap '' TERM; echo up; while :; do sleep 0.01; done")],
    )  # fmt: skip
    pod = await edge.ready("one")
    await printed(edge, pod)
    watch = await edge.hub.watch(PODS, {"resourceVersion": pod["metadata"]["resourceVersion"]})
    await edge.hub.delete(f"{PODS}/one")
    await edge.gone("one")
    assert state(watch.events[-1]["object"])["terminated"]["exitCode"] == 128 + signal.SIGKILL


async def test_a_pod_that_is_deleted_by_force_ends_soon(edge: NodeHarness) -> None:
    await edge.pod(
        "one", terminationGracePeriodSeconds=600,
        containers=[shell("trap '' TERM; echo up; while :; do sleep 0.01; done")],
    )  # fmt: skip
    pod = await edge.ready("one")
    await printed(edge, pod)
    await edge.hub.delete(f"{PODS}/one")
    await edge.event("one", "Killing")
    await edge.hub.delete(f"{PODS}/one", {"gracePeriodSeconds": 0})
    async with asyncio.timeout(60):
        while (edge.directory / "pods" / pod["metadata"]["uid"]).exists():
            await asyncio.sleep(0.01)


async def test_a_pod_with_a_finalizer_is_ended_once_and_waits_for_it(edge: NodeHarness) -> None:
    await edge.pod("one", metadata={"finalizers": ["example.org/wait"]}, containers=[shell(FOREVER)])
    await edge.ready("one")
    await edge.hub.delete(f"{PODS}/one")
    await edge.phase("one", "Failed")
    await edge.hub.patch(f"{PODS}/one", {"metadata": {"finalizers": None}})
    await edge.gone("one")


async def test_a_pod_does_not_run_longer_than_its_deadline(edge: NodeHarness) -> None:
    await edge.pod("one", activeDeadlineSeconds=20, containers=[shell(FOREVER)])
    pod = await edge.phase("one", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert "terminated" in state(pod)
    assert "longer than the specified deadline" in await edge.event("one", "DeadlineExceeded")


# --- what comes first -----------------------------------------------------------------------------


async def test_init_containers_run_one_after_the_other_before_the_others(edge: NodeHarness) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    await edge.pod(
        "one",
        initContainers=[
            shell("echo first >> shared/order", "first", volumeMounts=mounts),
            shell("echo second >> shared/order", "second", volumeMounts=mounts),
        ],
        containers=[shell("cat shared/order; exec sleep 1000", volumeMounts=mounts)],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    pod = await edge.ready("one")
    assert await printed(edge, pod, 2) == ["first", "second"]
    assert state(pod, "first", "initContainerStatuses")["terminated"]["reason"] == "Completed"
    assert status(pod, "second", "initContainerStatuses")["ready"]


async def test_an_init_container_that_fails_keeps_the_others_waiting(edge: NodeHarness) -> None:
    await edge.pod("one", initContainers=[shell("exit 1", "first")], containers=[shell(FOREVER)])
    pod = await edge.until("one", lambda pod: status(pod, "first", "initContainerStatuses").get("restartCount", 0) > 1)
    assert pod["status"]["phase"] == "Pending"
    assert state(pod)["waiting"]["reason"] == "PodInitializing"
    assert condition(pod, "Initialized")["message"] == "containers with incomplete status: [first]"
    await edge.pod("two", restartPolicy="Never", initContainers=[shell("exit 1", "first")], containers=[shell(FOREVER)])
    assert state(await edge.phase("two", "Failed"))["waiting"]["reason"] == "PodInitializing"


async def test_a_sidecar_starts_before_and_ends_after_the_others(edge: NodeHarness) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    await edge.pod(
        "one",
        restartPolicy="Never",
        initContainers=[
            shell(
                "trap 'exit 0' TERM; touch shared/up; while :; do sleep 0.01; done",
                "side",
                restartPolicy="Always",
                volumeMounts=mounts,
                startupProbe={
                    "exec": {"command": ["test", "-e", "shared/up"]},
                    "periodSeconds": 1,
                    "timeoutSeconds": 30,
                },
            )
        ],
        containers=[shell("ls shared", volumeMounts=mounts)],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    pod = await edge.phase("one", "Succeeded")
    assert edge.log(pod) == ["up"]
    assert "terminated" in state(pod, "side", "initContainerStatuses")


# --- what cannot be run ---------------------------------------------------------------------------


async def test_a_failed_pull_is_retried_and_reported(edge: NodeHarness) -> None:
    await edge.pod("one", containers=[{"name": "main", "image": "postgres:16"}])
    pod = await edge.until("one", lambda pod: state(pod).get("waiting", {}).get("reason") == "ErrImagePull")
    assert "the podman runtime runs all images" in state(pod)["waiting"]["message"]
    pod = await edge.until("one", lambda pod: state(pod).get("waiting", {}).get("reason") == "ImagePullBackOff")
    assert pod["status"]["phase"] == "Pending"
    assert "the podman runtime runs all images" in await edge.event("one", "Failed")
    await edge.hub.patch(f"{PODS}/one", [{"op": "replace", "path": "/spec/containers/0/image", "value": "httpd"}],
                         "application/json-patch+json")  # fmt: skip
    await edge.ready("one")


async def test_a_container_whose_image_changes_is_replaced(edge: NodeHarness) -> None:
    await edge.pod("one", containers=[{"name": "main", "image": "httpd"}])
    await edge.ready("one")
    await edge.hub.patch(f"{PODS}/one", [{"op": "replace", "path": "/spec/containers/0/image", "value": "httpd:2.4"}],
                         "application/json-patch+json")  # fmt: skip
    pod = await edge.until("one", lambda pod: status(pod)["image"] == "httpd:2.4" and status(pod)["ready"])
    assert status(pod)["restartCount"] == 1


# --- ports ----------------------------------------------------------------------------------------


async def test_host_ports_are_forwarded_while_the_container_runs(edge: NodeHarness) -> None:
    ports = [{"containerPort": 80, "hostPort": 8081}]
    await edge.pod("one", containers=[{"name": "main", "image": "httpd", "ports": ports}])
    await edge.ready("one")
    address = edge.ports.numbers[8081]
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()
    await writer.wait_closed()
    await edge.hub.delete(f"{PODS}/one")
    await edge.gone("one")
    assert edge.ports.published == {}


async def test_a_host_port_that_is_taken_is_named_and_waited_for(edge: NodeHarness) -> None:
    edge.ports.taken.add(8081)
    ports = [{"containerPort": 80, "hostPort": 8081}]
    await edge.pod("one", containers=[{"name": "main", "image": "httpd", "ports": ports}])
    pod = await edge.until("one", lambda pod: state(pod).get("waiting", {}).get("reason") == "RunContainerError")
    assert state(pod)["waiting"]["message"] == "host port 8081/TCP is not available: Address already in use"
    assert "8081/TCP" in await edge.event("one", "Failed")
    edge.ports.taken.clear()
    assert status(await edge.ready("one"))["restartCount"] == 0


# --- hooks and probes -----------------------------------------------------------------------------


async def test_hooks_run_after_the_start_and_before_the_end(edge: NodeHarness) -> None:
    container = shell(
        ASKED,
        volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
        lifecycle={
            "postStart": {"exec": {"command": ["touch", "shared/after-start"]}},
            "preStop": {"exec": {"command": ["sh", "-c", f"cp -rL shared {edge.directory}/seen"]}},
        },
    )
    await edge.pod("one", containers=[container], volumes=[{"name": "shared", "emptyDir": {}}])
    await edge.ready("one")
    await edge.hub.delete(f"{PODS}/one")
    await edge.gone("one")
    assert (edge.directory / "seen" / "after-start").exists()


async def test_a_hook_that_fails_ends_the_container(edge: NodeHarness) -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo no; exit 1"]}}}
    await edge.pod("one", containers=[shell(FOREVER, lifecycle=hook)])
    await edge.until("one", lambda pod: status(pod).get("restartCount", 0) > 0)
    assert await edge.event("one", "FailedPostStartHook") == "PostStartHook failed: no"


async def test_a_container_is_ready_only_after_its_probe_succeeded(edge: NodeHarness) -> None:
    probe = {
        "exec": {"command": ["test", "-e", "shared/ready"]},
        "periodSeconds": 1,
        "timeoutSeconds": 30,
        "failureThreshold": 1,
    }
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    container = shell(FOREVER, readinessProbe=probe, volumeMounts=mounts)
    build_container_spec = await edge.pod("one", containers=[container], volumes=[{"name": "shared", "emptyDir": {}}])
    await edge.event("one", "Unhealthy")
    pod = await edge.phase("one", "Running")
    assert status(pod)["started"]
    assert not status(pod)["ready"]
    assert condition(pod, "Ready")["message"] == "containers with unready status: [main]"
    (edge.files(build_container_spec, "shared") / "ready").touch()
    await edge.ready("one")
    (edge.files(build_container_spec, "shared") / "ready").unlink()
    pod = await edge.until("one", lambda pod: not status(pod)["ready"])
    assert status(pod)["restartCount"] == 0


async def test_a_container_that_fails_its_liveness_probe_is_started_again(edge: NodeHarness) -> None:
    probe = {
        "exec": {"command": ["sh", "-c", "echo ill; exit 1"]},
        "periodSeconds": 1,
        "timeoutSeconds": 30,
        "failureThreshold": 2,
    }
    await edge.pod("one", containers=[shell(FOREVER, livenessProbe=probe)])
    await edge.until("one", lambda pod: status(pod).get("restartCount", 0) >= 1)
    assert await edge.event("one", "Unhealthy") == "Liveness probe failed: ill"
    assert await edge.event("one", "Killing") == "Container main failed liveness probe, will be restarted"


async def test_a_startup_probe_holds_back_the_others(edge: NodeHarness) -> None:
    mounts, asked = (
        [{"name": "shared", "mountPath": "/shared"}],
        {"exec": {"command": ["test", "-e", "shared/started"]}},
    )
    container = shell(
        FOREVER,
        volumeMounts=mounts,
        startupProbe={**asked, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 10_000},
        livenessProbe={**asked, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1},
    )
    build_container_spec = await edge.pod("one", containers=[container], volumes=[{"name": "shared", "emptyDir": {}}])
    assert (await edge.event("one", "Unhealthy")).startswith("Startup probe failed")
    pod = await edge.phase("one", "Running")
    assert not status(pod)["started"]
    (edge.files(build_container_spec, "shared") / "started").touch()
    assert status(await edge.ready("one"))["restartCount"] == 0


async def test_web_servers_are_probed_by_name_and_number_of_a_port(edge: NodeHarness) -> None:
    await edge.pod(
        "one",
        containers=[
            {
                "name": "main",
                "image": "httpd",
                "ports": [{"name": "web", "containerPort": 80}],
                "startupProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 30},
                "readinessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1, "timeoutSeconds": 30},
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/nothing"}, "periodSeconds": 1, "failureThreshold": 10_000,
                    "timeoutSeconds": 30,
                },
            }
        ],
    )  # fmt: skip
    await edge.ready("one")
    assert await edge.event("one", "Unhealthy") == "Liveness probe failed: HTTP probe failed with statuscode: 404"


async def test_an_unsupported_probe_is_reported_and_the_container_is_not_started(edge: NodeHarness) -> None:
    await edge.pod("one", containers=[shell(FOREVER, livenessProbe={"grpc": {"port": 80}})])
    pod = await edge.until("one", lambda pod: "waiting" in state(pod) and "message" in state(pod)["waiting"])
    assert state(pod)["waiting"]["reason"] == "CreateContainerConfigError"
    assert "gRPC" in state(pod)["waiting"]["message"]


# --- the node itself ------------------------------------------------------------------------------


async def test_a_node_registers_itself_again_after_its_deletion(edge: NodeHarness) -> None:
    async def registered() -> Obj:
        async with asyncio.timeout(60):
            while True:
                answer = await edge.hub.get("/api/v1/nodes/florin")
                if answer.status == 200 and answer.json["status"].get("conditions"):
                    return answer.json  # type: ignore[no-any-return]
                await asyncio.sleep(0.01)

    node = await registered()
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "florin"
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("process://")
    assert {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"] == "True"
    assert set(node["status"]["capacity"]) == {"cpu", "memory", "pods", "ephemeral-storage"}
    await edge.hub.delete("/api/v1/nodes/florin")
    assert (await registered())["metadata"]["uid"] != node["metadata"]["uid"]
    lease = (await edge.hub.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/florin")).json
    assert lease["spec"]["holderIdentity"] == "florin"


async def test_a_slow_pod_does_not_delay_others(edge: NodeHarness) -> None:
    deaf = shell(
        "trap '' TERM; echo up; until [ -e shared/end ]; do sleep 0.01; done",
        volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
    )
    volumes = [{"name": "shared", "emptyDir": {}}]
    slow = await edge.pod("slow", terminationGracePeriodSeconds=600, containers=[deaf], volumes=volumes)
    await edge.ready("slow")
    await printed(edge, slow)
    await edge.hub.delete(f"{PODS}/slow")
    await edge.event("slow", "Killing")
    await edge.pod("quick", containers=[shell(FOREVER)])
    await edge.ready("quick")
    assert await edge.get("slow") is not None
    (edge.files(slow, "shared") / "end").touch()
    await edge.gone("slow")


class BrokenPorts(FakePublisher):
    async def publish(self, pod_uid: str, node_port: int, protocol: str, to: Address) -> None:
        raise RuntimeError("a mistake")


async def test_a_pod_whose_worker_fails_can_be_deleted_at_once(tmp_path: Path) -> None:
    edge = NodeHarness(tmp_path)
    await edge.create_defaults()
    edge.ports = BrokenPorts()
    async with edge.node(first=1e6, longest=1e6):
        await edge.pod("one", containers=[shell(FOREVER, ports=[{"containerPort": 80, "hostPort": 8081}])])
        async with asyncio.timeout(60):
            while "a pod worker failed" not in edge.lines.getvalue():
                await asyncio.sleep(0.01)
        assert "a mistake" not in edge.lines.getvalue()
        assert not list((tmp_path / "containers").iterdir()), "nothing of it runs"
        await edge.hub.delete(f"{PODS}/one")
        await edge.gone("one")
