"""Writes the status of one pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from farflung.apis.names import PODS
from farflung.client.errors import ClientError, Invalid, NotFound, UpdateConflict
from farflung.edge.node.context import NODE_ADDRESS, NodeContext
from farflung.edge.node.status import PodState, is_same_status, pod_status
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds


class PodStatusWriter:
    def __init__(self, context: NodeContext, pod: Obj, observe: Callable[[], PodState]) -> None:
        self.pod = pod  #: the last known version
        self._context = context
        self._observe = observe
        self._changed = asyncio.Event()
        self._stopped = False

    def update(self, pod: Obj) -> None:
        self.pod = pod
        self._changed.set()

    def stop(self) -> None:
        """Write nothing more: the process ends, and the next one writes the status of the containers."""
        self._stopped = True

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled or stopped."""
        while not self._stopped:
            await self._changed.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write the current status.  Retries until it is written, or the pod does not exist."""
        failures = 0
        while not self._stopped:
            self._changed.clear()
            try:
                await self._write()
                return
            except NotFound:
                return
            except UpdateConflict:
                if not await self._refresh():
                    return
            except Invalid as error:
                self._context.log.error(error, "the API server refused the status of a pod", pod=self._full_name)
                return
            except ClientError as error:
                failures += 1
                self._context.log.error(error, "cannot write the status of a pod", pod=self._full_name)
                await self._context.env.sleep(self._context.env.backoff.delay(failures, error.retry_after))

    async def _write(self) -> None:
        pod = self.pod
        status = pod_status(pod, self._observe(), NODE_ADDRESS, format_seconds(self._context.now()))
        if not is_same_status(status, pod.get("status") or {}):
            self._context.assume(await self._context.client.update(PODS, {**pod, "status": status}, "status"))

    async def _refresh(self) -> bool:
        """Read the pod again.  False if it does not exist any more."""
        metadata = self.pod["metadata"]
        try:
            pod = await self._context.client.get(PODS, metadata["name"], metadata["namespace"])
        except NotFound:
            return False
        except ClientError:
            await self._context.env.sleep(self._context.env.backoff.delay(1))
            return True
        self._context.assume(pod)
        return bool(pod["metadata"]["uid"] == metadata["uid"])

    async def delete(self) -> None:
        """Delete the pod object, after its containers have stopped."""
        metadata, failures = self.pod["metadata"], 0
        while True:
            try:
                await self._context.client.delete(
                    PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=0
                )
                return
            except (NotFound, UpdateConflict):
                return
            except ClientError as error:
                failures += 1
                self._context.log.error(error, "cannot delete a terminated pod", pod=self._full_name)
                await self._context.env.sleep(self._context.env.backoff.delay(failures, error.retry_after))

    @property
    def _full_name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"
