"""What `farflung trace` says of a virtual machine or a stack that no placement brings anywhere: Clusters need none."""

from __future__ import annotations

from farflung.cli import fields
from farflung.cli.machine_world import kind_of
from farflung.cli.tracing import State
from farflung.controllers.global_scheduler.statuses import DELIVERED, PLACED, SCHEDULED
from farflung.controllers.global_scheduler.subjects import POD
from farflung.machinery.errors import Obj


def conclusion(obj: Obj) -> tuple[State, str, str] | None:
    """As of objects that placements bring somewhere; None: it is no machine."""
    kind = kind_of(obj)
    if not kind:
        return None
    namespace = fields.text(obj, "metadata", "namespace")
    where = f" -n {namespace}" if namespace not in ("", "default") else ""
    advice = f"`farflung explain {kind.lower()} {fields.name_of(obj)}{where}` says why"
    bound, why = _bound(obj), _refusal(obj, SCHEDULED if kind == POD else PLACED)
    if not bound:
        return State.STUCK, f"It is bound to no Cluster{f': {why}' if why else '.'}", advice
    if undelivered := _refusal(obj, DELIVERED):
        return State.STUCK, f"It is bound to {bound}, and not there: {undelivered}", advice
    if why:
        return State.STUCK, f"It is bound to {bound}, as its spec was before: {why}", advice
    return State.DONE, f"It is bound to {bound}; {advice}.", ""


def _refusal(obj: Obj, type: str) -> str:
    found = fields.condition(obj, type)
    return fields.text(found, "message") if found.get("status") == "False" else ""


def _bound(obj: Obj) -> str:
    alone = fields.text(obj, "spec", "nodeName") or fields.text(obj, "spec", "clusterName")
    found = fields.at(obj, "status", "cluster_names")
    names = [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
    return ", ".join(dict.fromkeys(filter(None, [alone, *names])))
