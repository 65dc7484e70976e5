"""LimitRanges: what new Pods and claims get, and what they are refused for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hub_harness import PODS, LocalHub, pod

from farflung.machinery.errors import Obj

RANGES = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def limit(hub: LocalHub, kind: str, name: str = "l", **limits: Any) -> None:
    await hub.create(RANGES, {"metadata": {"name": name}, "spec": {"limits": [{"type": kind, **limits}]}})


def sized(*containers: Obj, **spec: Any) -> Obj:
    return pod("p", containers=[{"image": "nginx", **one} for one in containers], **spec)


async def test_containers_get_what_they_do_not_say(hub: LocalHub) -> None:
    default, request = {"cpu": "500m", "memory": "1Gi"}, {"cpu": "100m"}
    await limit(hub, "Container", default=default, defaultRequest=request)
    said = {"name": "said", "resources": {"limits": {"cpu": "2"}}}
    created = await hub.create(
        PODS, sized({"name": "silent"}, said, initContainers=[{"name": "first", "image": "nginx"}])
    )
    silent, told = (one["resources"] for one in created["spec"]["containers"])
    assert silent == {"limits": default, "requests": {"cpu": "100m", "memory": "1Gi"}}
    assert told == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
    assert created["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container silent; "
        "cpu, memory limit for container silent; memory request for container said; memory limit for container said; "
        "cpu, memory request for init container first; cpu, memory limit for init container first"
    }


@pytest.mark.parametrize(
    ("limits", "resources", "why"),
    [
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "500m"}}, "minimum cpu usage per Pod is 1, but request is 500m"),
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Pod is 1, but limit is 2"),
        ({"max": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "200m"}, "limits": {"cpu": "500m"}},
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 2.500000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}},
            "cpu max limit to request ratio per Pod is 2, but no limit is specified or limit is 0",
        ),
        (
            {"min": {"cpu": "1"}, "max": {"memory": "1Gi"}},
            {},
            "[minimum cpu usage per Pod is 1.  No request is specified, "
            "maximum memory usage per Pod is 1Gi.  No limit is specified]",
        ),
    ],
)
async def test_pods_keep_within_bounds(hub: LocalHub, limits: Obj, resources: Obj, why: str) -> None:
    await limit(hub, "Pod", **limits)
    answer = await hub.post(PODS, sized({"name": "c", "resources": resources}))
    assert (answer.status, answer.message) == (403, f'pods "p" is forbidden: {why}')


async def test_each_container_keeps_within_bounds(hub: LocalHub) -> None:
    await limit(hub, "Container", max={"cpu": "1"}, default={"cpu": "1"})
    small, large = {"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "2"}}}
    answer = await hub.post(PODS, sized(small, large))
    assert answer.message == 'pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
    assert (await hub.post(PODS, sized(small))).status == 201


async def test_claims_keep_within_bounds(hub: LocalHub) -> None:
    await limit(hub, "PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "5Gi"})

    def claim(storage: str) -> Obj:
        resources = {"requests": {"storage": storage}}
        return {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}

    small, large = await hub.post(CLAIMS, claim("500Mi")), await hub.post(CLAIMS, claim("6Gi"))
    start = 'persistentvolumeclaims "c" is forbidden: '
    assert small.message == start + "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"
    assert large.message == start + "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"
    assert (await hub.post(CLAIMS, claim("2Gi"))).status == 201


async def test_pods_that_name_no_priority_get_the_default_one(hub: LocalHub) -> None:
    for name, value in (("a", 30), ("b", 20)):
        await hub.create(PRIORITIES, {"metadata": {"name": name}, "value": value, "globalDefault": True})
    await hub.create(PRIORITIES, {"metadata": {"name": "c"}, "value": 10, "description": '"globalDefault":true'})
    created = await hub.create(PODS, pod("p"))
    assert (created["spec"]["priority"], created["spec"]["priorityClassName"]) == (20, "b")


async def test_a_namespace_that_closes_while_a_pod_waits_for_its_account_stays_closed(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "late"}})
    waiting = asyncio.create_task(hub.post("/api/v1/namespaces/late/pods", pod("p")))
    await asyncio.sleep(0)
    await hub.create("/api/v1/namespaces/late/serviceaccounts", {"metadata": {"name": "default"}})
    await hub.delete("/api/v1/namespaces/late")
    answer = await waiting
    assert answer.status == 403
    assert answer.message.endswith("because it is being terminated")
