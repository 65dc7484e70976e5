"""The housekeeping of a hub with workspaces, in addition to that of every hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from farflung.hub.controllers.api_bindings import Bindings
from farflung.hub.controllers.custom_resource_definitions import Definitions
from farflung.hub.controllers.garbage_collector import Collector
from farflung.hub.controllers.loopback import Inside
from farflung.hub.controllers.manager import Household, Part
from farflung.hub.controllers.sync_targets import Inventory
from farflung.hub.controllers.workspaces import Workspaces
from farflung.hub.tenancy.direct_writes import kind
from farflung.hub.tenancy.platform import Platform
from farflung.hub.tenancy.workspace_authorizer import SHARED
from farflung.store.base import Store

SYNC_TARGETS: Final = kind("workload.kcp.io", "v1alpha1", "synctargets", "SyncTarget")
LOCATIONS: Final = kind("scheduling.kcp.io", "v1alpha1", "locations", "Location")


def household_of(store: Store, clock: Callable[[], datetime], workspaces: Platform) -> Household:
    """The default roles are in one place, and every workspace brings its own namespaces."""

    def further(inside: Inside, collector: Collector, definitions: Definitions) -> Sequence[Part]:
        reconsider = definitions.reconsider
        apis, binder, exporter = workspaces.apis, workspaces.binder, workspaces.exporter
        return (
            Workspaces(store, workspaces.tenancy),
            Inventory(store, inside, clock, workspaces.url, sync_targets=SYNC_TARGETS, locations=LOCATIONS),
            Bindings(store, apis, binder, exporter, inside, clock, collector, reconsider),
        )

    return Household(clusters=(), roles_in=SHARED, further=further)
