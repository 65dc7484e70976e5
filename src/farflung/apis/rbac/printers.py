"""What `kubectl get` shows of who has which role."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from farflung.apis.printing import age_of, name_of, part
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer

UNRESOLVED = "If the RoleRef cannot be resolved, the Authorizer must return an error."


def binding_cells(obj: Obj, now: datetime) -> list[Any]:
    role = part(obj, "roleRef")
    subjects = obj.get("subjects") or ()
    return [
        name_of(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age_of(obj, now),
        ", ".join(one.get("name", "") for one in subjects if one.get("kind") == "User"),
        ", ".join(one.get("name", "") for one in subjects if one.get("kind") == "Group"),
        ", ".join(
            f"{one.get('namespace', '')}/{one.get('name', '')}"
            for one in subjects
            if one.get("kind") == "ServiceAccount"
        ),
    ]


def binding_printer(noun: str, reference: str) -> Printer:
    return Printer(
        (
            NAME,
            Column("Role", description=f"{reference} {UNRESOLVED}"),
            AGE,
            Column("Users", description=f"Users in the {noun}", priority=1),
            Column("Groups", description=f"Groups in the {noun}", priority=1),
            Column("ServiceAccounts", description=f"ServiceAccounts in the {noun}", priority=1),
        ),
        binding_cells,
    )


ROLE_BINDINGS = binding_printer(
    "roleBinding",
    "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace.",
)
CLUSTER_ROLE_BINDINGS = binding_printer(
    "clusterRoleBinding", "RoleRef can only reference a ClusterRole in the global namespace."
)
