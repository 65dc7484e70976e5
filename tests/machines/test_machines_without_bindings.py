"""Machines at servers that know no Bindings, as a kcp does not: one conditional write binds as well."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fleet import Fleet
from hub_harness import MERGE_PATCH
from local_transport import Function

from farflung.http.messages import Request, Response
from machines import PODS, Machines, machines

NAMES = ["a", "b", "c", "d", "e"]


def without_bindings(function: Function, status: int) -> Function:
    """As a server answers that has no such subresource."""

    def answered(request: Request) -> Any:
        if request.path.endswith("/binding"):
            return Response(status, b"404 page not found\n", "text/plain")
        return function(request)

    return answered


def bindings(fleet: Fleet) -> int:
    return sum("/binding" in request.target for request in fleet.masters.writes)


async def test_as_many_are_bound_as_fit_and_say_so_whatever_answer_is_lost() -> None:
    async with machines(start=False) as one:
        server = one.fleet.masters.function
        await one.cluster("az1", {"small": 3})
        for status, lost in ((404, 0), (404, 1), (405, 2), (404, 3)):
            one.fleet.masters.function = without_bindings(server, status)
            await one.restart()
            await one.machine("first")
            assert await one.bound("first") == "az1"
            await one.at_rest()
            known = bindings(one.fleet)
            one.fleet.masters.after = lost
            for name in NAMES:
                await one.machine(name)
            await one.fleet.eventually(lambda: are_settled(one), "three of them bound, and all told")
            assert known == bindings(one.fleet) > 0  # nobody asks twice
            for name in ("first", *NAMES):
                await one.of_shop("DELETE", f"{PODS}/{name}")


async def are_settled(one: Machines) -> bool:
    assert (await one.used())["az1", "small"] <= 3
    said = Counter(of(pod) for pod in await one.pods())
    return said == {("az1", "True", "Pending"): 3, (None, "False", None): 3}


def of(pod: Any) -> tuple[str | None, str | None, str | None]:
    status = pod.get("status", {})
    said = [one["status"] for one in status.get("conditions", ()) if one["type"] == "PodScheduled"]
    return pod["spec"].get("nodeName"), said[0] if said else None, status.get("phase")


async def test_nobody_binds_what_somebody_else_bound_in_the_last_moment() -> None:
    async with machines() as one:
        one.fleet.masters.function = without_bindings(one.fleet.masters.function, 404)
        await one.cluster("az1", {"small": 1})

        patch = {"spec": {"nodeName": "elsewhere"}}
        one.interpose(
            lambda request: request.method == "PATCH" and f"{PODS}/theirs" in request.target,
            lambda: one.of_shop("PATCH", f"{PODS}/theirs", patch, content_type=MERGE_PATCH),
        )
        await one.machine("theirs")
        assert await one.bound("theirs") == "elsewhere"
        await one.machine("ours")
        assert await one.bound("ours") == "az1"
        assert (await one.pod("theirs"))["spec"].get("clusterName") is None
