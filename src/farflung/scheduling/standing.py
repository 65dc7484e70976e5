"""A site together with what is held of it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from farflung.scheduling.ledger import Usage
from farflung.scheduling.values import Capacity, Site

Order: TypeAlias = tuple[str, str, str]


class Standing(NamedTuple):
    """What is left is never below 0, although a site may have less than is held of it.  None: there is no limit."""

    site: Site
    usage: Usage
    version: int = 0  #: another one after each change
    order: Order = ("", "", "")  #: of two that are as good, the one that is first by name is taken

    def vcpus_used(self) -> int:
        return self.usage.vcpus + max(0, self.site.used_elsewhere.get("vcpus", 0))

    def memory_used(self) -> int:
        return self.usage.memory + max(0, self.site.used_elsewhere.get("memory", 0))

    def vcpus(self) -> int | None:
        total = self.site.capacity.vcpus
        return None if total is None else max(0, total - self.vcpus_used())

    def memory(self) -> int | None:
        total = self.site.capacity.memory
        return None if total is None else max(0, total - self.memory_used())

    def flavor(self, flavor: str) -> int:
        return max(0, self.site.capacity.flavors.get(flavor, 0) - self.usage.flavors.get(flavor, 0))

    def storage(self, kind: str) -> int:
        return max(0, self.site.capacity.storage.get(kind, 0) - self.usage.storage.get(kind, 0))

    def eips(self) -> int | None:
        total = self.site.capacity.eips
        return None if total is None else max(0, total - self.usage.eips)

    def free(self) -> Capacity:
        capacity = self.site.capacity
        return Capacity(
            {flavor: self.flavor(flavor) for flavor in capacity.flavors},
            self.vcpus(),
            self.memory(),
            {kind: self.storage(kind) for kind in capacity.storage},
            self.eips(),
            capacity.spot,
        )


def standing_of(site: Site, usage: Usage, version: int) -> Standing:
    return Standing(site, usage, version, (site.key.name, site.key.namespace, site.key.cluster))
