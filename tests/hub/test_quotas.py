"""ResourceQuotas: what they let in, what they refuse, and in which words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from examples import examples
from hub_harness import CONFIG_MAPS, PODS, SERVICES, LocalHub, pod
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore

from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.store.base import Entry, Revision

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def limit(hub: LocalHub, name: str = "q", scopes: list[str] | None = None, **hard: Any) -> None:
    """Names of resources are written with underscores."""
    amounts = {key.replace("__", "/").replace("_", "."): str(value) for key, value in hard.items()}
    await hub.create(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": amounts, "scopes": scopes}})


def container(name: str = "main", **resources: dict[str, str]) -> Obj:
    return {"name": name, "image": "nginx", "resources": resources}


def sized(name: str, *containers: Obj, **spec: Any) -> Obj:
    return pod(name, containers=list(containers), **spec)


def claim(name: str, storage: str, storage_class: str = "") -> Obj:
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": spec}


async def test_what_is_counted_is_counted(hub: LocalHub) -> None:
    await limit(hub, count__configmaps=2, configmaps=3)
    await hub.config_map("a")
    await hub.config_map("b")
    answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'configmaps "c" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, '
        "limited: count/configmaps=2"
    )
    await hub.delete(f"{CONFIG_MAPS}/a")
    await hub.config_map("c")


async def test_what_was_there_before_the_quota_counts(hub: LocalHub) -> None:
    await hub.config_map("a")
    await limit(hub, configmaps=1)
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "b"}})).status == 403
    assert (await hub.put(f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"x": "y"}})).status == 200


async def test_a_quota_that_grows_lets_more_in(hub: LocalHub) -> None:
    await limit(hub, configmaps=0)
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 403
    await hub.patch(f"{QUOTAS}/q", {"spec": {"hard": {"configmaps": "1"}}})
    await hub.config_map("a")
    await hub.delete(f"{QUOTAS}/q")
    await hub.config_map("b")


async def test_dry_runs_and_refused_objects_take_nothing(hub: LocalHub) -> None:
    await limit(hub, configmaps=1)
    for _ in range(3):
        assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}}, {"dryRun": "All"})).status == 201
        assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "A"}})).status == 422
        assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "a/b"}})).status == 422
        assert (await hub.post(CONFIG_MAPS, {"metadata": {}})).status == 422
    await hub.config_map("a")
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 403


async def test_a_generated_name_that_was_taken_takes_no_room_twice(hub: LocalHub) -> None:
    await limit(hub, configmaps=3)
    await hub.config_map("a-11111")
    suffixes = iter(["11111", "22222", "33333"])
    hub.suffix = lambda: next(suffixes)
    await hub.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}})
    await hub.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}})
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "c"}})).status == 403


async def test_compute_must_be_said_where_it_is_limited(hub: LocalHub) -> None:
    await limit(hub, requests_cpu=2, limits_memory="1Gi")
    answer = await hub.post(PODS, sized("p", container("b"), container("a", requests={"cpu": "1"})))
    assert answer.message == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: a,b; requests.cpu for: b'
    )


async def test_compute_is_added_up(hub: LocalHub) -> None:
    await limit(hub, requests_cpu=2, limits_memory="1Gi", pods=10)
    half = container(requests={"cpu": "750m"}, limits={"memory": "400Mi"})
    await hub.create(PODS, sized("a", half))
    await hub.create(PODS, sized("b", half))
    answer = await hub.post(PODS, sized("c", half))
    assert answer.message == (
        'pods "c" is forbidden: exceeded quota: q, requested: limits.memory=400Mi,requests.cpu=750m, '
        "used: limits.memory=800Mi,requests.cpu=1500m, limited: limits.memory=1Gi,requests.cpu=2"
    )


async def test_a_pod_that_has_ended_gives_its_share_back(hub: LocalHub) -> None:
    await limit(hub, pods=1, count__pods=2)
    await hub.create(PODS, pod("a"))
    assert (await hub.post(PODS, pod("b"))).status == 403
    assert (await hub.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})).status == 200
    await hub.create(PODS, pod("b"))
    answer = await hub.post(PODS, pod("c"))
    assert answer.message.endswith(
        "exceeded quota: q, requested: count/pods=1,pods=1, used: count/pods=2,pods=1, limited: count/pods=2,pods=1"
    )


async def test_containers_that_start_before_the_others_count_by_the_most(hub: LocalHub) -> None:
    await limit(hub, requests_cpu=5)
    main = [container("a", requests={"cpu": "1"}), container("b", requests={"cpu": "1"})]
    first = container("first", requests={"cpu": "3"})
    stays = container("stays", requests={"cpu": "1"}) | {"restartPolicy": "Always"}
    assert (await hub.post(PODS, sized("p", *main, initContainers=[stays, first]))).status == 201
    answer = await hub.post(PODS, sized("q", container(requests={"cpu": "2"})))
    assert "used: requests.cpu=4," in answer.message


@pytest.mark.parametrize(
    ("scope", "spec", "counted"),
    [
        ("BestEffort", {}, True),
        ("NotBestEffort", {}, False),
        ("Terminating", {"activeDeadlineSeconds": 10}, True),
        ("Terminating", {}, False),
        ("NotTerminating", {}, True),
        ("PriorityClass", {}, False),
        ("PriorityClass", {"priorityClassName": "high"}, True),
        ("CrossNamespacePodAffinity", {}, False),
    ],
)
async def test_scopes_choose_pods(hub: LocalHub, scope: str, spec: Obj, counted: bool) -> None:
    await hub.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
    await limit(hub, scopes=[scope], pods=0)
    assert (await hub.post(PODS, pod("a", **spec))).status == (403 if counted else 201)


@pytest.mark.parametrize(
    ("operator", "values", "counted"),
    [("In", ["high"], True), ("In", ["low"], False), ("NotIn", ["high"], False), ("DoesNotExist", None, False)],
)
async def test_a_selector_of_scopes_chooses_priorities(
    hub: LocalHub, operator: str, values: list[str] | None, counted: bool
) -> None:
    await hub.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [expression]}}
    await hub.create(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    assert (await hub.post(PODS, pod("a", priorityClassName="high"))).status == (403 if counted else 201)


async def test_services_are_counted_by_what_they_take(hub: LocalHub) -> None:
    await limit(hub, services_nodeports=2, services_loadbalancers=1)
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    await hub.create(SERVICES, {"metadata": {"name": "plain"}, "spec": {"ports": ports}})
    await hub.create(SERVICES, {"metadata": {"name": "ports"}, "spec": {"type": "NodePort", "ports": ports}})
    refused = await hub.patch(f"{SERVICES}/plain", {"spec": {"type": "NodePort"}})
    assert refused.message == (
        'services "plain" is forbidden: exceeded quota: q, requested: services.nodeports=2, '
        "used: services.nodeports=2, limited: services.nodeports=2"
    )
    assert (await hub.patch(f"{SERVICES}/ports", {"spec": {"type": "ClusterIP"}})).status == 200
    assert (await hub.patch(f"{SERVICES}/plain", {"spec": {"type": "NodePort"}})).status == 200


async def test_storage_is_counted_by_class_and_may_not_outgrow_its_quota(hub: LocalHub) -> None:
    fast = "fast.storageclass.storage.k8s.io/requests.storage"
    spec = {"hard": {"requests.storage": "10Gi", fast: "3Gi"}}
    await hub.create(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    await hub.create(CLAIMS, claim("a", "2Gi", "fast"))
    refused = await hub.post(CLAIMS, claim("b", "2Gi", "fast"))
    assert refused.message.endswith(f"requested: {fast}=2Gi, used: {fast}=2Gi, limited: {fast}=3Gi")
    await hub.create(CLAIMS, claim("c", "8Gi", "slow"))
    assert (await hub.post(CLAIMS, claim("d", "1"))).status == 403


async def test_custom_resources_are_counted(hub: LocalHub) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await hub.create(DEFINITIONS, {"metadata": {"name": "things.example.com"}, "spec": spec})
    spec = {"hard": {"count/things.example.com": "1"}}
    await hub.create(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    things = "/apis/example.com/v1/namespaces/default/things"
    thing = {"apiVersion": "example.com/v1", "kind": "Thing"}
    await hub.create(things, thing | {"metadata": {"name": "a"}})
    refused = await hub.post(things, thing | {"metadata": {"name": "b"}})
    assert refused.message == (
        'things.example.com "b" is forbidden: exceeded quota: q, requested: count/things.example.com=1, '
        "used: count/things.example.com=1, limited: count/things.example.com=1"
    )


async def test_another_namespace_has_room_of_its_own(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await limit(hub, configmaps=0)
    await hub.create("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "a"}})


# --- races ----------------------------------------------------------------------------------------


class Slow(MemoryStore):
    """A write takes a few turns of the loop, as on a disk."""

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().put(key, value, expect=expect)

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        await asyncio.sleep(0)
        return await super().delete(key, expect=expect)


async def test_creates_that_race_get_no_more_than_there_is() -> None:
    hub = await LocalHub(Slow(stamp=objects.stamp)).furnish()
    await limit(hub, configmaps=5)
    answers = await asyncio.gather(*(hub.post(CONFIG_MAPS, {"metadata": {"name": f"a{n}"}}) for n in range(20)))
    assert sorted(answer.status for answer in answers) == [201] * 5 + [403] * 15
    answers = await asyncio.gather(
        *(hub.delete(f"{CONFIG_MAPS}/{name}") for name in (await hub.get(CONFIG_MAPS)).names)
    )
    answers = await asyncio.gather(*(hub.post(CONFIG_MAPS, {"metadata": {"name": f"a{n % 4}"}}) for n in range(20)))
    assert [answer.status for answer in answers].count(201) == 4
    assert {answer.status for answer in answers} <= {201, 403, 409}
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "last"}})).status == 201
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "too-much"}})).status == 403


steps = st.lists(
    st.tuples(st.sampled_from(["create", "create", "end", "delete", "quota"]), st.integers(0, 4), st.integers(1, 3)),
    max_size=15,
)


@settings(max_examples=examples(40))
@given(st.lists(steps, min_size=1, max_size=3))
async def test_the_books_say_what_a_recount_says_and_nothing_is_over_admitted(batches: list[Any]) -> None:
    hub = await LocalHub(Slow(stamp=objects.stamp)).furnish()
    await limit(hub, pods=3, requests_cpu=6)

    async def step(action: str, number: int, amount: int) -> None:
        match action:
            case "create":
                await hub.post(PODS, sized(f"p{number}", container(requests={"cpu": str(amount)})))
            case "end":
                await hub.patch(f"{PODS}/p{number}/status", {"status": {"phase": "Failed"}})
            case "delete":
                await hub.delete(f"{PODS}/p{number}", {"gracePeriodSeconds": 0})
            case "quota":
                await hub.patch(f"{QUOTAS}/q", {"spec": {"hard": {"pods": "3"}}, "metadata": {"labels": {"a": "b"}}})

    for batch in batches:
        await asyncio.gather(*(step(*one) for one in batch))
        listed = (await hub.get(PODS)).json["items"]
        alive = [one for one in listed if one.get("status", {}).get("phase") != "Failed"]
        cpu = sum(int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for one in alive)
        usage = hub.quotas.usage_of("/core/resourcequotas/root/default/q")
        assert usage is not None
        assert {name: str(amount) for name, amount in usage.taken().items()} == {
            "pods": str(len(alive)),
            "requests.cpu": str(cpu),
        }
        assert len(alive) <= 3
        assert cpu <= 6
