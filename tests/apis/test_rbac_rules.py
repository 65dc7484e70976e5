"""Roles and bindings."""

from typing import Any

from farflung.apis.names import RBAC_GROUP
from farflung.apis.rbac import RULES
from farflung.machinery.errors import Obj


def told(kind: str, **members: Any) -> list[str]:
    obj: Obj = {"metadata": {"name": "x"}, **members}
    RULES[RBAC_GROUP, kind].default(obj)
    return [str(error) for error in RULES[RBAC_GROUP, kind].validate(obj)]


def test_a_role_without_rules_says_null() -> None:
    role: Obj = {"metadata": {"name": "x"}, "rules": []}
    RULES[RBAC_GROUP, "Role"].default(role)
    assert role["rules"] is None
    assert RULES[RBAC_GROUP, "Role"].validate(role) == []


def test_a_rule_names_verbs_and_what_they_are_about() -> None:
    rules = [{"resources": ["pods"]}, {"verbs": ["get"]}, {"nonResourceURLs": ["/x"], "verbs": ["get"]}]
    assert told("Role", rules=rules) == [
        "rules[0].verbs: Required value: verbs must contain at least one value",
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
        "rules[1].resources: Required value: resource rules must supply at least one resource",
        'rules[2].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    ]
    assert told("ClusterRole", rules=rules[2:]) == []


def test_a_rule_is_about_resources_or_urls() -> None:
    rule = {"nonResourceURLs": ["/x"], "verbs": ["get"], "resources": ["pods"]}
    assert told("ClusterRole", rules=[rule]) == [
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: '
        "rules cannot apply to both regular resources and non-resource URLs"
    ]


def test_an_aggregation_selects_something() -> None:
    assert told("ClusterRole", aggregationRule={}) == [
        "aggregationRule.clusterRoleSelectors: Required value: "
        "at least one clusterRoleSelector required if aggregationRule is non-nil"
    ]
    selectors = [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
    assert told("ClusterRole", aggregationRule={"clusterRoleSelectors": selectors}) == [
        "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value: "
        "must be specified when `operator` is 'In' or 'NotIn'"
    ]


def test_groups_of_roles_and_subjects_are_filled_in() -> None:
    binding: Obj = {
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa"}, {"kind": "User", "name": "u"}],
    }
    RULES[RBAC_GROUP, "RoleBinding"].default(binding)
    assert binding == {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa"}, {"kind": "User", "name": "u", "apiGroup": RBAC_GROUP}],
    }


def test_a_binding_names_a_role_and_known_subjects() -> None:
    wrong = told(
        "RoleBinding",
        roleRef={"apiGroup": "x", "kind": "Foo", "name": ""},
        subjects=[{"kind": "ServiceAccount", "name": "sa"}, {"kind": "Zzz", "name": "u"}],
    )
    assert wrong == [
        f'roleRef.apiGroup: Unsupported value: "x": supported values: "{RBAC_GROUP}"',
        'roleRef.kind: Unsupported value: "Foo": supported values: "Role", "ClusterRole"',
        "roleRef.name: Required value",
        'subjects[1].kind: Unsupported value: "Zzz": supported values: "ServiceAccount", "User", "Group"',
    ]


def test_a_cluster_role_binding_needs_the_namespace_of_a_service_account() -> None:
    reference = {"kind": "ClusterRole", "name": "r"}
    assert told("ClusterRoleBinding", roleRef=reference, subjects=[{"kind": "ServiceAccount", "name": "sa"}]) == [
        "subjects[0].namespace: Required value"
    ]


def test_a_subject_has_a_name() -> None:
    reference = {"kind": "ClusterRole", "name": "r"}
    assert told("ClusterRoleBinding", roleRef=reference, subjects=[{"kind": "User"}]) == [
        "subjects[0].name: Required value",
        'subjects[0].name: Invalid value: "": user name cannot be empty',
    ]


def test_the_role_of_a_binding_is_fixed() -> None:
    old: Obj = {"roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "r"}}
    new: Obj = {"roleRef": {"name": "other", "kind": "Role", "apiGroup": RBAC_GROUP}}
    assert [str(error) for error in RULES[RBAC_GROUP, "RoleBinding"].validate_update(new, old)] == [
        f'roleRef: Invalid value: {{"APIGroup":"{RBAC_GROUP}","Kind":"Role","Name":"other"}}: cannot change roleRef'
    ]
    assert RULES[RBAC_GROUP, "RoleBinding"].validate_update(old, old) == []
