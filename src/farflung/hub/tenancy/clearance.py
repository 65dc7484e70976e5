"""What becomes of a cluster's content when the cluster goes: decided for all of it at once.

    workspaces in it          go first, each with its own content
    held by a finalizer       is marked, and waited for, and with it whatever is needed to let it go:
                              namespaces, definitions and bindings, roles
    everything else           goes, in an order that a crash may stop anywhere

Finalizers that the hub itself would honour by removing what is removed anyway hold nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from farflung.hub.controllers.owner_graph import identity_of
from farflung.hub.namespaces import is_terminating
from farflung.hub.tenancy.paths import LOGICAL_CLUSTERS, WORKSPACES
from farflung.hub.tenancy.status import CLUSTER_FINALIZER, FINALIZER
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Entry, Store
from farflung.store.keys import resource_prefix

NAMESPACES: Final = "/core/namespaces/"
ROLES: Final = (
    "/rbac.authorization.k8s.io/clusterroles/",
    "/rbac.authorization.k8s.io/clusterrolebindings/",
)
DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
APIS: Final = "/apis.kcp.io/"
OURS: Final = frozenset(
    {
        FOREGROUND,
        ORPHAN,
        FINALIZER,
        CLUSTER_FINALIZER,
        "apis.kcp.io/apibinding-finalizer",
        "customresourcecleanup.apiextensions.k8s.io",
        "kubernetes.io/pv-protection",
        "kubernetes.io/pvc-protection",
    }
)
_FINALIZERS: Final = b'"finalizers":['


def rank(home: str) -> int:
    """What goes later has the higher one.  Namespaces go first: while one is there, it is given what it lacks."""
    if home == NAMESPACES:
        return 0
    if home == DEFINITIONS or home.startswith(APIS):
        return 2
    return 3 if home in ROLES else 1


def is_held(entry: Entry) -> bool:
    """Whether somebody else must be done with an object before it goes."""
    if _FINALIZERS not in entry.value:
        return False
    return not OURS.issuperset(identity_of(entry).finalizers or ())


@dataclass(slots=True)
class Clearance:
    workspaces: Sequence[Entry] = ()
    held: list[Entry] = field(default_factory=list)
    namespaces: list[Entry] = field(default_factory=list)
    free: list[Entry] = field(default_factory=list)  #: may go now, in this order
    last: list[Entry] = field(default_factory=list)  #: may go when those are gone: without it nobody hears of their end

    @property
    def is_clear(self) -> bool:
        """Once `free` and `last` are gone, nothing is left."""
        return not self.workspaces and not self.held

    def unmarked(self) -> list[Entry]:
        """Those that wait, and do not say so yet."""
        return [entry for entry in (*self.held, *self.namespaces) if not is_terminating(entry)]

    def remaining(self) -> Counter[tuple[str, str]]:
        """(plural, group) → how many keep the cluster; those in namespaces are told as their namespaces."""
        kept = {*self.namespaces, *(entry for entry in self.held if entry.key.count("/") == 4)}
        return Counter(told(resource_prefix(entry.key)) for entry in (*self.workspaces, *kept))


def told(home: str) -> tuple[str, str]:
    """(plural, group) of a home."""
    _, group, plural, _ = home.split("/")
    return plural.partition(":")[0], "" if group == "core" else group


def content(store: Store, cluster: str) -> Iterable[tuple[str, Sequence[Entry]]]:
    """Everything in a cluster but its LogicalCluster, home by home."""
    for home in store.homes():
        if home != LOGICAL_CLUSTERS:
            entries = store.list(f"{home}{cluster}/").entries
            if entries:
                yield home, entries


def clearance(store: Store, cluster: str) -> Clearance:
    """What is to be done, as things are now."""
    found = Clearance()
    free: list[list[Entry]] = [[], [], [], []]
    for home, entries in content(store, cluster):
        if home == WORKSPACES:
            found.workspaces = entries
            continue
        for entry in entries:
            (found.held if is_held(entry) else free[rank(home)]).append(entry)
    if found.workspaces:
        return Clearance(found.workspaces)
    if found.held:
        found.namespaces, found.free = free[0], free[1]
    else:
        found.free, found.last = free[0] + free[1], free[2] + free[3]
    return found
