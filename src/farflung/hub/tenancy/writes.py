"""Steps of the write pipeline for the kinds of workspaces.  Each object is complete when its write returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

from farflung.apis.kcp.names import (
    APIS_GROUP,
    CORE_GROUP,
    PATH_ANNOTATION,
    SCHEDULING_GROUP,
    TENANCY_GROUP,
    ExportReference,
)
from farflung.hub.auth import virtual_machines as machines
from farflung.hub.catalog.kinds import Kind
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import CHANGES, CREATE, DELETE, UPDATE, WRITES, Applies, Stage, Step, Write
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy import guards
from farflung.hub.tenancy import initializer_views as initializing
from farflung.hub.tenancy import placement_authors as authors
from farflung.hub.tenancy import resource_schemas as schemas
from farflung.hub.tenancy.api_exports import Exporter
from farflung.hub.tenancy.binding_strategy import OR_MISSING, Binder
from farflung.hub.tenancy.home_workspaces import NAME as HOME
from farflung.hub.tenancy.home_workspaces import HomeWorkspaces
from farflung.hub.tenancy.paths import ROOT
from farflung.hub.tenancy.workspace_authorizer import is_operator, is_privileged
from farflung.hub.tenancy.workspaces import MayUse, Tenancy
from farflung.machinery.errors import FieldError, Obj, forbidden

May = Callable[[str, str, User, Attributes], bool]  #: whether a user has a permission in a cluster, or in a view of it

WORKSPACES: Final = (TENANCY_GROUP, "workspaces")
TYPES: Final = (TENANCY_GROUP, "workspacetypes")
CLUSTERS: Final = (CORE_GROUP, "logicalclusters")
SCHEMAS: Final = (APIS_GROUP, "apiresourceschemas")
EXPORTS: Final = (APIS_GROUP, "apiexports")
BINDINGS: Final = (APIS_GROUP, "apibindings")
ENDPOINTS: Final = (APIS_GROUP, "apiexportendpointslices")
LOCATIONS: Final = (SCHEDULING_GROUP, "locations")
DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


def is_kind(kind: Kind, wanted: tuple[str, str]) -> bool:
    """A kind of the same name with an identity belongs to another export."""
    return (kind.resource.group, kind.resource.plural) == wanted and not kind.resource.identity


def of(wanted: tuple[str, str], operations: Collection[str] = WRITES) -> Applies:
    return lambda kind, operation: operation in operations and is_kind(kind, wanted)


class WorkspaceWrites:
    def __init__(
        self, tenancy: Tenancy, exporter: Exporter, binder: Binder, homes: HomeWorkspaces, may: May, url: str
    ) -> None:
        self._tenancy = tenancy
        self._homes = homes
        self._exporter = exporter
        self._binder = binder
        self._may = may
        self._url = url
        new, bound_by_client = (CREATE,), WRITES - {"status"}
        self.steps = (
            Step("restore_author", Stage.METADATA, authors.restore_author, concerning(authors.has_author)),
            Step("record_author", Stage.COMPLETE, authors.record_author, concerning(authors.has_author)),
            Step("complete_workspace", Stage.COMPLETE, self._complete_workspace, of(WORKSPACES, new)),
            Step("check_endpoints", Stage.COMPLETE, self._check_endpoints, of(ENDPOINTS, new)),
            Step("complete_binding", Stage.COMPLETE, self._complete_binding, of(BINDINGS, bound_by_client)),
            Step("complete_location", Stage.COMPLETE, self._complete_location, of(LOCATIONS)),
            Step("check_priority", Stage.REFUSE, self._check_priority, concerning(machines.has_priority)),
            Step("check_machine", Stage.REFUSE, self._check_machine, concerning(machines.is_machine)),
            Step("check_delivery", Stage.REFUSE, self._check_delivery, concerning(machines.is_placement)),
            Step("check_destinations", Stage.REFUSE, self._check_destinations, concerning(authors.is_slice)),
            Step("check_new_workspace", Stage.REFUSE, self._check_new_workspace, of(WORKSPACES, new)),
            Step("check_workspace", Stage.REFUSE, check_workspace, of(WORKSPACES, CHANGES)),
            Step("check_type", Stage.REFUSE, self._check_type, of(TYPES)),
            Step("check_cluster", Stage.REFUSE, self._check_cluster, of(CLUSTERS)),
            Step("check_cluster_deletion", Stage.REFUSE, check_cluster_deletion, of(CLUSTERS, (DELETE,))),
            Step("check_schema", Stage.REFUSE, check_schema, of(SCHEMAS), alone=True),
            Step("check_definition", Stage.REFUSE, check_definition, of(DEFINITIONS, new), alone=True),
            Step("finish_workspace", Stage.FINISH, self._finish_workspace, of(WORKSPACES, new)),
            Step("finish_type", Stage.FINISH, self._finish_type, of(TYPES)),
            Step("finish_export", Stage.FINISH, self._finish_export, of(EXPORTS)),
            Step("finish_endpoints", Stage.FINISH, self._finish_endpoints, of(ENDPOINTS)),
            Step("finish_binding", Stage.FINISH, self._finish_binding, of(BINDINGS)),
        )

    def home_workspace(self, call: Call) -> Awaitable[Obj] | None:
        """The user's home Workspace, if the request names it."""
        target = call.target
        is_home = target.name == HOME and target.cluster == ROOT and not target.view and is_kind(call.kind, WORKSPACES)
        return self._homes.workspace(call.user) if is_home else None

    # --- fields that only the server sets ---------------------------------------------------------

    def _complete_workspace(self, write: Write) -> None:
        call = write.call
        self._tenancy.admit(call.target.cluster, call.user, write.new, may_use(call))

    def _complete_binding(self, write: Write) -> None:
        new, old = write.new, write.old
        reference = bindings.binding_reference(new)
        if reference is not None and (old is None or bindings.binding_reference(old) != reference):
            if old is None and reference.name and not reference.path:
                reference = self._find_export(write, reference.name)
            self._check_may_bind(write, reference, "APIBinding")
        self._binder.admit_binding(write.call.target.cluster, new)

    def _find_export(self, write: Write, name: str) -> ExportReference:
        """The export that a new binding without a path means, which is recorded in its status.  Raises 422."""
        call = write.call
        found = self._binder.find_export(call.target.cluster, call.user, call.tools.authorizer, name)
        if isinstance(found, FieldError):
            raise call.invalid(write.name, [found])
        path = self._tenancy.clusters.path_of(found.cluster)
        write.new["status"] = {"apiExportClusterName": found.cluster, "apiExportPath": path}
        return ExportReference(path, name)

    def _check_endpoints(self, write: Write) -> None:
        spec = write.new.get("spec")
        reference = bindings.export_reference(spec.get("export")) if isinstance(spec, dict) else None
        if reference is not None:
            self._check_may_bind(write, reference, "APIExportEndpointSlice")

    def _check_may_bind(self, write: Write, reference: ExportReference, kind: str) -> None:
        call, verb = write.call, CREATE if write.old is None else UPDATE
        self._binder.check_may_bind(
            call.target.cluster, call.user, call.tools.authorizer, write.name, reference, verb, kind
        )

    def _complete_location(self, write: Write) -> None:
        annotations = write.new["metadata"].setdefault("annotations", {})
        annotations[PATH_ANNOTATION] = self._tenancy.clusters.path_of(write.call.target.cluster)

    # --- refusals of valid objects ----------------------------------------------------------------

    def _check_priority(self, write: Write) -> None:
        call = write.call
        may = partial(self._may, call.target.cluster, call.target.view, call.user)
        machines.check_priority(call.user, call.resource, write.new, write.old, may)

    def _check_machine(self, write: Write) -> None:
        call = write.call
        may = partial(self._may, call.target.cluster, call.target.view, call.user)
        machines.check_binding(call.user, write.new, write.old, may)

    def _check_delivery(self, write: Write) -> None:
        call = write.call
        may = partial(self._may, call.target.cluster, "", call.user)
        machines.check_delivery(call.user, write.new, write.old, may)

    def _check_destinations(self, write: Write) -> None:
        user = authors.responsible_user(write.call)
        if is_operator(user) or is_privileged(user):
            return
        authors.check_destinations(
            user, write.new, write.old, lambda cluster: self._may(cluster, "", user, authors.PLACING)
        )

    def _check_new_workspace(self, write: Write) -> None:
        call = write.call
        self._tenancy.check_new(call.target.cluster, call.user, write.new, may_use(call))

    def _check_type(self, write: Write) -> None:
        """Workspaces of a type bind its exports, so a user who adds one must be allowed to bind it."""
        call, old = write.call, write.old
        if old is None:
            guards.check_new_type(write.new)
        known = () if old is None else default_bindings(old)
        for reference in default_bindings(write.new):
            may_bind = reference in known or self._binder.may_add_default_binding(
                call.target.cluster, call.user, call.tools.authorizer, reference
            )
            if not may_bind:
                why = f"no permission to bind to export {reference.path}:{reference.name}{OR_MISSING}"
                raise forbidden(TENANCY_GROUP, "workspacetypes", write.name, why)

    def _check_cluster(self, write: Write) -> None:
        call, old = write.call, write.old
        guards.check_cluster_change(call.user, write.new, old) if old else guards.check_new_cluster()
        initializing.check_change(call, self._tenancy.clusters, write.new, old or {})

    # --- status that depends on other objects -----------------------------------------------------

    def _finish_workspace(self, write: Write) -> None:
        """The objects of the new workspace are created before it."""
        write.prerequisites += self._tenancy.prepare_cluster(write.call.target.cluster, write.new)
        write.rollbacks.append(lambda: self._tenancy.abandon(write.new))

    def _finish_type(self, write: Write) -> None:
        cluster = write.call.target.cluster
        path = self._tenancy.clusters.path_of(cluster)
        guards.finish_type(write.new, cluster, path, self._url, write.call.now())

    def _finish_export(self, write: Write) -> Awaitable[None]:
        return self._exporter.finish_export(write.call.target.cluster, write.new, write.old, write.call.now())

    def _finish_endpoints(self, write: Write) -> None:
        self._exporter.finish_endpoints(write.call.target.cluster, write.new, write.call.now())

    async def _finish_binding(self, write: Write) -> None:
        new = write.new
        if "deletionTimestamp" in new["metadata"]:
            return
        finished = await self._binder.finish_binding(write.call.target.cluster, new, write.call.now())
        if finished is not new:
            new.clear()
            new.update(finished)


def concerning(concerns: Callable[..., bool]) -> Applies:
    return lambda kind, operation: operation in WRITES and concerns(kind.resource)


def check_workspace(write: Write) -> None:
    guards.check_workspace_change(write.call.user, write.new, write.old or {})


def check_cluster_deletion(write: Write) -> None:
    guards.check_cluster_deletion(write.call.target.cluster, write.call.user, write.old or {})


def check_schema(write: Write) -> None:
    schemas.check_new(write.new) if write.old is None else schemas.check_change(write.new, write.old)


def check_definition(write: Write) -> None:
    schemas.check_definition(write.new)


def default_bindings(obj: Obj) -> list[ExportReference]:
    """The default bindings of a valid WorkspaceType."""
    found = (obj.get("spec") or {}).get("defaultAPIBindings") or ()
    return [ExportReference(one.get("path") or "", one.get("export") or "") for one in found]


def may_use(call: Call) -> MayUse:
    def allowed(cluster: str, name: str) -> bool:
        asked = Attributes("use", TENANCY_GROUP, "workspacetypes", name=name)
        return call.tools.authorizer.decide(cluster, call.user, asked).allowed

    return allowed
