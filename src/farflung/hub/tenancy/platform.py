"""The services of a hub with workspaces, and their assembly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from farflung.apis.builtin.kinds import HUB
from farflung.apis.kcp import kinds as kcp
from farflung.hub.catalog.custom_kinds import Definition
from farflung.hub.catalog.served import ClusterKinds, Kinds
from farflung.hub.registry.pipeline import Step
from farflung.hub.tenancy.api_exports import Exporter
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.bootstrap import Bootstrap
from farflung.hub.tenancy.bound_apis import BoundApis
from farflung.hub.tenancy.direct_writes import CreationContext
from farflung.hub.tenancy.export_views import ExportViews
from farflung.hub.tenancy.home_workspaces import HomeWorkspaces
from farflung.hub.tenancy.initializer_views import InitializerViews, VirtualWorkspaces
from farflung.hub.tenancy.routes import WorkspaceRoutes
from farflung.hub.tenancy.workspace_authorizer import WorkspaceAuthorizer
from farflung.hub.tenancy.workspaces import Tenancy
from farflung.hub.tenancy.writes import WorkspaceWrites
from farflung.store.base import Store


@cache
def workspace_kinds() -> ClusterKinds:
    """Compiled once per process."""
    return ClusterKinds(HUB, [Definition(kcp.definition(kind), 0) for kind in kcp.SYSTEM], open_ended=True)


@dataclass(frozen=True, slots=True)
class WorkspaceServices:
    url: str
    tenancy: Tenancy
    routes: WorkspaceRoutes
    views: VirtualWorkspaces
    writes: WorkspaceWrites
    bootstrap: Bootstrap
    apis: BoundApis
    binder: Binder
    exporter: Exporter
    steps: tuple[Step, ...]  #: of the write pipeline


def assemble_workspaces(
    store: Store, kinds: Kinds, authorizer: WorkspaceAuthorizer, context: CreationContext
) -> WorkspaceServices:
    tenancy = Tenancy(store, context)
    clusters = tenancy.clusters
    exporter = Exporter(store, clusters, context)
    apis = BoundApis(store, kinds)
    binder = Binder(store, kinds, clusters, apis, context.new_uid)
    tenancy.bind = binder.bind
    views = VirtualWorkspaces(ExportViews(store, kinds, apis, binder), InitializerViews(store, kinds))
    kinds.set_views(views.served)
    kinds.set_identity_lookup(apis.kind)
    apis.start()
    routes = WorkspaceRoutes(clusters, authorizer)
    writes = WorkspaceWrites(tenancy, exporter, binder, HomeWorkspaces(store, tenancy), routes.allows, context.url)
    return WorkspaceServices(
        context.url,
        tenancy,
        routes,
        views,
        writes,
        Bootstrap(store, tenancy, exporter, binder),
        apis,
        binder,
        exporter,
        (*authorizer.controllers.steps, *writes.steps),
    )
