"""Writes of large objects: workers compute the answers that the hub would give, and the event loop stays free."""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from definitions import DEFINITIONS, INTEGER, STRING, THINGS, definition, struct, thing, version
from hub_harness import (
    ADMIN_TOKEN,
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    PARTIAL,
    PARTIAL_LIST,
    PODS,
    PROTOBUF,
    SERVICES,
    STRATEGIC_PATCH,
    TABLE,
    USER_TOKEN,
    Answer,
    LocalHub,
    deployment,
)
from hub_process import Client, HubProcess
from memory_store import MemoryStore
from policies import bind, policy

from farflung.hub.catalog import objects
from farflung.hub.registry import call as calls
from farflung.hub.registry import large_requests, respond
from farflung.hub.request.audit import Audit
from farflung.lib.worker_pool import JobOwner, JobTerms

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
CONTAINER = {"name": "main", "image": "nginx"}
VARIABLES = [{"name": f"E{number}", "value": "v"} for number in range(25_000)]

Sent = tuple[str, str, Any, dict[str, Any]]  #: method, path, body, and the rest


def sent(method: str, path: str, body: Any = None, **rest: Any) -> Sent:
    return method, path, body, rest


def patched(path: str, body: Any, media: str, **query: Any) -> Sent:
    return sent("PATCH", path, body, query=query, content_type=media)


LISTED: dict[str, Any] = {"type": "array", "items": struct(name=STRING, port=INTEGER) | {"required": ["name"]}}
LISTED |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
STORY: tuple[Sent, ...] = (
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}),
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}),
    sent("POST", CONFIG_MAPS, {"metadata": {"generateName": "g-"}}, accept=TABLE),
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "denied"}, "data": {"k": "denied"}}),
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "Bad Name"}, "unknown": 1, "data": {"k": 1}}),
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "w"}, "unknown": 1}),
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "s"}, "unknown": 1}, query={"fieldValidation": "Strict"}),
    sent("POST", CONFIG_MAPS, {"kind": "Thing", "apiVersion": "example.com/v1", "metadata": {"name": "b"}}),
    sent("POST", CONFIG_MAPS, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "b"}}),
    sent("POST", CONFIG_MAPS, b"{", content_type="application/json"),
    sent("POST", CONFIG_MAPS, "metadata: {name: yaml}\ndata: {k: v}", content_type="application/yaml"),
    sent("POST", CONFIG_MAPS, {"metadata": {"name": "over"}}),  # the quota
    sent("POST", "/api/v1/namespaces/none/configmaps", {"metadata": {"name": "a"}}),
    sent("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "w"}}),
    sent("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a", "resourceVersion": "1"}}),
    sent("PUT", f"{CONFIG_MAPS}/none", {"metadata": {"name": "none"}}),
    sent("GET", f"{CONFIG_MAPS}/a", accept="application/yaml"),
    sent("GET", f"{CONFIG_MAPS}/a", accept=PROTOBUF),
    sent("GET", f"{CONFIG_MAPS}/a", accept=TABLE, query={"includeObject": "Object"}),
    sent("GET", CONFIG_MAPS, accept="application/yaml"),
    sent("GET", CONFIG_MAPS, accept=PROTOBUF),
    sent("GET", CONFIG_MAPS, accept=TABLE, query={"includeObject": "Object"}),
    sent("GET", CONFIG_MAPS, accept=PARTIAL_LIST),
    sent("GET", f"{CONFIG_MAPS}/none", accept=TABLE),
    sent("GET", f"{CONFIG_MAPS}/a", accept="text/plain"),
    sent("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "dry"}}, query={"dryRun": "All"}),
    patched(f"{CONFIG_MAPS}/a", {"data": {"k": None, "l": "v"}}, MERGE_PATCH),
    patched(f"{CONFIG_MAPS}/a", [{"op": "add", "path": "/data/m", "value": "v"}], JSON_PATCH),
    patched(f"{CONFIG_MAPS}/a", [{"op": "test", "path": "/data/m", "value": "w"}], JSON_PATCH),
    patched(f"{CONFIG_MAPS}/a", {"metadata": {"name": "other"}}, MERGE_PATCH),
    patched(f"{CONFIG_MAPS}/a", {"data": {"l": "w"}}, APPLY_PATCH, fieldManager="ann"),
    patched(
        f"{CONFIG_MAPS}/a",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "ann"}},
        APPLY_PATCH,
        fieldManager="ann",
    ),
    patched(
        f"{CONFIG_MAPS}/a",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "ann"}},
        APPLY_PATCH,
        fieldManager="ann",
        force="true",
    ),
    sent("DELETE", f"{CONFIG_MAPS}/a", {"preconditions": {"uid": "x"}}),
    sent("DELETE", f"{CONFIG_MAPS}/a"),
    patched(f"{CONFIG_MAPS}/n", {"apiVersion": "v1", "kind": "ConfigMap"}, APPLY_PATCH, fieldManager="ann"),
    sent("POST", DEPLOYMENTS, deployment("d", replicas=1)),
    patched(
        f"{DEPLOYMENTS}/d",
        {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "i"}]}}}},
        STRATEGIC_PATCH,
    ),
    patched(f"{DEPLOYMENTS}/d", {"spec": {"template": {"spec": {"containers": 1}}}}, STRATEGIC_PATCH),
    patched(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}}, MERGE_PATCH),
    patched(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 3}, "spec": {"replicas": 4}}, MERGE_PATCH),
    sent("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}),
    sent("POST", PODS, {"metadata": {"name": "q"}, "spec": {"containers": [CONTAINER], "serviceAccountName": "none"}}),
    sent("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5}),
    sent("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
    sent("POST", SERVICES, {"metadata": {"name": "s2"}, "spec": {"ports": []}}),
    patched(f"{SERVICES}/s", {"spec": {"type": "ClusterIP"}}, MERGE_PATCH),
    sent("POST", DEFINITIONS, definition(version(items=LISTED, a=STRING), plural="others", kind="Other")),
    sent("POST", THINGS, thing("t", items=[{"name": "a", "port": 1}], more=1)),
    sent("POST", THINGS, thing("u", items=[{"name": "a"}, {"name": "a"}])),
    sent("PUT", f"{THINGS}/t", thing("t")),
    patched(f"{THINGS}/t", {**thing("t", items=[{"name": "b"}])}, APPLY_PATCH, fieldManager="ann"),
    patched(f"{THINGS}/t", {"spec": {"a": 1}}, MERGE_PATCH),
    sent("DELETE", f"{THINGS}/t"),
)


async def told(story: tuple[Sent, ...]) -> tuple[list[Answer], list[str], LocalHub]:
    """The answers of a hub, and its audit lines."""
    uids, suffixes = itertools.count(), itertools.count()
    hub = LocalHub(MemoryStore(stamp=objects.stamp), new_uid=lambda: f"uid-{next(uids)}")
    hub.suffix = lambda: f"{next(suffixes):05}"
    await hub.furnish()
    await hub.create(DEFINITIONS, definition(version(items=LISTED, a=STRING)))
    await hub.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "4"}}})
    await bind(hub, policy("no", "!has(object.data) || !object.data.exists(k, object.data[k] == 'denied')"))
    await bind(hub, policy("hm", "object.metadata.name != 'w'"), "Warn")
    lines: list[str] = []
    hub.function.audit = Audit(lambda line, size: lines.append(line().partition(" ms=")[0]))
    answers = [await hub.request(method, path, body, **rest) for method, path, body, rest in story]
    return answers, lines, hub


async def test_a_worker_gives_the_answers_that_the_hub_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
    here, lines, hub = await told(STORY)
    monkeypatch.setattr(large_requests, "LARGE", -1)
    for name in ("LARGE_YAML", "LARGE_READ"):
        monkeypatch.setattr(large_requests, name, -1)
    monkeypatch.setattr(respond, "AT_ONCE", -1)

    computed, audited, another = await told(STORY)

    assert hub.assembly.workers.finished == 0
    assert another.assembly.workers.finished > 0.9 * len(STORY)
    for request, expected, answer in zip(STORY, here, computed, strict=True):
        assert answer == expected, request
    assert audited == lines
    assert another.store.revision == hub.store.revision
    another.assembly.workers.close()


@pytest.mark.parametrize("accept", [TABLE, PARTIAL])
async def test_a_worker_encodes_the_initial_events_that_the_hub_would_send(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    for name in "abc":
        await hub.config_map(name, k=name)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    here = await (await hub.watch(CONFIG_MAPS, query, accept=accept)).next(4)
    monkeypatch.setattr(respond, "AT_ONCE", -1)
    watch = await hub.watch(CONFIG_MAPS, {**query, "labelSelector": "x!=y"}, accept=accept)
    await hub.delete(f"{CONFIG_MAPS}/b")
    assert (await watch.next(5))[:4] == here
    assert [event["type"] for event in watch.events] == ["ADDED"] * 3 + ["BOOKMARK", "DELETED"]
    assert hub.assembly.workers.finished == 4


async def test_small_requests_are_computed_while_large_ones_wait(hub: LocalHub) -> None:
    workers, held = hub.assembly.workers, asyncio.Event()

    async def hold(question: object) -> None:
        await held.wait()

    others = [JobTerms(JobOwner("workloads", name, name), 60.0) for name in "abcd"]
    busy = [asyncio.create_task(workers.converse(other, hold, operator.call, "")) for other in others]
    large = [asyncio.create_task(hub.post(CONFIG_MAPS, configured("large", 4000))) for _ in range(16)]
    while workers.waiting < 16:
        await asyncio.sleep(0)

    await hub.config_map("small")
    refused = await hub.post(CONFIG_MAPS, configured("large", 4000))

    assert (refused.status, refused.reason) == (429, "TooManyRequests")
    assert dict(refused.headers)["Retry-After"] == "1"
    held.set()
    assert sorted(answer.status for answer in await asyncio.gather(*large)) == [201, *[409] * 15]
    await asyncio.gather(*busy)
    workers.close()


def configured(name: str, keys: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {f"k{number}": "value" for number in range(keys)}}


async def test_a_large_apply_does_not_wait_for_the_yaml_bodies_of_another_user(hub: LocalHub) -> None:
    subject = {"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    await hub.furnish_roles()
    bound = {"metadata": {"name": "somebody"}, "subjects": [subject], "roleRef": role}
    await hub.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound)
    hub.token = USER_TOKEN
    text = "metadata: {name: yaml}\ndata: {" + ",".join(f"k{number}: v" for number in range(9_000)) + "}"
    bodies = [asyncio.create_task(hub.post(CONFIG_MAPS, text, content_type="application/yaml")) for _ in range(4)]
    await asyncio.sleep(0)
    hub.token = ADMIN_TOKEN
    applied = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": configured("a", 4000)["data"],
    }
    applying = hub.patch(f"{CONFIG_MAPS}/a", applied, APPLY_PATCH, query={"fieldManager": "ann"})
    admin = asyncio.create_task(applying)
    await asyncio.sleep(0)

    assert (hub.assembly.workers.running, hub.assembly.workers.waiting) == (3, 2)  # two of the bodies wait
    assert (await admin).status == 201
    assert sorted(answer.status for answer in await asyncio.gather(*bodies)) == [201, *[409] * 3]


async def test_a_request_that_takes_too_long_is_answered_with_504(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "JOB_SECONDS", 0.0)
    with hub.writes_nothing():
        answer = await hub.post(CONFIG_MAPS, configured("large", 4000))
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message == "the request took longer than 0 seconds to compute; send smaller objects"


async def test_a_request_whose_worker_ends_writes_nothing_and_keeps_no_address(hub: LocalHub) -> None:
    await hub.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/services": "1"}}})
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 2000)]
    service = {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.0.77", "ports": ports}}
    reserve = hub.quotas.reserve

    def reserve_and_kill(*args: Any, **named: Any) -> Any:
        release = reserve(*args, **named)
        (worker,) = hub.assembly.workers._workers
        os.kill(worker.pid, signal.SIGKILL)
        return release

    object.__setattr__(hub.quotas, "reserve", reserve_and_kill)
    with hub.writes_nothing():
        answer = await hub.post(SERVICES, service)
    assert (answer.status, answer.reason) == (503, "ServiceUnavailable")

    hub.quotas.reserve = reserve  # type: ignore[method-assign]
    assert (await hub.post(SERVICES, service)).status == 201


async def test_a_question_with_a_large_body_is_refused(hub: LocalHub) -> None:
    groups = [f"group-{number}" for number in range(25_000)]
    review = {"spec": {"user": "ann", "groups": groups, "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    answer = await hub.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert (answer.status, answer.message) == (413, "Request entity too large: limit is 262144")


# --- the event loop of a real hub -----------------------------------------------------------------


def long_turns(client: Client) -> int:
    text = client.text("/metrics")
    return int(float(text.partition("\nfarflung_event_loop_long_turns_total ")[2].split()[0]))


def large_objects() -> dict[str, tuple[str, dict[str, Any]]]:
    metadata = {"name": "large"}
    wide = deployment("large")
    wide["spec"]["template"]["spec"]["containers"][0]["env"] = VARIABLES
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{number}"]} for number in range(15_000)]
    owned = {f"a.b/f{number}": "" for number in range(15_000)}
    return {
        "ConfigMap": (CONFIG_MAPS, configured("large", 30_000)),
        "Deployment": (DEPLOYMENTS, wide),
        "Role": ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", {"metadata": metadata, "rules": rules}),
        "labels": (CONFIG_MAPS, {"metadata": {"name": "labels", "labels": owned}}),
        "Thing": (THINGS, thing("large", items=[{"name": f"n{number}", "port": 1} for number in range(20_000)])),
    }


@pytest.mark.slow
def test_no_large_write_holds_the_event_loop(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub")
    try:
        with hub.client() as client:
            client.create(DEFINITIONS, definition(version(items=LISTED, a=STRING)))
            before = long_turns(client)
            for path, obj in large_objects().values():
                at = f"{path}/{obj['metadata']['name']}"
                typed = {"apiVersion": "v1", "kind": "ConfigMap", **obj}
                writes = [
                    ("POST", path, orjson.dumps(obj), "application/json"),
                    ("PATCH", at, b'{"metadata":{"annotations":{"a":"b"}}}', MERGE_PATCH),
                    ("PUT", at, orjson.dumps(obj), "application/json"),
                ][: 2 if path == THINGS else 3]  # a custom resource needs its resourceVersion
                for media in ("application/yaml", TABLE, PROTOBUF):
                    writes.insert(1, ("GET", at, None, media))
                for method, where, body, media in writes:
                    answer = client.request(method, where, body, {"Content-Type" if body else "Accept": media})
                    assert answer.status in (200, 201) or media is PROTOBUF, (method, where, answer.body[:500])
                    typed = answer.json if body else typed
                if path != THINGS:  # they have no strategic merge patches
                    answer = client.request("PATCH", at, orjson.dumps(obj), {"Content-Type": STRATEGIC_PATCH})
                    assert answer.status == 200, answer.body[:500]
                applied = {name: typed[name] for name in typed if name in ("apiVersion", "kind", *obj)}
                applied["metadata"] = obj["metadata"]
                where = f"{at}?fieldManager=ann&force=true"
                answer = client.request("PATCH", where, orjson.dumps(applied), {"Content-Type": APPLY_PATCH})
                assert answer.status in (200, 413), answer.body[:500]  # two managers of so many fields
                assert client.request("DELETE", at).status == 200
            text = yaml.dump({"metadata": {"name": "yaml"}, "data": {f"k{number}": "v" for number in range(9_000)}})
            for _ in range(4):
                client.request("POST", CONFIG_MAPS, text.encode(), {"Content-Type": "application/yaml"})
            assert long_turns(client) == before
        assert hub.trouble() == []
    finally:
        hub.kill()
