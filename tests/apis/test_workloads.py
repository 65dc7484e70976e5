"""Deployments and their relatives."""

import copy
from typing import Any

import pytest

from farflung.apis.workloads.apps import RULES
from farflung.machinery.errors import Obj, invalid

DEPLOYMENT = RULES["apps", "Deployment"]
STATEFUL_SET = RULES["apps", "StatefulSet"]
DAEMON_SET = RULES["apps", "DaemonSet"]
REPLICA_SET = RULES["apps", "ReplicaSet"]
CONTROLLER = RULES["", "ReplicationController"]
REVISION = RULES["apps", "ControllerRevision"]

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
DEFAULTED_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
}


def workload(**spec: Any) -> Obj:
    selecting = {"selector": {"matchLabels": {"a": "b"}}, "template": copy.deepcopy(TEMPLATE)}
    return {"metadata": {"name": "d", "namespace": "n"}, "spec": {**selecting, **spec}}


def said(rules: Any, obj: Obj) -> list[str]:
    rules.default(obj)
    return [str(error) for error in rules.validate(obj)]


# --- Deployment -----------------------------------------------------------------------------------


def test_a_minimal_deployment_gets_its_defaults() -> None:
    obj = workload()
    DEPLOYMENT.default(obj)
    DEPLOYMENT.prepare_create(obj)
    assert obj["spec"] == {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": DEFAULTED_TEMPLATE,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    assert obj["status"] == {}
    assert DEPLOYMENT.validate(obj) == []


def test_a_template_asks_for_no_more_than_it_says() -> None:
    """Only a pod turns limits into requests and takes ports of its host."""
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["hostNetwork"] = True
    template["spec"]["containers"][0] |= {"resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 1}]}
    obj = workload(template=template)
    assert said(DEPLOYMENT, obj) == []
    container = obj["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"cpu": "1"}}
    assert container["ports"] == [{"containerPort": 1, "protocol": "TCP"}]


def test_an_empty_deployment_lacks_selector_labels_and_containers() -> None:
    obj: Obj = {"metadata": {"name": "e"}}
    DEPLOYMENT.default(obj)
    refusal = invalid("apps", "Deployment", "e", DEPLOYMENT.validate(obj))
    assert refusal.message == (
        'Deployment.apps "e" is invalid: [spec.selector: Required value, spec.template.metadata.labels: Invalid value: '
        "null: `selector` does not match template `labels`, spec.template.spec.containers: Required value]"
    )


def test_everything_wrong_with_a_deployment_is_said_in_order() -> None:
    template = {
        "metadata": {"labels": {"a": "c"}},
        "spec": {"containers": [{"name": "C_", "image": ""}], "restartPolicy": "Never"},
    }
    labels, *rest = said(DEPLOYMENT, workload(replicas=-1, template=template))
    assert labels == "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    assert rest[0] == (
        'spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`'
    )
    assert rest[1].startswith('spec.template.spec.containers[0].name: Invalid value: "C_": a lowercase RFC 1123 label')
    assert rest[2:] == [
        "spec.template.spec.containers[0].image: Required value",
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            'spec.selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator',
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}},
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": "120%"}}},
            'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "120%": must not be greater than 100%',
        ),
        (
            {"strategy": {"type": "Often"}},
            'spec.strategy: Unsupported value: {"Type":"Often","RollingUpdate":null}: supported values: "Recreate", '
            '"RollingUpdate"',
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
        ),
    ],
)
def test_what_is_wrong_with_a_deployment_is_said_as_kubernetes_says_it(spec: Obj, why: str) -> None:
    assert said(DEPLOYMENT, workload(**spec))[0] == why


def test_the_selector_of_a_deployment_stays() -> None:
    old, new = workload(), workload(selector={"matchLabels": {"a": "c"}})
    assert [str(error) for error in DEPLOYMENT.validate_update(new, old)] == [
        'spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable'
    ]


def test_annotations_make_another_generation_of_a_deployment_and_labels_do_not() -> None:
    assert DEPLOYMENT.another_generation is not None
    old, new = workload(), workload()
    new["metadata"]["labels"] = {"x": "y"}
    assert not DEPLOYMENT.another_generation(new, old)
    new["metadata"]["annotations"] = {"x": "y"}
    assert DEPLOYMENT.another_generation(new, old)
    assert DEPLOYMENT.another_generation(workload(replicas=3), old)


def test_the_status_of_a_deployment_leaves_spec_and_labels_alone() -> None:
    old, new = workload(), workload(replicas=9)
    new["metadata"]["labels"] = {"ignored": "?"}
    new["status"] = {"replicas": 2, "readyReplicas": 3}
    DEPLOYMENT.prepare_status(new, old)
    assert new["spec"] == old["spec"]
    assert "labels" not in new["metadata"]
    assert [str(error) for error in DEPLOYMENT.validate_status(new, old)] == [
        "status.readyReplicas: Invalid value: 3: cannot be greater than status.replicas"
    ]


def test_counts_that_cannot_be_are_refused_each() -> None:
    new = {**workload(), "status": {"replicas": -1}}
    assert [str(error) for error in REPLICA_SET.validate_status(new, workload())] == [
        "status.replicas: Invalid value: -1: must be greater than or equal to 0",
        "status.fullyLabeledReplicas: Invalid value: 0: cannot be greater than status.replicas",
        "status.readyReplicas: Invalid value: 0: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 0: cannot be greater than status.replicas",
    ]


def test_the_main_resource_ignores_the_status() -> None:
    old, new = {**workload(), "status": {"replicas": 2}}, {**workload(), "status": {"replicas": 77}}
    DEPLOYMENT.prepare_update(new, old)
    assert new["status"] == {"replicas": 2}


def test_a_template_warns_like_a_pod() -> None:
    obj = workload()
    obj["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A"}, {"name": "A"}]
    assert DEPLOYMENT.warnings(obj, None) == [
        'spec.template.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using '
        "apply"
    ]


# --- ReplicaSet, ReplicationController ------------------------------------------------------------


def test_a_replica_set_starts_without_replicas() -> None:
    obj = workload()
    assert said(REPLICA_SET, obj) == []
    REPLICA_SET.prepare_create(obj)
    assert (obj["spec"]["replicas"], obj["status"]) == (1, {"replicas": 0})


def test_a_replication_controller_selects_what_its_template_says() -> None:
    obj: Obj = {"metadata": {"name": "r"}, "spec": {"template": copy.deepcopy(TEMPLATE)}}
    assert said(CONTROLLER, obj) == []
    assert obj["spec"]["selector"] == obj["metadata"]["labels"] == {"a": "b"}
    assert said(CONTROLLER, {"metadata": {"name": "r"}}) == [
        "spec.selector: Required value",
        "spec.template: Required value",
    ]


# --- StatefulSet ----------------------------------------------------------------------------------


def claim(name: str) -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def test_a_stateful_set_gets_its_defaults() -> None:
    obj = workload(volumeClaimTemplates=[claim("data")])
    obj["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    assert said(STATEFUL_SET, obj) == []
    STATEFUL_SET.prepare_create(obj)
    spec = obj["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    template = spec["volumeClaimTemplates"][0]
    assert (template["kind"], template["spec"]["volumeMode"], template["status"]) == (
        "PersistentVolumeClaim",
        "Filesystem",
        {"phase": "Pending"},
    )
    assert obj["status"] == {"replicas": 0, "availableReplicas": 0}


def test_little_of_a_stateful_set_may_change() -> None:
    old, new = workload(serviceName="a"), workload(serviceName="a", replicas=3)
    assert STATEFUL_SET.validate_update(new, old) == []
    (error,) = STATEFUL_SET.validate_update(workload(serviceName="b"), old)
    assert str(error).startswith("spec: Forbidden: updates to statefulset spec for fields other than 'replicas', ")


# --- DaemonSet ------------------------------------------------------------------------------------


def test_a_daemon_set_counts_the_generations_of_its_template() -> None:
    key = "deprecated.daemonset.template.generation"
    old = workload()
    assert said(DAEMON_SET, old) == []
    DAEMON_SET.prepare_create(old)
    assert old["metadata"]["annotations"] == {key: "1"}
    assert old["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    assert old["status"]["desiredNumberScheduled"] == 0
    same, other = copy.deepcopy(old), copy.deepcopy(old)
    other["spec"]["template"]["metadata"]["labels"]["c"] = "d"
    del same["metadata"]["annotations"]
    for new in (same, other):
        DAEMON_SET.prepare_update(new, old)
    assert same["metadata"]["annotations"] == {key: "1"}
    assert other["metadata"]["annotations"] == {key: "2"}


def test_a_daemon_set_replaces_pods_or_adds_some_but_not_both() -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    assert said(DAEMON_SET, workload(updateStrategy=strategy)) == [
        "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"
    ]


# --- ControllerRevision ---------------------------------------------------------------------------


def test_a_revision_has_data_that_never_changes() -> None:
    assert said(REVISION, {"metadata": {"name": "r"}, "revision": -1}) == [
        "data: Required value: data is mandatory",
        "revision: Invalid value: -1: must be greater than or equal to 0",
    ]
    assert [str(error) for error in REVISION.validate_update({"data": {"a": 2}}, {"data": {"a": 1}})] == [
        'data: Invalid value: {"a":2}: field is immutable'
    ]
