"""Files and variables from other objects."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from hub_harness import CONFIG_MAPS
from node_harness import PODS, NodeHarness, shell, state, status

from farflung.machinery.errors import Obj

SECRETS = "/api/v1/namespaces/default/secrets"
FOREVER = "exec sleep 1000"


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[NodeHarness]:
    created = NodeHarness(tmp_path)
    await created.create_defaults()
    async with created.node():
        yield created


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def with_volume(edge: NodeHarness, source: Obj, script: str = FOREVER, **more: Any) -> Obj:
    """A pod `one` with the volume at /v."""
    mounts = [{"name": "v", "mountPath": "/v"}]
    container = shell(script, volumeMounts=mounts)
    return await edge.pod("one", containers=[container], volumes=[{"name": "v", **source}], **more)


def contents(directory: Path) -> dict[str, str]:
    """Files by path, without the links of atomic writes."""
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not str(path.relative_to(directory)).startswith("..")
    }


async def test_files_come_of_objects_with_an_annotation_of_another_cluster(edge: NodeHarness) -> None:
    """Some syncers copy the annotation with the logical cluster of the original."""
    annotated = {"name": "site", "annotations": {"kcp.io/cluster": "root:shop"}}
    await edge.hub.create(CONFIG_MAPS, {"metadata": annotated, "data": {"index.html": "first"}})
    created = await with_volume(edge, {"configMap": {"name": "site"}})
    await edge.ready("one")
    assert contents(edge.files(created, "v")) == {"index.html": "first"}


async def test_a_config_map_is_files_that_change_with_it_all_at_once(edge: NodeHarness) -> None:
    await edge.hub.config_map("site", **{"index.html": "first", "style.css": "old"})
    created = await with_volume(edge, {"configMap": {"name": "site"}})
    await edge.ready("one")
    directory = edge.files(created, "v")
    assert contents(directory) == {"index.html": "first", "style.css": "old"}
    assert stat.S_IMODE((directory / "index.html").stat().st_mode) == 0o644
    before = (directory / "..data").readlink()
    await edge.hub.patch(f"{CONFIG_MAPS}/site", {"data": {"index.html": "second", "style.css": None, "more": "x"}})
    await until(lambda: (directory / "..data").readlink() != before)
    assert (directory / "index.html").read_text() == "second"
    await until(lambda: contents(directory) == {"index.html": "second", "more": "x"})
    await until(lambda: not (directory / before).exists())


async def test_changes_of_a_config_map_are_served(edge: NodeHarness) -> None:
    await edge.hub.config_map("site", **{"index.html": "first"})
    mounts = [{"name": "v", "mountPath": "/usr/local/apache2/htdocs", "readOnly": True}]
    ports = [{"containerPort": 80, "hostPort": 8081}]
    container = {"name": "main", "image": "library/httpd:2.4", "ports": ports, "volumeMounts": mounts}
    await edge.pod("one", containers=[container], volumes=[{"name": "v", "configMap": {"name": "site"}}])
    pod = await edge.ready("one")
    said = "library/httpd:2.4 is not run: a small web server of Farflung stands in for it."
    assert [one["message"] for one in pod["status"]["conditions"] if one["type"] == "farflung.io/StandIn"] == [said]
    assert await fetched(edge, 8081) == b"first"
    await edge.hub.patch(f"{CONFIG_MAPS}/site", {"data": {"index.html": "second"}})
    async with asyncio.timeout(60):
        while await fetched(edge, 8081) != b"second":
            await asyncio.sleep(0.01)


async def fetched(edge: NodeHarness, port: int) -> bytes:
    address = edge.ports.numbers[port]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.partition(b"\r\n\r\n")[2]


async def test_items_choose_paths_and_modes(edge: NodeHarness) -> None:
    await edge.hub.config_map("c", a="1", b="2")
    items = [{"key": "a", "path": "deep/er/one", "mode": 0o440}]
    created = await with_volume(edge, {"configMap": {"name": "c", "items": items, "defaultMode": 0o400}})
    await edge.ready("one")
    directory = edge.files(created, "v")
    assert (directory / "deep/er/one").read_text() == "1"
    assert stat.S_IMODE((directory / "deep/er/one").stat().st_mode) == 0o440
    assert sorted(path.name for path in directory.iterdir() if not path.name.startswith("..")) == ["deep"]


async def test_files_of_a_secret_are_in_a_private_directory(edge: NodeHarness) -> None:
    await edge.hub.create(SECRETS, {"metadata": {"name": "s"}, "data": {"key": "dmFsdWU="}})
    created = await with_volume(edge, {"secret": {"secretName": "s", "defaultMode": 0o600}})
    await edge.ready("one")
    directory = edge.files(created, "v")
    assert contents(directory) == {"key": "value"}
    assert stat.S_IMODE((directory / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.parent.parent.stat().st_mode) == 0o700
    await edge.hub.delete(f"{PODS}/one")
    await edge.gone("one")
    assert not directory.exists()


async def test_a_pod_waits_for_a_missing_object_and_reports_it(edge: NodeHarness) -> None:
    await with_volume(edge, {"configMap": {"name": "later"}})
    assert await edge.event("one", "FailedMount") == (
        'MountVolume.SetUp failed for volume "v" : configmap "later" not found'
    )
    pod = await edge.until("one", state)
    assert pod["status"]["phase"] == "Pending"
    assert state(pod)["waiting"]["reason"] == "ContainerCreating"
    await edge.hub.config_map("later", a="b")
    await edge.ready("one")


async def test_a_pod_does_not_wait_for_an_optional_object(edge: NodeHarness) -> None:
    created = await with_volume(edge, {"configMap": {"name": "later", "optional": True}})
    await edge.ready("one")
    assert contents(edge.files(created, "v")) == {}
    await edge.hub.config_map("later", a="b")
    await until(lambda: contents(edge.files(created, "v")) == {"a": "b"})


async def test_files_of_a_deleted_object_stay(edge: NodeHarness) -> None:
    await edge.hub.config_map("c", a="b")
    created = await with_volume(edge, {"configMap": {"name": "c"}})
    await edge.ready("one")
    await edge.hub.delete(f"{CONFIG_MAPS}/c")
    await edge.event("one", "FailedMount")
    assert contents(edge.files(created, "v")) == {"a": "b"}


async def test_the_downward_api_is_files_that_change_with_the_pod(edge: NodeHarness) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {
            "path": "memory",
            "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"},
        },
    ]
    mounts = [{"name": "v", "mountPath": "/v"}]
    container = shell(FOREVER, volumeMounts=mounts, resources={"limits": {"memory": "10Mi"}})
    created = await edge.pod(
        "one", metadata={"labels": {"b": "2", "a": "0"}}, containers=[container],
        volumes=[{"name": "v", "downwardAPI": {"items": items}}],
    )  # fmt: skip
    await edge.ready("one")
    files = edge.files(created, "v")
    assert contents(files) == {"labels": 'a="0"\nb="2"', "name": "one", "memory": "10"}
    await edge.hub.patch(f"{PODS}/one", {"metadata": {"labels": {"a": "1"}}})
    await until(lambda: (files / "labels").read_text() == 'a="1"\nb="2"')


async def test_a_pod_has_the_token_of_its_account(edge: NodeHarness) -> None:
    created = await edge.pod("one", containers=[shell("cat var/run/secrets/kubernetes.io/serviceaccount/*")])
    pod = await edge.until("one", lambda pod: status(pod).get("restartCount", 0) > 0)
    volume = pod["spec"]["volumes"][0]["name"]
    files = contents(edge.files(created, volume))
    assert files["ca.crt"] == "certificate"
    assert files["namespace"] == "default"
    claims = jwt.decode(files["token"], options={"verify_signature": False})
    assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]


async def test_containers_share_an_empty_directory_and_see_parts_of_volumes(edge: NodeHarness) -> None:
    await edge.hub.config_map("c", **{"one.txt": "content"})
    shared = [{"name": "shared", "mountPath": "/shared", "subPath": "inner"}]
    parts = [{"name": "c", "mountPath": "/etc/one.txt", "subPath": "one.txt"}]
    await edge.pod(
        "one",
        containers=[
            shell("cp etc/one.txt shared/copy; exec sleep 1000", volumeMounts=[*shared, *parts]),
            shell("until cat shared/copy; do sleep 0.01; done; echo; exec sleep 1000", "other", volumeMounts=shared),
        ],
        volumes=[{"name": "shared", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}],
    )  # fmt: skip
    pod = await edge.ready("one")
    await until(lambda: "content" in edge.log(pod, "other"))
    assert (edge.files(pod, "shared") / "inner" / "copy").read_text() == "content"


@pytest.mark.parametrize(
    "source, said",
    [
        ({"hostPath": {"path": "/"}}, "hostPath is not allowed on this node"),
        ({"persistentVolumeClaim": {"claimName": "data"}}, 'no persistent volumes; the pod waits for "data"'),
        ({"nfs": {"server": "s", "path": "/"}}, "does not support volumes of type nfs"),
    ],
)
async def test_a_volume_that_this_node_does_not_have_keeps_the_pod_waiting(
    edge: NodeHarness, source: Obj, said: str
) -> None:
    await with_volume(edge, source)
    assert said in await edge.event("one", "FailedMount")
    assert (await edge.until("one", state))["status"]["phase"] == "Pending"


async def test_a_sub_path_must_not_leave_the_volume_by_a_link(edge: NodeHarness) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    await edge.pod(
        "one",
        initContainers=[shell(f"ln -s {edge.directory} v/out", "init", volumeMounts=mounts)],
        containers=[shell(FOREVER, volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "out"}])],
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    pod = await edge.until("one", lambda pod: "outside of" in state(pod).get("waiting", {}).get("message", ""))
    assert state(pod)["waiting"]["reason"] == "CreateContainerConfigError"


# --- variables ------------------------------------------------------------------------------------


async def test_variables_come_from_everywhere(edge: NodeHarness) -> None:
    await edge.hub.config_map("c", A="from-map", B="overridden")
    await edge.hub.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": "hidden"}})
    env = [
        {"name": "B", "value": "own"},
        {"name": "ALL", "value": "$(A)-$(B)-$(P_password)-$$(A)-$(NOTHING)"},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "A"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "nothing", "optional": True}}},
    ]
    sources = [{"configMapRef": {"name": "c"}}, {"prefix": "P_", "secretRef": {"name": "s"}}]
    container = {
        "name": "main", "image": "busybox", "command": ["sh", "-c", "env; echo $0"], "args": ["arg-$(A)"],
        "env": env, "envFrom": sources, "resources": {"limits": {"cpu": "250m"}},
    }  # fmt: skip
    await edge.pod("one", restartPolicy="Never", containers=[container])
    pod = await edge.phase("one", "Succeeded")
    lines = set(edge.log(pod))
    assert {
        "A=from-map", "B=own", "P_password=hidden", "ALL=from-map-own-hidden-$(A)-$(NOTHING)", "KEY=from-map",
        "SECRET=hidden", "NAME=one", "IP=127.0.0.1", "CPU=250", "HOSTNAME=one", "arg-from-map",
    } <= lines  # fmt: skip
    assert not any(line.startswith("MAYBE=") for line in lines)
    assert "hidden" not in str(await edge.events("one")) + edge.lines.getvalue() + str(pod["status"])


async def test_a_container_waits_for_the_source_of_a_variable(edge: NodeHarness) -> None:
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "a"}}}]
    await edge.pod("one", containers=[shell(FOREVER, env=env)])
    pod = await edge.until("one", lambda pod: "message" in state(pod).get("waiting", {}))
    assert state(pod)["waiting"] == {"reason": "CreateContainerConfigError", "message": 'configmap "c" not found'}
    await edge.hub.config_map("c", other="x")
    await edge.until(
        "one", lambda pod: state(pod)["waiting"]["message"] == "couldn't find key a in ConfigMap default/c"
    )
    await edge.hub.patch(f"{CONFIG_MAPS}/c", {"data": {"a": "b"}})
    await edge.ready("one")


@pytest.mark.parametrize(
    "more, said",
    [
        ({"env": [{"name": "A", "value": "x\0y"}]}, "env contains a null character"),
        ({"workingDir": "/x\0y"}, "workingDir contains a null character"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/x\0y"}]}, "mountPath contains a null character"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "x\0y"}]}, "it is outside of the volume"),
    ],
)
async def test_null_characters_are_reported(edge: NodeHarness, more: Obj, said: str) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    await edge.pod("one", containers=[shell(FOREVER, **more)], volumes=volumes)
    pod = await edge.until("one", lambda pod: "message" in state(pod).get("waiting", {}))
    assert state(pod)["waiting"]["reason"] == "CreateContainerConfigError"
    assert said in state(pod)["waiting"]["message"]


async def test_containers_cannot_change_generated_files(edge: NodeHarness) -> None:
    await edge.hub.config_map("site", **{"index.html": "first"})
    volumes = [{"name": "v", "configMap": {"name": "site"}}]
    container = shell(FOREVER, workingDir="/v/work", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    created = await edge.pod("one", containers=[container], volumes=volumes)
    pod = await edge.until("one", lambda pod: "message" in state(pod).get("waiting", {}))
    assert "read-only" in state(pod)["waiting"]["message"]
    assert contents(edge.files(created, "v")) == {"index.html": "first"}
