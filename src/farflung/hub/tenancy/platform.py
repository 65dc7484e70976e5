"""A hub with workspaces, put together: what finds them, makes them, serves them and takes them away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from farflung.apis.builtin.kinds import HUB
from farflung.apis.kcp import kinds as kcp
from farflung.hub.catalog.custom_kinds import Definition
from farflung.hub.catalog.served import Kinds, Served
from farflung.hub.tenancy.api_exports import Exporter
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.bootstrap import Bootstrap
from farflung.hub.tenancy.bound_apis import BoundApis
from farflung.hub.tenancy.export_views import Views
from farflung.hub.tenancy.home_workspaces import Homes
from farflung.hub.tenancy.initializer_views import EveryView, InitializingViews
from farflung.hub.tenancy.routes import WorkspaceRoutes
from farflung.hub.tenancy.workspace_authorizer import WorkspaceAuthorizer
from farflung.hub.tenancy.workspaces import Tenancy
from farflung.hub.tenancy.writes import WorkspaceWrites
from farflung.store.base import Store


@cache
def in_every_workspace() -> Served:
    """Compiled once, however many hubs there are in a process."""
    return Served(HUB, [Definition(kcp.definition(kind), 0) for kind in kcp.SYSTEM], open_ended=True)


@dataclass(frozen=True, slots=True)
class Platform:
    url: str
    tenancy: Tenancy
    routes: WorkspaceRoutes
    views: EveryView
    writes: WorkspaceWrites
    bootstrap: Bootstrap
    apis: BoundApis
    binder: Binder
    exporter: Exporter


def platform(
    store: Store,
    kinds: Kinds,
    authorizer: WorkspaceAuthorizer,
    *,
    url: str,
    clock: Callable[[], datetime],
    new_uid: Callable[[], str],
    random: Callable[[int], bytes],
    authority: str,
) -> Platform:
    """`url`: of the hub, as its clients see it; `random`: so many bytes; `authority`: the hub's CA in PEM."""
    tenancy = Tenancy(store, url=url, clock=clock, new_uid=new_uid, random=random, authority=authority)
    clusters = tenancy.clusters
    exporter = Exporter(store, clusters, url=url, new_uid=new_uid, random=random)
    apis = BoundApis(store, kinds)
    binder = Binder(store, kinds, clusters, apis, new_uid=new_uid)
    tenancy.bind = binder.bind
    views = EveryView(Views(store, kinds, apis, binder), InitializingViews(store, kinds))
    kinds.show(views.served)
    kinds.identify(apis.kind)
    apis.start()
    routes = WorkspaceRoutes(clusters, authorizer)
    return Platform(
        url,
        tenancy,
        routes,
        views,
        WorkspaceWrites(tenancy, exporter, binder, Homes(store, tenancy), routes.allows, url),
        Bootstrap(store, tenancy, exporter, binder, url=url, new_uid=new_uid),
        apis,
        binder,
        exporter,
    )
