"""Assembly of the workload controllers."""

from __future__ import annotations

from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.daemonset.controller import DaemonSetController
from farflung.controllers.workload.deployment.controller import DeploymentController
from farflung.controllers.workload.job.controller import JobController
from farflung.controllers.workload.pod_collector import PodCollector
from farflung.controllers.workload.pod_scheduler.controller import PodScheduler
from farflung.controllers.workload.replicaset.controller import ReplicaSetController
from farflung.controllers.workload.statefulset.controller import StatefulSetController
from farflung.runtime.manager import Manager


def add_workload_controllers(manager: Manager, client: WorkloadClient) -> None:
    """All controllers share the client's informers."""
    ReplicaSetController(client).join(manager)
    DeploymentController(client).join(manager)
    StatefulSetController(client).join(manager)
    DaemonSetController(client).join(manager)
    JobController(client).join(manager)
    PodScheduler(client).join(manager)
    PodCollector(client).join(manager)
