"""Pods and claims of a StatefulSet.  Pure."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Final

from farflung.controllers.workload.kinds import CLAIMS, PODS, STATEFUL_SETS
from farflung.controllers.workload.pod_making import pod_of
from farflung.controllers.workload.pods import labels
from farflung.controllers.workload.revisions import template_in
from farflung.controllers.workload.steps import NORMAL, WARNING, Said, Step, create, delete
from farflung.machinery.errors import Obj

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
