"""Runs one container of a pod: image, start, hooks, probes, exit, restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from farflung.edge.node.context import NodeContext, Stopped, wait_for_either, wait_unless
from farflung.edge.node.environment import PodConfigError
from farflung.edge.node.probes import Probe, ProbeCount, run_handler
from farflung.edge.node.status import ContainerRole, ContainerStatus, CrashBackoff, restart_delay
from farflung.edge.runtimes.base import Address, ContainerSpec, ImageError, StartedContainer, StartError
from farflung.edge.runtimes.log_files import remove_old_logs
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
MIN_GRACE: Final = 2.0  #: seconds to stop after the preStop hook used up the grace period
POST_START_TIMEOUT: Final = 3600.0  #: seconds


class Pod(Protocol):
    """The pod worker as its containers use it."""

    @property
    def context(self) -> NodeContext: ...

    @property
    def uid(self) -> str: ...

    @property
    def full_name(self) -> str:
        """`name_namespace(uid)`"""

    @property
    def policy(self) -> str:
        """Always, OnFailure or Never."""

    @property
    def grace(self) -> float:
        """terminationGracePeriodSeconds"""

    def definition(self, name: str) -> Obj:
        """The container in the current pod spec."""

    def container(self, name: str, attempt: int) -> ContainerSpec:
        """Raises PodConfigError."""

    def termination_message(self, name: str, attempt: int) -> str:
        """The content of terminationMessagePath."""

    async def publish(self, name: str, addresses: Sequence[tuple[int, str, Address]]) -> None:
        """Forward these host ports to the container; none after its exit.  Raises StartError."""

    def event(self, type: str, reason: str, message: str) -> None: ...

    def changed(self) -> None:
        """The status of a container changed."""


class ContainerWorker:
    def __init__(self, pod: Pod, status: ContainerStatus) -> None:
        self._pod = pod
        self._context = pod.context
        self.status = status
        self.name = status.name
        self.up = asyncio.Event()  #: it is running, and its startup probe succeeded
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._started: StartedContainer | None = None
        self._crashes = CrashBackoff()
        self._replacing = False

    def notify(self) -> None:
        """Retry now: the pod or a ConfigMap or Secret of it changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run until it exits without a restart, or is stopped."""
        try:
            while self._should_run():
                await self._back_off()
                started, definition = await self._start_when_possible()
                await self._run_until_exit(started, definition)
        except Stopped:
            pass
        self.status.finish()
        self._pod.changed()

    def _should_run(self) -> bool:
        replaced, self._replacing = self._replacing, False
        return not self._stopping.is_set() and (replaced or self.status.should_restart(self._pod.policy))

    async def stop(self, grace: float) -> None:
        """Stop it without a restart.  Returns after its exit."""
        first = not self._stopping.is_set()
        self._stopping.set()
        if self._started is not None:
            if first:
                self._pod.event(NORMAL, "Killing", f"Stopping container {self.name}")
            await self._stop_container(self._started, grace, hook=first)

    async def replace(self, grace: float) -> None:
        """Restart it with the changed definition."""
        self._changed.set()
        if self._started is not None and not self._replacing:
            self._replacing = True
            self._pod.event(NORMAL, "Killing", f"Container {self.name} definition changed, will be restarted")
            await self._stop_container(self._started, grace)

    # --- start ------------------------------------------------------------------------------------

    async def _back_off(self) -> None:
        delay = self._crashes.delay
        if self.status.exit_code is None or not delay:
            return
        message = f"back-off {delay:g}s restarting failed container={self.name} pod={self._pod.full_name}"
        self._set_waiting("CrashLoopBackOff", message)
        text = f"Back-off restarting failed container {self.name} in pod {self._pod.full_name}"
        self._pod.event(WARNING, "BackOff", text)
        await wait_unless(self._stopping, self._context.env.sleep(delay))

    async def _start_when_possible(self) -> tuple[StartedContainer, Obj]:
        failures = 0
        while not self._stopping.is_set():
            self._changed.clear()
            definition, attempt = self._pod.definition(self.name), self.status.attempt
            try:
                container = self._pod.container(self.name, attempt)
                self.status.image = container.image
                await self._pull(container, definition)
                return await self._start(container, definition), definition
            except PodConfigError as error:
                self._pod.event(WARNING, "Failed", f"Error: {error}")
                self._set_waiting("CreateContainerConfigError", str(error))
                await wait_unless(self._stopping, self._changed.wait())
            except ImageError as error:
                failures += 1
                await self._report_pull_error(container.image, error, restart_delay(failures))
            except (StartError, OSError) as error:
                failures += 1
                self._pod.event(WARNING, "Failed", f"Error: {error}")
                self._set_waiting(error.reason if isinstance(error, StartError) else "CreateContainerError", str(error))
                await self._pause(restart_delay(failures))
        raise Stopped

    async def _pull(self, container: ContainerSpec, definition: Obj) -> None:
        policy = definition.get("imagePullPolicy") or "IfNotPresent"
        await wait_unless(self._stopping, self._context.runtime.pull(container.image, policy))
        self._pod.event(NORMAL, "Pulled", f'Container image "{container.image}" is available')

    async def _report_pull_error(self, image: str, error: ImageError, delay: float) -> None:
        """First ErrImagePull with the error, then ImagePullBackOff, as kubelet does."""
        self._pod.event(WARNING, "Failed", f'Failed to pull image "{image}": {error}')
        self._set_waiting(error.reason, str(error))
        await self._pause(delay / 2)
        if error.reason == "ErrImagePull" and not self._changed.is_set():
            self._pod.event(NORMAL, "BackOff", f'Back-off pulling image "{image}"')
            self._set_waiting("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {error}')
        await self._pause(delay / 2)

    async def _pause(self, seconds: float) -> None:
        """`notify` ends it early."""
        await wait_unless(self._stopping, wait_for_either(self._changed, self._context.env.sleep(seconds)))

    async def _start(self, container: ContainerSpec, definition: Obj) -> StartedContainer:
        """Raises ImageError and StartError."""
        remove_old_logs(self._context.directory, container.pod_uid, self.name, container.attempt)
        started = await self._context.runtime.start(container)
        try:
            await self._pod.publish(self.name, _published_ports(definition, started))
        except Exception:
            await self._context.runtime.stop(started.id, 0)
            await self._context.runtime.remove(started.id)
            raise
        self._started = started
        self.status.run(started, container.image, format_seconds(self._context.now()), container.attempt)
        self._pod.event(NORMAL, "Created", f"Created container: {self.name}")
        self._pod.event(NORMAL, "Started", f"Started container {self.name}")
        if started.stand_in and not container.attempt:
            self._pod.event(NORMAL, "StandIn", f"{started.stand_in}.")
        self._pod.changed()
        return started

    # --- hooks, probes and exit -------------------------------------------------------------------

    async def _run_until_exit(self, started: StartedContainer, definition: Obj) -> None:
        began = self._context.env.monotonic()
        probes = asyncio.create_task(self._run_hooks_and_probes(started, definition), name=f"probes of {self.name}")
        try:
            if self._stopping.is_set():
                await self._context.runtime.stop(started.id, MIN_GRACE)
            finished = await self._context.runtime.wait(started.id)
        finally:
            self._started = None
            probes.cancel()
            await asyncio.wait({probes})
        self._crashes = self._crashes.after_exit(self._context.env.monotonic() - began)
        self.up.clear()
        message = finished.message or self._pod.termination_message(self.name, self.status.restarts)
        self.status.end(replace(finished, message=message))
        self._pod.changed()
        await self._pod.publish(self.name, ())
        await self._context.runtime.remove(started.id)
        if not probes.cancelled() and (error := probes.exception()) is not None:
            raise error

    async def _run_hooks_and_probes(self, started: StartedContainer, definition: Obj) -> None:
        """The postStart hook, then the probes."""
        hook = (definition.get("lifecycle") or {}).get("postStart")
        if hook:
            outcome = await run_handler(hook, definition, started, self._context.runtime, POST_START_TIMEOUT)
            if not outcome.success:
                self._pod.event(WARNING, "FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
                await self._stop_container(started, self._grace(None))
                return
        if self.status.role is ContainerRole.INIT:
            return
        if "startupProbe" in definition and not await self._run_startup_probe(started, definition):
            return
        self.status.started = True
        self.status.passing = "readinessProbe" not in definition
        self.up.set()
        self._pod.changed()
        async with asyncio.TaskGroup() as probes:
            if "readinessProbe" in definition:
                probes.create_task(self._run_readiness_probe(started, definition))
            if "livenessProbe" in definition:
                probes.create_task(self._run_liveness_probe(started, definition))

    async def _run_startup_probe(self, started: StartedContainer, definition: Obj) -> bool:
        probe, count = Probe.of(definition["startupProbe"]), ProbeCount()
        await self._context.env.sleep(probe.delay)
        while count.passing is None:
            count = await self._probe("Startup", probe, count, started, definition)
            if count.passing is None:
                await self._context.env.sleep(probe.period)
        if not count.passing:
            await self._kill_unhealthy("startup", probe, started)
        return count.passing

    async def _run_liveness_probe(self, started: StartedContainer, definition: Obj) -> None:
        probe, count = Probe.of(definition["livenessProbe"]), ProbeCount(passing=True)
        await self._context.env.sleep(probe.delay)
        while True:
            count = await self._probe("Liveness", probe, count, started, definition)
            if not count.passing:
                await self._kill_unhealthy("liveness", probe, started)
                return
            await self._context.env.sleep(probe.period)

    async def _run_readiness_probe(self, started: StartedContainer, definition: Obj) -> None:
        probe, count = Probe.of(definition["readinessProbe"]), ProbeCount(passing=False)
        await self._context.env.sleep(probe.delay)
        while True:
            count = await self._probe("Readiness", probe, count, started, definition)
            if self.status.passing != count.passing:
                self.status.passing = bool(count.passing)
                self._pod.changed()
            await self._context.env.sleep(probe.period)

    async def _probe(
        self, what: str, probe: Probe, count: ProbeCount, started: StartedContainer, definition: Obj
    ) -> ProbeCount:
        outcome = await run_handler(probe.handler, definition, started, self._context.runtime, probe.timeout)
        if not outcome.success:
            self._pod.event(WARNING, "Unhealthy", f"{what} probe failed: {outcome.message}")
        return count.after(outcome.success, probe)

    async def _kill_unhealthy(self, what: str, probe: Probe, started: StartedContainer) -> None:
        self._pod.event(NORMAL, "Killing", f"Container {self.name} failed {what} probe, will be restarted")
        await self._stop_container(started, self._grace(probe.grace))

    # --- stop -------------------------------------------------------------------------------------

    def _grace(self, wanted: float | None) -> float:
        return self._pod.grace if wanted is None else wanted

    async def _stop_container(self, started: StartedContainer, grace: float, *, hook: bool = True) -> None:
        definition = self._pod.definition(self.name)
        wanted = (definition.get("lifecycle") or {}).get("preStop")
        if hook and wanted and grace > 0:
            began = self._context.env.monotonic()
            outcome = await run_handler(wanted, definition, started, self._context.runtime, grace)
            if not outcome.success:
                self._pod.event(WARNING, "FailedPreStopHook", f"PreStopHook failed: {outcome.message}")
            grace = max(grace - (self._context.env.monotonic() - began), MIN_GRACE)
        await self._context.runtime.stop(started.id, grace)

    def _set_waiting(self, reason: str, message: str) -> None:
        self.status.wait(reason, message)
        self._pod.changed()


def _published_ports(definition: Obj, started: StartedContainer) -> list[tuple[int, str, Address]]:
    """Host ports, protocols and the addresses to forward them to."""
    return [
        (port["hostPort"], port.get("protocol") or "TCP", started.addresses[port["containerPort"]])
        for port in definition.get("ports") or ()
        if port.get("hostPort") and port.get("containerPort") in started.addresses
    ]
