"""What has to be done next about one StatefulSet.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.controllers.workload.objects import CLAIMS, PODS, STATEFUL_SETS, is_terminating, labels
from farflung.controllers.workload.pods import (
    MOST_AT_ONCE,
    is_available,
    is_finished,
    is_ready,
    next_available,
    next_renewal,
    phase,
    pod_of,
)
from farflung.controllers.workload.revisions import template_in
from farflung.controllers.workload.steps import NORMAL, WARNING, Plan, Said, Step, create, delete, sooner, update_status
from farflung.machinery.errors import Obj

HASH: Final = "controller.kubernetes.io/hash"  #: the label of revisions
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
REVISION: Final = "controller-revision-hash"
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,8})")


def ordinal(stateful_set: Obj, pod: Obj) -> int | None:
    """None if it cannot be one of its pods."""
    name, prefix = pod["metadata"]["name"], f"{stateful_set['metadata']['name']}-"
    if not name.startswith(prefix) or _NUMBER.fullmatch(name[len(prefix) :]) is None:
        return None
    return int(name[len(prefix) :])


def revision_of(pod: Obj) -> str:
    return labels(pod).get(REVISION, "")


def made(stateful_set: Obj, number: int, revision: Obj) -> Obj:
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    name = f"{metadata['name']}-{number}"
    pod = pod_of(stateful_set, STATEFUL_SETS, template_in(revision), name)
    marks = {POD_NAME: name, POD_INDEX: str(number), REVISION: revision["metadata"]["name"]}
    pod["metadata"]["labels"] = {**labels(pod), **marks}
    pod["spec"]["hostname"] = name
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    if templates := spec.get("volumeClaimTemplates"):
        pod["spec"]["volumes"] = _volumes(pod["spec"].get("volumes") or [], templates, metadata["name"], number)
    return pod


def _volumes(volumes: list[Obj], templates: list[Obj], owner: str, number: int) -> list[Obj]:
    """Those of claims take the place of others of the same name."""
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


def claiming(stateful_set: Obj, number: int, existing: frozenset[str]) -> list[Step]:
    """The claims that the pod of this number needs and that are not there.  `existing`: names."""
    metadata, steps = stateful_set["metadata"], []
    selected = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        name = claim_name(template, metadata["name"], number)
        if name in existing:
            continue
        said = template["metadata"]
        claim: Obj = {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**(said.get("labels") or {}), **selected},
            },
            "spec": deepcopy(template.get("spec") or {}),
        }
        if said.get("annotations"):
            claim["metadata"]["annotations"] = dict(said["annotations"])
        where = f"Claim {name} Pod {metadata['name']}-{number} in StatefulSet {metadata['name']}"
        done = Said(NORMAL, "SuccessfulCreate", f"create {where} success")
        steps.append(Step(create(CLAIMS, claim), done, Said(WARNING, "FailedCreate", f"create {where} failed error: ")))
    return steps


def creating(stateful_set: Obj, pod: Obj) -> Step:
    where = f"Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
    done = Said(NORMAL, "SuccessfulCreate", f"create {where} successful")
    return Step(create(PODS, pod), done, Said(WARNING, "FailedCreate", f"create {where} failed error: "))


def deleting(stateful_set: Obj, pod: Obj) -> Step:
    where = f"Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
    done = Said(NORMAL, "SuccessfulDelete", f"delete {where} successful")
    return Step(delete(PODS, pod), done, Said(WARNING, "FailedDelete", f"delete {where} failed error: "))


@dataclass(frozen=True, slots=True)
class Whole:
    """A set, its pods by number, the revision that it comes from, and the one that it goes to."""

    owner: Obj
    pods: dict[int, Obj]
    current: Obj
    update: Obj
    now: datetime

    @property
    def numbers(self) -> range:
        """Of the pods that there should be."""
        spec = self.owner["spec"]
        start = (spec.get("ordinals") or {}).get("start") or 0
        replicas = spec.get("replicas")
        return range(start, start + (1 if replicas is None else replicas))

    @property
    def wait(self) -> int:
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

    def is_well(self, pod: Obj) -> bool:
        running = phase(pod) == "Running" and not is_terminating(pod)
        return running and is_available(pod, self.wait, self.now)


def whole(owner: Obj, pods: Iterable[Obj], revisions: Sequence[Obj], update: Obj, now: datetime) -> Whole:
    """`update`: the revision of the present template."""
    name = (owner.get("status") or {}).get("currentRevision")
    current = next((one for one in revisions if one["metadata"]["name"] == name), update)
    numbered = {number: pod for pod in pods if (number := ordinal(owner, pod)) is not None}
    return Whole(owner, dict(sorted(numbered.items())), current, update, now)


# --- pods -----------------------------------------------------------------------------------------


def about_pods(one: Whole, claims: frozenset[str]) -> tuple[Step, ...]:
    """First those that should be there, from the lowest number; then those that should not, from the highest; then
    those that are of another revision.  `claims`: names of those that exist."""
    steps, settled = _wanted(one, claims)
    if settled:
        more, settled = _condemned(one)
        steps += more
    if settled and not steps and one.rolls:
        steps += _outdated(one)
    return tuple(steps)


def _wanted(one: Whole, claims: frozenset[str]) -> tuple[list[Step], bool]:
    steps: list[Step] = []
    for number in one.numbers:
        pod = one.pods.get(number)
        if pod is None:
            pod = made(one.owner, number, _revision_for(one, number))
            steps += [*claiming(one.owner, number, claims), creating(one.owner, pod)]
            well = False
        else:
            well = one.is_well(pod)
            steps += _upkeep(one, number, pod, claims)
        if (not well and not one.parallel) or len(steps) >= MOST_AT_ONCE:
            return steps, False
    return steps, True


def _upkeep(one: Whole, number: int, pod: Obj, claims: frozenset[str]) -> list[Step]:
    if is_terminating(pod):
        return []
    if is_finished(pod):
        return [deleting(one.owner, pod)] if next_renewal(pod, one.now) <= 0 else []
    return claiming(one.owner, number, claims) if phase(pod) == "Pending" else []


def _revision_for(one: Whole, number: int) -> Obj:
    """Pods below the partition come back as they were."""
    return one.current if one.rolls and number < one.numbers.start + one.partition else one.update


def _condemned(one: Whole) -> tuple[list[Step], bool]:
    condemned = {number: pod for number, pod in one.pods.items() if number not in one.numbers}
    ailing = [
        pod for pod in (*(one.pods.get(number) for number in one.numbers), *condemned.values()) if pod is not None
    ]
    first = next((pod for pod in ailing if not one.is_well(pod)), None)
    steps: list[Step] = []
    for pod in reversed(condemned.values()):
        if is_terminating(pod):
            if not one.parallel:
                return steps, False
            continue
        if not one.parallel and not one.is_well(pod) and pod is not first:
            return steps, False
        steps.append(deleting(one.owner, pod))
        if not one.parallel:
            return steps, False
    return steps, True


def _outdated(one: Whole) -> list[Step]:
    """One at a time, from the highest number down to the partition, each after the one before it is well."""
    for number in reversed(one.numbers[one.partition :]):
        pod = one.pods[number]
        if revision_of(pod) != one.update["metadata"]["name"] and not is_terminating(pod):
            return [deleting(one.owner, pod)]
        if not one.is_well(pod):
            return []
    return []


# --- status ---------------------------------------------------------------------------------------


def about_status(one: Whole) -> Plan:
    owner, pods = one.owner, list(one.pods.values())
    ready = [pod for pod in pods if phase(pod) == "Running" and is_ready(pod)]
    staying = [revision_of(pod) for pod in pods if not is_terminating(pod)]
    current, update = one.current["metadata"]["name"], one.update["metadata"]["name"]
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": staying.count(current),
        "updatedReplicas": staying.count(update),
        "observedGeneration": owner["metadata"].get("generation", 0),
    }
    if one.rolls and len(pods) == len(ready) == counts["updatedReplicas"] == len(one.numbers):
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    status: Obj = {
        "replicas": len(pods),
        "availableReplicas": sum(is_available(pod, one.wait, one.now) for pod in ready),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": (owner.get("status") or {}).get("collisionCount") or 0,
    } | {name: count for name, count in counts.items() if count}
    renewals = (next_renewal(pod, one.now) for pod in pods if is_finished(pod) and not is_terminating(pod))
    again = sooner(next_available(ready, one.wait, one.now), *renewals)
    if status == owner.get("status"):
        return Plan((), again)
    return Plan((Step(update_status(STATEFUL_SETS, owner, status)),), again)


def used(one: Whole) -> frozenset[str]:
    """The names of revisions that must stay."""
    named = {one.current["metadata"]["name"], one.update["metadata"]["name"]}
    return frozenset(named | {revision_of(pod) for pod in one.pods.values()})
