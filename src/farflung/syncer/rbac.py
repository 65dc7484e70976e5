"""RBAC rules of a syncer: in its mailbox, for kinds of bound exports, and at its edge.

No rule allows writes by a wildcard unless the administrator asks for it.  Kinds that grant permissions are left out
unless they are named one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.kcp.compute import EXPORTED
from farflung.apis.kcp.names import APIS_GROUP, CORE_GROUP, MORE_EXPORT
from farflung.apis.names import CERTIFICATES_GROUP, POLICIES_GROUP, RBAC_GROUP
from farflung.machinery.errors import Obj
from farflung.placement.names import DEFINITIONS, NAMESPACES, THE_ONE, Category, GroupResource, category
from farflung.placement.syncer_config import parse_syncer_spec
from farflung.syncer.conversion import takes_status

NODES: Final = GroupResource("", "nodes")
WITHOUT_STATUS: Final = frozenset(
    {
        NAMESPACES,  # each side has its own
        DEFINITIONS,
        GroupResource("", "configmaps"),
        GroupResource("", "limitranges"),
        GroupResource("", "secrets"),
        GroupResource("", "serviceaccounts"),
        GroupResource("coordination.k8s.io", "leases"),
    }
)

#: kinds that every workspace has or root:compute exports
USUAL: Final = frozenset(
    {
        NAMESPACES,
        DEFINITIONS,
        GroupResource("", "configmaps"),
        GroupResource("", "limitranges"),
        GroupResource("", "pods"),
        GroupResource("", "resourcequotas"),
        GroupResource("", "secrets"),
        GroupResource("", "serviceaccounts"),
        GroupResource("", "services"),
        GroupResource("apps", "deployments"),
        GroupResource("coordination.k8s.io", "leases"),
        GroupResource("networking.k8s.io", "ingresses"),
    }
)

#: kinds that every placement of a namespace names, which are only read by default
SEEN: Final = frozenset({GroupResource(RBAC_GROUP, "rolebindings"), GroupResource(RBAC_GROUP, "roles")})

#: groups whose kinds grant permissions or intercept writes
GUARDED: Final = frozenset({RBAC_GROUP, POLICIES_GROUP, "apiregistration.k8s.io", CERTIFICATES_GROUP})

#: kinds of RBAC → the verb and its resources that a cluster requires to grant more than one's own permissions
GIVING: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "roles": ("escalate", ("roles",)),
    "clusterroles": ("escalate", ("clusterroles",)),
    "rolebindings": ("bind", ("clusterroles", "roles")),
    "clusterrolebindings": ("bind", ("clusterroles",)),
}

READ: Final = ("get", "list", "watch")
FOLLOW: Final = (*READ, "patch")  #: of a copy in the mailbox: its finalizer
BRING: Final = (*READ, "create", "patch", "delete")  #: of objects that the syncer applies
RETURN: Final = (*READ, "create", "update", "patch", "delete")
STATUS: Final = ("patch",)
DEFINE: Final = ("get", "create", "patch")  #: of the definitions of upsynced kinds, by server-side apply


@dataclass(frozen=True, slots=True)
class SyncedKinds:
    """The kinds for which a syncer gets permissions."""

    down: frozenset[GroupResource]
    up: frozenset[GroupResource] = frozenset()
    left_out: frozenset[GroupResource] = frozenset()  #: selected for downsync, but not allowed by default
    left_out_up: frozenset[GroupResource] = frozenset()
    everything: bool = False  #: downsync of all kinds, also future ones


def synced_kinds(
    spec: Mapping[str, Any],
    *,
    allowed: Iterable[GroupResource] = (),
    allowed_up: Iterable[GroupResource] = (),
    everything: bool = False,
) -> SyncedKinds:
    """`spec`: of the SyncerConfig `the-one`; `allowed`: kinds that the administrator names one by one."""
    wanted = parse_syncer_spec(spec)
    down = _edge_kinds({*wanted.resources, *(ref.resource for ref in wanted.refs)})
    up = _edge_kinds(GroupResource(one.group, plural) for one in wanted.upsync for plural in one.resources)
    allowed, allowed_up = frozenset(allowed), frozenset(allowed_up)
    guarded = {one for one in down if one.group in GUARDED} - allowed
    guarded_up = {one for one in up if one.group in GUARDED or "*" in one} - allowed_up
    return SyncedKinds(
        (USUAL | down | allowed) - guarded,
        (up | allowed_up) - guarded_up,
        frozenset() if everything else frozenset(guarded),
        frozenset(guarded_up),
        everything,
    )


def _edge_kinds(resources: Iterable[GroupResource]) -> frozenset[GroupResource]:
    return frozenset(resource for resource in resources if category(resource) is Category.EDGE)


def parse_resource(text: str) -> GroupResource:
    """`GROUP/RESOURCE`; the core group is empty, `core`, or omitted.  Raises ValueError."""
    found = _RESOURCE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form GROUP/RESOURCE, like apps/deployments or core/configmaps")
    group = found["group"] or ""
    return GroupResource("" if group == "core" else group, found["plural"])


_RESOURCE: Final = re.compile(r"(?:(?P<group>[a-z0-9.-]*)/)?(?P<plural>[a-z0-9-]+)")


# --- in the mailbox -------------------------------------------------------------------------------


def mailbox_rules(kinds: SyncedKinds, account: str) -> list[Obj]:
    """`account`: the syncer's ServiceAccount in the mailbox, which may renew only its own token."""
    rules = [
        _rule(EDGE_GROUP, ["edgesyncconfigs", "syncerconfigs"], READ),
        {**_rule(EDGE_GROUP, ["syncerconfigs/status"], STATUS), "resourceNames": [THE_ONE]},
        _rule(CORE_GROUP, ["logicalclusters"], ("get",)),
        _rule(APIS_GROUP, ["apibindings"], READ),
        {**_rule("", ["serviceaccounts/token"], ("create",)), "resourceNames": [account]},
    ]
    if kinds.everything:
        rules.append(_rule("*", ["*"], FOLLOW))
    else:
        rules += _by_group(kinds.down, FOLLOW)
        rules += _by_group(filter(takes_status, kinds.down - WITHOUT_STATUS), STATUS, "/status")
        rules += _by_group((kinds.left_out | SEEN) - kinds.down, READ)  # to report that there are copies of them
    if kinds.up:
        rules += _by_group(kinds.up | {NAMESPACES}, RETURN)
        rules += _by_group(kinds.up - WITHOUT_STATUS, STATUS, "/status")
    if definitions := sorted(f"{plural}.{group}" for group, plural in kinds.up if group):
        rules.append({**_rule(DEFINITIONS.group, [DEFINITIONS.resource], DEFINE), "resourceNames": definitions})
    return rules


def policy_rules() -> list[Obj]:
    """For the maximal permission policy of root:compute: only syncers may write the status of its kinds."""
    return [
        _rule("", ["pods"], ("create", "update", "patch", "delete")),
        _rule("", ["pods/status", "services/status"], STATUS),
        _rule("apps", ["deployments/status"], STATUS),
        _rule("networking.k8s.io", ["ingresses/status"], STATUS),
        *_by_group(
            (GroupResource(one.group, one.plural) for one in EXPORTED[MORE_EXPORT] if one.has_status), STATUS, "/status"
        ),
    ]


# --- at the edge ----------------------------------------------------------------------------------


def edge_rules(kinds: SyncedKinds) -> list[Obj]:
    """With reading Nodes, for the capacity, and listing all kinds: a namespace or a definition is deleted only if it
    contains no objects of others, of any kind."""
    if kinds.everything:
        rules = [_rule("*", ["*"], BRING)]
    else:
        read = (kinds.up | {NODES}) - kinds.down
        rules = [*_by_group(kinds.down, BRING), *_by_group(read, READ), _rule("*", ["*"], ("list",))]
    giving: dict[str, set[str]] = {}
    for group, plural in kinds.down:
        if group == RBAC_GROUP and plural in GIVING:
            verb, on = GIVING[plural]
            giving.setdefault(verb, set()).update(on)
    return rules + [_rule(RBAC_GROUP, giving[verb], (verb,)) for verb in sorted(giving)]


# --- rules ----------------------------------------------------------------------------------------


def _by_group(resources: Iterable[GroupResource], verbs: Iterable[str], subresource: str = "") -> list[Obj]:
    groups: dict[str, list[str]] = {}
    for group, plural in resources:
        groups.setdefault(group, []).append(plural + subresource)
    return [_rule(group, groups[group], verbs) for group in sorted(groups)]


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Obj:
    return {"apiGroups": [group], "resources": sorted(resources), "verbs": list(verbs)}
