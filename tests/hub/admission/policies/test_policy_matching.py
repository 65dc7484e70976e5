"""Which requests a policy and a binding are about, and what parameters they get."""

from __future__ import annotations

from typing import Any

import pytest
from hub_harness import CONFIG_MAPS, LocalHub
from policies import BINDINGS, POLICIES, bind, binding, policy, refused, rule

NO = {"expression": "false", "message": "no"}
NAMESPACES = "/api/v1/namespaces"
SECRETS = "/api/v1/namespaces/default/secrets"
SCALERS = "/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


async def is_refused(hub: LocalHub, path: str, body: dict[str, Any]) -> bool:
    answer = await hub.post(path, body, {"dryRun": "All"})
    assert answer.status in (201, 422), answer.body
    return answer.status == 422


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (rule("configmaps"), True),
        (rule("secrets"), False),
        (rule("*"), True),
        (rule("*/*"), True),
        (rule("configmaps/*"), True),
        (rule("*/status"), False),
        (rule("configmaps/status"), False),
        (rule(operations=("CREATE", "DELETE")), True),
        (rule(operations=("UPDATE", "DELETE")), False),
        (rule(apiGroups=["", "apps"]), True),
        (rule(apiGroups=["apps"]), False),
        (rule(apiVersions=["v1"]), True),
        (rule(apiVersions=["v2"]), False),
        (rule(scope="Namespaced"), True),
        (rule(scope="Cluster"), False),
        (rule(resourceNames=["a", "b"]), True),
        (rule(resourceNames=["b"]), False),
    ],
)
async def test_rules_say_what_is_matched_and_what_is_excluded(
    hub: LocalHub, match: dict[str, Any], expected: bool
) -> None:
    await bind(hub, policy("p", NO, match={"resourceRules": [match]}))
    assert await is_refused(hub, CONFIG_MAPS, config_map("a")) is expected
    await hub.delete(f"{BINDINGS}/p")
    await bind(hub, policy("q", NO, match={"resourceRules": [rule()], "excludeResourceRules": [match]}))
    assert await is_refused(hub, CONFIG_MAPS, config_map("a")) is not expected
    await hub.delete(f"{BINDINGS}/q")
    await bind(hub, policy("r", NO), matchResources={"resourceRules": [match]})
    assert await is_refused(hub, CONFIG_MAPS, config_map("a")) is expected
    await hub.delete(f"{BINDINGS}/r")
    await bind(hub, policy("s", NO), matchResources={"excludeResourceRules": [match]})
    assert await is_refused(hub, CONFIG_MAPS, config_map("a")) is not expected


async def test_namespaces_are_cluster_scoped_and_in_themselves(hub: LocalHub) -> None:
    match = {"resourceRules": [rule("namespaces", scope="Cluster")], "namespaceSelector": {"matchLabels": {"a": "b"}}}
    told = "request.namespace + ' ' + string(namespaceObject == null)"
    await bind(hub, policy("p", {"expression": "false", "messageExpression": told}, match=match))
    answer = await hub.post(NAMESPACES, config_map("x", labels={"a": "b"}))
    assert refused(answer, "p", "x true")
    assert not await is_refused(hub, NAMESPACES, config_map("x"))


async def test_labels_of_the_namespace_and_of_the_object_before_or_after_select(hub: LocalHub) -> None:
    await hub.create(NAMESPACES, config_map("strict", labels={"level": "strict"}))
    match = {
        "resourceRules": [rule("configmaps", "clusterroles")],
        "namespaceSelector": {"matchExpressions": [{"key": "level", "operator": "In", "values": ["strict"]}]},
        "objectSelector": {"matchLabels": {"app": "x"}},
    }
    strict = "/api/v1/namespaces/strict/configmaps"
    await hub.create(strict, config_map("old", labels={"app": "x"}))
    await bind(hub, policy("p", NO, match=match))
    assert await is_refused(hub, strict, config_map("a", labels={"app": "x"}))
    assert not await is_refused(hub, strict, config_map("a", labels={"app": "y"}))
    assert not await is_refused(hub, CONFIG_MAPS, config_map("a", labels={"app": "x"}))
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert await is_refused(hub, roles, config_map("a", labels={"app": "x"})), "cluster-wide objects are never exempt"
    assert refused(await hub.patch(f"{strict}/old", {"metadata": {"labels": {"app": None}}}), "p", "no")


@pytest.mark.parametrize(("policy_matches", "expected"), [("Equivalent", "autoscaling/v2 v1"), ("Exact", "")])
async def test_an_equivalent_policy_sees_other_versions_in_the_one_it_names(
    hub: LocalHub, policy_matches: str, expected: str
) -> None:
    match = {
        "resourceRules": [rule("horizontalpodautoscalers", apiVersions=["v2"])],
        "matchPolicy": policy_matches,
    }
    told = "object.apiVersion + ' ' + request.requestKind.version"
    validation = {"expression": "object.spec.metrics.size() == 0", "messageExpression": told}
    await bind(hub, policy("p", validation, match=match))
    spec = {
        "maxReplicas": 3,
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "targetCPUUtilizationPercentage": 50,
    }
    answer = await hub.post(SCALERS.format(version="v1"), {"metadata": {"name": "a"}, "spec": spec})
    if expected:
        assert refused(answer, "p", expected)
    else:
        assert answer.status == 201


async def test_a_policy_sees_an_old_version_as_it_was_asked_for(hub: LocalHub) -> None:
    match = {"resourceRules": [rule("horizontalpodautoscalers", apiVersions=["v1"])], "matchPolicy": "Exact"}
    told = "object.apiVersion + ' ' + string(object.spec.targetCPUUtilizationPercentage)"
    await bind(hub, policy("p", {"expression": "false", "messageExpression": told}, match=match))
    spec = {
        "maxReplicas": 3,
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "targetCPUUtilizationPercentage": 50,
    }
    answer = await hub.post(SCALERS.format(version="v1"), {"metadata": {"name": "a"}, "spec": spec})
    assert refused(answer, "p", "autoscaling/v1 50")


async def test_the_namespace_of_a_request_is_at_hand(hub: LocalHub) -> None:
    await hub.patch(f"{NAMESPACES}/default", {"metadata": {"labels": {"env": "prod"}}})
    check = "namespaceObject.metadata.labels['env'] != 'prod' || namespaceObject.status.phase != 'Active'"
    await bind(hub, policy("p", {"expression": check, "messageExpression": "namespaceObject.metadata.name"}))
    assert refused(await hub.post(CONFIG_MAPS, config_map("a")), "p", "default")


async def test_a_null_namespace_is_an_error_that_logic_may_do_without(hub: LocalHub) -> None:
    check = "namespaceObject.metadata.name == 'x' || request.name == 'fine'"
    await bind(hub, policy("p", check, match={"resourceRules": [rule("namespaces")]}))
    assert (await hub.post(NAMESPACES, config_map("fine"))).status == 201
    answer = await hub.post(NAMESPACES, config_map("other"))
    assert refused(answer, "p", f"expression '{check}' resulted in error: no such key: metadata")


# --- parameters -----------------------------------------------------------------------------------

PARAM_KIND = {"apiVersion": "v1", "kind": "Secret"}
ALLOWED = {
    "expression": "request.name.size() <= params.metadata.name.size()",
    "messageExpression": "string(params.metadata.name)",
}


def reference(**described: Any) -> dict[str, Any]:
    return {"paramRef": {"parameterNotFoundAction": "Deny", **described}}


async def test_a_parameter_is_found_by_name_in_the_namespace_of_the_request(hub: LocalHub) -> None:
    await hub.create(SECRETS, config_map("abc"))
    await bind(hub, policy("p", ALLOWED, paramKind=PARAM_KIND), **reference(name="abc"))
    assert (await hub.post(CONFIG_MAPS, config_map("xyz"))).status == 201
    assert refused(await hub.post(CONFIG_MAPS, config_map("wxyz")), "p", "abc")
    await hub.create(NAMESPACES, config_map("other"))
    elsewhere = "/api/v1/namespaces/other/configmaps"
    missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert refused(await hub.post(elsewhere, config_map("x")), "p", missing)
    await hub.patch(f"{BINDINGS}/p", {"spec": {"paramRef": {"parameterNotFoundAction": "Allow"}}})
    assert (await hub.post(elsewhere, config_map("wxyz"))).status == 201
    await hub.patch(f"{BINDINGS}/p", {"spec": {"paramRef": {"namespace": "default"}}})
    assert refused(await hub.post(elsewhere, config_map("vwxyz")), "p", "abc")


async def test_every_selected_parameter_counts(hub: LocalHub) -> None:
    for name in ("aaaa", "aa", "a"):
        await hub.create(SECRETS, config_map(name, labels={"use": "yes" if name != "a" else "no"}))
    selected = reference(selector={"matchLabels": {"use": "yes"}})
    await bind(hub, policy("p", ALLOWED, paramKind=PARAM_KIND), **selected)
    assert (await hub.post(CONFIG_MAPS, config_map("xx"))).status == 201
    assert refused(await hub.post(CONFIG_MAPS, config_map("xxx")), "p", "aa")
    assert refused(await hub.post(CONFIG_MAPS, config_map("xxxxx")), "p", "aa")


async def test_a_binding_without_a_reference_has_null_for_parameters(hub: LocalHub) -> None:
    await bind(hub, policy("p", {"expression": "params != null", "message": "none"}, paramKind=PARAM_KIND))
    assert refused(await hub.post(CONFIG_MAPS, config_map("a")), "p", "none")


async def test_parameters_that_cannot_be_found_are_an_error_of_the_configuration(hub: LocalHub) -> None:
    kind = {"apiVersion": "rules.example.com/v1", "kind": "Limit"}
    await bind(hub, policy("p", "true", paramKind=kind), **reference(name="x"))
    cause = "failed to find resource referenced by paramKind: 'rules.example.com/v1, Kind=Limit'"
    why = f"failed to configure policy: {cause}"
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == f"configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: {why}"
    await hub.patch(f"{POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}})
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201


async def test_the_scope_of_parameters_and_of_requests_must_fit(hub: LocalHub) -> None:
    match = {"resourceRules": [rule("namespaces", "clusterroles")]}
    await bind(hub, policy("p", "true", match=match, paramKind=PARAM_KIND), **reference(name="x"))
    why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    role = await hub.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", config_map("a"))
    assert refused(role, "p", f"failed to configure binding: {why}")
    await hub.delete(f"{BINDINGS}/p")
    kind = {"apiVersion": "v1", "kind": "Namespace"}
    await bind(hub, policy("q", "true", paramKind=kind), **reference(name="default", namespace="default"))
    why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
    assert refused(await hub.post(CONFIG_MAPS, config_map("a")), "q", f"failed to configure binding: {why}")


async def test_custom_resources_are_parameters_as_soon_as_they_are_defined_and_are_checked_too(hub: LocalHub) -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Limit"}
    at_most = {"expression": "request.name.size() <= params.longest", "messageExpression": "string(params.longest)"}
    match = {"resourceRules": [rule("configmaps", "limits")]}
    await bind(hub, policy("p", at_most, match=match, paramKind=kind), **reference(name="names"))
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 422
    names = {"plural": "limits", "kind": "Limit", "singular": "limit", "listKind": "LimitList"}
    schema = {"type": "object", "properties": {"longest": {"type": "integer"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition: dict[str, Any] = {"metadata": {"name": "limits.example.com"}}
    definition["spec"] = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    await hub.delete(f"{BINDINGS}/p")
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await hub.create(definitions, {"apiVersion": "apiextensions.k8s.io/v1", **definition})
    limits = "/apis/example.com/v1/limits"
    typed = {"apiVersion": "example.com/v1", "kind": "Limit"}
    await hub.create(limits, {**typed, **config_map("names"), "longest": 3})
    await hub.create(BINDINGS, binding("p", **reference(name="names")))
    assert refused(await hub.post(CONFIG_MAPS, config_map("long")), "p", "3")
    assert refused(await hub.post(limits, {**typed, **config_map("long")}), "p", "3")
    await hub.patch(f"{limits}/names", {"longest": 5})
    assert (await hub.post(CONFIG_MAPS, config_map("long"))).status == 422, "the name of the changed object is too long"


# --- what is refused when it is written -----------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        (
            {"validations": [{"expression": "object.x +"}]},
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:11: Syntax error: mismatched input '<EOF>' expecting",
        ),
        (
            {"validations": [{"expression": "object.x"}]},
            "spec.validations[0].expression",
            "must evaluate to bool but got dyn",
        ),
        (
            {"validations": [{"expression": "params.x == 1"}]},
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')",
        ),
        (
            {"validations": [{"expression": "variables.x == 1"}]},
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')",
        ),
        (
            {"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "variables.x == 1"}]},
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:10: undefined field 'x'",
        ),
        (
            {"variables": [{"name": "a", "expression": "nope"}], "validations": [{"expression": "variables.a == 1"}]},
            "spec.variables[0].expression",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')",
        ),
        (
            {"variables": [{"name": "in", "expression": "1"}], "validations": [{"expression": "true"}]},
            "spec.variables[0].name",
            "name is not a valid CEL identifier",
        ),
        (
            {"validations": [{"expression": "true", "messageExpression": "1"}]},
            "spec.validations[0].messageExpression",
            "must evaluate to string but got int",
        ),
        (
            {
                "validations": [
                    {"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"}
                ]
            },
            "spec.validations[0].messageExpression",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "request.nope == ''"}]},
            "spec.matchConditions[0].expression",
            "compilation failed: ERROR: <input>:1:8: undefined field 'nope'",
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "timestamp(object.x)"}]},
            "spec.auditAnnotations[0].valueExpression",
            "must evaluate to one of [string null_type] but got google.protobuf.Timestamp",
        ),
        (
            {"validations": [{"expression": "true"}] * 1001},
            "spec",
            "more than 1000 expressions are not supported",
        ),
    ],
)
async def test_expressions_that_do_not_compile_are_refused(
    hub: LocalHub, spec: dict[str, Any], field: str, why: str
) -> None:
    answer = await hub.post(POLICIES, policy("p", **{"validations": [{"expression": "true"}], **spec}))
    assert answer.status == 422
    causes = [cause for cause in answer.json["details"]["causes"] if cause["field"] == field]
    assert causes and why in causes[0]["message"], answer.message
