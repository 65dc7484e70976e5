"""Tenants who want to go before others: machines and Allocations have the priority that operators give, or less."""

from __future__ import annotations

from itertools import product
from typing import Any

import yaml
from hub_harness import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Answer
from platform_harness import ALICE, OPERATOR, PlatformHub, platform_hub
from seed_machine import MACHINE

from farflung.machinery.errors import Obj

GROUP = "globalscheduler.com"
HOMES = {"Pod": "/api/v1/namespaces/default/pods", "Allocation": f"/apis/{GROUP}/v1/namespaces/default/allocations"}
DOORS = {"Pod": "create pods/binding", "Allocation": "update allocations/status"}


async def opened() -> tuple[PlatformHub, str]:
    hub = await platform_hub()
    cluster = await hub.workspace("alices", ALICE)
    for export in ("kubernetes", GROUP):
        await hub.bind(cluster, export, "root:compute", export)
    return hub, f"/clusters/{cluster}"


def asking(kind: str, name: str, **spec: Any) -> Obj:
    obj: Obj = yaml.safe_load(MACHINE)
    if kind == "Allocation":
        resources = [{"flavors": [{"flavor_id": "a"}]}]
        obj = {"apiVersion": f"{GROUP}/v1", "kind": kind, "spec": {"resource_group": {"resources": resources}}}
    return {**obj, "metadata": {"name": name}, "spec": {**obj["spec"], **spec}}


def forbids(answer: Answer, kind: str, priority: int) -> bool:
    told = f"cannot set spec.priority to {priority}: a priority above 0 requires permission to {DOORS[kind]}"
    return answer.status == 403 and bool(answer.message.endswith(f'User "alice" {told}'))


async def test_a_tenant_gets_no_priority_in_any_spelling() -> None:
    hub, at = await opened()
    for kind, home in HOMES.items():
        path = at + home
        await hub.made(ALICE, path, asking(kind, "waiting"))
        present = (await hub.of(ALICE, "GET", f"{path}/waiting")).json
        urgent = {"spec": {"priority": 7}}
        whole = {**present, "spec": {**present["spec"], "priority": 7}}
        added = [{"op": "add", "path": "/spec/priority", "value": 7}]
        applied = {"apiVersion": present["apiVersion"], "kind": kind, "metadata": {"name": "waiting"}, **urgent}
        force = {"fieldManager": "alice", "force": "true"}
        with hub.writes_nothing():
            for answer in (
                await hub.of(ALICE, "POST", path, asking(kind, "new", priority=7)),
                await hub.of(ALICE, "POST", path, asking(kind, "new", priority=7), {"dryRun": "All"}),
                await hub.of(ALICE, "PATCH", f"{path}/waiting", urgent, content_type=MERGE_PATCH),
                await hub.of(ALICE, "PATCH", f"{path}/waiting", added, content_type=JSON_PATCH),
                await hub.of(ALICE, "PATCH", f"{path}/waiting", applied, force, content_type=APPLY_PATCH),
                await hub.of(ALICE, "PUT", f"{path}/waiting", whole),
            ):
                assert forbids(answer, kind, 7), answer.body


async def test_everybody_may_let_others_go_first_and_keep_or_lower_what_they_were_given() -> None:
    hub, at = await opened()
    for kind, home in HOMES.items():
        path = at + home
        await hub.made(ALICE, path, asking(kind, "patient", priority=-5))
        await hub.made(OPERATOR, path, asking(kind, "urgent", priority=7))
        for name, priority, allowed in (
            ("patient", -9, True),
            ("patient", 0, True),
            ("patient", 1, False),
            ("urgent", 7, True),
            ("urgent", 8, False),
            ("urgent", 3, True),
            ("urgent", 7, False),
        ):
            body = {"metadata": {"labels": {"at": f"p{abs(priority)}"}}, "spec": {"priority": priority}}
            answer = await hub.of(ALICE, "PATCH", f"{path}/{name}", body, content_type=MERGE_PATCH)
            assert answer.status == (200 if allowed else 403), (kind, name, priority, answer.body)


async def test_operators_may_set_priorities() -> None:
    hub, at = await opened()
    for kind, home in HOMES.items():
        path = at + home
        await hub.made(ALICE, path, asking(kind, "waiting"))
        answer = await hub.of(OPERATOR, "PATCH", f"{path}/waiting", {"spec": {"priority": 7}}, content_type=MERGE_PATCH)
        assert (answer.status, answer.json["spec"]["priority"]) == (200, 7)


async def test_pods_with_containers_have_the_priority_that_their_cluster_gives_them() -> None:
    hub, at = await opened()
    spec = {"containers": [{"name": "c", "image": "i"}], "priority": 7}
    pod: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    made = await hub.made(ALICE, at + HOMES["Pod"], pod)
    assert made["spec"]["priority"] == 7


async def test_what_nobody_may_say_is_said_of_no_other_workspace_either() -> None:
    """Through the view of an export that claims machines."""
    hub, at = await opened()
    apis = "/apis/apis.kcp.io/v1alpha1"
    claims = []
    for binding, group, resource in (("kubernetes", "", "pods"), (GROUP, GROUP, "allocations")):
        found = await hub.of(ALICE, "GET", f"{at}{apis}/apibindings/{binding}")
        identity = found.json["status"]["boundResources"][0]["schema"]["identityHash"]
        claims.append({"group": group, "resource": resource, "identityHash": identity, "all": True})
    export = {"metadata": {"name": "mine"}, "spec": {"permissionClaims": claims}}
    await hub.made(ALICE, f"{at}{apis}/apiexports", export)
    cluster = at.rpartition("/")[2]
    accepted = [{**claim, "state": "Accepted"} for claim in claims]
    await hub.bind(cluster, "mine", "root:alices", "mine", by=ALICE, permissionClaims=accepted)
    view = f"/services/apiexport/{cluster}/mine/clusters/{cluster}"
    with hub.writes_nothing():
        for (kind, home), priority in product(HOMES.items(), (1, 2**31 - 1)):
            answer = await hub.of(ALICE, "POST", view + home, asking(kind, "new", priority=priority))
            assert forbids(answer, kind, priority), answer.body
