"""Who asks: Pods and Allocations as values, what was decided about them, and what they hold.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.runtime.cache import Key
from farflung.scheduling.values import (
    MachineRequest,
    Reservation,
    ResourceClaim,
    SchedulingDecision,
    SiteKey,
    Toleration,
)

GROUP: Final = "globalscheduler.com"
BOUND_CLUSTER: Final = f"{GROUP}/cluster"  #: the annotation `<logical cluster>|<namespace>/<name>`
BOUND_FLAVOR: Final = f"{GROUP}/flavor-id"
REFUSED_BY: Final = f"{GROUP}/refused-by"  #: the annotation with `<logical cluster>|<namespace>/<name>=<times>,…`
LAST_REFUSAL: Final = f"{GROUP}/last-refusal"  #: the annotation that says in words why one of them did not take it
POD: Final = "Pod"
ALLOCATION: Final = "Allocation"
COPY: Final = "copy"  #: in a mailbox, of a machine that is not there any more


class SchedulingSubject(NamedTuple):
    """A Pod or an Allocation; or a copy of a Pod that outlasts it."""

    kind: str
    key: Key


@dataclass(frozen=True, slots=True)
class ObservedSubject:
    """As much of it as matters."""

    uid: str
    version: str
    generation: int = 0
    request: MachineRequest | None = None  #: what it asks for; None: nothing, or nobody can understand it
    problem: str = ""  #: why nobody can understand it
    asks: bool = False  #: it wants a decision
    held: tuple[Reservation, ...] = ()  #: what it has
    guest_of: str = ""  #: somebody else bound it to the cluster of this name
    ended_at: SiteKey | None = None  #: where it was when it ended, and still is if somebody brought it there
    refused_by: tuple[tuple[SiteKey, int], ...] = ()  #: clusters that did not take it, and how often
    refusal: str = ""  #: why the last of them did not, in words
    unsettled: bool = False  #: it says that it is not where it is bound to, not that it is bound, or where it is not
    returned_from: str = ""  #: the name of the SyncTarget that its status came back from, so it is there
    mark: str = ""  #: the label by which it is brought to where it is bound to
    created: str = ""
    ending: bool = False  #: it is being deleted
    tolerations: tuple[Toleration, ...] = ()
    status: bytes = b"{}"  #: as JSON, if it asks

    @property
    def site(self) -> SiteKey | None:
        """Where a machine is that we bound, be it that it has ended there."""
        return None if self.guest_of else self.held[0].site if self.held else self.ended_at


class PlacedSubject(NamedTuple):
    """All of it is reserved."""

    subject: SchedulingSubject
    seen: ObservedSubject
    request: MachineRequest
    decision: SchedulingDecision
    asked: float = 0.0  #: since when it asks


class UnplacedSubject(NamedTuple):
    subject: SchedulingSubject
    seen: ObservedSubject
    message: str
    reasons: Mapping[str, int]


class UsageSummary(NamedTuple):
    """What is held at a site."""

    stacks: int
    flavors: tuple[tuple[str, int], ...]
    vcpus: int
    memory: int
    storage: tuple[tuple[str, int], ...]
    eips: int


def summarize_usage(claims: Iterable[ResourceClaim]) -> UsageSummary:
    flavors: Counter[str] = Counter()
    storage: Counter[str] = Counter()
    stacks = vcpus = memory = eips = 0
    for claim in claims:
        stacks += 1
        vcpus += claim.vcpus
        memory += claim.memory
        eips += claim.eips
        flavors.update(dict(claim.flavors))
        storage.update(dict(claim.storage))
    return UsageSummary(stacks, tuple(sorted(flavors.items())), vcpus, memory, tuple(sorted(storage.items())), eips)


class SyncTargetKey(NamedTuple):
    """A SyncTarget."""

    cluster: str
    name: str


class Delivery(NamedTuple):
    workspace: str  #: the logical cluster that has something there
    site: SiteKey
