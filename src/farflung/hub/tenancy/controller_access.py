"""Permissions of the hub's controllers, which work in many workspaces.

The ClusterRoles and ClusterRoleBindings of three clusters that are no workspaces grant them:

    system:controllers   in every workspace, in all workspaces at once, and in views
    system:copied-kinds  there, for the kinds that placements copy: wildcards mean none of the hub's own kinds
    system:mailboxes     in every mailbox: the workspaces below the provider of the edge API

They need no access to the workspace, and no policy of an export limits them.  Only administrators can write there.

Two verbs allow a patch of a part of the metadata of any kind, because roles cannot name fields.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from farflung.apis.edge.copied_kinds import is_copied
from farflung.apis.edge.names import EXECUTING_COUNT, STATUS_RETURNED_FROM, SYNCER_FINALIZER
from farflung.apis.kcp.names import CONTROLLERS_CLUSTER, COPIED_KINDS_CLUSTER, MAILBOXES_CLUSTER
from farflung.hub.auth.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, RbacPolicy
from farflung.hub.registry.pipeline import UPDATE, Stage, Step, Write, on
from farflung.hub.request.attributes import Attributes, Decision
from farflung.hub.request.user import User
from farflung.hub.tenancy.paths import PROVIDER, ROOT, SYSTEM, LogicalClusters
from farflung.machinery.errors import Obj
from farflung.store.base import Change

RESERVED_CLUSTERS: Final = (CONTROLLERS_CLUSTER, COPIED_KINDS_CLUSTER, MAILBOXES_CLUSTER)
REMEMBERED: Final = 4096  #: clusters
PRECONDITIONS: Final = ("uid", "resourceVersion")  #: in the metadata of a patch


class ControllerAccess:
    def __init__(
        self,
        clusters: LogicalClusters,
        decide: Callable[[str, User, Attributes], Decision],
        policy: Callable[[str], RbacPolicy],
    ) -> None:
        """`decide`, `policy`: by the roles of one cluster alone."""
        self._clusters = clusters
        self._decide = decide
        self._policy = policy
        self._mailboxes: dict[str, bool] = {}
        self.steps = (
            Step(
                "restrict_patch",
                Stage.METADATA,
                self._restrict_patch,
                on(UPDATE),
                lambda call: self.is_controller(call.user),
            ),
        )
        clusters.subscribe(self._forget_mailboxes)

    def is_controller(self, user: User) -> bool:
        return not user.cluster and any(self._policy(cluster).binds(user) for cluster in RESERVED_CLUSTERS)

    def allows(self, cluster: str, user: User, asked: Attributes) -> bool:
        """`cluster`: a workspace that exists, or all of them."""
        if not self.is_controller(user) or cluster.startswith(SYSTEM):
            return False
        asked = asked._replace(resource=asked.resource.partition(":")[0])  # without the identity of its export
        if self._is_granted(cluster, user, asked):
            return True
        return asked.verb == "patch" and not asked.subresource and any(self._restrictions(cluster, user, asked))

    def _restrict_patch(self, write: Write) -> None:
        """Keep only the changes that the user may make, as a write of a subresource does."""
        call, target, old = write.call, write.call.target, write.old
        if old is None or call.request.method != "PATCH" or not self.is_controller(call.user):
            return
        asked = Attributes("patch", target.group, target.plural, "", target.namespace, write.name)
        restrictions = list(self._restrictions(target.cluster, call.user, asked))
        if not restrictions or self._is_granted(target.cluster, call.user, asked):
            return
        new = write.new
        restricted = copy.deepcopy(old)
        for restriction in restrictions:
            restricted = restriction(restricted, new)
        kept = {name: new["metadata"][name] for name in PRECONDITIONS if name in new["metadata"]}
        new.clear()
        new.update({**restricted, "metadata": restricted["metadata"] | kept})

    def _restrictions(self, cluster: str, user: User, asked: Attributes) -> Iterator[Restriction]:
        """The patches of a part that a user may send."""
        for verb, restriction in RESTRICTED.items():
            if self._is_granted(cluster, user, asked._replace(verb=verb)):
                yield restriction

    def depends_on(self) -> Iterator[str]:
        for home in (CLUSTER_ROLES, CLUSTER_BINDINGS):
            for cluster in RESERVED_CLUSTERS:
                yield f"{home}{cluster}/"

    def _is_granted(self, cluster: str, user: User, asked: Attributes) -> bool:
        homes = [CONTROLLERS_CLUSTER]
        if self._is_mailbox(cluster):
            homes.append(MAILBOXES_CLUSTER)
        if asked.path is None and is_copied(asked.group, asked.resource):
            homes.append(COPIED_KINDS_CLUSTER)
        if asked.path is not None:
            return any(self._policy(home).decide_path(user, asked.verb, asked.path).allowed for home in homes)
        return any(self._decide(home, user, asked).allowed for home in homes)

    # --- mailboxes --------------------------------------------------------------------------------

    def _is_mailbox(self, cluster: str) -> bool:
        known = self._mailboxes.get(cluster)
        if known is None:
            owner = self._clusters.owner_of(cluster)
            known = owner is not None and owner.cluster == self._clusters.child(ROOT, PROVIDER)
            if len(self._mailboxes) >= REMEMBERED:
                self._mailboxes.clear()
            self._mailboxes[cluster] = known
        return known

    def _forget_mailboxes(self, changes: Sequence[Change]) -> None:
        self._mailboxes.clear()


# --- restricted patches ---------------------------------------------------------------------------

Restriction = Callable[[Obj, Obj], Obj]  #: (the object, the wanted object) → the object with the permitted changes


def marked(obj: Obj, wanted: Obj) -> Obj:
    """With the label and the annotation of returned status."""
    metadata = obj["metadata"]
    for section, name in (("labels", EXECUTING_COUNT), ("annotations", STATUS_RETURNED_FROM)):
        entries = {key: value for key, value in (metadata.get(section) or {}).items() if key != name}
        value = (wanted["metadata"].get(section) or {}).get(name)
        if value is not None:
            entries[name] = value
        metadata = {key: one for key, one in metadata.items() if key != section} | (
            {section: entries} if entries else {}
        )
    return {**obj, "metadata": metadata}


def released(obj: Obj, wanted: Obj) -> Obj:
    """Without the finalizer of syncers, if it is removed."""
    if SYNCER_FINALIZER in (wanted["metadata"].get("finalizers") or ()):
        return obj
    metadata = {**obj["metadata"]}
    kept = [one for one in metadata.pop("finalizers", None) or () if one != SYNCER_FINALIZER]
    return {**obj, "metadata": metadata | ({"finalizers": kept} if kept else {})}


RESTRICTED: Final[Mapping[str, Restriction]] = {"mark": marked, "release": released}
