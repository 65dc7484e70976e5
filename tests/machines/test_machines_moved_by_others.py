"""Machines that somebody else moved, or that ended, while the scheduler heard nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hub_harness import MERGE_PATCH

from farflung.machines.engine.values import Health, SiteKey
from farflung.machines.failover import FailoverOptions
from farflung.machines.subjects import POD, SchedulingSubject
from farflung.runtime.cache import Key
from machines import PODS, machines


@pytest.mark.parametrize("what", ["moved", "ended"])
async def test_nothing_is_taken_from_where_it_does_not_have_to_leave(what: str) -> None:
    async with machines(failover=FailoverOptions(tolerated=0.0)) as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("a")
        assert await one.bound("a") == "az1"
        await one.cluster("az2", {"small": 1}, zone="az2")
        await one.cluster("az3", {"small": 1}, zone="az3")
        await one.at_rest()
        scheduler = one.fleet.global_scheduler
        assert scheduler is not None
        await one.fleet.crash()
        moved = {
            "metadata": {"annotations": {"globalscheduler.com/cluster": f"{one.home}|default/az2"}},
            "spec": {"nodeName": "az2", "clusterName": "az2"},
        }
        path, patch = {"moved": ("a", moved), "ended": ("a/status", {"status": {"phase": "Failed"}})}[what]
        after = await one.of_shop("PATCH", f"{PODS}/{path}", patch, content_type=MERGE_PATCH)
        site = SiteKey(one.home, "default", "az1")
        known = scheduler.state.engine.site(site)
        assert known is not None
        scheduler.state.put_site(replace(known, health=Health.DOWN), 0.0)
        subject = SchedulingSubject(POD, Key(one.shop, "default", "a"))
        assert scheduler.state.is_eviction_due(subject, site, 1.0)
        await scheduler.evictor.evict(subject, site)
        assert await one.pod("a") == after
