"""Pods and Allocations as values: their requests, reservations and decisions.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.apis.edge.authors import Author
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.machines.engine.values import MachineRequest, MachineToleration, Reservation, SchedulingDecision, SiteKey
from farflung.runtime.cache import Key

BOUND_CLUSTER: Final = f"{GLOBALSCHEDULER_GROUP}/cluster"  #: the annotation `<logical cluster>|<namespace>/<name>`
BOUND_FLAVOR: Final = f"{GLOBALSCHEDULER_GROUP}/flavor-id"
#: annotation: Clusters that refused the Pod, `<logical cluster>|<namespace>/<name>=<times>,…`
REFUSED_BY: Final = f"{GLOBALSCHEDULER_GROUP}/refused-by"
LAST_REFUSAL: Final = f"{GLOBALSCHEDULER_GROUP}/last-refusal"  #: annotation: why the last of them refused it
POD: Final = "Pod"
ALLOCATION: Final = "Allocation"
COPY: Final = "copy"  #: a copy of a Pod in a mailbox that still exists after the Pod was deleted or moved


class SchedulingSubject(NamedTuple):
    """A Pod or an Allocation, or a copy of a Pod that outlives it."""

    kind: str
    key: Key


@dataclass(frozen=True, slots=True)
class ObservedSubject:
    """The fields of a Pod or an Allocation that the scheduler uses."""

    uid: str
    version: str
    generation: int = 0
    request: MachineRequest | None = None  #: None: it requests nothing, or the request is invalid
    problem: str = ""  #: why the request is invalid
    pending: bool = False  #: it waits for a decision
    reservations: tuple[Reservation, ...] = ()  #: of its machines that are bound
    foreign_cluster: str = ""  #: the name of the Cluster to which another scheduler bound it
    finished_at: SiteKey | None = None  #: the site of a finished machine, whose copy may still be there
    refused_by: tuple[tuple[SiteKey, int], ...] = ()  #: Clusters that refused it, and how often
    refusal: str = ""  #: the message of the last refusal
    status_outdated: bool = False  #: its status does not agree with its binding
    returned_from: str = ""  #: the SyncTarget from which its status was returned
    label: str = ""  #: the value of the label that selects it for delivery
    author: Author | None = None  #: None: not recorded
    terminating: bool = False  #: it has a deletionTimestamp
    tolerations: tuple[MachineToleration, ...] = ()
    status: bytes = b"{}"  #: JSON, if it is pending

    @property
    def site(self) -> SiteKey | None:
        """The site to which this scheduler bound a machine, even if it is finished."""
        return None if self.foreign_cluster else self.reservations[0].site if self.reservations else self.finished_at


class PlacedSubject(NamedTuple):
    """A decision with a place for every replica, all of them reserved."""

    subject: SchedulingSubject
    observed: ObservedSubject
    request: MachineRequest
    decision: SchedulingDecision
    queued_at: float = 0.0  #: when it was queued


class UnplacedSubject(NamedTuple):
    subject: SchedulingSubject
    observed: ObservedSubject
    message: str
    reasons: Mapping[str, int]
