"""Write the SyncerConfig `the-one` of each mailbox."""

from __future__ import annotations

from typing import Final

import orjson

from farflung.apis.edge.names import SYNCER_CONFIGS
from farflung.client.errors import AlreadyExists, NotFound
from farflung.controllers.placement_translator.status_writer import TranslatorContext
from farflung.machinery.errors import Obj
from farflung.placement.feeds import DiscoveryCache
from farflung.placement.names import THE_ONE
from farflung.placement.syncer_config import SyncerSpecs
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer

LATER: Final = 10.0  #: seconds until a mailbox without the edge API is tried again


class SyncerConfigWriter:
    def __init__(self, context: TranslatorContext, serving: DiscoveryCache, configs: Informer[bytes]) -> None:
        self._mailboxes = context.known.mailboxes
        self._specs = SyncerSpecs(context.known, serving.namespaced)
        self._configs = configs
        self._failing_objects = context.failing_objects
        self._view = context.views.edge_of
        self._log = context.log
        self.forget = self._specs.forget

    async def configure(self, mailbox: str) -> float | None:
        """Seconds after which to reconcile again, or None."""
        cluster = self._mailboxes.get(mailbox)
        if cluster is None:
            return None
        document = self._configs.cache.get(Key(cluster, "", THE_ONE))
        before: Obj = {} if document is None else orjson.loads(document)
        there = before.get("spec") or {}
        spec = self._specs.desired(mailbox, cluster, there, is_failing=bool(self._failing_objects()))
        if spec is None:
            return None  # the end of the discovery enqueues the mailbox again
        if document is None:
            return await self._create(mailbox, cluster, spec)
        if {"namespaceScope": {}, **there} != spec:
            await self._update(mailbox, cluster, before | {"spec": spec})
        return None

    async def _create(self, mailbox: str, cluster: str, spec: Obj) -> float | None:
        head = {"apiVersion": SYNCER_CONFIGS.api_version, "kind": SYNCER_CONFIGS.kind, "metadata": {"name": THE_ONE}}
        try:
            answer = await self._view(cluster).create(SYNCER_CONFIGS, head | {"spec": spec})
        except AlreadyExists:
            return None  # an event follows
        except NotFound:
            return LATER
        self._log.info("Created SyncerConfig", v=2, mbwsName=mailbox, syncerConfig=THE_ONE)
        self._configs.assume(answer)
        return None

    async def _update(self, mailbox: str, cluster: str, wanted: Obj) -> None:
        answer = await self._view(cluster).update(SYNCER_CONFIGS, wanted)
        self._log.info(
            "Updated SyncerConfig",
            v=2,
            mbwsName=mailbox,
            syncerConfig=THE_ONE,
            resourceVersionOld=wanted["metadata"]["resourceVersion"],
            resourceVersionNew=answer["metadata"]["resourceVersion"],
        )
        self._configs.assume(answer)
