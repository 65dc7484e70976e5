"""Workloads."""

from __future__ import annotations

from typing import Final

from farflung.apis.apps import printers
from farflung.apis.group import SCALE, Group, status

APPS: Final = Group("apps", "v1", "io.k8s.api.apps.v1.")

RESOURCES: Final = (
    APPS.stored("controllerrevisions", "ControllerRevision", printer=printers.CONTROLLER_REVISIONS),
    APPS.stored(
        "daemonsets",
        "DaemonSet",
        printer=printers.DAEMON_SETS,
        short_names=("ds",),
        categories=("all",),
        subresources=(status("DaemonSet"),),
    ),
    APPS.stored(
        "deployments",
        "Deployment",
        printer=printers.DEPLOYMENTS,
        short_names=("deploy",),
        categories=("all",),
        subresources=(SCALE, status("Deployment")),
    ),
    APPS.stored(
        "replicasets",
        "ReplicaSet",
        printer=printers.REPLICA_SETS,
        short_names=("rs",),
        categories=("all",),
        subresources=(SCALE, status("ReplicaSet")),
    ),
    APPS.stored(
        "statefulsets",
        "StatefulSet",
        printer=printers.STATEFUL_SETS,
        short_names=("sts",),
        categories=("all",),
        subresources=(SCALE, status("StatefulSet")),
    ),
)
