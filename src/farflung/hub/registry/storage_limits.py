"""Limits of what one logical cluster may store.  Usual workspaces never reach them."""

from __future__ import annotations

from typing import Final

from farflung.hub.registry.call import Call
from farflung.hub.request.user import is_administrator
from farflung.machinery.errors import ApiError, forbidden
from farflung.store.base import Entry

CONTROLLERS: Final = "system:kube-controller-manager"  #: of the hub: they delete, and create what every namespace has


def check_room(call: Call, key: str, size: int, before: Entry | None) -> None:
    """Raises 403 if an object of this size does not fit into its logical cluster.  Concurrent writes may exceed a limit
    by their number.  `before`: the object that it replaces."""
    limits = call.tools.storage_limits
    if call.user.name == CONTROLLERS and is_administrator(call.user):
        return
    grown = size - (0 if before is None else len(before.value))
    used = call.store.amount(call.target.cluster)
    if before is None and used.keys >= limits.objects:
        raise exceeded(call, key, "objects", 1, used.keys, limits.objects)
    if grown > 0 and used.size + grown > limits.size:
        raise exceeded(call, key, "bytes", grown, used.size, limits.size)


def exceeded(call: Call, key: str, what: str, wanted: int, used: int, limit: int) -> ApiError:
    """In the words of ResourceQuotas."""
    why = f"exceeded quota: workspace, requested: {what}={wanted}, used: {what}={used}, limited: {what}={limit}"
    return forbidden(call.resource.group, call.resource.plural, key.rpartition("/")[2], why)
