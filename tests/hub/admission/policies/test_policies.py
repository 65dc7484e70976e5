"""ValidatingAdmissionPolicies are enforced on every write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hub_harness import (
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    USER_TOKEN,
    LocalHub,
    deployment,
    pod,
)
from long_turns import no_long_turns
from memory_store import MemoryStore
from policies import BINDINGS, POLICIES, bind, binding, policy, refused, rule

from farflung.hub.admission.policies import session
from farflung.hub.catalog import objects


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


# --- denials --------------------------------------------------------------------------------------


async def test_a_write_that_breaks_a_policy_is_refused_with_the_words_of_kubernetes(hub: LocalHub) -> None:
    await bind(hub, policy("named-well", "object.metadata.name.startsWith('good-')"))
    answer = await hub.post(CONFIG_MAPS, config_map("bad"))
    why = (
        "ValidatingAdmissionPolicy 'named-well' with binding 'named-well' denied request: "
        "failed expression: object.metadata.name.startsWith('good-')"
    )
    assert answer.status == 422
    assert answer.json["reason"] == "Invalid"
    assert answer.message == f'configmaps "bad" is forbidden: {why}'
    assert answer.json["details"] == {"name": "bad", "kind": "configmaps", "causes": [{"message": why}]}
    assert (await hub.post(CONFIG_MAPS, config_map("good-one"))).status == 201


@pytest.mark.parametrize(
    ("reason", "code"),
    [("Unauthorized", 401), ("Forbidden", 403), ("RequestEntityTooLarge", 413), ("Invalid", 422)],
)
async def test_the_reason_of_a_validation_is_the_reason_and_code_of_the_answer(
    hub: LocalHub, reason: str, code: int
) -> None:
    await bind(hub, policy("no", {"expression": "false", "message": " never ", "reason": reason}))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert (answer.status, answer.reason) == (code, reason)
    assert refused(answer, "no", "never")


async def test_a_message_expression_comes_before_the_message_if_it_says_something_in_one_line(hub: LocalHub) -> None:
    said = {"expression": "false", "message": "plain"}
    for index, (expression, expected) in enumerate(
        {
            "'no ' + object.metadata.name": "no a",
            "'  '": "plain",
            "'two\\nlines'": "plain",
            "object.nothing.here": "plain",
            "'x'.matches('y') ? 'z' : 'long'": "long",
        }.items()
    ):
        if expression == "object.nothing.here":
            expression = "string(object.nothing.here)"
        name = f"p{index}"
        await bind(hub, policy(name, {**said, "messageExpression": expression}))
        assert refused(await hub.post(CONFIG_MAPS, config_map("a")), name, expected)
        await hub.delete(f"{BINDINGS}/{name}")


async def test_the_first_policy_by_name_speaks_and_all_warn(hub: LocalHub) -> None:
    await bind(hub, policy("b-denies", {"expression": "false", "message": "b"}))
    await bind(hub, policy("a-denies", {"expression": "false", "message": "a"}, {"expression": "false"}))
    await bind(hub, policy("c-warns", {"expression": "false", "message": "c"}), "Warn", "Audit")
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert refused(answer, "a-denies", "a")
    assert len(answer.json["details"]["causes"]) == 1
    text = "Validation failed for ValidatingAdmissionPolicy 'c-warns' with binding 'c-warns': c"
    assert answer.warnings == [f'299 - "{text}"']


async def test_a_policy_that_warns_lets_the_write_happen(hub: LocalHub) -> None:
    await bind(hub, policy("hints", {"expression": "has(object.data)", "message": "empty"}), "Warn")
    expected = ["299 - \"Validation failed for ValidatingAdmissionPolicy 'hints' with binding 'hints': empty\""]
    created = await hub.post(CONFIG_MAPS, config_map("a"))
    assert (created.status, created.warnings) == (201, expected)
    patched = await hub.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"x": "y"}}})
    assert (patched.status, patched.warnings) == (200, expected)


async def test_audit_alone_is_logged_by_name(hub: LocalHub, caplog: pytest.LogCaptureFixture) -> None:
    await bind(
        hub, policy("quiet", {"expression": "false", "messageExpression": "string(object.data.secret)"}), "Audit"
    )
    with caplog.at_level("INFO", "farflung.hub.admission.policies"):
        answer = await hub.post(CONFIG_MAPS, {**config_map("a"), "data": {"secret": "hidden"}})
    assert (answer.status, answer.warnings) == (201, [])
    assert "policy quiet with binding quiet objects to CREATE of configmaps default/a in cluster root" in caplog.text
    assert "hidden" not in caplog.text


# --- every write ----------------------------------------------------------------------------------


async def test_every_way_of_writing_is_looked_at(hub: LocalHub) -> None:
    await hub.config_map("old", data="x")
    await bind(hub, policy("frozen", {"expression": "false", "messageExpression": "request.operation"}))
    one = f"{CONFIG_MAPS}/old"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
    present = (await hub.get(one)).json
    with hub.writes_nothing():
        assert refused(await hub.post(CONFIG_MAPS, config_map("new")), "frozen", "CREATE")
        assert refused(await hub.put(one, present), "frozen", "UPDATE")
        assert refused(await hub.patch(one, {"data": {"a": "b"}}), "frozen", "UPDATE")
        assert refused(await hub.patch(one, {}), "frozen", "UPDATE")
        apply = await hub.patch(f"{CONFIG_MAPS}/new", applied, APPLY_PATCH, {"fieldManager": "me"})
        assert refused(apply, "frozen", "CREATE")
        assert refused(await hub.delete(one), "frozen", "DELETE")
        assert refused(await hub.delete(CONFIG_MAPS), "frozen", "DELETE")
        dry = await hub.post(CONFIG_MAPS, config_map("new"), {"dryRun": "All"})
        assert refused(dry, "frozen", "CREATE")


async def test_an_invalid_object_is_refused_as_invalid_and_not_by_a_policy(hub: LocalHub) -> None:
    await bind(hub, policy("no", "false"))
    answer = await hub.post(CONFIG_MAPS, {**config_map("a"), "data": {"no good": "x"}})
    assert answer.message.startswith('ConfigMap "a" is invalid: data[no good]')


async def test_policies_see_generated_names_and_what_the_server_filled_in(hub: LocalHub) -> None:
    hub.suffix = lambda: "abcde"
    told = "object.metadata.name + ' ' + request.name + ' ' + object.spec.restartPolicy + ' ' + object.kind"
    match = {"resourceRules": [rule("pods")]}
    await bind(
        hub, policy("tells", {"expression": "!has(object.metadata.uid)", "messageExpression": told}, match=match)
    )
    body = pod("x")
    body["metadata"] = {"generateName": "web-"}
    assert refused(await hub.post(PODS, body), "tells", "web-abcde web-abcde Always Pod")


async def test_a_deletion_has_an_old_object_alone_and_warnings(hub: LocalHub) -> None:
    await hub.config_map("kept", keep="yes")
    await hub.config_map("other")
    match = {"resourceRules": [rule(operations=("DELETE",))]}
    await bind(hub, policy("keeps", "object == null && !has(oldObject.data)", match=match))
    await bind(hub, policy("hints", {"expression": "false", "message": "gone"}, match=match), "Warn")
    refusal = await hub.delete(f"{CONFIG_MAPS}/kept")
    assert refused(refusal, "keeps", "failed expression: object == null && !has(oldObject.data)")
    assert len(refusal.warnings) == 1
    deleted = await hub.delete(f"{CONFIG_MAPS}/other")
    assert (deleted.status, len(deleted.warnings)) == (200, 1)
    assert (await hub.get(CONFIG_MAPS)).names == ["kept"]


async def test_a_refused_object_of_a_collection_stays_and_the_refusal_is_returned(hub: LocalHub) -> None:
    for name in ("a", "keep", "z"):
        await hub.config_map(name)
    await bind(hub, policy("keeps", "oldObject.metadata.name != 'keep'"))
    answer = await hub.delete(CONFIG_MAPS)
    assert answer.message.startswith('configmaps "keep" is forbidden: ')
    assert (await hub.get(CONFIG_MAPS)).names == ["keep"]


async def test_policies_do_not_judge_policies_nor_reviews(hub: LocalHub) -> None:
    await bind(hub, policy("everything", "false", match={"resourceRules": [rule("*/*")]}))
    assert refused(
        await hub.post("/api/v1/namespaces", {"metadata": {"name": "x"}}), "everything", "failed expression: false"
    )
    review = await hub.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review.status == 201
    assert (await hub.delete(f"{BINDINGS}/everything")).status == 200
    assert (await hub.delete(f"{POLICIES}/everything")).status == 200
    assert (await hub.post("/api/v1/namespaces", {"metadata": {"name": "x"}})).status == 201


async def test_subresources_are_matched_by_name_and_scale_is_seen_as_a_scale(hub: LocalHub) -> None:
    await hub.create(DEPLOYMENTS, deployment("web"))
    match = {"resourceRules": [rule("deployments/scale")]}
    limit = "request.kind.kind == 'Scale' && object.spec.replicas <= 3 && request.subResource == 'scale'"
    await bind(hub, policy("small", {"expression": limit, "message": "too many"}, match=match))
    scale = f"{DEPLOYMENTS}/web/scale"
    assert refused(await hub.patch(scale, {"spec": {"replicas": 5}}), "small", "too many")
    assert (await hub.patch(scale, {"spec": {"replicas": 3}})).status == 200
    assert (await hub.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 5}})).status == 200


async def test_a_token_is_a_token_request(hub: LocalHub) -> None:
    match = {"resourceRules": [rule("serviceaccounts/token")]}
    expression = "request.kind.kind == 'TokenRequest' && object.spec.expirationSeconds <= 3600"
    await bind(hub, policy("short", {"expression": expression, "message": "too long"}, match=match))
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    assert refused(await hub.post(path, {"spec": {"expirationSeconds": 7200}}), "short", "too long")
    assert (await hub.post(path, {"spec": {}})).status == 201


# --- what counts ----------------------------------------------------------------------------------


async def test_a_policy_without_a_binding_and_a_binding_without_a_policy_do_nothing(hub: LocalHub) -> None:
    await hub.create(POLICIES, policy("alone", "false"))
    await hub.create(BINDINGS, binding("nobody"))
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201


async def test_changes_of_policies_and_bindings_count_at_once(hub: LocalHub) -> None:
    await bind(hub, policy("changing", "false"))
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 422
    changed = {"spec": {"validations": [{"expression": "true"}]}}
    assert (await hub.patch(f"{POLICIES}/changing", changed)).status == 200
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert (await hub.patch(f"{POLICIES}/changing", {"spec": {"validations": [{"expression": "false"}]}})).status == 200
    assert (await hub.post(CONFIG_MAPS, config_map("b"))).status == 422
    assert (await hub.patch(f"{BINDINGS}/changing", {"spec": {"validationActions": ["Warn"]}})).status == 200
    assert (await hub.post(CONFIG_MAPS, config_map("b"))).status == 201
    for path in (f"{BINDINGS}/changing", f"{POLICIES}/changing"):
        await hub.delete(path)
    assert hub.policies.of("root") is None


async def test_after_a_restart_the_same_is_refused() -> None:
    store = MemoryStore(stamp=objects.stamp)
    hub = await LocalHub(store).furnish()
    await bind(hub, policy("no", {"expression": "object.metadata.name != 'bad'", "message": "bad"}))
    again = LocalHub(store)
    assert refused(await again.post(CONFIG_MAPS, config_map("bad")), "no", "bad")
    assert (await again.post(CONFIG_MAPS, config_map("good"))).status == 201


async def test_a_compiled_policy_is_kept_as_long_as_its_generation(hub: LocalHub) -> None:
    await bind(hub, policy("kept", "true"))

    async def compiled() -> object:
        await hub.post(CONFIG_MAPS, config_map("a"))
        policies = hub.policies.of("root")
        assert policies is not None
        return policies._policies["kept"].compiled

    first = await compiled()
    await hub.patch(f"{POLICIES}/kept", {"metadata": {"labels": {"a": "b"}}})
    assert await compiled() is first
    await hub.patch(f"{POLICIES}/kept", {"spec": {"failurePolicy": "Ignore"}})
    assert await compiled() is not first


async def test_what_an_administrator_writes_is_looked_at_and_the_user_is_known(hub: LocalHub) -> None:
    told = "request.userInfo.username + ' ' + string('system:masters' in request.userInfo.groups)"
    await bind(hub, policy("who", {"expression": "false", "messageExpression": told}))
    assert refused(await hub.post(CONFIG_MAPS, config_map("a")), "who", "admin true")


# --- failures -------------------------------------------------------------------------------------


async def test_an_expression_that_fails_refuses_or_is_ignored_as_the_policy_says(hub: LocalHub) -> None:
    await bind(hub, policy("fails", "object.data.missing == 'x'"))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    why = "expression 'object.data.missing == 'x'' resulted in error: no such key: data"
    assert answer.status == 422
    assert refused(answer, "fails", why)
    await hub.patch(f"{POLICIES}/fails", {"spec": {"failurePolicy": "Ignore"}})
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201


async def test_an_expensive_expression_is_over_before_it_takes_long(hub: LocalHub) -> None:
    numbers = "[0,1,2,3,4,5,6,7,8,9]"
    loops = "".join(f"{numbers}.all({name}, " for name in "abcdefgh") + "true" + ")" * 8
    await bind(hub, policy("slow", loops))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    why = f"expression '{loops}' resulted in error: operation cancelled: actual cost limit exceeded"
    assert refused(answer, "slow", why)


async def test_all_expressions_of_a_policy_have_one_budget(hub: LocalHub) -> None:
    numbers = "[0,1,2,3,4,5,6,7,8,9]"
    loops = "".join(f"{numbers}.all({name}, " for name in "abcde") + "true" + ")" * 5
    await bind(hub, policy("slow", *[loops] * 40))
    why = "validation failed due to running out of cost budget, no further validation rules will be run"
    assert refused(await hub.post(CONFIG_MAPS, config_map("a")), "slow", why)


TEN = "[0,1,2,3,4,5,6,7,8,9]"
LOOPS = "".join(f"{TEN}.all({name}, " for name in "abcde") + "object.metadata.name != 'x'" + ")" * 5


async def test_ten_expensive_policies_share_one_budget_and_never_hold_the_event_loop(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SECONDS", 600.0)  # the cost decides, also on a busy machine
    for at in range(10):
        await bind(hub, policy(f"slow-{at}", *[f"{LOOPS} || {at} > 9"] * 10))
    async with no_long_turns():
        answer = await hub.post(CONFIG_MAPS, config_map("a"))
    why = "validation failed due to running out of cost budget, no further validation rules will be run"
    assert refused(answer, "slow-2", why), answer.message
    assert 2 <= hub.assembly.evaluators.finished <= 10


async def test_expensive_policies_are_judged_as_cheap_ones_with_permissions_and_variables(hub: LocalHub) -> None:
    may = "authorizer.group('').resource('pods').namespace('default').check('create').allowed()"
    same = "authorizer.requestResource.check('create').allowed() && request.operation == 'CREATE'"
    variables = [{"name": "all", "expression": f"{TEN}.map(x, x)"}]
    loops = " && ".join(
        ["".join(f"variables.all.all({name}, " for name in "abcd") + "object.metadata.name != 'x'))))"] * 2
    )
    await bind(hub, policy("slow", f"{loops} && {may} && {same}", variables=variables))
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert hub.assembly.evaluators.finished == 1
    assert refused(
        await hub.post(CONFIG_MAPS, config_map("x")), "slow", f"failed expression: {loops} && {may} && {same}"
    )


async def test_cheap_policies_need_no_other_process_also_if_they_check_permissions(hub: LocalHub) -> None:
    check = "authorizer.group('').resource('pods').check('create').allowed()"
    await bind(hub, policy("quick", check, f"{check} && size(object.metadata.name) < 9"))
    assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert hub.assembly.evaluators.finished == 0


@pytest.mark.parametrize(("failures", "status"), [("Fail", 422), ("Ignore", 201)])
async def test_policies_that_take_longer_than_their_time_are_out_of_budget(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, failures: str, status: int
) -> None:
    monkeypatch.setattr(session, "SECONDS", 0.0)
    await bind(hub, policy("slow", LOOPS, failurePolicy=failures))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert answer.status == status
    if status == 422:
        why = "validation failed due to running out of cost budget, no further validation rules will be run"
        assert refused(answer, "slow", why)


async def test_a_policy_also_judges_deletions_and_bindings_beside_the_event_loop(hub: LocalHub) -> None:
    await hub.create(CONFIG_MAPS, config_map("a"))
    rules = {"resourceRules": [rule("configmaps", operations=("DELETE",))]}
    await bind(hub, policy("slow", LOOPS.replace("object", "oldObject"), match=rules))
    assert (await hub.delete(f"{CONFIG_MAPS}/a")).status == 200
    assert hub.assembly.evaluators.finished == 1


async def test_lists_that_double_from_variable_to_variable_end(hub: LocalHub) -> None:
    variables = [{"name": "v0", "expression": "[1, 2, 3, 4, 5, 6, 7, 8]"}]
    variables += [{"name": f"v{at}", "expression": f"variables.v{at - 1} + variables.v{at - 1}"} for at in range(1, 60)]
    await bind(hub, policy("doubles", "size(variables.v59) > 0", variables=variables))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert answer.status == 422
    assert "fails to evaluate: operation cancelled" in answer.message


async def test_a_variable_that_is_defined_by_itself_fails(hub: LocalHub) -> None:
    variables = [{"name": "a", "expression": "1"}, {"name": "a", "expression": "variables.a + 1"}]
    await bind(hub, policy("circle", "variables.a == 2", variables=variables))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert answer.status == 422
    assert "it refers to itself" in answer.message


# --- variables, conditions, annotations -----------------------------------------------------------


async def test_variables_are_made_of_earlier_ones_and_only_evaluated_if_they_are_used(hub: LocalHub) -> None:
    variables = [
        {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
        {"name": "team", "expression": "'team' in variables.labels ? variables.labels['team'] : ''"},
        {"name": "broken", "expression": "object.nothing.at.all"},
        {"name": "nothing", "expression": "null"},
        {"name": "born", "expression": "timestamp('2020-01-01T00:00:00Z')"},
    ]
    rules: list[str | dict[str, Any]] = [
        {"expression": "variables.team != ''", "messageExpression": "'no team, ' + string(size(variables.labels))"},
        "variables.nothing == null && has(variables.broken)",
        "variables.born < timestamp(object.metadata.creationTimestamp) && variables.born.getFullYear() == 2020",
    ]
    await bind(hub, policy("teams", *rules, variables=variables))
    assert refused(await hub.post(CONFIG_MAPS, config_map("a", labels={"x": "y"})), "teams", "no team, 1")
    created = await hub.post(CONFIG_MAPS, config_map("a", labels={"team": "red"}))
    assert created.status == 201, created.message
    await hub.patch(f"{POLICIES}/teams", {"spec": {"validations": [{"expression": "variables.broken == 1"}]}})
    answer = await hub.post(CONFIG_MAPS, config_map("b"))
    why = 'composited variable "broken" fails to evaluate: no such key: nothing'
    assert refused(answer, "teams", f"expression 'variables.broken == 1' resulted in error: {why}")


async def test_match_conditions_leave_requests_alone_and_a_false_one_outweighs_errors(hub: LocalHub) -> None:
    conditions = [
        {"name": "labelled", "expression": "object.metadata.labels['checked'] == 'yes'"},
        {"name": "not-mine", "expression": "request.name != 'mine'"},
    ]
    await bind(hub, policy("some", {"expression": "false", "message": "no"}, matchConditions=conditions))
    assert (await hub.post(CONFIG_MAPS, config_map("mine"))).status == 201
    assert (await hub.post(CONFIG_MAPS, config_map("b", labels={"checked": "no"}))).status == 201
    assert refused(await hub.post(CONFIG_MAPS, config_map("c", labels={"checked": "yes"})), "some", "no")
    failed = f"expression '{conditions[0]['expression']}' resulted in error: no such key: labels"
    assert refused(await hub.post(CONFIG_MAPS, config_map("d")), "some", failed)


async def test_a_failing_audit_annotation_refuses_with_any_action_of_the_binding(
    hub: LocalHub, caplog: pytest.LogCaptureFixture
) -> None:
    notes = [
        {"key": "who", "valueExpression": "'by ' + request.userInfo.username"},
        {"key": "none", "valueExpression": "null"},
        {"key": "data", "valueExpression": "string(object.data.a)"},
    ]
    await bind(hub, policy("notes", auditAnnotations=notes), "Warn")
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert refused(answer, "notes", "expression 'string(object.data.a)' resulted in error: no such key: data")
    with caplog.at_level("INFO", "farflung.hub.admission.policies"):
        assert (await hub.post(CONFIG_MAPS, {**config_map("a"), "data": {"a": "hidden"}})).status == 201
    assert "has a note who about CREATE" in caplog.text
    assert "note none" not in caplog.text
    assert "hidden" not in caplog.text


# --- authorizer -----------------------------------------------------------------------------------


@pytest.fixture
async def guarded(hub: LocalHub) -> AsyncIterator[LocalHub]:
    rights = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    await hub.create(roles, {"metadata": {"name": "maker"}, "rules": rights})
    for name, subject in {
        "somebody": {"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"},
        "robot": {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
    }.items():
        bound = {"metadata": {"name": name}, "subjects": [subject]}
        bound["roleRef"] = {"kind": "ClusterRole", "name": "maker", "apiGroup": "rbac.authorization.k8s.io"}
        await hub.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound)
    yield hub


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("authorizer.requestResource.check('create').allowed()", True),
        ("authorizer.requestResource.check('delete').allowed()", False),
        ("authorizer.group('').resource('configmaps').namespace('default').check('get').allowed()", True),
        ("authorizer.group('apps').resource('deployments').check('get').allowed()", False),
        ("authorizer.group('').resource('configmaps').subresource('x').check('get').allowed()", False),
        ("authorizer.path('/healthz').check('get').allowed()", True),
        ("authorizer.path('/metrics').check('get').allowed()", False),
        ("authorizer.serviceAccount('default', 'robot').requestResource == null", None),
        (
            "authorizer.serviceAccount('default', 'robot').group('').resource('configmaps').check('get')"
            ".reason().startsWith('RBAC: allowed by')",
            True,
        ),
        (
            "authorizer.serviceAccount('default', 'other').group('').resource('configmaps').check('get').allowed()",
            False,
        ),
        ("authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c').check('get').errored()", False),
        ("authorizer.path('/x').check('get').error() == ''", True),
        ("authorizer == authorizer", True),
    ],
)
async def test_policies_may_check_permissions(guarded: LocalHub, expression: str, holds: bool | None) -> None:
    answer = await guarded.post(POLICIES, policy("asks", {"expression": expression, "message": "no"}))
    if holds is None:
        assert answer.status == 422
        return
    assert answer.status == 201, answer.message
    await guarded.create(BINDINGS, binding("asks"))
    guarded.token = USER_TOKEN
    answer = await guarded.post(CONFIG_MAPS, config_map("a"))
    assert answer.status == 201 if holds else refused(answer, "asks", "no"), answer.body


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        (
            "authorizer.serviceAccount('default', 'No!').path('/x').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('a.b', 'x').path('/x').check('get').allowed()",
            "Invalid service account namespace",
        ),
    ],
)
async def test_a_question_that_makes_no_sense_is_an_error(hub: LocalHub, expression: str, why: str) -> None:
    await bind(hub, policy("asks", expression))
    answer = await hub.post(CONFIG_MAPS, config_map("a"))
    assert refused(answer, "asks", f"expression '{expression}' resulted in error: {why}")


async def test_three_questions_are_too_many_for_one_expression(hub: LocalHub) -> None:
    asked = "authorizer.requestResource.check('create').allowed()"
    await bind(hub, policy("asks", " && ".join([asked] * 3)))
    assert "actual cost limit exceeded" in (await hub.post(CONFIG_MAPS, config_map("a"))).message


# --- many policies, long ones, and many objects ---------------------------------------------------


async def test_hundreds_of_policies_never_hold_the_event_loop(hub: LocalHub) -> None:
    for at in range(600):
        await bind(hub, policy(f"p{at}", f"object.metadata.name != 'bad' || {at} < 599"))
    async with no_long_turns():
        assert (await hub.post(CONFIG_MAPS, config_map("a"))).status == 201
        answer = await hub.post(CONFIG_MAPS, config_map("bad"))
    assert refused(answer, "p599", "failed expression: object.metadata.name != 'bad' || 599 < 599")
    assert hub.assembly.evaluators.finished == 0


async def test_long_policies_are_compiled_in_several_turns_of_the_event_loop(hub: LocalHub) -> None:
    long = [" && ".join(f"object.metadata.name != 'a{10 * at + more}'" for more in range(10)) for at in range(60)]
    async with no_long_turns():
        await bind(hub, policy("long", *long))
        for at in range(100):
            before = hub.assembly.evaluators.finished
            await hub.config_map(f"b{at}")
            if hub.assembly.evaluators.finished == before:
                break
        assert refused(await hub.post(CONFIG_MAPS, config_map("a599")), "long", f"failed expression: {long[-1]}")
    assert hub.assembly.evaluators.finished < 60


async def test_a_binding_to_many_parameters_never_holds_the_event_loop(hub: LocalHub) -> None:
    for at in range(3_000):
        await hub.config_map(f"p{at}", {"kind": "param"}, least=str(at))
    params = {"apiVersion": "v1", "kind": "ConfigMap"}
    of_secrets = {"resourceRules": [rule("secrets")]}
    described = policy("many", "int(params.data.least) < 2999", match=of_secrets, paramKind=params)
    reference = {"selector": {"matchLabels": {"kind": "param"}}, "parameterNotFoundAction": "Deny"}
    await bind(hub, described, paramRef=reference)
    async with no_long_turns():
        answer = await hub.post("/api/v1/namespaces/default/secrets", config_map("s"))
    assert refused(answer, "many", "failed expression: int(params.data.least) < 2999")


async def test_deleting_a_collection_under_expensive_policies_never_holds_the_event_loop(hub: LocalHub) -> None:
    for at in range(6):
        await hub.config_map(f"c{at}")
    await bind(hub, policy("slow", f"{LOOPS} || true", match={"resourceRules": [rule(operations=("DELETE",))]}))
    async with no_long_turns():
        answer = await hub.delete(CONFIG_MAPS)
    assert answer.status == 200
    assert (await hub.get(CONFIG_MAPS)).json["items"] == []
