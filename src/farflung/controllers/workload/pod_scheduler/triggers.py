"""Changes that may make an unschedulable pod schedulable.  Pure."""

from __future__ import annotations

from farflung.controllers.workload.pod_scheduler.decide import is_waiting, occupies_node
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange


def frees_resources(change: CacheChange[Obj]) -> bool:
    """A pod finished or was deleted from its node."""
    return (
        change.old is not None and occupies_node(change.old) and (change.new is None or not occupies_node(change.new))
    )


def needs_scheduling(change: CacheChange[Obj]) -> bool:
    """A pod became pending, or its spec changed."""
    if change.new is None or not is_waiting(change.new):
        return False
    return change.old is None or not is_waiting(change.old) or change.old["spec"] != change.new["spec"]


def changes_claim_phase(change: CacheChange[Obj]) -> bool:
    return (None if change.old is None else _phase(change.old)) != (None if change.new is None else _phase(change.new))


def _phase(claim: Obj) -> str:
    return (claim.get("status") or {}).get("phase") or ""
