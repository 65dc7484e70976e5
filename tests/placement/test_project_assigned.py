"""What a server assigned does not travel; what it assigned to a copy stays."""

from __future__ import annotations

from typing import Any

import pytest
from hub_harness import SERVICES, LocalHub

from farflung.machinery.errors import Obj
from farflung.placement.project import make_copy, strip, update_of

UID = "batch.kubernetes.io/controller-uid"
GENERATED = {UID: "u1", "batch.kubernetes.io/job-name": "a", "controller-uid": "u1", "job-name": "a"}


def obj(kind: str, api_version: str = "v1", metadata: Obj | None = None, **sections: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", **(metadata or {})}, **sections}


def managed(**fields: Any) -> Obj:
    return {"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": fields}}]}


# --- Services -------------------------------------------------------------------------------------

ASSIGNED: Obj = {
    "clusterIP": "10.0.0.7",
    "clusterIPs": ["10.0.0.7"],
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "healthCheckNodePort": 31001,
}
PORT_KEY = 'k:{"port":80,"protocol":"TCP"}'


def service(owned: Obj, **spec: Any) -> Obj:
    return obj("Service", metadata=managed(**owned), spec=spec)


def test_addresses_that_a_server_chose_do_not_travel() -> None:
    assert strip(service({"f:type": {}}, type="LoadBalancer", **ASSIGNED))["spec"] == {"type": "LoadBalancer"}


@pytest.mark.parametrize("field", ["ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"])
def test_what_a_user_fixed_travels(field: str) -> None:
    assert strip(service({f"f:{field}": {}}, **ASSIGNED))["spec"] == {field: ASSIGNED[field]}


def test_an_address_that_a_user_fixed_travels_in_both_of_its_forms() -> None:
    wanted = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}
    spec = {**ASSIGNED, "clusterIPs": ["10.0.0.7", "fd00::7"]}
    assert strip(service({"f:clusterIP": {}}, **spec))["spec"] == wanted


def test_a_headless_service_stays_headless() -> None:
    spec = {"clusterIP": "None", "clusterIPs": ["None"]}
    assert strip(service({"f:type": {}}, **spec, ipFamilies=["IPv4"]))["spec"] == spec


@pytest.mark.parametrize(
    ("owned", "travels"),
    [
        ({}, False),
        ({"f:ports": {PORT_KEY: {".": {}, "f:port": {}}}}, False),
        ({"f:ports": {'k:{"port":81,"protocol":"TCP"}': {"f:nodePort": {}}}}, False),
        ({"f:ports": {PORT_KEY: {".": {}, "f:nodePort": {}}}}, True),
        ({"f:ports": {}}, True),  # owned as a whole
    ],
)
def test_a_node_port_is_copied_if_a_manager_owns_it(owned: Obj, travels: bool) -> None:
    port = {"port": 80, "protocol": "TCP", "nodePort": 30080}
    found = strip(service(owned, ports=[port]))["spec"]["ports"]
    assert found == [port if travels else {"port": 80, "protocol": "TCP"}]


def test_a_service_without_field_owners_is_copied_unchanged() -> None:
    assert strip(obj("Service", spec=ASSIGNED))["spec"] == ASSIGNED


def test_another_kind_of_the_same_name_is_let_alone() -> None:
    knative = service({"f:x": {}}, **ASSIGNED) | {"apiVersion": "serving.knative.dev/v1"}
    assert strip(knative)["spec"] == ASSIGNED


async def test_a_server_notes_what_was_asked_for_and_not_what_it_chose() -> None:
    hub = await LocalHub.in_memory().furnish()
    ports = [{"name": "fixed", "port": 80, "nodePort": 30080}, {"name": "free", "port": 81}]
    answer = await hub.request("POST", SERVICES, obj("Service", spec={"type": "NodePort", "ports": ports}))
    assert answer.json["spec"]["ports"][1]["nodePort"]
    spec = strip(answer.json)["spec"]
    assert [port.get("nodePort") for port in spec["ports"]] == [30080, None]
    assert not spec.keys() & ASSIGNED.keys()


# --- Jobs -----------------------------------------------------------------------------------------


def job(uid: str = "u1", labels: Obj | None = None, metadata: Obj | None = None, **spec: Any) -> Obj:
    template = {"metadata": {"labels": labels if labels is not None else {**GENERATED, "app": "x"}}, "spec": {"x": 1}}
    spec = {"selector": {"matchLabels": {UID: uid}}, "template": template, **spec}
    return obj("Job", "batch/v1", metadata, spec=spec)


def test_a_job_travels_without_its_generated_selector_and_labels() -> None:
    found = strip(job(metadata={"labels": {**GENERATED, "mine": "1"}}))
    assert found["metadata"] == {"name": "a", "labels": {"mine": "1"}}
    assert found["spec"] == {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {"x": 1}}}
    assert strip(job(labels=GENERATED))["spec"] == {"template": {"metadata": {}, "spec": {"x": 1}}}


def test_a_selector_that_a_user_wrote_travels() -> None:
    source = job(labels={"job-name": "mine"}, manualSelector=True)
    assert strip(source) == source


def test_the_selector_and_the_labels_of_a_copy_stay() -> None:
    there = make_copy(strip(job()))
    there["spec"] = job("u2", {"app": "x", UID: "u2", "job-name": "a"})["spec"]
    wanted = make_copy(strip(job()))
    assert update_of(there, wanted) is None
    put = update_of(there, make_copy(strip(job(parallelism=2))))
    assert put is not None
    assert put["spec"] == {**there["spec"], "parallelism": 2}


# --- Pods -----------------------------------------------------------------------------------------


def pod(suffix: str = "", **spec: Any) -> Obj:
    name = f"kube-api-access-{suffix}"
    volume = {"name": name, "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    mount = {"name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    return obj(
        "Pod",
        spec={
            "containers": [
                {"name": "main", "volumeMounts": [{"name": "mine"}, *([mount] if suffix else [])]},
                {"name": "beside", **({"volumeMounts": [mount]} if suffix else {})},
            ],
            "volumes": [{"name": "mine"}, *([volume] if suffix else [])],
            **spec,
        },
    )


def test_a_pod_travels_without_its_node_and_the_injected_token() -> None:
    assert strip(pod("x2b4z", nodeName="n")) == pod()
    bare = pod("x2b4z")
    bare["spec"]["volumes"].pop(0)
    assert "volumes" not in strip(bare)["spec"]


def test_a_volume_that_is_merely_called_so_travels() -> None:
    source = obj("Pod", spec={"volumes": [{"name": "kube-api-access-x2b4z", "emptyDir": {}}]})
    assert strip(source) == source


def test_the_node_and_the_token_of_a_copy_stay() -> None:
    wanted = make_copy(pod())
    there = {**wanted, "spec": pod("aaaaa", nodeName="n")["spec"]}
    assert update_of(there, wanted) is None
    put = update_of(there, make_copy(pod(activeDeadlineSeconds=5)))
    assert put is not None
    assert put["spec"] == pod("aaaaa", nodeName="n", activeDeadlineSeconds=5)["spec"]


# --- sections that are the server's as a whole ----------------------------------------------------


def test_of_a_namespace_only_labels_and_annotations_travel() -> None:
    labels = {"kubernetes.io/metadata.name": "a", "env": "prod"}
    source = obj("Namespace", metadata={"labels": labels}, spec={"finalizers": ["kubernetes"]}, status={"phase": "x"})
    assert strip(source) == obj("Namespace", metadata={"labels": {"env": "prod"}})
    there = make_copy(strip(source)) | {"spec": {"finalizers": ["kubernetes"]}}
    put = update_of(there, make_copy(obj("Namespace")))
    assert put is not None
    assert put["spec"] == there["spec"]


def test_the_secrets_of_an_account_stay_where_they_are() -> None:
    source = obj("ServiceAccount", secrets=[{"name": "token-1"}], imagePullSecrets=[{"name": "r"}])
    bare = strip(source)
    assert bare == obj("ServiceAccount", imagePullSecrets=[{"name": "r"}])
    there = make_copy(bare) | {"secrets": [{"name": "token-2"}]}
    assert update_of(there, make_copy(bare)) is None
    put = update_of(there, make_copy(obj("ServiceAccount")))
    assert put is not None
    assert put["secrets"] == [{"name": "token-2"}]


def test_the_rules_of_an_aggregated_role_are_of_the_place_where_it_is() -> None:
    rbac = "rbac.authorization.k8s.io/v1"
    rules: list[Obj] = [{"verbs": ["get"]}]
    selectors: Obj = {"clusterRoleSelectors": [{}]}
    plain = obj("ClusterRole", rbac, rules=rules)
    assert strip(plain) == plain
    bare = strip({**plain, "aggregationRule": selectors})
    assert bare == obj("ClusterRole", rbac, aggregationRule=selectors)
    wanted = make_copy(bare)
    assert update_of({**wanted, "rules": [{"verbs": ["list"]}]}, wanted) is None


@pytest.mark.parametrize(
    ("export", "status", "copied"),
    [
        ({"name": "e"}, {"apiExportPath": "root:prov"}, {"name": "e", "path": "root:prov"}),
        ({"name": "e"}, {}, {"name": "e"}),
        ({"name": "e", "path": "root:a"}, {"apiExportPath": "root:b"}, {"name": "e", "path": "root:a"}),
    ],
)
def test_a_copied_binding_names_the_workspace_that_the_hub_found(export: Obj, status: Obj, copied: Obj) -> None:
    source = {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": "b"},
        "spec": {"reference": {"export": export}},
        "status": status,
    }
    assert strip(source)["spec"] == {"reference": {"export": copied}}


@pytest.mark.parametrize("kind", ["Namespace", "Pod", "Service", "ServiceAccount"])
@pytest.mark.parametrize("spec", [None, {}])
def test_objects_with_hardly_anything_in_them_travel(kind: str, spec: Obj | None) -> None:
    source = obj(kind, metadata=managed(), spec=spec)
    wanted = make_copy(strip(source))
    assert update_of({**wanted, "metadata": {**wanted["metadata"], "uid": "u"}}, wanted) is None
