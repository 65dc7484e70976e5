"""Pods from templates.  Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import Final

from farflung.client.resource import Collection
from farflung.controllers.workload.kinds import PODS
from farflung.controllers.workload.ownership import reference_to
from farflung.controllers.workload.steps import NORMAL, WARNING, Said, Step, create, delete
from farflung.machinery.errors import Obj

LONGEST_BASE: Final = 58  #: characters of a name before its random ones
MOST_AT_ONCE: Final = 500  #: pods that one look makes: how many there should be may be a mistake


def random_name(prefix: str, suffix: str) -> str:
    """As the server would make it of a generateName."""
    return prefix[:LONGEST_BASE] + suffix


def pod_of(owner: Obj, collection: Collection, template: Obj, name: str, prefix: str = "") -> Obj:
    """A pod that `owner` controls.  `prefix`: what a server that chose the name would have been given."""
    said = template.get("metadata") or {}
    metadata: Obj = {
        "name": name,
        "generateName": prefix or f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [reference_to(owner, collection)],
    }
    for member in ("labels", "annotations", "finalizers"):
        if said.get(member):
            metadata[member] = deepcopy(said[member])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deepcopy(template.get("spec") or {})}


def creation(pod: Obj) -> Step:
    done = Said(NORMAL, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
    return Step(create(PODS, pod), done, Said(WARNING, "FailedCreate", "Error creating: "))


def removal(pod: Obj) -> Step:
    done = Said(NORMAL, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
    return Step(delete(PODS, pod), done, Said(WARNING, "FailedDelete", "Error deleting: "))
