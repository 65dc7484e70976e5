"""Which rule of an audit policy decides about a request, and policies that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.hub.request.attributes import Attributes
from farflung.hub.request.audit_policy import DEFAULT_POLICY, LEVELS, AuditPolicy, AuditPolicyError
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj

HEAD: Obj = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}


def policy(*rules: Obj, **fields: object) -> AuditPolicy:
    return AuditPolicy.parse(json.dumps({**HEAD, **fields, "rules": list(rules)}))


def level(found: AuditPolicy, attributes: Attributes, user: User | None = None) -> str:
    return LEVELS[found.decide(user, attributes).level]


CONFIG_MAP = Attributes("get", "", "configmaps", "", "web", "a")
SECRET = Attributes("get", "", "secrets", "", "web", "a")


def test_the_first_rule_that_matches_decides() -> None:
    found = policy({"level": "None", "namespaces": ["web"]}, {"level": "Request"})
    assert level(found, CONFIG_MAP) == "None"
    assert level(found, CONFIG_MAP._replace(namespace="shop")) == "Request"
    assert level(policy({"level": "Request", "verbs": ["list"]}), CONFIG_MAP) == "None"


@pytest.mark.parametrize(
    "attributes",
    [
        SECRET,
        SECRET._replace(resource="secrets:identity-of-an-export"),
        Attributes("create", "", "serviceaccounts", "token", "web", "a"),
        Attributes("create", "authentication.k8s.io", "tokenreviews"),
        Attributes("create", "authentication.k8s.io", "tokenrequests"),
    ],
)
def test_confidential_resources_are_logged_at_most_as_metadata(attributes: Attributes) -> None:
    assert level(policy({"level": "RequestResponse"}), attributes) == "Metadata"


def test_a_resource_that_is_encrypted_at_rest_is_confidential() -> None:
    found = AuditPolicy.parse(DEFAULT_POLICY.replace("secrets", "configmaps").replace("Metadata", "Request"))
    assert level(found, CONFIG_MAP) == "Request"
    text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Request}]}"
    assert level(AuditPolicy.parse(text, [("", "configmaps")]), CONFIG_MAP) == "Metadata"


def test_stages_and_managed_fields_are_omitted_by_policy_and_rule() -> None:
    found = policy(
        {"level": "Request", "verbs": ["get"], "omitStages": ["Panic"], "omitManagedFields": False},
        {"level": "Request"},
        omitStages=["RequestReceived"],
        omitManagedFields=True,
    )
    first, second = found.decide(None, CONFIG_MAP), found.decide(None, CONFIG_MAP._replace(verb="list"))
    assert first.omitted_stages == {"RequestReceived", "Panic"}
    assert not first.omits_managed_fields
    assert second.omitted_stages == {"RequestReceived"}
    assert second.omits_managed_fields


def test_the_reference_shows_the_default_policy() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "audit.md"
    assert f"```yaml\n{DEFAULT_POLICY}```" in page.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [", "it is not YAML"),
        ("", "Expected `object`, got `null`"),
        ("{apiVersion: v1, kind: Policy, rules: [{level: None}]}", "apiVersion and kind must be"),
        ("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: []}", "rules: at least one"),
        (
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: All}]}",
            r"Invalid enum value 'All' - at .*rules",
        ),
        ("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{lvl: None}]}", "lvl"),
        (
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, resources: [{group: apps/v1}]}]}",
            r"rules\[0\].resources\[0\].group: 'apps/v1' must be a group without a version",
        ),
        (
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, resources: [{resourceNames: [a]}]}]}",
            r"resourceNames: requires resources",
        ),
        (
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, nonResourceURLs: [/a/*/b]}]}",
            "only be the last character",
        ),
        (
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, nonResourceURLs: [a]}]}",
            "must begin with a slash",
        ),
        (
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: "
            "[{level: None, namespaces: [a], nonResourceURLs: [/a]}]}",
            "cannot select both",
        ),
    ],
)
def test_an_invalid_policy_is_refused_with_its_problem(text: str, said: str) -> None:
    with pytest.raises(AuditPolicyError, match=said):
        AuditPolicy.parse(text)


# --- the twin: kube-apiserver's own code (policy/checker.go), rule by rule ------------------------

words = st.sampled_from(["a", "b", "pods", "pods/log", "*", "*/log", "pods/*"])
some = st.lists(st.sampled_from(["a", "b"]), max_size=2)
rules = st.fixed_dictionaries(
    {"level": st.sampled_from(LEVELS)},
    optional={
        "users": some,
        "userGroups": some,
        "verbs": st.lists(st.sampled_from(["get", "list", "create"]), max_size=2),
        "namespaces": some,
        "resources": st.lists(
            st.fixed_dictionaries(
                {"group": st.sampled_from(["", "apps"]), "resources": st.lists(words, min_size=1, max_size=2)},
                optional={"resourceNames": some},
            ),
            max_size=2,
        ),
    },
) | st.fixed_dictionaries(
    {"level": st.sampled_from(LEVELS), "nonResourceURLs": st.lists(st.sampled_from(["*", "/a", "/a*"]), max_size=2)}
)
requests = st.builds(
    Attributes,
    verb=st.sampled_from(["get", "list", "create"]),
    group=st.sampled_from(["", "apps"]),
    resource=st.sampled_from(["a", "pods"]),
    subresource=st.sampled_from(["", "log"]),
    namespace=st.sampled_from(["", "a"]),
    name=st.sampled_from(["", "a"]),
) | st.builds(Attributes, verb=st.just("get"), path=st.sampled_from(["/a", "/ab", "/b"]))


def matches_as_upstream(rule: Obj, user: User | None, wanted: Attributes) -> bool:
    if rule.get("users") and (user is None or user.name not in rule["users"]):
        return False
    if rule.get("userGroups") and (user is None or not any(group in rule["userGroups"] for group in user.groups)):
        return False
    if rule.get("verbs") and wanted.verb not in rule["verbs"]:
        return False
    if rule.get("namespaces") or rule.get("resources"):
        return wanted.path is None and matches_resource(rule, wanted)
    if urls := rule.get("nonResourceURLs"):
        path = wanted.path
        return path is not None and any(
            url == "*" or url == path or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls
        )
    return True


def matches_resource(rule: Obj, wanted: Attributes) -> bool:
    if rule.get("namespaces") and wanted.namespace not in rule["namespaces"]:
        return False
    if not rule.get("resources"):
        return True
    combined = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    for one in rule["resources"]:
        if one["group"] != wanted.group:
            continue
        for resource in one["resources"]:
            if one.get("resourceNames") and wanted.name not in one["resourceNames"]:
                continue
            if resource in (combined, "*"):
                return True
            if wanted.subresource and resource.startswith("*/") and wanted.subresource == resource.removeprefix("*/"):
                return True
            if resource.endswith("/*") and wanted.resource == resource.removesuffix("/*"):
                return True
    return False


@given(
    st.lists(rules, min_size=1, max_size=4),
    requests,
    st.none() | st.builds(User, st.sampled_from("ac"), st.tuples(st.sampled_from("bc"))),
)
@settings(max_examples=examples(200))
def test_rules_match_as_in_kubernetes(chosen: list[Obj], wanted: Attributes, user: User | None) -> None:
    found = policy(*chosen)
    expected = next((rule["level"] for rule in chosen if matches_as_upstream(rule, user, wanted)), "None")
    assert level(found, wanted, user) == expected
    if expected != "None" and wanted.verb in ("get", "list"):
        parts = filter(None, ("/api", wanted.resource, wanted.subresource, wanted.name))
        path = wanted.path or "/".join(parts)
        assert any(word in path for word in found.words_of_reads), "the quick check never contradicts the rules"
