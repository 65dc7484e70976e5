"""Workloads of the group apps: resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import (
    CONTAINERS,
    IMAGES,
    NOTHING,
    age_of,
    container_cells,
    described,
    labels_text,
    name_of,
    part,
    replica_cells,
    selector_text,
)
from farflung.apis.resource import SCALE, Group, Resource, Subresource, status
from farflung.machinery.errors import Obj, qualified
from farflung.machinery.table import AGE, NAME, Column, Printer

LABELS_PAGE: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors"
READY: Final = Column("Ready", description="Number of the pod with ready state")


def ready_text(obj: Obj) -> str:
    return f"{part(obj, 'status').get('readyReplicas', 0)}/{part(obj, 'spec').get('replicas', 0)}"


def template_cells(obj: Obj) -> list[str]:
    return container_cells(part(obj, "spec", "template", "spec"))


def controller_revision_cells(obj: Obj, now: datetime) -> list[Any]:
    owners = part(obj, "metadata").get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    return [name_of(obj), owner_text(owner) if owner else NOTHING, obj.get("revision", 0), age_of(obj, now)]


def owner_text(owner: Obj) -> str:
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{qualified(owner.get('kind', ''), group).lower()}/{owner.get('name', '')}"


CONTROLLER_REVISIONS: Final = Printer(
    (
        NAME,
        Column("Controller", description="Controller of the object"),
        described("Revision", "apps.v1.ControllerRevision.revision"),
        AGE,
    ),
    controller_revision_cells,
)


def daemon_set_cells(obj: Obj, now: datetime) -> list[Any]:
    status = part(obj, "status")
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(part(obj, "spec", "template", "spec").get("nodeSelector")),
        age_of(obj, now),
        *template_cells(obj),
        selector_text(part(obj, "spec").get("selector")),
    ]


DAEMON_SETS: Final = Printer(
    (
        NAME,
        described("Desired", "apps.v1.DaemonSetStatus.desiredNumberScheduled", "integer"),
        described("Current", "apps.v1.DaemonSetStatus.currentNumberScheduled", "integer"),
        Column(
            "Ready",
            "integer",
            description=(
                "The number of nodes that should be running the daemon pod and have one or more of the daemon pod "
                "running and ready."
            ),
        ),
        described("Up-to-date", "apps.v1.DaemonSetStatus.updatedNumberScheduled", "integer"),
        described("Available", "apps.v1.DaemonSetStatus.numberAvailable", "integer"),
        described("Node Selector", "core.v1.PodSpec.nodeSelector"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column(
            "Selector",
            description=(
                "A label query over pods that are managed by the daemon set. Must match in order to be controlled. "
                f"If empty, defaulted to labels on Pod template. More info: {LABELS_PAGE}"
            ),
            priority=1,
        ),
    ),
    daemon_set_cells,
)


def deployment_cells(obj: Obj, now: datetime) -> list[Any]:
    status = part(obj, "status")
    return [
        name_of(obj),
        ready_text(obj),
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *template_cells(obj),
        selector_text(part(obj, "spec").get("selector"), empty="", invalid="<invalid>"),
    ]


DEPLOYMENTS: Final = Printer(
    (
        NAME,
        READY,
        described("Up-to-date", "apps.v1.DeploymentStatus.updatedReplicas"),
        described("Available", "apps.v1.DeploymentStatus.availableReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column(
            "Selector",
            description=(
                "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones "
                "affected by this deployment."
            ),
            priority=1,
        ),
    ),
    deployment_cells,
)


def replica_set_cells(obj: Obj, now: datetime) -> list[Any]:
    return [*replica_cells(obj, now), selector_text(part(obj, "spec").get("selector"))]


REPLICA_SETS: Final = Printer(
    (
        NAME,
        described("Desired", "apps.v1.ReplicaSetSpec.replicas", "integer"),
        described("Current", "apps.v1.ReplicaSetStatus.replicas", "integer"),
        described("Ready", "apps.v1.ReplicaSetStatus.readyReplicas", "integer"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column(
            "Selector",
            description=(
                "Selector is a label query over pods that should match the replica count. If the selector is empty, it "
                "is defaulted to the labels present on the pod template. Label keys and values that must match in "
                f"order to be controlled by this replica set. More info: {LABELS_PAGE}"
            ),
            priority=1,
        ),
    ),
    replica_set_cells,
)


def stateful_set_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), ready_text(obj), age_of(obj, now), *template_cells(obj)]


STATEFUL_SETS: Final = Printer((NAME, READY, AGE, CONTAINERS, IMAGES), stateful_set_cells)


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
