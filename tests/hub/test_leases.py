"""Leases: of those who want one at the same time, one gets it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hub_harness import LocalHub

from farflung.machinery.errors import Obj
from farflung.machinery.times import format_micros

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def lease(hub: LocalHub, holder: str, **metadata: str) -> Obj:
    now = format_micros(hub.now)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
    return {"metadata": {"name": "leader", **metadata}, "spec": spec}


async def test_of_concurrent_creates_of_a_lease_one_succeeds(hub: LocalHub) -> None:
    answers = await asyncio.gather(*(hub.post(LEASES, lease(hub, f"c{number}")) for number in range(5)))
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409, 409]


async def test_of_concurrent_updates_of_a_lease_one_succeeds(hub: LocalHub) -> None:
    seen = await hub.create(LEASES, lease(hub, "old"))
    hub.later(20)
    version = seen["metadata"]["resourceVersion"]
    answers = await asyncio.gather(
        *(hub.put(f"{LEASES}/leader", lease(hub, f"c{number}", resourceVersion=version)) for number in range(5))
    )
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409]
    (winner,) = [answer.json for answer in answers if answer.status == 200]
    assert (await hub.get(f"{LEASES}/leader")).json == winner


async def test_nobody_takes_one_without_having_seen_it(hub: LocalHub) -> None:
    await hub.create(LEASES, lease(hub, "old"))
    answer = await hub.put(f"{LEASES}/leader", lease(hub, "new"))
    assert answer.status == 422
    assert "metadata.resourceVersion" in answer.message


async def test_an_update_creates_one_that_is_not_there(hub: LocalHub) -> None:
    answer = await hub.put(f"{LEASES}/leader", lease(hub, "first"))
    assert (answer.status, answer.json["spec"]["holderIdentity"]) == (201, "first")


async def test_times_keep_their_microseconds(hub: LocalHub) -> None:
    hub.now += timedelta(microseconds=123456)
    created = await hub.create(LEASES, lease(hub, "a"))
    assert created["spec"]["renewTime"].endswith(".123456Z")
