"""Write the SyncerConfig `the-one` of each mailbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from farflung.apis.edge.names import SYNCER_CONFIGS
from farflung.client.errors import AlreadyExists, NotFound
from farflung.controllers.placement_translator.status_writer import TranslatorContext
from farflung.machinery.errors import Obj
from farflung.placement.feeds import DiscoveryCache
from farflung.placement.names import GroupResource, PlacementKey
from farflung.placement.syncer_config import THE_ONE, SyncerSpec, combine_specs, parse_syncer_spec
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer

LATER: Final = 10.0  #: seconds until a mailbox without the edge API is tried again


class SyncerConfigWriter:
    def __init__(
        self,
        context: TranslatorContext,
        serving: DiscoveryCache,
        configs: Informer[bytes],
    ) -> None:
        self._known = context.known
        self._serving = serving
        self._configs = configs
        self._failing_objects = context.failing_objects
        self._view = context.views.edge_of
        self._log = context.log
        #: many mailboxes have the same placements
        self._wanted: dict[tuple[PlacementKey, ...], tuple[SyncerSpec, frozenset[GroupResource]]] = {}
        self._specs: dict[tuple[object, ...], tuple[SyncerSpec, Obj]] = {}

    def forget(self) -> None:
        """The spec of some SyncerConfig may have changed."""
        self._wanted.clear()
        self._specs.clear()

    async def configure(self, mailbox: str) -> float | None:
        """Seconds after which to reconcile again, or None."""
        cluster = self._known.mailboxes.get(mailbox)
        if cluster is None:
            return None
        placements = self._decided(mailbox)
        if any(self._serving.known(key.cluster) is None for key in placements):
            return None  # the end of the discovery enqueues the mailbox again
        told, spec = self._desired(placements, cluster)
        document = self._configs.cache.get(Key(cluster, "", THE_ONE))
        if document is None:
            return await self._create(mailbox, cluster, spec)
        before = orjson.loads(document)
        there = before.get("spec") or {}
        if self._known.has_undecided_copies(mailbox) or self._failing_objects():
            spec = parse_syncer_spec(there).joined(told).spec()  # held copies stay in the cluster too
        if {"namespaceScope": {}, **there} != spec:
            await self._update(mailbox, cluster, before | {"spec": spec})
        return None

    def _decided(self, mailbox: str) -> list[PlacementKey]:
        engine = self._known.engine
        return [key for key in engine.placements_at(mailbox) if engine.what(key) is not None]

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

    # --- desired spec -----------------------------------------------------------------------------

    def _desired(self, placements: list[PlacementKey], cluster: str) -> tuple[SyncerSpec, Obj]:
        common = tuple(placements)
        if common not in self._wanted:
            told = combine_specs(self._known.engine, self._known.world, placements, self._namespaced)
            self._wanted[common] = told, frozenset(part.kind for part in told.parts)
        told, kinds = self._wanted[common]
        versions = {kind: version for kind in kinds if (version := self._version(cluster, kind))}
        own = common, tuple(versions.items())
        if own not in self._specs:
            told = told._replace(versions={**versions, **told.versions})
            self._specs[own] = told, told.spec()
        return self._specs[own]

    def _namespaced(self, cluster: str) -> Mapping[GroupResource, str]:
        served = self._serving.known(cluster)
        assert served is not None
        return served.namespaced

    def _version(self, cluster: str, kind: GroupResource) -> str:
        """API version of a kind in a mailbox; empty if it does not serve the kind."""
        source = self._known.offers.source(cluster, kind)
        return "" if source is None else source.version
