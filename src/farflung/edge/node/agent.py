"""The node agent: runs the pods that are bound to its node, and tells how they are."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from farflung.apis.names import PODS, Collection
from farflung.client.rest import Client, Selection
from farflung.edge.node import registration
from farflung.edge.node.context import NodeContext, wait_for_either
from farflung.edge.node.environment import CONFIG_MAP, SECRET
from farflung.edge.node.pod_worker import PodWorker
from farflung.edge.node.registration import Registration
from farflung.edge.node.status_writer import PODS
from farflung.edge.runtimes.base import Publisher, Runtime
from farflung.edge.runtimes.log_files import pods_directory
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import Recorder
from farflung.runtime.reflector import Environment

CONFIG_MAPS: Final = Collection("", "v1", "configmaps", CONFIG_MAP)
SECRETS: Final = Collection("", "v1", "secrets", SECRET)

Need = tuple[str, str, str]  #: kind, namespace and name


class NodeAgent:
    """Every pod has a task of its own, so that none waits for another.

    What ran when the process ended is started again by the next one, with one restart more.
    """

    def __init__(
        self, client: Client, name: str, directory: Path, runtime: Runtime, publisher: Publisher,
        env: Environment, recorder: Recorder, now: Callable[[], datetime], log: Logger, *,
        host_paths: bool = False,
    ) -> None:  # fmt: skip
        """`host_paths`: pods may see directories of the machine."""
        directory.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._env = env
        self._directory = directory
        self._runtime = runtime
        self._registration = Registration(client, name, directory, runtime.name, env, now, log)
        selection = Selection(fields=f"spec.nodeName={name}")
        self._pods: Informer[Obj] = Informer(client, PODS, orjson.loads, env, self._trouble, selection)
        self._config_maps: Informer[Obj] = Informer(client, CONFIG_MAPS, orjson.loads, env, self._trouble)
        self._secrets: Informer[Obj] = Informer(client, SECRETS, orjson.loads, env, self._trouble)
        self._context = NodeContext(
            client, directory, runtime, publisher, env, recorder, now, log, registration.ADDRESS,
            self._registration.allocatable, self._find, self._pods.assume, host_paths,
        )  # fmt: skip
        self._lives: dict[str, PodWorker] = {}  #: by the uid of the pod
        self._needing: dict[Need, set[str]] = {}  #: uids of the pods that are made of it
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def run(self) -> None:
        """Until cancelled.  Then it ends its containers and waits for them."""
        async with asyncio.TaskGroup() as pods:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._registration.run(), name="registration of the node")
                    for informer in (self._config_maps, self._secrets):
                        group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
                    await self._config_maps.synced.wait()
                    await self._secrets.synced.wait()
                    self._config_maps.subscribe(lambda change: self._hear_of(CONFIG_MAP, change))
                    self._secrets.subscribe(lambda change: self._hear_of(SECRET, change))
                    self._pods.subscribe(lambda change: self._hear(change, pods))
                    group.create_task(self._pods.run(), name="informer of pods")
                    await self._pods.synced.wait()
                    await self._sweep()
            finally:
                await self._close()

    async def _close(self) -> None:
        self._closing = True
        for life in self._lives.values():
            life.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._runtime.close()

    # --- what is heard ----------------------------------------------------------------------------

    def _hear(self, change: Change[Obj], pods: asyncio.TaskGroup) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or new["metadata"]["uid"] != old["metadata"]["uid"]):
            self._lose(old["metadata"]["uid"])
        if new is None:
            return
        life = self._lives.get(new["metadata"]["uid"])
        if life is not None:
            life.update(new)
            return
        life = self._lives[new["metadata"]["uid"]] = PodWorker(self._context, new)
        for kind, name in life.needs:
            self._needing.setdefault((kind, life.namespace, name), set()).add(life.uid)
        task = pods.create_task(self._lived(life), name=life.full_name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lose(self, uid: str) -> None:
        life = self._lives.pop(uid, None)
        if life is None:
            return
        life.lose()
        for kind, name in life.needs:
            needing = self._needing.get((kind, life.namespace, name), set())
            needing.discard(uid)
            if not needing:
                self._needing.pop((kind, life.namespace, name), None)

    def _hear_of(self, kind: str, change: Change[Obj]) -> None:
        for uid in self._needing.get((kind, change.key.namespace, change.key.name), ()):
            self._lives[uid].notify()

    def _find(self, kind: str, namespace: str, name: str) -> Obj | None:
        informer = self._config_maps if kind == CONFIG_MAP else self._secrets
        return informer.cache.get(Key("", namespace, name))

    async def _lived(self, life: PodWorker) -> None:
        """A mistake of ours about one pod is told, costs the others nothing, and is not the end of the pod.  It is
        looked at again after a pause, which ends when the pod is to leave."""
        failures = 0
        while True:
            try:
                await life.run()
                return
            except Exception as error:
                failures += 1
                self._log.error(_context(error), "a pod cannot be looked after", pod=life.full_name)
            pause = self._env.sleep(self._env.backoff.delay(failures))
            await (pause if life.leaving.is_set() else wait_for_either(life.leaving, pause))
            pod = self._pods.cache.get(Key("", life.namespace, life.name))
            if self._closing or pod is None or pod["metadata"]["uid"] != life.uid:
                return
            life = self._lives[life.uid] = PodWorker(self._context, pod)

    async def _sweep(self) -> None:
        """What is left of pods that are not there any more."""
        known = {pod["metadata"]["uid"] for pod in self._pods.cache.values()} | set(self._lives)
        with contextlib.suppress(FileNotFoundError):
            for entry in pods_directory(self._directory).iterdir():
                if entry.name not in known:
                    await asyncio.to_thread(shutil.rmtree, entry, ignore_errors=True)

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.error(error, what)


def _context(error: BaseException) -> Exception:
    """Where it happened.  Its text may quote what somebody wrote, so it is not shown."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return RuntimeError(f"{type(error).__name__} at {last.filename}:{last.lineno}")
