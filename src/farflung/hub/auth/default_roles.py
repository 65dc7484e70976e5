"""The default ClusterRoles and ClusterRoleBindings of Kubernetes, without those for nodes and controllers.

A rule is a line: verbs, groups, resources and optionally names, or verbs and paths, each a list with commas.  `core` is
the group with the empty name; `read`, `follow` and `write` stand for several verbs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from farflung.apis.names import RBAC_GROUP
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED, UNAUTHENTICATED
from farflung.machinery.errors import Obj

API_VERSION: Final = f"{RBAC_GROUP}/v1"
AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"

VERBS: Final = {
    "read": "get,list,watch",
    "follow": "list,watch",
    "write": "create,delete,deletecollection,patch,update",
}

RULES: Final[dict[str, str]] = {
    "cluster-admin": """
        * * *
        * *
    """,
    "system:aggregate-to-admin": """
        create authorization.k8s.io localsubjectaccessreviews
        create,delete,deletecollection,get,list,patch,update,watch rbac.authorization.k8s.io rolebindings,roles
    """,
    "system:aggregate-to-edit": """
        read core pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy
        impersonate core serviceaccounts
        write core pods,pods/attach,pods/exec,pods/portforward,pods/proxy
        create core pods/eviction
        write core configmaps,events,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale
        write core secrets,serviceaccounts,services,services/proxy
        create core serviceaccounts/token
        write apps daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale
        write apps statefulsets,statefulsets/scale
        write autoscaling horizontalpodautoscalers
        write batch cronjobs,jobs
        write policy poddisruptionbudgets
        write networking.k8s.io ingresses,networkpolicies
        create,delete,deletecollection,get,list,patch,update,watch coordination.k8s.io leases
        write resource.k8s.io resourceclaims,resourceclaimtemplates
    """,
    "system:aggregate-to-view": """
        read core configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods
        read core replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status
        read core bindings,events,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status
        read core resourcequotas,resourcequotas/status
        read core namespaces
        read discovery.k8s.io endpointslices
        read apps controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status
        read apps replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status
        read autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status
        read batch cronjobs,cronjobs/status,jobs,jobs/status
        read policy poddisruptionbudgets,poddisruptionbudgets/status
        read networking.k8s.io ingresses,ingresses/status,networkpolicies
        read resource.k8s.io resourceclaims,resourceclaims/status,resourceclaimtemplates
    """,
    "system:auth-delegator": """
        create authentication.k8s.io tokenreviews
        create authorization.k8s.io subjectaccessreviews
    """,
    "system:basic-user": """
        create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews
        create authentication.k8s.io selfsubjectreviews
    """,
    "system:certificates.k8s.io:kube-apiserver-client-approver": """
        approve certificates.k8s.io signers kubernetes.io/kube-apiserver-client
    """,
    "system:certificates.k8s.io:legacy-unknown-approver": """
        approve certificates.k8s.io signers kubernetes.io/legacy-unknown
    """,
    "system:discovery": """
        get /api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/
    """,
    "system:monitoring": """
        get /healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*
    """,
    "system:public-info-viewer": """
        get /healthz,/livez,/readyz,/version,/version/
    """,
    "system:service-account-issuer-discovery": """
        get /.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/
    """,
}
#: role → the role that aggregates it
PARTS: Final = {
    "system:aggregate-to-admin": "admin",
    "edit": "admin",
    "system:aggregate-to-edit": "edit",
    "view": "edit",
    "system:aggregate-to-view": "view",
}
#: role → groups that are bound to it
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "cluster-admin": (ADMINISTRATORS,),
    "system:basic-user": (AUTHENTICATED,),
    "system:discovery": (AUTHENTICATED,),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def default_roles() -> list[Obj]:
    """Aggregated roles are last."""
    return [_role(name, rules=rules_of(text)) for name, text in RULES.items()] + [
        _role(name, rules=None, selectors=[{"matchLabels": {f"{AGGREGATE}{name}": "true"}}])
        for name in ("view", "edit", "admin")
    ]


def default_bindings() -> list[Obj]:
    return [_binding(name, "Group", groups) for name, groups in GROUPS.items()]


def role_of_user(name: str, user: str, rules: str) -> list[Obj]:
    """A ClusterRole with the rules of these lines, and its binding to a user."""
    return [_role(name, rules=rules_of(rules)), _binding(name, "User", [user])]


def rules_of(text: str) -> list[Obj]:
    """A rule for each line; text after `#` is a comment."""
    lines = (line.partition("#")[0] for line in text.split("\n"))
    return [_rule(*line.split()) for line in lines if line.strip()]


def _binding(role: str, kind: str, subjects: Iterable[str]) -> Obj:
    return _object("ClusterRoleBinding", role, {}) | {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": kind, "apiGroup": RBAC_GROUP, "name": name} for name in subjects],
    }


def _role(name: str, *, rules: list[Obj] | None, selectors: list[Obj] | None = None) -> Obj:
    role = _object("ClusterRole", name, {f"{AGGREGATE}{PARTS[name]}": "true"} if name in PARTS else {})
    role["rules"] = rules
    return role | {"aggregationRule": {"clusterRoleSelectors": selectors}} if selectors else role


def _object(kind: str, name: str, labels: dict[str, str]) -> Obj:
    metadata = {"name": name, "labels": LABELS | labels, "annotations": {AUTO_UPDATE: "true"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}


def _rule(verbs: str, *objects: str) -> Obj:
    """`objects`: paths, or a group, its resources and names."""
    rule: Obj = {"verbs": [verb for part in verbs.split(",") for verb in VERBS.get(part, part).split(",")]}
    if len(objects) == 1:
        return rule | {"nonResourceURLs": objects[0].split(",")}
    group, resources, *names = objects
    rule |= {"apiGroups": ["" if group == "core" else group], "resources": resources.split(",")}
    return rule | {"resourceNames": names[0].split(",")} if names else rule
