"""What is done as the kinds of workspaces are written: each of them is complete when its writer is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from farflung.hub.auth.attributes import Attributes
from farflung.hub.auth.user import User
from farflung.hub.registry.call import Call
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy import deliveries, guards, priorities
from farflung.hub.tenancy import initializer_views as initializing
from farflung.hub.tenancy import resource_schemas as schemas
from farflung.hub.tenancy import virtual_machines as machines
from farflung.hub.tenancy.api_exports import Exporter
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.direct_writes import Written
from farflung.hub.tenancy.home_workspaces import NAME as HOME
from farflung.hub.tenancy.home_workspaces import Homes
from farflung.hub.tenancy.paths import PATH, ROOT
from farflung.hub.tenancy.workspaces import GROUP, MayUse, Tenancy
from farflung.machinery.errors import Obj, forbidden

Place = tuple[str, str]  #: group and plural
May = Callable[[str, str, User, Attributes], bool]  #: whether a user may do something in a cluster, or in a view of it

WORKSPACES: Final = (GROUP, "workspaces")
TYPES: Final = (GROUP, "workspacetypes")
CLUSTERS: Final = ("core.kcp.io", "logicalclusters")
SCHEMAS: Final = ("apis.kcp.io", "apiresourceschemas")
EXPORTS: Final = ("apis.kcp.io", "apiexports")
BINDINGS: Final = ("apis.kcp.io", "apibindings")
ENDPOINTS: Final = ("apis.kcp.io", "apiexportendpointslices")
LOCATIONS: Final = ("scheduling.kcp.io", "locations")
DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
OURS: Final = frozenset({WORKSPACES, TYPES, CLUSTERS, SCHEMAS, EXPORTS, BINDINGS, ENDPOINTS, LOCATIONS, DEFINITIONS})


def place_of(call: Call) -> Place | None:
    """Whose kind it is, if it is one of these: a kind of the same name that somebody else exports is not."""
    resource = call.resource
    place = (resource.group, resource.plural)
    return place if place in OURS and not resource.identity else None


class WorkspaceWrites:
    def __init__(self, tenancy: Tenancy, exporter: Exporter, binder: Binder, homes: Homes, may: May, url: str) -> None:
        self._tenancy = tenancy
        self._homes = homes
        self._exporter = exporter
        self._binder = binder
        self._may = may
        self._url = url

    def home(self, call: Call) -> Awaitable[Obj] | None:
        target = call.target
        is_home = target.name == HOME and target.cluster == ROOT and not target.view and place_of(call) == WORKSPACES
        return self._homes.workspace(call.user) if is_home else None

    # --- before validation ------------------------------------------------------------------------

    def admit(self, call: Call, new: Obj, old: Obj | None) -> None:
        match place_of(call):
            case ("tenancy.kcp.io", "workspaces") if old is None:
                self._tenancy.admit(call.target.cluster, call.user, new, may_use(call))
            case ("apis.kcp.io", "apiexportendpointslices") if old is None:
                self._check_endpoints(call, new)
            case ("apis.kcp.io", "apibindings") if not call.target.subresource:
                self._check_binding(call, new, old)
                self._binder.admit_binding(call.target.cluster, new)
            case ("scheduling.kcp.io", "locations"):
                annotations = new["metadata"].setdefault("annotations", {})
                annotations[PATH] = self._tenancy.clusters.path_of(call.target.cluster)

    # --- after validation -------------------------------------------------------------------------

    def check(self, call: Call, new: Obj, old: Obj | None) -> None:
        cluster = call.target.cluster
        if call.target.view and old is None:
            check_seen(call, new)
        view, user = call.target.view, call.user

        def may(asked: Attributes) -> bool:
            return self._may(cluster, view, user, asked)

        if priorities.concerns(call.resource):
            priorities.check_priority(user, call.resource, new, old, may)
        if machines.concerns(call.resource):
            machines.check_placing(user, new, old, may)
        if deliveries.concerns(call.resource):
            deliveries.check_leading(user, new, old, lambda asked: self._may(cluster, "", user, asked))
        match place_of(call):
            case ("tenancy.kcp.io", "workspaces") if old is None:
                self._tenancy.check_new(cluster, call.user, new, may_use(call))
            case ("tenancy.kcp.io", "workspaces"):
                guards.check_workspace_change(call.user, new, old or {})
            case ("tenancy.kcp.io", "workspacetypes"):
                if old is None:
                    guards.check_new_type(new)
                self._check_default_bindings(call, new, old)
            case ("core.kcp.io", "logicalclusters"):
                guards.check_cluster_change(call.user, new, old) if old else guards.check_new_cluster()
                initializing.check_change(call, self._tenancy.clusters, new, old or {})
            case ("apis.kcp.io", "apiresourceschemas"):
                schemas.check_new(new) if old is None else schemas.check_change(new, old)
            case ("apiextensions.k8s.io", "customresourcedefinitions") if old is None:
                schemas.check_definition(new)

    def _check_binding(self, call: Call, new: Obj, old: Obj | None) -> None:
        reference = bindings.reference_of(new)
        if reference is None or (old is not None and bindings.reference_of(old) == reference):
            return
        verb = "create" if old is None else "update"
        name = new["metadata"].get("name", "")
        self._binder.check_may_bind(
            call.target.cluster, call.user, call.tools.authorizer, name, reference, verb, "APIBinding"
        )

    def _check_default_bindings(self, call: Call, new: Obj, old: Obj | None) -> None:
        """Workspaces of a type bind its exports, whoever makes them: so who names one must be allowed to bind it."""
        known = () if old is None else default_bindings(old)
        for reference in default_bindings(new):
            may_bind = reference in known or self._binder.may_hand_on(
                call.target.cluster, call.user, call.tools.authorizer, reference
            )
            if not may_bind:
                why = f"no permission to bind to export {reference.path}:{reference.name}"
                raise forbidden(GROUP, "workspacetypes", new["metadata"].get("name", ""), why)

    def _check_endpoints(self, call: Call, new: Obj) -> None:
        spec = new.get("spec")
        reference = bindings.referred(spec.get("export")) if isinstance(spec, dict) else None
        if reference is None:
            return
        name = new["metadata"].get("name", "")
        self._binder.check_may_bind(
            call.target.cluster, call.user, call.tools.authorizer, name, reference, "create", "APIExportEndpointSlice"
        )

    # --- before it is written ---------------------------------------------------------------------

    async def settle(self, call: Call, new: Obj, old: Obj | None) -> Sequence[Written]:
        cluster, now = call.target.cluster, call.now()
        match place_of(call):
            case ("tenancy.kcp.io", "workspaces") if old is None:
                return self._tenancy.found(cluster, new)
            case ("tenancy.kcp.io", "workspacetypes"):
                path = self._tenancy.clusters.path_of(cluster)
                guards.settle_type(new, cluster, path, self._url, now)
            case ("apis.kcp.io", "apiexports"):
                await self._exporter.settle(cluster, new, old, now)
            case ("apis.kcp.io", "apiexportendpointslices"):
                self._exporter.settle_endpoints(cluster, new, now)
            case ("apis.kcp.io", "apibindings") if "deletionTimestamp" not in new["metadata"]:
                settled = await self._binder.settle_binding(cluster, new, now)
                if settled is not new:
                    new.clear()
                    new.update(settled)
        return ()

    def abandon(self, call: Call, new: Obj) -> None:
        if place_of(call) == WORKSPACES:
            self._tenancy.abandon(new)

    def check_deletion(self, call: Call, old: Obj) -> None:
        if place_of(call) == CLUSTERS:
            guards.check_cluster_deletion(call.target.cluster, call.user, old)


def default_bindings(obj: Obj) -> list[bindings.Reference]:
    """Of a valid WorkspaceType."""
    found = (obj.get("spec") or {}).get("defaultAPIBindings") or ()
    return [bindings.Reference(one.get("path") or "", one.get("export") or "") for one in found]


def check_seen(call: Call, new: Obj) -> None:
    """Whoever makes something through a view must be able to see it there.  Raises 403."""
    sees = call.sees()
    name = new["metadata"]["name"]
    if sees is not None and not sees(call.key_of(name)):
        raise forbidden(call.resource.group, call.resource.plural, name, "it is not in this view")


def may_use(call: Call) -> MayUse:
    def allowed(cluster: str, name: str) -> bool:
        asked = Attributes("use", GROUP, "workspacetypes", name=name)
        return call.tools.authorizer.decide(cluster, call.user, asked).allowed

    return allowed
