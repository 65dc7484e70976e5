"""Roles, ClusterRoles and their bindings: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from farflung.apis.names import RBAC_GROUP
from farflung.apis.printers import AGE, NAME, PrinterRow, column, part, printer
from farflung.apis.resource import Group
from farflung.apis.rows import (
    Always,
    Default,
    Defaults,
    Each,
    Enum,
    Format,
    MaxItems,
    Optional,
    Required,
    Struct,
    Validation,
    When,
)
from farflung.apis.validation import LARGEST_FOLLOWED, Errors, Rules, check_name, check_selector, check_supported
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, invalid_value, not_supported, required
from farflung.machinery.table import Printer

UNRESOLVED = "If the RoleRef cannot be resolved, the Authorizer must return an error."


def subjects(kind: str, noun: str, name: Callable[[Obj], str]) -> PrinterRow:
    """The names of the subjects of a kind."""

    def cell(binding: Obj) -> str:
        return ", ".join(name(one) for one in binding.get("subjects") or () if one.get("kind") == kind)

    plural = f"{kind}s"
    return column(plural, f"{plural} in the {noun}", cell, priority=1)


def role_text(binding: Obj) -> str:
    role = part(binding, "roleRef")
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def binding_printer(noun: str, reference: str) -> Printer:
    return printer(
        "rbac.v1.RoleBinding",
        NAME,
        column("Role", f"{reference} {UNRESOLVED}", role_text),
        AGE,
        subjects("User", noun, lambda user: user.get("name", "")),
        subjects("Group", noun, lambda group: group.get("name", "")),
        subjects("ServiceAccount", noun, lambda one: f"{one.get('namespace', '')}/{one.get('name', '')}"),
    )


ROLE_BINDINGS = binding_printer(
    "roleBinding",
    "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace.",
)
CLUSTER_ROLE_BINDINGS = binding_printer(
    "clusterRoleBinding", "RoleRef can only reference a ClusterRole in the global namespace."
)


# --- roles and bindings ---------------------------------------------------------------------------

RBAC: Final = Group(RBAC_GROUP, "v1", "io.k8s.api.rbac.v1.")

RESOURCES: Final = (
    RBAC.stored("clusterrolebindings", "ClusterRoleBinding", printer=CLUSTER_ROLE_BINDINGS, namespaced=False),
    RBAC.stored("clusterroles", "ClusterRole", namespaced=False),
    RBAC.stored("rolebindings", "RoleBinding", printer=ROLE_BINDINGS),
    RBAC.stored("roles", "Role"),
)


# --- Rules of Roles, ClusterRoles and their bindings ----------------------------------------------

SUBJECTS: Final = ("ServiceAccount", "User", "Group")

# --- roles ----------------------------------------------------------------------------------------


def default_role(obj: Obj) -> None:
    """Go writes a list of rules that has none as null."""
    if not obj.get("rules"):
        obj["rules"] = None


MAX_SELECTORS: Final = 100  #: of an aggregated role; the hub compares each role with all of them
SELECTORS_REQUIRED: Final = "at least one clusterRoleSelector required if aggregationRule is non-nil"


def _check_rule(rule: Obj, path: str, errors: Errors, *, namespaced: bool) -> None:
    resources, urls = rule.get("resources"), rule.get("nonResourceURLs")
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    if urls:
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid_value(f"{path}.nonResourceURLs", urls, detail))
        if rule.get("apiGroups") or resources or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(f"{path}.nonResourceURLs", urls, detail))
        return
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not resources:
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))


ROLE: Final = Validation(Each("rules", partial(_check_rule, namespaced=True)))
CLUSTER_ROLE: Final = Validation(
    Each("rules", partial(_check_rule, namespaced=False)),
    Struct(
        "aggregationRule",
        Required("clusterRoleSelectors", detail=SELECTORS_REQUIRED),
        Optional("clusterRoleSelectors", MaxItems(MAX_SELECTORS)),
        Each("clusterRoleSelectors", check_selector),
    ),
)

# --- bindings -------------------------------------------------------------------------------------


DEFAULT_BINDING: Final = Defaults(
    Default("roleRef.apiGroup", RBAC_GROUP, empty=True),
    Each("subjects", When("kind", ("User", "Group"), Default("apiGroup", RBAC_GROUP, empty=True))),
)


def _check_subject(subject: Obj, path: str, errors: Errors, *, namespaced: bool) -> None:
    name, kind, group = subject.get("name", ""), subject.get("kind", ""), subject.get("apiGroup", "")
    if not name:
        errors.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        if name:
            check_name(names.dns_subdomain, name, f"{path}.name", errors)
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in SUBJECTS:
        if not name:
            errors.append(invalid_value(f"{path}.name", name, f"{kind.lower()} name cannot be empty"))
        check_supported(group, (RBAC_GROUP,), f"{path}.apiGroup", errors)
    else:
        errors.append(not_supported(f"{path}.kind", kind, SUBJECTS))


def validate_binding_update(new: Obj, old: Obj) -> list[FieldError]:
    after, before = _role_reference(new), _role_reference(old)
    return [] if after == before else [invalid_value("roleRef", after, "cannot change roleRef")]


def _role_reference(obj: Obj) -> Obj:
    """The value for error messages, with the names of Go's fields."""
    role = obj.get("roleRef") or {}
    return {"APIGroup": role.get("apiGroup", ""), "Kind": role.get("kind", ""), "Name": role.get("name", "")}


def _binding(kinds: Sequence[str], *, namespaced: bool) -> Rules:
    return Rules(
        name=names.path_segment,
        default=DEFAULT_BINDING,
        validate=Validation(
            Always("roleRef.apiGroup", Enum(RBAC_GROUP)),
            Always("roleRef.kind", Enum(*kinds)),
            Required("roleRef.name", Format(names.path_segment)),
            Each("subjects", partial(_check_subject, namespaced=namespaced)),
        ),
        validate_update=validate_binding_update,
        create_on_update=True,
        largest=LARGEST_FOLLOWED,
    )


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (RBAC_GROUP, "Role"): Rules(name=names.path_segment, default=default_role, validate=ROLE, create_on_update=True),
    (RBAC_GROUP, "ClusterRole"): Rules(
        name=names.path_segment, default=default_role, validate=CLUSTER_ROLE, create_on_update=True
    ),
    (RBAC_GROUP, "RoleBinding"): _binding(("Role", "ClusterRole"), namespaced=True),
    (RBAC_GROUP, "ClusterRoleBinding"): _binding(("ClusterRole",), namespaced=False),
}
