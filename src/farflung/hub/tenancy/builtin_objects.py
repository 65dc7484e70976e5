"""The roles, bindings and types of the workspaces that the hub creates.

The maximal permission policy of an export is roles in its workspace, whose subjects have a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.compute import EXPORTED
from farflung.apis.kcp.names import (
    APIRESOURCE_GROUP,
    APIS_GROUP,
    BATTERY,
    COMPUTE_EXPORT,
    CONSUMER,
    CORE_GROUP,
    CREATE_ONLY,
    MORE_EXPORT,
    SCHEDULING_GROUP,
    TENANCY_GROUP,
    TOPOLOGY_GROUP,
    WORKLOAD_GROUP,
)
from farflung.apis.names import RBAC_GROUP
from farflung.hub.request.user import AUTHENTICATED
from farflung.hub.tenancy.workspace_authorizer import OPERATORS
from farflung.machinery.errors import Obj

READ: Final = ["get", "list", "watch"]
TYPES: Final = ["universal", "organization", "team", "home"]
#: exports of root that every workspace binds
DEFAULT_EXPORTS: Final = (
    TENANCY_GROUP,
    SCHEDULING_GROUP,
    WORKLOAD_GROUP,
    APIRESOURCE_GROUP,
    TOPOLOGY_GROUP,
)


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Obj:
    rule: Obj = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    if names:
        rule["resourceNames"] = list(names)
    return rule


def _granted(name: str, group: str, *rules: Obj) -> tuple[Obj, Obj]:
    """A ClusterRole, and a ClusterRoleBinding of it to a group."""
    role = {"metadata": {"name": name}, "rules": list(rules)}
    binding = {
        "metadata": {"name": name},
        "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group}],
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
    }
    return role, binding


def root_roles() -> list[tuple[Obj, Obj]]:
    """All users may have a home workspace, read the workspaces in root without access to their content, and use the
    usual types."""
    tenancy = TENANCY_GROUP
    access = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    return [
        _granted("system:kcp:authenticated:access", AUTHENTICATED, access),
        _granted(
            "system:kcp:authenticated:home", AUTHENTICATED, _rule(tenancy, ["workspaces"], ["create", "get"], ["~"])
        ),
        _granted("system:kcp:authenticated:types", AUTHENTICATED, _rule(tenancy, ["workspacetypes"], ["use"], TYPES)),
        _granted(
            "system:kcp:authenticated:tenancy-reader",
            AUTHENTICATED,
            _rule(tenancy, ["workspaces", "workspacetypes"], READ),
            _rule(CORE_GROUP, ["logicalclusters"], READ),
        ),
    ]


def compute_roles() -> list[tuple[Obj, Obj]]:
    """All users may bind the exports and use their kinds, with read-only access to the status of Pods.  Only operators
    may write Clusters and bind machines, because the machines of all tenants share the Clusters."""
    kinds = (("apps", "deployments"), ("", "services"), ("networking.k8s.io", "ingresses"))
    usual = [_rule(group, [plural], ["*"]) for group, plural in kinds]
    scale = _rule("apps", ["deployments/scale"], ["*"])
    status = [_rule(group, [f"{plural}/status"], READ) for group, plural in kinds]
    pods = _rule("", ["pods", "pods/status"], READ)
    stacks = _rule(GLOBALSCHEDULER_GROUP, ["allocations"], ["*"])
    clusters = _rule(GLOBALSCHEDULER_GROUP, ["allocations/status", "clusters", "clusters/status"], READ)
    everything = (_rule(GLOBALSCHEDULER_GROUP, ["*"], ["*"]), _rule("", ["pods/binding"], ["create"]))
    access = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    return [
        _granted("compute:access", AUTHENTICATED, access),
        _granted("compute:bind", AUTHENTICATED, _bind(COMPUTE_EXPORT)),
        _granted("compute:bind-more", AUTHENTICATED, _bind(MORE_EXPORT)),
        _granted("compute:maximal-permission-policy-more", CONSUMER + AUTHENTICATED, *more_kinds_rules()),
        _granted("compute:maximal-permission-policy", CONSUMER + AUTHENTICATED, *usual, scale, *status, pods),
        _granted("compute:virtual-machines", CONSUMER + AUTHENTICATED, _rule("", ["pods"], ["*"]), stacks, clusters),
        _granted("compute:virtual-machine-operators", CONSUMER + OPERATORS, *everything),
        _granted("compute:bind-global-scheduler", AUTHENTICATED, _bind(GLOBALSCHEDULER_GROUP)),
    ]


def more_kinds_rules() -> list[Obj]:
    """All verbs, except that only syncers write the status."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for one in EXPORTED[MORE_EXPORT]:
        writable, readable = groups.setdefault(one.group, ([], []))
        writable.append(one.plural)
        if one.subresource("scale") is not None:
            writable.append(f"{one.plural}/scale")
        if one.has_status:
            readable.append(f"{one.plural}/status")
    return [
        _rule(group, resources, verbs)
        for group, lists in groups.items()
        for resources, verbs in zip(lists, (["*"], READ), strict=True)
        if resources
    ]


def _bind(export: str) -> Obj:
    return _rule(APIS_GROUP, ["apiexports"], ["bind"], [export])


def _reference(name: str) -> Obj:
    return {"name": name, "path": "root"}


def _type(name: str, annotations: Obj, child: str, **spec: Obj) -> Obj:
    return {
        "metadata": {"name": name, "generation": 1, "annotations": annotations},
        "spec": {
            "extend": {"with": [_reference("universal")]},
            "defaultChildWorkspaceType": _reference(child),
            **spec,
        },
    }


def builtin_types() -> list[Obj]:
    """Without the fields that the server sets."""
    battery = {BATTERY: "workspace-types"}
    universal = {
        "metadata": {"name": "universal", "generation": 1},
        "spec": {
            "initializer": True,
            "defaultChildWorkspaceType": _reference("universal"),
            "defaultAPIBindings": [{"path": "root", "export": export} for export in DEFAULT_EXPORTS],
        },
    }
    return [
        universal,
        _type("root", {CREATE_ONLY: "true"}, "organization", limitAllowedParents={"none": True}),
        _type("home", {}, "universal", limitAllowedParents={"none": True}),
        _type(
            "organization",
            battery,
            "universal",
            limitAllowedChildren={"types": [_reference("universal")]},
            limitAllowedParents={"types": [_reference("root")]},
        ),
        _type(
            "team",
            dict(battery),
            "universal",
            limitAllowedParents={"types": [_reference("organization"), _reference("team")]},
        ),
    ]
