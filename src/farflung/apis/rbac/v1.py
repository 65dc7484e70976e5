"""Roles and who has them."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group
from farflung.apis.rbac import printers

RBAC: Final = Group("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1.")

RESOURCES: Final = (
    RBAC.stored("clusterrolebindings", "ClusterRoleBinding", printer=printers.CLUSTER_ROLE_BINDINGS, namespaced=False),
    RBAC.stored("clusterroles", "ClusterRole", namespaced=False),
    RBAC.stored("rolebindings", "RoleBinding", printer=printers.ROLE_BINDINGS),
    RBAC.stored("roles", "Role"),
)
