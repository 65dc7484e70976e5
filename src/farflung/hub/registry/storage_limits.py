"""Limits of what one logical cluster may store.  Usual workspaces never reach them."""

from __future__ import annotations

from typing import Final

from farflung.hub.catalog.objects import cluster_in
from farflung.hub.registry.call import Call
from farflung.hub.request.user import is_administrator
from farflung.machinery.errors import ApiError, forbidden

CONTROLLERS: Final = "system:kube-controller-manager"  #: of the hub: they delete, and create what every namespace has


def check_room(call: Call, key: str, size: int) -> None:
    """Raises 403 if an object of this size does not fit into its logical cluster.  Concurrent writes may exceed a limit
    by their number."""
    limits = call.tools.storage_limits
    if call.user.name == CONTROLLERS and is_administrator(call.user):
        return
    present = call.store.get(key)
    grown = size - (0 if present is None else len(present.value))
    used = call.store.amount(cluster_in(key))
    if present is None and used.keys >= limits.objects:
        raise exceeded(call, key, "objects", 1, used.keys, limits.objects)
    if grown > 0 and used.size + grown > limits.size:
        raise exceeded(call, key, "bytes", grown, used.size, limits.size)


def exceeded(call: Call, key: str, what: str, wanted: int, used: int, limit: int) -> ApiError:
    """In the words of ResourceQuotas."""
    why = f"exceeded quota: workspace, requested: {what}={wanted}, used: {what}={used}, limited: {what}={limit}"
    return forbidden(call.resource.group, call.resource.plural, key.rpartition("/")[2], why)
