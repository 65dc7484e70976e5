"""The collections that controllers of workloads read and write."""

from __future__ import annotations

from typing import Final

from farflung.client.resource import Collection

PODS: Final = Collection("", "v1", "pods", "Pod")
NODES: Final = Collection("", "v1", "nodes", "Node")
CLAIMS: Final = Collection("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
REPLICA_SETS: Final = Collection("apps", "v1", "replicasets", "ReplicaSet")
DEPLOYMENTS: Final = Collection("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = Collection("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS: Final = Collection("apps", "v1", "daemonsets", "DaemonSet")
REVISIONS: Final = Collection("apps", "v1", "controllerrevisions", "ControllerRevision")
JOBS: Final = Collection("batch", "v1", "jobs", "Job")
