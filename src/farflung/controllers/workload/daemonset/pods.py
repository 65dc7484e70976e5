"""Pods of a DaemonSet, and the nodes they are for.  Pure."""

from __future__ import annotations

from typing import Final

from farflung.controllers.workload.kinds import DAEMON_SETS
from farflung.controllers.workload.node_fitness import NO_EXECUTE, NO_SCHEDULE, is_chosen, untolerated
from farflung.controllers.workload.pod_making import pod_of, random_name
from farflung.controllers.workload.pods import labels, notes
from farflung.machinery.errors import Obj

REVISION: Final = "controller-revision-hash"
GENERATION: Final = "pod-template-generation"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
ALWAYS_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
NO_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_NAME: Final = "metadata.name"


def node_of(pod: Obj) -> str:
    """The node it is on, or is for."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == NODE_NAME and field.get("operator") == "In" and field.get("values"):
                return str(field["values"][0])
    return ""


def may_start(daemon_set: Obj, node: Obj) -> bool:
    return _is_meant(daemon_set, node) and _bothering(daemon_set, node, (NO_SCHEDULE, NO_EXECUTE)) is None


def may_stay(daemon_set: Obj, node: Obj) -> bool:
    """Once it runs, only a taint that ends pods ends it."""
    return _is_meant(daemon_set, node) and _bothering(daemon_set, node, (NO_EXECUTE,)) is None


def _is_meant(daemon_set: Obj, node: Obj) -> bool:
    spec = daemon_set["spec"]["template"].get("spec") or {}
    return spec.get("nodeName") in (None, "", node["metadata"]["name"]) and is_chosen(spec, node)


def _bothering(daemon_set: Obj, node: Obj, effects: tuple[str, ...]) -> Obj | None:
    """A taint that its pods do not tolerate.  They may be there before the node is ready."""
    return untolerated(node, _tolerations(daemon_set["spec"]["template"].get("spec") or {}), effects, states=False)


def _tolerations(spec: Obj) -> list[Obj]:
    given = list(spec.get("tolerations") or ())
    always = (*ALWAYS_TOLERATED, NO_NETWORK) if spec.get("hostNetwork") else ALWAYS_TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in always]
    return [*given, *(one for one in added if one not in given)]


def made(daemon_set: Obj, node: str, hashed: str, suffix: str) -> Obj:
    name = random_name(f"{daemon_set['metadata']['name']}-", suffix)
    pod = pod_of(daemon_set, DAEMON_SETS, daemon_set["spec"]["template"], name)
    marks = {REVISION: hashed}
    if generation := notes(daemon_set).get(TEMPLATE_GENERATION):
        marks[GENERATION] = generation
    pod["metadata"]["labels"] = {**labels(pod), **marks}
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(spec)
    affinity = dict(spec.get("affinity") or {})
    bound = {"nodeSelectorTerms": [{"matchFields": [{"key": NODE_NAME, "operator": "In", "values": [node]}]}]}
    affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), REQUIRED: bound}
    spec["affinity"] = affinity
    return pod


def is_of(pod: Obj, hashed: str) -> bool:
    """Of this revision."""
    return labels(pod).get(REVISION) == hashed
