"""Namespaces, ConfigMaps, Secrets, ServiceAccounts, limits and quotas."""

import base64
from typing import Any

import pytest

from farflung.apis.builtin.rules import RULES, rules_for
from farflung.apis.core.validation import validate_finalize
from farflung.apis.metadata import validate_metadata
from farflung.machinery import names
from farflung.machinery.errors import Obj


def created(kind: str, group: str = "", **members: Any) -> Obj:
    """An object after defaulting and preparation."""
    rules = RULES[group, kind]
    obj: Obj = {"metadata": {"name": "x"}, **members}
    rules.default(obj)
    rules.prepare_create(obj)
    return obj


def told(kind: str, group: str = "", **members: Any) -> list[str]:
    """What is wrong with a new object, its metadata aside."""
    rules = RULES[group, kind]
    obj = created(kind, group, **members)
    return [str(error) for error in rules.validate(obj) + rules.validate_create(obj)]


def changed(kind: str, new: Obj, old: Obj) -> list[str]:
    return [str(error) for error in RULES["", kind].validate_update(new, old)]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# --- Namespace ------------------------------------------------------------------------------------


def test_a_namespace_is_active_labelled_and_held() -> None:
    namespace = created("Namespace", status={"phase": "Terminating"})
    assert namespace == {
        "metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "x"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def test_the_name_label_of_a_namespace_is_put_back() -> None:
    namespace: Obj = {"metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "foo", "a": "b"}}}
    RULES["", "Namespace"].default(namespace)
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x", "a": "b"}


def test_a_long_name_of_a_namespace_is_no_label_either() -> None:
    namespace = created("Namespace", metadata={"name": "n" * 64})
    errors = validate_metadata(namespace, RULES["", "Namespace"], namespaced=False)
    assert [error.field for error in errors] == ["metadata.name", "metadata.labels"]


def test_an_update_keeps_finalizers_and_status_of_a_namespace() -> None:
    old = created("Namespace")
    new: Obj = {"metadata": {"name": "x"}, "spec": {"finalizers": []}, "status": {"phase": "Terminating"}}
    RULES["", "Namespace"].prepare_update(new, old)
    assert (new["spec"], new["status"]) == (old["spec"], old["status"])


def test_a_namespace_marked_for_deletion_is_terminating() -> None:
    namespace = created("Namespace")
    namespace["status"]["conditions"] = [{"type": "Foo"}]
    RULES["", "Namespace"].prepare_delete(namespace)
    assert namespace["status"] == {"phase": "Terminating", "conditions": [{"type": "Foo"}]}


def test_the_phase_of_a_namespace_follows_its_deletion() -> None:
    check = RULES["", "Namespace"].validate_status
    terminating: Obj = {"metadata": {}, "status": {"phase": "Terminating"}}
    assert [str(error) for error in check(terminating, terminating)] == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]
    terminating["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    assert check(terminating, terminating) == []


def test_finalizers_of_a_namespace_are_named_like_others() -> None:
    namespace: Obj = {"spec": {"finalizers": ["kubernetes", "short"]}}
    assert [error.field for error in validate_finalize(namespace, {})] == ["spec.finalizers[1]"]


# --- ConfigMap ------------------------------------------------------------------------------------


def test_a_config_map_may_hold_nothing() -> None:
    assert created("ConfigMap") == {"metadata": {"name": "x"}}
    assert told("ConfigMap") == []


def test_keys_of_a_config_map_are_checked_and_unique_over_both_maps() -> None:
    wrong = told("ConfigMap", data={"..": "", "k": ""}, binaryData={"k": "AAEC", "a b": ""})
    assert wrong[:2] == [
        "data[..]: Invalid value: \"..\": must not be '..'",
        'data[k]: Invalid value: "k": duplicate of key present in binaryData',
    ]
    assert wrong[2].startswith('binaryData[a b]: Invalid value: "a b": a valid config key')


@pytest.mark.parametrize(
    ("data", "binary", "fine"),
    [
        ("x" * 1048576, "", True),
        ("x" * 1048577, "", False),
        ("é" * 524289, "", False),
        ("x" * 1048574, base64.b64encode(b"ab").decode(), True),
        ("x" * 1048574, base64.b64encode(b"abc").decode(), False),
    ],
)
def test_a_config_map_holds_a_mebibyte(data: str, binary: str, fine: bool) -> None:
    too_long = ["[]: Too long: may not be more than 1048576 bytes"]
    assert told("ConfigMap", data={"a": data}, binaryData={"b": binary}) == ([] if fine else too_long)


def test_a_sealed_config_map_does_not_change() -> None:
    old: Obj = {"immutable": True, "data": {"a": "1"}}
    assert changed("ConfigMap", {"immutable": True, "data": {"a": "1"}, "binaryData": {}}, old) == []
    assert changed("ConfigMap", {"data": {"a": "2"}, "binaryData": {"b": ""}}, old) == [
        "immutable: Forbidden: field is immutable when `immutable` is set",
        "data: Forbidden: field is immutable when `immutable` is set",
        "binaryData: Forbidden: field is immutable when `immutable` is set",
    ]


# --- Secret ---------------------------------------------------------------------------------------


def test_string_data_becomes_data() -> None:
    secret = created("Secret", data={"a": "AA==", "b": "Yg=="}, stringData={"a": "é", "c": ""})
    assert secret["data"] == {"a": encoded("é"), "b": "Yg==", "c": ""}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


@pytest.mark.parametrize(
    ("kind", "data", "messages"),
    [
        ("kubernetes.io/tls", {}, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        ("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}, []),
        ("kubernetes.io/basic-auth", {}, ["data[username]: Required value", "data[password]: Required value"]),
        ("kubernetes.io/basic-auth", {"password": ""}, []),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/dockercfg", {}, ["data[.dockercfg]: Required value"]),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": encoded('{"auths":{}}')}, []),
        (
            "kubernetes.io/dockerconfigjson",
            {".dockerconfigjson": encoded("hello")},
            [
                'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": '
                "invalid character 'h' looking for beginning of value"
            ],
        ),
        (
            "kubernetes.io/dockercfg",
            {".dockercfg": encoded("[]")},
            [
                'data[.dockercfg]: Invalid value: "<secret contents redacted>": '
                "json: cannot unmarshal array into Go value of type map[string]interface {}"
            ],
        ),
        (
            "kubernetes.io/service-account-token",
            {},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ("example.com/own", {}, []),
    ],
)
def test_a_type_of_secret_needs_its_keys(kind: str, data: Obj, messages: list[str]) -> None:
    assert told("Secret", type=kind, data=data) == messages


def test_a_secret_holds_a_mebibyte_of_decoded_bytes() -> None:
    assert told("Secret", data={"a": encoded("x" * 1048576)}) == []
    assert told("Secret", data={"a": encoded("x" * 1048577)}) == ["data: Too long: may not be more than 1048576 bytes"]


def test_the_type_of_a_secret_is_fixed_and_a_sealed_one_does_not_change() -> None:
    assert changed("Secret", {"type": "other"}, {"type": "Opaque"}) == [
        'type: Invalid value: "other": field is immutable'
    ]
    old: Obj = {"type": "Opaque", "immutable": True, "data": {"a": ""}}
    assert changed("Secret", {"type": "Opaque", "immutable": True, "data": {}}, old) == [
        "data: Forbidden: field is immutable when `immutable` is set"
    ]


def test_a_service_account_refers_to_secrets_by_name_alone() -> None:
    account = created("ServiceAccount", secrets=[{"name": "s", "kind": "Secret", "uid": "u"}])
    assert account["secrets"] == [{"name": "s"}]


# --- limits and quotas ----------------------------------------------------------------------------


def test_limits_of_containers_default_from_each_other() -> None:
    limit = {"type": "Container", "default": {"cpu": "2"}, "max": {"memory": "1Gi"}, "min": {"ephemeral-storage": "1"}}
    (item,) = created("LimitRange", spec={"limits": [limit]})["spec"]["limits"]
    assert item["default"] == {"memory": "1Gi", "cpu": "2"}
    assert item["defaultRequest"] == {"memory": "1Gi", "cpu": "2", "ephemeral-storage": "1"}


def test_limits_must_not_contradict_each_other() -> None:
    limit = {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}
    assert told("LimitRange", spec={"limits": [limit]}) == [
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        'spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1',
        'spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1',
    ]


def test_limit_types_are_known_and_come_once() -> None:
    limits = [{"type": "Pod", "default": {"cpu": "1"}}, {"type": "Pod"}, {"type": "Zzz"}]
    assert told("LimitRange", spec={"limits": limits}) == [
        "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
        'spec.limits[1].type: Duplicate value: "Pod"',
        'spec.limits[2].type: Invalid value: "Zzz": must be a standard limit type or fully qualified',
    ]


def test_a_ratio_of_limits_fits_between_one_and_the_bounds() -> None:
    limit = {"type": "Pod", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}}
    assert told("LimitRange", spec={"limits": [limit]}) == [
        'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000'
    ]
    limit["maxLimitRequestRatio"] = {"cpu": "500m"}
    assert "ratio 500m is less than 1" in told("LimitRange", spec={"limits": [limit]})[0]


def test_a_quota_counts_known_resources() -> None:
    hard = {"configmaps": "10", "requests.cpu": "2", "count/deployments.apps": "1", "example.com/gpu": "1"}
    assert told("ResourceQuota", spec={"hard": hard}) == []
    assert created("ResourceQuota", spec={"hard": hard})["status"] == {}
    assert told("ResourceQuota", spec={"hard": {"pods": "-1", "zzz": "1"}}) == [
        'spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0',
        'spec.hard[zzz]: Invalid value: "zzz": must be a standard resource type or fully qualified',
        'spec.hard[zzz]: Invalid value: "zzz": must be a standard resource for quota',
    ]


def test_scopes_of_a_quota_fit_its_resources_and_each_other() -> None:
    assert told("ResourceQuota", spec={"hard": {"pods": "0"}, "scopes": ["BestEffort"]}) == []
    assert told("ResourceQuota", spec={"hard": {"cpu": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}) == [
        'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource',
        'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes',
    ]


def test_scopes_of_a_quota_are_fixed() -> None:
    assert changed("ResourceQuota", {"spec": {"scopes": ["BestEffort"]}}, {"spec": {}}) == [
        'spec.scopes: Invalid value: ["BestEffort"]: field is immutable'
    ]


def test_a_scope_selector_names_a_scope_and_an_operator() -> None:
    expressions = [{"scopeName": "PriorityClass", "operator": "In"}, {"scopeName": "BestEffort", "operator": "Foo"}]
    wrong = told("ResourceQuota", spec={"scopeSelector": {"matchExpressions": expressions}})
    assert [one.partition(": ")[0].rpartition(".")[2] for one in wrong] == ["values", "operator", "operator"]


# --- the registry ---------------------------------------------------------------------------------


def test_a_kind_without_rules_of_its_own_has_a_subdomain_for_a_name() -> None:
    rules = rules_for("example.com", "Widget")
    assert rules.name is names.dns_subdomain
    assert rules.validate({}) == []


@pytest.mark.parametrize(
    ("group", "kind", "unconditional", "creates", "generation"),
    [
        ("", "ConfigMap", True, False, False),
        ("", "Event", True, True, False),
        ("", "Endpoints", True, True, False),
        ("rbac.authorization.k8s.io", "Role", True, True, False),
        ("coordination.k8s.io", "Lease", False, True, False),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", False, False, True),
        ("networking.k8s.io", "IngressClass", True, False, True),
    ],
)
def test_kinds_differ_in_how_they_are_updated(
    group: str, kind: str, unconditional: bool, creates: bool, generation: bool
) -> None:
    rules = rules_for(group, kind)
    assert (rules.unconditional_update, rules.create_on_update, rules.generation) == (
        unconditional,
        creates,
        generation,
    )
