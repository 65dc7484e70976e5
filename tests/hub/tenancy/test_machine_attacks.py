"""Attacks of tenants on the clusters of all: by virtual machines that say where they are, or that they have ended.

Alice may do everything in her workspace, and Bob in his.  An operator has described a Cluster and bound a machine of
Alice's to it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from examples import examples
from hub_harness import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Answer
from hypothesis import given, settings
from hypothesis import strategies as st
from platform_harness import ALICE, APIS, BOB, MASTER, OPERATOR, RBAC, PlatformHub, platform_hub
from seed_machine import MACHINE

from farflung.apis.edge.names import PROJECTED
from farflung.hub.auth import virtual_machines as machines
from farflung.hub.catalog import objects
from farflung.hub.request.user import User
from farflung.machinery.errors import ApiError, Obj
from farflung.machines.object_readers import SubjectDecoder
from farflung.syncer.manifest import HOME, policy_objects
from farflung.syncer.rbac import policy_rules

PODS = "/api/v1/namespaces/default/pods"
GROUP = "globalscheduler.com"
SCHEDULING = f"/apis/{GROUP}/v1/namespaces/default"
LABEL = f"{GROUP}/cluster"
CLUSTER: Obj = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "Cluster",
    "metadata": {"name": "az1"},
    "spec": {"region": {"region": "region1", "availabilityzone": "az1"}},
}
ALLOCATION: Obj = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "Allocation",
    "metadata": {"name": "shop"},
    "spec": {"resource_group": {"resources": [{"flavors": [{"flavor_id": "a"}]}]}},
}
#: everything that says where a machine is, as a merge patch
CLAIMS: dict[str, Any] = {
    "spec.nodeName": {"spec": {"nodeName": "az9"}},
    "spec.clusterName": {"spec": {"clusterName": "az9"}},
    f"metadata.labels[{LABEL}]": {"metadata": {"labels": {LABEL: "az9-0123456789abcdef"}}},
    f"metadata.labels[{PROJECTED}]": {"metadata": {"labels": {PROJECTED: "yes"}}},
} | {
    f"metadata.annotations[{GROUP}/{name}]": {"metadata": {"annotations": {f"{GROUP}/{name}": "x|default/az9"}}}
    for name in ("cluster", "flavor-id", "site-id", "score", "refused-by")
}
FAILED: Obj = {"status": {"phase": "Failed"}}


def machine(name: str = "demovm", **machine: Any) -> Obj:
    pod: Obj = yaml.safe_load(MACHINE)
    pod["metadata"]["name"] = name
    pod["spec"]["virtualMachine"] |= machine
    return pod


def containers(name: str, **spec: Any) -> Obj:
    spec = {"containers": [{"name": "web", "image": "nginx"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def merged(obj: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    known = obj if isinstance(obj, dict) else {}
    after = {**known, **{name: merged(known.get(name), value) for name, value in patch.items()}}
    return {name: value for name, value in after.items() if value is not None}


class Cloud:
    def __init__(self, hub: PlatformHub, alices: str, bobs: str) -> None:
        self.hub = hub
        self.alices = alices
        self.bobs = bobs
        self.pods = f"/clusters/{alices}{PODS}"

    async def of(self, user: str, method: str, name: str = "", body: Any = None, **rest: Any) -> Answer:
        """Somebody's request for one of Alice's Pods; `name` may go on with a subresource."""
        return await self.hub.of(user, method, f"{self.pods}/{name}".rstrip("/"), body, **rest)

    async def pod(self, name: str) -> Obj:
        found: Obj = (await self.of(MASTER, "GET", name)).json
        return found

    async def every_way(self, user: str, name: str, patch: Obj) -> list[Answer]:
        """The same change, by all kinds of requests."""
        present = await self.pod(name)
        wanted = merged(present, patch)
        fields = [field for field in ("metadata", "spec") if field in patch]
        operations = [{"op": "replace", "path": f"/{field}", "value": wanted.get(field)} for field in fields]
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **patch}
        force = {"fieldManager": "alice", "force": "true"}
        return [
            await self.of(user, "PATCH", name, patch, content_type=MERGE_PATCH),
            await self.of(user, "PATCH", name, patch, content_type=MERGE_PATCH, query={"dryRun": "All"}),
            await self.of(user, "PATCH", name, patch, content_type=STRATEGIC_PATCH),
            await self.of(user, "PATCH", name, operations, content_type=JSON_PATCH),
            await self.of(user, "PUT", name, wanted),
            await self.of(user, "PATCH", name, json.dumps(applied), content_type=APPLY_PATCH, query=force),
        ]


async def opened() -> Cloud:
    hub = await platform_hub()
    alices, bobs = await hub.workspace("alices", ALICE), await hub.workspace("bobs", BOB)
    for cluster in (alices, bobs):
        for export in ("kubernetes", GROUP):
            await hub.bind(cluster, export, "root:compute", export)
    cloud = Cloud(hub, alices, bobs)
    for name in ("bound", "waiting"):
        await hub.made(ALICE, cloud.pods, machine(name))
    await hub.made(ALICE, cloud.pods, containers("web"))
    await hub.made(OPERATOR, f"/clusters/{alices}{SCHEDULING}/clusters", CLUSTER)
    await hub.made(ALICE, f"/clusters/{alices}{SCHEDULING}/allocations", ALLOCATION)
    patch = {"metadata": {"labels": {LABEL: "az1-0123456789abcdef"}}}
    assert (await cloud.of(OPERATOR, "PATCH", "bound", patch, content_type=MERGE_PATCH)).status == 200
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "annotations": {LABEL: f"{alices}|default/az1", f"{GROUP}/flavor-id": "a"}},
        "target": {"kind": "Cluster", "name": "az1"},
    }
    await hub.made(OPERATOR, f"{cloud.pods}/bound/binding", binding)
    return cloud


@pytest.fixture
async def cloud() -> Cloud:
    return await opened()


def forbids(answer: Answer, path: str) -> bool:
    told = f"{path}: the binding and the end of a virtual machine require permission to create pods/binding"
    return answer.status == 403 and bool(answer.message.endswith(told))


# --- saying where a machine is ----------------------------------------------------------------------


async def test_a_tenant_cannot_set_the_location_of_a_new_machine(cloud: Cloud) -> None:
    force = {"fieldManager": "alice"}
    with cloud.hub.writes_nothing():
        for path, claim in CLAIMS.items():
            forged = merged(machine("forged"), claim)
            assert forbids(await cloud.of(ALICE, "POST", "", forged), path)
            applied = json.dumps(forged)
            assert forbids(
                await cloud.of(ALICE, "PATCH", "forged", applied, content_type=APPLY_PATCH, query=force), path
            )
        exported = await cloud.pod("bound")
        exported["metadata"] = {**exported["metadata"], "name": "again"}
        exported["metadata"].pop("resourceVersion")
        assert (await cloud.of(ALICE, "POST", "", exported)).status == 403
        assert (await cloud.hub.of(BOB, "POST", f"/clusters/{cloud.bobs}{PODS}", exported)).status == 403
    assert (await cloud.of(OPERATOR, "POST", "", merged(machine("by-hand"), CLAIMS["spec.nodeName"]))).status == 201


async def test_nobody_says_where_a_machine_is_afterwards_or_that_it_is_elsewhere_or_nowhere(cloud: Cloud) -> None:
    with cloud.hub.writes_nothing():
        for name in ("waiting", "bound"):
            for path, claim in CLAIMS.items():
                for answer in await cloud.every_way(ALICE, name, claim):
                    assert forbids(answer, path), (name, path, answer.body)
        for path in ("nodeName", "clusterName"):
            for answer in (await cloud.every_way(ALICE, "bound", {"spec": {path: None}}))[:5]:
                assert forbids(answer, f"spec.{path}"), answer.body
        gone = {"metadata": {"labels": {LABEL: None}}}
        for answer in (await cloud.every_way(ALICE, "bound", gone))[:5]:
            assert forbids(answer, f"metadata.labels[{LABEL}]"), answer.body
        seed = {**machine("bound"), "metadata": {"name": "bound"}}
        seed["metadata"]["resourceVersion"] = (await cloud.pod("bound"))["metadata"]["resourceVersion"]
        assert (await cloud.of(ALICE, "PUT", "bound", seed)).status == 403
    answers = await cloud.every_way(OPERATOR, "waiting", CLAIMS["spec.nodeName"])
    assert {answer.status for answer in answers} == {200, 409}  # some come after others


async def test_who_says_what_is_so_already_changes_nothing(cloud: Cloud) -> None:
    exported = await cloud.pod("bound")
    applied = {**exported, "metadata": {**exported["metadata"]}}
    applied["metadata"].pop("managedFields")
    applied["metadata"].pop("resourceVersion")
    force = {"fieldManager": "alice", "force": "true"}
    for answer in (
        await cloud.of(ALICE, "PUT", "bound", merged(exported, {"metadata": {"labels": {"app": "shop"}}})),
        await cloud.of(ALICE, "PATCH", "bound", json.dumps(applied), content_type=APPLY_PATCH, query=force),
        await cloud.of(ALICE, "PATCH", "bound", {"spec": exported["spec"]}, content_type=MERGE_PATCH),
    ):
        assert answer.status == 200, answer.body
    after = await cloud.pod("bound")
    assert (machines.binding_fields(after), after["metadata"]["labels"]["app"]) == (
        machines.binding_fields(exported),
        "shop",
    )


async def test_a_pod_with_containers_is_led_to_no_cluster_either_and_is_free_otherwise(cloud: Cloud) -> None:
    label = CLAIMS[f"metadata.labels[{LABEL}]"]
    for answer in await cloud.every_way(ALICE, "web", label):
        assert forbids(answer, f"metadata.labels[{LABEL}]"), answer.body
    assert (await cloud.of(ALICE, "POST", "", containers("here", nodeName="node-1"))).status == 201
    assert (await cloud.of(ALICE, "PATCH", "web", CLAIMS["spec.nodeName"], content_type=MERGE_PATCH)).status == 200


async def test_no_user_gets_more_rights_by_another_name(cloud: Cloud) -> None:
    claim = CLAIMS["spec.nodeName"]
    robot = await cloud.hub.robot(cloud.alices)
    with cloud.hub.writes_nothing():
        assert forbids(await cloud.of(robot, "PATCH", "waiting", claim, content_type=MERGE_PATCH), "spec.nodeName")
        for group in ("system:kcp:admin", "system:masters", "apis.kcp.io:binding:system:kcp:admin"):
            answer = await cloud.of(
                ALICE,
                "PATCH",
                "waiting",
                claim,
                content_type=MERGE_PATCH,
                impersonate_user="kcp-admin",
                impersonate_group=group,
            )
            assert answer.status == 403
        assert (await cloud.of(BOB, "PATCH", "waiting", claim, content_type=MERGE_PATCH)).status == 403


# --- saying that it has ended -----------------------------------------------------------------------


async def register_robot(cloud: Cloud, mailbox: str) -> None:
    """Allow the ServiceAccount `robot` of a mailbox what syncers may do."""
    for obj in policy_objects("robot", mailbox, policy_rules()):
        await cloud.hub.made(OPERATOR, f"/clusters/root:compute{RBAC}/{obj['kind'].lower()}s", obj)


async def test_a_service_account_of_a_tenant_is_no_syncer_whatever_its_names_are(cloud: Cloud) -> None:
    """Neither are users that the tenant impersonates."""
    await register_robot(cloud, cloud.bobs)
    await cloud.hub.made(ALICE, f"/clusters/{cloud.alices}/api/v1/namespaces", {"metadata": {"name": HOME}})
    robot = await cloud.hub.robot(cloud.alices, namespace=HOME)
    running = {"status": {"phase": "Running"}}
    pretences: list[dict[str, str]] = [
        {"impersonate_user": f"system:serviceaccount:{HOME}:robot"},
        {
            "impersonate_user": f"system:kcp:serviceaccount:{cloud.bobs}:{HOME}:robot",
            "impersonate_group": "system:masters",
        },
        {"impersonate_user": "carl", "impersonate_group": f"system:serviceaccounts:{HOME}"},
    ]
    with cloud.hub.writes_nothing():
        answer = await cloud.of(robot, "PATCH", "web/status", running, content_type=MERGE_PATCH)
        assert answer.status == 403, answer.body
        for pretence in pretences:
            answer = await cloud.of(ALICE, "PATCH", "web/status", running, content_type=MERGE_PATCH, **pretence)
            assert answer.status == 403, (pretence, answer.body)


async def test_only_users_who_may_bind_can_report_that_a_machine_ended(cloud: Cloud) -> None:
    """Syncers may write the status of Pods."""
    await register_robot(cloud, cloud.alices)
    await cloud.hub.made(ALICE, f"/clusters/{cloud.alices}/api/v1/namespaces", {"metadata": {"name": HOME}})
    robot = await cloud.hub.robot(cloud.alices, namespace=HOME)
    copied = merged(machine("copy"), merged(CLAIMS[f"metadata.labels[{PROJECTED}]"], CLAIMS["spec.clusterName"]))
    await cloud.hub.made(MASTER, cloud.pods, copied)
    with cloud.hub.writes_nothing():
        answer = await cloud.of(ALICE, "PATCH", "bound/status", FAILED, content_type=MERGE_PATCH)
        assert answer.status == 403
        body = merged(await cloud.pod("bound"), FAILED)
        assert (await cloud.of(robot, "PUT", "bound/status", body)).status == 403
        for media in (MERGE_PATCH, APPLY_PATCH):
            if media == APPLY_PATCH:
                body["metadata"].pop("managedFields")
            query = {"fieldManager": "alice", "force": "true"} if media == APPLY_PATCH else {}
            answer = await cloud.of(robot, "PATCH", "bound/status", body, content_type=media, query=query)
            assert forbids(answer, "status.phase"), answer.body
    running = {"status": {"phase": "Running"}}
    assert (await cloud.of(robot, "PATCH", "bound/status", running, content_type=MERGE_PATCH)).status == 200
    assert (await cloud.of(robot, "PATCH", "copy/status", FAILED, content_type=MERGE_PATCH)).status == 200
    assert (await cloud.of(MASTER, "PATCH", "bound/status", FAILED, content_type=MERGE_PATCH)).status == 200
    assert (await cloud.of(robot, "PATCH", "bound/status", running, content_type=MERGE_PATCH)).status == 403


async def test_the_status_of_a_new_object_is_dropped(cloud: Cloud) -> None:
    home = f"/clusters/{cloud.alices}{SCHEDULING}/allocations"
    placements = {"status": {"phase": "Bound", "placements": [{"replica": 0, "cluster": {"name": "az1"}}]}}
    forged = merged(merged(ALLOCATION, placements), {"metadata": {"name": "forged"}})
    assert "status" not in await cloud.hub.made(ALICE, home, forged)
    pending = {"phase": "Pending"}
    assert (await cloud.of(ALICE, "POST", "", merged(machine("forged"), FAILED))).json["status"] == pending
    for path, patch, status in ((f"{home}/forged", placements, None), (f"{cloud.pods}/forged", FAILED, pending)):
        answer = await cloud.hub.of(ALICE, "PATCH", path, patch, content_type=MERGE_PATCH)
        assert (answer.status, answer.json.get("status")) == (200, status)


async def test_clusters_and_what_came_of_allocations_are_not_for_tenants_to_write(cloud: Cloud) -> None:
    at, spec = f"/clusters/{cloud.alices}{SCHEDULING}", {"spec": {"eipcapacity": 9}}
    with cloud.hub.writes_nothing():
        for method, path, body in (
            ("PATCH", "clusters/az1", spec),
            ("PATCH", "clusters/az1/status", {"status": {"phase": "Down"}}),
            ("PATCH", "allocations/shop/status", {"status": {"phase": "Failed"}}),
            ("PATCH", "clusters/az1", {"metadata": {"labels": {"gpu": "yes"}}}),
        ):
            assert (await cloud.hub.of(ALICE, method, f"{at}/{path}", body, content_type=MERGE_PATCH)).status == 403
        for path in ("clusters/az1", "clusters"):
            assert (await cloud.hub.of(ALICE, "DELETE", f"{at}/{path}")).status == 403
    assert (await cloud.of(ALICE, "DELETE")).status == 200  # all of her own
    assert (await cloud.of(ALICE, "GET", "bound")).status == 404


# --- through a view ---------------------------------------------------------------------------------


async def claiming(cloud: Cloud) -> str:
    """Alice exports something that claims what her workspace has from root:compute, and accepts that; her view."""
    wanted = (("kubernetes", "", "pods"), (GROUP, GROUP, "allocations"), (GROUP, GROUP, "clusters"))
    claims = []
    for binding, group, resource in wanted:
        found = await cloud.hub.of(ALICE, "GET", f"/clusters/{cloud.alices}{APIS}/apibindings/{binding}")
        identity = found.json["status"]["boundResources"][0]["schema"]["identityHash"]
        claims.append({"group": group, "resource": resource, "identityHash": identity, "all": True})
    export = {"metadata": {"name": "mine"}, "spec": {"permissionClaims": claims}}
    await cloud.hub.made(ALICE, f"/clusters/{cloud.alices}{APIS}/apiexports", export)
    accepted = [{**claim, "state": "Accepted"} for claim in claims]
    await cloud.hub.bind(cloud.alices, "mine", "root:alices", "mine", by=ALICE, permissionClaims=accepted)
    return f"/services/apiexport/{cloud.alices}/mine/clusters"


async def test_what_an_export_lets_nobody_do_is_not_done_through_the_view_of_another_that_claims_it(
    cloud: Cloud,
) -> None:
    view = await claiming(cloud)
    home = f"{view}/{cloud.alices}"
    listed = await cloud.hub.of(ALICE, "GET", f"{view}/*/api/v1/pods")
    assert sorted(listed.names) == ["bound", "waiting", "web"]
    with cloud.hub.writes_nothing():
        for path, patch in (
            (f"{PODS}/bound/status", FAILED),
            (f"{PODS}/waiting", CLAIMS["spec.nodeName"]),
            (f"{SCHEDULING}/allocations/shop/status", {"status": {"phase": "Failed"}}),
            (f"{SCHEDULING}/clusters/az1", {"spec": {"eipcapacity": 9}}),
        ):
            assert (await cloud.hub.of(ALICE, "PATCH", home + path, patch, content_type=MERGE_PATCH)).status == 403
        binding = {"metadata": {"name": "waiting"}, "target": {"kind": "Cluster", "name": "az1"}}
        assert (await cloud.hub.of(ALICE, "POST", f"{home}{PODS}/waiting/binding", binding)).status == 403
        assert (
            await cloud.hub.of(ALICE, "POST", f"{home}{PODS}", merged(machine("x"), CLAIMS["spec.nodeName"]))
        ).status == 403
    assert (await cloud.hub.of(ALICE, "POST", f"{home}{PODS}", machine("seen"))).status == 201
    compute = (await cloud.hub.of(OPERATOR, "GET", f"/clusters/root:compute{APIS}/apiexports/kubernetes")).json
    own = (
        f"/services/apiexport/{compute['metadata']['annotations']['kcp.io/cluster']}/kubernetes/clusters/{cloud.alices}"
    )
    for path, patch in ((f"{PODS}/waiting", CLAIMS["spec.nodeName"]), (f"{PODS}/bound/status", FAILED)):
        answer = await cloud.hub.of(OPERATOR, "PATCH", own + path, patch, content_type=MERGE_PATCH)
        assert answer.status == 200  # who owns the export
    assert (await cloud.hub.of(ALICE, "GET", f"{own}{PODS}/waiting")).status == 403


# --- other doors, and what is too much --------------------------------------------------------------


async def test_machines_have_no_other_doors(cloud: Cloud) -> None:
    with cloud.hub.writes_nothing():
        for user in (ALICE, MASTER):
            for door in ("ephemeralcontainers", "resize", "scale", "eviction", "log", "exec", "finalize"):
                for method in ("GET", "PUT", "POST", "PATCH"):
                    answer = await cloud.of(user, method, f"bound/{door}", {}, content_type=MERGE_PATCH)
                    assert answer.status in (403, 404), (user, door, method)
            at = f"/clusters/{cloud.alices}/api/v1/namespaces/default/bindings"
            binding = {"metadata": {"name": "waiting"}, "target": {"kind": "Cluster", "name": "az1"}}
            assert (await cloud.hub.of(user, "POST", at, binding)).status in (403, 404)


async def test_a_template_of_pods_has_no_room_for_machines(cloud: Cloud) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": machine()["spec"]}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    path = f"/clusters/{cloud.alices}/apis/apps/v1/namespaces/default/deployments"
    unknown = 'unknown field "spec.template.spec.virtualMachine"'
    answer = await cloud.hub.of(ALICE, "POST", path, deployment, {"fieldValidation": "Strict"})
    assert (answer.status, unknown in answer.message) == (400, True)
    answer = await cloud.hub.of(ALICE, "POST", path, deployment)
    assert (answer.status, "spec.template.spec.containers: Required value" in answer.message) == (422, True)
    template["spec"] |= {"containers": [{"name": "web", "image": "nginx"}]}
    answer = await cloud.hub.of(ALICE, "POST", path, deployment)
    assert (answer.status, "spec.template.spec.virtualMachine" in answer.warnings[0]) == (201, True)
    assert "virtualMachine" not in answer.json["spec"]["template"]["spec"]


HUGE: list[tuple[Obj, int]] = [
    ({"userData": "a" * 65_540}, 422),
    ({"image": "a" * 1025}, 422),
    ({"flavors": [{"flavorID": "a" * 254}]}, 422),
    ({"resourceCommonInfo": {"count": 10_001}}, 422),
    ({"resourceCommonInfo": {"selector": {"regions": [{"region": "a"}] * 65}}}, 422),
    ({"volumeDevices": [{"name": "a", "devicePath": "b"}] * 65}, 422),
    ({"bootVolume": {"size": "a" * 4_000_000}}, 413),
    ({"powerSpec": ["a"] * 1_000_000}, 413),
]


async def test_a_huge_machine_is_refused(cloud: Cloud) -> None:
    with cloud.hub.writes_nothing():
        for fields, status in HUGE:
            assert (await cloud.of(ALICE, "POST", "", machine("huge", **fields))).status == status, list(fields)
        deep = '{"a":' * 20_000 + "1" + "}" * 20_000
        body = json.dumps(machine("deep", bootVolume="x")).replace('"x"', deep)
        assert (await cloud.of(ALICE, "POST", "", body)).status in (400, 422)


# --- whatever they send -----------------------------------------------------------------------------

VALUES: st.SearchStrategy[Any] = st.sampled_from([None, "az1", "az9", "", "yes", 7, [], {}, {"a": "b"}])
KEYS = st.sampled_from([LABEL, f"{GROUP}/flavor-id", PROJECTED, "app", f"{GROUP}/"])
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.one_of(st.none(), st.dictionaries(KEYS, VALUES, max_size=3)),
                "annotations": st.one_of(st.none(), st.dictionaries(KEYS, VALUES, max_size=3)),
                "finalizers": VALUES,
            },
        ),
        "spec": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "nodeName": VALUES,
                    "clusterName": VALUES,
                    "containers": VALUES,
                    "tolerations": VALUES,
                    "virtualMachine": st.one_of(
                        VALUES,
                        st.just({"flavors": [{"flavorID": "other"}]}),
                        st.just({"resourceCommonInfo": {"count": 9}}),
                        st.just({"needEIP": None}),
                    ),
                },
            ),
        ),
        "status": st.one_of(VALUES, st.just({"phase": "Failed"})),
    },
)


@settings(max_examples=examples(6))
@given(
    sent=st.lists(st.tuples(st.sampled_from(["bound", "waiting", "bound/status"]), PATCHES), min_size=8, max_size=24)
)
async def test_no_request_of_a_tenant_changes_the_room_that_the_scheduler_sees_as_taken(
    sent: list[tuple[str, Obj]],
) -> None:
    cloud, seeing = await opened(), SubjectDecoder({})

    def seen() -> tuple[object, ...]:
        [home] = [home for home in cloud.hub.store.storage_prefixes() if home.startswith("/core/pods:")]
        found = {objects.name_in(one.key)[1]: seeing.pod(one.value) for one in cloud.hub.store.list(home).entries}
        return found["bound"].reservations, found["waiting"].reservations, found["waiting"].pending

    before = seen()
    assert before[0] and before[1:] == ((), True)
    for name, patch in sent:
        if name.endswith("/status"):
            await cloud.of(ALICE, "PATCH", name, patch, content_type=MERGE_PATCH)
        else:
            await cloud.every_way(ALICE, name, patch)
        assert seen() == before


def test_a_refusal_names_a_few_of_many() -> None:
    labels = {f"{GROUP}/{number:04}": "" for number in range(1000)}
    with pytest.raises(ApiError) as refused:
        machines.check_binding(User("alice"), {"metadata": {"name": "x", "labels": labels}}, None, lambda asked: False)
    assert "0007] and 992 more: the binding" in refused.value.message
