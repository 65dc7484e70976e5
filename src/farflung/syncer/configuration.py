"""Informers of the SyncerConfigs and EdgeSyncConfigs in the mailbox, and what they select together."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

import orjson

from farflung.apis.edge.names import EDGE_SYNC_CONFIGS, SYNCER_CONFIGS
from farflung.client.errors import Forbidden
from farflung.machinery.errors import Obj
from farflung.placement.names import THE_ONE, GroupResource, ObjectRef
from farflung.syncer.context import SyncerContext
from farflung.syncer.informers import InformerHandlers, KindInformers
from farflung.syncer.status import requested_release
from farflung.syncer.sync_scope import read_scope
from farflung.syncer.upsync import read_object

REPORTED: Final = ObjectRef(GroupResource(SYNCER_CONFIGS.group, SYNCER_CONFIGS.plural), "", THE_ONE)
CONFIGURATIONS: Final = {GroupResource(one.group, one.plural): one for one in (SYNCER_CONFIGS, EDGE_SYNC_CONFIGS)}


class ConfigInformers:
    def __init__(
        self, context: SyncerContext, accepts: Callable[[ObjectRef, str, Obj], bool], changed: Callable[[], None]
    ) -> None:
        """`accepts`: whether a configuration in this logical cluster counts; `changed`: called when the scope may have
        changed, or became known."""
        self.scope = read_scope((), context.kinds.named)  #: as of the last `update_scope`
        self._kinds = context.kinds
        self._log = context.log
        self._accepts = accepts
        self._changed = changed
        self._configs: dict[ObjectRef, Obj] = {}
        self._informers: KindInformers[Obj] = KindInformers(
            context.options.mailbox,
            context.mailbox_env,
            read_object,
            InformerHandlers(self._on_config, self._on_error, listed=lambda resource: changed()),
        )

    def watch(self, group: asyncio.TaskGroup) -> None:
        self._informers.watch(group, CONFIGURATIONS)

    def reset(self) -> None:
        """Stop the informers and forget the configurations.  The scope stays until the next `update_scope`."""
        self._informers.stop_all()
        self._configs.clear()

    def _on_config(self, ref: ObjectRef, cluster: str, config: Obj | None) -> None:
        if config is None:
            self._configs.pop(ref, None)
            self._changed()
            return
        if not self._accepts(ref, cluster, config):
            return
        before = self._configs.get(ref) or {}
        self._configs[ref] = config
        if before.get("spec") != config.get("spec") or requested_release(before) != requested_release(config):
            self._changed()

    def _on_error(self, resource: GroupResource, error: Exception) -> None:
        if isinstance(error, Forbidden):
            self._changed()
        self._log.info("cannot watch the mailbox", v=2, resource=str(resource), error=str(error))

    # --- what is known ----------------------------------------------------------------------------

    @property
    def the_one(self) -> Obj | None:
        return self._configs.get(REPORTED)

    @property
    def is_known(self) -> bool:
        """Whether all configurations were listed.  Before that, the syncer watches no copies: it would ignore copies
        that are selected, and withdraw upsynced objects."""
        if self._kinds.mailbox.groups == () or not self._informers.is_listed(REPORTED.resource):
            return False
        return all(map(self._is_settled, CONFIGURATIONS))

    def _is_settled(self, resource: GroupResource) -> bool:
        """Whether configurations of a kind were listed, or cannot be."""
        informers = self._informers
        silent = self._kinds.in_mailbox(resource, "") is None or isinstance(informers.error(resource), Forbidden)
        return silent or informers.is_listed(resource)

    def content_hash(self) -> str:
        return hashlib.sha256(orjson.dumps([one.get("spec") for one in self._sorted()])).hexdigest()

    def update_scope(self) -> bool:
        """Read the configurations.  Returns whether the scope changed."""
        scope = read_scope(self._sorted(), self._kinds.named)
        changed, self.scope = scope != self.scope, scope
        if changed:
            for problem in scope.problems:
                self._log.warning("invalid configuration", problem=problem)
        return changed

    def _sorted(self) -> list[Obj]:
        return [self._configs[ref] for ref in sorted(self._configs)]
