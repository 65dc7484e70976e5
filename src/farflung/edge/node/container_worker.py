"""The life of one container: had, started, watched, ended, and all that again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from farflung.edge.node.context import NodeContext, Stopped, wait_for_either, wait_unless
from farflung.edge.node.environment import PodConfigError
from farflung.edge.node.probes import Probe, ProbeCount, run_handler
from farflung.edge.node.status import ContainerRole, ContainerStatus, CrashBackoff, restart_delay
from farflung.edge.runtimes.base import Address, ContainerExit, ContainerSpec, ImageError, StartedContainer, StartError
from farflung.edge.runtimes.log_files import remove_old_logs
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
LEAST: Final = 2.0  #: seconds that a container gets to end, after a hook took all its time
HOOK: Final = 3600.0  #: seconds that a hook after the start may take


class Pod(Protocol):
    """What a container knows of its pod."""

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
        """Seconds that containers get to end."""

    def definition(self, name: str) -> Obj:
        """Of a container, as it is now."""

    def container(self, name: str, attempt: int) -> ContainerSpec:
        """What is to be run.  Raises Unavailable."""

    def message_of(self, name: str, attempt: int) -> str:
        """What it left to be read after its end."""

    async def publish(self, name: str, addresses: Sequence[tuple[int, str, Address]]) -> None:
        """Ports of the node that lead to this container; none when it has ended.  Raises StartError."""

    def event(self, type: str, reason: str, message: str) -> None: ...

    def changed(self) -> None:
        """Something of a container is to be told."""


class ContainerWorker:
    def __init__(self, pod: Pod, status: ContainerStatus) -> None:
        self._pod = pod
        self._context = pod.context
        self.status = status
        self.name = status.name
        self.up = asyncio.Event()  #: it was started, and its startup probe has nothing against it
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._started: StartedContainer | None = None
        self._crashes = CrashBackoff()
        self._replaced = False

    def notify(self) -> None:
        """Something changed that it may wait for."""
        self._news.set()

    async def run(self) -> None:
        """Until it has ended for good, or was stopped."""
        try:
            while self._wanted():
                await self._back_off()
                started, definition = await self._begin()
                await self._tended(started, definition)
        except Stopped:
            pass
        self.status.finish()
        self._pod.changed()

    def _wanted(self) -> bool:
        replaced, self._replaced = self._replaced, False
        return not self._stopping.is_set() and (replaced or self.status.should_restart(self._pod.policy))

    async def stop(self, grace: float) -> None:
        """For good.  Returns when it has ended."""
        first = not self._stopping.is_set()
        self._stopping.set()
        if self._started is not None:
            if first:
                self._pod.event(NORMAL, "Killing", f"Stopping container {self.name}")
            await self._end(self._started, grace, hook=first)

    async def replace(self, grace: float) -> None:
        """It is to be another one."""
        self._news.set()
        if self._started is not None and not self._replaced:
            self._replaced = True
            self._pod.event(NORMAL, "Killing", f"Container {self.name} definition changed, will be restarted")
            await self._end(self._started, grace)

    # --- until it runs ----------------------------------------------------------------------------

    async def _back_off(self) -> None:
        delay = self._crashes.delay
        if self.status.exit_code is None or not delay:
            return
        message = f"back-off {delay:g}s restarting failed container={self.name} pod={self._pod.full_name}"
        self._wait("CrashLoopBackOff", message)
        to_object = f"Back-off restarting failed container {self.name} in pod {self._pod.full_name}"
        self._pod.event(WARNING, "BackOff", to_object)
        await wait_unless(self._stopping, self._context.env.sleep(delay))

    async def _begin(self) -> tuple[StartedContainer, Obj]:
        failures = 0
        while not self._stopping.is_set():
            self._news.clear()
            definition, attempt = self._pod.definition(self.name), self.status.attempt
            try:
                container = self._pod.container(self.name, attempt)
                self.status.image = container.image
                await self._have(container, definition)
                return await self._start(container, definition), definition
            except PodConfigError as error:
                self._pod.event(WARNING, "Failed", f"Error: {error}")
                self._wait("CreateContainerConfigError", str(error))
                await wait_unless(self._stopping, self._news.wait())
            except ImageError as error:
                failures += 1
                await self._without_image(container.image, error, restart_delay(failures))
            except (StartError, OSError) as error:
                failures += 1
                self._pod.event(WARNING, "Failed", f"Error: {error}")
                self._wait(error.reason if isinstance(error, StartError) else "CreateContainerError", str(error))
                await self._pause(restart_delay(failures))
        raise Stopped

    async def _have(self, container: ContainerSpec, definition: Obj) -> None:
        policy = definition.get("imagePullPolicy") or "IfNotPresent"
        await wait_unless(self._stopping, self._context.runtime.pull(container.image, policy))
        self._pod.event(NORMAL, "Pulled", f'Container image "{container.image}" is at hand')

    async def _without_image(self, image: str, error: ImageError, delay: float) -> None:
        """First why, then that it is tried again: one after the other, as kubelet tells it."""
        self._pod.event(WARNING, "Failed", f'Failed to pull image "{image}": {error}')
        self._wait(error.reason, str(error))
        await self._pause(delay / 2)
        if error.reason == "ErrImagePull" and not self._news.is_set():
            self._pod.event(NORMAL, "BackOff", f'Back-off pulling image "{image}"')
            self._wait("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {error}')
        await self._pause(delay / 2)

    async def _pause(self, seconds: float) -> None:
        """Shorter, if something changes."""
        await wait_unless(self._stopping, wait_for_either(self._news, self._context.env.sleep(seconds)))

    async def _start(self, container: ContainerSpec, definition: Obj) -> StartedContainer:
        """Raises ImageError and StartError."""
        remove_old_logs(self._context.directory, container.pod_uid, self.name, container.attempt)
        started = await self._context.runtime.start(container)
        try:
            await self._pod.publish(self.name, _published(definition, started))
        except Exception:
            await self._context.runtime.stop(started.id, 0)
            await self._context.runtime.remove(started.id)
            raise
        self._started = started
        self.status.run(started, container.image, self._now(), container.attempt)
        self._pod.event(NORMAL, "Created", f"Created container: {self.name}")
        self._pod.event(NORMAL, "Started", f"Started container {self.name}")
        if started.stand_in and not container.attempt:
            self._pod.event(NORMAL, "StandIn", f"{started.stand_in}.")
        self._pod.changed()
        return started

    # --- while it runs ----------------------------------------------------------------------------

    async def _tended(self, started: StartedContainer, definition: Obj) -> None:
        began = self._context.env.monotonic()
        tending = asyncio.create_task(self._tend(started, definition), name=f"probes of {self.name}")
        try:
            if self._stopping.is_set():
                await self._context.runtime.stop(started.id, LEAST)
            finished = await self._context.runtime.wait(started.id)
        finally:
            self._started = None
            tending.cancel()
            await asyncio.wait({tending})
        self._crashes = self._crashes.ended(self._context.env.monotonic() - began)
        self.up.clear()
        self._note(finished)
        await self._pod.publish(self.name, ())
        await self._context.runtime.remove(started.id)
        if not tending.cancelled() and (error := tending.exception()) is not None:
            raise error

    def _note(self, finished: ContainerExit) -> None:
        attempt = self.status.restarts
        message = finished.message or self._pod.message_of(self.name, attempt)
        self.status.end(ContainerExit(finished.exit_code, finished.at, finished.reason, message))
        self._pod.changed()

    async def _tend(self, started: StartedContainer, definition: Obj) -> None:
        """Hook and probes."""
        hook = (definition.get("lifecycle") or {}).get("postStart")
        if hook:
            outcome = await run_handler(hook, definition, started, self._context.runtime, HOOK)
            if not outcome.success:
                self._pod.event(WARNING, "FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
                await self._end(started, self._grace(None))
                return
        if self.status.role is ContainerRole.INIT:
            return
        if "startupProbe" in definition and not await self._startup(started, definition):
            return
        self.status.started = True
        self.status.passing = "readinessProbe" not in definition
        self.up.set()
        self._pod.changed()
        async with asyncio.TaskGroup() as probes:
            if "readinessProbe" in definition:
                probes.create_task(self._readiness(started, definition))
            if "livenessProbe" in definition:
                probes.create_task(self._liveness(started, definition))

    async def _startup(self, started: StartedContainer, definition: Obj) -> bool:
        probe, count = Probe.of(definition["startupProbe"]), ProbeCount()
        await self._context.env.sleep(probe.delay)
        while count.passing is None:
            count = await self._probed("Startup", probe, count, started, definition)
            if count.passing is None:
                await self._context.env.sleep(probe.period)
        if not count.passing:
            await self._fail("startup", probe, started)
        return count.passing

    async def _liveness(self, started: StartedContainer, definition: Obj) -> None:
        probe, count = Probe.of(definition["livenessProbe"]), ProbeCount(passing=True)
        await self._context.env.sleep(probe.delay)
        while True:
            count = await self._probed("Liveness", probe, count, started, definition)
            if not count.passing:
                await self._fail("liveness", probe, started)
                return
            await self._context.env.sleep(probe.period)

    async def _readiness(self, started: StartedContainer, definition: Obj) -> None:
        probe, count = Probe.of(definition["readinessProbe"]), ProbeCount(passing=False)
        await self._context.env.sleep(probe.delay)
        while True:
            count = await self._probed("Readiness", probe, count, started, definition)
            if self.status.passing != count.passing:
                self.status.passing = bool(count.passing)
                self._pod.changed()
            await self._context.env.sleep(probe.period)

    async def _probed(
        self, what: str, probe: Probe, count: ProbeCount, started: StartedContainer, definition: Obj
    ) -> ProbeCount:
        outcome = await run_handler(probe.handler, definition, started, self._context.runtime, probe.timeout)
        if not outcome.success:
            self._pod.event(WARNING, "Unhealthy", f"{what} probe failed: {outcome.message}")
        return count.after(outcome.success, probe)

    async def _fail(self, what: str, probe: Probe, started: StartedContainer) -> None:
        self._pod.event(NORMAL, "Killing", f"Container {self.name} failed {what} probe, will be restarted")
        await self._end(started, self._grace(probe.grace))

    # --- its end ----------------------------------------------------------------------------------

    def _grace(self, wanted: float | None) -> float:
        return self._pod.grace if wanted is None else wanted

    async def _end(self, started: StartedContainer, grace: float, *, hook: bool = True) -> None:
        definition = self._pod.definition(self.name)
        wanted = (definition.get("lifecycle") or {}).get("preStop")
        if hook and wanted and grace > 0:
            began = self._context.env.monotonic()
            outcome = await run_handler(wanted, definition, started, self._context.runtime, grace)
            if not outcome.success:
                self._pod.event(WARNING, "FailedPreStopHook", f"PreStopHook failed: {outcome.message}")
            grace = max(grace - (self._context.env.monotonic() - began), LEAST)
        await self._context.runtime.stop(started.id, grace)

    def _wait(self, reason: str, message: str) -> None:
        self.status.wait(reason, message)
        self._pod.changed()

    def _now(self) -> str:
        return format_seconds(self._context.now())


def _published(definition: Obj, started: StartedContainer) -> list[tuple[int, str, Address]]:
    """The ports of the node that are to lead to it."""
    return [
        (port["hostPort"], port.get("protocol") or "TCP", started.addresses[port["containerPort"]])
        for port in definition.get("ports") or ()
        if port.get("hostPort") and port.get("containerPort") in started.addresses
    ]
