"""Runs one pod on its node, until nothing of it is left."""

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
from farflung.runtime.recorder import InvolvedObject

DEFAULT_GRACE: Final = 30.0  #: seconds
DELETED_GRACE: Final = 2.0  #: most seconds for containers to stop if the pod object is already deleted
CLOSING_GRACE: Final = 5.0  #: most seconds for containers to stop if the process ends


class PodWorker:
    """Runs the containers of one pod."""

    def __init__(self, context: NodeContext, pod: Obj) -> None:
        metadata = pod["metadata"]
        self.context = context
        self.name, self.namespace, self.uid = metadata["name"], metadata["namespace"], metadata["uid"]
        self.full_name = f"{self.name}_{self.namespace}({self.uid})"
        self.references = referenced_objects(pod)  #: kinds and names of its ConfigMaps and Secrets
        self._about = InvolvedObject("", "v1", "Pod", self.name, self.namespace, self.uid)
        self._directory = pods_directory(context.directory) / self.uid
        self._status_writer = PodStatusWriter(context, pod, self._observe)
        self._volumes = Volumes(context, pod, self._directory / "volumes")
        self._volume_manager = VolumeManager(context, self._volumes, lambda: self._pod, self._warn)
        self._containers = self._restore(pod)
        self._initialized = self._containers[0].status.role is ContainerRole.MAIN
        self._failure = ("", "")  #: reason and message, if the whole pod has failed
        self._published: dict[str, Sequence[tuple[int, str, Address]]] = {}
        self._publishing = asyncio.Lock()
        self._spec_changed = asyncio.Event()
        self._stopping = asyncio.Event()  #: its containers shall stop
        self._deadline_changed = asyncio.Event()  #: containers shall stop sooner
        self.leaving = asyncio.Event()  #: the pod is deleted or the process ends
        self._closing = asyncio.Event()
        self._deleted = False
        self._finished = False
        self._check_deletion(None)

    @property
    def _pod(self) -> Obj:
        """The last known version."""
        return self._status_writer.pod

    def _restore(self, pod: Obj) -> list[ContainerWorker]:
        status, now = pod.get("status") or {}, format_seconds(self.context.now())
        former_statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        former = {one["name"]: one for one in former_statuses}
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

    # --- calls of the agent -----------------------------------------------------------------------

    def update(self, pod: Obj) -> None:
        before = self._pod
        self._status_writer.update(pod)
        self._check_deletion(before)
        if pod["spec"] != before["spec"]:
            self._spec_changed.set()
        if any(pod["metadata"].get(one) != before["metadata"].get(one) for one in ("labels", "annotations")):
            self._volume_manager.notify()

    def on_reference_changed(self) -> None:
        """A ConfigMap or Secret of the pod changed."""
        self._volume_manager.notify()
        for worker in self._containers:
            worker.notify()

    def on_pod_deleted(self) -> None:
        self._deleted = True
        self._begin_stop()

    def close(self) -> None:
        self._status_writer.stop()
        self._closing.set()
        self._begin_stop()

    def _check_deletion(self, before: Obj | None) -> None:
        is_new = before is None or _deletion(before) != _deletion(self._pod)
        if "deletionTimestamp" in self._pod["metadata"] and is_new:
            self._begin_stop()

    def _begin_stop(self) -> None:
        self.leaving.set()
        self._deadline_changed.set()
        self._stopping.set()

    # --- lifecycle --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until the pod is deleted or the process ends."""
        with suppress(Stopped):
            if (self._pod.get("status") or {}).get("phase") not in FINISHED:
                try:
                    await self._run_with_helpers()
                except BaseException:
                    await asyncio.gather(*(worker.stop(0) for worker in self._containers))
                    raise
                self._finished = True
                await wait_unless(self._closing, self._status_writer.flush())
            await wait_unless(self._closing, self._clean_up())

    async def _run_with_helpers(self) -> None:
        async with asyncio.TaskGroup() as group:
            loops = (
                self._status_writer.run(),
                self._volume_manager.run(),
                self._stop_containers(),
                self._follow_spec(),
            )
            helpers = [group.create_task(loop) for loop in loops]
            try:
                self.changed()
                with suppress(Stopped):
                    await wait_unless(self._stopping, self._volume_manager.ready.wait())
                    self.changed()
                    await self._run_containers()
            finally:
                for helper in helpers:
                    helper.cancel()

    async def _run_containers(self) -> None:
        sidecars: list[ContainerWorker] = []
        async with asyncio.TaskGroup() as group:
            if await self._initialize(group, sidecars):
                self._initialized = True
                mains = [worker for worker in self._containers if worker.status.role is ContainerRole.MAIN]
                await asyncio.gather(*(worker.run() for worker in mains))
            for worker in reversed(sidecars):
                await worker.stop(self._stop_grace() if self._stopping.is_set() else self.grace)

    async def _initialize(self, group: asyncio.TaskGroup, sidecars: list[ContainerWorker]) -> bool:
        """Run the init containers and start the sidecars.  False if the main containers must not start."""
        for worker in self._containers:
            if worker.status.role is ContainerRole.INIT:
                await worker.run()
                if not worker.status.done:
                    return False
            elif worker.status.role is ContainerRole.SIDECAR:
                sidecars.append(worker)
                group.create_task(worker.run(), name=worker.name)
                try:
                    await wait_unless(self._stopping, worker.up.wait())
                except Stopped:
                    return False
        return not self._stopping.is_set()

    async def _stop_containers(self) -> None:
        await self._stopping.wait()
        async with asyncio.TaskGroup() as group:
            while True:
                self._deadline_changed.clear()
                for worker in self._containers:
                    if worker.status.role is not ContainerRole.SIDECAR or self._deleted or self._closing.is_set():
                        group.create_task(worker.stop(self._stop_grace()))
                await self._deadline_changed.wait()

    def _stop_grace(self) -> float:
        if self._closing.is_set():
            return min(self.grace, CLOSING_GRACE)
        if self._deleted:
            return min(self.grace, DELETED_GRACE)
        seconds = self._pod["metadata"].get("deletionGracePeriodSeconds")
        return self.grace if seconds is None else float(seconds)

    async def _follow_spec(self) -> None:
        """Enforce activeDeadlineSeconds, and replace containers whose image changed."""
        while True:
            self._spec_changed.clear()
            left = self._seconds_until_deadline()
            if left is None:
                await self._spec_changed.wait()
            elif left > 0:
                await wait_for_either(self._spec_changed, self.context.env.sleep(left))
            else:
                message = "Pod was active on the node longer than the specified deadline"
                self._failure = ("DeadlineExceeded", message)
                self._warn("DeadlineExceeded", message)
                self._stopping.set()
                return
            changed = [one for one in self._containers if one.status.image != self.definition(one.name).get("image")]
            await asyncio.gather(*(one.replace(self.grace) for one in changed))

    def _seconds_until_deadline(self) -> float | None:
        """Seconds until activeDeadlineSeconds has passed; None: no deadline."""
        allowed = self._pod["spec"].get("activeDeadlineSeconds")
        if allowed is None:
            return None
        now = self.context.now()
        try:
            since = parse((self._pod.get("status") or {}).get("startTime") or "")
        except TimeError:
            since = now
        return (since + timedelta(seconds=allowed) - now).total_seconds()

    async def _clean_up(self) -> None:
        await self._volumes.remove()
        await self.leaving.wait()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if not self._deleted:
            await self._status_writer.delete()

    # --- calls of the containers ------------------------------------------------------------------

    @property
    def policy(self) -> str:
        policy: str = self._pod["spec"].get("restartPolicy") or "Always"
        return policy

    @property
    def grace(self) -> float:
        seconds = self._pod["spec"].get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE if seconds is None else float(seconds)

    def definition(self, name: str) -> Obj:
        spec = self._pod["spec"]
        containers: list[Obj] = [*(spec.get("initContainers") or ()), *spec["containers"]]
        return next(one for one in containers if one["name"] == name)

    def container(self, name: str, attempt: int) -> ContainerSpec:
        return build_container_spec(self.context, self._pod, self.definition(name), attempt, self._volumes, self.grace)

    def termination_message(self, name: str, attempt: int) -> str:
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
                ports = ", ".join(f"{port}/{protocol}" for port, protocol, _ in addresses)
                message = f"host port {ports} is not available: {error.strerror or error}"
                raise StartError("RunContainerError", message) from None

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

    def _observe(self) -> PodState:
        statuses = [worker.status for worker in self._containers]
        return PodState(
            init=tuple(one.to_object() for one in statuses if one.role is not ContainerRole.MAIN),
            containers=tuple(one.to_object() for one in statuses if one.role is ContainerRole.MAIN),
            mounted=self._volume_manager.ready.is_set(),
            initialized=self._initialized,
            finished=self._finished,
            stand_ins=deduplicate(one.stand_in for one in statuses),
            reason=self._failure[0] if self._finished else "",
            message=self._failure[1],
        )


def _deletion(pod: Obj) -> tuple[object, object]:
    metadata = pod["metadata"]
    return metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
