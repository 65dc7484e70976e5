"""Syncers in trouble that says nothing about whether their clusters take machines: these stay where they are."""

from __future__ import annotations

from datetime import timedelta

from fleet import EDGE
from hub_harness import MERGE_PATCH
from platform_harness import MASTER
from syncing import mailbox_path

from farflung.apis.edge.names import STATUS_RETURNED_FROM
from farflung.machinery.errors import Obj
from farflung.machines.failover import FailoverOptions
from farflung.machines.statuses import find_condition
from farflung.machines.subjects import REFUSED_BY
from machines import PODS, bind_edge, machines, report


def problem(name: str, reason: str, namespace: str = "default") -> Obj:
    where = {"group": "", "resource": "pods", "namespace": namespace, "name": name}
    return {**where, "direction": "down", "reason": reason, "message": "so it is", "tries": 1}


async def test_only_what_its_own_cluster_refuses_leaves_it() -> None:
    """Otherwise a syncer that may not look into its mailbox for a while, or not into its cluster, would have machines
    bound elsewhere that it cannot take away; and who changes one that runs would lose it if its cluster takes no
    changes."""
    async with machines(start=False, failover=FailoverOptions(refused=0.0)) as one:
        imw = await one.fleet.hub.workspace("imw")
        await bind_edge(one.fleet, one.shop)
        await one.fleet.target(imw, "edge1", {})
        await report(one, imw, ago=timedelta(0))
        room = {"cpucapacity": 9, "memcapacity": 99999}
        await one.cluster("az1", {"small": 9}, synctarget={"workspace": imw, "name": "edge1"}, **room)
        await one.fleet.start(scheduler=False, mailboxes=True, globals=True)
        passing = ["Garbled", "InternalError", "KubeconfigError", "Refused", "Unauthorized"]
        names = [reason.lower() for reason in passing]
        for name in ("unheard", "running", "invalid", *names):
            await one.machine(name)
            assert await one.bound(name) == "az1"
        problems = [problem(reason.lower(), reason) for reason in passing]
        problems += [problem("*", "Forbidden", ""), problem("invalid", "Invalid"), problem("running", "Invalid")]
        returned = {"metadata": {"annotations": {STATUS_RETURNED_FROM: "edge1"}}}
        await one.of_shop("PATCH", f"{PODS}/running", returned, content_type=MERGE_PATCH)
        path = f"/clusters/{await mailbox_path(one.fleet)}{EDGE}/syncerconfigs/the-one/status"

        async def is_reported() -> bool:
            patch = {"status": {"problems": problems}}
            return (await one.fleet.hub.of(MASTER, "PATCH", path, patch, content_type=MERGE_PATCH)).status == 200

        await one.fleet.eventually(is_reported, "the SyncerConfig")

        async def has_left() -> bool:
            return "nodeName" not in (await one.pod("invalid"))["spec"]

        await one.fleet.eventually(has_left, "the end of what is refused")
        for name in ("unheard", "running", *names):
            pod = await one.pod(name)
            assert (name, pod["spec"].get("nodeName"), pod["metadata"]["annotations"].get(REFUSED_BY)) == (
                name,
                "az1",
                None,
            )

            async def is_told(name: str = name) -> bool:
                return find_condition((await one.pod(name))["status"], "Delivered").get("status") == "False"

            await one.fleet.eventually(is_told, f"what is wrong with {name}")
