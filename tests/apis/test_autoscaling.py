"""HorizontalPodAutoscalers, PodDisruptionBudgets and the scale subresource."""

from typing import Any

import pytest

from farflung.apis.autoscaling import AUTOSCALER_RULES, apply_scale, scale_of, selector_text, to_v1, to_v2
from farflung.apis.policy import RULES as POLICY_RULES
from farflung.machinery.errors import ApiError, Obj

BUDGET_RULES = POLICY_RULES["policy", "PodDisruptionBudget"]


def autoscaler(version: str = "autoscaling/v2", **spec: Any) -> Obj:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": version,
        "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": target, **spec},
    }


def said(rules: Any, obj: Obj) -> list[str]:
    rules.default(obj)
    return [str(error) for error in rules.validate(obj)]


def test_an_autoscaler_watches_the_processor_unless_told_otherwise() -> None:
    obj = autoscaler()
    assert said(AUTOSCALER_RULES, obj) == []
    AUTOSCALER_RULES.prepare_create(obj)
    target = {"type": "Utilization", "averageUtilization": 80}
    assert obj["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert obj["spec"]["minReplicas"] == 1
    assert obj["status"] == {"desiredReplicas": 0, "currentMetrics": None}


def test_an_old_autoscaler_says_it_with_one_number() -> None:
    obj = autoscaler("autoscaling/v1")
    assert said(AUTOSCALER_RULES, obj) == []
    assert obj["spec"]["targetCPUUtilizationPercentage"] == 80
    assert "metrics" not in obj["spec"]
    assert obj["status"] == {"currentReplicas": 0, "desiredReplicas": 0}


def test_an_old_autoscaler_is_stored_like_a_new_one() -> None:
    old, new = autoscaler("autoscaling/v1"), autoscaler()
    for obj in (old, new):
        AUTOSCALER_RULES.default(obj)
    assert to_v2(old) == new
    assert to_v1(new) == old
    assert to_v2(new) is new


def test_v1_does_not_show_what_it_has_no_words_for() -> None:
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization"}}}
    obj = to_v1(autoscaler(metrics=[memory], behavior={}))
    assert obj["spec"].keys() == {"maxReplicas", "scaleTargetRef"}


def test_a_behavior_is_completed_in_both_directions() -> None:
    obj = autoscaler(behavior={"scaleDown": {"selectPolicy": "Min"}})
    assert said(AUTOSCALER_RULES, obj) == []
    everything = {"type": "Percent", "value": 100, "periodSeconds": 15}
    assert obj["spec"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, everything],
        },
        "scaleDown": {"selectPolicy": "Min", "policies": [everything]},
    }


def test_everything_wrong_with_an_autoscaler_is_said() -> None:
    target = {"kind": "Deployment", "name": "d"}
    assert said(AUTOSCALER_RULES, autoscaler(maxReplicas=1, minReplicas=3, scaleTargetRef=target)) == [
        "spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`",
        'spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
    ]


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (
            {"type": "Resource"},
            ["resource: Required value: must populate information for the given metric source"],
        ),
        (
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}},
            [
                "resource.target.averageUtilization: Required value: must set either a target raw value or a target "
                "utilization"
            ],
        ),
        (
            {
                "type": "Pods",
                "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "0"}},
            },
            ['pods.target.averageValue: Invalid value: "0": must be positive'],
        ),
    ],
)
def test_a_metric_is_complete(metric: Obj, why: list[str]) -> None:
    assert said(AUTOSCALER_RULES, autoscaler(metrics=[metric])) == [f"spec.metrics[0].{one}" for one in why]


def test_a_budget_has_one_bound() -> None:
    obj: Obj = {"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}
    assert said(BUDGET_RULES, obj) == [
        'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: '
        "minAvailable and maxUnavailable cannot be both set"
    ]
    assert obj["status"] == {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


@pytest.mark.parametrize(("bound", "good"), [("50%", True), (3, True), ("101%", False), (-1, False), ("x", False)])
def test_the_bound_of_a_budget_is_a_number_or_a_part(bound: Any, good: bool) -> None:
    assert (said(BUDGET_RULES, {"metadata": {"name": "p"}, "spec": {"minAvailable": bound}}) == []) is good


# --- scale ----------------------------------------------------------------------------------------


def deployment(replicas: int = 1) -> Obj:
    return {
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}},
        "status": {},
    }


def test_a_scale_shows_what_there_is_and_what_there_should_be() -> None:
    assert scale_of(deployment(), "apps", "Deployment") == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": 1},
        "status": {"replicas": 0, "selector": "a=b"},
    }
    assert scale_of(deployment(0), "apps", "Deployment")["spec"] == {}


def test_a_scale_of_a_replication_controller_knows_its_plain_selector() -> None:
    obj = {"metadata": {"name": "r"}, "spec": {"replicas": 1, "selector": {"b": "2", "a": "1"}}}
    assert scale_of(obj, "", "ReplicationController")["status"]["selector"] == "a=1,b=2"


def test_a_scale_is_applied_and_leaves_the_original_spec_alone() -> None:
    obj = deployment()
    before = obj["spec"]
    apply_scale(obj, {"spec": {"replicas": 3}})
    assert (obj["spec"]["replicas"], before["replicas"]) == (3, 1)
    apply_scale(obj, {})
    assert obj["spec"]["replicas"] == 0


def test_a_negative_scale_is_invalid() -> None:
    with pytest.raises(ApiError) as refused:
        apply_scale(deployment(), {"spec": {"replicas": -1}})
    assert refused.value.message == (
        'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


def test_a_selector_is_written_like_a_query() -> None:
    expressions = [
        {"key": "c", "operator": "In", "values": ["e", "d"]},
        {"key": "f", "operator": "DoesNotExist"},
        {"key": "g", "operator": "Exists"},
        {"key": "h", "operator": "NotIn", "values": ["i"]},
    ]
    assert (
        selector_text({"matchLabels": {"a": "b"}, "matchExpressions": expressions}) == "a=b,c in (d,e),!f,g,h notin (i)"
    )
