"""All controllers of workloads, put together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from farflung.client.rest import Client
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.daemonset.controller import DaemonSetController
from farflung.controllers.workload.deployment.controller import DeploymentController
from farflung.controllers.workload.job.controller import JobController
from farflung.controllers.workload.pod_collector import PodCollector
from farflung.controllers.workload.pod_scheduler.controller import PodScheduler
from farflung.controllers.workload.replicaset.controller import ReplicaSetController
from farflung.controllers.workload.statefulset.controller import StatefulSetController
from farflung.lib.klog import Logger
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder
from farflung.runtime.reflector import Environment


def join(
    manager: Manager,
    client: Client,
    env: Environment,
    recorder: Recorder,
    now: Callable[[], datetime],
    suffix: Callable[[], str],
    log: Logger,
) -> None:
    """`client`: of one cluster; `suffix`: the random end of a pod's name.  They share one set of informers."""
    workshop = Workshop(client, env, recorder, now, suffix, log)
    ReplicaSetController(workshop).join(manager)
    DeploymentController(workshop).join(manager)
    StatefulSetController(workshop).join(manager)
    DaemonSetController(workshop).join(manager)
    JobController(workshop).join(manager)
    PodScheduler(workshop).join(manager)
    PodCollector(workshop).join(manager)
