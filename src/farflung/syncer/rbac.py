"""What a syncer may do: in its mailbox, with kinds that are bound from elsewhere, and at its edge.  Pure.

Nothing is written by a wildcard unless somebody asks for it.  Kinds that give rights to others are left out unless they
are named one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.kcp.names import APIS_GROUP, CORE_GROUP
from farflung.apis.names import CERTIFICATES_GROUP, POLICIES_GROUP, RBAC_GROUP
from farflung.machinery.errors import Obj
from farflung.placement.names import Category, Kind, category
from farflung.placement.syncer_config import THE_ONE, parse_syncer_spec
from farflung.syncer.conversion import takes_status
from farflung.syncer.types import Resource

NAMESPACES: Final = Resource("", "namespaces")
NODES: Final = Resource("", "nodes")
DEFINITIONS: Final = Resource("apiextensions.k8s.io", "customresourcedefinitions")
WITHOUT_STATUS: Final = frozenset(
    {
        NAMESPACES,  # or rather with one that says what is so on each side
        DEFINITIONS,
        Resource("", "configmaps"),
        Resource("", "limitranges"),
        Resource("", "secrets"),
        Resource("", "serviceaccounts"),
        Resource("coordination.k8s.io", "leases"),
    }
)

#: what placements bring that use nothing but what every workspace has and root:compute exports
USUAL: Final = frozenset(
    {
        NAMESPACES,
        DEFINITIONS,
        Resource("", "configmaps"),
        Resource("", "limitranges"),
        Resource("", "pods"),
        Resource("", "resourcequotas"),
        Resource("", "secrets"),
        Resource("", "serviceaccounts"),
        Resource("", "services"),
        Resource("apps", "deployments"),
        Resource("coordination.k8s.io", "leases"),
        Resource("networking.k8s.io", "ingresses"),
    }
)

#: what every placement of a namespace names, and what is not brought for that
SEEN: Final = frozenset({Resource(RBAC_GROUP, "rolebindings"), Resource(RBAC_GROUP, "roles")})

#: groups whose kinds give rights, or a say in everything that is written
GUARDED: Final = frozenset({RBAC_GROUP, POLICIES_GROUP, "apiregistration.k8s.io", CERTIFICATES_GROUP})

#: kinds of RBAC → the verb, and on what, without which a cluster refuses whatever allows more than the syncer may do
GIVING: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "roles": ("escalate", ("roles",)),
    "clusterroles": ("escalate", ("clusterroles",)),
    "rolebindings": ("bind", ("clusterroles", "roles")),
    "clusterrolebindings": ("bind", ("clusterroles",)),
}

READ: Final = ("get", "list", "watch")
FOLLOW: Final = (*READ, "patch")  #: a copy in the mailbox: its finalizer
BRING: Final = (*READ, "create", "patch", "delete")  #: whatever is applied from the one side to the other
RETURN: Final = (*READ, "create", "update", "patch", "delete")
STATUS: Final = ("patch",)


@dataclass(frozen=True, slots=True)
class SyncedKinds:
    """What a syncer deals with."""

    down: frozenset[Resource]
    up: frozenset[Resource] = frozenset()
    left_out: frozenset[Resource] = frozenset()  #: wanted down, but not to be allowed unless somebody says so
    left_out_up: frozenset[Resource] = frozenset()
    everything: bool = False  #: down, also what is not known yet


def synced_kinds(
    spec: Mapping[str, Any],
    *,
    allowed: Iterable[Resource] = (),
    allowed_up: Iterable[Resource] = (),
    everything: bool = False,
) -> SyncedKinds:
    """`spec`: of the SyncerConfig `the-one`; `allowed`: what is named one by one."""
    told = parse_syncer_spec(spec)
    down = _edge_kinds({*told.kinds, *(part.kind for part in told.parts)})
    up = _edge_kinds(Kind(one.group, plural) for one in told.upsync for plural in one.resources)
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


def _edge_kinds(kinds: Iterable[Kind]) -> frozenset[Resource]:
    return frozenset(Resource(*kind) for kind in kinds if category(kind) is Category.EDGE)


def parse_resource(text: str) -> Resource:
    """`GROUP/RESOURCE`; the core group is empty, or `core`, or not said at all.  Raises ValueError."""
    found = _RESOURCE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form GROUP/RESOURCE, like apps/deployments or core/configmaps")
    group = found["group"] or ""
    return Resource("" if group == "core" else group, found["plural"])


_RESOURCE: Final = re.compile(r"(?:(?P<group>[a-z0-9.-]*)/)?(?P<plural>[a-z0-9-]+)")


# --- in the mailbox -------------------------------------------------------------------------------


def mailbox_rules(kinds: SyncedKinds, account: str) -> list[Obj]:
    """`account`: the name of the syncer's ServiceAccount there, which may renew its own token and no other."""
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
        rules += _by_group((kinds.left_out | SEEN) - kinds.down, READ)  # so that it can tell whether there are some
    if kinds.up:
        rules += _by_group(kinds.up | {NAMESPACES}, RETURN)
        rules += _by_group(kinds.up - WITHOUT_STATUS, STATUS, "/status")
    return rules


def policy_rules() -> list[Obj]:
    """What has to be allowed where root:compute says what may be done with what it exports, for syncers to tell how
    its kinds are doing; nobody else may."""
    return [
        _rule("", ["pods"], ("create", "update", "patch", "delete")),
        _rule("", ["pods/status", "services/status"], STATUS),
        _rule("apps", ["deployments/status"], STATUS),
        _rule("networking.k8s.io", ["ingresses/status"], STATUS),
    ]


# --- at the edge ----------------------------------------------------------------------------------


def edge_rules(kinds: SyncedKinds) -> list[Obj]:
    """Beside that, Nodes may be counted, and everything may be listed: a namespace or a definition is only deleted if
    there is nothing in it that is somebody else's, of whatever kind."""
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


def _by_group(resources: Iterable[Resource], verbs: Iterable[str], subresource: str = "") -> list[Obj]:
    groups: dict[str, list[str]] = {}
    for group, plural in resources:
        groups.setdefault(group, []).append(plural + subresource)
    return [_rule(group, groups[group], verbs) for group in sorted(groups)]


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Obj:
    return {"apiGroups": [group], "resources": sorted(resources), "verbs": list(verbs)}
