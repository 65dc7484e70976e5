"""The node agent: runs the pods that are bound to its node, and writes their status, as kubelet does."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import traceback

import orjson

from farflung.apis.names import CONFIG_MAPS, PODS, SECRETS
from farflung.client.rest import ListOptions
from farflung.edge.node.context import NodeConfig, NodeContext, wait_for_either
from farflung.edge.node.environment import CONFIG_MAP, SECRET
from farflung.edge.node.pod_worker import PodWorker
from farflung.edge.node.registration import Registration
from farflung.edge.runtimes.log_files import pods_directory
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.informer import Informer

ObjectRef = tuple[str, str, str]  #: kind, namespace and name


class NodeAgent:
    """Each pod has its own task, so that no pod waits for another.

    After a restart of the process, the agent restarts the containers that were running, and counts that as a restart.
    """

    def __init__(self, config: NodeConfig) -> None:
        config.directory.mkdir(parents=True, exist_ok=True)
        self._config = config
        client, env = config.client, config.env
        self._registration = Registration(config)
        selection = ListOptions(fields=f"spec.nodeName={config.name}")
        self._pods: Informer[Obj] = Informer(client, PODS, orjson.loads, env, self._log_error, selection)
        self._config_maps: Informer[Obj] = Informer(client, CONFIG_MAPS, orjson.loads, env, self._log_error)
        self._secrets: Informer[Obj] = Informer(client, SECRETS, orjson.loads, env, self._log_error)
        self._context = NodeContext(
            **vars(config), allocatable=self._registration.capacity, find=self._find, assume=self._pods.assume
        )
        self._workers: dict[str, PodWorker] = {}  #: by pod uid
        self._users: dict[ObjectRef, set[str]] = {}  #: uids of the pods that refer to a ConfigMap or Secret
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def run(self) -> None:
        """Run until cancelled; then stop all containers."""
        async with asyncio.TaskGroup() as pods:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._registration.run(), name="registration of the node")
                    for informer in (self._config_maps, self._secrets):
                        group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
                    await self._config_maps.synced.wait()
                    await self._secrets.synced.wait()
                    self._config_maps.subscribe(lambda change: self._on_reference(CONFIG_MAP, change))
                    self._secrets.subscribe(lambda change: self._on_reference(SECRET, change))
                    self._pods.subscribe(lambda change: self._on_pod(change, pods))
                    group.create_task(self._pods.run(), name="informer of pods")
                    await self._pods.synced.wait()
                    await self._remove_stale_directories()
            finally:
                await self._close()

    async def _close(self) -> None:
        self._closing = True
        for worker in self._workers.values():
            worker.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._config.runtime.close()

    # --- changes ----------------------------------------------------------------------------------

    def _on_pod(self, change: CacheChange[Obj], pods: asyncio.TaskGroup) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or new["metadata"]["uid"] != old["metadata"]["uid"]):
            self._remove(old["metadata"]["uid"])
        if new is None:
            return
        worker = self._workers.get(new["metadata"]["uid"])
        if worker is not None:
            worker.update(new)
            return
        worker = self._workers[new["metadata"]["uid"]] = PodWorker(self._context, new)
        for kind, name in worker.references:
            self._users.setdefault((kind, worker.namespace, name), set()).add(worker.uid)
        task = pods.create_task(self._run_worker(worker), name=worker.full_name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _remove(self, uid: str) -> None:
        worker = self._workers.pop(uid, None)
        if worker is None:
            return
        worker.on_pod_deleted()
        for kind, name in worker.references:
            users = self._users.get((kind, worker.namespace, name), set())
            users.discard(uid)
            if not users:
                self._users.pop((kind, worker.namespace, name), None)

    def _on_reference(self, kind: str, change: CacheChange[Obj]) -> None:
        for uid in self._users.get((kind, change.key.namespace, change.key.name), ()):
            self._workers[uid].on_reference_changed()

    def _find(self, kind: str, namespace: str, name: str) -> Obj | None:
        informer = self._config_maps if kind == CONFIG_MAP else self._secrets
        return informer.cache.get(Key("", namespace, name))

    async def _run_worker(self, worker: PodWorker) -> None:
        """An unexpected error in one worker does not affect the others.  The worker is replaced after a backoff, which
        the deletion of the pod ends."""
        failures, env = 0, self._config.env
        while True:
            try:
                await worker.run()
                return
            except Exception as error:
                failures += 1
                self._config.log.error(_location(error), "a pod worker failed", pod=worker.full_name)
            backoff = env.sleep(env.backoff.delay(failures))
            await (backoff if worker.leaving.is_set() else wait_for_either(worker.leaving, backoff))
            pod = self._pods.cache.get(Key("", worker.namespace, worker.name))
            if self._closing or pod is None or pod["metadata"]["uid"] != worker.uid:
                return
            worker = self._workers[worker.uid] = PodWorker(self._context, pod)

    async def _remove_stale_directories(self) -> None:
        """Directories of pods that were deleted while the agent was not running."""
        known = {pod["metadata"]["uid"] for pod in self._pods.cache.values()} | set(self._workers)
        with contextlib.suppress(FileNotFoundError):
            for entry in pods_directory(self._config.directory).iterdir():
                if entry.name not in known:
                    await asyncio.to_thread(shutil.rmtree, entry, ignore_errors=True)

    def _log_error(self, what: str, error: Exception) -> None:
        self._config.log.error(error, what)


def _location(error: BaseException) -> Exception:
    """Type and line of an error, without its text, which may contain a Secret."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return RuntimeError(f"{type(error).__name__} at {last.filename}:{last.lineno}")
