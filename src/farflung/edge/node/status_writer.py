"""Writes the status of one pod, when there is something to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from farflung.apis.names import PODS
from farflung.client.errors import ClientError, Conflict, Invalid, NotFound
from farflung.edge.node.context import NodeContext
from farflung.edge.node.status import PodState, is_same_status, pod_status
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds


class PodStatusWriter:
    def __init__(self, context: NodeContext, pod: Obj, facts: Callable[[], PodState]) -> None:
        self.pod = pod  #: as the server has it, as far as is known
        self._context = context
        self._facts = facts
        self._news = asyncio.Event()
        self._silent = False

    def hear(self, pod: Obj) -> None:
        self.pod = pod
        self._news.set()

    def fall_silent(self) -> None:
        """What happens from now on is nobody's business: the node ends, and the next one will find it so."""
        self._silent = True

    def changed(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Until cancelled, or silent."""
        while not self._silent:
            await self._news.wait()
            await self.flush()

    async def flush(self) -> None:
        """Until everything is told that is known now, or there is nobody whom it could be told."""
        failures = 0
        while not self._silent:
            self._news.clear()
            try:
                await self._write()
                return
            except NotFound:
                return
            except Conflict:
                if not await self._look_again():
                    return
            except Invalid as error:
                self._context.log.error(error, "the status of a pod is refused", pod=self._called)
                return
            except ClientError as error:
                failures += 1
                self._context.log.error(error, "cannot write the status of a pod", pod=self._called)
                await self._context.env.sleep(self._context.env.backoff.delay(failures, error.retry_after))

    async def _write(self) -> None:
        pod = self.pod
        status = pod_status(pod, self._facts(), self._context.address, format_seconds(self._context.now()))
        if not is_same_status(status, pod.get("status") or {}):
            self._context.assume(await self._context.client.update(PODS, {**pod, "status": status}, "status"))

    async def _look_again(self) -> bool:
        """Whether it is still there."""
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
        """The pod has ended: now it can go."""
        metadata, failures = self.pod["metadata"], 0
        while True:
            try:
                await self._context.client.delete(
                    PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=0
                )
                return
            except (NotFound, Conflict):
                return
            except ClientError as error:
                failures += 1
                self._context.log.error(error, "cannot delete a pod that has ended", pod=self._called)
                await self._context.env.sleep(self._context.env.backoff.delay(failures, error.retry_after))

    @property
    def _called(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"
