"""Controllers that crash, and lines that break: in the end everything is as if nothing had happened, and in between
nothing is made twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cluster import Cluster, cluster, workload
from examples import examples
from fleet import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis.names import DEPLOYMENTS, JOBS, REPLICA_SETS
from farflung.controllers.workload.model.ownership import controller_reference
from farflung.controllers.workload.model.pods import is_active
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange

Faults = list[tuple[str, Any]]


async def suffer(one: Cluster, faults: Faults) -> None:
    for what, how in faults:
        match what:
            case "crash":
                await one.crash()
                one.start()
            case "cut":
                one.line.cut()
            case "lose requests":
                one.line.before = how
            case "lose answers":
                one.line.after = how
            case "turns":
                for _ in range(how):
                    await asyncio.sleep(0)


class Watcher:
    """The largest number of concurrent pods of each owner."""

    def __init__(self, one: Cluster) -> None:
        self._one = one
        self.most: dict[str, int] = {}
        one.kubelet.pods.subscribe(self._look)

    def _look(self, change: CacheChange[Obj]) -> None:
        counts: dict[str, int] = {}
        for pod in self._one.kubelet.pods.cache.values():
            owner = controller_reference(pod)
            if owner is not None and is_active(pod):
                counts[owner["name"]] = counts.get(owner["name"], 0) + 1
        for name, count in counts.items():
            self.most[name] = max(count, self.most.get(name, 0))


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.lists(FAULTS, max_size=12))
async def test_a_replica_set_never_has_more_pods_than_it_should(faults: Faults) -> None:
    async with cluster() as one:
        watcher = Watcher(one)
        await one.create(REPLICA_SETS, workload("web", replicas=4))
        await suffer(one, faults)

        async def four() -> bool:
            return bool((await one.get(REPLICA_SETS, "web"))["status"].get("availableReplicas") == 4)

        await one.eventually(four, str(faults))
        assert watcher.most == {"web": 4}
        assert len(await one.pods()) == 4


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.lists(FAULTS, max_size=12))
async def test_a_job_makes_no_more_pods_than_it_needs_and_counts_each_once(faults: Faults) -> None:
    template = {
        "metadata": {"annotations": {"test/behaviour": "succeeded"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    }
    async with cluster() as one:
        spec = {"template": template, "completions": 6, "parallelism": 3}
        await one.create(JOBS, {"metadata": {"name": "sum", "namespace": "default"}, "spec": spec})
        await suffer(one, faults)

        async def complete() -> bool:
            conditions = (await one.get(JOBS, "sum"))["status"].get("conditions") or ()
            return any(each["type"] == "Complete" for each in conditions)

        await one.eventually(complete, str(faults))
        status = (await one.get(JOBS, "sum"))["status"]
        assert (status["succeeded"], status.get("failed")) == (6, None)
        assert len(await one.pods()) == 6


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.lists(FAULTS, max_size=6), st.lists(FAULTS, max_size=6))
async def test_a_rollout_ends_whatever_breaks(before: Faults, after: Faults) -> None:
    async with cluster() as one:
        watcher = Watcher(one)
        await one.create(DEPLOYMENTS, workload("web", replicas=3))
        await suffer(one, before)
        other = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "httpd:2"}]}}}}
        await one.patch(DEPLOYMENTS, "web", other)
        await suffer(one, after)
        await one.rolled_out("web")

        async def clean() -> bool:
            return len(await one.pods()) == 3

        await one.eventually(clean)
        assert max(watcher.most.values()) <= 4
        assert {pod["spec"]["containers"][0]["image"] for pod in await one.pods()} == {"httpd:2"}
        assert len(await one.replica_sets()) <= 2
