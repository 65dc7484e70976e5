"""Composition of an embedded edge: a hub, workload controllers, a node, and forwarded ports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec
import uvloop

from farflung.apis.names import NODES
from farflung.cli.credentials import KUBECONFIG, url_of
from farflung.cli.hub import HubSettings, running
from farflung.client.errors import ClientError, KubeconfigError
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.controllers.workload.client import WorkloadClient
from farflung.edge.cluster import PREFIX
from farflung.edge.logs import NodeLogs
from farflung.edge.node.agent import NodeAgent
from farflung.edge.node.context import NodeConfig
from farflung.edge.ports import PortForwarder, PortUnavailable, forward_ports, port_error
from farflung.edge.registry import READY, STARTING, STOPPING, EdgeError, EdgeLock, EmbeddedEdge
from farflung.edge.runtimes import selection
from farflung.edge.runtimes.base import Runtime
from farflung.edge.runtimes.process import ProcessRuntime
from farflung.edge.workload_controllers import add_workload_controllers
from farflung.http.certificates import CertificateError
from farflung.lib import ids, klog, log_lines, outlet
from farflung.lib.errors import UserError
from farflung.lib.klog import Logger
from farflung.runtime.environment import system_environment
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder
from farflung.store.base import Unusable

GLANCE: Final = 0.03  #: seconds between two checks of the node
SIGNALS_UNTIL_EXIT: Final = 3  #: signals after which the process exits at once
MAX_DESCRIPTORS: Final = 1 << 16
COMPONENT: Final = "farflung-edge"
NODE_AGENT: Final = "kubelet"  #: component of Events, as users know it


def run(edge: EmbeddedEdge, *, verbosity: int) -> None:
    """Run until a signal.  Errors of the user are one line and exit code 1."""
    outlet.unblock(klog.lost)
    log_lines.configure(sys.stderr, verbose=False)
    log = Logger(sys.stderr, verbosity)
    try:
        with edge.locked() as lock:
            uvloop.run(_run(edge, lock, log))
    except (
        EdgeError,
        PortUnavailable,
        Unusable,
        UserError,
        CertificateError,
        KubeconfigError,
        selection.PodmanUnusable,
    ) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(_sentence(edge, error))


def _refuse(words: str) -> NoReturn:
    print(f"{PREFIX}{words}", file=sys.stderr)
    sys.exit(1)


def _sentence(edge: EmbeddedEdge, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:  # of the API server; other ports raise PortUnavailable
        return port_error(edge.spec.api_address, edge.spec.api_port, error)
    reason = (error.strerror or str(error)).lower()
    return f"cannot use {error.filename}: {reason}" if error.filename else reason


async def _run(edge: EmbeddedEdge, lock: EdgeLock, log: Logger) -> None:
    working = asyncio.create_task(_work(edge, lock, log), name="edge")
    signals = 0

    def stop() -> None:
        """First signal: orderly shutdown; second: at once, with the pods; third: exit, and the runtime's keeper stops
        the pods."""
        nonlocal signals
        signals += 1
        if signals >= SIGNALS_UNTIL_EXIT:
            outlet.drain()
            os._exit(1)
        lock.write_phase(STOPPING)
        log.info("stopping" if signals == 1 else "stopping at once")
        working.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await working
    except asyncio.CancelledError:
        log.info("stopped")


async def _work(edge: EmbeddedEdge, lock: EdgeLock, log: Logger) -> None:
    """Shutdown is in reverse order: pods, controllers, hub, ports."""
    spec = edge.spec
    settings = HubSettings(edge.hub, spec.api_address, spec.api_port, audits=False)
    async with (
        _choosing(edge, log) as chosen,
        forward_ports(spec.ports, log, _descriptors()) as ports,
        running(settings, NodeLogs(edge.node)) as server,
        load(str(edge.hub / KUBECONFIG)).transport() as transport,
    ):
        if not spec.api_port:
            edge.write_spec(msgspec.structs.replace(spec, api_port=server.port))
        lock.write_phase(STARTING, api=url_of(spec.api_address, server.port))
        runtime = await chosen
        if not isinstance(runtime, ProcessRuntime):
            edge.containers.touch()
        lock.write_phase(STARTING, runtime=runtime.name)
        try:
            await _live(edge, lock, Client(transport, "", COMPONENT), runtime, ports, log)
        finally:
            await runtime.close()


def _descriptors() -> int:
    """Raise the limit of file descriptors, and return it: pods and forwarded connections use some each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, min(hard, MAX_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@contextlib.asynccontextmanager
async def _choosing(edge: EmbeddedEdge, log: Logger) -> AsyncIterator[asyncio.Task[Runtime]]:
    """Starts while the hub starts."""
    spec = edge.spec

    def process() -> Runtime:
        return ProcessRuntime(edge.runtime, _now, commands=spec.local_commands)

    instance = ids.random_suffix()
    wanted = selection.select_runtime(spec.runtime, edge.runtime, process, instance, _now, log)
    task = asyncio.create_task(wanted, name="runtime")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _live(
    edge: EmbeddedEdge, lock: EdgeLock, client: Client, runtime: Runtime, ports: PortForwarder, log: Logger
) -> None:
    env = system_environment()
    recorder = Recorder(client, NODE_AGENT, _now, env.monotonic, lambda: f"{time.time_ns():x}", log)
    manager = Manager(log)
    add_workload_controllers(manager, WorkloadClient(client, env, recorder, _now, ids.random_suffix, log))
    config = NodeConfig(client, edge.node_name, edge.node, runtime, ports, env, recorder, _now, log)
    async with asyncio.TaskGroup() as group:
        beside = [
            group.create_task(manager.run(), name="controllers"),
            group.create_task(recorder.run(), name="events"),
            group.create_task(_announce(edge, lock, client, env.sleep), name="announcement"),
        ]
        try:
            await NodeAgent(config).run()
        finally:
            for task in beside:
                task.cancel()


async def _announce(
    edge: EmbeddedEdge, lock: EdgeLock, client: Client, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Report the edge as ready when its node is."""
    while not await _is_ready(client, edge.node_name):
        await sleep(GLANCE)
    lock.write_phase(READY)


async def _is_ready(client: Client, name: str) -> bool:
    try:
        node = await client.get(NODES, name)
    except ClientError:
        return False
    conditions = node.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _now() -> datetime:
    return datetime.now(UTC)
