"""pods/eviction, and the budgets that may forbid it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hub_harness import PODS, LocalHub, pod
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.endpoints import pods as evictions
from farflung.machinery.errors import ApiError, Obj

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def eviction(name: str, **options: Any) -> Obj:
    body: Obj = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return body | {"deleteOptions": options} if options else body


async def running(hub: LocalHub, name: str, *, ready: bool = True, **metadata: Any) -> Obj:
    wanted = pod(name, nodeName="florin")
    wanted["metadata"] |= {"labels": {"app": "web"}, **metadata}
    created = await hub.create(PODS, wanted)
    status = READY if ready else {"phase": "Running"}
    await hub.patch(f"{PODS}/{name}/status", {"status": status})
    return created


async def budget(hub: LocalHub, name: str = "web", **spec: Any) -> None:
    selector = {"matchLabels": {"app": "web"}}
    await hub.create(BUDGETS, {"metadata": {"name": name}, "spec": {"selector": selector, **spec}})


async def evicted(hub: LocalHub, name: str) -> bool:
    answer = await hub.post(f"{PODS}/{name}/eviction", eviction(name))
    assert answer.status in (201, 429), answer.body
    return answer.status == 201


async def test_an_evicted_pod_is_being_deleted(hub: LocalHub) -> None:
    await running(hub, "p")

    answer = await hub.post(f"{PODS}/p/eviction", eviction("p", gracePeriodSeconds=7))

    assert answer.status == 201
    assert answer.json == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert (await hub.get(f"{PODS}/p")).json["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_an_eviction_may_insist_on_the_pod_it_saw_and_may_be_for_show(hub: LocalHub) -> None:
    await running(hub, "p")

    with hub.writes_nothing():
        another = await hub.post(f"{PODS}/p/eviction", eviction("p", preconditions={"uid": "another"}))
        shown = await hub.post(f"{PODS}/p/eviction", eviction("p"), query={"dryRun": "All"})
        also_shown = await hub.post(f"{PODS}/p/eviction", eviction("p", dryRun=["All"]))
        misnamed = await hub.post(f"{PODS}/p/eviction", eviction("q"))
        nobody = await hub.post(f"{PODS}/q/eviction", eviction("q"))

    assert (another.status, another.reason) == (409, "Conflict")
    assert (shown.status, also_shown.status) == (201, 201)
    assert misnamed.message == "name in URL does not match name in Eviction object"
    assert nobody.message == 'pods "q" not found'


async def test_a_budget_lets_as_many_pods_go_as_it_can_spare(hub: LocalHub) -> None:
    await budget(hub, minAvailable=2)
    for name in "abc":
        await running(hub, name)

    first = await hub.post(f"{PODS}/a/eviction", eviction("a"))
    second = await hub.post(f"{PODS}/b/eviction", eviction("b"))

    assert first.status == 201
    assert (second.status, second.reason) == (429, "TooManyRequests")
    assert second.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = second.json["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget web needs 2 healthy pods and has 2 currently"
    status = (await hub.get(f"{BUDGETS}/web")).json["status"]
    assert (status["disruptionsAllowed"], status["currentHealthy"], status["expectedPods"]) == (0, 3, 3)


async def test_of_evictions_at_once_no_more_pass_than_the_budget_has(hub: LocalHub) -> None:
    await budget(hub, maxUnavailable=2)
    for name in "abcde":
        await running(hub, name)

    passed = await asyncio.gather(*(evicted(hub, name) for name in "abcde"))

    assert sum(passed) == 2


async def test_pods_are_expected_to_be_as_many_as_their_maker_wants(hub: LocalHub) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    made = await hub.create(
        REPLICA_SETS,
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    )
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": made["metadata"]["uid"]}
    await budget(hub, maxUnavailable="25%")
    for name in "abc":
        await running(hub, name, ownerReferences=[owner | {"controller": True}])

    assert not await evicted(hub, "a"), "of four only three are there"
    await running(hub, "d", ownerReferences=[owner | {"controller": True}])
    assert await evicted(hub, "a")
    assert not await evicted(hub, "b")


async def test_what_does_not_serve_may_go_if_the_others_suffice(hub: LocalHub) -> None:
    await budget(hub, minAvailable=1)
    await running(hub, "serves")
    await running(hub, "does-not", ready=False)

    assert await evicted(hub, "does-not")
    assert not await evicted(hub, "serves")


async def test_a_pod_in_two_budgets_cannot_be_evicted(hub: LocalHub) -> None:
    await budget(hub, "one", minAvailable=0)
    await budget(hub, "two", minAvailable=0)
    await running(hub, "p")

    answer = await hub.post(f"{PODS}/p/eviction", eviction("p"))

    assert answer.status == 500
    assert answer.message.startswith("This pod has more than one PodDisruptionBudget")


NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
COUNTS = st.one_of(st.integers(0, 6), st.integers(0, 100).map("{}%".format))


@given(st.integers(0, 6), st.sampled_from(["minAvailable", "maxUnavailable"]), COUNTS)
def test_what_is_spent_one_by_one_is_what_the_words_of_the_budget_allow(pods: int, field: str, value: Any) -> None:
    there = [{"metadata": {"name": str(number)}, "status": READY} for number in range(pods)]
    one: Obj = {"metadata": {"name": "b", "generation": 1}, "spec": {field: value}}
    gone = 0
    for each in there:
        status = evictions.budget_status(one, there, pods, NOW)
        try:
            one["status"] = evictions.status_after_eviction(one, each, status, NOW)
        except ApiError as error:
            assert error.code == 429
            break
        gone += 1
    meant = value if isinstance(value, int) else -(-pods * int(value[:-1]) // 100)
    assert gone == (max(pods - meant, 0) if field == "minAvailable" else min(meant, pods))


def test_what_was_to_go_and_is_still_there_counts_again_after_a_while() -> None:
    there = [{"metadata": {"name": "a"}, "status": READY}]
    one: Obj = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 0},
        "status": {"disruptedPods": {"a": "2024-05-01T11:57:00Z"}},
    }

    status = evictions.budget_status(one, there, 1, NOW)

    assert status["currentHealthy"] == 1
    assert "disruptedPods" not in status


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_nothing_is_disrupted_by_the_end_of_what_does_not_run(phase: str) -> None:
    assert evictions.is_exempt({"metadata": {}, "status": {"phase": phase}})
