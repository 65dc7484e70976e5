"""What is said of a machine by who places it, and by its edge: neither changes for ever what the other one says."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.edge.names import EXECUTING_COUNT, STATUS_RETURNED_FROM
from farflung.apis.globalscheduler.names import CLUSTER_LABEL, DELIVERY_PREFIX
from farflung.controllers.status_summarizer.status_return import Returned, ReturnRequest, next_step
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.object_readers import SubjectDecoder
from farflung.machines.subjects import BOUND_CLUSTER
from farflung.placement.names import GroupResource

LABEL = "az1-0123456789abcdef"
NOW = "2026-01-01T00:00:00Z"
PODS = GroupResource("", "pods")
MOST = 8  #: writes until both are content

condition = st.fixed_dictionaries(
    {"type": st.sampled_from(["PodScheduled", "Delivered", "Ready"]), "status": st.sampled_from(["True", "False"])},
    optional={"reason": st.sampled_from(["Unschedulable", "Invalid"]), "message": st.just("no node has room")},
)
conditions = st.lists(condition, max_size=3, unique_by=lambda one: one["type"])
status = st.fixed_dictionaries(
    {}, optional={"phase": st.sampled_from(["Pending", "Running"]), "conditions": conditions}
)


def machine(status: Obj) -> Obj:
    metadata = {"uid": "u", "labels": {CLUSTER_LABEL: LABEL}, "annotations": {BOUND_CLUSTER: "w|default/az1"}}
    spec = {"virtualMachine": {"flavors": [{"flavorID": "small"}]}, "nodeName": "az1", "clusterName": "az1"}
    return {"metadata": metadata, "spec": spec, "status": status}


def returned(pod: Obj, asked: ReturnRequest) -> bool:
    """Whether something was written."""
    if (following := next_step(PODS, pod, asked)) is None:
        return False
    if following.status is not None:
        pod["status"] = dict(following.status)
        return True
    for part, name, value in (
        ("labels", EXECUTING_COUNT, following.executing),
        ("annotations", STATUS_RETURNED_FROM, following.returned),
    ):
        pod["metadata"][part].pop(name, None)
        if value is not None:
            pod["metadata"][part][name] = value
    return True


def settled(pod: Obj, reason: str) -> bool:
    seen = SubjectDecoder({}).pod(orjson.dumps(pod))
    found = statuses.bound_pod_status(pod, reason, "", NOW) if seen.status_outdated or reason else None
    pod["status"] |= found or {}
    return found is not None


@given(status, status, st.sampled_from(["", "Refused"]))
def test_whatever_an_edge_says_both_are_content_some_day(before: Obj, there: Obj, reason: str) -> None:
    pod = machine(before)
    asked = ReturnRequest(1, Returned("edge1", there), frozenset({f"{DELIVERY_PREFIX}{LABEL}"}))
    writes = sum(returned(pod, asked) + settled(pod, reason) for _ in range(MOST))
    assert not (returned(pod, asked) or settled(pod, reason)), writes
