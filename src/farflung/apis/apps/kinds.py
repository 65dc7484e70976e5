"""Workloads of the group apps: resources and printer columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from farflung.apis.printers import (
    AGE,
    NAME,
    NOTHING,
    REPLICAS,
    TEMPLATE,
    PrinterRow,
    column,
    field,
    labels_text,
    part,
    printer,
    selector_text,
)
from farflung.apis.resource import SCALE, Group, Resource, Subresource, status
from farflung.machinery.errors import Obj, qualified
from farflung.machinery.table import Printer

LABELS_PAGE: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors"


def ready_text(obj: Obj) -> str:
    return f"{part(obj, 'status').get('readyReplicas', 0)}/{part(obj, 'spec').get('replicas', 0)}"


def owner_text(revision: Obj) -> str:
    owners = part(revision, "metadata").get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    if not owner:
        return NOTHING
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{qualified(owner.get('kind', ''), group).lower()}/{owner.get('name', '')}"


READY: Final = column("Ready", "Number of the pod with ready state", ready_text)


def selector(description: str, show: Callable[[Obj | None], str] = selector_text) -> PrinterRow:
    return field("Selector", "spec.selector", None, show, description=description, priority=1)


CONTROLLER_REVISIONS: Final = printer(
    "apps.v1.ControllerRevision",
    NAME,
    column("Controller", "Controller of the object", owner_text),
    field("Revision", "revision", 0),
    AGE,
)
DAEMON_SETS: Final = printer(
    "apps.v1.DaemonSet",
    NAME,
    field("Desired", "status.desiredNumberScheduled", 0, type="integer"),
    field("Current", "status.currentNumberScheduled", 0, type="integer"),
    field(
        "Ready",
        "status.numberReady",
        0,
        type="integer",
        description="The number of nodes that should be running the daemon pod and have one or more of the daemon pod "
        "running and ready.",
    ),
    field("Up-to-date", "status.updatedNumberScheduled", 0, type="integer"),
    field("Available", "status.numberAvailable", 0, type="integer"),
    field("Node Selector", "spec.template.spec.nodeSelector", show=labels_text),
    AGE,
    *TEMPLATE,
    selector(
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. If empty, "
        f"defaulted to labels on Pod template. More info: {LABELS_PAGE}"
    ),
)
DEPLOYMENTS: Final = printer(
    "apps.v1.Deployment",
    NAME,
    READY,
    field("Up-to-date", "status.updatedReplicas", 0),
    field("Available", "status.availableReplicas", 0),
    AGE,
    *TEMPLATE,
    selector(
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by "
        "this deployment.",
        partial(selector_text, empty="", invalid="<invalid>"),
    ),
)
REPLICA_SETS: Final = printer(
    "apps.v1.ReplicaSet",
    NAME,
    *REPLICAS,
    AGE,
    *TEMPLATE,
    selector(
        "Selector is a label query over pods that should match the replica count. If the selector is empty, it is "
        "defaulted to the labels present on the pod template. Label keys and values that must match in order to be "
        f"controlled by this replica set. More info: {LABELS_PAGE}"
    ),
)
STATEFUL_SETS: Final = printer("apps.v1.StatefulSet", NAME, READY, AGE, *TEMPLATE)


# --- Workloads ------------------------------------------------------------------------------------

APPS: Final = Group("apps", "v1", "io.k8s.api.apps.v1.")


def _workload(kind: str, short: str, printer: Printer, *subresources: Subresource) -> Resource:
    names, all_of = (short,), (*subresources, status(kind))
    plural = f"{kind.lower()}s"
    return APPS.stored(plural, kind, printer=printer, short_names=names, categories=("all",), subresources=all_of)


RESOURCES: Final = (
    APPS.stored("controllerrevisions", "ControllerRevision", printer=CONTROLLER_REVISIONS),
    _workload("DaemonSet", "ds", DAEMON_SETS),
    _workload("Deployment", "deploy", DEPLOYMENTS, SCALE),
    _workload("ReplicaSet", "rs", REPLICA_SETS, SCALE),
    _workload("StatefulSet", "sts", STATEFUL_SETS, SCALE),
)
