"""Creation of workspaces: admission of Workspaces, and the objects of their clusters.

A workspace is complete when its creation returns.  The content of its cluster is written first, then the
LogicalCluster, then the Workspace.  A crash can leave a cluster without Workspace, which a controller deletes, but no
Workspace without cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from farflung.apis.kcp.names import (
    BY_ADMINISTRATOR,
    CREATE_ONLY,
    INTERNAL_CLUSTER,
    INTERNAL_SHARD,
    LOGICAL_CLUSTER_FINALIZER,
    OWNER_ANNOTATION,
    PATH_ANNOTATION,
    REPLICATE,
    REQUIRED_GROUPS,
    TENANCY_GROUP,
    TYPE_ANNOTATION,
    WORKSPACE_FINALIZER,
    ExportReference,
)
from farflung.apis.names import NAME_LABEL, RBAC_GROUP
from farflung.hub.catalog import objects
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED, CONTROLLER, User
from farflung.hub.tenancy import hashes
from farflung.hub.tenancy import status as states
from farflung.hub.tenancy import workspace_types as types
from farflung.hub.tenancy.direct_writes import (
    ACCOUNT,
    CONFIG_MAP,
    LOGICAL_CLUSTER,
    NAMESPACE,
    ROLE_BINDING,
    CreationContext,
    EncodedObject,
    encode_new,
    put_all,
    put_missing,
)
from farflung.hub.tenancy.paths import (
    MAX_PATH,
    ROOT,
    SYSTEM,
    WORKSPACE_TYPES,
    LogicalClusters,
    TypeReference,
    workspace_key,
)
from farflung.hub.tenancy.workspace_authorizer import OPERATORS, is_operator, is_privileged
from farflung.hub.tenancy.workspace_types import (
    TypeLineage,
    WorkspaceType,
    WorkspaceTypeRefused,
)
from farflung.machinery.errors import Obj, forbidden
from farflung.machinery.selectors import selector_of
from farflung.store.base import Change, Entry, Store

ADMIN_BINDING: Final = "workspace-admin"
BOOTSTRAPPER: Final = User("system:kcp:bootstrapper", (ADMINISTRATORS,))  #: the hub, as the creator of workspaces
OPERATOR: Final = User("kcp-admin", (OPERATORS, AUTHENTICATED))
#: administrators whose tokens the hub creates; an annotation tells other administrators from users of these names
OWN_ADMINISTRATORS: Final = frozenset({BOOTSTRAPPER.name, OPERATOR.name, "shard-admin"})
SHARD: Final = "root"
SHARD_KEY: Final = "/core.kcp.io/shards/root/root"
UNIVERSAL: Final = "root:universal"  #: the initializer that creates the namespace `default`
HUB_INITIALIZERS: Final = frozenset({UNIVERSAL, types.BINDINGS})  #: initializers that are done at creation
NO_ANNOTATIONS: Final[Mapping[str, str]] = {}
CA_CONFIG_MAP: Final = "kube-root-ca.crt"
CA_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)

#: (cluster, exports, now) → encoded APIBindings
Bind = Callable[[str, Sequence[ExportReference], str], Iterable[EncodedObject]]
MayUse = Callable[[str, str], bool]  #: (cluster, name of a type) → whether the user may use it


def nothing_bound(cluster: str, exports: Sequence[ExportReference], now: str) -> Iterable[EncodedObject]:
    return ()


@dataclass(frozen=True, slots=True)
class NewCluster:
    """A cluster to create."""

    cluster: str
    path: str
    type: str
    initializers: Sequence[str]
    bindings: Sequence[ExportReference]
    annotations: Obj  #: of the LogicalCluster, besides path and type
    admin: str = ""  #: the user with cluster-admin; empty: none
    owner: Obj | None = None  #: the Workspace, as in `spec.owner`


class Tenancy:
    def __init__(self, store: Store, context: CreationContext) -> None:
        self.clusters = LogicalClusters(store)
        self.on_abandoned: Callable[[str], None] = lambda cluster: None  #: called with clusters without a Workspace
        self.bind: Bind = nothing_bound
        self.context = context
        self._store = store
        self._types: dict[str, tuple[Entry, WorkspaceType]] = {}  #: key → entry and parsed type
        store.subscribe(WORKSPACE_TYPES, self._forget_types)

    def url_of(self, cluster: str) -> str:
        return f"{self.context.url}/clusters/{cluster}"

    # --- types ------------------------------------------------------------------------------------

    def type_at(self, path: str, name: str) -> WorkspaceType | None:
        cluster = self.clusters.resolve(path)
        if cluster is None or not name or "/" in name:
            return None
        key = f"{WORKSPACE_TYPES}{cluster}/{name}"
        entry, path = self._store.get(key), self.clusters.path_of(cluster)
        if entry is None:
            return None
        read, found = self._types.get(key, (None, None))
        if found is None or read is not entry or found.path != path:
            found = types.read_type(objects.decode(entry), cluster, path)
            self._types[key] = (entry, found)
        return found

    def _forget_types(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                self._types.pop(change.key, None)

    def _usable(self, may_use: MayUse) -> types.Lookup:
        """Types that a user may not use do not exist for that user."""

        def lookup(path: str, name: str) -> WorkspaceType | None:
            found = self.type_at(path, name)
            return found if found is not None and may_use(found.cluster, found.name) else None

        return lookup

    def _parent_lineage(self, cluster: str) -> TypeLineage:
        reference = self.clusters.type_of(cluster)
        if reference is None:
            raise WorkspaceTypeRefused("parent type cannot be resolved")
        return types.type_lineage(types.find_type(reference, (), self.type_at), self.type_at)

    def _lineage(self, reference: TypeReference, lookup: types.Lookup) -> TypeLineage:
        return types.type_lineage(types.find_type(reference, (), lookup), lookup)

    def _paths(self, cluster: str) -> Iterator[str]:
        """The workspaces in which a type without a path is searched: this one, its ancestors, and root."""
        yield cluster
        yield from self.clusters.ancestors(cluster)
        yield ROOT

    # --- admission --------------------------------------------------------------------------------

    def admit(self, cluster: str, user: User, workspace: Obj, may_use: MayUse) -> None:
        """Set owner and type of a new Workspace before validation.  Raises 403."""
        if user.name.startswith(CONTROLLER) and not user.cluster:
            user = OPERATOR  # owns the mailboxes, in which the mailbox controller has no more rights than it needs
        metadata = workspace["metadata"]
        annotations = metadata.setdefault("annotations", {})
        annotations[OWNER_ANNOTATION] = owner_text(user)
        annotations.pop(BY_ADMINISTRATOR, None)
        if mark := administrator_mark(user):
            annotations[BY_ADMINISTRATOR] = mark
        self._require_groups(cluster, annotations)
        spec = workspace.setdefault("spec", {})
        type_reference = (spec.get("type") or {}) if type(spec) is dict else None
        if type(type_reference) is not dict or any(
            type(type_reference.get(name, "")) is not str for name in ("name", "path")
        ):
            return  # validation refuses it
        reference = TypeReference(type_reference.get("name", ""), type_reference.get("path", ""))
        try:
            if not reference.name and not reference.path:
                reference = self._parent_lineage(cluster)[-1].default_child
            found = types.find_type(reference, self._paths(cluster), self._usable(may_use))
        except WorkspaceTypeRefused as refused:
            raise workspace_forbidden(workspace, str(refused)) from None
        spec["type"] = {"name": found.name, "path": reference.path or found.path}
        if found.labels:
            metadata["labels"] = dict(found.labels) | (metadata.get("labels") or {})

    def _require_groups(self, cluster: str, annotations: Obj) -> None:
        annotations.pop(REQUIRED_GROUPS, None)
        parent = self.clusters.read(cluster)
        if parent is not None and REQUIRED_GROUPS in parent.annotations:
            annotations[REQUIRED_GROUPS] = parent.annotations[REQUIRED_GROUPS]

    def check_new(self, cluster: str, user: User, workspace: Obj, may_use: MayUse) -> None:
        """Check a validated new Workspace.  Raises 403."""
        spec = workspace["spec"]
        if not is_privileged(user):
            for field, shown in (("cluster", "spec.Cluster"), ("URL", "spec.URL")):
                if spec.get(field):
                    raise workspace_forbidden(workspace, f"{shown} can only be set by system privileged users")
        reference = TypeReference(spec["type"].get("name", ""), spec["type"].get("path", ""))
        try:
            types.check_relation(self._parent_lineage(cluster), self._lineage(reference, self._usable(may_use)))
        except WorkspaceTypeRefused as refused:
            raise workspace_forbidden(workspace, str(refused)) from None
        if len(self.clusters.path_of(cluster)) + len(workspace["metadata"].get("name", "")) >= MAX_PATH:
            raise workspace_forbidden(workspace, f"its path would be longer than {MAX_PATH} characters")
        most = self.context.home_workspaces
        if not is_privileged(user) and (used := self.clusters.workspaces_of_home(cluster, most)) >= most:
            why = f"requested: workspaces=1, used: workspaces={used}, limited: workspaces={most}"
            raise workspace_forbidden(workspace, f"exceeded quota: home workspace, {why}")

    # --- creation ---------------------------------------------------------------------------------

    def prepare_cluster(
        self, parent: str, workspace: Obj, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> Sequence[EncodedObject]:
        """The objects of an admitted Workspace's cluster; sets the cluster in the Workspace.  The caller writes them,
        then the Workspace, or else calls `abandon`.  Empty if no shard matches or the name is in use.  `annotations`:
        of the LogicalCluster, besides the usual ones."""
        workspace["spec"].pop("cluster", None)  # clients cannot choose it
        present = self._store.get(workspace_key(parent, workspace["metadata"]["name"]))
        if present is not None and objects.uid_of(present) != workspace["metadata"]["uid"]:
            return ()
        if not self._is_schedulable(workspace):
            states.mark_unscheduled(workspace, self.context.now())
            return ()
        cluster = hashes.cluster_name(self.context.random_bytes(hashes.RANDOM_BYTES))
        try:
            new = self._new_cluster(parent, workspace, cluster, annotations)
        except WorkspaceTypeRefused as refused:
            raise workspace_forbidden(workspace, str(refused)) from None
        logical_cluster = self._logical_cluster(new)
        self._set_cluster(workspace, cluster, logical_cluster)
        return tuple(self._cluster_objects(new, logical_cluster))

    async def create_cluster(
        self, parent: str, workspace: Obj, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> None:
        """Write the objects of a Workspace's cluster.  The caller then writes the Workspace."""
        writes = self.prepare_cluster(parent, workspace, annotations)
        try:
            await put_all(self._store, writes)
        except BaseException:
            self.abandon(workspace)
            raise

    def abandon(self, workspace: Obj) -> None:
        """The Workspace of a new cluster will not be written."""
        cluster = workspace["spec"].get("cluster")
        if cluster:
            self.on_abandoned(cluster)

    async def create_missing(self, new: NewCluster) -> Obj:
        """Create the missing objects of a cluster with a known name.  Returns its LogicalCluster."""
        logical_cluster = self._logical_cluster(new)
        await put_missing(self._store, self._cluster_objects(new, logical_cluster))
        return logical_cluster

    def lineage_of(self, path: str, name: str) -> TypeLineage:
        """The lineage of a type that exists."""
        return self._lineage(TypeReference(name, path), self.type_at)

    def _is_schedulable(self, workspace: Obj) -> bool:
        selector = (workspace["spec"].get("location") or {}).get("selector")
        if not selector:
            return True
        shard = self._store.get(SHARD_KEY)
        labels = {"name": SHARD} if shard is None else objects.labels_of(shard)
        try:
            return selector_of(selector).matches(labels)
        except KeyError:
            return False  # an invalid selector

    def _new_cluster(self, parent: str, workspace: Obj, cluster: str, annotations: Mapping[str, str]) -> NewCluster:
        metadata, spec = workspace["metadata"], workspace["spec"]
        lineage = self.lineage_of(spec["type"]["path"], spec["type"]["name"])
        kept = {
            name: text for name, text in metadata["annotations"].items() if name in (OWNER_ANNOTATION, REQUIRED_GROUPS)
        }
        owner = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "resource": "workspaces",
            "name": metadata["name"],
            "cluster": parent,
            "uid": metadata["uid"],
        }
        return NewCluster(
            cluster,
            f"{self.clusters.path_of(parent)}:{metadata['name']}",
            lineage[-1].qualified,
            types.initializers(lineage),
            types.bindings(lineage),
            {**kept, **annotations},
            owner_name(metadata["annotations"].get(OWNER_ANNOTATION, "")),
            owner,
        )

    def _logical_cluster(self, new: NewCluster) -> Obj:
        spec: Obj = {"directlyDeletable": False}
        if new.initializers:
            spec["initializers"] = list(new.initializers)
        if new.owner is not None:
            spec["owner"] = new.owner
        annotations = {**new.annotations, TYPE_ANNOTATION: new.type}
        if new.path != ROOT:
            annotations[PATH_ANNOTATION] = new.path
        status: Obj = {"URL": self.url_of(new.cluster)}
        waiting = [one for one in new.initializers if one not in HUB_INITIALIZERS]
        if waiting:
            status["initializers"] = waiting
        obj: Obj = {
            "metadata": {
                "name": "cluster",
                "generation": 1,
                "annotations": annotations,
                "finalizers": [LOGICAL_CLUSTER_FINALIZER],
            },
            "spec": spec,
            "status": status,
        }
        states.update_cluster_status(obj, self.context.now())
        return obj

    def _cluster_objects(self, new: NewCluster, logical_cluster: Obj) -> Iterator[EncodedObject]:
        """The objects of a new cluster, the LogicalCluster last.  The default objects of the namespace precede it.
        Otherwise a controller would request them in a cluster that does not exist yet."""
        cluster, now, uid = new.cluster, self.context.now(), self.context.new_uid
        if UNIVERSAL in new.initializers:
            yield encode_new(
                ACCOUNT, cluster, {"metadata": {"name": "default", "namespace": "default"}}, uid=uid(), now=now
            )
            if authority := self.context.authority():
                yield encode_new(CONFIG_MAP, cluster, ca_config_map(authority), uid=uid(), now=now)
            yield encode_new(NAMESPACE, cluster, default_namespace(), uid=uid(), now=now)
        if new.admin:
            yield encode_new(ROLE_BINDING, cluster, admin_binding(new.admin), uid=uid(), now=now)
        if new.bindings:
            yield from self.bind(cluster, new.bindings, now)
        yield encode_new(LOGICAL_CLUSTER, cluster, logical_cluster, uid=uid(), now=now)

    def _set_cluster(self, workspace: Obj, cluster: str, logical_cluster: Obj) -> None:
        metadata = workspace["metadata"]
        finalizers = metadata.setdefault("finalizers", [])
        if WORKSPACE_FINALIZER not in finalizers:
            finalizers.append(WORKSPACE_FINALIZER)
        metadata["annotations"][INTERNAL_CLUSTER] = cluster
        metadata["annotations"][INTERNAL_SHARD] = hashes.shard_hash(SHARD)
        if "generation" in metadata:
            metadata["generation"] += 1
        workspace["spec"]["cluster"] = cluster
        workspace["spec"]["URL"] = self.url_of(cluster)
        states.update_workspace_status(workspace, logical_cluster, self.context.now())


# --- objects of a new cluster ---------------------------------------------------------------------


def default_namespace() -> Obj:
    metadata = {
        "name": "default",
        "labels": {NAME_LABEL: "default"},
        "annotations": {CREATE_ONLY: "true"},
    }
    return {"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def ca_config_map(pem: str) -> Obj:
    annotations = {"kubernetes.io/description": CA_DESCRIPTION}
    metadata = {"name": CA_CONFIG_MAP, "namespace": "default", "annotations": annotations}
    return {"metadata": metadata, "data": {"ca.crt": pem}}


def admin_binding(user: str) -> Obj:
    rbac = RBAC_GROUP
    return {
        "metadata": {"name": ADMIN_BINDING, "annotations": {REPLICATE: "apis.kcp.io,tenancy.kcp.io"}},
        "subjects": [{"kind": "User", "apiGroup": rbac, "name": user}],
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
    }


# --- users ----------------------------------------------------------------------------------------


def owner_text(user: User) -> str:
    """The annotation with the creator of a workspace."""
    owner: Obj = {"username": user.name}
    if user.uid:
        owner["uid"] = user.uid
    if user.groups:
        owner["groups"] = list(user.groups)
    if user.cluster:
        owner["extra"] = {"authentication.kubernetes.io/cluster-name": [user.cluster]}
    return orjson.dumps(owner).decode()


def owner_name(text: str) -> str:
    """The user who gets cluster-admin in a new workspace, from the annotation.  Empty for the hub itself, and for users
    of a single cluster, because the name may belong to another user elsewhere."""
    try:
        owner = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    name = str(owner.get("username", ""))
    return "" if owner.get("extra") or name.startswith(SYSTEM) else name


def administrator_mark(user: User) -> str:
    """Whether an administrator creates a workspace, if the name of its owner does not tell; else empty."""
    is_administrator = is_privileged(user) or is_operator(user)
    if is_administrator == (user.name in OWN_ADMINISTRATORS):
        return ""
    return "true" if is_administrator else "false"


def is_of_administrator(annotations: Mapping[str, str]) -> bool:
    """Whether an administrator of the hub, or the hub itself, created a workspace."""
    mark = annotations.get(BY_ADMINISTRATOR, "")
    if mark:
        return mark == "true"
    try:
        return orjson.loads(annotations.get(OWNER_ANNOTATION, "")).get("username") in OWN_ADMINISTRATORS
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return False


def workspace_forbidden(workspace: Obj, why: str) -> Exception:
    return forbidden(TENANCY_GROUP, "workspaces", workspace["metadata"].get("name", ""), why)
