"""What is wanted of a syncer, as the configurations in its mailbox say."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

import orjson

from farflung.apis.edge.names import EDGE_SYNC_CONFIGS, SYNCER_CONFIGS
from farflung.client.errors import Forbidden
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.reflector import Environment
from farflung.syncer.discovery import ServedKinds
from farflung.syncer.informers import KindInformers
from farflung.syncer.report import THE_ONE
from farflung.syncer.status import release
from farflung.syncer.types import Part, Resource
from farflung.syncer.upsync import read_object
from farflung.syncer.wanted import read_scope

REPORTED: Final = Part(Resource(SYNCER_CONFIGS.group, SYNCER_CONFIGS.plural), "", THE_ONE)
CONFIGURATIONS: Final = {Resource(one.group, one.plural): one for one in (SYNCER_CONFIGS, EDGE_SYNC_CONFIGS)}


class ConfigInformers:
    def __init__(
        self,
        mailbox: Client,
        kinds: ServedKinds,
        env: Environment,
        log: Logger,
        *,
        counts: Callable[[Part, str, Obj], bool],
        news: Callable[[], None],
    ) -> None:
        """`counts`: whether what a configuration of this cluster says does; `news`: told when something else may be
        wanted, or it is known at last what is."""
        self.wanted = read_scope((), kinds.named)  #: as of the last `read`
        self._kinds = kinds
        self._log = log
        self._counts = counts
        self._news = news
        self._configs: dict[Part, Obj] = {}
        self._feeds: KindInformers[Obj] = KindInformers(
            mailbox, read_object, self._hear, env, self._troubled, listed=lambda resource: news()
        )

    def listen(self, group: asyncio.TaskGroup) -> None:
        self._feeds.want(group, CONFIGURATIONS)

    def start_anew(self) -> None:
        """Nothing is known any more, and nobody listens.  What was wanted stays so until something else is."""
        self._feeds.stop_all()
        self._configs.clear()

    def _hear(self, part: Part, cluster: str, config: Obj | None) -> None:
        if config is None:
            self._configs.pop(part, None)
            self._news()
            return
        if not self._counts(part, cluster, config):
            return
        before = self._configs.get(part) or {}
        self._configs[part] = config
        if before.get("spec") != config.get("spec") or release(before) != release(config):
            self._news()

    def _troubled(self, resource: Resource, error: Exception) -> None:
        if isinstance(error, Forbidden):
            self._news()
        self._log.info("cannot listen to the mailbox", v=2, resource=str(resource), error=str(error))

    # --- what is known ----------------------------------------------------------------------------

    @property
    def the_one(self) -> Obj | None:
        return self._configs.get(REPORTED)

    @property
    def is_known(self) -> bool:
        """Until it is, nothing of the mailbox is listened to: what is then heard of would not be known to be wanted,
        and what came from the edge would be withdrawn."""
        if self._kinds.mailbox.groups == () or not self._feeds.is_known(REPORTED.resource):
            return False
        return all(map(self._is_settled, CONFIGURATIONS))

    def _is_settled(self, resource: Resource) -> bool:
        """Whether it is known what configurations of a kind say, or that they say nothing to us."""
        feeds = self._feeds
        silent = self._kinds.in_mailbox(resource, "") is None or isinstance(feeds.error(resource), Forbidden)
        return silent or feeds.is_known(resource)

    def digest(self) -> str:
        return hashlib.sha256(orjson.dumps([one.get("spec") for one in self._sorted()])).hexdigest()

    def update_scope(self) -> bool:
        """Find out what is wanted now.  Whether that is something else than before."""
        wanted = read_scope(self._sorted(), self._kinds.named)
        changed, self.wanted = wanted != self.wanted, wanted
        if changed:
            for problem in wanted.problems:
                self._log.warning("cannot make sense of a configuration", problem=problem)
        return changed

    def _sorted(self) -> list[Obj]:
        return [self._configs[part] for part in sorted(self._configs)]
