"""Huge numbers in specs cost neither time nor memory."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pytest

from farflung.controllers.workload.job import decide as jobs
from farflung.controllers.workload.job.decide import next_counts
from farflung.controllers.workload.model.pods import BURST_REPLICAS
from farflung.controllers.workload.replicaset.decide import plan_pods
from farflung.controllers.workload.statefulset import decide as stateful_sets
from farflung.machinery.errors import Obj

HUGE = 2**31 - 1
NOW = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}


def owner(kind: str, **spec: object) -> Obj:
    metadata = {"name": "one", "namespace": "default", "uid": "1", "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata, "spec": {"selector": SELECTOR, "template": TEMPLATE, **spec}}


def suffix() -> str:
    return str(next(NUMBERS))


NUMBERS = count()


def test_a_replica_set_makes_a_lot_of_pods_at_a_time() -> None:
    assert len(plan_pods(owner("ReplicaSet", replicas=HUGE), [], suffix)) == BURST_REPLICAS


def test_a_stateful_set_makes_a_lot_of_pods_at_a_time() -> None:
    wanted = owner("StatefulSet", replicas=HUGE, podManagementPolicy="Parallel", serviceName="one")
    revision = {"metadata": {"name": "one-1"}, "data": {"spec": {"template": TEMPLATE}}}
    steps = stateful_sets.plan_pods(stateful_sets.observe(wanted, [], [revision], revision, NOW), frozenset())
    assert len(steps) == BURST_REPLICAS


@pytest.mark.parametrize("more", [{}, {"completionMode": "Indexed"}])
def test_a_job_makes_a_lot_of_pods_at_a_time(more: dict[str, str]) -> None:
    job = owner("Job", parallelism=HUGE, completions=HUGE, **more)
    job["status"] = {"startTime": "2026-11-16T06:30:00Z", "ready": 0, "terminating": 0}
    assert len(jobs.decide(job, [], suffix, NOW).steps) == BURST_REPLICAS


def test_an_index_counts_however_many_there_are() -> None:
    job = owner("Job", completions=HUGE, completionMode="Indexed")
    notes = {"batch.kubernetes.io/job-completion-index": "7"}
    finalizers = ["batch.kubernetes.io/job-tracking"]
    metadata = {"name": "one-7", "namespace": "default", "uid": "2", "annotations": notes, "finalizers": finalizers}
    pod = {"metadata": metadata, "spec": {}, "status": {"phase": "Succeeded"}}
    assert next_counts(job, [pod], over=False).completed == frozenset({7})
