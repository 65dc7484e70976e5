"""Plans the pods, claims and status of one StatefulSet.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.apis.names import CLAIMS, POD_INDEX, PODS, STATEFUL_POD_NAME, STATEFUL_SETS
from farflung.controllers.workload.model.objects import is_terminating, labels
from farflung.controllers.workload.model.pods import (
    BURST_REPLICAS,
    is_available,
    is_finished,
    is_ready,
    phase,
    pod_from_template,
    seconds_until_available,
    seconds_until_replacement,
)
from farflung.controllers.workload.model.revisions import template_of_revision
from farflung.controllers.workload.model.steps import (
    NORMAL,
    WARNING,
    EventText,
    WorkloadPlan,
    WriteStep,
    create,
    delete,
    soonest,
    status_plan,
)
from farflung.machinery.errors import Obj

REVISION: Final = "controller-revision-hash"
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,8})")


def ordinal(stateful_set: Obj, pod: Obj) -> int | None:
    """None if the name is not that of one of its pods."""
    name, prefix = pod["metadata"]["name"], f"{stateful_set['metadata']['name']}-"
    if not name.startswith(prefix) or _NUMBER.fullmatch(name[len(prefix) :]) is None:
        return None
    return int(name[len(prefix) :])


def pod_revision(pod: Obj) -> str:
    return labels(pod).get(REVISION, "")


def new_pod(stateful_set: Obj, number: int, revision: Obj) -> Obj:
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    name = f"{metadata['name']}-{number}"
    pod = pod_from_template(stateful_set, STATEFUL_SETS, template_of_revision(revision), name)
    marks = {STATEFUL_POD_NAME: name, POD_INDEX: str(number), REVISION: revision["metadata"]["name"]}
    pod["metadata"]["labels"] = {**labels(pod), **marks}
    pod["spec"]["hostname"] = name
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    if templates := spec.get("volumeClaimTemplates"):
        pod["spec"]["volumes"] = _volumes(pod["spec"].get("volumes") or [], templates, metadata["name"], number)
    return pod


def _volumes(volumes: list[Obj], templates: list[Obj], owner: str, number: int) -> list[Obj]:
    """Claim volumes replace template volumes of the same name."""
    claims = {
        template["metadata"]["name"]: claim_name(template, owner, number) for template in templates
    }  # in the order of the templates
    mine = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim, "readOnly": False}}
        for volume, claim in claims.items()
    ]
    return [*mine, *(volume for volume in volumes if volume["name"] not in claims)]


def claim_name(template: Obj, owner: str, number: int) -> str:
    return f"{template['metadata']['name']}-{owner}-{number}"


def create_claim_steps(stateful_set: Obj, number: int, existing: frozenset[str]) -> list[WriteStep]:
    """Steps for missing claims of this ordinal.  `existing`: names of existing claims."""
    metadata, steps = stateful_set["metadata"], []
    selected = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        name = claim_name(template, metadata["name"], number)
        if name in existing:
            continue
        metadata_of_template = template["metadata"]
        claim: Obj = {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**(metadata_of_template.get("labels") or {}), **selected},
            },
            "spec": deepcopy(template.get("spec") or {}),
        }
        if metadata_of_template.get("annotations"):
            claim["metadata"]["annotations"] = dict(metadata_of_template["annotations"])
        where = f"Claim {name} Pod {metadata['name']}-{number} in StatefulSet {metadata['name']}"
        done = EventText(NORMAL, "SuccessfulCreate", f"create {where} success")
        steps.append(
            WriteStep(create(CLAIMS, claim), done, EventText(WARNING, "FailedCreate", f"create {where} failed error: "))
        )
    return steps


def create_step(stateful_set: Obj, pod: Obj) -> WriteStep:
    where = f"Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
    done = EventText(NORMAL, "SuccessfulCreate", f"create {where} successful")
    return WriteStep(create(PODS, pod), done, EventText(WARNING, "FailedCreate", f"create {where} failed error: "))


def delete_step(stateful_set: Obj, pod: Obj) -> WriteStep:
    where = f"Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
    done = EventText(NORMAL, "SuccessfulDelete", f"delete {where} successful")
    return WriteStep(delete(PODS, pod), done, EventText(WARNING, "FailedDelete", f"delete {where} failed error: "))


@dataclass(frozen=True, slots=True)
class StatefulSetState:
    """A StatefulSet, its pods by ordinal, and its current and update revisions."""

    owner: Obj
    pods: dict[int, Obj]
    current: Obj
    update: Obj
    now: datetime

    @property
    def numbers(self) -> range:
        """The desired ordinals."""
        spec = self.owner["spec"]
        start = (spec.get("ordinals") or {}).get("start") or 0
        replicas = spec.get("replicas")
        return range(start, start + (1 if replicas is None else replicas))

    @property
    def min_ready_seconds(self) -> int:
        return int(self.owner["spec"].get("minReadySeconds") or 0)

    @property
    def parallel(self) -> bool:
        return bool(self.owner["spec"].get("podManagementPolicy") == "Parallel")

    @property
    def rolls(self) -> bool:
        return bool((self.owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")

    @property
    def partition(self) -> int:
        rolling = (self.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        return int(rolling.get("partition") or 0)

    def is_healthy(self, pod: Obj) -> bool:
        running = phase(pod) == "Running" and not is_terminating(pod)
        return running and is_available(pod, self.min_ready_seconds, self.now)


def observe(owner: Obj, pods: Iterable[Obj], revisions: Sequence[Obj], update: Obj, now: datetime) -> StatefulSetState:
    name = (owner.get("status") or {}).get("currentRevision")
    current = next((one for one in revisions if one["metadata"]["name"] == name), update)
    numbered = {number: pod for pod in pods if (number := ordinal(owner, pod)) is not None}
    return StatefulSetState(owner, dict(sorted(numbered.items())), current, update, now)


# --- pods -----------------------------------------------------------------------------------------


def plan_pods(state: StatefulSetState, claims: frozenset[str]) -> tuple[WriteStep, ...]:
    """First create missing pods from the lowest ordinal, then delete surplus pods from the highest, then update.

    `claims`: names of existing claims.
    """
    steps, finished = _replica_steps(state, claims)
    if finished:
        more, finished = _condemned_steps(state)
        steps += more
    if finished and not steps and state.rolls:
        steps += _update_steps(state)
    return tuple(steps)


def _replica_steps(state: StatefulSetState, claims: frozenset[str]) -> tuple[list[WriteStep], bool]:
    steps: list[WriteStep] = []
    for number in state.numbers:
        pod = state.pods.get(number)
        if pod is None:
            pod = new_pod(state.owner, number, _revision_for(state, number))
            steps += [*create_claim_steps(state.owner, number, claims), create_step(state.owner, pod)]
            healthy = False
        else:
            healthy = state.is_healthy(pod)
            steps += _maintenance_steps(state, number, pod, claims)
        if (not healthy and not state.parallel) or len(steps) >= BURST_REPLICAS:
            return steps, False
    return steps, True


def _maintenance_steps(state: StatefulSetState, number: int, pod: Obj, claims: frozenset[str]) -> list[WriteStep]:
    if is_terminating(pod):
        return []
    if is_finished(pod):
        return [delete_step(state.owner, pod)] if seconds_until_replacement(pod, state.now) <= 0 else []
    return create_claim_steps(state.owner, number, claims) if phase(pod) == "Pending" else []


def _revision_for(state: StatefulSetState, number: int) -> Obj:
    """Pods below the partition keep the current revision."""
    return state.current if state.rolls and number < state.numbers.start + state.partition else state.update


def _condemned_steps(state: StatefulSetState) -> tuple[list[WriteStep], bool]:
    condemned = {number: pod for number, pod in state.pods.items() if number not in state.numbers}
    pods = [
        pod for pod in (*(state.pods.get(number) for number in state.numbers), *condemned.values()) if pod is not None
    ]
    first = next((pod for pod in pods if not state.is_healthy(pod)), None)
    steps: list[WriteStep] = []
    for pod in reversed(condemned.values()):
        if is_terminating(pod):
            if not state.parallel:
                return steps, False
            continue
        if not state.parallel and not state.is_healthy(pod) and pod is not first:
            return steps, False
        steps.append(delete_step(state.owner, pod))
        if not state.parallel:
            return steps, False
    return steps, True


def _update_steps(state: StatefulSetState) -> list[WriteStep]:
    """One at a time, from the highest ordinal down to the partition, each after its predecessor is healthy."""
    for number in reversed(state.numbers[state.partition :]):
        pod = state.pods[number]
        if pod_revision(pod) != state.update["metadata"]["name"] and not is_terminating(pod):
            return [delete_step(state.owner, pod)]
        if not state.is_healthy(pod):
            return []
    return []


# --- status ---------------------------------------------------------------------------------------


def plan_status(state: StatefulSetState) -> WorkloadPlan:
    owner, pods = state.owner, list(state.pods.values())
    ready = [pod for pod in pods if phase(pod) == "Running" and is_ready(pod)]
    staying = [pod_revision(pod) for pod in pods if not is_terminating(pod)]
    current, update = state.current["metadata"]["name"], state.update["metadata"]["name"]
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": staying.count(current),
        "updatedReplicas": staying.count(update),
        "observedGeneration": owner["metadata"].get("generation", 0),
    }
    if state.rolls and len(pods) == len(ready) == counts["updatedReplicas"] == len(state.numbers):
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    status: Obj = {
        "replicas": len(pods),
        "availableReplicas": sum(is_available(pod, state.min_ready_seconds, state.now) for pod in ready),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": (owner.get("status") or {}).get("collisionCount") or 0,
    } | {name: count for name, count in counts.items() if count}
    renewals = (
        seconds_until_replacement(pod, state.now) for pod in pods if is_finished(pod) and not is_terminating(pod)
    )
    again = soonest(seconds_until_available(ready, state.min_ready_seconds, state.now), *renewals)
    return status_plan(STATEFUL_SETS, owner, status, again)


def revisions_in_use(state: StatefulSetState) -> frozenset[str]:
    named = {state.current["metadata"]["name"], state.update["metadata"]["name"]}
    return frozenset(named | {pod_revision(pod) for pod in state.pods.values()})
