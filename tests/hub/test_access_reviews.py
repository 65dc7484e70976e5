"""SubjectAccessReview and its kin, SelfSubjectRulesReview, SelfSubjectReview."""

from __future__ import annotations

import re
from typing import Any

import pytest
from examples import examples
from hub_harness import USER_TOKEN, LocalHub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farflung.machinery.errors import Obj

GROUP = "authorization.k8s.io"
PATH = f"/apis/{GROUP}/v1"
LOCAL = f"{PATH}/namespaces/default/localsubjectaccessreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
async def hub(hub: LocalHub) -> LocalHub:
    """The user of USER_TOKEN, somebody, may read one Secret and list ConfigMaps of the default namespace."""
    await hub.furnish_roles()
    rules = [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["only"]},
    ]
    await hub.create(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"kind": "User", "name": "somebody"}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    await hub.create(f"{RBAC}/namespaces/default/rolebindings", binding)
    return hub


def asks(verb: str, resource: str, **more: str) -> Obj:
    return {"resourceAttributes": {"namespace": "default", "verb": verb, "resource": resource, **more}}


REASON = 'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "somebody"'


async def test_users_can_review_their_own_access(hub: LocalHub) -> None:
    hub.token = USER_TOKEN

    async def status(spec: Obj) -> Obj:
        answer = await hub.post(f"{PATH}/selfsubjectaccessreviews", {"spec": spec})
        assert answer.status == 201, answer.body
        return answer.json["status"]  # type: ignore[no-any-return]

    assert await status(asks("list", "configmaps")) == {"allowed": True, "reason": REASON}
    assert await status(asks("delete", "configmaps")) == {"allowed": False}
    assert (await status(asks("get", "secrets", name="only")))["allowed"] is True
    assert (await status(asks("get", "secrets", name="other")))["allowed"] is False
    assert (await status(asks("get", "configmaps", subresource="x")))["allowed"] is False
    assert (await status({"nonResourceAttributes": {"verb": "get", "path": "/api/v1"}}))["allowed"] is True
    assert (await status({"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}))["allowed"] is False
    assert (await status({"resourceAttributes": {}}))["allowed"] is False


async def test_a_review_is_returned_with_its_managed_fields(hub: LocalHub) -> None:
    spec = {"user": "somebody", **asks("get", "configmaps")}

    review = (await hub.post(f"{PATH}/subjectaccessreviews", {"spec": spec, "status": {"allowed": True}})).json

    assert (review["kind"], review["apiVersion"], review["spec"]) == ("SubjectAccessReview", f"{GROUP}/v1", spec)
    [entry] = review["metadata"]["managedFields"]
    assert entry["manager"] == "test"
    assert set(entry["fieldsV1"]) == {"f:spec"}
    assert review["status"] == {"allowed": True, "reason": REASON}


async def test_administrators_and_users_who_may_review_can_review_the_access_of_others(hub: LocalHub) -> None:
    async def allowed(spec: Obj, path: str = f"{PATH}/subjectaccessreviews") -> bool:
        return bool((await hub.post(path, {"spec": spec})).json["status"]["allowed"])

    assert await allowed({"user": "somebody", **asks("get", "configmaps")})
    assert not await allowed({"user": "nobody", **asks("get", "configmaps")})
    assert await allowed({"groups": ["system:masters"], **asks("*", "*")})
    assert await allowed({"user": "somebody", **asks("get", "configmaps")}, LOCAL)

    hub.token = USER_TOKEN
    refused = await hub.post(f"{PATH}/subjectaccessreviews", {"spec": {"user": "u", **asks("get", "pods")}})
    assert refused.message == (
        f'subjectaccessreviews.{GROUP} is forbidden: User "somebody" cannot create resource "subjectaccessreviews" in '
        f'API group "{GROUP}" at the cluster scope'
    )


NOTHING = (
    "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be "
    "specified"
)
SELECTOR = "spec.resourceAttributes.fieldSelector"


@pytest.mark.parametrize(
    ("path", "spec", "message"),
    [
        ("selfsubjectaccessreviews", {}, NOTHING),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: cannot be specified in combination '
            "with resourceAttributes",
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": {"verb": "get"}},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            {"user": "u", "resourceAttributes": {"namespace": "other", "verb": "get"}},
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace',
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            {"user": "u", "nonResourceAttributes": {"path": "/", "verb": "get"}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: disallowed on this kind of request',
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {"fieldSelector": {}}},
            f"{SELECTOR}.requirements: Required value: when {SELECTOR} is specified, requirements or rawSelector is "
            "required",
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {"fieldSelector": {"requirements": [{"key": "a", "operator": "In"}]}}},
            f"{SELECTOR}.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
    ],
)
async def test_a_review_that_asks_nothing_or_too_much_is_refused(
    hub: LocalHub, path: str, spec: Obj, message: str
) -> None:
    answer = await hub.post(f"{PATH}/{path}", {"spec": spec})

    assert (answer.status, answer.message) == (422, f'.{GROUP} "" is invalid: {message}')
    assert answer.json["details"]["group"] == GROUP
    assert "kind" not in answer.json["details"]


async def test_a_review_has_no_metadata(hub: LocalHub) -> None:
    body = {"metadata": {"name": "x"}, "spec": {"user": "u", **asks("get", "pods")}}

    assert (
        'metadata: Invalid value: {"name":"x"}: must be empty'
        in (await hub.post(f"{PATH}/subjectaccessreviews", body)).message
    )
    assert "must be empty" in (await hub.post(LOCAL, body)).message
    fine = {"metadata": {"namespace": "default"}, "spec": {"user": "u", **asks("get", "pods")}}
    assert (await hub.post(LOCAL, fine)).status == 201


async def test_all_rules_of_a_user_are_listed(hub: LocalHub) -> None:
    hub.token = USER_TOKEN
    path = f"{PATH}/selfsubjectrulesreviews"

    review = (await hub.post(path, {"spec": {"namespace": "default"}})).json

    assert (review["metadata"], review["spec"]) == ({}, {})
    assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]} in review["status"][
        "resourceRules"
    ]
    assert {
        "verbs": ["get"],
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["only"],
    } in review["status"]["resourceRules"]
    assert "/version/" in review["status"]["nonResourceRules"][0]["nonResourceURLs"]
    assert review["status"]["incomplete"] is False
    elsewhere = (await hub.post(path, {"spec": {"namespace": "other"}})).json["status"]["resourceRules"]
    assert not any("configmaps" in rule["resources"] for rule in elsewhere)
    unsaid = await hub.post(path, {"spec": {}})
    assert (unsaid.status, unsaid.message) == (400, "no namespace on request")


async def test_the_rules_of_an_administrator_allow_everything(hub: LocalHub) -> None:
    review = (await hub.post(f"{PATH}/selfsubjectrulesreviews", {"spec": {"namespace": "x"}})).json

    assert review["status"]["resourceRules"][0] == {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert review["status"]["nonResourceRules"][0] == {"verbs": ["*"], "nonResourceURLs": ["*"]}


async def test_only_the_first_of_many_rules_are_listed(hub: LocalHub) -> None:
    wide = {"verbs": [f"v{number}" for number in range(9_000)], "apiGroups": [""], "resources": ["pods"]}
    await hub.create(f"{RBAC}/clusterroles", {"metadata": {"name": "wide"}, "rules": [wide] * 3})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "wide"}
    subject = {"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {"metadata": {"name": "wide"}, "roleRef": reference, "subjects": [subject]}
    await hub.create(f"{RBAC}/clusterrolebindings", bound)
    hub.token = USER_TOKEN
    review = await hub.post(f"{PATH}/selfsubjectrulesreviews", {"spec": {"namespace": "other"}})
    status = review.json["status"]
    assert len([rule for rule in status["resourceRules"] if len(rule["verbs"]) == 9_000]) == 2
    assert status["incomplete"] is True
    assert re.fullmatch(r"only the first \d+ of \d+ rules are shown", status["evaluationError"])


async def test_a_missing_role_is_reported_with_the_rules(hub: LocalHub) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gone"}
    binding = {"metadata": {"name": "g"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "somebody"}]}
    await hub.create(f"{RBAC}/clusterrolebindings", binding)
    hub.token = USER_TOKEN
    missing = 'clusterrole.rbac.authorization.k8s.io "gone" not found'

    rules = await hub.post(f"{PATH}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    access = await hub.post(f"{PATH}/selfsubjectaccessreviews", {"spec": asks("delete", "pods")})

    assert rules.json["status"]["evaluationError"] == missing
    assert access.json["status"] == {"allowed": False, "reason": f"RBAC: {missing}"}


async def test_a_self_subject_review_has_all_attributes_of_the_user(hub: LocalHub) -> None:
    headers = {
        "impersonate_user": "jane",
        "impersonate_group": "devs\nops, west",
        "impersonate_uid": "u-1",
        "impersonate_extra_scopes": "a%2Fb\nc",
        "impersonate_extra_acme.com%2fproject": "p",
    }
    review = (await hub.post(WHO, {}, **headers)).json

    assert set(review["metadata"]) == {"creationTimestamp"}
    assert review["status"]["userInfo"] == {
        "username": "jane",
        "uid": "u-1",
        "groups": ["devs", "ops, west", "system:authenticated"],
        "extra": {"acme.com/project": ["p"], "scopes": ["a%2Fb", "c"]},
    }


# --- hostile --------------------------------------------------------------------------------------

words = st.sampled_from(
    ["", "get", "*", "default", "somebody", "system:masters", "/", "/healthz/*", "\x00", "ü", "x" * 300]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["verb", "group", "resource", "subresource", "namespace", "name", "path", "fieldSelector", "version"]
attributes = st.dictionaries(st.sampled_from(FIELDS), st.one_of(words, values), max_size=5)
specs = st.fixed_dictionaries(
    {},
    optional={
        "resourceAttributes": st.one_of(attributes, values),
        "nonResourceAttributes": st.one_of(attributes, values),
        "user": st.one_of(words, values),
        "groups": st.one_of(st.lists(words, max_size=3), values),
        "extra": values,
        "uid": values,
        "namespace": st.one_of(words, values),
        "token": values,
    },
)
KINDS = [
    "selfsubjectaccessreviews",
    "subjectaccessreviews",
    "selfsubjectrulesreviews",
    "namespaces/default/localsubjectaccessreviews",
]


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(KINDS), st.one_of(specs, values), st.one_of(st.none(), values))
async def test_no_review_brings_the_hub_down(hub: LocalHub, kind: str, spec: Any, metadata: Any) -> None:
    body = {"spec": spec} if metadata is None else {"spec": spec, "metadata": metadata}

    answer = await hub.post(f"{PATH}/{kind}", body)

    assert answer.status in (201, 400, 422)
