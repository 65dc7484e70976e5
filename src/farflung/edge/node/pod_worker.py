"""The life of one pod on its node, from the first look at it until nothing is left of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from farflung.edge.node.container_spec import build_container_spec, read_termination_message
from farflung.edge.node.container_worker import WARNING, ContainerWorker
from farflung.edge.node.context import NodeContext, Stopped, wait_for_either, wait_unless
from farflung.edge.node.environment import referenced_objects
from farflung.edge.node.status import FINISHED, ContainerRole, ContainerStatus, PodState, deduplicate, waiting
from farflung.edge.node.status_writer import PodStatusWriter
from farflung.edge.node.volumes import VolumeManager, Volumes
from farflung.edge.runtimes.base import Address, ContainerSpec, StartError
from farflung.edge.runtimes.log_files import pods_directory
from farflung.machinery.errors import Obj
from farflung.machinery.times import TimeError, format_seconds, parse
from farflung.runtime.recorder import About

GRACE: Final = 30.0  #: seconds, where a pod says nothing
GONE: Final = 2.0  #: seconds that containers get whose pod nobody knows any more
CLOSING: Final = 5.0  #: seconds that they get at most when the node ends


class PodWorker:
    """Follows a pod: `update` says what it is now, `lose` that it is not there any more, `close` that the node ends."""

    def __init__(self, context: NodeContext, pod: Obj) -> None:
        metadata = pod["metadata"]
        self.context = context
        self.name, self.namespace, self.uid = metadata["name"], metadata["namespace"], metadata["uid"]
        self.full_name = f"{self.name}_{self.namespace}({self.uid})"
        self.needs = referenced_objects(pod)  #: kinds and names of what it is made of
        self._about = About("", "v1", "Pod", self.name, self.namespace, self.uid)
        self._directory = pods_directory(context.directory) / self.uid
        self._status_writer = PodStatusWriter(context, pod, self._facts)
        self._volumes = Volumes(context, pod, self._directory / "volumes")
        self._volume_manager = VolumeManager(context, self._volumes, lambda: self._status_writer.pod, self._warn)
        self._lives = self._restored(pod)
        self._initialized = self._lives[0].status.role is ContainerRole.MAIN
        self._failure = ("", "")  #: why the whole pod has failed: reason and message
        self._published: dict[str, Sequence[tuple[int, str, Address]]] = {}
        self._publishing = asyncio.Lock()
        self._respecified = asyncio.Event()
        self._doomed = asyncio.Event()  #: its containers are to end
        self._urged = asyncio.Event()  #: sooner than it seemed
        self.leaving = asyncio.Event()  #: it need not be kept when it has ended
        self._closing = asyncio.Event()
        self._gone = False
        self._over = False
        self._look_at_deletion(None)

    def _restored(self, pod: Obj) -> list[ContainerWorker]:
        status, now = pod.get("status") or {}, format_seconds(self.context.now())
        to_object = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        former = {one["name"]: one for one in to_object}
        statuses = []
        for container in pod["spec"].get("initContainers") or ():
            role = ContainerRole.SIDECAR if container.get("restartPolicy") == "Always" else ContainerRole.INIT
            statuses.append(ContainerStatus.of(container, role, former.get(container["name"]), now))
        first = waiting("PodInitializing") if statuses else waiting("ContainerCreating")
        for container in pod["spec"]["containers"]:
            one = ContainerStatus.of(container, ContainerRole.MAIN, former.get(container["name"]), now)
            one.state = first if "waiting" in one.state else one.state
            statuses.append(one)
        return [ContainerWorker(self, one) for one in statuses]

    # --- what the node says -----------------------------------------------------------------------

    def update(self, pod: Obj) -> None:
        before = self._status_writer.pod
        self._status_writer.hear(pod)
        self._look_at_deletion(before)
        if pod["spec"] != before["spec"]:
            self._respecified.set()
        if any(pod["metadata"].get(one) != before["metadata"].get(one) for one in ("labels", "annotations")):
            self._volume_manager.notify()

    def notify(self) -> None:
        """Something changed that it is made of."""
        self._volume_manager.notify()
        for life in self._lives:
            life.notify()

    def lose(self) -> None:
        self._gone = True
        self._hurry()

    def close(self) -> None:
        self._status_writer.fall_silent()
        self._closing.set()
        self._hurry()

    def _look_at_deletion(self, before: Obj | None) -> None:
        metadata = self._status_writer.pod["metadata"]
        if "deletionTimestamp" in metadata and (
            before is None or _deletion(before) != _deletion(self._status_writer.pod)
        ):
            self._hurry()

    def _hurry(self) -> None:
        self.leaving.set()
        self._urged.set()
        self._doomed.set()

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the node has nothing to do with it any more."""
        with suppress(Stopped):
            if (self._status_writer.pod.get("status") or {}).get("phase") not in FINISHED:
                try:
                    await self._attended()
                except BaseException:
                    await asyncio.gather(*(life.stop(0) for life in self._lives))
                    raise
                self._over = True
                await wait_unless(self._closing, self._status_writer.flush())
            await wait_unless(self._closing, self._leave())

    async def _attended(self) -> None:
        async with asyncio.TaskGroup() as group:
            works = (
                self._status_writer.run(),
                self._volume_manager.run(),
                self._end_when_doomed(),
                self._follow_changes(),
            )
            helpers = [group.create_task(work) for work in works]
            try:
                await self._live()
            finally:
                for helper in helpers:
                    helper.cancel()

    async def _live(self) -> None:
        self.changed()
        with suppress(Stopped):
            await wait_unless(self._doomed, self._volume_manager.ready.wait())
            self.changed()
            await self._run_containers()

    async def _run_containers(self) -> None:
        sidecars: list[ContainerWorker] = []
        async with asyncio.TaskGroup() as group:
            if await self._initialize(group, sidecars):
                self._initialized = True
                mains = [life for life in self._lives if life.status.role is ContainerRole.MAIN]
                await asyncio.gather(*(life.run() for life in mains))
            for life in reversed(sidecars):
                await life.stop(self._time_to_end() if self._doomed.is_set() else self.grace)

    async def _initialize(self, group: asyncio.TaskGroup, sidecars: list[ContainerWorker]) -> bool:
        """Whether the others can start."""
        for life in self._lives:
            if life.status.role is ContainerRole.INIT:
                await life.run()
                if not life.status.done:
                    return False
            elif life.status.role is ContainerRole.SIDECAR:
                sidecars.append(life)
                group.create_task(life.run(), name=life.name)
                try:
                    await wait_unless(self._doomed, life.up.wait())
                except Stopped:
                    return False
        return not self._doomed.is_set()

    async def _end_when_doomed(self) -> None:
        await self._doomed.wait()
        async with asyncio.TaskGroup() as group:
            while True:
                self._urged.clear()
                for life in self._lives:
                    if life.status.role is not ContainerRole.SIDECAR or self._gone or self._closing.is_set():
                        group.create_task(life.stop(self._time_to_end()))
                await self._urged.wait()

    def _time_to_end(self) -> float:
        if self._closing.is_set():
            return min(self.grace, CLOSING)
        if self._gone:
            return min(self.grace, GONE)
        said = self._status_writer.pod["metadata"].get("deletionGracePeriodSeconds")
        return self.grace if said is None else float(said)

    async def _follow_changes(self) -> None:
        """Of what is to be run, and of how long."""
        while True:
            self._respecified.clear()
            left = self._time_left()
            if left is None:
                await self._respecified.wait()
            elif left > 0:
                await wait_for_either(self._respecified, self.context.env.sleep(left))
            else:
                said = "Pod was active on the node longer than the specified deadline"
                self._failure = ("DeadlineExceeded", said)
                self._warn("DeadlineExceeded", said)
                self._doomed.set()
                return
            changed = [life for life in self._lives if life.status.image != self.definition(life.name).get("image")]
            await asyncio.gather(*(life.replace(self.grace) for life in changed))

    def _time_left(self) -> float | None:
        """Seconds that it may still run."""
        allowed = self._status_writer.pod["spec"].get("activeDeadlineSeconds")
        if allowed is None:
            return None
        now = self.context.now()
        try:
            since = parse((self._status_writer.pod.get("status") or {}).get("startTime") or "")
        except TimeError:
            since = now
        return (since + timedelta(seconds=allowed) - now).total_seconds()

    async def _leave(self) -> None:
        await self._volumes.remove()
        await self.leaving.wait()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if not self._gone:
            await self._status_writer.delete()

    # --- what its containers ask ------------------------------------------------------------------

    @property
    def policy(self) -> str:
        policy: str = self._status_writer.pod["spec"].get("restartPolicy") or "Always"
        return policy

    @property
    def grace(self) -> float:
        said = self._status_writer.pod["spec"].get("terminationGracePeriodSeconds")
        return GRACE if said is None else float(said)

    def definition(self, name: str) -> Obj:
        spec = self._status_writer.pod["spec"]
        containers: list[Obj] = [*(spec.get("initContainers") or ()), *spec["containers"]]
        return next(one for one in containers if one["name"] == name)

    def container(self, name: str, attempt: int) -> ContainerSpec:
        return build_container_spec(
            self.context, self._status_writer.pod, self.definition(name), attempt, self._volumes, self.grace
        )

    def message_of(self, name: str, attempt: int) -> str:
        return read_termination_message(self.context, self.uid, name, attempt)

    async def publish(self, name: str, addresses: Sequence[tuple[int, str, Address]]) -> None:
        async with self._publishing:
            if not addresses and not self._published.get(name):
                return
            self._published[name] = addresses
            try:
                await self._publish_all()
            except OSError as error:
                self._published[name] = ()
                with suppress(OSError):
                    await self._publish_all()
                raise StartError("RunContainerError", f"{_named(addresses)}: {error.strerror or error}") from None

    async def _publish_all(self) -> None:
        await self.context.publisher.withdraw(self.uid)
        for addresses in self._published.values():
            for port, protocol, address in addresses:
                await self.context.publisher.publish(self.uid, port, protocol, address)

    def event(self, type: str, reason: str, message: str) -> None:
        self.context.recorder.record(self._about, type, reason, message)

    def changed(self) -> None:
        self._status_writer.changed()

    def _warn(self, reason: str, message: str) -> None:
        self.event(WARNING, reason, message)

    def _facts(self) -> PodState:
        statuses = [life.status for life in self._lives]
        return PodState(
            init=tuple(one.to_object() for one in statuses if one.role is not ContainerRole.MAIN),
            containers=tuple(one.to_object() for one in statuses if one.role is ContainerRole.MAIN),
            mounted=self._volume_manager.ready.is_set(),
            initialized=self._initialized,
            over=self._over,
            stand_ins=deduplicate(one.stand_in for one in statuses),
            reason=self._failure[0] if self._over else "",
            message=self._failure[1],
        )


def _deletion(pod: Obj) -> tuple[object, object]:
    metadata = pod["metadata"]
    return metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")


def _named(addresses: Sequence[tuple[int, str, Address]]) -> str:
    ports = ", ".join(f"{port}/{protocol}" for port, protocol, _ in addresses)
    return f"host port {ports} cannot be had"
