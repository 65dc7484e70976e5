"""Workloads."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import SCALE, Group, status

APPS: Final = Group("apps", "v1", "io.k8s.api.apps.v1.")

RESOURCES: Final = (
    APPS.stored("controllerrevisions", "ControllerRevision"),
    APPS.stored(
        "daemonsets", "DaemonSet", short_names=("ds",), categories=("all",), subresources=(status("DaemonSet"),)
    ),
    APPS.stored(
        "deployments",
        "Deployment",
        short_names=("deploy",),
        categories=("all",),
        subresources=(SCALE, status("Deployment")),
    ),
    APPS.stored(
        "replicasets",
        "ReplicaSet",
        short_names=("rs",),
        categories=("all",),
        subresources=(SCALE, status("ReplicaSet")),
    ),
    APPS.stored(
        "statefulsets",
        "StatefulSet",
        short_names=("sts",),
        categories=("all",),
        subresources=(SCALE, status("StatefulSet")),
    ),
)
