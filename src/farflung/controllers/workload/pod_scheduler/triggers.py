"""Which changes may help a pod that no node fitted.  Pure."""

from __future__ import annotations

from typing import Any

from farflung.controllers.workload.pod_scheduler.decide import is_waiting, occupies
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change


def makes_room(change: Change[Obj]) -> bool:
    """A pod has left its node, or has ended there."""
    return change.old is not None and occupies(change.old) and (change.new is None or not occupies(change.new))


def wants_other(change: Change[Obj]) -> bool:
    """A pod began to wait, or asks for something else than before."""
    if change.new is None or not is_waiting(change.new):
        return False
    return change.old is None or not is_waiting(change.old) or change.old["spec"] != change.new["spec"]


def is_other_node(change: Change[Obj]) -> bool:
    """Heartbeats change nothing that matters here."""
    return (None if change.old is None else _taken_into_account(change.old)) != (
        None if change.new is None else _taken_into_account(change.new)
    )


def _taken_into_account(node: Obj) -> tuple[Any, ...]:
    metadata, status = node["metadata"], node.get("status") or {}
    states = [(one.get("type"), one.get("status")) for one in status.get("conditions") or ()]
    return metadata.get("labels"), node.get("spec"), status.get("allocatable"), status.get("capacity"), states


def is_other_claim(change: Change[Obj]) -> bool:
    return (None if change.old is None else _phase(change.old)) != (None if change.new is None else _phase(change.new))


def _phase(claim: Obj) -> str:
    return (claim.get("status") or {}).get("phase") or ""
