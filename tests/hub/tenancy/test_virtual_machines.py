"""Pods that are virtual machines, in workspaces that have bound the compute API, and how they get their clusters."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hub_harness import ADMIN_TOKEN, STRATEGIC_PATCH, TABLE, USER_TOKEN, Answer
from seed_machine import MACHINE
from workspaces_harness import LocalWorkspaces

from farflung.apis.globalscheduler.machines import machine_update_errors
from farflung.machinery.errors import Obj

BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTERS = "/apis/globalscheduler.com/v1/namespaces/default/clusters"
ALLOCATIONS = "/apis/globalscheduler.com/v1/namespaces/default/allocations"
STRICT = {"fieldValidation": "Strict"}
CLUSTER = """
apiVersion: globalscheduler.com/v1
kind: Cluster
metadata: {name: az1}
spec:
  ipaddress: 10.0.0.1
  geolocation: {city: Bellevue, province: Washington, area: NW-1, country: US}
  region: {region: region1, availabilityzone: az1}
  operator: {operator: globalscheduler}
  flavors: [{flavorid: "42", totalcapacity: 1000}]
  storage: [{typeid: sas, storagecapacity: 256}]
  eipcapacity: 3
  cpucapacity: 8
  memcapacity: 256
  serverprice: 10
  homescheduler: scheduler1
  homedispatcher: dispatcher1
"""
ALLOCATION = """
apiVersion: globalscheduler.com/v1
kind: Allocation
metadata: {name: a1}
spec:
  resource_group:
    name: group
    resources:
    - name: web
      resource_type: vm
      flavors:
      - flavor_id: "42"
        spot: {max_price: "1.5", spot_duration_hours: 1, spot_duration_count: 2, interruption_policy: immediate}
      storage: {sata: 40, sas: 10, ssd: 10}
      need_eip: false
      virtual_machine: {image: cirros, security_group_id: default, nic_name: private}
  selector:
    geo_location: {city: Bellevue, province: Washington, area: NW-1, country: US}
    regions: [{region: NW-1, availability_zone: [production-az]}]
    operator: globalscheduler
    strategy: {location_strategy: discrete}
"""


TOLERATIONS: list[Obj] = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for taint in ("not-ready", "unreachable")
]


def demo(name: str = "demovm", **machine: Any) -> Obj:
    pod: Obj = yaml.safe_load(MACHINE)
    pod["metadata"]["name"] = name
    pod["spec"]["virtualMachine"] |= machine
    return pod


def containers(name: str) -> Obj:
    metadata, spec = {"name": name}, {"containers": [{"name": "web", "image": "nginx"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def binding(name: str, target: str = "az1", kind: str = "Cluster", **metadata: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": kind, "name": target},
    }


def api_binding(provider: str, export: str) -> Obj:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": export},
        "spec": {"reference": {"export": {"path": provider, "name": export}}},
    }


class Shop:
    """A workspace that has bound both exports of root:compute."""

    def __init__(self, hub: LocalWorkspaces, cluster: str) -> None:
        self.hub = hub
        self.cluster = cluster
        self.at = f"/clusters/{cluster}"

    @property
    def pods(self) -> str:
        return f"{self.at}{PODS}"

    async def create(self, obj: Obj, **query: str) -> Answer:
        return await self.hub.post(self.pods, obj, {**STRICT, **query})

    async def pod(self, name: str = "demovm") -> Obj:
        found: Obj = (await self.hub.get(f"{self.pods}/{name}")).json
        return found

    async def bind(self, wanted: Obj, **rest: Any) -> Answer:
        return await self.hub.post(f"{self.pods}/{wanted['metadata']['name']}/binding", wanted, **rest)

    async def view(self, export: str) -> str:
        found = (await self.hub.get(f"/clusters/root:compute/apis/apis.kcp.io/v1alpha1/apiexports/{export}")).json
        home = found["metadata"]["annotations"]["kcp.io/cluster"]
        return f"/services/apiexport/{home}/{export}/clusters/"


@pytest.fixture
async def shop() -> Shop:
    hub = await LocalWorkspaces.started()
    made = await hub.new_workspace("root", "shop")
    for export in ("kubernetes", "globalscheduler.com"):
        await hub.create(f"/clusters/root:shop{BINDINGS}", api_binding("root:compute", export))
    return Shop(hub, made["spec"]["cluster"])


# --- what is accepted -----------------------------------------------------------------------------


async def test_the_demo_is_created_as_it_is(shop: Shop) -> None:
    answer = await shop.create(yaml.safe_load(MACHINE))
    assert answer.status == 201, answer.body
    assert answer.json["spec"] == {**yaml.safe_load(MACHINE)["spec"], "priority": 0, "tolerations": TOLERATIONS}
    assert answer.json["status"] == {"phase": "Pending"}
    [entry] = answer.json["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:spec"].keys() == {".", "f:virtualMachine"}


@pytest.mark.parametrize(
    ("tolerations", "added"),
    [
        ([], TOLERATIONS),
        ([{"key": "a", "operator": "Exists"}], TOLERATIONS),
        ([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 7}], TOLERATIONS[1:]),
        ([{"operator": "Exists"}], []),
    ],
)
async def test_a_machine_tolerates_an_unhealthy_cluster_for_five_minutes(
    shop: Shop, tolerations: list[Obj], added: list[Obj]
) -> None:
    pod = demo()
    pod["spec"] |= {"priority": -3, "tolerations": tolerations}
    spec = (await shop.create(pod)).json["spec"]
    assert (spec["priority"], spec["tolerations"]) == (-3, [*tolerations, *added])


@pytest.mark.parametrize("tolerations", ["all", [7], {"a": 1}])
async def test_tolerations_of_another_type_are_refused(shop: Shop, tolerations: Any) -> None:
    pod = demo()
    pod["spec"]["tolerations"] = tolerations
    answer = await shop.create(pod)
    assert (answer.status, "spec.tolerations" in answer.message) == (422, True)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"edge.kcp.io/projected": "yes"}},
        {"annotations": {"edge.kcp.io/upsynced": "Pod/default/demovm"}},
    ],
)
async def test_copies_of_machines_are_left_as_they_are(shop: Shop, metadata: Obj) -> None:
    pod = demo()
    pod["metadata"] |= metadata
    answer = await shop.create(pod)
    assert answer.json["spec"] == demo()["spec"]
    assert "status" not in answer.json


async def test_everything_that_a_machine_may_say_is_kept(shop: Shop) -> None:
    pod = demo(
        flavors=[{"flavorID": "a", "spot": {"maxPrice": 1.5, "spotDurationHours": 2, "interruptionPolicy": "delay"}}],
        securityGroupId="group",
        publicKey="ssh-rsa",
        userData="aGVsbG8=",
        trustedImageCertificate=["one"],
        shutdownBehavior="stop",
        powerSpec="Running",
        bootVolume={"size": "10Gi"},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        volumeDevices=[{"name": "disk", "devicePath": "/dev/vdb"}],
        resources={"limits": {"cpu": "1"}},
        resourcesAllocated={"cpu": "1"},
        resizePolicy=[{"resourceName": "cpu", "policy": "Restart"}],
        cloudInitUserDataScript="#!/bin/sh",
        resourceCommonInfo={
            "count": 3,
            "selector": {
                "geoLocation": {"city": "a", "province": "b", "area": "c", "country": "d"},
                "regions": [{"region": "r", "availablityZone": ["a"]}, {"region": "r", "availabilityZone": ["b"]}],
                "operator": "chinatelecom",
                "strategy": {"localStrategy": "discrete"},
                "siteID": "r--a",
                "minClusters": 1,
                "maxClusters": 2,
                "clusterAffinity": {
                    "required": [{"key": "gpu", "operator": "exists"}],
                    "preferred": [
                        {"weight": 5, "requirements": [{"key": "tier", "operator": "in", "values": ["gold"]}]}
                    ],
                },
                "stackAffinity": [{"key": "app", "operator": "==", "values": ["web"]}],
                "stackAntiAffinity": [{"key": "app", "operator": "==", "values": ["db"]}],
                "near": {"latitude": 47.6, "longitude": -122.2},
            },
        },
    )
    pod["spec"] |= {"resourceType": "vm", "nics": [{"name": "private"}], "priority": 5}
    answer = await shop.create(pod)
    assert answer.status == 201, answer.body
    assert answer.json["spec"] == {**pod["spec"], "tolerations": TOLERATIONS}
    status = {
        "phase": "Pending",
        "assignedScheduler": {"name": "scheduler1"},
        "clusterInstanceId": "i-1",
        "distributorName": "d",
        "dispatcherName": "e",
    }
    shop.hub.token = ADMIN_TOKEN
    written = await shop.hub.patch(f"{shop.pods}/demovm/status", {"status": status})
    assert written.json["status"] == status


async def test_unknown_fields_are_refused_or_dropped(shop: Shop) -> None:
    answer = await shop.create(demo(needEip=True))
    assert (answer.status, 'unknown field "spec.virtualMachine.needEip"' in answer.message) == (400, True)
    answer = await shop.create(demo(needEip=True), fieldValidation="Ignore")
    assert "needEip" not in answer.json["spec"]["virtualMachine"]


async def test_a_pod_is_containers_or_a_machine(shop: Shop) -> None:
    nothing = "spec.containers: Required value: a Pod has containers, or is a virtualMachine"
    both = "may not be set if virtualMachine is"
    machine, one = demo()["spec"], containers("x")["spec"]["containers"]
    for spec, why in (
        ({}, nothing),
        ({"nodeSelector": {"a": "b"}}, nothing),
        ({"containers": []}, nothing),
        ({**machine, "containers": one}, f"spec.containers: Forbidden: {both}"),
        ({**machine, "initContainers": one}, f"spec.initContainers: Forbidden: {both}"),
        ({**machine, "ephemeralContainers": one}, f"spec.ephemeralContainers: Forbidden: {both}"),
        (
            {**machine, "resourceType": "container"},
            'spec.resourceType: Invalid value: "container": must be vm or empty for a virtual machine',
        ),
    ):
        answer = await shop.create({**containers("x"), "spec": spec})
        assert (answer.status, answer.message) == (422, f'Pod "x" is invalid: {why}')
    for number, spec in enumerate(({**machine, "containers": []}, {**machine, "resourceType": "vm"})):
        assert (await shop.create({**demo(f"x{number}"), "spec": spec})).status == 201


async def test_a_machine_has_a_flavor(shop: Shop) -> None:
    for machine in ({}, {"image": "cirros"}):
        answer = await shop.create({**containers("x"), "spec": {"virtualMachine": machine}})
        assert (answer.status, "spec.virtualMachine.flavors: Required value" in answer.message) == (422, True)


STAYING: list[tuple[Obj, str]] = [
    ({"virtualMachine": {"flavors": [{"flavorID": "larger"}]}}, "spec.virtualMachine.flavors"),
    ({"virtualMachine": {"needEIP": False}}, "spec.virtualMachine.needEIP"),
    ({"virtualMachine": {"resourceCommonInfo": {"count": 9}}}, "spec.virtualMachine.resourceCommonInfo"),
    ({"virtualMachine": {"resourceCommonInfo": None}}, "spec.virtualMachine.resourceCommonInfo"),
    ({"nodeSelector": {"gpu": "yes"}}, "spec.nodeSelector"),
]
CHANGING: list[Obj] = [
    {"virtualMachine": {"image": "debian", "powerSpec": "Stopped", "keyPairName": "other"}},
    {"tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 5}]},
]


async def test_what_a_cluster_was_chosen_by_stays_while_a_machine_is_bound(shop: Shop) -> None:
    """Whoever changes it, and while nothing is decided it may be changed."""
    shop.hub.token = ADMIN_TOKEN
    for name in ("a", "b"):
        await shop.create(demo(name))
    await shop.bind(binding("a"))
    with shop.hub.writes_nothing():
        for spec, where in STAYING:
            answer = await shop.hub.patch(f"{shop.pods}/a", {"spec": spec})
            why = "may not be changed while the virtual machine is bound"
            assert (answer.status, answer.message) == (422, f'Pod "a" is invalid: {where}: Forbidden: {why}')
        for name, spec in (("a", {"virtualMachine": None}), ("b", {"virtualMachine": None})):
            some = containers("x")["spec"]["containers"]
            answer = await shop.hub.patch(f"{shop.pods}/{name}", {"spec": {**spec, "containers": some}})
            assert (answer.status, "spec.virtualMachine: Forbidden: " in answer.message) == (422, True)
    for name, spec in [("a", one) for one in CHANGING] + [("b", one) for one, _ in STAYING]:
        assert (await shop.hub.patch(f"{shop.pods}/{name}", {"spec": spec})).status == 200, spec
    unbound = {"nodeName": None, "clusterName": None, **STAYING[0][0]}
    assert (await shop.hub.patch(f"{shop.pods}/a", {"spec": unbound})).status == 200


def test_what_was_wrong_before_may_stay_so() -> None:
    old = {**containers("x"), "spec": {**demo()["spec"], "containers": [{"name": "a", "image": "b"}]}}
    assert not machine_update_errors({**old, "metadata": {"labels": {"a": "b"}}}, old)
    worse = {**old, "spec": {**old["spec"], "initContainers": [{"name": "a"}]}}
    assert [str(one) for one in machine_update_errors(worse, old)] == [
        "spec.initContainers: Forbidden: may not be set if virtualMachine is"
    ]


SENSELESS: list[tuple[Obj, str]] = [
    ({"flavors": []}, "spec.virtualMachine.flavors"),
    ({"flavors": [{"flavorID": f"f{at}"} for at in range(17)]}, "spec.virtualMachine.flavors"),
    ({"flavors": [{}]}, "spec.virtualMachine.flavors[0].flavorID"),
    ({"resourceCommonInfo": {"count": 0}}, "spec.virtualMachine.resourceCommonInfo.count"),
    (
        {"resourceCommonInfo": {"selector": {"strategy": {"localStrategy": "best"}}}},
        "spec.virtualMachine.resourceCommonInfo.selector.strategy.localStrategy",
    ),
]


async def test_what_makes_no_sense_is_refused(shop: Shop) -> None:
    for machine, where in SENSELESS:
        answer = await shop.create(demo(**machine))
        assert (answer.status, f"{where}: " in answer.message) == (422, True), answer.message


async def test_what_is_shown_of_a_machine_is_its_status_and_its_cluster(shop: Shop) -> None:
    await shop.create(demo())
    await shop.create(containers("web"))
    table = (await shop.hub.get(shop.pods, accept=TABLE)).json
    columns = [one["name"] for one in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert [row["cells"][:3] for row in table["rows"]] == [["demovm", "-", "Pending"], ["web", "0/1", ""]]
    await shop.bind(binding("demovm"))
    row = (await shop.hub.get(f"{shop.pods}/demovm", accept=TABLE)).json["rows"][0]["cells"]
    assert row[columns.index("Node")] == "az1"


async def test_openapi_has_the_merge_keys_of_pods(shop: Shop) -> None:
    """kubectl asks only those who know strategies; of others it thinks that their Pods are those of Kubernetes."""
    told = (await shop.hub.get(f"{shop.at}/openapi/v3/api/v1")).json
    paths = {plural: f"/api/v1/namespaces/{{namespace}}/{plural}/{{name}}" for plural in ("pods", "services")}
    strategic = "application/strategic-merge-patch+json"
    media = {plural: told["paths"][path]["patch"]["requestBody"]["content"] for plural, path in paths.items()}
    assert (strategic in media["pods"], strategic in media["services"]) == (True, False)
    spec = told["components"]["schemas"]["core.v1.Pod"]["properties"]["spec"]["properties"]
    strategy, key = "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"
    containers = spec["containers"]
    assert (containers[strategy], containers[key]) == ("merge", "name")
    assert containers["items"]["properties"]["ports"][key] == "containerPort"
    assert strategy not in spec["virtualMachine"]["properties"]["flavors"]


async def test_lists_of_pods_are_merged_and_those_of_machines_replaced(shop: Shop) -> None:
    await shop.create(demo(flavors=[{"flavorID": "a"}, {"flavorID": "b"}]))
    await shop.create(containers("web"))
    patch = {"spec": {"virtualMachine": {"flavors": [{"flavorID": "c"}]}}}
    answer = await shop.hub.patch(f"{shop.pods}/demovm", patch, STRATEGIC_PATCH)
    assert answer.json["spec"]["virtualMachine"]["flavors"] == [{"flavorID": "c"}]
    assert answer.json["spec"]["virtualMachine"]["name"] == "vm001"
    patch = {"spec": {"containers": [{"name": "log", "image": "busybox"}]}}
    answer = await shop.hub.patch(f"{shop.pods}/web", patch, STRATEGIC_PATCH)
    assert {one["name"] for one in answer.json["spec"]["containers"]} == {"web", "log"}


# --- binding --------------------------------------------------------------------------------------


async def test_a_machine_is_bound_to_a_cluster_in_one_write(shop: Shop) -> None:
    made = (await shop.create(demo())).json
    before, labels = shop.hub.store.revision, {"globalscheduler.com/cluster": "az1-0123456789abcdef"}
    annotations = {"globalscheduler.com/score": "7"}
    answer = await shop.bind(binding("demovm", uid=made["metadata"]["uid"], annotations=annotations, labels=labels))
    assert (answer.status, answer.json["status"]) == (201, "Success")
    assert shop.hub.store.revision == before + 1
    pod = await shop.pod()
    assert (pod["spec"]["nodeName"], pod["spec"]["clusterName"]) == ("az1", "az1")
    assert pod["metadata"]["annotations"]["globalscheduler.com/score"] == "7"
    assert pod["metadata"]["labels"] == labels
    assert pod["metadata"]["generation"] == 2
    assert pod["status"] == {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-05-01T12:00:00Z"}],
    }


@pytest.mark.parametrize("name, value", [("app", "shop"), ("globalscheduler.com/cluster", "no label")])
async def test_a_binding_with_labels_that_are_not_the_schedulers_is_refused(shop: Shop, name: str, value: str) -> None:
    await shop.create(demo())
    with shop.hub.writes_nothing():
        answer = await shop.bind(binding("demovm", labels={name: value}))
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "metadata.labels")


async def test_other_conditions_and_the_phase_stay(shop: Shop) -> None:
    await shop.create(demo())
    shop.hub.token = ADMIN_TOKEN
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    other = {"type": "Ready", "status": "False"}
    await shop.hub.patch(f"{shop.pods}/demovm/status", {"status": {"phase": "Unknown", "conditions": [refused, other]}})
    await shop.bind(binding("demovm"))
    status = (await shop.pod())["status"]
    assert status["phase"] == "Unknown"
    assert [(one["type"], one["status"]) for one in status["conditions"]] == [
        ("Ready", "False"),
        ("PodScheduled", "True"),
    ]


async def test_any_pod_can_be_bound_to_a_node(shop: Shop) -> None:
    for pod in (demo(), containers("web")):
        await shop.create(pod)
        name = pod["metadata"]["name"]
        assert (await shop.bind(binding(name, "node-1", "Node"))).status == 201
        spec = (await shop.pod(name))["spec"]
        assert (spec["nodeName"], spec.get("clusterName")) == ("node-1", None)


async def test_what_is_bound_is_not_bound_again(shop: Shop) -> None:
    for field, what in (("nodeName", "node"), ("clusterName", "cluster")):
        pod = demo(what)
        pod["spec"][field] = "az0"
        await shop.create(pod)
        with shop.hub.writes_nothing():
            answer = await shop.bind(binding(what))
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert answer.message.endswith(f'pod {what} is already assigned to {what} "az0"')


async def test_a_binding_is_for_that_very_pod(shop: Shop) -> None:
    await shop.create(demo())
    for metadata, why in (
        ({"uid": "another"}, "UID in precondition: another"),
        ({"resourceVersion": "1"}, "ResourceVersion in precondition: 1"),
    ):
        with shop.hub.writes_nothing():
            answer = await shop.bind(binding("demovm", **metadata))
        assert (answer.status, f"Precondition failed: {why}" in answer.message) == (409, True)


async def test_only_machines_have_clusters(shop: Shop) -> None:
    await shop.create(containers("web"))
    with shop.hub.writes_nothing():
        answers = [await shop.bind(binding("web")), await shop.bind(binding("web", kind="Scheduler"))]
    for answer, kind in zip(answers, ("Cluster", "Scheduler"), strict=True):
        assert answer.status == 422
        assert answer.message.endswith(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')


async def test_a_cluster_has_a_name_and_a_dry_run_binds_nothing(shop: Shop) -> None:
    await shop.create(demo())
    with shop.hub.writes_nothing():
        for name in ("", "not a name", "a" * 300):
            answer = await shop.bind(binding("demovm", name))
            assert (answer.status, "target.name: " in answer.message) == (422, True)
        assert (await shop.bind(binding("demovm"), query={"dryRun": "All"})).status == 201
        assert (await shop.bind(binding("nobody"))).status == 404


async def test_a_pod_that_is_on_its_way_out_is_not_bound(shop: Shop) -> None:
    pod = demo()
    pod["metadata"]["finalizers"] = ["test.example/keep"]
    await shop.create(pod)
    await shop.hub.delete(f"{shop.pods}/demovm")
    answer = await shop.bind(binding("demovm"))
    assert answer.message.endswith("pod demovm is being deleted, cannot be assigned to a host")


async def test_bindings_are_only_created(shop: Shop) -> None:
    await shop.create(demo())
    shop.hub.token = ADMIN_TOKEN
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert (await shop.hub.request(method, f"{shop.pods}/demovm/binding", binding("demovm"))).status == 405


# --- by whom, and where ---------------------------------------------------------------------------


async def grant_everything(shop: Shop) -> None:
    """To a user, in the workspace; what exports let nobody do stays forbidden."""
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
    ]
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"}
    await shop.hub.create(f"{shop.at}{RBAC}/clusterroles", {"metadata": {"name": "some"}, "rules": rules})
    await shop.hub.create(
        f"{shop.at}{RBAC}/clusterrolebindings", {"metadata": {"name": "some"}, "roleRef": role, "subjects": [subject]}
    )


async def test_only_operators_bind_machines_by_hand(shop: Shop) -> None:
    await shop.create(demo())
    await grant_everything(shop)
    shop.hub.token = USER_TOKEN
    assert (await shop.hub.get(f"{shop.pods}/demovm")).status == 200
    assert (await shop.bind(binding("demovm"))).status == 403
    shop.hub.token = ADMIN_TOKEN
    assert (await shop.bind(binding("demovm"))).status == 201


async def test_only_operators_describe_clusters_as_they_are_for_everybody(shop: Shop) -> None:
    await grant_everything(shop)
    cluster, allocation = yaml.safe_load(CLUSTER), yaml.safe_load(ALLOCATION)
    shop.hub.token = USER_TOKEN
    assert (await shop.hub.post(f"{shop.at}{CLUSTERS}", cluster)).status == 403
    assert (await shop.hub.post(f"{shop.at}{ALLOCATIONS}", allocation)).status == 201
    forged = {"status": {"phase": "Bound"}}
    assert (await shop.hub.patch(f"{shop.at}{ALLOCATIONS}/a1/status", forged)).status == 403
    shop.hub.token = ADMIN_TOKEN
    assert (await shop.hub.post(f"{shop.at}{CLUSTERS}", cluster)).status == 201
    shop.hub.token = USER_TOKEN
    assert (await shop.hub.get(f"{shop.at}{CLUSTERS}/az1")).status == 200


async def test_machines_are_bound_through_the_view_of_the_export(shop: Shop) -> None:
    await shop.create(demo())
    view = await shop.view("kubernetes")
    listed = (await shop.hub.get(f"{view}*/api/v1/pods")).json["items"]
    assert [one["metadata"]["name"] for one in listed] == ["demovm"]
    path = f"{view}{shop.cluster}{PODS}/demovm/binding"
    assert (await shop.hub.post(path, binding("demovm"))).status == 201
    assert (await shop.pod())["spec"]["clusterName"] == "az1"
    assert (await shop.hub.post(path, binding("demovm"))).status == 409
    other = (await shop.hub.new_workspace("root", "other"))["spec"]["cluster"]
    assert (await shop.hub.post(f"{view}{other}{PODS}/demovm/binding", binding("demovm"))).status == 404


async def test_pods_are_selected_by_their_clusters(shop: Shop) -> None:
    for name, cluster in (("a", "az1"), ("b", "az2"), ("c", "")):
        await shop.create(demo(name))
        if cluster:
            await shop.bind(binding(name, cluster))
    for selector, names in (
        ("spec.clusterName=az1", ["a"]),
        ("spec.nodeName!=", ["a", "b"]),
        ("spec.clusterName=", ["c"]),
        ("status.phase=Pending,spec.nodeName=az2", ["b"]),
    ):
        assert (await shop.hub.get(shop.pods, {"fieldSelector": selector})).names == names, selector
    view = f"{await shop.view('kubernetes')}*/api/v1/pods"
    assert (await shop.hub.get(view, {"fieldSelector": "spec.nodeName="})).names == ["c"]
    assert (await shop.hub.get(shop.pods, {"fieldSelector": "spec.nics=a"})).status == 400


async def test_discovery_lists_bindings_of_pods(shop: Shop) -> None:
    for place in (shop.at, f"{await shop.view('kubernetes')}{shop.cluster}"):
        resources = (await shop.hub.get(f"{place}/api/v1")).json["resources"]
        [found] = [one for one in resources if one["name"] == "pods/binding"]
        assert (found["kind"], found["verbs"], found["namespaced"]) == ("Binding", ["create"], True)


async def test_pods_that_are_something_else_have_no_bindings(shop: Shop) -> None:
    """Anybody may export something that is called like that."""
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": spec}}
    await shop.hub.new_workspace("root", "prov")
    await shop.hub.new_workspace("root", "user")
    names = {"plural": "pods", "singular": "pod", "kind": "Pod", "listKind": "PodList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    at = "/apis/apis.kcp.io/v1alpha1"
    await shop.hub.create(
        f"/clusters/root:prov{at}/apiresourceschemas",
        {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIResourceSchema",
            "metadata": {"name": "x.pods.core"},
            "spec": {"group": "", "names": names, "scope": "Namespaced", "versions": [version]},
        },
    )
    await shop.hub.create(
        f"/clusters/root:prov{at}/apiexports",
        {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIExport",
            "metadata": {"name": "mine"},
            "spec": {"latestResourceSchemas": ["x.pods.core"]},
        },
    )
    await shop.hub.create(f"/clusters/root:user{BINDINGS}", api_binding("root:prov", "mine"))
    await shop.hub.create(f"/clusters/root:user{PODS}", {**containers("a"), "spec": {"virtualMachine": 7}})
    assert (await shop.hub.post(f"/clusters/root:user{PODS}/a/binding", binding("a"))).status == 404


# --- clusters and allocations ---------------------------------------------------------------------


async def test_clusters_and_allocations_are_created_as_they_were_always_written(shop: Shop) -> None:
    for path, text in ((CLUSTERS, CLUSTER), (ALLOCATIONS, ALLOCATION)):
        obj = yaml.safe_load(text)
        answer = await shop.hub.post(f"{shop.at}{path}", obj, STRICT)
        assert answer.status == 201, answer.body
        assert answer.json["spec"] == obj["spec"] | ({"replicas": 1} if path is ALLOCATIONS else {})


async def test_a_status_that_is_a_text_is_dropped_like_any_other(shop: Shop) -> None:
    answer = await shop.hub.post(f"{shop.at}{CLUSTERS}", yaml.safe_load(f"{CLUSTER}status: Ready"), STRICT)
    assert (answer.status, "status" in answer.json) == (201, False)


PLACELESS: list[tuple[Obj, str]] = [
    ({}, "spec.region: Required value"),
    ({"region": {"region": "r"}}, "spec.region.availabilityzone: Required value"),
    ({"region": {"region": "", "availabilityzone": "a"}}, "spec.region.region: "),
    ({"cpucapacity": -1}, "spec.cpucapacity: "),
    ({"taints": [{"key": "a", "effect": "Never"}]}, "spec.taints[0].effect: "),
    ({"coordinates": {"latitude": 91, "longitude": 0}}, "spec.coordinates.latitude: "),
]


async def test_a_cluster_says_where_it_is(shop: Shop) -> None:
    for spec, where in PLACELESS:
        obj = yaml.safe_load(CLUSTER)
        obj["spec"] = {**obj["spec"], **spec} if spec and "region" not in spec else spec
        answer = await shop.hub.post(f"{shop.at}{CLUSTERS}", obj)
        assert (answer.status, where in answer.message) == (422, True), answer.message


BOUNDLESS: list[tuple[Obj, str]] = [
    ({"replicas": 0}, "spec.replicas: "),
    ({"replicas": 10_001}, "spec.replicas: "),
    ({"resource_group": {"resources": []}}, "spec.resource_group.resources: "),
    ({"resource_group": {"resources": [{"name": "a"}]}}, "spec.resource_group.resources[0].flavors: Required"),
    (
        {"resource_group": {"resources": [{"flavors": [{"flavor_id": "a"}]}] * 65}},
        "spec.resource_group.resources: ",
    ),
]


async def test_an_allocation_is_bounded(shop: Shop) -> None:
    for spec, where in BOUNDLESS:
        obj = yaml.safe_load(ALLOCATION)
        obj["spec"] |= spec
        answer = await shop.hub.post(f"{shop.at}{ALLOCATIONS}", obj)
        assert (answer.status, where in answer.message) == (422, True), answer.message


async def test_what_came_of_them_is_shown(shop: Shop) -> None:
    await shop.hub.create(f"{shop.at}{CLUSTERS}", yaml.safe_load(CLUSTER))
    await shop.hub.create(f"{shop.at}{ALLOCATIONS}", yaml.safe_load(ALLOCATION))
    used = {"flavors": {"42": 2}, "vcpus": 2, "memory": 256, "storage": {"sas": 20}, "eips": 1}
    status = {"phase": "Ready", "stacks": 2, "used": used, "observedGeneration": 1}
    answer = await shop.hub.patch(f"{shop.at}{CLUSTERS}/az1/status", {"status": status})
    assert answer.json["status"] == status
    placement = {
        "replica": 0,
        "cluster": {"workspace": shop.cluster, "namespace": "default", "name": "az1"},
        "flavors": ["42"],
        "score": 61.5,
    }
    status = {"phase": "Bound", "cluster_names": ["az1"], "placements": [placement], "observedGeneration": 1}
    answer = await shop.hub.patch(f"{shop.at}{ALLOCATIONS}/a1/status", {"status": status})
    assert answer.json["status"] == status
    rows = [
        (await shop.hub.get(f"{shop.at}{path}", accept=TABLE)).json["rows"][0]["cells"]
        for path in (CLUSTERS, ALLOCATIONS)
    ]
    assert rows[0][:5] == ["az1", "region1", "az1", "Ready", 2]
    assert rows[1][:5] == ["a1", "Bound", None, '["az1"]', 1]
