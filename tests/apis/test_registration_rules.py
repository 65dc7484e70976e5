"""Webhook configurations and admission policies."""

from typing import Any

import pytest

from farflung.apis.admissionregistration.validation import RULES
from farflung.apis.names import POLICIES_GROUP
from farflung.machinery.errors import Obj

RULE: Obj = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
WEBHOOK: Obj = {
    "name": "a.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"service": {"name": "s", "namespace": "n"}},
    "rules": [RULE],
}


def defaulted(kind: str, **members: Any) -> Obj:
    obj: Obj = {"metadata": {"name": "x"}, **members}
    RULES[POLICIES_GROUP, kind].default(obj)
    return obj


def told(kind: str, **members: Any) -> list[str]:
    return [str(error) for error in RULES[POLICIES_GROUP, kind].validate(defaulted(kind, **members))]


def of_webhook(**members: Any) -> list[str]:
    hook = {**WEBHOOK, "rules": [dict(RULE)], "clientConfig": {"service": {"name": "s", "namespace": "n"}}, **members}
    return told("ValidatingWebhookConfiguration", webhooks=[hook])


def test_a_webhook_fails_closed_in_ten_seconds_for_every_scope() -> None:
    webhook = {**WEBHOOK, "rules": [dict(RULE)], "clientConfig": {"service": {"name": "s", "namespace": "n"}}}
    (mutating,) = defaulted("MutatingWebhookConfiguration", webhooks=[webhook])["webhooks"]
    assert mutating == {
        **WEBHOOK,
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
        "rules": [{**RULE, "scope": "*"}],
        "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
    }
    (validating,) = defaulted("ValidatingWebhookConfiguration", webhooks=[dict(WEBHOOK)])["webhooks"]
    assert "reinvocationPolicy" not in validating


def test_an_ordinary_webhook_is_fine() -> None:
    assert of_webhook() == []


def test_a_webhook_says_what_it_is() -> None:
    assert told("ValidatingWebhookConfiguration", webhooks=[{}]) == [
        "webhooks[0].name: Required value",
        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
    ]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"name": "example.com"},
            'name: Invalid value: "example.com": should be a domain with at least three segments separated by dots',
        ),
        (
            {"failurePolicy": "Maybe"},
            'failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"',
        ),
        (
            {"sideEffects": "Some"},
            'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"admissionReviewVersions": ["v2"]},
            'admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1',
        ),
        (
            {"clientConfig": {"url": "http://example.com"}},
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
            "desired format: https://host[/path]",
        ),
        (
            {"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "x"}}},
            "clientConfig.service.path: Invalid value: \"x\": must start with a '/'",
        ),
        ({"matchConditions": [{"name": "a"}]}, "matchConditions[0].expression: Required value"),
    ],
)
def test_a_webhook_is_told_what_is_wrong(members: Obj, message: str) -> None:
    assert of_webhook(**members) == [f"webhooks[0].{message}"]


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("operations", [], "operations: Required value"),
        (
            "operations",
            ["*", "CREATE"],
            'operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other operations',
        ),
        ("apiVersions", [""], "apiVersions[0]: Required value"),
        ("scope", "All", 'scope: Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"'),
        (
            "resources",
            ["pods/*", "pods/status"],
            "resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
        ),
        (
            "resources",
            ["*/*", "pods"],
            'resources: Invalid value: ["*/*","pods"]: if \'*/*\' is present, must not specify other resources',
        ),
    ],
)
def test_a_rule_is_told_what_is_wrong(member: str, value: Any, message: str) -> None:
    assert of_webhook(rules=[{**RULE, member: value}]) == [f"webhooks[0].rules[0].{message}"]


def test_names_of_webhooks_are_unique() -> None:
    twice = [dict(WEBHOOK), dict(WEBHOOK)]
    assert told("MutatingWebhookConfiguration", webhooks=twice) == [
        'webhooks[1].name: Duplicate value: "a.example.com"'
    ]


# --- policies -------------------------------------------------------------------------------------


def test_a_policy_fails_closed_and_matches_equivalents() -> None:
    policy = defaulted("ValidatingAdmissionPolicy", spec={"matchConstraints": {"resourceRules": [dict(RULE)]}})
    assert policy["spec"] == {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [{**RULE, "scope": "*"}],
        },
    }
    assert policy["status"] == {}


def test_a_policy_validates_something() -> None:
    detail = "validations or auditAnnotations must contain at least one item"
    assert told("ValidatingAdmissionPolicy") == [
        "spec.matchConstraints: Required value",
        f"spec.validations: Required value: {detail}",
        f"spec.auditAnnotations: Required value: {detail}",
    ]
    constraints = {"resourceRules": [dict(RULE)]}
    assert told("ValidatingAdmissionPolicy", spec={"matchConstraints": constraints, "validations": [{}]}) == [
        "spec.validations[0].expression: Required value: expression is not specified"
    ]


def test_a_binding_names_its_policy_and_what_happens() -> None:
    assert told("ValidatingAdmissionPolicyBinding") == [
        "spec.policyName: Required value",
        "spec.validationActions: Required value: at least one validation action is required",
    ]
    wrong = told("ValidatingAdmissionPolicyBinding", spec={"policyName": "p", "validationActions": ["Deny", "Warn"]})
    assert wrong[0].startswith('spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both')


def test_parameters_are_named_or_selected() -> None:
    spec = {"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "a", "selector": {}}}
    assert told("ValidatingAdmissionPolicyBinding", spec=spec) == [
        "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
        "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
        "spec.paramRef.parameterNotFoundAction: Required value",
    ]
