"""What has to be around a copy in its mailbox: its namespace, and a binding or definition that brings its kind.  Pure.

Either may be on its way, and either may be going; then a copy waits, and whatever ends its waiting is heard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from farflung.controllers.placement_translator.engine import Engine
from farflung.controllers.placement_translator.offers import Offers, pending_since
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.placement_translator.world import NAMESPACES, Seen, World

LASTING: Final = 10.0  #: seconds after which something that should bring a kind, and does not, is worth a word


class Around:
    def __init__(self, world: World, engine: Engine, offers: Offers) -> None:
        """All of these are as they are at the moment when something is asked."""
        self._world = world
        self._engine = engine
        self._offers = offers

    def of(self, cluster: str, part: Part) -> Iterator[Part]:
        """What may not be needed any more when a part goes or is gone."""
        if part.namespace:
            yield Part(NAMESPACES, "", part.namespace)
        yield from self._offers.bringing(cluster, part.kind)

    def is_closing(self, cluster: str, part: Part) -> bool:
        """Whether nothing can be made there because what has to be around it is going."""
        if part.namespace:
            namespace = self._world.get(cluster, Part(NAMESPACES, "", part.namespace))
            if namespace is not None and not namespace.alive:
                return True
        bringing = [self._world.get(cluster, one) for one in self._offers.bringing(cluster, part.kind)]
        return bool(bringing) and not any(seen is not None and seen.alive for seen in bringing)

    def waiting(self, mailbox: str, cluster: str, part: Part) -> Iterator[Part]:
        """What is missing in a mailbox, and may have waited for the end of a namespace, a binding or a definition."""
        if part.kind == NAMESPACES:
            wanted = (
                one
                for key in self._engine.placements_at(mailbox)
                for one in self._world.inside(key.cluster, part.name)
                if self._engine.is_wanted_by(key, mailbox, one)
            )
        else:
            wanted = (one for one in self._engine.parts_at(mailbox))
        yield from (one for one in wanted if self._world.get(cluster, one) is None)

    def patience(self, mailbox: str, cluster: str, kind: Kind, sources: Iterable[str], now: datetime) -> float:
        """Seconds for which nothing need be said of a kind that a mailbox does not serve, as something that brings it
        is on its way from one of `sources`; infinite: until something is heard."""
        bringing = (one for source in sources for one in self._offers.bringing(source, kind))
        wanted = (one for one in bringing if self._engine.is_wanted(mailbox, one))
        return max((_left(one, self._world.get(cluster, one), now) for one in wanted), default=0.0)


def _left(bringer: Part, there: Seen | None, now: datetime) -> float:
    if there is None or not there.alive:
        return math.inf
    since = pending_since(bringer, there)
    return 0.0 if since is None else max(0.0, LASTING - max(0.0, (now - since).total_seconds()))
