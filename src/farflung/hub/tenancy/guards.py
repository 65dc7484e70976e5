"""Checks of changes of Workspaces, WorkspaceTypes and LogicalClusters, with kcp's messages."""

from __future__ import annotations

from typing import Final

from farflung.apis.kcp.names import (
    BY_ADMINISTRATOR,
    CORE_GROUP,
    OWNER_ANNOTATION,
    PATH_ANNOTATION,
    REQUIRED_GROUPS,
    TENANCY_GROUP,
    TYPE_ANNOTATION,
    URLS_READY,
)
from farflung.hub.request.user import User
from farflung.hub.tenancy import status as states
from farflung.hub.tenancy.paths import ROOT, SINGLETON
from farflung.hub.tenancy.workspace_authorizer import is_operator, is_privileged
from farflung.hub.tenancy.workspace_types import RESERVED
from farflung.hub.tenancy.workspaces import workspace_forbidden
from farflung.machinery.errors import ApiError, Obj, forbidden

ORDER: Final = ("", states.SCHEDULING, states.INITIALIZING, states.READY)


def check_workspace_change(user: User, new: Obj, old: Obj) -> None:
    """Runs after validation, which refuses changes of immutable fields.  Raises 403."""
    if is_privileged(user):
        return
    for field in ("cluster", "URL"):
        if new["spec"].get(field) != old["spec"].get(field):
            raise workspace_forbidden(new, f"spec.{field} can only be changed by system privileged users")
    for name in (OWNER_ANNOTATION, BY_ADMINISTRATOR, REQUIRED_GROUPS):
        if not is_operator(user) and annotation(new, name) != annotation(old, name):
            raise workspace_forbidden(
                new, f"metadata.annotations[{name}] can only be changed by system privileged users"
            )


def annotation(obj: Obj, name: str) -> str | None:
    found: str | None = (obj["metadata"].get("annotations") or {}).get(name)
    return found


# --- types ----------------------------------------------------------------------------------------


def check_new_type(obj: Obj) -> None:
    """Raises 403."""
    name = obj["metadata"].get("name", "")
    if name in RESERVED:
        why = f'metadata.name: Invalid value: "{name}": name is reserved'
        raise forbidden(TENANCY_GROUP, "workspacetypes", name, why)


def finish_type(obj: Obj, cluster: str, path: str, url: str, now: str) -> None:
    """Set the path and the initializer's URL of a WorkspaceType.  `url`: the hub's."""
    metadata = obj["metadata"]
    metadata.setdefault("annotations", {})[PATH_ANNOTATION] = path
    status = obj.setdefault("status", {})
    status["virtualWorkspaces"] = [{"url": f"{url}/services/initializingworkspaces/{cluster}:{metadata['name']}"}]
    for condition in ("Ready", URLS_READY):
        states.set_condition(status, condition, states.TRUE, now)


# --- LogicalClusters ------------------------------------------------------------------------------


def logical_cluster_forbidden(why: str) -> ApiError:
    return forbidden(CORE_GROUP, "logicalclusters", SINGLETON, why)


def check_new_cluster() -> None:
    """Clients cannot create LogicalClusters.  Raises 403."""
    raise logical_cluster_forbidden("LogicalCluster cannot be created")


def check_cluster_deletion(cluster: str, user: User, obj: Obj) -> None:
    """Raises 403."""
    deletable = obj.get("spec", {}).get("directlyDeletable") or is_privileged(user)
    if cluster == ROOT or not deletable:
        raise logical_cluster_forbidden("LogicalCluster cannot be deleted")


def check_cluster_change(user: User, new: Obj, old: Obj) -> None:
    """Raises 403."""
    if is_privileged(user):
        return
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    if _initializers(spec) != _initializers(old_spec):
        raise logical_cluster_forbidden("spec.initializers is immutable")
    if spec.get("owner") != old_spec.get("owner"):
        raise logical_cluster_forbidden("spec.owner is immutable")
    for name in (REQUIRED_GROUPS, PATH_ANNOTATION, TYPE_ANNOTATION):
        if not is_operator(user) and annotation(new, name) != annotation(old, name):
            raise logical_cluster_forbidden(f"metadata.annotations[{name}] is immutable")
    _check_status(new.get("status") or {}, old.get("status") or {}, _initializers(spec))


def _check_status(new: Obj, old: Obj, wanted: set[str]) -> None:
    phase, before = new.get("phase") or "", old.get("phase") or ""
    waiting, waited = _initializers(new), _initializers(old)
    begins = phase == states.INITIALIZING != before
    if begins and waiting != wanted and before not in ORDER[ORDER.index(phase) :]:
        raise logical_cluster_forbidden("status.initializers do not equal spec.initializers")
    if not begins and phase == states.INITIALIZING and not waiting <= waited:
        raise logical_cluster_forbidden("status.initializers must not grow")
    if phase != states.INITIALIZING and waiting != waited:
        raise logical_cluster_forbidden("status.initializers is immutable after initilization")
    if before == states.INITIALIZING != phase and waiting:
        raise logical_cluster_forbidden("status.initializers is not empty")
    if phase in ORDER and before in ORDER and ORDER.index(before) > ORDER.index(phase):
        raise logical_cluster_forbidden(f'cannot transition from "{before}" to "{phase}"')


def _initializers(part: Obj) -> set[str]:
    return set(part.get("initializers") or ())
