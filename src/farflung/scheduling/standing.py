"""A site together with what is held of it."""

from __future__ import annotations

from typing import TypeAlias

from farflung.scheduling.ledger import Usage
from farflung.scheduling.values import Capacity, Site

Order: TypeAlias = tuple[str, str, str]


class Standing:
    """As it is at one moment: after each change there is another one, with another version.

    What is left is never below 0, although a site may have less than is held of it.  None: there is no limit.
    """

    __slots__ = ("eips", "memory", "memory_used", "order", "site", "usage", "vcpus", "vcpus_used", "version")

    def __init__(self, site: Site, usage: Usage, version: int = 0) -> None:
        capacity, elsewhere = site.capacity, site.used_elsewhere
        self.site = site
        self.usage = usage
        self.version = version
        #: of two that are as good, the one that is first by name is taken
        self.order: Order = (site.key.name, site.key.namespace, site.key.cluster)
        self.vcpus_used = usage.vcpus + max(0, elsewhere.get("vcpus", 0))
        self.memory_used = usage.memory + max(0, elsewhere.get("memory", 0))
        self.vcpus = _left(capacity.vcpus, self.vcpus_used)
        self.memory = _left(capacity.memory, self.memory_used)
        self.eips = _left(capacity.eips, usage.eips)

    def flavor(self, flavor: str) -> int:
        return max(0, self.site.capacity.flavors.get(flavor, 0) - self.usage.flavors.get(flavor, 0))

    def storage(self, kind: str) -> int:
        return max(0, self.site.capacity.storage.get(kind, 0) - self.usage.storage.get(kind, 0))

    def free(self) -> Capacity:
        capacity = self.site.capacity
        return Capacity(
            {flavor: self.flavor(flavor) for flavor in capacity.flavors},
            self.vcpus,
            self.memory,
            {kind: self.storage(kind) for kind in capacity.storage},
            self.eips,
            capacity.spot,
        )


def _left(total: int | None, used: int) -> int | None:
    return None if total is None else max(0, total - used)
